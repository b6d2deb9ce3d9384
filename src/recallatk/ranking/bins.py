"""Binning: many similarities against the levels of many queries at once.

A similarity of the grid is a whole number of steps below 2**53 in size. The levels of a query, and one near-tie above
and below its best level, are its thresholds; between them lie its bins. A float32 product that is further than its
error from every threshold is put into its bin; any other pair is decided by its exact product.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from recallatk.ranking.counts import Counts, Similarities
from recallatk.ranking.grid import GridRows
from recallatk.ranking.products import Float32, exact_products, round_down, round_up

SHIFT = 54
MOST_QUERIES = 2**9
"""So many queries and a similarity fit into 63 bits."""

PLACES_A_CHUNK = 2**20
STEPS = 2.0**52
"""Grid steps of similarity in the unit of float32 products."""


@dataclasses.dataclass(frozen=True)
class Bins:
    """Thresholds of a block of queries, and how many similarities fell between and onto them.

    Attributes:
        keys: every threshold as one number that sorts by query, then by similarity; rising.
        thresholds: (keys,) the similarities alone, in grid steps; rising for each query.
        lower: (keys,) float32, in units of 2**52 steps: a product below it is surely below the threshold.
        upper: (keys,) likewise: a product above it is surely above the threshold.
        starts: (b + 1,) where the thresholds of each query begin.
        above: for each query one bin more than it has thresholds: how many similarities are above so many of them.
        level: (keys,) how many similarities are exactly at a threshold.
        level_at: (levels,) the place of each level among the thresholds.
        first_level: (b,) the place of each query's best level among the levels, if it has one.
        edges: (2, b) the places of the near-tie above and below the best level; -1 without a level.
    """

    keys: Counts
    thresholds: Similarities
    lower: Float32
    upper: Float32
    starts: Counts
    above: Counts
    level: Counts
    level_at: Counts
    first_level: Counts
    edges: Counts

    @classmethod
    def of(cls, level_starts: Counts, levels: Similarities, near: int, error: float) -> Bins:
        """Empty bins for levels in falling order for each query, at most MOST_QUERIES queries.

        Args:
            level_starts: (b + 1,) where the levels of each query begin.
            levels: in grid steps.
            near: the width of a near-tie in grid steps.
            error: how far a float32 product may be from the exact one, in units of 2**52 steps.
        """
        n = len(level_starts) - 1
        owners = np.repeat(np.arange(n), np.diff(level_starts))
        ranked = np.flatnonzero(np.diff(level_starts))
        best = levels[level_starts[ranked]]
        level_keys, above, below = key_of(owners, levels), key_of(ranked, best + near), key_of(ranked, best - near)
        keys = np.sort(np.concatenate([level_keys, above, below]))
        keys = keys[np.diff(keys, prepend=-1) > 0]
        edges = np.full((2, n), -1, dtype=np.int64)
        edges[:, ranked] = np.searchsorted(keys, [above, below])
        thresholds = ((keys & (2**SHIFT - 1)) - 2**53).astype(np.float64)
        return cls(
            keys=keys,
            thresholds=thresholds,
            lower=round_down(thresholds / STEPS - error),
            upper=round_up(thresholds / STEPS + error),
            starts=np.searchsorted(keys >> SHIFT, np.arange(n + 1)),
            above=np.zeros(len(keys) + n, np.int64),
            level=np.zeros(len(keys), np.int64),
            level_at=np.searchsorted(keys, level_keys),
            first_level=level_starts[:-1],
            edges=edges,
        )

    def add(self, owners: Counts, similarity: Similarities, sign: int = 1) -> Counts:
        """Count exact similarities (in steps) of queries of the block, or take them off again.

        Returns:
            Which of them are exactly at a threshold.
        """
        keys = key_of(owners, similarity)
        at = np.searchsorted(self.keys, keys, side="left")
        exact = np.flatnonzero(np.append(self.keys, -1)[at] == keys)
        np.add.at(self.above, at + owners, sign)
        np.add.at(self.level, at[exact], sign)
        return exact

    def add_sure(self, owners: Counts, low: Similarities, high: Similarities) -> Counts:
        """Count similarities known to lie between two numbers of steps, where no threshold lies between these.

        Returns:
            Which of them are not counted, since a threshold may be on either side of them.
        """
        first = np.searchsorted(self.keys, key_of(owners, np.floor(low)), side="left")
        last = np.searchsorted(self.keys, key_of(owners, np.ceil(high)), side="right")
        sure = first == last
        self.above[:] += np.bincount(first[sure] + owners[sure], minlength=len(self.above))
        return np.flatnonzero(~sure)

    @functools.cached_property
    def _after(self) -> tuple[Counts, Counts]:
        """For each threshold the bin just above it, and the bin just after the last one of its query."""
        n = len(self.starts) - 1
        sizes = np.diff(self.starts)
        # Bins of a query lie at starts + place of the query ... ends + place.
        above = np.arange(len(self.keys)) + np.repeat(np.arange(n), sizes) + 1
        return above, np.repeat(self.starts[1:] + np.arange(n) + 1, sizes)

    def ahead(self) -> Counts:
        """For each threshold how many similarities are above it."""
        until = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.above)])
        above, end = self._after
        ahead: Counts = until[end] - until[above]
        return ahead

    def totals(self) -> tuple[Counts, Counts, Counts, Counts]:
        """For each level those ahead and those level with it; for each query those near above and near below."""
        n = len(self.starts) - 1
        greater = self.ahead()
        ranked = self.edges[0] >= 0
        top, low = self.edges[:, ranked]
        best = self.level_at[self.first_level[ranked]]
        near_above, near_below = np.zeros(n, np.int64), np.zeros(n, np.int64)
        near_above[ranked] = greater[best] - greater[top]
        near_below[ranked] = greater[low] + self.level[low] - greater[best] - self.level[best]
        return greater[self.level_at], self.level[self.level_at], near_above, near_below


def key_of(owners: Counts, similarity: Similarities) -> Counts:
    """The place of a query in its block, and a similarity in whole steps, as one number that sorts like both."""
    keys: Counts = (owners << SHIFT) + similarity.astype(np.int64) + 2**53
    return keys


@dataclasses.dataclass(frozen=True)
class Tile:
    """Float32 products of the queries of a block with some gallery rows.

    Attributes:
        product: (queries, gallery rows) in units of 2**52 steps, NaN for pairs that do not count; if `by_column`
            (gallery rows, queries).
        by_column: whether the columns are the queries.
        low: for each query the product below which nothing counts.
        error: how far a product may be from the exact one.
        first_query: the row of the first query.
        first_row: the first of the gallery rows.
    """

    product: Float32
    by_column: bool
    low: Float32
    error: float
    first_query: int
    first_row: int


AddTile: TypeAlias = Callable[[Bins, Tile], None]
"""Counts every product of a tile that may reach a threshold of its query."""

MakeAddTile: TypeAlias = Callable[[GridRows, GridRows], AddTile]
"""Grid rows of queries and gallery -> what counts tiles of their products."""


def add_tiles_in_numpy(query: GridRows, gallery: GridRows) -> AddTile:
    """Binning in numpy."""
    products = exact_products(query, gallery, "dot")

    def add_tile(bins: Bins, tile: Tile) -> None:
        product, width = tile.product, tile.product.shape[1]
        places = np.flatnonzero(product >= (tile.low if tile.by_column else tile.low[:, None]))
        for part in range(0, len(places), PLACES_A_CHUNK):
            at = places[part : part + PLACES_A_CHUNK]
            row, column = np.divmod(at, width)
            owners, rows = (column, row) if tile.by_column else (row, column)
            value = product.ravel()[at].astype(np.float64)
            unsure = bins.add_sure(owners, (value - tile.error) * STEPS, (value + tile.error) * STEPS)
            owners, rows = owners[unsure], rows[unsure]
            bins.add(owners, products(owners + tile.first_query, rows + tile.first_row))

    return add_tile


def bins_in_c() -> bool:
    """Whether the C extension for bins was built."""
    try:
        _extension()
    except ImportError:
        return False
    return True


def add_tiles_in_c(query: GridRows, gallery: GridRows) -> AddTile:
    """Binning by the C extension."""
    extension = _extension()
    query, gallery = np.ascontiguousarray(query), np.ascontiguousarray(gallery)

    def add_tile(bins: Bins, tile: Tile) -> None:
        extension.add_tile(
            tile.product,
            tile.low,
            bins.starts,
            bins.thresholds,
            bins.lower,
            bins.upper,
            query[tile.first_query :],
            gallery[tile.first_row :],
            bins.above,
            bins.level,
            *tile.product.shape,
            tile.by_column,
            query.shape[1],
        )

    return add_tile


def _extension() -> Any:
    return importlib.import_module("recallatk.ranking._levels")
