"""Metrics of graded relevance: discounted cumulative gain."""

from __future__ import annotations

import numpy as np

from recallatk.metrics.levels import Counts, Levels, Values
from recallatk.ranking import Ranking
from recallatk.types import Ties


def ndcg(ranking: Ranking, k: int, ties: Ties) -> Values:
    """ndcg, ndcg@k: the sum of grade / log2(rank + 1) over the positives (up to k), divided by that of the best order.

    Gains are the grades themselves (linear), 1 without qrels, and 0 for what is not positive: trec_eval `ndcg` and
    `ndcg_cut` where `min_grade` is 1. Ties: every place of a tied group has the group's mean gain (McSherry and
    Najork, ECIR 2008); with negatives first and the least grades first, or with the greatest grades first.
    """
    cut = k or np.iinfo(np.int64).max
    ideal = _ideal(ranking)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(ranking.n_positives)])
    values = np.zeros(len(ranking))
    levels = Levels.of(ranking)
    gain_starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(levels.positives)])
    gains = np.ones(int(gain_starts[-1]), np.int64) if ranking.gains is None else ranking.gains
    for query in np.flatnonzero(np.diff(ranking.starts)).tolist():
        gained = sum(
            _level_gain(levels, level, gains[gain_starts[level] : gain_starts[level + 1]], cut, ties)
            for level in range(ranking.starts[query], ranking.starts[query + 1])
        )
        values[query] = gained / _discounted(ideal[starts[query] : starts[query + 1]], 0, cut)
    return values


def _ideal(ranking: Ranking) -> Counts:
    if ranking.ideal_gains is not None:
        return ranking.ideal_gains
    return np.ones(int(ranking.n_positives.sum()), np.int64)


def _level_gain(levels: Levels, level: int, gains: Counts, cut: int, ties: Ties) -> float:
    before, negatives, size = int(levels.before[level]), int(levels.negatives[level]), int(levels.size[level])
    if ties == "pessimistic":
        return _discounted(gains[::-1], before + negatives, cut)
    if ties == "optimistic" or size == 1:
        return _discounted(gains, before, cut)
    return _discounted(np.full(size, gains.sum() / size), before, cut)


def _discounted(gains: Counts | Values, before: int, cut: int) -> float:
    places = min(len(gains), max(cut - before, 0))
    return float(np.sum(gains[:places] / np.log2(np.arange(before + 2, before + places + 2))))
