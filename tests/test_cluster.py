"""A real Ray: the same answer as one machine, whatever is cut, finishes first, or dies on the way."""

from __future__ import annotations

import dataclasses
import mmap
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from command_line import recallatk
from grid_worlds import assert_same, columns_of, sample
from recallatk.embeddings import parts, save_embeddings
from recallatk.evaluation import evaluate_embeddings
from recallatk.ranking import rank as rank_here
from recallatk.ranking import rank_scores, stream_grid
from recallatk.relevance import build_relevance
from recallatk.run import evaluate_encoded, load_encoded
from recallatk.types import EmbeddingSet, EvalProtocol, RecallatkError

pytestmark = pytest.mark.integration
pytest.importorskip("ray", reason="make test-integrations installs it")

from recallatk.cluster import RankingPlan, joined, plan_ranking, rank, rank_blocks_of_scores  # noqa: E402
from recallatk.cluster.sources import MappedFile  # noqa: E402
from recallatk.cluster.tasks import memory_left  # noqa: E402

MB = 2**20


@pytest.fixture(scope="module")
def engine():
    """A Ray of two cores on this machine."""
    with joined("ray", cores=2) as started:
        yield started


def grids_of(query, gallery, protocol):
    sets = [query.embeddings] if gallery is None else [query.embeddings, gallery.embeddings]
    grids = stream_grid(*sets, similarity=protocol.similarity)
    return grids[0], grids[-1]


@pytest.mark.parametrize("depth", ["first", "all"])
@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("maker", ["duplicates", "almost one point", "one point", "clusters"])
def test_the_counts_of_any_cut_are_those_of_one_machine(engine, maker, similarity, alone, depth):
    rng = np.random.default_rng([alone, len(maker)])
    query = sample(rng, maker, 70, name="query")
    gallery = None if alone else sample(rng, maker, 130)
    protocol = EvalProtocol(ignore_same="camera+label", similarity=similarity)
    relevance = build_relevance(query, gallery, protocol)
    grids = grids_of(query, gallery, protocol)
    expected = columns_of(rank_here(*grids, relevance, depth=depth, backend="reference"))
    for block, shard in ((70, 130), (70, 7), (23, 41), (11, 130)):
        plan = RankingPlan(block, shard, 500 * MB, 0)
        found = columns_of(rank(*grids, relevance, engine=engine, depth=depth, plan=plan))
        assert_same(found, expected, f"{maker}, blocks of {block}, shards of {shard}")


@pytest.mark.parametrize("depth", ["first", "all"])
@pytest.mark.parametrize("alone", [True, False])
def test_a_ranking_can_begin_behind_any_query(engine, alone, depth):
    rng = np.random.default_rng([2, alone])
    query = sample(rng, "duplicates", 70, name="query")
    gallery = None if alone else sample(rng, "duplicates", 130)
    relevance = build_relevance(query, gallery, EvalProtocol())
    grids = grids_of(query, gallery, EvalProtocol())
    limit = rng.integers(1, 30, 70) if depth == "all" else None
    choices = {"engine": engine, "depth": depth, "limit": limit, "plan": RankingPlan(20, 30 - 10 * alone, 500 * MB, 9)}
    expected = columns_of(rank_here(*grids, relevance, depth=depth, limit=limit, backend="reference"))
    begun = list(rank(*grids, relevance, **choices))
    assert_same(columns_of(begun), expected, "from the first query on")
    for block in begun:
        before = [one for one in begun if one.queries.stop <= block.queries.stop]
        rest = rank(*grids, relevance, **choices, start=block.queries.stop)
        assert_same(columns_of([*before, *rest]), expected, f"behind {block.queries.stop}")
    first = 33  # of a cluster that cut otherwise
    rest = list(rank(*grids, relevance, **choices, start=first))
    assert rest[0].queries.start == first
    np.testing.assert_array_equal(np.concatenate([one.n_candidates for one in rest]), expected["n_candidates"][first:])
    found = np.concatenate([one.best_positive for one in rest])
    np.testing.assert_array_equal(found, expected["best_positive"][first:])


@pytest.mark.parametrize("depth", ["first", "all"])
@pytest.mark.parametrize("alone", [True, False])
def test_blocks_are_given_while_others_are_still_counted(engine, alone, depth, monkeypatch):
    rng = np.random.default_rng(3)
    query = sample(rng, "clusters", 70, name="query")
    gallery = None if alone else sample(rng, "clusters", 130)
    relevance = build_relevance(query, gallery, EvalProtocol())
    grids = grids_of(query, gallery, EvalProtocol())
    handed = []
    plain = type(engine).run
    monkeypatch.setattr(type(engine), "run", lambda *given, **how: (handed.append(0), plain(*given, **how))[1])
    plan = RankingPlan(10, 7 if alone else 20, 500 * MB, 0)  # more blocks than are held
    at_block = [len(handed) for _ in rank(*grids, relevance, engine=engine, depth=depth, plan=plan)]
    assert at_block[0] < len(handed)


