"""Intervals: how far the value would move over other queries of the same kind.

Queries of one label share their positives and what they are confused with, so they are hit and missed together. An
interval that takes them as independent is too narrow, often by half. The default lets every cluster be one observation:
the cluster-robust t interval of a ratio (statsmodels' `OLS(values, 1)` with `cov_type="cluster"`, `use_t=True`).
It is about other queries and labels, not about other training runs of the encoder.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from recallatk.statistics.clusters import Clusters, cluster_queries, name_clusters
from recallatk.types import IntervalMethod, IntervalRule
from recallatk.wording import counted

Values = npt.NDArray[np.float64]

RESAMPLES = 9_999
SEED = 0
_EQUAL = 1e-12
"""Means that are equal differ by rounding alone by less."""

_FEW = 5
"""Of so many clusters some spread can be seen."""

_NUMBERS_AT_ONCE = 2**21
"""How many numbers of resamples are held at once."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """The interval beside a value.

    Attributes:
        low: its lower end.
        high: its upper end.
        method: how it was made.
        confidence: the share of such intervals that hold the true value, in 0..1.
        clusters: how many clusters the queries are in.
        standard_error: of the value; None where the method has none.
        design_effect: how many times the variance is what it would be if queries were independent (both without a
            correction for small samples: exactly 1 if every query is a cluster). None where it has no meaning.
        effective_n: as many independent queries would tell as much: n / design_effect.
        cut: an end lay outside of the values that are possible, and was cut.
        reason: why it was not made as was asked; empty if it was.
        caveat: why it may be too narrow though it was; empty if nothing speaks for that.
    """

    low: float
    high: float
    method: IntervalMethod
    confidence: float
    clusters: int
    standard_error: float | None = None
    design_effect: float | None = None
    effective_n: float | None = None
    cut: bool = False
    reason: str = ""
    caveat: str = ""


def interval_of_mean(
    values: Values,
    clusters: Clusters,
    *,
    rule: IntervalRule,
    hits: bool = True,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Interval | None:
    """The interval of the mean of one value a query.

    Where clusters say nothing of the spread (one cluster, every query a cluster, no spread at all) hits get Wilson's
    interval and the reason is stated; other values get the t interval over queries, or none where they have no spread.

    Args:
        values: (n,) one for each query; the mean over them is micro or macro as the clusters are.
        clusters: which queries belong together.
        rule: the method, and the confidence.
        hits: whether the values are hits and misses (under ties, shares of a hit).
        bounds: what the mean can be at least and at most.

    Returns:
        The interval; None if none was asked for or nothing can be said.

    >>> from recallatk.statistics.clusters import cluster_queries
    >>> found = interval_of_mean(np.array([1, 1, 0, 1, 0, 0.0]), cluster_queries(list("aabbcc")), rule=IntervalRule())
    >>> round(found.standard_error, 6), found.cut
    (0.288675, True)
    """
    if rule.ci == "none":
        return None
    if not rule.clustered:
        return _of_hits(values, clusters, rule, rule.ci, "") if hits else None
    reason = _why_not_clustered(values, clusters)
    if not reason:
        found = _of_clusters(values, clusters, rule, bounds)
        return dataclasses.replace(found, caveat=_too_few(values, clusters)) if hits else found
    if hits:
        return _of_hits(values, clusters, rule, "wilson", reason)
    if len(values) > 1 and np.ptp(values) > 0:
        alone = cluster_queries([""] * len(values), column=clusters.column)
        found = _of_clusters(values, alone, dataclasses.replace(rule, ci="cluster-t"), bounds)
        return dataclasses.replace(found, clusters=clusters.count, reason=reason)
    return None


def _why_not_clustered(values: Values, clusters: Clusters) -> str:
    """Why clusters tell nothing of the spread, in words; empty if they do."""
    what = clusters.noun[0] if clusters.column == "label" else clusters.column
    if len(values) == 1:
        return "there is one query"
    if clusters.count == 1:
        return f"all queries have one {what}"
    if np.ptp(values) == 0:
        return {0.0: "every query is a miss", 1.0: "every query is a hit"}.get(
            float(values[0]), "all queries have one value"
        )
    if clusters.count == len(values) and np.ptp(clusters.weights) == 0:
        unknown = all(isinstance(row, int) for row, *_ in clusters.names)
        return f"{'the queries have no' if unknown else 'no two queries have the same'} {what}"
    if np.ptp(clusters.sums(values) / clusters.weights) < _EQUAL:
        return f"every {what} has the same value"
    return ""


def _too_few(values: Values, clusters: Clusters) -> str:
    """That hardly a cluster differs from the rest, so that their spread is hardly known, in words."""
    rare, what = (1 - values, "a miss") if math.fsum(values) * 2 >= len(values) else (values, "a hit")
    having = int(np.count_nonzero(clusters.sums(rare)))
    if having >= min(_FEW, clusters.count):
        return ""
    few = f"only {having} of {counted(clusters.count, *clusters.noun)} with {what}, so it may be too narrow"
    return few if clusters.average == "macro" else f"{few}: evaluate with --ci wilson too"


def _of_clusters(values: Values, clusters: Clusters, rule: IntervalRule, bounds: tuple[float, float]) -> Interval:
    sums, weights = clusters.sums(values), clusters.weights
    total = math.fsum(weights)
    mean = math.fsum(sums) / total
    variance = math.fsum((sums - mean * weights) ** 2) / total**2
    # The correction of statsmodels: with every query a cluster it is the n / (n - 1) of any variance.
    error = math.sqrt(variance * clusters.count / (clusters.count - 1))
    effect = None
    if clusters.average == "micro":
        alone = math.fsum((values - mean) ** 2) / total**2
        effect = variance / alone
    if rule.ci == "cluster-t":
        from scipy.stats import t

        half = float(t.ppf((1 + rule.confidence) / 2, clusters.count - 1)) * error
        low, high = mean - half, mean + half
    else:
        low, high, error = _bootstrap(sums, weights, rule)
    return Interval(
        max(low, bounds[0]),
        min(high, bounds[1]),
        rule.ci,
        rule.confidence,
        clusters.count,
        standard_error=error,
        design_effect=effect,
        effective_n=None if not effect else len(values) / effect,
        cut=low < bounds[0] or high > bounds[1],
    )


def _bootstrap(sums: Values, weights: Values, rule: IntervalRule) -> tuple[float, float, float]:
    """Draw clusters with replacement; the percentiles of the ratio, and its standard error."""
    from scipy.stats import bootstrap

    order = np.lexsort((weights, sums))  # what is drawn depends on the order of the clusters, the interval may not
    ratio: Callable[..., Values] = lambda sums, weights, axis: sums.sum(axis) / weights.sum(axis)  # noqa: E731
    found = bootstrap(
        (sums[order], weights[order]),
        ratio,
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=RESAMPLES,
        confidence_level=rule.confidence,
        batch=max(1, _NUMBERS_AT_ONCE // len(sums)),
        rng=np.random.default_rng(SEED),
    )
    low, high = found.confidence_interval
    return float(low), float(high), float(found.standard_error)


def _of_hits(values: Values, clusters: Clusters, rule: IntervalRule, method: IntervalMethod, reason: str) -> Interval:
    """Of a share of independent hits; where ties make it no whole number, outward to the next ones."""
    from scipy.stats import binomtest

    hits = round(math.fsum(values), 9)  # shares of a hit add up to whole numbers but for rounding
    name = {"wilson": "wilson", "clopper-pearson": "exact"}[method]
    low, high = (
        binomtest(whole(hits), len(values)).proportion_ci(rule.confidence, name) for whole in (math.floor, math.ceil)
    )
    return Interval(float(low.low), float(high.high), method, rule.confidence, clusters.count, reason=reason)


def sign_rule(rule: IntervalRule, clusters: int) -> str:
    """`ci` of the signature: the method with all that it was given."""
    parts = [rule.ci, f"{rule.confidence:g}"]
    if rule.clustered:
        parts += [rule.cluster, f"c{clusters}"]
    if rule.ci == "cluster-bootstrap":
        parts += [f"b{RESAMPLES}", f"s{SEED}"]
    return "none" if rule.ci == "none" else ",".join(parts)


def describe_rule(rule: IntervalRule, clusters: int, *, several: bool = False, labelled: bool = True) -> str:
    """The rule in words, with the number of clusters it found.

    Args:
        rule: the rule.
        clusters: how many clusters there are.
        several: whether queries have several labels: clusters are sets of them then.
        labelled: whether any query has a label; where none has, each is a cluster of its own.
    """
    share = f"{100 * rule.confidence:g} %"
    if not rule.clustered:
        return f"{share} {rule.ci}, every query on its own"
    method = {"cluster-t": "cluster-robust t", "cluster-bootstrap": f"cluster bootstrap of {RESAMPLES:,}"}[rule.ci]
    alone = rule.cluster == "label" and not labelled
    names = ("query", "queries") if alone else name_clusters(rule.cluster, several=several)
    return f"{share} {method} over {counted(clusters, *names)}"
