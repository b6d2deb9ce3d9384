"""Real processes of torch.distributed: whatever a sampler does, all get the report of one process."""

from __future__ import annotations

import os
import pickle
import re
import time
from pathlib import Path

import numpy as np
import pytest

from recallatk.evaluation import NothingToEvaluateError, evaluate_embeddings
from recallatk.types import EmbeddingSet, EvalProtocol, RecallatkError

pytestmark = pytest.mark.integration
torch = pytest.importorskip("torch", reason="make test-integrations installs it")
pytest.importorskip("torchmetrics", reason="make test-integrations installs it")

from recallatk.integrations import processes, rows, sides  # noqa: E402
from recallatk.integrations.processes import evaluate_rows  # noqa: E402
from recallatk.integrations.rows import Rows  # noqa: E402
from recallatk.integrations.torchmetrics import RecallAtK  # noqa: E402

N, DIM, TIMEOUT = 31, 6, 60
METRICS = ["mrr", "map"]


def data() -> tuple[np.ndarray, list[str], list[str]]:
    """Rows with copies (ties) and rows that are almost copies (near-ties); one label occurs once."""
    rng = np.random.default_rng(7)
    emb = rng.standard_normal((N, DIM)).astype(np.float32)
    emb[5], emb[17] = emb[3], emb[3] * 2
    emb[8] = emb[9] + np.float32(1e-7)
    labels = [f"klasse {i % 6} é" for i in range(N - 1)] + ["alone"]
    return emb, labels, [f"photos/{i}.webp" for i in range(N)]


def round_robin(n, rank, world):
    """torch's DistributedSampler, without shuffling: pads with the first rows."""
    padded = list(range(n)) + list(range(-n % world))
    return padded[rank::world]


def sequential(n, rank, world):
    """mmpretrain's sequential sampler: a run of rows for each process, the last padded with the first rows."""
    padded = list(range(n)) + list(range(-n % world))
    share = len(padded) // world
    return padded[rank * share : (rank + 1) * share]


def unequal(n, rank, world):
    """Nothing for the last process but one row; the first has most."""
    cut = [0, *(n - world + 1 + i for i in range(world))]
    return list(range(cut[rank], cut[rank + 1]))


def nothing_on_first(n, rank, world):
    return [] if rank == 0 else list(range(n))[rank - 1 :: world - 1]


def everything_everywhere(n, rank, world):
    return list(range(n))


SAMPLERS = [round_robin, sequential, unequal, nothing_on_first, everything_everywhere]


def one_process(two_sided=False):
    emb, labels, ids = data()
    protocol = EvalProtocol(ks=(1, 2, 5))
    if not two_sided:
        return evaluate_embeddings(EmbeddingSet(emb, labels, ids), protocol=protocol, metrics=METRICS)
    query, gallery = (EmbeddingSet(emb[s], labels[s], ids[s]) for s in (slice(0, 12), slice(6, N)))
    return evaluate_embeddings(query, gallery, protocol=protocol, metrics=METRICS)


def metric(**options):
    return RecallAtK((1, 2, 5), metrics=METRICS, timeout=TIMEOUT, **options)


def fill(one, sampler, rank, world, *, start=0, stop=N, **role):
    emb, labels, ids = data()
    mine = [start + i for i in sampler(stop - start, rank, world)]
    for part in (mine[i : i + 3] for i in range(0, len(mine), 3)):
        one.update(torch.from_numpy(emb[part]), [labels[i] for i in part], [ids[i] for i in part], **role)


def leave_one_out(rank, world, name):
    one = metric()
    fill(one, next(s for s in SAMPLERS if s.__name__ == name), rank, world)
    value = one.compute()
    assert len(one.embeddings) == len(one.notes)  # what was here before is here again
    return value, one.report


def query_and_gallery(rank, world, name):
    sampler = next(s for s in SAMPLERS if s.__name__ == name)
    one = metric()
    fill(one, sampler, rank, world, stop=12, role="query")
    fill(one, sampler, rank, world, start=6, role="gallery")
    return one.compute(), one.report


