"""Two passes over the gallery: find the best positive of every query, then count what is ahead of it and level with it.

Both passes add up over parts of the gallery: the best of two best positives is the best positive, and counts are sums.
That is what lets a screen, threads, a GPU or a cluster do the second pass without changing the answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from recallatk.ranking.blocks import Block, query_blocks
from recallatk.ranking.counts import Counts, Ranking, Similarities
from recallatk.ranking.grid import Grid, GridRows
from recallatk.relevance import Relevance

Float32 = npt.NDArray[np.float32]
PairProducts = Callable[[Counts, Counts], Similarities]
"""Exact similarities, in grid steps, of pairs (query rows, gallery rows)."""

PAIRS_A_CHUNK = 2**14

SHARED = 128
"""From so many queries and positives on, a group is compared by one product instead of pair by pair."""

UNIT_ROUNDOFF = 2.0**-24
SMALLEST = 2.0**-100
"""Covers what underflow may take from a sum of products; coordinates are below 2 in size."""


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
    query: Grid, gallery: Grid, relevance: Relevance, products: PairProducts, *, size: Block
) -> BestPositives:
    """Compare every query with its positives, and with what is ignored for it.

    Queries that share many positives (few large classes) are compared with them in a float32 product; whatever may be
    the best or a near-tie of it is then compared exactly. All others are compared pair by pair.

    Args:
        query: the rows of the queries.
        gallery: the rows of the gallery.
        relevance: who is positive and who is ignored.
        products: exact similarities of pairs.
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
    pairs = relevance.pairs
    one_by_one = np.ones(n, dtype=np.bool_)
    for members, rows in relevance.groups(SHARED):
        one_by_one[members] = False
        for block in query_blocks(pairs[members], size):
            _look_at_group(found, members[block], rows, query, gallery, relevance, products)
    rest = np.flatnonzero(one_by_one)
    for block in query_blocks(pairs[rest], size):
        queries = rest[block]
        judged = relevance.judge(queries)
        found.n_positives[queries] = np.diff(judged.positive_starts)
        _look_at_positives(found, queries[judged.positive_queries], judged.positive_rows, products, gallery.near)
        ignored = (judged.ignored_starts, judged.ignored_rows)
        _look_at_ignored(found, queries, *ignored, products, gallery.near)
    return found


def _look_at_group(
    found: BestPositives,
    queries: Counts,
    rows: Counts,
    query: Grid,
    gallery: Grid,
    relevance: Relevance,
    products: PairProducts,
) -> None:
    """Queries that share all their positives, before anything is ignored."""
    left, right, error = float32_rows(query.rows[queries], gallery.rows[rows])
    product = left @ right.T
    starts, ignored = relevance.judge_ignored(queries)
    place = np.minimum(np.searchsorted(rows, ignored), len(rows) - 1)
    owners = np.repeat(np.arange(len(queries)), np.diff(starts))
    shared = rows[place] == ignored
    product[owners[shared], place[shared]] = -np.inf
    found.n_positives[queries] = len(rows) - np.bincount(owners[shared], minlength=len(queries))
    # The best positive is within one error of its product, and so is the greatest product.
    margin = 2 * error + gallery.near * 2.0**-52
    low = round_down(product.max(axis=1).astype(np.float64) - margin)
    low[found.n_positives[queries] == 0] = np.inf
    near_best, column = np.nonzero(product >= low[:, None])
    _look_at_positives(found, queries[near_best], rows[column], products, gallery.near)
    _look_at_ignored(found, queries, starts, ignored, products, gallery.near)


def _look_at_positives(found: BestPositives, owners: Counts, rows: Counts, products: PairProducts, near: int) -> None:
    """Pairs of queries and positives, query by query, rows rising."""
    if not len(rows):
        return
    similarity = in_chunks(products, owners, rows)
    first = np.flatnonzero(np.diff(owners, prepend=-1))
    found.similarity[owners[first]] = np.maximum.reduceat(similarity, first)
    best = found.similarity[owners]
    at_best = np.flatnonzero(similarity == best)
    found.tied[:] += np.bincount(owners[at_best], minlength=len(found.tied))
    first_best = at_best[np.diff(owners[at_best], prepend=-1) != 0]
    found.row[owners[first_best]] = rows[first_best]
    found.others.add(owners, similarity, best, near)


def _look_at_ignored(
    found: BestPositives, queries: Counts, starts: Counts, rows: Counts, products: PairProducts, near: int
) -> None:
    found.n_ignored[queries] = np.diff(starts)
    owners = np.repeat(queries, np.diff(starts))
    live = found.n_positives[owners] > 0
    owners, rows = owners[live], rows[live]
    if len(rows):
        found.others.add(owners, in_chunks(products, owners, rows), found.similarity[owners], near)


def in_chunks(products: PairProducts, owners: Counts, rows: Counts) -> Similarities:
    """The similarities of many pairs, some at a time."""
    parts = [
        products(owners[start : start + PAIRS_A_CHUNK], rows[start : start + PAIRS_A_CHUNK])
        for start in range(0, len(rows), PAIRS_A_CHUNK)
    ]
    return np.concatenate([np.empty(0), *parts])


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
        n_ranked=n_gallery - found.n_ignored,
    )


def _spread(values: Counts, where: npt.NDArray[np.bool_]) -> Counts:
    spread = np.zeros(len(where), np.int64)
    spread[where] = values
    return spread


def grid_products(query: Grid, gallery: Grid) -> PairProducts:
    """Exact similarities of pairs in numpy: int32 coordinates as float64, every sum below 2**53."""

    def products(owners: Counts, rows: Counts) -> Similarities:
        left, right = query.rows[owners].astype(np.float64), gallery.rows[rows].astype(np.float64)
        similarity: Similarities = np.einsum("ij,ij->i", left, right)
        if gallery.similarity == "euclidean":
            similarity = 2 * similarity - np.einsum("ij,ij->i", left, left) - np.einsum("ij,ij->i", right, right)
        return similarity

    return products


def float32_rows(query: GridRows, gallery: GridRows) -> tuple[Float32, Float32, float]:
    """Grid rows in float32, in units of 2**26 steps, and how far their float32 products may be from the exact ones.

    With u = 2**-24, rows x and y of d coordinates, each rounded to float32, and their inner product summed in float32
    in any order: the result is within (d + 3) u (1 + 2 d u) |x| |y| of the exact one (docs/exactness.md). The error is
    in units of 2**52 grid steps of similarity.
    """
    right = (gallery * 2.0**-26).astype(np.float32)  # a coordinate is at most 2**26 steps
    left = right if query is gallery else (query * 2.0**-26).astype(np.float32)
    d = right.shape[1]
    longest = [np.sqrt(np.max(np.einsum("ij,ij->i", x, x, dtype=np.float64), initial=0.0)) for x in (left, right)]
    # A length from float32 coordinates is short of the true one by at most a factor 1 - u; 1.001 covers that too.
    error = (d + 3) * UNIT_ROUNDOFF * (1 + 2 * d * UNIT_ROUNDOFF) * 1.001 * longest[0] * longest[1] + SMALLEST
    return left, right, float(error)


def round_down(values: Similarities) -> Float32:
    """The float32 number below."""
    return np.nextafter(values.astype(np.float32), np.float32(-np.inf))


def round_up(values: Similarities) -> Float32:
    """The float32 number above."""
    return np.nextafter(values.astype(np.float32), np.float32(np.inf))
