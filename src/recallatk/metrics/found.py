"""Metrics that count the positives among the first k."""

from __future__ import annotations

import numpy as np

from recallatk.metrics.levels import Levels, Values, found_at
from recallatk.ranking import Ranking
from recallatk.types import Ties


def set_recall_at_k(ranking: Ranking, k: int, ties: Ties) -> Values:
    """set_recall@k: the share of a query's positives that are among the first k gallery items.

    The recall of information retrieval (trec_eval `recall`, torchmetrics `RetrievalRecall`); never called recall@k
    here. Ties as in `found_at`.
    """
    return found_at(ranking, k, ties) / np.maximum(ranking.n_positives, 1)


def capped_recall_at_k(ranking: Ranking, k: int, ties: Ties) -> Values:
    """capped_recall@k: the positives among the first k, divided by the most that k places can hold, min(k, R).

    Reaches 1 also for a query with more than k positives. Source: BEIR's capped recall (Thakur et al. 2021). Ties as
    in `found_at`.
    """
    return found_at(ranking, k, ties) / np.clip(ranking.n_positives, 1, k)


def precision_at_k(ranking: Ranking, k: int, ties: Ties) -> Values:
    """precision@k: the number of positives among the first k gallery items, divided by k.

    As trec_eval's `P`: the divisor is k also where fewer than k items are left. Ties as in `found_at`.
    """
    return found_at(ranking, k, ties) / k


def r_precision(ranking: Ranking, _k: int, ties: Ties) -> Values:
    """r_precision: precision at R, the number of positives of the query.

    Source: trec_eval `Rprec`; Musgrave et al. (ECCV 2020) for metric learning. Ties as in `found_at`.
    """
    return found_at(ranking, ranking.n_positives, ties) / np.maximum(ranking.n_positives, 1)


def revisited_precision_at_k(ranking: Ranking, k: int, ties: Ties) -> Values:
    """mp@k: precision at k, or at the rank of the last positive where that comes before k.

    The mP@k of the Revisited Oxford and Paris benchmarks (Radenovic et al., CVPR 2018). Ties: with a rank r of the
    last positive, the value is R / r for r <= k and found / k beyond, averaged over all orders of its tied group.
    """
    found = found_at(ranking, k, ties)
    values = found / k
    for query, ranks, chances in last_ranks(ranking, ties):
        early = ranks <= k
        share = chances[early].sum()
        n = ranking.n_positives[query]
        # Where the last positive comes by rank k all of them are found; what is left of `found` belongs to the rest.
        values[query] = np.sum(chances[early] * n / ranks[early]) + (found[query] - n * share) / k
    return values


def inverse_negative_penalty(ranking: Ranking, _k: int, ties: Ties) -> Values:
    """minp: R divided by the rank of the last positive (mINP once averaged).

    How far one must look to see every positive. Source: Ye et al., "Deep Learning for Person Re-identification"
    (TPAMI 2021). 0 where a ranked list does not hold all of them. Ties: the last of p positives in a tied group of T
    items stands at place j with probability C(j - 1, p - 1) / C(T, p).
    """
    values = np.zeros(len(ranking))
    for query, ranks, chances in last_ranks(ranking, ties):
        values[query] = np.sum(chances * ranking.n_positives[query] / ranks)
    return values


def last_ranks(ranking: Ranking, ties: Ties) -> list[tuple[int, Values, Values]]:
    """For each query all of whose positives are ranked: the possible ranks of the last one, and their chances."""
    levels = Levels.of(ranking)
    ranked = np.bincount(levels.owners, weights=levels.positives, minlength=len(ranking))
    complete = (ranked == ranking.n_positives) & (ranking.n_positives > 0)
    found = []
    for query in np.flatnonzero(complete).tolist():
        last = ranking.starts[query + 1] - 1
        before, positives = int(levels.before[last]), int(levels.positives[last])
        size = positives + int(levels.negatives[last])
        if ties == "expected" and positives < size:
            place = np.arange(size, positives - 1, -1, dtype=np.float64)
            # P(j - 1) = P(j) (j - p) / (j - 1), from P(T) = p / T.
            steps = (place[:-1] - positives) / (place[:-1] - 1)
            chances = positives / size * np.cumprod(np.concatenate([[1.0], steps]))
            found.append((query, before + place, chances))
        else:
            rank = before + (size if ties == "pessimistic" else positives)
            found.append((query, np.array([float(rank)]), np.ones(1)))
    return found
