"""The reference backend: blocked float64 products of grid rows, and counting."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from recallatk.ranking.blocks import Block, query_blocks, slices
from recallatk.ranking.counting import count_block
from recallatk.ranking.counts import Counts, Depth, Ranking, Similarities
from recallatk.ranking.grid import Grid, GridRows, LoadedGrid
from recallatk.ranking.passes import LevelCounts
from recallatk.relevance import Relevance


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
    """Rank block by block of queries; see `recallatk.ranking.rank`. BLAS brings its own threads."""
    size = block or Block.within(memory, query.rows.shape[1])
    for queries in query_blocks(relevance.pairs, size):
        source = ExactProducts(query.rows[queries].astype(np.float64), gallery, size.gallery)
        within = None if limit is None else limit[queries]
        yield count_block(queries, source, relevance.judge(queries), depth=depth, limit=within)


def count_euclidean(
    query: GridRows,
    gallery: GridRows,
    best: Similarities,
    other_best: Similarities | None,
    *,
    near: int,
    threads: int,
    size: Block,
) -> tuple[LevelCounts, LevelCounts | None]:
    """Count euclidean similarities in blocks of float64; see `recallatk.ranking.passes.CountLevels`."""
    grid, counts = LoadedGrid(gallery, "euclidean", 1.0, near), LevelCounts.zeros(len(query))
    for queries in slices(len(query), size.queries):
        here, own = counts.part(queries), best[queries, None]
        for _, similarity in ExactProducts(query[queries].astype(np.float64), grid, size.gallery).tiles():
            gap = similarity - own
            here.far_above[:] += np.count_nonzero(gap > near, axis=1)
            here.above[:] += np.count_nonzero(gap > 0, axis=1)
            here.level[:] += np.count_nonzero(gap == 0, axis=1)
            here.near_below[:] += np.count_nonzero((gap < 0) & (gap >= -near), axis=1)
    if other_best is None:
        return counts, None
    return counts, count_euclidean(gallery, query, other_best, None, near=near, threads=threads, size=size)[0]


@dataclasses.dataclass(frozen=True)
class ExactProducts:
    """The similarities of grid rows, exact as float64: every sum on the way stays below 2**53."""

    rows: Similarities
    gallery: Grid
    tile: int

    @property
    def n_gallery(self) -> int:
        """The number of gallery rows."""
        return len(self.gallery.rows)

    @property
    def unit(self) -> float:
        """What a step of a similarity is worth."""
        return self.gallery.unit

    @property
    def near(self) -> int:
        """The width of a near-tie in steps."""
        return self.gallery.near

    def columns(self, rows: Counts) -> Similarities:
        """(queries, rows) the similarities with these gallery rows, in steps."""
        return self._similarities(self.gallery.rows[rows])

    def tiles(self) -> Iterator[tuple[int, Similarities]]:
        """The similarities with all gallery rows, a tile at a time, each with its first row."""
        for start in range(0, self.n_gallery, self.tile):
            yield start, self._similarities(self.gallery.rows[start : start + self.tile])

    def _similarities(self, columns: GridRows) -> Similarities:
        other = columns.astype(np.float64)
        products: Similarities = self.rows @ other.T
        if self.gallery.similarity != "euclidean":
            return products
        products *= 2
        products -= np.sum(self.rows**2, axis=1)[:, None]
        products -= np.sum(other**2, axis=1)
        return products