def test_near_tied_best_positives_lie_in_different_shards(engine):
    rng = np.random.default_rng(3)
    query = sample(rng, "clusters", 20, name="query")
    own = np.repeat(query.embeddings, 12, axis=0)  # twelve positives of each query, copies and nearly so
    own[1::3] *= np.float32(1 + 2**-20)
    own[2::3, 0] += np.float32(1e-7)
    gallery = EmbeddingSet(own, np.repeat(query.labels, 12), ids=[f"item {i}" for i in range(240)])
    order = rng.permutation(240)
    gallery = gallery.take(order)
    protocol = EvalProtocol()
    relevance = build_relevance(query, gallery, protocol)
    grids = grids_of(query, gallery, protocol)
    expected = columns_of(rank_here(*grids, relevance, backend="reference"))
    found = columns_of(rank(*grids, relevance, engine=engine, plan=RankingPlan(7, 17, 500 * MB, 0)))
    assert_same(found, expected, "near-ties")


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_report_of_files_is_word_for_word_the_same(engine, tmp_path, dtype):
    rng = np.random.default_rng(4)
    for name, n in (("query", 90), ("gallery", 400)):
        side = sample(rng, "duplicates", n, name=name)
        np.save(tmp_path / f"{name}.npy", side.embeddings.astype(dtype))
        (tmp_path / f"{name}.txt").write_text("\n".join(side.labels), "utf-8")
    for names in (("query", "gallery"), ("gallery",)):
        files = {"query": tmp_path / f"{names[0]}.npy", "query_labels": tmp_path / f"{names[0]}.txt"}
        if len(names) == 2:
            files |= {"gallery": tmp_path / "gallery.npy", "gallery_labels": tmp_path / "gallery.txt"}
        encoded = load_encoded(**files)
        metrics = ["mrr", "map", "set_recall@5"]
        here, there = (evaluate_encoded(encoded, metrics=metrics, cluster=where) for where in (None, "ray"))
        assert str(there) == str(here)
        assert there.signature == here.signature
        assert there.hashes == here.hashes
        for column, values in here.queries.items():
            np.testing.assert_array_equal(there.queries[column], values, err_msg=column)


