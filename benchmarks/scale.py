"""Ranking on a cluster: overhead against one process, strong and weak scaling, bytes, memory, and the model beside it.

`python benchmarks/scale.py` starts nodes of Ray on this machine, each with one core, and prints Markdown. Nodes share
the machine, so that more of them than there are free cores say nothing of wall seconds; processor seconds still do.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from recallatk.cluster import Node, estimate_ranking, joined, plan_ranking, rank
from recallatk.cluster.estimate import Estimate
from recallatk.cores import usable_cores
from recallatk.ranking import Ranking, stream_grid
from recallatk.ranking import rank as rank_here
from recallatk.relevance import build_relevance
from recallatk.types import EmbeddingSet, EvalProtocol

STORE = 400 * 2**20
MEMORY = 10**9

LEVEL = 8 + 2 + 1 + 1
"""Bytes of a level that must come here: its similarity and three counts, of a gallery of less than 2**15."""


@dataclasses.dataclass(frozen=True)
class Took:
    """What one ranking took.

    Attributes:
        wall: seconds.
        processor: seconds of all processes that worked.
        ahead: the sum of all counts, by which runs are compared.
        here: processor seconds of the process that gives the work out.
        resident: the most that a worker held, in megabytes.
        moved: megabytes of arrays that tasks were given and gave, what is shared once for each node.
        tasks: how many there were.
        levels: how many were counted against.
    """

    wall: float
    processor: float
    ahead: int
    here: float = 0.0
    resident: float = 0.0
    moved: float = 0.0
    tasks: int = 0
    levels: int = 0


def make_files(folder: Path, sizes: dict[str, int], d: int) -> None:
    """Clustered rows, five of a label, one in twenty a copy of another one; written a block at a time."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(max(sizes.values()) // 5, d)).astype(np.float32)
    for name, n in sizes.items():
        labels = rng.integers(0, len(centres), n)
        np.save(folder / f"{name}.labels.npy", labels)
        made = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (n, d))
        for start in range(0, n, 8192):
            part = labels[start : start + 8192]
            made[start : start + 8192] = centres[part] + 1.5 * rng.normal(size=(len(part), d))
            made[start : start + len(part) : 20] = made[max(start - 1, 0)]
        made.flush()


def load(folder: Path, name: str, n: int, few: int | None) -> EmbeddingSet:
    """The first rows of a file, with their own labels or with so many."""
    labels = np.load(folder / f"{name}.labels.npy")[:n]
    labels = labels if few is None else labels % few
    whole = np.load(folder / f"{name}.npy", mmap_mode="r")
    rows = np.memmap(folder / f"{name}.npy", np.float32, "r", whole.offset, (n, whole.shape[1]))
    return EmbeddingSet(rows, labels, ids=[f"{name} {row}" for row in range(n)])


def run(folder: Path, queries: int | None, n: int, address: str | None, few: int | None = None) -> Took:
    """Rank, in this process with one thread or on the cluster at an address; a set against itself without queries.

    With few labels at depth "all".
    """
    gallery, depth = load(folder, "gallery", n, few), "first" if few is None else "all"
    query = None if queries is None else load(folder, "query", queries, few)
    relevance = build_relevance(query or gallery, None if query is None else gallery, EvalProtocol())
    sets = [gallery.embeddings] if query is None else [query.embeddings, gallery.embeddings]
    grids = stream_grid(*sets)
    if address is None:
        wall, busy = time.perf_counter(), time.process_time()
        blocks = rank_here(grids[0], grids[-1], relevance, depth=depth, threads=1, memory=MEMORY)
        ahead, levels = counted(blocks)
        return Took(time.perf_counter() - wall, time.process_time() - busy, ahead)
    with joined(address) as engine:
        warm = [engine.run(np.zeros, 1) for _ in range(8 * engine.cores)]
        _ = [engine.fetch(ref) for ref in warm]
        engine.finish()
        engine.spent.clear()
        engine.shared = 0
        wall, busy = time.perf_counter(), time.process_time()
        blocks = rank(grids[0], grids[-1], relevance, engine=engine, depth=depth, memory=MEMORY)
        ahead, levels = counted(blocks)
        wall, here = time.perf_counter() - wall, time.process_time() - busy
        spent = engine.spent
        return Took(
            wall,
            here + sum(task.processor for task in spent),
            ahead,
            here,
            max(task.resident for task in spent) / 1e6,
            (sum(task.moved for task in spent) + engine.shared * (len(engine.nodes) - 1)) / 1e6,
            len(spent),
            levels,
        )


def counted(blocks: Iterable[Ranking]) -> tuple[int, int]:
    """All negatives ahead, and all levels; nothing of a block is kept."""
    ahead = levels = 0
    for block in blocks:
        ahead, levels = ahead + int(block.negatives_ahead.sum()), levels + len(block.similarity)
    return ahead, levels


def in_a_process(folder: Path, *arguments: object) -> Took:
    """`run` in a process of its own."""
    command = [sys.executable, __file__, "--run", json.dumps([str(folder), *arguments])]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Took(**json.loads(done.stdout.splitlines()[-1]))


