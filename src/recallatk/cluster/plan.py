"""How the work is cut, and what it is expected to take: a model of time, memory and bytes, with measured constants."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from recallatk.cluster.engine import IN_FLIGHT, Node, able_nodes
from recallatk.memory import megabytes
from recallatk.ranking import Block
from recallatk.types import RecallatkError
from recallatk.wording import counted

PROCESS = 200 * 2**20
"""What a worker holds before it works: Python, numpy, Ray."""

SHARE = 0.5
"""The share of a node's memory that its workers may hold; the rest is Ray's object store and the system's."""

ROOM, BYTES_A_NUMBER = 0.5, 16
"""The share of a worker's memory that its rows take, and what a coordinate of them does: as it was read, on the grid,
and packed. The rest is for tiles and judged pairs."""

MOST_MEMORY = 4 * 2**30
MOST_ROWS = 2**17
"""More rows a block or shard save no time, and a task that is lost costs more."""

LEAST_ROWS = 2**12
"""Fewer rows would cost more to hand over than to count."""


# The scaling model: measured by `benchmarks/scale.py --constants` on one core of an Intel processor with AVX-512 VNNI.
SECONDS_A_PRODUCT = 5e-12
"""Of a query, a gallery row and a column, by the native backend; others take ten times as long."""

SECONDS_A_NUMBER = 1.2e-8
"""To read a coordinate of a task's rows, bring it to the grid and pack it."""

SECONDS_A_TASK = 0.02
"""To hand a task over, and to merge and fetch its result."""

SECONDS_HERE_A_TASK = 0.01
"""Of these, on the one machine that hands all tasks over."""

SECONDS_A_HASHED_BYTE = 1.1e-9
"""The embeddings are hashed here, in the order of their ids: a sha256 cannot be shared among machines."""

BYTES_A_SAMPLE, BYTES_A_QUERY = 120, 320
"""What is known of a row here (label, hash, place in the order, and what it takes to write them; an id adds its text
and some 60), and of a query besides: its place in relevance, counts, values and row of the report."""

BYTES_A_COUNT = 40
"""What a task gives for a query: five counts."""


@dataclasses.dataclass(frozen=True)
class RankingPlan:
    """How a ranking is cut.

    Attributes:
        block: queries in a block.
        shard: gallery rows in a shard; in a set that is ranked against itself, of both.
        memory: bytes that a worker may hold.
        tasks: of the second pass.
    """

    block: int
    shard: int
    memory: int
    tasks: int


