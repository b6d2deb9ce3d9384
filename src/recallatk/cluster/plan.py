"""How the work is cut, and what it is expected to take: a model of time, memory and bytes, with measured constants."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from recallatk.cluster.engine import IN_FLIGHT, Node
from recallatk.memory import megabytes
from recallatk.ranking import Block
from recallatk.types import RecallatkError

PROCESS = 200 * 2**20
"""What a worker holds before it works: Python, numpy, Ray."""

SHARE = 0.5
"""The share of a node's memory that its workers may hold; the rest is Ray's object store and the system's."""

MOST_MEMORY = 4 * 2**30
MOST_ROWS = 2**17
"""More rows a block or shard save no time, and a task that is lost costs more."""

LEAST_ROWS = 2**12
"""Fewer rows would cost more to hand over than to count."""


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
    slots = sum(node.cores // threads for node in nodes)
    if not slots:
        raise RecallatkError(f"no node of the cluster has {threads} cores for a task; use fewer --threads")
    memory = worker_memory(nodes, threads) if memory is None else memory
    largest = max(node.memory for node in nodes)
    if memory > largest:
        raise RecallatkError(
            f"a worker may hold {megabytes(memory)}, and the largest node lends {megabytes(largest)}; use less --memory"
        )
    # What embeddings take as they were read counts as well: half as much as on the grid and packed.
    room = max(memory - PROCESS, Block.least().bytes(dim)) * 2 // 3
    most = min(Block.within(room, dim).part, MOST_ROWS)
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


def worker_memory(nodes: Sequence[Node], threads: int = 1) -> int:
    """What a worker may hold by default, in bytes: its share of half of what the poorest node lends."""
    shared = [node.memory * SHARE * threads / node.cores for node in nodes if node.cores >= threads]
    return int(min([MOST_MEMORY, *shared]))


def _rows(n: int, parts: int, most: int) -> int:
    """Rows of a part, all of about one size."""
    rows = min(max(math.ceil(n / parts), LEAST_ROWS), most)
    return math.ceil(n / math.ceil(n / rows))
