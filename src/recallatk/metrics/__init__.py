"""The metrics: each a fold over a `Ranking` block to one value a query, and the text that names them."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from recallatk.metrics.average_precision import (
    average_precision,
    average_precision_at_r,
    capped_average_precision,
    trapezoid_average_precision,
)
from recallatk.metrics.first import chance_of_hit, hit_at_k, hits_of_counts, reciprocal_rank
from recallatk.metrics.found import (
    capped_recall_at_k,
    inverse_negative_penalty,
    precision_at_k,
    r_precision,
    revisited_precision_at_k,
    set_recall_at_k,
)
from recallatk.metrics.gain import ndcg
from recallatk.metrics.levels import Counts, Values
from recallatk.ranking import Depth, Ranking
from recallatk.types import LARGEST_K, Average, ChoiceError, Label, Ties, each_label

__all__ = ["METRICS", "Metric", "MetricName", "Values", "chance_of_hit", "hits_of_counts", "mean_value", "parse_metric"]


@dataclasses.dataclass(frozen=True)
class Metric:
    """A row of METRICS.

    Attributes:
        compute: ranking block, cutoff k (0: none) and tie rule -> one value in 0..1 a query; 0 for a query without a
            positive.
        depth: how deep the ranking must be.
        reach: how deep a rank can matter: "k" to the cutoff (everywhere without one), "r" to the number of positives,
            "all" everywhere. Levels beyond are not counted.
        cutoff: whether a cutoff follows the name, as in `recall@10`: always, never, or maybe (none: no cutoff).
        summary: one line for lists.
    """

    compute: Callable[[Ranking, int, Ties], Values]
    depth: Depth
    reach: Literal["k", "r", "all"]
    cutoff: Literal["always", "maybe", "never"]
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

    @property
    def reaches_everywhere(self) -> bool:
        """Whether every rank of the gallery can change this metric."""
        return self.metric.reach == "all" or (self.metric.reach == "k" and self.k is None)

    def reach(self, n_positives: Counts) -> Counts:
        """The rank from which on nothing changes this metric, for each query."""
        if self.metric.reach == "r":
            return n_positives
        deepest = np.iinfo(np.int64).max if self.reaches_everywhere or self.k is None else self.k
        return np.full(len(n_positives), deepest)

    def values(self, ranking: Ranking, *, ties: Ties) -> Values:
        """One value a query of the block."""
        return self.metric.compute(ranking, self.k or 0, ties)


OTHER_NAMES = {
    "map@r": "map_r",
    "mapr": "map_r",
    "precision@r": "r_precision",
    "rprec": "r_precision",
    "hit": "recall",
    "hit_rate": "recall",
    "hits": "recall",
    "p": "precision",
    "rank": "cmc",
    "success": "recall",
    "top": "recall",
}
"""Names of other tools -> ours, for what to say about them; they are not accepted, so that one number has one name."""


def parse_metric(text: str) -> MetricName:
    """Read a metric such as `recall@10` or `mrr`.

    Raises:
        ChoiceError: no such metric, or a cutoff that is missing, unwanted or not a positive whole number.
    """
    name, at, cutoff = text.partition("@")
    if text.lower() in OTHER_NAMES:
        raise ChoiceError(f"{text!r}: the metric is called {OTHER_NAMES[text.lower()]!r} here")
    if name not in METRICS:
        known = OTHER_NAMES.get(name.lower())
        near = [known] if known else difflib.get_close_matches(name.lower(), METRICS, n=1)
        meant = "".join(other if METRICS[other].cutoff == "never" else other + at + cutoff for other in near)
        hint = f"did you mean {meant!r}? " if near else ""
        raise ChoiceError(f"there is no metric {name!r}; {hint}the metrics are: {', '.join(METRICS)}")
    wanted = METRICS[name].cutoff
    if not at and wanted != "always":
        return MetricName(name)
    if wanted == "never":
        raise ChoiceError(f"{text!r}: {name} takes no cutoff; write {name!r}")
    digits = cutoff.lstrip("0")
    if not re.fullmatch("[1-9][0-9]*", digits):
        raise ChoiceError(f"{text!r}: {name} needs a cutoff k of at least 1, as in '{name}@10'")
    if len(digits) > len(str(LARGEST_K)) or int(digits) > LARGEST_K:
        raise ChoiceError(f"{text!r} is too large; the largest cutoff is {LARGEST_K}")
    return MetricName(name, int(digits))


METRICS: dict[str, Metric] = {
    "recall": Metric(hit_at_k, "first", "k", "always", "hit rate: at least one positive among the first k"),
    "cmc": Metric(hit_at_k, "first", "k", "always", "recall@k under its name in re-identification (rank-k)"),
    "set_recall": Metric(set_recall_at_k, "all", "k", "always", "share of the positives that are among the first k"),
    "capped_recall": Metric(capped_recall_at_k, "all", "k", "always", "positives among the first k, by min(k, R)"),
    "precision": Metric(precision_at_k, "all", "k", "always", "positives among the first k, divided by k"),
    "r_precision": Metric(r_precision, "all", "r", "never", "precision at R, the number of positives"),
    "map": Metric(average_precision, "all", "k", "maybe", "average precision (step form); the divisor is R"),
    "map_capped": Metric(capped_average_precision, "all", "k", "always", "map@k divided by min(k, R)"),
    "map_trapezoid": Metric(trapezoid_average_precision, "all", "k", "maybe", "average precision, trapezoid rule"),
    "map_r": Metric(average_precision_at_r, "all", "r", "never", "MAP@R: average precision within the first R"),
    "mrr": Metric(reciprocal_rank, "first", "all", "never", "one over the rank of the first positive"),
    "ndcg": Metric(ndcg, "all", "k", "maybe", "discounted gain of the grades, divided by that of the best order"),
    "minp": Metric(inverse_negative_penalty, "all", "all", "never", "R divided by the rank of the last positive"),
    "mp": Metric(revisited_precision_at_k, "all", "k", "always", "precision at k, or at the last positive before k"),
}


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
        for one in each_label(label):
            by_label.setdefault(one, []).append(float(value))
    return math.fsum(math.fsum(group) / len(group) for group in by_label.values()) / len(by_label)
