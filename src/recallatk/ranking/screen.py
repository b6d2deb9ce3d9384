"""The numpy backend: a float32 product decides what it can prove, an exact product of grid rows decides the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from recallatk.ranking.bins import MOST_QUERIES, Bins
from recallatk.ranking.blocks import Block, query_blocks
from recallatk.ranking.counting import LevelSet, find_levels, levels_within, make_ranking, pairs_by_row
from recallatk.ranking.counts import Counts, Depth, Ranking, Similarities
from recallatk.ranking.grid import Grid
from recallatk.ranking.passes import (
    PAIRS_A_CHUNK,
    Float32,
    LevelCounts,
    PairProducts,
    assemble,
    find_best_positives,
    float32_rows,
    grid_products,
    in_chunks,
    round_down,
    round_up,
)
from recallatk.ranking.reference import rank_blocks as rank_by_reference
from recallatk.relevance import Judgements, Relevance

FIRST_TILE = 256


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

    Euclidean similarities are not screened but left to the reference backend.
    """
    if gallery.similarity == "euclidean":
        yield from rank_by_reference(
            query, gallery, relevance, depth=depth, memory=memory, limit=limit, block=block, threads=threads
        )
        return
    size = block or Block.within(memory, query.rows.shape[1])
    products = grid_products(query, gallery)
    if depth == "all":
        yield from rank_all(query, gallery, relevance, products, size=size, limit=limit)
        return
    found = find_best_positives(query, gallery, relevance, products, size=size)
    screen = Screen.of(Rows.of(query, gallery), found.similarity, products, gallery.near)
    counted = LevelCounts.zeros(len(query.rows))
    for tile in screen.tiles(size):
        tile.count(counted)
    yield assemble(found, counted, len(gallery.rows), gallery.unit)


def rank_all(
    query: Grid, gallery: Grid, relevance: Relevance, products: PairProducts, *, size: Block, limit: Counts | None
) -> Iterator[Ranking]:
    """Depth "all" block by block, with these exact products of pairs."""
    size = dataclasses.replace(size, queries=min(size.queries, MOST_QUERIES))
    rows = Rows.of(query, gallery)
    for queries in query_blocks(relevance.pairs, size):
        within = None if limit is None else limit[queries]
        yield _rank_block(rows, queries, relevance.judge(queries), products, gallery, size.gallery, within)


def _rank_block(
    rows: Rows,
    queries: slice,
    judged: Judgements,
    products: PairProducts,
    gallery: Grid,
    tile: int,
    limit: Counts | None,
) -> Ranking:
    """Every product that may reach a level is binned between the levels."""
    n, first = queries.stop - queries.start, queries.start
    similarity = in_chunks(products, judged.positive_queries + first, judged.positive_rows)
    levels = find_levels(n, judged, similarity, depth="all")
    bins = Bins.of(levels.starts, levels.similarity, gallery.near)
    low = _lowest(levels, np.ones(len(levels.similarity), np.bool_), gallery.near, rows.error)
    no_negatives = pairs_by_row(judged)
    steps = 2.0**52
    for start, stop in _growing_tiles(len(gallery.rows), tile if limit is None else FIRST_TILE, tile):
        product = rows.query[queries] @ rows.gallery[start:stop].T
        begin, end = np.searchsorted(no_negatives[0], [start, stop])
        product[no_negatives[1][begin:end], no_negatives[0][begin:end] - start] = np.nan  # no comparison holds
        places = np.flatnonzero(product >= low[:, None])
        for part in range(0, len(places), 2**20):
            at = places[part : part + 2**20]
            owners, columns = np.divmod(at, product.shape[1])
            value = product.ravel()[at].astype(np.float64)
            unsure = bins.add_sure(owners, (value - rows.error) * steps, (value + rows.error) * steps)
            owners, columns = owners[unsure], columns[unsure] + start
            bins.add(owners, in_chunks(products, owners + first, columns))
        if limit is not None and stop < len(gallery.rows):
            ahead = bins.totals()[0]
            kept = levels_within(limit, levels.starts, ahead, levels.positives_tied)
            low = _lowest(levels, kept, gallery.near, rows.error)
    return make_ranking(
        queries, levels, bins.totals(), judged, n_gallery=len(gallery.rows), unit=gallery.unit, limit=limit
    )


def _growing_tiles(n: int, first: int, most: int) -> Iterator[tuple[int, int]]:
    """Parts of the gallery; a small one first, so that levels beyond the limit are soon known to be."""
    start, width = 0, min(first, most)
    while start < n:
        yield start, min(start + width, n)
        start, width = start + width, min(4 * width, most)


def _lowest(levels: LevelSet, kept: npt.NDArray[np.bool_], near: int, error: float) -> Float32:
    """For each query the product below which nothing counts: its lowest kept level, or a near-tie below its best."""
    ranked = np.diff(levels.starts) > 0
    owners = np.repeat(np.arange(len(ranked)), np.diff(levels.starts))
    low = np.full(len(ranked), np.inf)
    np.minimum.at(low, owners[kept], levels.similarity[kept])
    low[ranked] = np.minimum(low[ranked], levels.similarity[levels.starts[:-1][ranked]] - near)
    return round_down(low * 2.0**-52 - error)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Float32 rows and the error of their products, see `float32_rows`; one array for self-retrieval."""

    query: Float32
    gallery: Float32
    error: float

    @classmethod
    def of(cls, query: Grid, gallery: Grid) -> Rows:
        """Round grid rows to float32."""
        return cls(*float32_rows(query.rows, gallery.rows))


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
    def of(cls, rows: Rows, best: Similarities, products: PairProducts, near: int) -> Screen:
        """Thresholds for rows."""
        scaled, margin = best * 2.0**-52, near * 2.0**-52 + rows.error
        return cls(
            rows.query, rows.gallery, best, round_down(scaled - margin), round_up(scaled + margin), near, products
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
