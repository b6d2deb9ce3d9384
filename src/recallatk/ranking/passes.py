"""The second pass over the gallery: what is ahead of the best positive of every query and level with it. Counts add.

`rank_first` runs both passes on one machine, in parts where the grid rows do not fit into memory;
`recallatk.ranking.shards` has them for galleries that lie on several machines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from recallatk.ranking.blocks import Block, query_blocks, slices
from recallatk.ranking.counts import Counts, Ranking, Similarities
from recallatk.ranking.grid import Grid, GridRows
from recallatk.ranking.positives import MOST_QUERIES, BestPositives, find_best_positives, join_queries
from recallatk.ranking.products import MakeProducts, PairProducts, fetched_products
from recallatk.relevance import Relevance

PART_NUMBERS = 2**22
"""Coordinates of gallery rows that are looked at together by queries from elsewhere: memory of that size is used again
for the next part, where more would be new and cost more than the work on it. (But queries are packed again for each
part, so that it has eight times as many rows.)"""


@dataclasses.dataclass(frozen=True, eq=False)
class LevelCounts:
    """Gallery rows by where they stand against the best positive of each query; counts of parts add.

    Attributes:
        far_above: (n,) more than a near-tie above.
        above: (n,) above, near-ties included.
        level: (n,) exactly level.
        near_below: (n,) below by at most a near-tie.
    """

    far_above: Counts
    above: Counts
    level: Counts
    near_below: Counts

    @classmethod
    def zeros(cls, n: int) -> LevelCounts:
        """Nothing counted yet."""
        return cls(*(np.zeros(n, np.int64) for _ in range(4)))

    def part(self, queries: slice | Counts) -> LevelCounts:
        """The counts of these queries; what is added to those of a slice is added here."""
        return LevelCounts(self.far_above[queries], self.above[queries], self.level[queries], self.near_below[queries])

    def plus(self, other: LevelCounts) -> None:
        """Add the counts of another part of the gallery for the same queries."""
        self.far_above[:] += other.far_above
        self.above[:] += other.above
        self.level[:] += other.level
        self.near_below[:] += other.near_below

    def less(self, other: LevelCounts) -> LevelCounts:
        """These counts without those of rows that are among them."""
        return LevelCounts(
            self.far_above - other.far_above,
            self.above - other.above,
            self.level - other.level,
            self.near_below - other.near_below,
        )

    def add(
        self,
        queries: Counts,
        similarity: Similarities,
        best: Similarities,
        near: int,
        weight: Counts | None = None,
    ) -> None:
        """Count pairs one by one: `best` is that of each pair's query; a pair may stand for several (`weight`)."""
        gap = similarity - best
        for column, hit in (
            (self.far_above, gap > near),
            (self.above, gap > 0),
            (self.level, gap == 0),
            (self.near_below, (gap < 0) & (gap >= -near)),
        ):
            weights = None if weight is None else weight[hit]
            column[:] += np.bincount(queries[hit], weights, minlength=len(column)).astype(np.int64)


class CountLevels(Protocol):
    """What a backend does: count a part of the gallery against the best positives of a part of the queries."""

    def __call__(
        self,
        query: GridRows,
        gallery: GridRows,
        best: Similarities,
        other_best: Similarities | None,
        *,
        near: int,
        threads: int,
        size: Block,
    ) -> tuple[LevelCounts, LevelCounts | None]:
        """Count every row of the part, the query itself, positives and ignored ones included.

        Args:
            query: (q, d) grid rows. The same object as `gallery` where a part is compared with itself.
            gallery: (n, d) grid rows.
            best: (q,) similarities of the best positives in grid steps, +inf where nothing is to be counted.
            other_best: (n,) best positives of the gallery rows as queries, to count each pair for both of its rows;
                None for no.
            near: the width of a near-tie in grid steps.
            threads: at most so many.
            size: how much is looked at together.

        Returns:
            The counts of the queries; and those of the gallery rows where `other_best` was given.
        """


