"""The metrics: each a fold over a `Ranking` block to one value a query, and the text that names them."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from recallatk.ranking import Depth, Ranking
from recallatk.types import Average, ChoiceError, Label, Ties

Values = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Metric:
    """A row of METRICS.

    Attributes:
        compute: ranking block, cutoff k and tie rule -> one value in 0..1 a query; 0 for a query without a positive.
        depth: how deep the ranking must be.
        needs_k: whether the name is followed by a cutoff, as in `recall@10`.
        summary: one line for lists.
    """

    compute: Callable[[Ranking, int, Ties], Values]
    depth: Depth
    needs_k: bool
    summary: str


@dataclasses.dataclass(frozen=True)
class MetricName:
    """A metric with its cutoff; its text is the same in Python, on the command line and in the record.

    >>> str(parse_metric("set_recall@5"))
    'set_recall@5'
    """

    name: str
    k: int | None = None

    def __str__(self) -> str:
        return self.name if self.k is None else f"{self.name}@{self.k}"

    @property
    def metric(self) -> Metric:
        """The row of METRICS."""
        return METRICS[self.name]

    def values(self, ranking: Ranking, *, ties: Ties) -> Values:
        """One value a query of the block."""
        return self.metric.compute(ranking, self.k or 0, ties)


def parse_metric(text: str) -> MetricName:
    """Read a metric such as `recall@10` or `mrr`.

    Raises:
        ChoiceError: no such metric, or a cutoff that is missing, unwanted or not a positive whole number.
    """
    name, at, cutoff = text.partition("@")
    if name not in METRICS:
        near = difflib.get_close_matches(name, METRICS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ChoiceError(f"there is no metric {name!r}; {hint}the metrics are: {', '.join(METRICS)}")
    if not METRICS[name].needs_k:
        if at:
            raise ChoiceError(f"{text!r}: {name} takes no cutoff; write {name!r}")
        return MetricName(name)
    if not (cutoff.isascii() and cutoff.isdigit() and int(cutoff) > 0):
        raise ChoiceError(f"{text!r}: {name} needs a cutoff k of at least 1, as in '{name}@10'")
    return MetricName(name, int(cutoff))


def hit_at_k(ranking: Ranking, k: int, ties: Ties) -> Values:
    """recall@k, the hit rate: 1 if at least one positive is among the first k gallery items, else 0.

    The Recall@K of metric learning, place recognition and image-text retrieval; success@k of trec_eval; CMC rank-k of
    re-identification. K larger than what is left of the gallery means all of it.

    Ties: with a negatives ahead of the best positives, p positives and n negatives level with them, and r = k - a
    places left, the chance that a random order puts a positive into these places is 1 - C(n, r) / C(n + p, r)
    (McSherry and Najork, ECIR 2008), rounded once from the exact ratio. Pessimistic: a + n < k. Optimistic: a < k.
    """
    ahead = ranking.at_best(ranking.negatives_ahead)
    negatives = ranking.at_best(ranking.negatives_tied)
    positives = ranking.at_best(ranking.positives_tied)
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


def set_recall_at_k(ranking: Ranking, k: int, ties: Ties) -> Values:
    """set_recall@k: the share of a query's positives that are among the first k gallery items.

    The recall of information retrieval (trec_eval `recall`, torchmetrics `RetrievalRecall`); never called recall@k
    here. Ties: a tied group of n negatives and p positives of which r items are taken holds r p / (n + p) positives
    in the mean over all orders, max(0, r - n) with the negatives first, min(r, p) with the positives first.
    """
    return _found_at_k(ranking, k, ties) / np.maximum(ranking.n_positives, 1)


def precision_at_k(ranking: Ranking, k: int, ties: Ties) -> Values:
    """precision@k: the number of positives among the first k gallery items, divided by k.

    As trec_eval's `P`: the divisor is k also where fewer than k items are left. Ties as in `set_recall_at_k`.
    """
    return _found_at_k(ranking, k, ties) / k


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


METRICS: dict[str, Metric] = {
    "recall": Metric(hit_at_k, "first", True, "hit rate: at least one positive among the first k"),
    "set_recall": Metric(set_recall_at_k, "all", True, "share of the positives that are among the first k"),
    "precision": Metric(precision_at_k, "all", True, "positives among the first k, divided by k"),
    "mrr": Metric(reciprocal_rank, "first", False, "one over the rank of the first positive"),
}


def chance_of_hit(n_candidates: Counts, n_positives: Counts, k: int) -> Values:
    """recall@k of a random order of the gallery, for each query: 1 - C(N - P, k) / C(N, k)."""
    candidates, positives = n_candidates.tolist(), n_positives.tolist()
    return np.array([_chance_of_any(n, p, min(k, n)) for n, p in zip(candidates, positives, strict=True)])


def mean_value(values: Sequence[float] | Values, labels: Sequence[Label], *, average: Average) -> float:
    """The mean over queries (micro), or the mean of the per-label means (macro).

    Args:
        values: one value for each evaluated query, at least one.
        labels: the label of each of them; a query with several labels counts for each, one without
            any for none.
        average: micro or macro.
    """
    if average == "micro":
        return math.fsum(values) / len(values)
    by_label: dict[str, list[float]] = {}
    for value, label in zip(values, labels, strict=True):
        for one in _each(label):
            by_label.setdefault(one, []).append(float(value))
    return math.fsum(math.fsum(group) / len(group) for group in by_label.values()) / len(by_label)


def _each(label: Label) -> tuple[str, ...]:
    return (label,) if isinstance(label, str) else label


def _found_at_k(ranking: Ranking, k: int, ties: Ties) -> Values:
    """How many positives are among the first k, for each query; needs depth "all"."""
    owners = np.repeat(np.arange(len(ranking)), np.diff(ranking.starts))
    negatives, positives = ranking.negatives_tied, ranking.positives_tied
    ahead_of = np.concatenate([[0], np.cumsum(positives)])
    positives_ahead = ahead_of[:-1] - ahead_of[ranking.starts[:-1]][owners]
    places = np.clip(k - ranking.negatives_ahead - positives_ahead, 0, negatives + positives)
    if ties == "pessimistic":
        found = np.maximum(places - negatives, 0).astype(np.float64)
    elif ties == "optimistic":
        found = np.minimum(places, positives).astype(np.float64)
    else:
        # At most one level of a query is cut by k; the others are whole numbers, so this is rounded once.
        found = places * positives / (negatives + positives)
    found_by_query: Values = np.bincount(owners, weights=found, minlength=len(ranking)).astype(np.float64)
    return found_by_query


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
