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
    ideal_owners = np.repeat(np.arange(len(ranking)), ranking.n_positives)
    ideal = _sums(ideal_owners, _places(ranking.n_positives), _or_ones(ranking.ideal_gains, ideal_owners), cut, ranking)
    levels = Levels.of(ranking)
    gains = _or_ones(ranking.gains, np.repeat(levels.owners, levels.positives)).astype(np.float64)
    starts = np.cumsum(levels.positives) - levels.positives
    behind = levels.negatives if ties == "pessimistic" else np.zeros_like(levels.negatives)
    places = _places(levels.positives)
    if ties == "pessimistic":  # the least grades of a level first
        gains = gains[np.repeat(2 * starts + levels.positives, levels.positives) - 1 - np.arange(len(gains))]
    if ties == "expected" and len(gains):
        mean = np.add.reduceat(gains, starts) / levels.size
        gains = np.repeat(mean, levels.positives)
    mixed = (levels.negatives > 0) & (ties == "expected")
    plain = np.repeat(~mixed, levels.positives)
    owners = np.repeat(levels.owners, levels.positives)[plain]
    ranks = (np.repeat(levels.before + behind, levels.positives) + places)[plain]
    gained = _sums(owners, ranks, gains[plain], cut, ranking)
    for level in np.flatnonzero(mixed).tolist():
        before = int(levels.before[level])
        count = max(0, min(int(levels.size[level]), cut - before))
        gained[levels.owners[level]] += mean[level] * np.sum(1 / np.log2(before + 1 + np.arange(1, count + 1)))
    return np.minimum(gained / np.where(ideal > 0, ideal, 1.0), 1.0)  # a sum in another order may err by a last digit


def _places(counts: Counts) -> Counts:
    """1, 2, ... for each run of so many."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + 1


def _or_ones(gains: Counts | None, like: Counts) -> Counts:
    return np.ones(len(like), np.int64) if gains is None else gains


def _sums(owners: Counts, ranks: Counts, gains: Counts | Values, cut: int, ranking: Ranking) -> Values:
    """The discounted gains up to the cutoff of each query."""
    terms = np.where(ranks <= cut, gains / np.log2(ranks + 1.0), 0.0)
    sums: Values = np.bincount(owners, weights=terms, minlength=len(ranking)).astype(np.float64)
    return sums
