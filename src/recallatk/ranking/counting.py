"""Counting: the negatives ahead of and level with the positives, from any source of similarities."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from recallatk.ranking.counts import Counts, Depth, Ranking, Similarities
from recallatk.relevance import Judgements


class Source(Protocol):
    """The similarities of a block of queries, a part of the gallery at a time; equal numbers are ties."""

    @property
    def n_gallery(self) -> int:
        """The number of gallery rows."""

    @property
    def tile(self) -> int:
        """How many gallery rows are looked at together."""

    @property
    def unit(self) -> float:
        """What a similarity of 1 is worth in the ranking; an exact power of two."""

    @property
    def near(self) -> int:
        """Similarities this close, in the source's own numbers, are near-ties; 0 where nothing was rounded."""

    def columns(self, rows: Counts) -> Similarities:
        """The similarities to these gallery rows, (queries, rows)."""

    def tiles(self) -> Iterator[tuple[int, Similarities]]:
        """The whole gallery in parts: the first row and (queries, rows) similarities, which may be written to."""


@dataclasses.dataclass(frozen=True)
class LevelSet:
    """The levels of a block of queries, before anything is counted against them; see `Ranking` for the columns."""

    starts: Counts
    similarity: Similarities
    positives_tied: Counts
    best_positive: Counts
    gains: Counts | None
    ideal_gains: Counts | None

    def part(self, queries: slice) -> LevelSet:
        """The levels of some of the queries, without gains."""
        starts = self.starts[queries.start : queries.stop + 1]
        levels = slice(starts[0], starts[-1])
        similarity, tied = self.similarity[levels], self.positives_tied[levels]
        return LevelSet(starts - starts[0], similarity, tied, self.best_positive[queries], None, None)


def find_levels(n: int, judged: Judgements, similarity: Similarities, *, depth: Depth) -> LevelSet:
    """The distinct similarities of the positives of each query.

    Args:
        n: the number of queries in the block.
        judged: their positives.
        similarity: that of every positive, in the order of `judged`.
        depth: only the best level of each query, or all.
    """
    owners, grades = judged.positive_queries, judged.positive_grades
    if grades is None:  # per query, nearest first: two sorts of one number each are faster than lexsort
        rank = np.empty(len(similarity), np.int64)
        rank[np.argsort(-similarity)] = np.arange(len(similarity))
        order = np.argsort(owners * len(similarity) + rank)
    else:  # among equals the greatest grade first
        order = np.lexsort((-grades, -similarity, owners))
    owners, similarity, positives = owners[order], similarity[order], judged.positive_rows[order]
    first_of_query = np.diff(owners, prepend=-1) > 0
    is_level = first_of_query.copy()
    is_level[1:] |= similarity[1:] != similarity[:-1]
    level_at = np.flatnonzero(is_level)
    positives_tied = np.diff(level_at, append=len(similarity))
    best_positive = np.full(n, -1, dtype=np.int64)
    best_level = first_of_query[level_at]
    first_rows = np.minimum.reduceat(positives, level_at) if len(level_at) else positives
    best_positive[owners[level_at[best_level]]] = first_rows[best_level]
    gains = ideal_gains = None
    if depth == "first":
        level_at, positives_tied = level_at[best_level], positives_tied[best_level]
    elif grades is not None:
        gains = grades[order]
        ideal_gains = gains[np.lexsort((-gains, owners))]
    starts = np.searchsorted(owners[level_at], np.arange(n + 1))
    return LevelSet(starts, similarity[level_at], positives_tied, best_positive, gains, ideal_gains)


def make_ranking(
    queries: slice,
    levels: LevelSet,
    counted: tuple[Counts, Counts, Counts, Counts],
    judged: Judgements,
    *,
    n_gallery: int,
    unit: float,
    limit: Counts | None = None,
) -> Ranking:
    """Levels and what was counted against them, without the levels that begin beyond the limit."""
    ahead, tied, near_above, near_below = counted
    starts, similarity, positives_tied, gains = levels.starts, levels.similarity, levels.positives_tied, levels.gains
    if limit is not None:
        kept, starts = _within(limit, starts, ahead, positives_tied)
        gains = None if gains is None else gains[np.repeat(kept, positives_tied)]
        similarity, positives_tied = similarity[kept], positives_tied[kept]
        ahead, tied = ahead[kept], tied[kept]
    n_candidates = n_gallery - np.diff(judged.ignored_starts)
    return Ranking(
        queries=queries,
        starts=starts,
        similarity=similarity * unit,
        negatives_ahead=ahead,
        negatives_tied=tied,
        positives_tied=positives_tied,
        best_positive=levels.best_positive,
        near_above=near_above,
        near_below=near_below,
        n_positives=np.diff(judged.positive_starts),
        n_candidates=n_candidates,
        n_ranked=n_candidates,
        gains=gains,
        ideal_gains=levels.ideal_gains,
    )


