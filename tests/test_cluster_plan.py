"""What a cluster is asked for before anything runs there, and how a job tells how far it is; without Ray."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from recallatk.cli import cluster as cli_cluster
from recallatk.cli import printing
from recallatk.cli.cluster import Cluster, Steps, progress_of
from recallatk.cluster import Node, describe_scores, memory_notes, plan_ranking, plan_scores, task_memory
from recallatk.run import measure_score_files
from recallatk.types import ChoiceError, EvalProtocol, Qrels, RecallatkError

GB = 10**9
NODES = (Node("head", 0, 0, 64 * GB), Node("fast", 8, 1, 16 * GB), Node("wide", 32, 0, 100 * GB))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"threads": 64}, "asks for: 64 cores; the largest, wide, has 32 cores, 0 GPUs, .*; use fewer --threads$"),
        ({"memory": 200 * GB}, r"1 core and 200,000 MB together; the largest, wide, .*; use less --memory$"),
        (
            {"memory": 50 * GB, "backend": "torch"},
            "1 core, a GPU and 50,000 MB together; the largest, fast, has",
        ),
        ({"threads": 16, "backend": "torch"}, "16 cores and a GPU together; .* fast, .*; use fewer --threads$"),
        (
            {"threads": 16, "memory": 20 * GB, "backend": "torch"},
            "16 cores, a GPU and 20,000 MB .* fast, has 8 cores, 1 GPU, .*; use fewer --threads and less --memory",
        ),
    ],
)
def test_what_no_node_has_together_is_one_line_before_anything_starts(asked, said):
    with pytest.raises(RecallatkError, match=said):
        task_memory(NODES, asked.pop("memory", None), **asked)
    assert task_memory(NODES, 15 * GB, 8, "torch") == 15 * GB
    assert task_memory(NODES, 90 * GB, 32) == 90 * GB


@pytest.mark.parametrize(("alone", "most"), [(False, 2), (True, 3)])
def test_at_one_core_rows_are_prepared_few_times(alone, most):
    """What a cluster costs beside one process, which prepares each row once: the rest of the work is the same."""
    n = 100_000
    plan = plan_ranking(n, n, 256, [Node("one", 1, 0, 8 * GB)], alone=alone, memory=GB)
    prepared = plan.tasks * (plan.block + plan.shard)
    assert prepared <= most * (n if alone else 2 * n)


@pytest.mark.parametrize(("machines", "most"), [(1, 2), (2, 3), (16, 8)])
def test_blocks_are_as_high_as_shards(machines, most):
    n = 60_000
    plan = plan_ranking(n, n, 256, [Node("one", 1, 0, 8 * GB)] * machines, alone=False, memory=GB)
    assert plan.tasks >= 4 * machines
    assert plan.tasks * (plan.block + plan.shard) <= most * 2 * n
    few = plan_ranking(1000, 10**6, 256, [Node("one", 1, 0, 8 * GB)] * machines, alone=False, memory=GB)
    assert few.block == 1000


def test_memory_on_a_node_without_cores_is_of_no_use():
    nodes = [Node("head", 0, 0, 8 * GB), Node("worker", 2, 0, GB)]
    with pytest.raises(RecallatkError, match="the largest, worker, has 2 cores, 0 GPUs, 1,000 MB"):
        plan_ranking(100, 100, 8, nodes, alone=True, memory=2 * GB)


def test_a_worker_that_may_hold_too_little_is_given_what_it_takes_and_that_is_said():
    least = task_memory(NODES, 1)
    assert plan_ranking(100, 100, 8, NODES, alone=True, memory=1).memory == least > 200 * 10**6
    assert memory_notes(None) == memory_notes(least) == []
    assert memory_notes(10**6) == [
        "memory: 1 MB is too little, as the process of a worker holds some 210 MB before it ranks; each was given "
        "244 MB"
    ]


def test_a_backend_that_no_cluster_has_is_a_choice():
    for backend, nodes in (("reference", NODES), ("torch", NODES[2:])):
        with pytest.raises(ChoiceError, match=f"--backend {backend}"):
            task_memory(nodes, None, backend=backend)


def test_a_cluster_runs_as_many_tasks_at_once_as_it_has_gpus():
    assert plan_ranking(10**6, 10**6, 64, NODES, alone=True, memory=GB).slots == 40
    assert plan_ranking(10**6, 10**6, 64, NODES, alone=True, memory=GB, backend="torch").slots == 1


def test_scores_are_planned_too(tmp_path):
    np.save(tmp_path / "scores.npy", np.zeros((900, 70), np.float32))
    (tmp_path / "q.txt").write_text("a\n" * 900)
    (tmp_path / "g.txt").write_text("a\n" * 70)
    files = {
        "scores": tmp_path / "scores.npy",
        "query_labels": tmp_path / "q.txt",
        "gallery_labels": tmp_path / "g.txt",
    }
    size = measure_score_files(files, qrels=None, protocol=EvalProtocol())
    assert (size.queries, size.gallery, size.listed, size.width) == (900, 70, None, 4)
    plan = plan_scores(900, NODES[1:2], memory=GB)
    assert (plan.tasks, plan.queries, plan.slots, plan.memory) == (32, 29, 8, GB)
    lines = describe_scores(900, 70, None, plan, width=4)
    assert lines["cut"] == "32 blocks of 29 queries"
    assert lines["read by workers (estimated)"] == "1 MB"
    assert lines["time to rank (estimated)"] == "under 1 s"
    assert lines["estimated for"].startswith("recall@K; metrics that look at every positive")


def test_lists_are_planned_by_what_they_hold(tmp_path):
    (tmp_path / "run.trec").write_text("q0 Q0 a 1 0.5 x\nq0 Q0 b 2 0.4 x\nq1 Q0 b 1 0.3 x\n")
    qrels = Qrels(("q0", "q9"), ("a", "c"), np.array([1, 1]))
    protocol = EvalProtocol(relevance="qrels")
    size = measure_score_files({"run": tmp_path / "run.trec"}, qrels=qrels, protocol=protocol)
    assert (size.queries, size.gallery, size.listed) == (2, 3, 3)
    lines = describe_scores(2, 3, 10**9, plan_scores(2, NODES, memory=GB), width=16)
    assert lines["sent (estimated)"] == "16,000 MB"
    assert lines["time to rank (estimated)"].endswith(" s")


def test_a_log_gets_a_line_now_and_then_and_a_short_job_none(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(printing.time, "monotonic", lambda: now[0])
    steps = Steps(2)
    with progress_of(steps, "encoding lite0", 600, quiet=False) as told:
        for second in range(0, 601, 10):
            now[0] = float(second)
            told(second + 200 * (second > 0), 800)  # what was there before says nothing of the pace
    told_lines = capsys.readouterr().err.splitlines()
    assert len(told_lines) == 9
    assert told_lines[0] == "encoding lite0 (1 of 2): 260 of 800, 2 min left"
    with progress_of(steps, "ranking", quiet=False) as told:
        told(3, 10)
    assert capsys.readouterr().err == ""
    assert steps.title("more") == "more (3 of 2)"
    with progress_of(None, "ranking", quiet=False) as told:
        assert told is None  # on one machine a log gets nothing


def test_a_command_looks_at_the_cluster_before_it_begins(monkeypatch):
    import types

    monkeypatch.setattr(
        "recallatk.cluster.joined", lambda where: contextlib.nullcontext(types.SimpleNamespace(nodes=NODES))
    )
    choices = {"memory": None, "threads": 64, "backend": "auto"}
    with pytest.raises(RecallatkError, match="64 cores"), cli_cluster.session(Cluster("auto"), choices):
        pass
