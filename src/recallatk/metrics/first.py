"""Metrics of the first positive: hit rate and reciprocal rank."""

from __future__ import annotations

import functools
import math

import numpy as np

from recallatk.metrics.levels import Counts, Values
from recallatk.ranking import Ranking
from recallatk.types import Ties


def hit_at_k(ranking: Ranking, k: int, ties: Ties) -> Values:
    """recall@k or cmc@k, the hit rate: 1 if at least one positive is among the first k gallery items, else 0.

    The Recall@K of metric learning, place recognition and image-text retrieval; success@k of trec_eval; CMC rank-k of
    re-identification. K larger than what is left of the gallery means all of it.

    Ties: with a negatives ahead of the best positives, p positives and n negatives level with them, and r = k - a
    places left, the chance that a random order puts a positive into these places is 1 - C(n, r) / C(n + p, r)
    (McSherry and Najork, ECIR 2008), rounded once from the exact ratio. Pessimistic: a + n < k. Optimistic: a < k.
    """
    columns = (ranking.negatives_ahead, ranking.negatives_tied, ranking.positives_tied)
    return hits_of_counts(*map(ranking.at_best, columns), k=k, ties=ties)


def hits_of_counts(ahead: Counts, negatives: Counts, positives: Counts, *, k: int, ties: Ties) -> Values:
    """`hit_at_k` from what is kept of each query: for any k, without the ranking.

    Args:
        ahead: (n,) negatives ahead of the best positives.
        negatives: (n,) negatives level with them.
        positives: (n,) positives level with each other; 0 for a query without any, which is a miss.
        k: the cutoff.
        ties: the tie rule.
    """
    places = k - ahead
    if ties == "pessimistic":
        return ((places > negatives) & (positives > 0)).astype(np.float64)
    values = ((places > 0) & (positives > 0)).astype(np.float64)
    if ties == "expected":
        for query in np.flatnonzero((values > 0) & (places <= negatives)):
            values[query] = _chance_of_any(
                int(negatives[query] + positives[query]), int(positives[query]), int(places[query])
            )
    return values


def reciprocal_rank(ranking: Ranking, _k: int, ties: Ties) -> Values:
    """mrr: one over the rank of the first positive, over the whole gallery.

    Ties: with a negatives ahead and a tied group of T items with p positives, the first positive stands at rank a + j
    with probability C(T - j, p - 1) / C(T, p) (McSherry and Najork, ECIR 2008). Pessimistic: 1 / (a + n + 1) with n
    tied negatives. Optimistic: 1 / (a + 1). Source: trec_eval `recip_rank`.
    """
    ahead = ranking.at_best(ranking.negatives_ahead)
    negatives = ranking.at_best(ranking.negatives_tied)
    positives = ranking.at_best(ranking.positives_tied)
    behind = negatives if ties == "pessimistic" else np.zeros_like(negatives)
    values = np.where(positives > 0, 1.0 / (ahead + behind + 1), 0.0)
    if ties == "expected":
        for query in np.flatnonzero((positives > 0) & (negatives > 0)):
            values[query] = _mean_reciprocal(int(ahead[query]), int(negatives[query]), int(positives[query]))
    return values


def chance_of_hit(n_candidates: Counts, n_positives: Counts, k: int) -> Values:
    """recall@k of a random order of the gallery, for each query: 1 - C(N - P, k) / C(N, k)."""
    candidates, positives = n_candidates.tolist(), n_positives.tolist()
    return np.array([_chance_of_any(n, p, min(k, n)) for n, p in zip(candidates, positives, strict=True)])


@functools.lru_cache(maxsize=2**16)
def _chance_of_any(total: int, positives: int, places: int) -> float:
    """The chance that a random choice of `places` out of `total` items holds at least one of the positives."""
    if positives == 0 or places == 0:
        return 0.0
    if places > total - positives:
        return 1.0
    if places > positives:  # C(T - p, r) / C(T, r) = C(T - r, p) / C(T, p): take the smaller binomials
        places, positives = positives, places
    orders, misses = math.comb(total, places), math.comb(total - positives, places)
    return (orders - misses) / orders


@functools.lru_cache(maxsize=2**16)
def _mean_reciprocal(ahead: int, negatives: int, positives: int) -> float:
    """The mean of 1 / rank of the first positive over all orders of a tied group."""
    total = negatives + positives
    place = np.arange(1, negatives + 1)
    # P(j + 1) = P(j) (T - j - p + 1) / (T - j), from P(1) = p / T.
    steps = (total - place - positives + 1) / (total - place)
    chances = positives / total * np.cumprod(np.concatenate([[1.0], steps]))
    return math.fsum(chances / (ahead + np.arange(1, negatives + 2)))