def in_small_blocks(rank, world, name):
    """Blocks of two rows, arrays on disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "BLOCK_BYTES", 8 * DIM)
        real = sides.new_array
        patch.setattr(sides, "new_array", lambda shape, dtype: real(shape, dtype, most=1))
        return leave_one_out(rank, world, name)


def on_the_group_itself(rank, world, name):
    """The path of collect_device='gpu', where rows travel through the group given, with the CPU for a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes._Exchange, "_check_gpu", lambda *_: None)
        patch.setattr(processes, "_GPU", "cpu")
        one = metric(collect_device="gpu")
        fill(one, round_robin, rank, world)
        return one.compute(), one.report


def other_label(rank, world, name):
    one = metric()
    one.update(torch.eye(3), ["a", "b", f"c{rank}"], ids=[1, 2, 3])
    one.compute()


def other_embedding(rank, world, name):
    one = metric()
    one.update(torch.eye(3).roll(rank, 0), ["a", "a", "a"], ids=[1, 2, 3])
    one.compute()


def other_dimension(rank, world, name):
    one = metric()
    one.update(torch.eye(3)[:, : 3 - rank % 2] + 1, ["a", "a", "a"], ids=[0, 1, 2])
    one.compute()


def no_rows(rank, world, name):
    metric().compute()


def no_positive(rank, world, name):
    one = metric()
    one.update(torch.rand(2, 4), [f"{rank} a", f"{rank} b"])
    one.compute()


def not_finite(rank, world, name):
    one = metric()
    one.update(torch.full((2, 4), torch.nan if rank else 1.0), ["a", "a"], ids=[f"{rank} a", f"{rank} b"])
    one.compute()


def rows_were_taken_away(rank, world, name):
    """Others would wait for them, or take what lay in memory for them."""
    one = metric()
    one.update(torch.eye(3), ["a", "a", "a"], ids=[f"{rank} {i}" for i in range(3)])
    if rank:
        one.embeddings[0] = one.embeddings[0][:1]
    one.compute()


def gpu_without_gpu(rank, world, name):
    one = metric(collect_device="gpu")
    fill(one, round_robin, rank, world)
    one.compute()


def after_an_error(rank, world, name):
    """The metric of an error can go on."""
    one = metric()
    one.update(torch.rand(1, DIM), [f"only {rank}"], ids=[rank])
    for _ in range(2):
        with pytest.raises(NothingToEvaluateError):
            one.compute()
    one.reset()
    fill(one, unequal, rank, world)
    return one.compute(), one.report


def alone(rank, world, name):
    one = metric(sync_on_compute=False)
    one.update(torch.rand(4 + rank, 3), [0] * (4 + rank))
    one.compute()
    return one.report.num_queries


def some_of_them(rank, world, name):
    """A group of the first two; the others do something else."""
    group = torch.distributed.new_group([0, 1])
    if rank > 1:
        return None
    one = metric(process_group=group)
    fill(one, round_robin, rank, 2)
    return one.compute(), one.report


def without_ids(rank, world, name):
    emb, labels, _ = data()
    one = metric()
    mine = round_robin(N, rank, world)
    one.update(torch.from_numpy(emb[mine]), [labels[i] for i in mine])
    one.compute()
    return one.report.num_queries, one.report.warnings


def plain_rows(rank, world, name):
    emb, labels, ids = data()
    mine, given = unequal(N, rank, world), Rows()
    given.add(emb[mine], [labels[i] for i in mine], [ids[i] for i in mine])
    return None, evaluate_rows(given, protocol=EvalProtocol(ks=(1, 2, 5)), metrics=METRICS, timeout=TIMEOUT)


def one_does_not_come(rank, world, name):
    """It is there until the others have given it up: that it were gone would be told in other words."""
    given_up = [Path(f"gave up {other}") for other in range(world - 1)]
    if rank == world - 1:
        while not all(file.exists() for file in given_up):
            time.sleep(0.1)
        return
    one = RecallAtK(timeout=2)
    fill(one, unequal, rank, world)
    start = time.monotonic()
    try:
        one.compute()
    finally:
        given_up[rank].touch()
        assert time.monotonic() - start < 30


