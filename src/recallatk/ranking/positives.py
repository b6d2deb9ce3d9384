"""The first pass over the gallery: the best positive of every query. Any parts of the gallery will do: bests merge."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from recallatk.ranking.blocks import Block, query_blocks, slices
from recallatk.ranking.counts import Counts, Similarities
from recallatk.ranking.grid import Grid, LoadedGrid
from recallatk.ranking.products import Float32, PairProducts, float32_error, round_down, to_float32
from recallatk.relevance import Relevance

SHARED = 128
"""From so many queries and positives on, a group is compared by products of matrices instead of pair by pair."""

MOST_QUERIES = 2**15
"""Queries that are judged together; the pairs are what takes memory."""


@dataclasses.dataclass(frozen=True, eq=False)
class BestPositives:
    """The best positive of each query in a part of the gallery, or in all of it.

    Kept are the positives that are level with the best one or a near-tie below it: few, and all that counting needs to
    know of positives. Similarities are exact, so `merge_best_positives` has nothing to recheck.

    Attributes:
        n_positives: (n,) positives in the part, without those that are ignored.
        similarity: (n,) of the best positive, in grid steps; +inf without a positive.
        owners: the query of each kept positive, rising.
        rows: its gallery row, rising for each query.
        similarities: its similarity, in grid steps.
        near: the width of a near-tie in grid steps.
    """

    n_positives: Counts
    similarity: Similarities
    owners: Counts
    rows: Counts
    similarities: Similarities
    near: int

    @property
    def row(self) -> Counts:
        """(n,) gallery row of the best positive, the first of several; -1 without one."""
        best = self.similarities == self.similarity[self.owners]
        owners, first = np.unique(self.owners[best], return_index=True)
        row = np.full(len(self.n_positives), -1, dtype=np.int64)
        row[owners] = self.rows[best][first]
        return row

    @property
    def tied(self) -> Counts:
        """(n,) positives level with the best one, itself included."""
        best = self.similarities == self.similarity[self.owners]
        return np.bincount(self.owners[best], minlength=len(self.n_positives))

    @property
    def near_below(self) -> Counts:
        """(n,) positives a near-tie below the best one."""
        return np.bincount(self.owners, minlength=len(self.n_positives)) - self.tied


def merge_best_positives(parts: Sequence[BestPositives]) -> BestPositives:
    """The best positives in several parts of the gallery, for the same queries; the order of the parts is free."""
    owners, rows, similarities = (
        np.concatenate([getattr(part, column) for part in parts]) for column in ("owners", "rows", "similarities")
    )
    n_positives = np.asarray(np.sum([part.n_positives for part in parts], axis=0, dtype=np.int64))
    order = np.lexsort((rows, owners))
    return _keep_best(n_positives, owners[order], rows[order], similarities[order], parts[0].near)


def join_queries(blocks: Sequence[BestPositives]) -> BestPositives:
    """The best positives of several blocks of queries, in this order, in the same gallery."""
    ends = np.cumsum([0, *(len(block.similarity) for block in blocks)])
    owners = [block.owners + start for block, start in zip(blocks, ends, strict=False)]
    columns = (
        [getattr(block, name) for block in blocks] for name in ("n_positives", "similarity", "rows", "similarities")
    )
    n_positives, similarity, rows, similarities = (np.concatenate(column) for column in columns)
    return BestPositives(n_positives, similarity, np.concatenate(owners), rows, similarities, blocks[0].near)


def _keep_best(
    n_positives: Counts, owners: Counts, rows: Counts, similarities: Similarities, near: int
) -> BestPositives:
    """From positives query by query."""
    best = np.full(len(n_positives), np.inf)
    first = np.flatnonzero(np.diff(owners, prepend=-1))
    if len(first):
        best[owners[first]] = np.maximum.reduceat(similarities, first)
    kept = similarities >= best[owners] - near
    return BestPositives(n_positives, best, owners[kept], rows[kept], similarities[kept], near)


def find_best_positives(
    query: LoadedGrid,
    gallery: Grid,
    relevance: Relevance,
    products: PairProducts,
    *,
    size: Block,
    queries: slice | None = None,
    first: int = 0,
) -> BestPositives:
    """Compare queries with their positives.

    Queries that share many positives (few large classes) are compared with them in a float32 product; whatever may be
    the best or a near-tie of it is then compared exactly. All others, and euclidean similarities, are compared pair by
    pair.

    Args:
        query: the rows of the queries.
        gallery: the rows of the gallery, or of a part of it.
        relevance: who is positive and who is ignored in that gallery or part.
        products: exact similarities of pairs of their rows.
        size: at most so many pairs, and rows in a product, together.
        queries: which queries of `relevance` the rows of `query` are; default all.
        first: what is added to the rows of a part, to number them as in the whole gallery.
    """
    queries = slice(0, relevance.n_queries) if queries is None else queries
    n, start = len(query), queries.start
    n_positives = np.zeros(n, np.int64)
    kept = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]

    def keep(which: Counts, counts: Counts, owners: Counts, rows: Counts) -> None:
        """Keep what may be the best of pairs of queries (places in `which`) and rows; so the others take no memory."""
        n_positives[which] += counts
        similarities = products(which[owners], rows)
        best = _keep_best(counts, owners, rows + first, similarities, gallery.near)
        kept.append((which[best.owners], best.rows, best.similarities))

    one_by_one = np.ones(n, dtype=np.bool_)
    # The float32 product of a group says nothing of how far rows are apart.
    for group, rows in relevance.groups(SHARED) if gallery.similarity != "euclidean" else ():
        members = group[(group >= start) & (group < queries.stop)]
        one_by_one[members - start] = False
        for others in slices(len(rows), size.gallery):
            right, longest = to_float32(gallery.rows[rows[others]])
            for some in slices(len(members), size.queries):
                which = members[some] - start
                left, longest_left = to_float32(query.rows[which])
                error = float32_error(gallery.dim, longest_left, longest)
                near_best = _near_best(left @ right.T, error, relevance, members[some], rows[others], near=gallery.near)
                keep(which, *near_best)
    rest = np.flatnonzero(one_by_one) + start
    for block in query_blocks(relevance.pairs[rest], dataclasses.replace(size, queries=MOST_QUERIES)):
        judged = relevance.judge(rest[block])
        keep(rest[block] - start, np.diff(judged.positive_starts), judged.positive_queries, judged.positive_rows)
    owners, found, similarities = (np.concatenate(column) for column in zip(*kept, strict=True))
    order = np.argsort(owners, kind="stable")  # the rows of each query come in order already
    return _keep_best(n_positives, owners[order], found[order], similarities[order], gallery.near)


def _near_best(
    product: Float32, error: float, relevance: Relevance, members: Counts, rows: Counts, *, near: int
) -> tuple[Counts, Counts, Counts]:
    """Of queries that share these positives: how many each has left, and the pairs that may be best or nearly so.

    Args:
        product: (members, rows) float32; what is ignored is overwritten.
        error: how far it may be from the exact one.
        relevance: who is ignored.
        members: the queries.
        rows: their positives, rising.
        near: the width of a near-tie in grid steps.
    """
    starts, ignored = relevance.judge_ignored(members)
    place = np.minimum(np.searchsorted(rows, ignored), len(rows) - 1)
    owners = np.repeat(np.arange(len(members)), np.diff(starts))
    shared = rows[place] == ignored
    product[owners[shared], place[shared]] = -np.inf
    n_positives = len(rows) - np.bincount(owners[shared], minlength=len(members))
    # The best positive is within one error of its product, and so is the greatest product.
    low = round_down(product.max(axis=1).astype(np.float64) - (2 * error + near * 2.0**-52))
    low[n_positives == 0] = np.inf
    near_best, column = np.nonzero(product >= low[:, None])
    return n_positives, near_best, rows[column]
