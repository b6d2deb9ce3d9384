"""Average precision in its several conventions; the name says which."""

from __future__ import annotations

import numpy as np

from recallatk.metrics.levels import Values, sum_over_positives
from recallatk.ranking import Ranking
from recallatk.types import Ties


def _precision(rank: Values, found: Values) -> Values:
    return found / rank


def _trapezoid(rank: Values, found: Values) -> Values:
    before = np.where(rank > 1, (found - 1) / np.maximum(rank - 1, 1), 1.0)
    return (before + found / rank) / 2


def average_precision(ranking: Ranking, k: int, ties: Ties) -> Values:
    """map, map@k: the sum of the precisions at the ranks of the positives (up to k), divided by R.

    The step (finite sum) form of AP: trec_eval `map` and `map_cut`, torchreid, fast-reid. The divisor is R, all
    positives of the query, also at a cutoff. Ties: the mean over all orders in closed form, see `sum_over_positives`.
    """
    cut = np.full(len(ranking), k) if k else None
    return sum_over_positives(ranking, _precision, ties, cut) / np.maximum(ranking.n_positives, 1)


def capped_average_precision(ranking: Ranking, k: int, ties: Ties) -> Values:
    """map_capped@k: as map@k, divided by min(k, R), the most positives that k places can hold.

    The mAP@100 of Google Landmarks (Weyand et al., CVPR 2020). Ties as for map.
    """
    cut = np.full(len(ranking), k)
    return sum_over_positives(ranking, _precision, ties, cut) / np.clip(ranking.n_positives, 1, k)


def trapezoid_average_precision(ranking: Ranking, k: int, ties: Ties) -> Values:
    """map_trapezoid, map_trapezoid@k: as map, with the average of the precisions just before and at each rank.

    The area under the precision-recall curve by the trapezoid rule, with precision 1 before the first item: the mAP of
    Oxford and Paris, of their revisited versions, and of the Market-1501 baseline; with a cutoff, mode `integrate` of
    mmpretrain. The divisor is R, also at a cutoff. Ties as for map.
    """
    cut = np.full(len(ranking), k) if k else None
    return sum_over_positives(ranking, _trapezoid, ties, cut) / np.maximum(ranking.n_positives, 1)


def average_precision_at_r(ranking: Ranking, _k: int, ties: Ties) -> Values:
    """map_r: the sum of the precisions at the positives within the first R, divided by R.

    MAP@R of Musgrave et al., "A Metric Learning Reality Check" (ECCV 2020). Ties as for map.
    """
    return sum_over_positives(ranking, _precision, ties, ranking.n_positives) / np.maximum(ranking.n_positives, 1)