def levels_within(limit: Counts, starts: Counts, ahead: Counts, positives_tied: Counts) -> npt.NDArray[np.bool_]:
    """Which levels begin before the limit of their query; the best level of each is always kept."""
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(positives_tied)])
    positives_before = before[:-1] - before[starts[:-1]][owners]
    kept: npt.NDArray[np.bool_] = ahead + positives_before < limit[owners]
    kept[starts[:-1][np.diff(starts) > 0]] = True
    return kept


def _within(
    limit: Counts, starts: Counts, ahead: Counts, positives_tied: Counts
) -> tuple[npt.NDArray[np.bool_], Counts]:
    kept = levels_within(limit, starts, ahead, positives_tied)
    return kept, np.concatenate([np.zeros(1, np.int64), np.cumsum(kept, dtype=np.int64)])[starts]


def count_block(
    queries: slice, source: Source, judged: Judgements, *, depth: Depth, limit: Counts | None = None
) -> Ranking:
    """The ranking of a block of queries.

    Args:
        queries: which queries the block holds.
        source: their similarities.
        judged: their positives and what is ignored for them.
        depth: against how many of the positives of a query negatives are counted.
        limit: (b,) levels that begin at this rank or later are left out; None: none are.
    """
    similarity = _positive_similarities(source, judged)
    levels = find_levels(queries.stop - queries.start, judged, similarity, depth=depth)
    counted = count_negatives(source, judged, levels.starts, levels.similarity)
    return make_ranking(queries, levels, counted, judged, n_gallery=source.n_gallery, unit=source.unit, limit=limit)


def _positive_similarities(source: Source, judged: Judgements) -> Similarities:
    """The similarity of every positive pair, from those gallery rows that are anybody's positive."""
    columns, place = np.unique(judged.positive_rows, return_inverse=True)
    owners = judged.positive_queries
    similarity = np.empty(len(place))
    for start in range(0, len(columns), source.tile):
        part = source.columns(columns[start : start + source.tile])
        here = np.flatnonzero((place >= start) & (place < start + source.tile))
        similarity[here] = part[owners[here], place[here] - start]
    return similarity


def count_negatives(
    source: Source, judged: Judgements, starts: Counts, levels: Similarities
) -> tuple[Counts, Counts, Counts, Counts]:
    """Stream the gallery once: negatives ahead of and level with each level, and near each query's best level."""
    n = len(starts) - 1
    ahead, tied = np.zeros(len(levels), np.int64), np.zeros(len(levels), np.int64)
    near_above, near_below = np.zeros(n, np.int64), np.zeros(n, np.int64)
    ranked = np.flatnonzero(np.diff(starts))  # queries with a positive
    if not len(ranked):
        return ahead, tied, near_above, near_below
    best_at = starts[ranked]
    best = levels[best_at][:, None]
    deep = np.flatnonzero(np.diff(starts) > 1)  # queries with further levels below the best
    no_negatives = pairs_by_row(judged)

    for start, part in source.tiles():
        first, last = np.searchsorted(no_negatives[0], [start, start + part.shape[1]])
        part[no_negatives[1][first:last], no_negatives[0][first:last] - start] = np.nan  # no comparison holds
        against = part if len(ranked) == n else part[ranked]
        above = np.count_nonzero(against > best, axis=1)
        level = np.count_nonzero(against >= best, axis=1)
        ahead[best_at] += above
        tied[best_at] += level - above
        if source.near:
            near_above[ranked] += above - np.count_nonzero(against > best + source.near, axis=1)
            near_below[ranked] += np.count_nonzero(against >= best - source.near, axis=1) - level
        for query in deep:
            lower = slice(starts[query] + 1, starts[query + 1])
            count_by_level(part[query], levels[lower], ahead[lower], tied[lower])
    return ahead, tied, near_above, near_below


def pairs_by_row(judged: Judgements) -> tuple[Counts, Counts]:
    """The pairs that are no negatives, sorted by gallery row: (gallery rows, places in the block)."""
    rows = np.concatenate([judged.positive_rows, judged.ignored_rows])
    owners = np.concatenate([judged.positive_queries, judged.ignored_queries])
    n = len(judged.positive_starts) - 1
    sorted_rows, sorted_owners = np.divmod(np.sort(rows * n + owners), max(n, 1))  # faster than argsort
    return sorted_rows, sorted_owners


def count_by_level(similarities: Similarities, levels: Similarities, ahead: Counts, tied: Counts) -> None:
    """Add to `ahead` and `tied` the similarities greater than and equal to each of the falling levels.

    The similarities are sorted and the levels looked up, as there are as many levels as positives: the other way round,
    each similarity would be looked up in an order that no cache likes.
    """
    levels = levels.astype(similarities.dtype)  # exact: they are similarities of the same source
    candidates = np.sort(similarities[similarities >= levels[-1]])  # without NaN
    not_less = len(candidates) - np.searchsorted(candidates, levels, side="left")
    greater = len(candidates) - np.searchsorted(candidates, levels, side="right")
    ahead += greater
    tied += not_less - greater
