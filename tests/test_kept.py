"""Blocks of a ranking that are kept: what was interrupted goes on behind them, with the same counts."""

from __future__ import annotations

import dataclasses
import errno
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from recallatk.cli.delivery import deliver
from recallatk.cli.flags import Output
from recallatk.cluster import Node, estimate_ranking, plan_ranking
from recallatk.embeddings import parts
from recallatk.evaluation import evaluate_embeddings, evaluate_scores
from recallatk.ranking import Ranking, rank, rank_scores
from recallatk.ranking.counts import join_blocks
from recallatk.run import kept_in
from recallatk.run.kept import keeping
from recallatk.types import EmbeddingSet, Ended, EvalProtocol, Qrels, RankedLists, RecallatkError, SampleSet

N = 40
OF_LEVELS = ("similarity", "negatives_ahead", "negatives_tied", "positives_tied")


def rows_of(n=N, *, seed=0, name="row"):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 6)).astype(np.float32)
    rows[::5] = rows[0]
    ids = [f"{name} {i:02}" for i in range(n)]
    return EmbeddingSet(rows, [f"label {i}" for i in rng.integers(0, 7, n)], ids=ids)


def cut(whole, queries):
    """Some of the queries of a ranking."""
    levels = slice(whole.starts[queries.start], whole.starts[queries.stop])
    graded = whole.gains is not None
    ends = np.concatenate([[0], np.cumsum(whole.n_positives)])
    grades = slice(ends[queries.start], ends[queries.stop])
    found = {"queries": queries, "starts": whole.starts[queries.start : queries.stop + 1] - levels.start}
    found |= {name: getattr(whole, name)[levels] for name in OF_LEVELS}
    found |= {name: getattr(whole, name)[grades] if graded else None for name in ("gains", "ideal_gains")}
    others = [field.name for field in dataclasses.fields(Ranking) if field.name not in found]
    return Ranking(**found, **{name: getattr(whole, name)[queries] for name in others})


class Cluster:
    """Ranks in blocks of ten queries, and fails before the block that begins at `fails`."""

    def __init__(self, ranks=rank, fails=None):
        self.ranks, self.fails, self.asked = ranks, fails, []

    def __call__(self, *sets, start=0, **choices):
        whole = join_blocks(list(self.ranks(*sets, **choices)))
        for begin in range(start, len(whole), 10):
            if begin == self.fails:
                raise RecallatkError("the cluster lost a task")
            self.asked.append(begin)
            yield cut(whole, slice(begin, min(begin + 10, len(whole))))


def evaluated(folder, cluster, query=None, gallery=None, **choices):
    """A report and its notes; blocks are kept, also when all is done."""
    notes = []
    with kept_in(str(folder)) as kept:
        keep = keeping(kept, notes)
        report = evaluate_embeddings(query or rows_of(), gallery, rank=cluster, keep=keep, **choices)
        kept.finished.clear()
    return report, notes


def interrupted(folder, fails=20, **choices):
    with pytest.raises(RecallatkError, match="lost a task"):
        evaluated(folder, Cluster(fails=fails), **choices)


def blocks_in(folder):
    return sorted(Path(folder).glob("*/block-*.npz"))


def assert_same(report, expected):
    assert (str(report), report.hashes) == (str(expected), expected.hashes)
    for column, values in expected.queries.items():
        np.testing.assert_array_equal(report.queries[column], values, err_msg=column)


GRADED = Qrels(
    tuple(f"row {i:02}" for i in range(N) for _ in range(6)),
    tuple(f"row {(7 * i + j) % N:02}" for i in range(N) for j in range(1, 7)),
    np.arange(6 * N) % 3 + 1,
)


@pytest.mark.parametrize(
    ("metrics", "choices"),
    [
        ((), {}),
        (("map", "ndcg@5"), {}),
        (("ndcg",), {"protocol": EvalProtocol(relevance="qrels"), "qrels": GRADED}),
    ],
)
def test_an_interrupted_ranking_goes_on_behind_its_blocks(tmp_path, metrics, choices):
    choices = {"metrics": metrics, **choices}
    expected = evaluate_embeddings(rows_of(), **choices)
    interrupted(tmp_path, **choices)
    assert len(blocks_in(tmp_path)) == 2
    again = Cluster()
    report, notes = evaluated(tmp_path, again, **choices)
    assert again.asked == [20, 30]
    assert notes == ["ranked 20 of 40 queries; 20 were ranked before"]
    assert_same(report, expected)
    last = Cluster()
    report, notes = evaluated(tmp_path, last, **choices)
    assert (last.asked, notes) == ([], ["ranked 0 of 40 queries; 40 were ranked before"])
    assert_same(report, expected)


