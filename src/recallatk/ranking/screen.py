"""The numpy backend: a float32 product decides what it can prove, an exact product of grid rows decides the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from recallatk.ranking.all_levels import rank_all
from recallatk.ranking.bins import add_tiles_in_numpy
from recallatk.ranking.blocks import Block, slices
from recallatk.ranking.counts import Counts, Depth, Ranking, Similarities
from recallatk.ranking.equal_rows import group_equal_rows
from recallatk.ranking.grid import Grid, GridRows
from recallatk.ranking.passes import LevelCounts, rank_first
from recallatk.ranking.products import (
    Float32,
    PairProducts,
    exact_products,
    float32_rows,
    round_down,
    round_up,
)
from recallatk.ranking.reference import count_euclidean
from recallatk.ranking.reference import rank_blocks as rank_by_reference
from recallatk.relevance import Relevance

PLACES_A_CHUNK = 2**18
"""Pairs that are decided together where the screen cannot."""


def rank_blocks(
    query: Grid,
    gallery: Grid,
    relevance: Relevance,
    *,
    depth: Depth,
    memory: int,
    limit: Counts | None = None,
    block: Block | None = None,
    threads: int = 1,
) -> Iterator[Ranking]:
    """Rank with a float32 screen; see `recallatk.ranking.rank`. BLAS brings its own threads.

    Euclidean similarities are not screened but compared as the reference backend does.
    """
    size = block or Block.within(memory, query.dim)
    if gallery.similarity == "euclidean" and depth == "all":
        yield from rank_by_reference(
            query, gallery, relevance, depth=depth, memory=memory, limit=limit, block=block, threads=threads
        )
    elif gallery.similarity == "euclidean":
        yield from rank_first(query, gallery, relevance, count_euclidean, exact_products, size=size, threads=threads)
    elif depth == "all":
        yield from rank_all(
            query, gallery, relevance, exact_products, add_tiles_in_numpy, size=size, limit=limit, threads=threads
        )
    else:
        yield from rank_first(query, gallery, relevance, count_levels, exact_products, size=size, threads=threads)


def count_levels(
    query: GridRows,
    gallery: GridRows,
    best: Similarities,
    other_best: Similarities | None,
    *,
    near: int,
    threads: int,
    size: Block,
) -> tuple[LevelCounts, LevelCounts | None]:
    """Count with the float32 screen; see `recallatk.ranking.passes.CountLevels`. Equal rows are compared once."""
    equal = group_equal_rows(query, best)
    other_equal = equal if query is gallery else group_equal_rows(gallery, other_best)
    own_rows = equal.take_first(query)
    other_rows = own_rows if query is gallery else other_equal.take_first(gallery)
    left, right, error = float32_rows(own_rows, other_rows)
    own = Side.of(left, best[equal.first], equal.weight, near, error)
    if query is gallery:
        other = own
    else:
        other = Side.of(
            right, None if other_best is None else other_best[other_equal.first], other_equal.weight, near, error
        )
    screen = Screen(own, other, exact_products(own_rows, other_rows, "dot"), near)
    for tile in screen.tiles(size):
        tile.count()
    return own.counts.part(equal.group), None if other_best is None else other.counts.part(other_equal.group)


@dataclasses.dataclass(frozen=True, eq=False)
class Side:
    """Float32 rows as queries, and the thresholds beyond which a float32 product is believed.

    Attributes:
        rows: (n, d) float32, in units of the longest possible row.
        best: (n,) the best positive of each, exact, in grid steps; None for rows that are no queries.
        low: (n,) below it a gallery row is surely further than a near-tie below the best positive.
        high: (n,) above it a gallery row is surely further than a near-tie above.
        weight: (n,) how many equal rows each stands for in the gallery.
        counts: what was counted for them.
    """

    rows: Float32
    best: Similarities | None
    low: Float32
    high: Float32
    weight: Counts
    counts: LevelCounts

    @classmethod
    def of(cls, rows: Float32, best: Similarities | None, weight: Counts, near: int, error: float) -> Side:
        """Thresholds for rows; nothing counted yet."""
        scaled = (np.zeros(0) if best is None else best) * 2.0**-52
        margin = near * 2.0**-52 + error
        low, high = round_down(scaled - margin), round_up(scaled + margin)
        return cls(rows, best, low, high, weight, LevelCounts.zeros(len(scaled)))


@dataclasses.dataclass(frozen=True, eq=False)
class Screen:
    """Queries and gallery; one object for both where a set is compared with itself.

    Attributes:
        query: the queries.
        gallery: the gallery; its rows are counted for as queries too if they have a best positive.
        products: exact similarities of pairs.
        near: the width of a near-tie in grid steps.
    """

    query: Side
    gallery: Side
    products: PairProducts
    near: int

    def tiles(self, size: Block) -> Iterator[Tile]:
        """The product in tiles; of a set with itself only those on and above the diagonal, which serve both sides."""
        alone = self.query is self.gallery
        side = max(size.gallery // 2, 1) if alone else size.gallery
        for rows in slices(len(self.query.rows), side):
            for columns in slices(len(self.gallery.rows), side, first=rows.start if alone else 0):
                yield Tile(self, rows, columns)


@dataclasses.dataclass(frozen=True)
class Tile:
    """The similarities of some queries and some gallery rows."""

    screen: Screen
    rows: slice
    columns: slice

    def count(self) -> None:
        """Add to the counts of these queries, and of the columns as queries unless they are the same."""
        query, gallery = self.screen.query, self.screen.gallery
        product = query.rows[self.rows] @ gallery.rows[self.columns].T
        self._count_side(product, query, self.rows, gallery.weight, transposed=False)
        if gallery.best is not None and (query is not gallery or self.rows != self.columns):
            self._count_side(product, gallery, self.columns, query.weight, transposed=True)

    def _count_side(self, product: Float32, side: Side, queries: slice, weight: Counts, *, transposed: bool) -> None:
        assert side.best is not None
        low, high, counts = side.low[queries], side.high[queries], side.counts
        if not transposed:
            low, high = low[:, None], high[:, None]
        surely_above = product > high
        sums = np.count_nonzero(surely_above, axis=0 if transposed else 1)
        heavy = np.flatnonzero(weight[self.rows if transposed else self.columns] > 1)
        if len(heavy):
            more = weight[self.rows if transposed else self.columns][heavy] - 1.0
            sums += (more @ surely_above[heavy] if transposed else surely_above[:, heavy] @ more).astype(np.int64)
        counts.above[queries] += sums
        counts.far_above[queries] += sums
        open_ = product >= low
        open_ ^= surely_above  # what is above `high` is above `low`
        places = np.flatnonzero(open_)
        for start in range(0, len(places), PLACES_A_CHUNK):
            row, column = np.divmod(places[start : start + PLACES_A_CHUNK], product.shape[1])
            row, column = row + self.rows.start, column + self.columns.start
            owners, others = (column, row) if transposed else (row, column)
            similarity = self.screen.products(row, column)
            counts.add(owners, similarity, side.best[owners], self.screen.near, weight[others])
