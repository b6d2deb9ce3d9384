"""How the work is cut: blocks, shards and tasks that fit into the memory of a worker."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from recallatk.cluster.engine import IN_FLIGHT, Node, able_nodes
from recallatk.memory import LEAST, megabytes
from recallatk.ranking import BACKENDS, Block
from recallatk.ranking.blocks import query_blocks
from recallatk.ranking.counts import Counts
from recallatk.types import ChoiceError, RecallatkError
from recallatk.wording import counted

PROCESS = 200 * 2**20
"""What a worker holds before it works: Python, numpy, Ray."""

LEAST_MEMORY = PROCESS + LEAST
"""What a worker may hold in any case."""

SHARE = 0.5
"""The share of what a node lends to tasks that its workers may hold by default."""

ROOM, BYTES_A_NUMBER = 0.75, 16
"""The share of a worker's memory that its rows take, and the bytes of one of their coordinates: as it was read, on the
grid, and packed. The rest of the memory is for tiles and judged pairs."""

MOST_MEMORY = 4 * 2**30
"""What a worker may hold at the most, unless more is asked for."""

MOST_ROWS = 2**17
"""Larger blocks or shards save no time, and losing one of their tasks costs more."""

KEPT_SECONDS, KEPT_ROWS = 600, 2**14
"""A block of queries is kept when it is finished, so that it takes the whole cluster no longer than this, by the model.
Blocks of fewer rows would read and pack the gallery too often."""

LEAST_ROWS = 2**12
"""Fewer rows would cost more to hand over than to count."""

SECONDS_A_PRODUCT = 5e-12
"""Of a query, a gallery row and a column, by the native backend; see `estimate.py`."""


@dataclasses.dataclass(frozen=True)
class RankingPlan:
    """How a ranking is cut.

    Attributes:
        block: queries in a block.
        shard: gallery rows in a shard; in a set that is ranked against itself, of both.
        memory: bytes that a worker may hold.
        tasks: of the second pass.
        slots: how many of them run at once; 0: not known.
        pairs: at depth "all", queries and positives of a block. A shard is then all that a task goes through, in parts.
    """

    block: int
    shard: int
    memory: int
    tasks: int
    slots: int = 0
    pairs: int = Block().pairs // 2


def plan_ranking(
    n_queries: int,
    n_gallery: int,
    dim: int,
    nodes: Sequence[Node],
    *,
    alone: bool,
    memory: int | None = None,
    threads: int = 1,
    backend: str = "auto",
) -> RankingPlan:
    """Cut queries and gallery so that a task fits into a worker, and every core has several tasks.

    Raises:
        ChoiceError: as for `task_memory`.
        RecallatkError: as for `task_memory`.
    """
    memory = task_memory(nodes, memory, threads, backend)
    slots = slots_of(nodes, threads=threads, gpus=gpus_of(backend), memory=memory)
    room = _room(memory, dim) * ROOM
    most = max(min(int(room // (2 * (BYTES_A_NUMBER * dim + 256))), MOST_ROWS), 1)
    wanted = IN_FLIGHT * slots
    if alone:
        parts = math.ceil((math.isqrt(8 * wanted + 1) - 1) / 2)  # so many parts have that many pairs
        shard = block = _rows(n_gallery, parts, most)
        parts = math.ceil(n_gallery / shard)
        return RankingPlan(block, shard, memory, parts * (parts + 1) // 2, slots, most_pairs(memory, dim))
    kept = int(KEPT_SECONDS * slots / (n_gallery * dim * SECONDS_A_PRODUCT))
    square = round(math.sqrt(wanted * n_queries / n_gallery))  # blocks as high as shards: fewest rows are prepared
    block = _rows(n_queries, max(square, 1), min(most, max(kept, KEPT_ROWS)))
    blocks = math.ceil(n_queries / block)
    shard = _rows(n_gallery, math.ceil(wanted / blocks), most)
    return RankingPlan(block, shard, memory, blocks * math.ceil(n_gallery / shard), slots)


def plan_deep_ranking(
    pairs: Counts,
    n_gallery: int,
    dim: int,
    nodes: Sequence[Node],
    *,
    memory: int | None = None,
    threads: int = 1,
) -> RankingPlan:
    """As `plan_ranking`, at depth "all".

    What a worker then holds and sends are the levels of its queries, so a task has few queries and goes through the
    whole gallery, in parts; through less of it only where there are too few blocks of queries for all cores.

    Args:
        pairs: for each query, how many gallery rows are judged.
        n_gallery: gallery rows.
        dim: columns.
        nodes: of the cluster.
        memory: bytes that a worker may hold.
        threads: of a task.
    """
    memory = task_memory(nodes, memory, threads)
    size, most = Block.within(_room(memory, dim), dim), most_pairs(memory, dim)
    slots = slots_of(nodes, threads=threads, memory=memory)
    wanted = IN_FLIGHT * slots
    block = _rows(len(pairs), wanted, min(size.part, MOST_ROWS))
    blocks = sum(1 for _ in query_blocks(pairs + 1, Block(block, most)))
    shards = min(math.ceil(wanted / blocks), math.ceil(n_gallery / LEAST_ROWS))
    return RankingPlan(block, math.ceil(n_gallery / shards), memory, blocks * shards, slots, most)


def most_pairs(memory: int, dim: int) -> int:
    """Queries and positives of a task that holds all levels: the other half is what judging them takes."""
    return Block.within(_room(memory, dim), dim).pairs // 2


def _room(memory: int, dim: int) -> int:
    """What a worker may hold for its work."""
    return max(memory - PROCESS, Block.least().bytes(dim))


def task_memory(nodes: Sequence[Node], memory: int | None, threads: int = 1, backend: str = "auto") -> int:
    """What a worker may hold, in bytes and never below LEAST_MEMORY, where some node has all that one task asks for.

    Raises:
        ChoiceError: no cluster, or not this one, ranks with this backend; or there is no thread.
        RecallatkError: no node has the cores, the GPU and the memory of one task together; it would wait for ever.
    """
    if backend not in ("auto", *BACKENDS) or backend == "reference":
        raise ChoiceError(f"--backend {backend}: on a cluster choose auto, native, numpy or torch")
    if threads < 1:
        raise ChoiceError(f"threads={threads}: there must be at least one")
    gpus = gpus_of(backend)
    if gpus and not any(node.gpus for node in nodes):
        raise ChoiceError("--backend torch: no node of the cluster has a GPU; choose auto, native or numpy")
    asked = worker_memory(nodes, threads) if memory is None else max(memory, LEAST_MEMORY)
    if able_nodes(nodes, threads, gpus, asked):
        return asked
    if not nodes:
        raise RecallatkError("the cluster has no node; start one with `ray start --address HOST:PORT`")
    raise RecallatkError(_no_node_has(nodes, memory and asked, threads, gpus))


def memory_notes(memory: int | None) -> list[str]:
    """What is to be said where a worker was to hold less than it does."""
    if memory is None or memory >= LEAST_MEMORY:
        return []
    return [
        f"memory: {megabytes(memory)} is too little, as the process of a worker holds some {megabytes(PROCESS)} before "
        f"it ranks; each was given {megabytes(LEAST_MEMORY)}"
    ]


def _no_node_has(nodes: Sequence[Node], memory: int | None, threads: int, gpus: int) -> str:
    """What one task asks for that no node has, and what could be asked for instead; `memory` only where it is given."""
    what = [counted(threads, "core"), *(["a GPU"] if gpus else []), *([megabytes(memory)] if memory else [])]
    together = f"{', '.join(what[:-1])} and {what[-1]} together" if what[1:] else what[0]
    largest = max(nodes, key=lambda node: (bool(node.gpus) >= bool(gpus), min(node.cores, threads), node.memory))
    fewer = {
        "fewer --threads": not able_nodes(nodes, threads),
        "less --memory": memory is not None and not able_nodes(nodes, 0, memory=memory),
    }
    changes = [change for change, alone in fewer.items() if alone]
    changes = changes or [*(["fewer --threads"] if threads > 1 else []), *(["less --memory"] if memory else [])]
    changes += ["another --backend"] if gpus and not able_nodes(nodes, 1, 1) else []
    return (
        f"no node of the cluster has what one task asks for: {together}; the largest, {largest.name}, has "
        f"{resources_of(largest)}; use {' and '.join(changes or ['another --backend'])}"
    )


def gpus_of(backend: str) -> int:
    """The GPUs of a task."""
    return 1 if backend == "torch" else 0


def slots_of(nodes: Sequence[Node], *, threads: int = 1, gpus: int = 0, memory: int = 0) -> int:
    """How many such tasks run at once."""
    able = able_nodes(nodes, threads, gpus, memory)
    return sum(min(node.cores // threads, node.gpus // gpus if gpus else node.cores) for node in able)


def worker_memory(nodes: Sequence[Node], threads: int = 1) -> int:
    """What a worker may hold by default, in bytes: its share of half of what the poorest node lends, within bounds."""
    shared = [node.memory * SHARE * threads / node.cores for node in nodes if node.cores >= threads]
    return int(min([MOST_MEMORY, *shared]))


def _rows(n: int, parts: int, most: int) -> int:
    """Rows of a part, all of about one size."""
    rows = min(max(math.ceil(n / parts), LEAST_ROWS), most)
    return math.ceil(n / math.ceil(n / rows))


@dataclasses.dataclass(frozen=True)
class ScorePlan:
    """How the ranking of scores that somebody else computed is cut.

    Attributes:
        queries: of a task.
        memory: bytes that a worker may hold.
        tasks: all of them.
        slots: how many of them run at once.
    """

    queries: int
    memory: int
    tasks: int
    slots: int


def plan_scores(
    n_queries: int, nodes: Sequence[Node], *, memory: int | None = None, queries: int | None = None
) -> ScorePlan:
    """Cut the queries so that every core has several tasks, of `queries` each where that is given.

    Raises:
        RecallatkError: as for `task_memory`.
    """
    memory = task_memory(nodes, memory)
    slots = slots_of(nodes, memory=memory)
    queries = queries or max(1, math.ceil(n_queries / (IN_FLIGHT * slots)))
    return ScorePlan(queries, memory, math.ceil(n_queries / queries), slots)


def resources_of(node: Node) -> str:
    """What a node lends, in words."""
    return f"{counted(node.cores, 'core')}, {counted(node.gpus, 'GPU')}, {megabytes(node.memory)} for tasks"