FIT = [(task, s.__name__) for task in (leave_one_out, query_and_gallery, in_small_blocks) for s in SAMPLERS]
FIT += [(task, "") for task in (on_the_group_itself, after_an_error, some_of_them, plain_rows)]
WRONG = {
    other_label: r"the id '3' came twice, with the label 'c0' and 'c1'",
    other_embedding: r"the id '1' came twice, with embeddings that differ by 141% of their length",
    other_dimension: r"the embeddings have 2 columns in process 1 and 3 in process \d",
    no_rows: r"there are no rows",
    no_positive: r"none of the \d queries has a positive in the gallery",
    not_finite: r"is not finite",
    rows_were_taken_away: r"holds 1 row of embeddings and labels for 3",
    gpu_without_gpu: r"no GPU; use collect_device='cpu'",
    one_does_not_come: r"process 0 of \d lost the others: .*timeout=2 s \(.*\b[12]\b.*monitoredBarrier",
}
TASKS = [*FIT, *((task, "") for task in (alone, without_ids)), *((task, "") for task in WRONG)]


def work(rank, world, folder):
    torch.set_num_threads(1)
    os.chdir(folder)
    store = f"file://{folder}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    results = []
    for task, name in TASKS:
        try:
            results.append(task(rank, world, name))
        except RecallatkError as error:
            results.append(error)
    Path(folder, str(rank)).write_bytes(pickle.dumps(results))


@pytest.fixture(scope="module", params=[2, 3])
def results(request, tmp_path_factory):
    """What each process got from each task; TASKS run in one start of the processes."""
    folder = tmp_path_factory.mktemp("processes")
    torch.multiprocessing.spawn(work, (request.param, str(folder)), nprocs=request.param)
    lists = [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(request.param)]
    return dict(zip(TASKS, zip(*lists, strict=True), strict=True))


@pytest.mark.parametrize(("task", "name"), FIT, ids=lambda part: getattr(part, "__name__", part))
def test_every_process_gets_the_report_of_one(results, task, name):
    expected = one_process(two_sided=task is query_and_gallery)
    got = [result for result in results[task, name] if result is not None]
    assert len(got) >= 2
    for values, report in got:
        assert (str(report.signature), dict(report)) == (str(expected.signature), dict(expected))
        assert report.text() == expected.text()
        if values is not None:
            assert {key: pytest.approx(float(value)) for key, value in values.items()} == dict(expected)


def test_what_was_left_out_is_said(results):
    for sampler in SAMPLERS:
        notes = results[leave_one_out, sampler.__name__][-1][1].provenance.notes
        world = len(results[leave_one_out, sampler.__name__])
        repeated = sum(len(sampler(N, rank, world)) for rank in range(world)) - N
        assert [note for note in notes if note.startswith(f"{repeated} row")] or not repeated
        assert not notes or repeated


@pytest.mark.parametrize("task", WRONG, ids=lambda task: task.__name__)
def test_what_goes_wrong_on_one_is_raised_on_all(results, task):
    got = [result for result in results[task, ""] if result is not None]
    assert len(got) == len(results[task, ""]) - (task is one_does_not_come)
    assert all(isinstance(error, RecallatkError) for error in got)
    assert re.search(WRONG[task], str(got[0]))
    assert task is one_does_not_come or len(set(map(str, got))) == 1


def test_a_metric_that_is_not_synced_stays_alone(results):
    assert list(results[alone, ""]) == [4 + rank for rank in range(len(results[alone, ""]))]


def test_without_ids_padding_is_counted_and_doubted(results):
    for num_queries, warnings in results[without_ids, ""]:
        world = len(results[without_ids, ""])
        assert num_queries == N + -N % world
        assert any("give ids" in warning for warning in warnings)