def test_an_address_keeps_blocks_too(tmp_path):
    interrupted(f"file://{tmp_path}/there")
    again = Cluster()
    evaluated(tmp_path / "there", again)
    assert again.asked == [20, 30]


def test_scores_and_ranked_lists_are_kept_too(tmp_path):
    samples = SampleSet(rows_of().labels, ids=rows_of().ids)
    scores = np.random.default_rng(1).integers(0, 9, (N, N)).astype(np.float32)
    lists = RankedLists(
        tuple(samples.ids[i] for i in range(N) for _ in range(3)),
        tuple(samples.ids[(i + j) % N] for i in range(N) for j in (1, 2, 3)),
        np.arange(3.0 * N),
    )
    for given in (scores, lists):
        expected = evaluate_scores(given, samples)
        for fails, asked in ((20, [0, 10]), (None, [20, 30])):
            cluster, notes = Cluster(rank_scores, fails), []
            with kept_in(str(tmp_path)) as kept:
                keep = keeping(kept, notes)
                if fails is not None:
                    with pytest.raises(RecallatkError):
                        evaluate_scores(given, samples, rank_scores=cluster, keep=keep)
                else:
                    assert_same(evaluate_scores(given, samples, rank_scores=cluster, keep=keep), expected)
            assert cluster.asked == asked


def other(**columns):
    return dataclasses.replace(rows_of(), **columns)


OTHERS = {
    "embeddings": {"query": rows_of(seed=1)},
    "order of rows": {"query": rows_of().take(range(N - 1, -1, -1))},
    "labels": {"query": other(labels=rows_of(seed=1).labels)},
    "who is ignored": {"protocol": EvalProtocol(exclude_self="none")},
    "similarity": {"protocol": EvalProtocol(similarity="dot")},
    "depth": {"metrics": ["map"]},
    "limit": {"metrics": ["map@5"]},
    "a gallery": {"gallery": rows_of(name="item", seed=2)},
}


def test_lists_of_other_queries_are_another_ranking(tmp_path):
    """Their hash names ids, of which these two lists name the same ones; whose row is whose is another matter."""
    folders = set()
    for ids in (("a", "b", "c"), ("a", "c", "d")):
        samples = SampleSet(("x", "x", "x"), ids=ids)
        lists = RankedLists(("a", "c"), ("c", "a"), np.array([1.0, 2.0]))
        with kept_in(str(tmp_path)) as kept:
            keep = keeping(kept, [])
            evaluate_scores(lists, samples, rank_scores=Cluster(rank_scores), keep=keep)
            folders.update(kept.finished)
    assert len(folders) == 2


def test_anything_that_a_count_depends_on_makes_it_another_ranking(tmp_path):
    interrupted(tmp_path)
    for place, choices in enumerate(OTHERS.values(), start=1):
        fresh = Cluster()
        evaluated(tmp_path, fresh, **choices)
        assert fresh.asked[0] == 0
        assert len(list(tmp_path.iterdir())) == 1 + place
    same = Cluster()
    evaluated(tmp_path, same, protocol=EvalProtocol(ks=(1, 2), ties="optimistic", average="macro"), metrics=["mrr"])
    assert same.asked == [20, 30]


def test_rows_of_one_label_in_another_order_are_another_ranking(tmp_path):
    """Relevance is the same for both, and embeddings are hashed in the order of ids."""
    rows = other(labels=("x",) * N)
    interrupted(tmp_path, query=rows)
    fresh = Cluster()
    evaluated(tmp_path, fresh, query=rows.take(range(N - 1, -1, -1)))
    assert fresh.asked[0] == 0


CODE = """\
import sys
sys.path.insert(0, {tests!r})
from test_kept import *
print(evaluated({folder!r}, Cluster())[1])
"""


def test_the_same_command_is_the_same_ranking_in_another_process(tmp_path):
    interrupted(tmp_path)
    code = CODE.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "20 were ranked before" in ran.stdout


