"""The reference backend: blocked float64 products of grid rows, and counting."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from recallatk.ranking.counts import NEAR, Counts, Depth, Ranking
from recallatk.ranking.grid import GridRows
from recallatk.relevance import Judgements, Relevance
from recallatk.types import RecallatkError

Similarities = npt.NDArray[np.float64]

BYTES_A_PAIR = 160
"""What judging one pair takes at the most: some twenty eight-byte columns while they are sorted and split."""


@dataclasses.dataclass(frozen=True)
class Block:
    """How much is looked at together: at most so many queries, judged pairs, and gallery rows in a tile."""

    queries: int = 512
    pairs: int = 2**21
    gallery: int = 4096

    @classmethod
    def within(cls, memory: int, dim: int) -> Block:
        """The largest block, up to the default size, whose working memory stays within `memory` bytes.

        Raises:
            RecallatkError: not even the smallest block does.
        """
        block = cls()
        while block.bytes(dim) > memory:
            block = cls(max(block.queries // 2, 1), max(block.pairs // 2, 1024), max(block.gallery // 2, 32))
            if block == cls(1, 1024, 32) and block.bytes(dim) > memory:
                raise RecallatkError(
                    f"memory={memory} bytes is too little to rank with; give at least {block.bytes(dim)}"
                )
        return block

    def bytes(self, dim: int) -> int:
        """The working memory of ranking with this block, in bytes."""
        tile = 8 * (self.queries + self.gallery) * dim + 12 * self.queries * self.gallery
        return tile + BYTES_A_PAIR * self.pairs


def rank_blocks(
    query: GridRows, gallery: GridRows, relevance: Relevance, *, depth: Depth, memory: int, block: Block | None = None
) -> Iterator[Ranking]:
    """Rank block by block of queries; see `recallatk.ranking.rank`."""
    size = block or Block.within(memory, query.shape[1])
    for queries in _query_blocks(relevance.pairs, size):
        rows = query[queries].astype(np.float64)
        yield _rank_block(queries, rows, gallery, relevance.judge(queries), depth, size.gallery)


def _query_blocks(pairs: Counts, size: Block) -> Iterator[slice]:
    """Cut the queries so that no block judges more pairs than it may, unless a single query does."""
    ends = np.cumsum(pairs)
    start = 0
    while start < len(pairs):
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + size.pairs, side="right"))
        stop = min(max(stop, start + 1), start + size.queries, len(pairs))
        yield slice(start, stop)
        start = stop


def _rank_block(
    queries: slice, rows: Similarities, gallery: GridRows, judged: Judgements, depth: Depth, tile: int
) -> Ranking:
    n_positives = np.diff(judged.positive_starts)
    owners, similarity = judged.positive_queries, _positive_similarities(rows, gallery, judged, tile)
    # Per query: nearest first, and among equals the first gallery row.
    order = np.lexsort((judged.positive_rows, -similarity, owners))
    owners, similarity, positives = owners[order], similarity[order], judged.positive_rows[order]

    first_of_query = np.diff(owners, prepend=-1) > 0
    is_level = first_of_query | (np.diff(similarity, prepend=np.inf) != 0)
    level_at = np.flatnonzero(is_level)
    positives_tied = np.diff(level_at, append=len(similarity))
    best_positive = np.full(len(rows), -1, dtype=np.int64)
    best_positive[owners[first_of_query]] = positives[first_of_query]
    if depth == "first":
        keep = first_of_query[level_at]
        level_at, positives_tied = level_at[keep], positives_tied[keep]
    starts = np.searchsorted(owners[level_at], np.arange(len(rows) + 1))

    ahead, tied, near_above, near_below = _count_negatives(rows, gallery, judged, starts, similarity[level_at], tile)
    return Ranking(
        queries=queries,
        starts=starts,
        similarity=similarity[level_at].astype(np.int64),
        negatives_ahead=ahead,
        negatives_tied=tied,
        positives_tied=positives_tied,
        best_positive=best_positive,
        near_above=near_above,
        near_below=near_below,
        n_positives=n_positives,
        n_candidates=len(gallery) - np.diff(judged.ignored_starts),
    )


def _positive_similarities(rows: Similarities, gallery: GridRows, judged: Judgements, tile: int) -> Similarities:
    """The similarity of every positive pair: products with those gallery rows that are anybody's positive."""
    columns, place = np.unique(judged.positive_rows, return_inverse=True)
    owners = judged.positive_queries
    similarity = np.empty(len(place))
    for start in range(0, len(columns), tile):
        product = rows @ gallery[columns[start : start + tile]].astype(np.float64).T
        here = np.flatnonzero((place >= start) & (place < start + tile))
        similarity[here] = product[owners[here], place[here] - start]
    return similarity


def _count_negatives(
    rows: Similarities, gallery: GridRows, judged: Judgements, starts: Counts, levels: Similarities, tile: int
) -> tuple[Counts, Counts, Counts, Counts]:
    """Stream the gallery once: negatives ahead of and level with each level, and near each query's best level."""
    ahead, tied = np.zeros(len(levels), np.int64), np.zeros(len(levels), np.int64)
    near_above, near_below = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    ranked = np.flatnonzero(np.diff(starts))  # queries with a positive
    if not len(ranked):
        return ahead, tied, near_above, near_below
    best_at = starts[ranked]
    best = levels[best_at][:, None]
    deep = np.flatnonzero(np.diff(starts) > 1)  # queries with further levels below the best
    no_negatives = _by_row(judged)

    for start in range(0, len(gallery), tile):
        product = rows @ gallery[start : start + tile].astype(np.float64).T
        first, last = np.searchsorted(no_negatives[0], [start, start + tile])
        product[no_negatives[1][first:last], no_negatives[0][first:last] - start] = -np.inf
        against = product if len(ranked) == len(rows) else product[ranked]
        above = np.count_nonzero(against > best, axis=1)
        level = np.count_nonzero(against >= best, axis=1)
        ahead[best_at] += above
        tied[best_at] += level - above
        near_above[ranked] += above - np.count_nonzero(against > best + NEAR, axis=1)
        near_below[ranked] += np.count_nonzero(against >= best - NEAR, axis=1) - level
        for query in deep:
            lower = slice(starts[query] + 1, starts[query + 1])
            _count_by_level(product[query], levels[lower], ahead[lower], tied[lower])
    return ahead, tied, near_above, near_below


def _by_row(judged: Judgements) -> tuple[Counts, Counts]:
    """The pairs that are no negatives, sorted by gallery row: (gallery rows, places in the block)."""
    rows = np.concatenate([judged.positive_rows, judged.ignored_rows])
    owners = np.concatenate([judged.positive_queries, judged.ignored_queries])
    order = np.argsort(rows, kind="stable")
    return rows[order], owners[order]


def _count_by_level(similarities: Similarities, levels: Similarities, ahead: Counts, tied: Counts) -> None:
    """Add to `ahead` and `tied` the similarities greater than and equal to each of the falling levels."""
    rising = levels[::-1]
    candidates = similarities[similarities >= rising[0]]
    below = np.searchsorted(rising, candidates, side="left")  # how many levels each candidate is greater than
    reached = np.searchsorted(rising, candidates, side="right")
    greater = np.cumsum(np.bincount(below, minlength=len(levels) + 1)[::-1])[:-1]
    not_less = np.cumsum(np.bincount(reached, minlength=len(levels) + 1)[::-1])[:-1]
    ahead += greater
    tied += not_less - greater