def rank_first(
    query: Grid,
    gallery: Grid,
    relevance: Relevance,
    count_levels: CountLevels,
    make_products: MakeProducts,
    *,
    size: Block,
    threads: int,
) -> Iterator[Ranking]:
    """The ranking at depth "first" of all queries, by parts of queries and gallery that are in memory one at a time.

    Where every query is also in the gallery, each pair of parts is looked at once and counts for both.
    """
    alone = query is gallery
    other_part = size.part if alone else min(size.part, max(PART_NUMBERS // gallery.dim, 8 * len(query)))
    counted, ignored = LevelCounts.zeros(len(query)), LevelCounts.zeros(len(query))
    n_ignored = np.zeros(len(query), np.int64)
    bests = []
    for queries in slices(len(query), size.part):
        own = query.part(queries)
        products = fetched_products(own.rows, gallery, make_products, at_once=size.part)
        best = find_best_positives(own, gallery, relevance, products, size=size, queries=queries)
        n_ignored[queries] = count_ignored(ignored.part(queries), relevance, best, products, size=size, queries=queries)
        bests.append(best)
    similarity = np.concatenate([np.empty(0), *(best.similarity for best in bests)])
    for queries in slices(len(query), size.part):
        own = query.part(queries)
        for others in slices(len(gallery), other_part, first=queries.start if alone else 0):
            other = own if alone and others == queries else gallery.part(others)
            both = similarity[others] if alone and others != queries else None
            here, there = count_levels(
                own.rows, other.rows, similarity[queries], both, near=gallery.near, threads=threads, size=size
            )
            counted.part(queries).plus(here)
            if there is not None:
                counted.part(others).plus(there)
    yield assemble(join_queries(bests), counted, ignored, n_ignored, len(gallery), gallery.unit)


def count_ignored(
    counts: LevelCounts,
    relevance: Relevance,
    best: BestPositives,
    products: PairProducts,
    *,
    size: Block,
    queries: slice | None = None,
) -> Counts:
    """Add what is ignored to the counts, to be taken off again: it is in what a backend counts.

    Args:
        counts: of these queries; added to.
        relevance: who is ignored in the gallery or a shard of it.
        best: the best positives of the queries in the whole gallery.
        products: exact similarities of pairs of rows of these queries and that gallery or shard.
        size: at most so many pairs together.
        queries: which queries of `relevance` these are; default all.

    Returns:
        (n,) how many rows are ignored for each query.
    """
    queries = slice(0, relevance.n_queries) if queries is None else queries
    n_ignored = np.zeros(len(best.similarity), np.int64)
    pairs = relevance.pairs[queries]
    for block in query_blocks(pairs, dataclasses.replace(size, queries=MOST_QUERIES)):
        starts, rows = relevance.judge_ignored(np.arange(queries.start + block.start, queries.start + block.stop))
        n_ignored[block] = np.diff(starts)
        owners = np.repeat(np.arange(block.start, block.stop), np.diff(starts))
        live = best.n_positives[owners] > 0
        owners, rows = owners[live], rows[live]
        counts.add(owners, products(owners, rows), best.similarity[owners], best.near)
    return n_ignored


def assemble(
    best: BestPositives, counted: LevelCounts, ignored: LevelCounts, n_ignored: Counts, n_gallery: int, unit: float
) -> Ranking:
    """The ranking at depth "first": what was counted, less the positives and what is ignored."""
    ranked = best.n_positives > 0
    tied = best.tied
    above = (counted.above - ignored.above)[ranked]
    far_above = (counted.far_above - ignored.far_above)[ranked]
    near_below = counted.near_below - ignored.near_below - best.near_below
    return Ranking(
        queries=slice(0, len(ranked)),
        starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(ranked, dtype=np.int64)]),
        similarity=best.similarity[ranked] * unit,
        negatives_ahead=above,
        negatives_tied=(counted.level - ignored.level - tied)[ranked],
        positives_tied=tied[ranked],
        best_positive=best.row,
        near_above=_spread(above - far_above, ranked),
        near_below=np.where(ranked, near_below, 0),
        n_positives=best.n_positives,
        n_candidates=n_gallery - n_ignored,
        n_ranked=n_gallery - n_ignored,
    )


def _spread(values: Counts, where: npt.NDArray[np.bool_]) -> Counts:
    spread = np.zeros(len(where), np.int64)
    spread[where] = values
    return spread
