"""Similarities that somebody else computed: a matrix of scores, or ranked lists."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recallatk.ranking.blocks import Block, query_blocks
from recallatk.ranking.counting import count_by_level, find_levels, make_ranking
from recallatk.ranking.counts import Counts, Depth, Ranking, Similarities
from recallatk.relevance import Judgements, Relevance
from recallatk.types import RecallatkError, release_pages

LARGEST_WHOLE = 2**53
"""Up to here float64 holds every whole number."""

WIDE = 2048
CACHED = 2**16
"""Scores that are compared together where rows are shorter than WIDE: what the processor's cache holds."""

Scores: TypeAlias = npt.NDArray[Any]
"""In float32 or float64, whichever holds what was given exactly."""


@dataclasses.dataclass(frozen=True, eq=False)
class RankedRows:
    """Ranked lists with gallery items as row numbers: the list of the i-th query is `starts[i]:starts[i + 1]`.

    Attributes:
        starts: (n_queries + 1,).
        rows: gallery rows, each at most once a query, in any order.
        scores: higher is nearer; equal scores are ties.
    """

    starts: Counts
    rows: Counts
    scores: Similarities

    def part(self, queries: slice) -> RankedRows:
        """The lists of some of the queries."""
        starts = self.starts[queries.start : queries.stop + 1]
        listed = slice(starts[0], starts[-1])
        return RankedRows(starts - starts[0], self.rows[listed], self.scores[listed])


def check_sizes(scores: npt.NDArray[np.number] | RankedRows, n_queries: int, n_gallery: int) -> None:
    """Refuse scores that are not of so many queries and gallery items.

    Raises:
        RecallatkError: they are of others.
    """
    if isinstance(scores, RankedRows):
        if len(scores.starts) - 1 != n_queries:
            raise RecallatkError(f"there are {len(scores.starts) - 1} ranked lists for {n_queries} queries")
    elif scores.shape != (n_queries, n_gallery):
        raise RecallatkError(
            f"scores have the shape {scores.shape}; {n_queries} queries and {n_gallery} gallery items need "
            f"({n_queries}, {n_gallery})"
        )


