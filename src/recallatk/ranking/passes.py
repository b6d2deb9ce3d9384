"""Two passes over the gallery: find the best positive of every query, then count what is ahead of it and level with it.

Both passes add up over parts of the gallery: the best of two best positives is the best positive, and counts are sums.
That is what lets a screen, threads, a GPU or a cluster do the second pass without changing the answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from recallatk.ranking.blocks import Block, query_blocks
from recallatk.ranking.counts import Counts, Ranking, Similarities
from recallatk.ranking.grid import Grid
from recallatk.relevance import Judgements, Relevance

PairProducts = Callable[[Counts, Counts], Similarities]
"""Exact similarities, in grid steps, of pairs (query rows, gallery rows)."""

PAIRS_A_CHUNK = 2**14


@dataclasses.dataclass(frozen=True)
class BestPositives:
    """The first pass: the best positive of every query, and what is no negative but will be counted.

    Attributes:
        similarity: (n,) of the best positive, in grid steps; +inf without a positive.
        row: (n,) gallery row of the best positive, the first of several; -1 without one.
        tied: (n,) positives at that similarity.
        n_positives: (n,) positives that are left after everything ignored is gone.
        n_ignored: (n,) ignored gallery rows.
        others: what positives and ignored rows add to the counts of the second pass.
    """

    similarity: Similarities
    row: Counts
    tied: Counts
    n_positives: Counts
    n_ignored: Counts
    others: LevelCounts


@dataclasses.dataclass(frozen=True)
class LevelCounts:
    """The second pass: gallery rows by where they stand against the best positive of each query; these add.

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

    def add(self, queries: Counts, similarity: Similarities, best: Similarities, near: int, sign: int = 1) -> None:
        """Count pairs one by one: `best` is that of each pair's query."""
        gap = similarity - best
        for column, hit in (
            (self.far_above, gap > near),
            (self.above, gap > 0),
            (self.level, gap == 0),
            (self.near_below, (gap < 0) & (gap >= -near)),
        ):
            np.add.at(column, queries[hit], sign)


def find_best_positives(
    relevance: Relevance, products: PairProducts, *, near: int, size: Block = Block()
) -> BestPositives:
    """Compare every query with its positives, and with what is ignored for it, a block of queries at a time.

    Args:
        relevance: who is positive and who is ignored.
        products: exact similarities of pairs.
        near: the width of a near-tie.
        size: at most so many queries and pairs together.
    """
    n = relevance.n_queries
    found = BestPositives(
        similarity=np.full(n, np.inf),
        row=np.full(n, -1, dtype=np.int64),
        tied=np.zeros(n, np.int64),
        n_positives=np.zeros(n, np.int64),
        n_ignored=np.zeros(n, np.int64),
        others=LevelCounts.zeros(n),
    )
    for queries in query_blocks(relevance.pairs, size):
        judged = relevance.judge(queries)
        found.n_positives[queries] = np.diff(judged.positive_starts)
        found.n_ignored[queries] = np.diff(judged.ignored_starts)
        _look_at_positives(found, queries.start, judged, products, near)
        _look_at_ignored(found, queries.start, judged, products, near)
    return found


def _look_at_positives(found: BestPositives, start: int, judged: Judgements, products: PairProducts, near: int) -> None:
    owners, rows = judged.positive_queries + start, judged.positive_rows
    if not len(rows):
        return
    similarity = _in_chunks(products, owners, rows)
    first = np.flatnonzero(np.diff(owners, prepend=-1))
    found.similarity[owners[first]] = np.maximum.reduceat(similarity, first)
    best = found.similarity[owners]
    at_best = np.flatnonzero(similarity == best)
    found.tied[:] += np.bincount(owners[at_best], minlength=len(found.tied))
    first_best = at_best[np.diff(owners[at_best], prepend=-1) > 0]
    found.row[owners[first_best]] = rows[first_best]
    found.others.add(owners, similarity, best, near)


def _look_at_ignored(found: BestPositives, start: int, judged: Judgements, products: PairProducts, near: int) -> None:
    owners, rows = judged.ignored_queries + start, judged.ignored_rows
    live = found.n_positives[owners] > 0
    owners, rows = owners[live], rows[live]
    if len(rows):
        found.others.add(owners, _in_chunks(products, owners, rows), found.similarity[owners], near)


def _in_chunks(products: PairProducts, owners: Counts, rows: Counts) -> Similarities:
    parts = [
        products(owners[start : start + PAIRS_A_CHUNK], rows[start : start + PAIRS_A_CHUNK])
        for start in range(0, len(rows), PAIRS_A_CHUNK)
    ]
    return np.concatenate(parts)


def assemble(found: BestPositives, counted: LevelCounts, n_gallery: int, unit: float) -> Ranking:
    """The ranking at depth "first" of all queries: what was counted, less the positives and what is ignored."""
    ranked = found.n_positives > 0
    others = found.others
    above = (counted.above - others.above)[ranked]
    far_above = (counted.far_above - others.far_above)[ranked]
    near_below = counted.near_below - others.near_below
    return Ranking(
        queries=slice(0, len(ranked)),
        starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(ranked, dtype=np.int64)]),
        similarity=found.similarity[ranked] * unit,
        negatives_ahead=above,
        negatives_tied=(counted.level - others.level)[ranked],
        positives_tied=found.tied[ranked],
        best_positive=found.row,
        near_above=_spread(above - far_above, ranked),
        near_below=np.where(ranked, near_below, 0),
        n_positives=found.n_positives,
        n_candidates=n_gallery - found.n_ignored,
    )


def _spread(values: Counts, where: Counts) -> Counts:
    spread = np.zeros(len(where), np.int64)
    spread[where] = values
    return spread


def grid_products(query: Grid, gallery: Grid) -> PairProducts:
    """Exact similarities of pairs in numpy: int32 coordinates as float64, every sum below 2**53."""

    def products(owners: Counts, rows: Counts) -> Similarities:
        left, right = query.rows[owners].astype(np.float64), gallery.rows[rows].astype(np.float64)
        similarity: Similarities = np.einsum("ij,ij->i", left, right)
        if gallery.similarity == "euclidean":
            lengths = np.einsum("ij,ij->i", left, left) + np.einsum("ij,ij->i", right, right)
            return 2 * similarity - lengths
        return similarity

    return products
