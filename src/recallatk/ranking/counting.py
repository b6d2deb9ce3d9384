"""Counting: the negatives ahead of and level with the positives, from any source of similarities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

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


def count_block(queries: slice, source: Source, judged: Judgements, *, depth: Depth) -> Ranking:
    """The ranking of a block of queries.

    Args:
        queries: which queries the block holds.
        source: their similarities.
        judged: their positives and what is ignored for them.
        depth: against how many of the positives of a query negatives are counted.
    """
    n = queries.stop - queries.start
    owners, similarity, grades = judged.positive_queries, _positive_similarities(source, judged), judged.positive_grades
    # Per query: nearest first; among equals the greatest grade, then the first gallery row.
    by_grade = () if grades is None else (-grades,)
    order = np.lexsort((judged.positive_rows, *by_grade, -similarity, owners))
    owners, similarity, positives = owners[order], similarity[order], judged.positive_rows[order]

    first_of_query = np.diff(owners, prepend=-1) > 0
    is_level = first_of_query.copy()
    is_level[1:] |= similarity[1:] != similarity[:-1]
    level_at = np.flatnonzero(is_level)
    positives_tied = np.diff(level_at, append=len(similarity))
    best_positive = np.full(n, -1, dtype=np.int64)
    best_positive[owners[first_of_query]] = positives[first_of_query]
    gains = ideal_gains = None
    if depth == "first":
        keep = first_of_query[level_at]
        level_at, positives_tied = level_at[keep], positives_tied[keep]
    elif grades is not None:
        gains = grades[order]
        ideal_gains = gains[np.lexsort((-gains, owners))]
    starts = np.searchsorted(owners[level_at], np.arange(n + 1))

    ahead, tied, near_above, near_below = _count_negatives(source, judged, starts, similarity[level_at])
    n_candidates = source.n_gallery - np.diff(judged.ignored_starts)
    return Ranking(
        queries=queries,
        starts=starts,
        similarity=similarity[level_at] * source.unit,
        negatives_ahead=ahead,
        negatives_tied=tied,
        positives_tied=positives_tied,
        best_positive=best_positive,
        near_above=near_above,
        near_below=near_below,
        n_positives=np.diff(judged.positive_starts),
        n_candidates=n_candidates,
        n_ranked=n_candidates,
        gains=gains,
        ideal_gains=ideal_gains,
    )


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


def _count_negatives(
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
    no_negatives = _by_row(judged)

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
            _count_by_level(part[query], levels[lower], ahead[lower], tied[lower])
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
