"""A gallery in shards, on as many machines as one likes: two passes, and what they give merges in any order.

1. `best_in_shard` of every shard; `merge_best_positives` (a MAX that carries rows and exact similarities);
2. `count_in_shard` of every shard with the merged bests; `merge_counts` (a SUM);
3. `ranking_of_shards`: the ranking at depth "first" of these queries, equal to that of the whole gallery.

What travels is a few numbers for each query. Queries may be cut into blocks too; each block is a set of queries.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence

import numpy as np

from recallatk.memory import default_memory
from recallatk.ranking import BACKENDS, fastest_backend
from recallatk.ranking.blocks import Block
from recallatk.ranking.counts import Counts, Ranking
from recallatk.ranking.grid import LoadedGrid
from recallatk.ranking.passes import CountLevels, LevelCounts, assemble, count_ignored
from recallatk.ranking.positives import BestPositives, find_best_positives, merge_best_positives
from recallatk.ranking.products import exact_products
from recallatk.ranking.reference import count_euclidean
from recallatk.relevance import Relevance

__all__ = [
    "BestPositives",
    "Shard",
    "ShardCounts",
    "best_in_shard",
    "count_in_shard",
    "merge_best_positives",
    "merge_counts",
    "ranking_of_shards",
]


@dataclasses.dataclass(frozen=True, eq=False)
class Shard:
    """Some rows of a gallery.

    Attributes:
        grid: their grid rows. For similarity dot and euclidean all shards and the queries must share the scale of the
            grid, that of the longest row of all: they come from one `stream_grid`.
        relevance: who is positive and who is ignored among these rows, from `build_relevance(query, shard, ...)`.
        first: the number of the first of these rows in the whole gallery.
    """

    grid: LoadedGrid
    relevance: Relevance
    first: int


@dataclasses.dataclass(frozen=True, eq=False)
class ShardCounts:
    """What a shard, or several of them together, hold against the best positives of the whole gallery.

    Attributes:
        levels: rows above, level and near, those that are ignored taken off already (positives are still in).
        n_ignored: (n,) ignored rows.
        n_gallery: rows.
    """

    levels: LevelCounts
    n_ignored: Counts
    n_gallery: int


def best_in_shard(query: LoadedGrid, shard: Shard, *, memory: int | None = None) -> BestPositives:
    """The first pass: the best positive of each query among the rows of a shard."""
    products = exact_products(query.rows, shard.grid.rows, shard.grid.similarity)
    size = _size(query, memory)
    return find_best_positives(query, shard.grid, shard.relevance, products, size=size, first=shard.first)


def count_in_shard(
    query: LoadedGrid,
    shard: Shard,
    best: BestPositives,
    *,
    backend: str = "auto",
    memory: int | None = None,
    threads: int = 1,
) -> ShardCounts:
    """The second pass: the rows of a shard against the best positives in all shards.

    Args:
        query: the rows of the queries.
        shard: the rows of a part of the gallery.
        best: what `merge_best_positives` made of the first pass over every shard.
        backend: auto, native or numpy; it never changes a count. Euclidean similarities have one way only.
        memory: bytes of working memory; default a quarter of what is free.
        threads: at most so many.
    """
    grid, size = shard.grid, _size(query, memory)
    name = fastest_backend()[0] if backend == "auto" else backend
    count_levels: CountLevels = importlib.import_module(BACKENDS[name].split(":")[0]).count_levels
    if grid.similarity == "euclidean":
        count_levels = count_euclidean
    levels, _ = count_levels(query.rows, grid.rows, best.similarity, None, near=grid.near, threads=threads, size=size)
    ignored = LevelCounts.zeros(len(query))
    products = exact_products(query.rows, grid.rows, grid.similarity)
    n_ignored = count_ignored(ignored, shard.relevance, best, products, size=size)
    return ShardCounts(levels.less(ignored), n_ignored, len(grid))


def merge_counts(parts: Sequence[ShardCounts]) -> ShardCounts:
    """The counts of several shards together; the order is free."""
    total = LevelCounts.zeros(len(parts[0].n_ignored))
    for part in parts:
        total.plus(part.levels)
    n_ignored = np.sum([part.n_ignored for part in parts], axis=0, dtype=np.int64)
    return ShardCounts(total, np.asarray(n_ignored), sum(part.n_gallery for part in parts))


def ranking_of_shards(best: BestPositives, counts: ShardCounts, *, unit: float) -> Ranking:
    """The ranking at depth "first" of these queries in the whole gallery.

    Args:
        best: the best positives in all shards.
        counts: the counts of all shards.
        unit: `Grid.unit`.
    """
    nothing = LevelCounts.zeros(len(counts.n_ignored))
    return assemble(best, counts.levels, nothing, counts.n_ignored, counts.n_gallery, unit)


def _size(query: LoadedGrid, memory: int | None) -> Block:
    return Block.within(default_memory() if memory is None else memory, query.dim)
