"""How the work is cut, and what it is expected to take: a model of time, memory and bytes, with measured constants."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from recallatk.cluster.engine import IN_FLIGHT, Node, able_nodes
from recallatk.memory import megabytes
from recallatk.ranking import BACKENDS, Block
from recallatk.ranking.blocks import query_blocks
from recallatk.ranking.counts import Counts
from recallatk.types import ChoiceError, RecallatkError
from recallatk.wording import counted

PROCESS = 200 * 2**20
"""What a worker holds before it works: Python, numpy, Ray."""

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


# The scaling model: measured by `benchmarks/scale.py --constants` on one core of an Intel processor with AVX-512 VNNI.
SECONDS_A_PRODUCT = 5e-12
"""Of a query, a gallery row and a column, by the native backend; others take ten times as long."""

SECONDS_A_NUMBER = 1.2e-8
"""To read a coordinate of a task's rows, bring it to the grid and pack it."""

SECONDS_A_SCORE, SECONDS_A_LISTED = 5e-10, 2e-7
"""Of a score in a matrix, and of an item in a ranked list, by `rank_scores` at depth "first"."""

SECONDS_A_TASK = 0.02
"""To hand a task over, and to merge and fetch its result."""

SECONDS_HERE_A_TASK = 0.01
"""Of these, on the one machine that hands all tasks over."""

SECONDS_A_HASHED_BYTE = 1.1e-9
"""The embeddings are hashed here, in the order of their ids: a sha256 cannot be shared among machines."""

BYTES_A_SAMPLE, BYTES_A_QUERY = 120, 320
"""What is known of a row here (label, hash, place in the order, and what it takes to write them; an id adds its text
and some 60), and of a query besides: its place in relevance, counts, values and row of the report."""

BYTES_A_LISTED = 200
"""Of an item in a ranked list: two ids, a score and a row number."""

ESTIMATED_FOR = "recall@K; metrics that look at every positive, such as map, are cut otherwise and take longer"

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
    """What a worker may hold, in bytes, where some node has all that one task asks for.

    Raises:
        ChoiceError: no cluster, or not this one, ranks with this backend.
        RecallatkError: no node has the cores, the GPU and the memory of one task together; it would wait for ever.
    """
    if backend not in ("auto", *BACKENDS) or backend == "reference":
        raise ChoiceError(f"--backend {backend}: on a cluster choose auto, native, numpy or torch")
    gpus = gpus_of(backend)
    if gpus and not any(node.gpus for node in nodes):
        raise ChoiceError("--backend torch: no node of the cluster has a GPU; choose auto, native or numpy")
    asked = worker_memory(nodes, threads) if memory is None else memory
    if able_nodes(nodes, threads, gpus, asked):
        return asked
    if not nodes:
        raise RecallatkError("the cluster has no node; start one with `ray start --address HOST:PORT`")
    raise RecallatkError(_no_node_has(nodes, memory, threads, gpus))


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
        f"{_resources(largest)}; use {' and '.join(changes or ['another --backend'])}"
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
class Estimate:
    """What a ranking is expected to take, by the scaling model.

    Attributes:
        seconds: until all nodes together have ranked, without what is hashed.
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
    slots = plan.slots or max(1, slots_of(nodes, threads=threads))
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


def describe_scores(
    n_queries: int, n_gallery: int, n_listed: int | None, plan: ScorePlan, width: int
) -> dict[str, str]:
    """A plan and its estimate in words.

    Args:
        n_queries: how many queries there are.
        n_gallery: how many items may be listed, columns of a matrix.
        n_listed: the items in all ranked lists; None: a matrix.
        plan: how they are cut.
        width: bytes of a score.
    """
    scores = n_queries * n_gallery if n_listed is None else n_listed
    busy = scores * (SECONDS_A_SCORE if n_listed is None else SECONDS_A_LISTED) + plan.tasks * SECONDS_A_TASK
    rows = n_queries + n_gallery
    here = (
        PROCESS
        + rows * BYTES_A_SAMPLE
        + n_queries * BYTES_A_QUERY
        + (0 if n_listed is None else n_listed * BYTES_A_LISTED)
    )
    moved = megabytes(scores * width)
    return {
        "ranking": f"{n_queries:,} queries x {n_gallery:,} scores"
        if n_listed is None
        else f"{n_queries:,} queries, {n_listed:,} items in their lists",
        "cut": f"{counted(plan.tasks, 'block')} of {plan.queries:,} queries",
        "tasks": f"{plan.tasks:,}",
        "memory of a worker": megabytes(plan.memory),
        "memory here (estimated)": megabytes(here),
        "read by workers (estimated)" if n_listed is None else "sent (estimated)": moved,
        "time to rank (estimated)": in_words(max(busy / plan.slots, plan.tasks * SECONDS_HERE_A_TASK)),
        "estimated for": ESTIMATED_FOR,
    }


def describe_nodes(nodes: Sequence[Node]) -> dict[str, str]:
    """A cluster in words."""
    lines = {
        "cluster": f"{counted(len(nodes), 'node')}, {counted(sum(node.cores for node in nodes), 'core')}, "
        f"{counted(sum(node.gpus for node in nodes), 'GPU')}",
    }
    for place, node in enumerate(sorted(nodes, key=lambda node: node.name), start=1):
        lines[f"node {place}"] = f"{node.name}: {_resources(node)}"
    return lines


def _resources(node: Node) -> str:
    return f"{counted(node.cores, 'core')}, {counted(node.gpus, 'GPU')}, {megabytes(node.memory)} for tasks"


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
        "estimated for": ESTIMATED_FOR,
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