def test_rows_in_files_are_read_by_the_workers_and_not_sent(engine, tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    gallery = sample(rng, "clusters", 300)
    np.save(tmp_path / "rows.npy", gallery.embeddings)
    mapped = dataclasses.replace(gallery, embeddings=np.load(tmp_path / "rows.npy", mmap_mode="r"))
    shared = []
    plain = type(engine).share
    monkeypatch.setattr(type(engine), "share", lambda self, value: (shared.append(value), plain(self, value))[1])
    relevance = build_relevance(mapped, None, EvalProtocol())
    grids = grids_of(mapped, None, EvalProtocol())
    plan = RankingPlan(50, 50, 500 * MB, 0)
    expected = columns_of(rank_here(*grids, relevance, backend="reference"))
    assert_same(columns_of(rank(*grids, relevance, engine=engine, plan=plan)), expected, "mapped")
    assert not shared


def test_rows_in_parts_are_read_by_the_workers_too(engine, tmp_path, monkeypatch):
    rng = np.random.default_rng(13)
    gallery = sample(rng, "duplicates", 230)
    for number, start in enumerate(range(0, 230, 50)):
        parts.write(str(tmp_path), number, gallery.take(range(start, min(start + 50, 230))), {"encoder": "mine"})
    shared = []
    monkeypatch.setattr(type(engine), "share", lambda self, value: shared.append(value))
    encoded = load_encoded(tmp_path)
    assert isinstance(encoded.query.embeddings, parts.PartedRows)
    assert encoded.query.ids == gallery.ids
    np.testing.assert_array_equal(encoded.query.embeddings[40:120], gallery.embeddings[40:120])
    some = np.array([229, 0, 51, 50, 51])
    np.testing.assert_array_equal(encoded.query.embeddings[some], gallery.embeddings[some])
    found = evaluate_encoded(encoded, cluster="ray", metrics=["mrr"])
    expected = evaluate_embeddings(gallery, metrics=["mrr"])
    assert (dict(found), found.hashes) == (dict(expected), expected.hashes)
    assert not shared


@pytest.mark.parametrize("suffix", [".parquet", ".safetensors", ".npz"])
def test_one_file_is_read_by_the_workers(engine, tmp_path, monkeypatch, suffix):
    gallery = sample(np.random.default_rng(17), "duplicates", 230)
    monkeypatch.setattr("recallatk.embeddings.parquet.BLOCK_BYTES", 9 * 4 * 50)  # a row group has 50 rows
    save_embeddings(gallery, tmp_path / f"rows{suffix}")
    shared = []
    monkeypatch.setattr(type(engine), "share", lambda self, value: shared.append(value))
    monkeypatch.chdir(tmp_path)
    command = ["eval", "--query", f"rows{suffix}", "--metric", "mrr"]
    here, there = recallatk(*command), recallatk(*command, "--cluster", "ray")
    assert (there.code, there.out, there.err) == (0, here.out, here.err)
    assert not shared


def test_a_file_that_a_node_does_not_have_is_one_line(engine, tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((9, 4), np.float32))
    where = MappedFile.of(np.load(tmp_path / "rows.npy", mmap_mode="r"), slice(3, 5))
    np.save(tmp_path / "rows.npy", np.zeros((9, 4), np.float32))
    with pytest.raises(RecallatkError, match=r"cannot read .*rows.npy \(another version of it lies there\)"):
        engine.fetch(engine.run(MappedFile.open, where))
    np.save(tmp_path / "rows.npy", np.ones((8, 4), np.float32))
    with pytest.raises(RecallatkError, match=r"cannot read .*rows.npy \(it has 256 bytes there, not 272\)"):
        engine.fetch(engine.run(MappedFile.open, where))
    (tmp_path / "rows.npy").unlink()
    with pytest.raises(RecallatkError, match=r"cannot read .*rows.npy \(No such file or directory\)"):
        engine.fetch(engine.run(MappedFile.open, where))


def test_a_file_whose_rows_were_changed_in_this_process_alone_is_not_read_elsewhere(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((9, 4), np.float32))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="c")
    rows[3] = 7
    assert MappedFile.of(rows, slice(3, 5)) is None
    assert MappedFile.of(np.load(tmp_path / "rows.npy", mmap_mode="r"), slice(3, 5)) is not None


@pytest.mark.parametrize("depth", ["first", "all"])
def test_scores_are_ranked_in_blocks_of_queries(engine, depth, tmp_path):
    rng = np.random.default_rng(7)
    gallery = sample(rng, "clusters", 80)
    scores = rng.integers(0, 9, (80, 80)).astype(np.float32)
    np.save(tmp_path / "scores.npy", scores)
    relevance = build_relevance(gallery, None, EvalProtocol())
    expected = columns_of(rank_scores(scores, relevance, depth=depth))
    for matrix in (scores, np.load(tmp_path / "scores.npy", mmap_mode="r")):
        blocks = list(rank_blocks_of_scores(matrix, relevance, engine=engine, depth=depth, queries=13))
        assert_same(columns_of(blocks), expected, "scores")
        rest = rank_blocks_of_scores(matrix, relevance, engine=engine, depth=depth, queries=17, start=26)
        assert_same(columns_of([*blocks[:2], *rest]), expected, "scores behind the first")
    scores[41, 2] = np.nan
    with pytest.raises(RecallatkError, match="row 41 holds NaN"):
        list(rank_blocks_of_scores(scores, relevance, engine=engine, queries=13))


@pytest.mark.parametrize(("depth", "alone"), [("first", True), ("first", False), ("all", False)])
def test_progress_never_goes_back_and_ends_with_all(engine, depth, alone, monkeypatch):
    rng = np.random.default_rng(2)
    query, gallery = sample(rng, "clusters", 70, name="query"), None if alone else sample(rng, "clusters", 130)
    relevance = build_relevance(query, gallery, EvalProtocol())
    told = []
    monkeypatch.setattr(engine, "told", lambda done, total: told.append((done, total)))
    grids = grids_of(query, gallery, EvalProtocol())
    list(rank(*grids, relevance, engine=engine, depth=depth, plan=RankingPlan(20, 30, 500 * MB, 0)))
    (total,) = {total for _, total in told}
    first = told[0][0]
    assert [done for done, _ in told] == list(range(first, total + 1))
    assert total - first == (6 if alone else 20)  # 3 parts; 4 blocks of queries and 5 shards