def rank_matrix(
    scores: npt.NDArray[np.number],
    relevance: Relevance,
    *,
    depth: Depth,
    memory: int,
    block: Block | None = None,
    first: int = 0,
) -> Iterator[Ranking]:
    """Rank by a matrix of scores; see `recallatk.ranking.rank_scores`. A message counts rows from `first` on."""
    size = block or Block.within(memory, 1)
    a_row = 32 * max(relevance.n_gallery, 1)  # as float64, and what comparing them takes
    size = dataclasses.replace(size, queries=max(1, min(size.queries, memory // 2 // a_row)))
    for queries in query_blocks(relevance.pairs, size):
        given = np.asarray(scores[queries])
        if given.dtype.kind in "iu" and np.any((given > LARGEST_WHOLE) | (given < -LARGEST_WHOLE)):
            raise RecallatkError("scores: whole numbers beyond 2**53 would be tied as float64; scale them down")
        single = given.dtype in (np.float16, np.float32)
        rows = given.astype(np.float32 if single else np.float64, copy=False)  # exact, so comparisons are too
        yield _rank_scored(queries, rows, relevance.judge(queries), depth, first)
        release_pages(scores)


def _rank_scored(queries: slice, rows: Scores, judged: Judgements, depth: Depth, first: int) -> Ranking:
    similarity = rows[judged.positive_queries, judged.positive_rows].astype(np.float64)
    levels = find_levels(len(rows), judged, similarity, depth=depth)
    ahead, tied = np.zeros(len(levels.similarity), np.int64), np.zeros(len(levels.similarity), np.int64)
    has_level = np.flatnonzero(np.diff(levels.starts))
    best = levels.starts[has_level]
    above, level = _count_best(rows, has_level, levels.similarity[best].astype(rows.dtype))
    # NaN is neither above nor below, so a row is sound if nothing but its positives is level: most rows need no search.
    doubtful = np.ones(len(rows), np.bool_)
    doubtful[has_level] = level != levels.positives_tied[best]
    doubtful[judged.positive_queries[np.isnan(similarity)]] = True
    bad = np.flatnonzero(doubtful)
    bad = bad[np.isnan(rows[bad]).any(axis=1)]
    if len(bad):
        raise RecallatkError(f"scores: row {first + queries.start + bad[0]} holds NaN; every score must be a number")
    # What was counted are all items: take away the positives, none of which is above, and what is ignored.
    threshold = np.full(len(rows), np.inf)
    threshold[has_level] = levels.similarity[best]
    ignored = rows[judged.ignored_queries, judged.ignored_rows]
    against = threshold[judged.ignored_queries]
    ignored_above = np.bincount(judged.ignored_queries[ignored > against], minlength=len(rows))[has_level]
    ignored_level = np.bincount(judged.ignored_queries[ignored == against], minlength=len(rows))[has_level]
    ahead[best] = above - ignored_above
    tied[best] = level - levels.positives_tied[best] - ignored_level
    for query in np.flatnonzero(np.diff(levels.starts) > 1).tolist():  # with levels below the best
        negatives = np.ones(rows.shape[1], np.bool_)
        for starts, places in (
            (judged.positive_starts, judged.positive_rows),
            (judged.ignored_starts, judged.ignored_rows),
        ):
            negatives[places[starts[query] : starts[query + 1]]] = False
        lower = slice(levels.starts[query] + 1, levels.starts[query + 1])
        count_by_level(rows[query, negatives], levels.similarity[lower], ahead[lower], tied[lower])
    nothing_near = np.zeros(len(rows), np.int64)  # scores were not rounded by us
    counted = (ahead, tied, nothing_near, nothing_near)
    return make_ranking(queries, levels, counted, judged, n_gallery=rows.shape[1], unit=1.0)


def _count_best(rows: Scores, which: Counts, best: Scores) -> tuple[Counts, Counts]:
    """For these rows, how many scores are above the row's best positive, and how many are not below it either."""
    above, below = np.empty(len(which), np.int64), np.empty(len(which), np.int64)
    n_gallery = rows.shape[1]
    if n_gallery >= WIDE:  # a row alone stays in the fast cache and is counted twice as fast
        found = np.empty(n_gallery, np.bool_)
        for place, (row, threshold) in enumerate(zip(which, best, strict=True)):
            above[place] = np.count_nonzero(np.greater(rows[row], threshold, out=found))
            below[place] = np.count_nonzero(np.less(rows[row], threshold, out=found))
        return above, n_gallery - above - below
    many = CACHED // max(n_gallery, 1)
    for start in range(0, len(which), many):
        part, thresholds = rows[which[start : start + many]], best[start : start + many, None]
        above[start : start + many] = np.count_nonzero(part > thresholds, axis=1)
        below[start : start + many] = np.count_nonzero(part < thresholds, axis=1)
    return above, n_gallery - above - below


def rank_lists(
    lists: RankedRows, relevance: Relevance, *, depth: Depth, memory: int, block: Block | None = None
) -> Iterator[Ranking]:
    """Rank by lists; see `recallatk.ranking.rank_scores`.

    Levels are those of the positives that a list holds. A positive that was not returned counts in `n_positives` and
    nowhere else, so it is never found at any k, as in trec_eval.
    """
    size = block or Block.within(memory, 1)
    for queries in query_blocks(relevance.pairs + np.diff(lists.starts), size):
        yield _rank_listed(queries, lists, relevance.judge(queries), relevance.n_gallery, depth)


def _rank_listed(queries: slice, lists: RankedRows, judged: Judgements, n_gallery: int, depth: Depth) -> Ranking:
    n = queries.stop - queries.start
    listed = slice(lists.starts[queries.start], lists.starts[queries.stop])
    owners = np.repeat(np.arange(n), np.diff(lists.starts[queries.start : queries.stop + 1]))
    rows, scores = lists.rows[listed], lists.scores[listed]
    keys = owners * n_gallery + rows
    kept = ~np.isin(keys, judged.ignored_queries * n_gallery + judged.ignored_rows)
    owners, rows, scores, keys = owners[kept], rows[kept], scores[kept], keys[kept]
    positive_keys = judged.positive_queries * n_gallery + judged.positive_rows  # ascending
    at = np.searchsorted(positive_keys, keys)
    positive = np.zeros(len(keys), dtype=np.bool_)
    inside = at < len(positive_keys)
    positive[inside] = positive_keys[at[inside]] == keys[inside]
    all_grades = judged.positive_grades
    grades = np.zeros(len(keys), np.int64)
    if all_grades is not None:
        grades[positive] = all_grades[at[positive]]

    order = np.lexsort((-grades, ~positive, -scores, owners))
    owners, rows, scores = owners[order], rows[order], scores[order]
    positive, grades = positive[order], grades[order]
    first_of_query = np.diff(owners, prepend=-1) > 0
    begins_tie = first_of_query.copy()
    begins_tie[1:] |= scores[1:] != scores[:-1]
    tie_at = np.flatnonzero(begins_tie)
    positives_tied = np.add.reduceat(positive, tie_at, dtype=np.int64) if len(tie_at) else np.zeros(0, np.int64)
    size = np.diff(tie_at, append=len(scores))
    negatives_tied = size - positives_tied
    tie_owner = owners[tie_at]
    negatives_before = np.cumsum(negatives_tied) - negatives_tied
    first_tie = np.searchsorted(tie_owner, tie_owner)  # the first tied group of the same query
    ahead = negatives_before - negatives_before[first_tie]

    level = positives_tied > 0
    first_level = np.zeros(len(tie_at), dtype=np.bool_)
    first_level[np.flatnonzero(level)[np.diff(tie_owner[level], prepend=-1) > 0]] = True
    if depth == "first":
        level = first_level
    best_positive = np.full(n, -1, dtype=np.int64)
    first_rows = np.minimum.reduceat(np.where(positive, rows, n_gallery), tie_at) if len(tie_at) else rows
    best_positive[tie_owner[first_level]] = first_rows[first_level]
    gains = ideal_gains = None
    if depth == "all" and all_grades is not None:
        gains = grades[positive]
        ideal_gains = all_grades[np.lexsort((-all_grades, judged.positive_queries))]
    return Ranking(
        queries=queries,
        starts=np.searchsorted(tie_owner[level], np.arange(n + 1)),
        similarity=scores[tie_at[level]],
        negatives_ahead=ahead[level],
        negatives_tied=negatives_tied[level],
        positives_tied=positives_tied[level],
        best_positive=best_positive,
        near_above=np.zeros(n, np.int64),
        near_below=np.zeros(n, np.int64),
        n_positives=np.diff(judged.positive_starts),
        n_candidates=n_gallery - np.diff(judged.ignored_starts),
        n_ranked=np.bincount(owners, minlength=n),
        gains=gains,
        ideal_gains=ideal_gains,
    )
