"""The numpy backend: a float32 product decides what it can prove, a float64 product of grid rows decides the rest.

The bound is derived in docs/exactness.md: with u = 2**-24, rows x and y of d coordinates rounded to float32 and their
inner product summed in float32 in any order, the result is within (d + 3) u (1 + 2 d u) |x| |y| of the exact one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from recallatk.ranking.blocks import Block
from recallatk.ranking.counts import Depth, Ranking, Similarities
from recallatk.ranking.grid import Grid
from recallatk.ranking.passes import (
    PAIRS_A_CHUNK,
    LevelCounts,
    PairProducts,
    assemble,
    find_best_positives,
    grid_products,
)
from recallatk.ranking.reference import rank_blocks as rank_by_reference
from recallatk.relevance import Relevance

Float32 = npt.NDArray[np.float32]

UNIT_ROUNDOFF = 2.0**-24
SMALLEST = 2.0**-100
"""Covers what underflow may take from a sum of products; coordinates are below 2 in size."""


def rank_blocks(
    query: Grid, gallery: Grid, relevance: Relevance, *, depth: Depth, memory: int, block: Block | None = None
) -> Iterator[Ranking]:
    """Rank with a float32 screen; see `recallatk.ranking.rank`.

    What it does not screen, depth "all" and euclidean similarities, is left to the reference backend.
    """
    if depth == "all" or gallery.similarity == "euclidean":
        yield from rank_by_reference(query, gallery, relevance, depth=depth, memory=memory, block=block)
        return
    size = block or Block.within(memory, query.rows.shape[1])
    products = grid_products(query, gallery)
    found = find_best_positives(relevance, products, near=gallery.near, size=size)
    screen = Screen.of(query, gallery, found.similarity, products)
    counted = LevelCounts.zeros(len(query.rows))
    for tile in screen.tiles(size):
        tile.count(counted)
    yield assemble(found, counted, len(gallery.rows), gallery.unit)


@dataclasses.dataclass(frozen=True)
class Screen:
    """Float32 rows, and for each query the thresholds in grid steps beyond which a float32 product is believed.

    Attributes:
        query: (n, d) float32, in units of the longest possible row.
        gallery: (m, d) float32; the same object as `query` for self-retrieval.
        best: (n,) the best positive of each query, exact, in grid steps.
        low: (n,) below it a gallery row is surely further than a near-tie below the best positive.
        high: (n,) above it a gallery row is surely further than a near-tie above.
        near: the width of a near-tie in grid steps.
        products: exact similarities of pairs.
    """

    query: Float32
    gallery: Float32
    best: Similarities
    low: Float32
    high: Float32
    near: int
    products: PairProducts

    @classmethod
    def of(cls, query: Grid, gallery: Grid, best: Similarities, products: PairProducts) -> Screen:
        """Prepare rows and thresholds."""
        step = 2.0**-26  # a coordinate is at most 2**26 steps
        rows = (gallery.rows * np.float64(step)).astype(np.float32)
        same = query.rows is gallery.rows
        own = rows if same else (query.rows * np.float64(step)).astype(np.float32)
        d = rows.shape[1]
        lengths = [np.sqrt(np.max(np.einsum("ij,ij->i", x, x, dtype=np.float64), initial=0.0)) for x in (own, rows)]
        # |x| from float32 coordinates is short of the true length by at most a factor 1 - u; 1.001 covers that too.
        error = (d + 3) * UNIT_ROUNDOFF * (1 + 2 * d * UNIT_ROUNDOFF) * 1.001 * lengths[0] * lengths[1] + SMALLEST
        scaled, near = best * step * step, gallery.near * step * step
        return cls(
            query=own,
            gallery=rows,
            best=best,
            low=_down(scaled - (near + error)),
            high=_up(scaled + (near + error)),
            near=gallery.near,
            products=products,
        )

    def tiles(self, size: Block) -> Iterator[Tile]:
        """The product in tiles; for self-retrieval only those on and above the diagonal, which serve both sides."""
        side = size.gallery if self.query is not self.gallery else max(size.gallery // 2, 1)
        for start in range(0, len(self.query), side):
            rows = slice(start, min(start + side, len(self.query)))
            first = start if self.query is self.gallery else 0
            for other in range(first, len(self.gallery), side):
                columns = slice(other, min(other + side, len(self.gallery)))
                yield Tile(self, rows, columns)


@dataclasses.dataclass(frozen=True)
class Tile:
    """The similarities of some queries and some gallery rows."""

    screen: Screen
    rows: slice
    columns: slice

    def count(self, counted: LevelCounts) -> None:
        """Add to the counts of these queries; for self-retrieval off the diagonal, also of the columns as queries."""
        screen = self.screen
        product = screen.query[self.rows] @ screen.gallery[self.columns].T
        self._count_side(product, self.rows, counted, transposed=False)
        if screen.query is screen.gallery and self.rows != self.columns:
            self._count_side(product, self.columns, counted, transposed=True)

    def _count_side(self, product: Float32, queries: slice, counted: LevelCounts, *, transposed: bool) -> None:
        screen = self.screen
        low, high = screen.low[queries], screen.high[queries]
        if not transposed:
            low, high = low[:, None], high[:, None]
        surely_above = product > high
        sums = np.count_nonzero(surely_above, axis=0 if transposed else 1)
        counted.above[queries] += sums
        counted.far_above[queries] += sums
        open_ = product >= low
        open_ ^= surely_above  # what is above `high` is above `low`
        places = np.flatnonzero(open_)
        for start in range(0, len(places), PAIRS_A_CHUNK):
            row, column = np.divmod(places[start : start + PAIRS_A_CHUNK], product.shape[1])
            row, column = row + self.rows.start, column + self.columns.start
            owners, others = (column, row) if transposed else (row, column)
            counted.add(owners, screen.products(owners, others), screen.best[owners], screen.near)


def _down(values: Similarities) -> Float32:
    return np.nextafter(values.astype(np.float32), np.float32(-np.inf))


def _up(values: Similarities) -> Float32:
    return np.nextafter(values.astype(np.float32), np.float32(np.inf))