def test_no_worker_holds_more_than_it_may(engine, tmp_path):
    rng = np.random.default_rng(8)
    n, memory = 60_000, 400 * MB
    rows = rng.normal(size=(n, 128)).astype(np.float32)
    rows[::7] = rows[0]
    np.save(tmp_path / "rows.npy", rows)
    one = EmbeddingSet(np.load(tmp_path / "rows.npy", mmap_mode="r"), [str(i) for i in rng.integers(0, 9000, n)])
    relevance = build_relevance(one, None, EvalProtocol())
    (grid,) = stream_grid(one.embeddings)
    engine.spent.clear()
    plan = plan_ranking(n, n, 128, engine.nodes, alone=True, memory=memory)
    assert plan.shard <= n // 4
    found = columns_of(rank(grid, grid, relevance, engine=engine, memory=memory))
    assert_same(found, columns_of(rank_here(grid, grid, relevance)), "in little memory")
    assert max(task.resident for task in engine.spent) <= memory


@pytest.mark.parametrize("in_file", [True, False])
def test_at_depth_all_workers_hold_and_send_little(in_file, engine, tmp_path):
    rng = np.random.default_rng(14)
    n, memory = 8_000, 330 * MB
    one = EmbeddingSet(rng.normal(size=(n, 32)).astype(np.float32), [str(i) for i in rng.integers(0, 10, n)])
    if in_file:
        np.save(tmp_path / "rows.npy", one.embeddings)
        one = dataclasses.replace(one, embeddings=np.load(tmp_path / "rows.npy", mmap_mode="r"))
    relevance = build_relevance(one, None, EvalProtocol())
    (grid,) = stream_grid(one.embeddings)
    engine.finish()
    engine.spent.clear()
    found = columns_of(rank(grid, grid, relevance, engine=engine, depth="all", memory=memory))
    assert_same(found, columns_of(rank_here(grid, grid, relevance, depth="all")), "all levels")
    assert max(task.resident for task in engine.spent) <= memory
    levels = (8 + 2 + 1 + 1) * len(found["similarity"])  # the similarity and three counts of each must come here
    assert sum(task.moved for task in engine.spent) < 1.2 * levels


def test_pages_of_the_object_store_are_given_back():
    before = memory_left(2000 * MB, 8)
    with mmap.mmap(-1, 300 * MB) as shared:
        shared.write(b"1" * (300 * MB))
        assert memory_left(2000 * MB, 8) > before - 100 * MB
        assert shared[:] == b"1" * (300 * MB)


def test_ctrl_c_waits_until_ray_has_begun(monkeypatch):
    import ray

    done = []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: (os.kill(os.getpid(), signal.SIGINT), done.append("begun")))
    monkeypatch.setattr(ray, "shutdown", lambda: done.append("ended"))
    with pytest.raises(KeyboardInterrupt), joined("ray"):
        pass
    assert done == ["begun", "ended"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_command_prints_the_same(engine, tmp_path):
    rng = np.random.default_rng(9)
    np.savez(tmp_path / "rows.npz", embeddings=rng.normal(size=(90, 8)), labels=rng.integers(0, 20, 90))
    command = ["eval", "--query", tmp_path / "rows.npz", "-k", "1,5", "--metric", "map"]
    here, there = recallatk(*command), recallatk(*command, "--cluster", "ray")
    assert here.code == there.code == 0
    assert there.out == here.out
    assert recallatk(*command, "--run-on", "nonsense").code == 2
    score = ["score", "--scores", tmp_path / "scores.npy", "--query-labels", tmp_path / "labels.txt"]
    np.save(tmp_path / "scores.npy", rng.normal(size=(90, 90)))
    (tmp_path / "labels.txt").write_text("\n".join(map(str, rng.integers(0, 20, 90))))
    assert recallatk(*score, "--cluster", "ray").out == recallatk(*score).out
    plan = recallatk(*score, "--cluster", "ray", "--dry-run")
    assert (plan.code, plan.err) == (0, "")
    assert "cluster: 1 node, 2 cores, 0 GPUs\n" in plan.out
    assert "ranking: 90 queries x 90 scores\ncut: 8 blocks of 12 queries\ntasks: 8\n" in plan.out
    assert "time to rank (estimated): under 1 s" in plan.out
    kept = recallatk(*score, "--cluster", "ray", "--parts", tmp_path / "kept")
    assert (kept.code, kept.out) == (0, recallatk(*score).out)
    assert not any(path.is_file() for path in tmp_path.glob("kept/**/*")), "what was kept goes with the command"
    assert recallatk(*score, "--cluster", "ray", "--num-gpus", "1").code == 2
    assert "use fewer --threads" in recallatk(*command, "--cluster", "ray", "--threads", "64").err
    assert recallatk(*command, "--dry-run").code == 2


def test_importing_recallatk_does_not_import_ray():
    code = "import recallatk, recallatk.cli, recallatk.run, recallatk.cluster, sys; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