def plan_ranking(
    n_queries: int,
    n_gallery: int,
    dim: int,
    nodes: Sequence[Node],
    *,
    alone: bool,
    memory: int | None = None,
    threads: int = 1,
) -> RankingPlan:
    """Cut queries and gallery so that a task fits into a worker, and every core has several tasks.

    Raises:
        RecallatkError: no node has the cores or the memory of one task, or a worker has too little memory.
    """
    memory = task_memory(nodes, memory, threads)
    slots = sum(node.cores // threads for node in able_nodes(nodes, threads, memory=memory))
    room = max(memory - PROCESS, Block.least().bytes(dim)) * ROOM
    most = max(min(int(room // (2 * (BYTES_A_NUMBER * dim + 256))), MOST_ROWS), 1)
    wanted = IN_FLIGHT * slots
    if alone:
        parts = math.ceil((math.isqrt(8 * wanted + 1) - 1) / 2)  # so many parts have that many pairs
        shard = block = _rows(n_gallery, parts, most)
        parts = math.ceil(n_gallery / shard)
        return RankingPlan(block, shard, memory, parts * (parts + 1) // 2)
    block = _rows(n_queries, 1, most)
    blocks = math.ceil(n_queries / block)
    shard = _rows(n_gallery, math.ceil(wanted / blocks), most)
    return RankingPlan(block, shard, memory, blocks * math.ceil(n_gallery / shard))


def task_memory(nodes: Sequence[Node], memory: int | None, threads: int = 1) -> int:
    """What a worker may hold, in bytes.

    Raises:
        RecallatkError: no node has the cores and the memory of one task; it would wait for ever.
    """
    largest = max((node.memory for node in able_nodes(nodes, threads)), default=None)
    if largest is None:
        raise RecallatkError(f"no node of the cluster has {threads} cores for a task; use fewer --threads")
    memory = worker_memory(nodes, threads) if memory is None else memory
    if memory > largest:
        raise RecallatkError(
            f"a worker may hold {megabytes(memory)}, and the largest node with cores for it lends "
            f"{megabytes(largest)}; use less --memory"
        )
    return memory


def worker_memory(nodes: Sequence[Node], threads: int = 1) -> int:
    """What a worker may hold by default, in bytes: its share of half of what the poorest node lends."""
    shared = [node.memory * SHARE * threads / node.cores for node in nodes if node.cores >= threads]
    return int(min([MOST_MEMORY, *shared]))


def _rows(n: int, parts: int, most: int) -> int:
    """Rows of a part, all of about one size."""
    rows = min(max(math.ceil(n / parts), LEAST_ROWS), most)
    return math.ceil(n / math.ceil(n / rows))


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a ranking is expected to take, by the scaling model.

    Attributes:
        seconds: of all nodes together, without what is hashed.
        hashing: seconds here, before it.
        here: bytes of memory of the process that gives the work out.
        read: bytes that workers read of embeddings.
        moved: bytes that travel: queries to every node, and counts.
    """

    seconds: float
    hashing: float
    here: int
    read: int
    moved: int


def estimate_ranking(
    n_queries: int, n_gallery: int, dim: int, plan: RankingPlan, nodes: Sequence[Node], *, alone: bool, threads: int = 1
) -> Estimate:
    """What a plan takes at depth "first"; float32 rows in a file that every node reads."""
    slots = max(1, sum(node.cores // threads for node in nodes))
    blocks, shards = math.ceil(n_queries / plan.block), math.ceil(n_gallery / plan.shard)
    a_task = plan.block * plan.shard * dim * SECONDS_A_PRODUCT / threads
    a_task += (plan.block + plan.shard) * dim * SECONDS_A_NUMBER + SECONDS_A_TASK
    looked_up = blocks * shards * SECONDS_A_TASK / slots  # the first pass
    seconds = max(a_task * max(plan.tasks / slots, 1.0) + looked_up, plan.tasks * SECONDS_HERE_A_TASK)
    sides = 1 if alone else 2
    rows = n_gallery if alone else n_queries + n_gallery
    read = 4 * dim * plan.tasks * (2 * plan.shard if alone else plan.shard)
    counts = plan.tasks * plan.block * BYTES_A_COUNT * (2 if alone else 1)
    broadcast = 0 if alone else 4 * dim * n_queries * len(nodes)
    return Estimate(
        seconds=seconds,
        hashing=4 * dim * rows * SECONDS_A_HASHED_BYTE * 2,  # and each is looked at once, whether it is usable
        here=PROCESS + rows * BYTES_A_SAMPLE + n_queries * BYTES_A_QUERY + sides * 2**26,
        read=read,
        moved=broadcast + counts,
    )


def describe_nodes(nodes: Sequence[Node]) -> dict[str, str]:
    """A cluster in words."""
    lines = {
        "cluster": f"{counted(len(nodes), 'node')}, {counted(sum(node.cores for node in nodes), 'core')}, "
        f"{counted(sum(node.gpus for node in nodes), 'GPU')}",
    }
    for place, node in enumerate(sorted(nodes, key=lambda node: node.name), start=1):
        what = f"{counted(node.cores, 'core')}, {counted(node.gpus, 'GPU')}, {megabytes(node.memory)} for tasks"
        lines[f"node {place}"] = f"{node.name}: {what}"
    return lines


def describe_ranking(
    n_queries: int, n_gallery: int, dim: int, plan: RankingPlan, nodes: Sequence[Node], *, alone: bool, threads: int = 1
) -> dict[str, str]:
    """A plan and its estimate in words."""
    found = estimate_ranking(n_queries, n_gallery, dim, plan, nodes, alone=alone, threads=threads)
    blocks, shards = math.ceil(n_queries / plan.block), math.ceil(n_gallery / plan.shard)
    cut = f"{counted(shards, 'part')} of {plan.shard:,} rows, each pair of them once"
    return {
        "ranking": f"{n_queries:,} x {n_gallery:,} x {dim:,}{', a set against itself' if alone else ''}",
        "cut": cut
        if alone
        else f"{counted(blocks, 'block')} of {plan.block:,} queries, {counted(shards, 'shard')} of {plan.shard:,} rows",
        "tasks": f"{plan.tasks:,}",
        "memory of a worker": megabytes(plan.memory),
        "memory here (estimated)": megabytes(found.here),
        "read by workers (estimated)": megabytes(found.read),
        "sent (estimated)": megabytes(found.moved),
        "time to hash and check here (estimated)": in_words(found.hashing),
        "time to rank (estimated)": in_words(found.seconds),
    }


def in_words(seconds: float) -> str:
    """A time for a reader.

    >>> in_words(0.4), in_words(90), in_words(9000), in_words(400_000)
    ('under 1 s', '90 s', '2.5 h', '4.6 days')
    """
    if seconds < 1:
        return "under 1 s"
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"