@pytest.mark.parametrize("how", ["cut off", "one bit", "empty", "of other queries"])
def test_a_damaged_block_is_ranked_again_and_said_so(tmp_path, how):
    interrupted(tmp_path, fails=30)
    first, second, third = blocks_in(tmp_path)
    data = bytearray(second.read_bytes())
    if how == "of other queries":
        data = bytearray(third.read_bytes())
    elif how == "one bit":
        data[len(data) // 2] ^= 4
    second.write_bytes(data[: {"cut off": 100, "empty": 0}.get(how)])
    again = Cluster()
    report, notes = evaluated(tmp_path, again)
    assert again.asked == [10, 20, 30]
    assert notes[0] == f"{second.name} of {first.parent}: damaged; it is ranked again, and all behind it"
    assert_same(report, evaluate_embeddings(rows_of()))


def test_what_was_half_written_is_not_looked_at(tmp_path):
    interrupted(tmp_path)
    (blocks_in(tmp_path)[0].parent / ".block-000000000020-000000000030.npz.tmp").write_bytes(b"half")
    again = Cluster()
    _, notes = evaluated(tmp_path, again)
    assert (again.asked, notes) == ([20, 30], ["ranked 20 of 40 queries; 20 were ranked before"])


def delivered(folder, error=None):
    """All that a command does, which ends by an error."""
    with kept_in(str(folder)) as kept:
        evaluate_embeddings(rows_of(), rank=Cluster(), keep=keeping(kept, []))
        if error is not None:
            raise error


def test_a_run_that_finishes_removes_its_blocks_and_no_others(tmp_path):
    interrupted(tmp_path, metrics=["map"])
    (others,) = tmp_path.iterdir()
    for error in (RecallatkError("the disk is full"), KeyboardInterrupt(), Ended(143)):
        with pytest.raises(type(error)):
            delivered(tmp_path, error)
        assert len(list(tmp_path.iterdir())) == 2
    delivered(tmp_path)
    assert list(tmp_path.iterdir()) == [others]
    for error in (SystemExit(1), BrokenPipeError()):  # as a gate that is not passed, and as `| head`
        with pytest.raises(type(error)):
            delivered(tmp_path, error)
        assert list(tmp_path.iterdir()) == [others]


def test_of_two_encoders_with_the_same_rows_the_second_says_nothing_of_the_first(tmp_path):
    notes = []
    with kept_in(str(tmp_path / "ranking")) as kept:
        for ranked in ([0, 10, 20, 30], []):
            cluster = Cluster()
            evaluate_embeddings(rows_of(), rank=cluster, keep=keeping(kept, notes))
            assert (cluster.asked, notes) == (ranked, [])


def test_another_run_of_the_same_command_may_finish_meanwhile(tmp_path, monkeypatch):
    interrupted(tmp_path, fails=30)
    expected = evaluate_embeddings(rows_of())
    plain = parts.read_bytes
    read = []

    def read_bytes(folder, name):
        if read:
            parts.remove_folder(folder)
        read.append(name)
        return plain(folder, name)

    monkeypatch.setattr(parts, "read_bytes", read_bytes)
    again = Cluster()
    report, notes = evaluated(tmp_path, again)
    assert (again.asked, notes) == ([10, 20, 30], ["ranked 30 of 40 queries; 10 were ranked before"])
    assert_same(report, expected)


def test_a_folder_that_cannot_be_written_is_a_note(tmp_path):
    (tmp_path / "file").write_text("in the way")
    report, notes = evaluated(tmp_path / "file", Cluster())
    assert_same(report, evaluate_embeddings(rows_of()))
    assert notes[-1].startswith("blocks of the ranking are not kept: ")
    assert "\n" not in "".join(notes)


def test_a_block_of_queries_takes_a_cluster_ten_minutes_at_the_most():
    node = Node("node", 8, 0, 64 * 10**9)
    for n_queries, n_gallery in ((131_072, 10**8), (10**6, 3 * 10**7)):
        plan = plan_ranking(n_queries, n_gallery, 512, [node], alone=False)
        whole = estimate_ranking(n_queries, n_gallery, 512, plan, [node], alone=False).seconds
        assert whole * plan.block / n_queries <= 1.3 * 600
    assert (
        plan_ranking(20_000, 10**9, 512, [node], alone=False).block >= 10_000
    )  # fewer would read the gallery too often


def test_blocks_stay_until_the_report_has_found_room(tmp_path, monkeypatch):
    """A small report lies in the buffer of standard output, and a full disk shows when that is written out."""

    class Full(io.StringIO):
        def flush(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    def command():
        with kept_in(str(tmp_path)) as kept:
            report = evaluate_embeddings(rows_of(), rank=Cluster(), keep=keeping(kept, []))
            monkeypatch.setattr(sys, "stdout", Full())
            deliver(iter([("rows", report, None)]), Output(), {}, several=False)

    with pytest.raises(OSError, match="No space"):
        command()
    assert len(blocks_in(tmp_path)) == 4
