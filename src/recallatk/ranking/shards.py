"""A gallery in shards, on as many machines as one likes: two passes, and what they give merges in any order.

Depth "first":

1. `best_in_shard` of every shard; `merge_best_positives` (a MAX that carries rows and exact similarities);
2. `count_in_shard` of every shard with the merged bests, or `count_both` of two parts of a set that is ranked against
   itself; `merge_counts` (a SUM);
3. `ranking_of_shards`: the ranking of these queries, equal to that of the whole gallery.

Depth "all": `positives_in_shard`, `merge_positives`; `count_all_in_shard` or `count_all_both`, `merge_all_counts`;
`deep_ranking_of_shards`.

What travels is a few numbers for each query, or for each positive. Queries may be cut into blocks too; each block is a
set of queries, and `Relevance.part` says what holds for a block in a shard.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence

import numpy as np

from recallatk.memory import default_memory
from recallatk.ranking import BACKENDS, fastest_backend
from recallatk.ranking.all_levels import count_against_levels, count_each_other
from recallatk.ranking.bins import MakeAddTile, add_tiles_in_c, add_tiles_in_numpy, bins_in_c
from recallatk.ranking.blocks import Block
from recallatk.ranking.counting import LevelSet, count_negatives, find_levels, make_ranking
from recallatk.ranking.counts import Counts, Ranking, Similarities
from recallatk.ranking.grid import Grid, LoadedGrid
from recallatk.ranking.level_blocks import FAR
from recallatk.ranking.native import pair_products
from recallatk.ranking.packing import MOST_COLUMNS
from recallatk.ranking.passes import CountLevels, LevelCounts, assemble, count_ignored
from recallatk.ranking.positives import BestPositives, find_best_positives, merge_best_positives
from recallatk.ranking.products import PairProducts, exact_products, fetched_products
from recallatk.ranking.reference import ExactProducts, count_euclidean
from recallatk.relevance import Judgements, Relevance

__all__ = [
    "AllCounts",
    "BestPositives",
    "Positives",
    "Shard",
    "ShardCounts",
    "best_in_shard",
    "count_all_both",
    "count_all_in_shard",
    "count_both",
    "count_in_shard",
    "deep_ranking_of_shards",
    "merge_all_counts",
    "merge_best_positives",
    "merge_counts",
    "merge_positives",
    "positives_in_shard",
    "ranking_of_shards",
]


@dataclasses.dataclass(frozen=True, eq=False)
class Shard:
    """Some rows of a gallery.

    Attributes:
        grid: their grid rows; the first pass reads only the positives of rows that are not in memory. For similarity
            dot and euclidean all shards and the queries must share the scale of the grid, that of the longest row of
            all: they come from one `stream_grid`.
        relevance: who is positive and who is ignored among these rows, from `build_relevance(query, shard, ...)`, or
            `Relevance.part` of that of the whole gallery.
        first: the number of the first of these rows in the whole gallery.
    """

    grid: Grid
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


@dataclasses.dataclass(frozen=True, eq=False)
class Positives:
    """All positives of some queries in a shard, or in several of them together.

    Attributes:
        starts: (n + 1,) where the positives of each query begin.
        rows: their rows in the whole gallery, rising for each query.
        similarities: in grid steps.
        grades: of the positives, where they have some.
    """

    starts: Counts
    rows: Counts
    similarities: Similarities
    grades: Counts | None

    @property
    def levels(self) -> LevelSet:
        """The levels of each query."""
        return find_levels(len(self.starts) - 1, self.judged(), self.similarities, depth="all")

    def judged(self, n_ignored: Counts | None = None) -> Judgements:
        """As judgements, with so many ignored rows of which nothing else is known."""
        nothing = np.zeros(len(self.starts) - 1, np.int64) if n_ignored is None else n_ignored
        ignored_starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(nothing)])
        return Judgements(self.starts, self.rows, ignored_starts, np.zeros(0, np.int64), self.grades)


@dataclasses.dataclass(frozen=True, eq=False)
class AllCounts:
    """What a shard, or several of them together, hold against all levels of some queries.

    Attributes:
        ahead: (levels,) negatives ahead; FAR or more where it is only known that the level is beyond the limit.
        tied: (levels,) negatives with the same similarity.
        near_above: (n,) negatives a near-tie above the best level.
        near_below: (n,) negatives a near-tie below it.
        n_ignored: (n,) ignored rows.
        n_gallery: rows.
    """

    ahead: Counts
    tied: Counts
    near_above: Counts
    near_below: Counts
    n_ignored: Counts
    n_gallery: int


def best_in_shard(query: LoadedGrid, shard: Shard, *, memory: int | None = None) -> BestPositives:
    """The first pass: the best positive of each query among the rows of a shard."""
    size = _size(query, memory)
    products = _products(query, shard.grid, size)
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
    grid, size = shard.grid.load(), _size(query, memory)
    count_levels = _count_levels(grid, backend)
    levels, _ = count_levels(query.rows, grid.rows, best.similarity, None, near=grid.near, threads=threads, size=size)
    return _without_ignored(levels, query, grid, shard.relevance, best, size)


def count_both(
    one: LoadedGrid,
    other: LoadedGrid,
    relevance: tuple[Relevance, Relevance],
    best: tuple[BestPositives, BestPositives],
    *,
    backend: str = "auto",
    memory: int | None = None,
    threads: int = 1,
) -> tuple[ShardCounts, ShardCounts]:
    """The second pass over two parts of a set that is ranked against itself: each pair of rows is looked at once.

    A part against itself is `count_in_shard` of it, with the same grid on both sides.

    Args:
        one: the rows of a part.
        other: the rows of another part.
        relevance: of the first part as queries in the second one, and of the second one in the first.
        best: the best positives of both as queries, in the whole set.
        backend: as for `count_in_shard`.
        memory: as for `count_in_shard`.
        threads: as for `count_in_shard`.

    Returns:
        What the second part holds for the first one as queries, and the first one for the second.
    """
    size = _size(one, memory)
    here, there = _count_levels(one, backend)(
        one.rows, other.rows, best[0].similarity, best[1].similarity, near=one.near, threads=threads, size=size
    )
    assert there is not None  # the best positives of both sides were given
    return (
        _without_ignored(here, one, other, relevance[0], best[0], size),
        _without_ignored(there, other, one, relevance[1], best[1], size),
    )


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


def positives_in_shard(query: LoadedGrid, shard: Shard, *, memory: int | None = None) -> Positives:
    """The first pass at depth "all": every positive of each query among the rows of a shard."""
    judged = shard.relevance.judge(slice(0, len(query)))
    products = _products(query, shard.grid, _size(query, memory))
    similarities = products(judged.positive_queries, judged.positive_rows)
    return Positives(judged.positive_starts, judged.positive_rows + shard.first, similarities, judged.positive_grades)


def merge_positives(parts: Sequence[Positives]) -> Positives:
    """The positives in several shards, for the same queries; the order of the shards is free."""
    n = len(parts[0].starts) - 1
    owners = np.concatenate([np.repeat(np.arange(n), np.diff(part.starts)) for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    similarities = np.concatenate([part.similarities for part in parts])
    order = np.lexsort((rows, owners))
    grades = [part.grades for part in parts if part.grades is not None]
    return Positives(
        np.sum([part.starts for part in parts], axis=0, dtype=np.int64),
        rows[order],
        similarities[order],
        np.concatenate(grades)[order] if grades else None,
    )


def count_all_in_shard(
    query: LoadedGrid,
    shard: Shard,
    levels: LevelSet,
    *,
    limit: Counts | None = None,
    backend: str = "auto",
    memory: int | None = None,
    threads: int = 1,
) -> AllCounts:
    """The second pass at depth "all": the rows of a shard against all levels of each query.

    Args:
        query: the rows of the queries.
        shard: the rows of a part of the gallery, of which those that are not in memory are made in parts.
        levels: `Positives.levels` of all shards together.
        limit: as for `recallatk.ranking.rank`.
        backend: as for `count_in_shard`.
        memory: as for `count_in_shard`.
        threads: as for `count_in_shard`.
    """
    grid, size, relevance = shard.grid, _size(query, memory), shard.relevance
    if grid.similarity == "euclidean":
        source = ExactProducts(query.rows.astype(np.float64), grid, size.gallery)
        judged = relevance.judge(slice(0, len(query)))
        counted = count_negatives(source, judged, levels.starts, levels.similarity)
    else:
        add_tiles = _add_tiles(backend, grid)
        counted = count_against_levels(
            query, grid, relevance, levels, add_tiles, size=size, limit=limit, threads=threads
        )
    return _all_counts(counted, relevance)


def count_all_both(
    sides: tuple[LoadedGrid, LoadedGrid],
    relevance: tuple[Relevance, Relevance],
    levels: tuple[LevelSet, LevelSet],
    limits: tuple[Counts | None, Counts | None] = (None, None),
    *,
    backend: str = "auto",
    memory: int | None = None,
    threads: int = 1,
) -> tuple[AllCounts, AllCounts]:
    """The second pass at depth "all" over two parts of a set: as `count_both`, with the arguments of both as queries.

    A part against itself is `count_all_in_shard` of it, with the same grid on both sides.
    """
    if sides[0].similarity == "euclidean":
        one, other = (
            count_all_in_shard(query, Shard(grid, there, 0), known, limit=limit, memory=memory)
            for query, grid, there, known, limit in zip(sides, sides[::-1], relevance, levels, limits, strict=True)
        )
        return one, other
    size, add_tiles = _size(sides[0], memory), _add_tiles(backend, sides[0])
    counted = count_each_other(sides, relevance, levels, limits, add_tiles, size=size, threads=threads)
    return _all_counts(counted[0], relevance[0]), _all_counts(counted[1], relevance[1])


def merge_all_counts(parts: Sequence[AllCounts]) -> AllCounts:
    """The counts of several shards together; the order is free."""
    columns = ("ahead", "tied", "near_above", "near_below", "n_ignored")
    total = {column: np.zeros(len(getattr(parts[0], column)), np.int64) for column in columns}
    far = np.zeros(len(total["ahead"]), np.bool_)
    for part in parts:  # one after the other, as all of them together may be large
        for column in columns:
            total[column] += getattr(part, column)
        far |= total["ahead"] >= FAR
        total["ahead"][far] = FAR  # several of them do not add up
    return AllCounts(**total, n_gallery=sum(part.n_gallery for part in parts))


def deep_ranking_of_shards(
    positives: Positives, counts: AllCounts, *, unit: float, limit: Counts | None = None
) -> Ranking:
    """The ranking at depth "all" of these queries in the whole gallery.

    Args:
        positives: those in all shards.
        counts: the counts of all shards.
        unit: `Grid.unit`.
        limit: as for `count_all_in_shard`.
    """
    return make_ranking(
        slice(0, len(counts.n_ignored)),
        positives.levels,
        (counts.ahead, counts.tied, counts.near_above, counts.near_below),
        positives.judged(counts.n_ignored),
        n_gallery=counts.n_gallery,
        unit=unit,
        limit=limit,
    )


def _without_ignored(
    levels: LevelCounts, query: LoadedGrid, grid: LoadedGrid, relevance: Relevance, best: BestPositives, size: Block
) -> ShardCounts:
    ignored = LevelCounts.zeros(len(query))
    n_ignored = count_ignored(ignored, relevance, best, _products(query, grid, size), size=size)
    return ShardCounts(levels.less(ignored), n_ignored, len(grid))


def _all_counts(counted: tuple[Counts, Counts, Counts, Counts], relevance: Relevance) -> AllCounts:
    starts, _ = relevance.judge_ignored(np.arange(relevance.n_queries))
    return AllCounts(*counted, np.diff(starts), relevance.n_gallery)


def _add_tiles(backend: str, grid: Grid) -> MakeAddTile:
    return add_tiles_in_c if _backend(backend, grid) == "native" and bins_in_c() else add_tiles_in_numpy


def _backend(name: str, grid: Grid) -> str:
    """The backend that counts these rows: what is not screened in 8 bits is left to numpy."""
    name = fastest_backend()[0] if name == "auto" else name
    return "numpy" if name == "native" and grid.dim > MOST_COLUMNS else name


def _count_levels(grid: Grid, backend: str) -> CountLevels:
    if grid.similarity == "euclidean":
        return count_euclidean
    count_levels: CountLevels = importlib.import_module(BACKENDS[_backend(backend, grid)].split(":")[0]).count_levels
    return count_levels


def _products(query: LoadedGrid, gallery: Grid, size: Block) -> PairProducts:
    """Exact similarities of pairs; rows of the gallery that are not in memory are read for the pairs alone."""
    in_c = gallery.similarity != "euclidean" and _backend("auto", gallery) == "native"
    make_products = pair_products if in_c else exact_products
    return fetched_products(query.rows, gallery, make_products, at_once=size.part)


def _size(query: LoadedGrid, memory: int | None) -> Block:
    return Block.within(default_memory() if memory is None else memory, query.dim)