def on_nodes(folder: Path, nodes: int, queries: int | None, n: int, few: int | None = None) -> Took:
    """The same on so many nodes of one core, and one without any where the work is given out."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=1, object_store_memory=STORE)
        return in_a_process(folder, queries, n, cluster.address, few)
    finally:
        cluster.shutdown()


def line(*cells: object) -> None:
    """A row of a table."""
    print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)


def shown(took: Took) -> tuple[str, ...]:
    """The cells of what a run took."""
    return f"{took.wall:.1f}", f"{took.processor:.1f}", f"{took.here:.2f}", f"{took.resident:.0f}", f"{took.tasks}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="queries and gallery items")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=2, help="of all but depth all; the faster of each is taken")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        folder, *what = json.loads(chosen.run)
        print(json.dumps(dataclasses.asdict(run(Path(folder), *what))))
        return
    n, d, most = chosen.rows, chosen.dim, max([1, *chosen.nodes])
    print(f"{usable_cores()} cores here, shared with whatever else runs; load {os.getloadavg()[0]:.1f}\n")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_files(folder, {"query": n, "gallery": n * most}, d)
        print(f"Overhead: {n:,} x {n:,} x {d}, one core\n")
        head("against one process")
        for queries, what in ((n, "queries and gallery"), (None, "a set against itself")):
            alone, there = faster(
                chosen.rounds,
                functools.partial(in_a_process, folder, queries, n, None),
                functools.partial(on_nodes, folder, 1, queries, n),
            )
            line(f"{what}: one process", *shown(alone), "", "")
            line(f"{what}: a cluster of one core", *shown(there), by_model(queries, n, d, 1), against(there, alone))
            report_bytes(there, queries, n, d)
        deep = n // 5
        print(f'\nDepth "all": {deep:,} of ten labels against themselves x {d}\n')
        head("against one process")
        alone, there = in_a_process(folder, None, deep, None, 10), on_nodes(folder, 1, None, deep, 10)
        assert alone.ahead == there.ahead, "the counts differ"
        line("one process", *shown(alone), "", "")
        line("a cluster of one core", *shown(there), "", against(there, alone))
        least = there.levels * LEVEL / 1e6
        ratio = f"{there.moved / least:.2f} times that"
        line(f"bytes: {there.moved:,.0f} MB moved", f"least {least:,.0f} MB", ratio, *[""] * 5)
        for title, queries, growing in (
            (f"Strong scaling: {n:,} x {n:,} x {d}", n, False),
            (f"Strong scaling: {n:,} x {d} against itself", None, False),
            (f"Weak scaling: {n:,} queries, {n:,} gallery items a node, x {d}", n, True),
        ):
            print(f"\n{title}\n")
            head("efficiency")
            sizes = {nodes: n * nodes if growing else n for nodes in chosen.nodes}
            took = faster(
                chosen.rounds,
                *(functools.partial(on_nodes, folder, nodes, queries, size) for nodes, size in sizes.items()),
                same=not growing,
            )
            for (nodes, size), one in zip(sizes.items(), took, strict=True):
                efficiency = took[0].wall / one.wall * (chosen.nodes[0] / nodes) ** (not growing)
                line(f"{nodes} nodes", *shown(one), by_model(queries, size, d, nodes), f"{efficiency:.2f}")


def faster(rounds: int, *runs: Callable[[], Took], same: bool = True) -> list[Took]:
    """The faster of each of these runs, which take turns; with `same`, all must have the same counts."""
    took = [[run() for run in runs] for _ in range(rounds)]
    counts = {one.ahead for each in took for one in each}
    assert not same or len(counts) == 1, "the counts differ"
    return [min(each, key=lambda one: one.wall) for each in zip(*took, strict=True)]


def head(last: str) -> None:
    """The header of a table."""
    names = ("", "wall s", "processor s", "of these here", "worker MB", "tasks", "wall s by the model", last)
    line(*names)
    line(*["---"] * len(names))


def against(there: Took, alone: Took) -> str:
    """How much more a cluster takes."""
    return f"wall {there.wall / alone.wall - 1:+.1%}, processor {there.processor / alone.processor - 1:+.1%}"


def expected(queries: int | None, n: int, d: int, nodes: int) -> Estimate:
    """What the scaling model says of nodes of one core."""
    alone, q = queries is None, n if queries is None else queries
    machines = [Node(f"node {number}", 1, 0, 8 * 10**9) for number in range(nodes)]
    plan = plan_ranking(q, n, d, machines, alone=alone, memory=MEMORY)
    return estimate_ranking(q, n, d, plan, machines, alone=alone)


def by_model(queries: int | None, n: int, d: int, nodes: int) -> str:
    """The seconds of it."""
    return f"{expected(queries, n, d, nodes).seconds:.1f}"


def report_bytes(took: Took, queries: int | None, n: int, d: int) -> None:
    """What moved and was read, beside the least that could."""
    least = 40 * n if queries is None else (4 * d + 40) * queries
    line(
        f"bytes: given to and by tasks {took.moved:,.0f} MB",
        f"least that must move {least / 1e6:,.0f} MB",
        f"read of the gallery {expected(queries, n, d, 1).read / 1e6:,.0f} MB, least {4 * d * n / 1e6:,.0f} MB",
        *[""] * 5,
    )


if __name__ == "__main__":
    main()
