"""What the work is expected to take: a model of time, memory and bytes, with measured constants, and its words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from recallatk.cluster.engine import Node
from recallatk.cluster.plan import (
    PROCESS,
    SECONDS_A_PRODUCT,
    RankingPlan,
    ScorePlan,
    resources_of,
    slots_of,
)
from recallatk.memory import megabytes
from recallatk.wording import counted

# The scaling model, of one core with AVX-512 VNNI. `benchmarks/scale.py` prints what it says beside what is measured.
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
        lines[f"node {place}"] = f"{node.name}: {resources_of(node)}"
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
