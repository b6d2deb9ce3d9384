"""Blocks of queries whose negatives are counted against all levels, and the rows that are in memory for it."""

from __future__ import annotations

import dataclasses
import functools
import threading

import numpy as np
import numpy.typing as npt

from recallatk.ranking.bins import AddTile, Bins, Tile
from recallatk.ranking.counting import LevelSet, find_levels, levels_within, pairs_by_row
from recallatk.ranking.counts import Counts, Similarities
from recallatk.ranking.grid import Grid, GridRows, LoadedGrid
from recallatk.ranking.products import Float32, PairProducts, round_down, to_float32
from recallatk.relevance import Judgements, Relevance

FAR = 2**62
"""Negatives ahead of a level of which no more is known than that it is beyond the limit."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Some rows of a set, in memory: on the grid and in float32. Slices of it are those of the whole set.

    Attributes:
        grid: the rows.
        real: (n, d) float32, in units of 2**26 steps.
        longest: the length of the longest row, in the same units.
        first: the number of the first row in the whole set.
    """

    grid: LoadedGrid
    real: Float32
    longest: float
    first: int

    @classmethod
    def of(cls, grid: Grid, rows: slice) -> Part:
        """These rows of a set."""
        part = grid.part(rows)
        return cls(part, *to_float32(part.rows), rows.start)

    @classmethod
    def both(cls, query: Grid, gallery: Grid) -> tuple[Part, Part]:
        """All rows of both sets; one object for both stays one."""
        own = cls.of(query, slice(0, len(query)))
        return own, own if query is gallery else cls.of(gallery, slice(0, len(gallery)))

    @property
    def rows(self) -> GridRows:
        """(n, d) on the grid."""
        return self.grid.rows

    def __getitem__(self, rows: slice) -> Float32:
        return self.real[rows.start - self.first : rows.stop - self.first]


@dataclasses.dataclass(frozen=True)
class QueryBlock:
    """Some queries, their levels, and what was counted against them so far.

    Attributes:
        queries: their rows.
        judged: their positives and ignored rows.
        levels: the distinct similarities of their positives.
        bins: what was counted.
        limit: (b,) the rank from which on levels are left out; None: none are.
        low: (b,) the product below which nothing counts; it rises as levels turn out to begin beyond the limit.
        no_negatives: (gallery rows, places in the block) of positives and ignored rows, sorted by row.
        near: the width of a near-tie in grid steps.
        n_gallery: how many gallery rows there are.
        lock: held by who counts.
    """

    queries: slice
    judged: Judgements
    levels: LevelSet
    bins: Bins
    limit: Counts | None
    low: Float32
    no_negatives: tuple[Counts, Counts]
    near: int
    n_gallery: int
    lock: threading.Lock

    def __len__(self) -> int:
        return int(self.queries.stop - self.queries.start)

    @classmethod
    def of(
        cls,
        queries: slice,
        relevance: Relevance,
        products: PairProducts | None,
        near: int,
        error: float,
        limit: Counts | None,
        levels: LevelSet | None = None,
    ) -> QueryBlock:
        """Judge queries, and compare them with their positives where the levels of these are not known already."""
        judged = relevance.judge(queries)
        if levels is None:
            assert products is not None
            similarity = products(judged.positive_queries + queries.start, judged.positive_rows)
            levels = find_levels(queries.stop - queries.start, judged, similarity, depth="all")
        return cls(
            queries=queries,
            judged=judged,
            levels=levels,
            bins=Bins.of(levels.starts, levels.similarity, near, error),
            limit=None if limit is None else limit[queries],
            low=lowest(levels, np.ones(len(levels.similarity), np.bool_), near, error),
            no_negatives=pairs_by_row(judged),
            near=near,
            n_gallery=relevance.n_gallery,
            lock=threading.Lock(),
        )

    def add(self, product: Float32, rows: slice, error: float, add_tile: AddTile, *, by_column: bool) -> None:
        """Count products of these queries with these gallery rows; the products are left as they were."""
        begin, end = np.searchsorted(self.no_negatives[0], [rows.start, rows.stop])
        row, owner = self.no_negatives[0][begin:end] - rows.start, self.no_negatives[1][begin:end]
        places = (row, owner) if by_column else (owner, row)
        kept = product[places]
        product[places] = np.nan  # no comparison holds
        with self.lock:
            add_tile(self.bins, Tile(product, by_column, self.low, error, self.queries.start, rows.start))
        product[places] = kept

    def raise_low_by(self, product: Float32, rows: slice, error: float, add_tile: AddTile) -> None:
        """Look at some gallery rows beforehand, only to know which levels are beyond the limit; nothing is counted."""
        self.add(product, rows, error, add_tile, by_column=False)
        self.raise_low(error)
        self.bins.above[:] = 0
        self.bins.level[:] = 0

    def take_off(self, products: PairProducts) -> None:
        """Count ignored rows less than not at all, where they will be found like everybody else."""
        owners, rows = self.judged.ignored_queries, self.judged.ignored_rows
        self.bins.add(owners, products(owners + self.queries.start, rows), -1)

    def put(self, owners: Counts, rows: Counts, similarity: Similarities) -> None:
        """Count pairs that were found; positives among them are exactly at a level, and not counted after all."""
        at_level = self.bins.add(owners, similarity)
        if len(at_level):
            keys = owners[at_level] * self.n_gallery + rows[at_level]
            place = np.searchsorted(self._positives, keys)
            again = at_level[np.append(self._positives, -1)[place] == keys]
            self.bins.add(owners[again], similarity[again], -1)

    @functools.cached_property
    def _positives(self) -> Counts:
        """The pairs of queries and positives as single numbers, rising."""
        keys: Counts = self.judged.positive_queries * self.n_gallery + self.judged.positive_rows
        return keys

    def totals(self) -> tuple[Counts, Counts, Counts, Counts]:
        """What was counted, see `Bins.totals`. Levels of which not everything was counted are far beyond the limit."""
        ahead, tied, near_above, near_below = self.bins.totals()
        owners = np.repeat(np.arange(len(self)), np.diff(self.levels.starts))
        return (
            np.where(self.bins.lower[self.bins.level_at] >= self.low[owners], ahead, FAR),
            tied,
            near_above,
            near_below,
        )

    def raise_low(self, error: float) -> None:
        """Look no more for what only levels beyond the limit would ask for: counts only grow, so they stay beyond."""
        if self.limit is None:
            return
        with self.lock:
            ahead = self.bins.ahead()[self.bins.level_at]
            kept = levels_within(self.limit, self.levels.starts, ahead, self.levels.positives_tied)
            np.maximum(self.low, lowest(self.levels, kept, self.near, error), out=self.low)


def lowest(levels: LevelSet, kept: npt.NDArray[np.bool_], near: int, error: float) -> Float32:
    """For each query the product below which nothing counts: its lowest kept level, or a near-tie below its best."""
    ranked = np.diff(levels.starts) > 0
    low = np.full(len(ranked), np.inf)
    firsts = levels.starts[:-1][ranked]
    if len(firsts):
        low[ranked] = np.minimum.reduceat(np.where(kept, levels.similarity, np.inf), firsts)
    low[ranked] = np.minimum(low[ranked], levels.similarity[firsts] - near)
    return round_down(low * 2.0**-52 - error)
