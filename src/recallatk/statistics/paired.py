"""Two systems on the same queries: the difference, its interval, and how easily chance gives as much.

Queries of one label are won and lost together, so the test flips the signs of whole clusters: if neither system is
better, each cluster could as well have come out the other way round. McNemar's test, which takes every query on its
own, is given beside it, as it is what people know.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from recallatk.statistics.clusters import Clusters
from recallatk.statistics.intervals import RESAMPLES, SEED, Interval, interval_of_mean
from recallatk.statistics.power import POWER, detectable_difference
from recallatk.types import ChoiceError, IntervalRule, RecallatkError

Values = npt.NDArray[np.float64]

MOST_FLIPS = 2**16
"""Up to so many flips all of them are counted; beyond, a seeded sample of them."""

_NUMBERS_AT_ONCE = 2**21
_NO_DIFFERENCE = 1e-9
"""Shares of hits that are equal differ by rounding alone by less than this, and others by more."""


@dataclasses.dataclass(frozen=True)
class McNemar:
    """McNemar's test: queries that only one of two systems hits, each taken on its own.

    The exact test is conservative; its mid-p version kept the level in all of the 9,595 settings of Fagerland, Lydersen
    and Laake (2013).

    Attributes:
        exact: the p-value of the exact conditional test.
        mid_p: that of its mid-p version.
        wins: queries that only the second system hits.
        losses: queries that only the first system hits.
        n: queries looked at: those that no tie can move.
        left_out: queries that a tie can move.
    """

    exact: float
    mid_p: float
    wins: int
    losses: int
    n: int
    left_out: int


@dataclasses.dataclass(frozen=True)
class PairedTest:
    """Two systems on the same queries; differences are second minus first.

    Attributes:
        difference: of the two means, micro or macro as the clusters are.
        interval: of the difference; None where nothing can be said.
        p_value: two-sided, by flipping the signs of whole clusters; 1 if no cluster has a difference.
        exact: every flip was counted; else a seeded sample of them, as (c + 1) / (n + 1).
        flips: how many flips were counted.
        seed: of the sample; None where every flip was counted.
        clusters: how many clusters there are.
        clusters_with_difference: how many of them have a difference; the others cannot change the test.
        smallest_p: the least p-value that so many clusters with a difference can give.
        wins: queries for which the second system is better.
        losses: queries for which the first is.
        ties: queries for which they are equal.
        discordance: the share of queries for which they are not.
        design_effect: of the difference; None where clusters tell nothing.
        minimum_detectable_effect: the difference that such a comparison would show in 4 of 5 repetitions; None where
            no query differs, or queries or clusters are too few for any.
        mcnemar: the test that takes every query on its own; None for a metric that is more than hit or miss.
    """

    difference: float
    interval: Interval | None
    p_value: float
    exact: bool
    flips: int
    seed: int | None
    clusters: int
    clusters_with_difference: int
    smallest_p: float
    wins: int
    losses: int
    ties: int
    discordance: float
    design_effect: float | None
    minimum_detectable_effect: float | None
    mcnemar: McNemar | None


def paired_test(
    first: Values,
    second: Values,
    clusters: Clusters,
    *,
    rule: IntervalRule | None = None,
    movable: npt.NDArray[np.bool_] | None = None,
    hits: bool = True,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> PairedTest:
    """Compare two systems query by query.

    Args:
        first: (n,) one value a query.
        second: (n,) those of the other system, for the same queries in the same order.
        clusters: which queries belong together, and whether the means are micro or macro.
        rule: the interval of the difference; its confidence also sets the level that the smallest difference to be
            seen is worked out for.
        movable: (n,) queries that a tie can move in either system; default: those whose values are neither 0 nor 1.
        hits: the values are hits and misses (under ties, shares of a hit).
        resamples: how many flips are sampled where there are too many to count them all.
        seed: of that sample.

    Raises:
        ChoiceError: an interval that is none of a difference.

    >>> from recallatk.statistics.clusters import cluster_queries
    >>> a, b = np.array([0, 0, 0, 0, 0, 0, 1, 1.0]), np.array([1, 1, 1, 1, 1, 1, 0, 1.0])
    >>> test = paired_test(a, b, cluster_queries([""] * 8))
    >>> test.difference, test.p_value, test.exact, test.mcnemar.exact
    (0.625, 0.125, True, 0.125)
    """
    rule = IntervalRule() if rule is None else rule
    if rule.ci in ("wilson", "clopper-pearson"):
        raise ChoiceError(f"ci={rule.ci} is for one share, not for a difference; use cluster-t or cluster-bootstrap")
    if first.shape != second.shape or not len(first):
        raise RecallatkError(f"{len(first)} values against {len(second)}; there must be one of each for every query")
    differences = second - first
    differences[np.abs(differences) < _NO_DIFFERENCE] = 0.0
    sums = clusters.sums(differences)
    moved = np.sort(sums[np.abs(sums) >= _NO_DIFFERENCE])  # a sample of flips must not depend on the order of clusters
    p_value, flips, exact = _flip(moved, resamples, seed)
    spread = interval_of_mean(
        differences, clusters, rule=dataclasses.replace(rule, ci="cluster-t"), hits=False, bounds=(-1, 1)
    )
    effect = None if spread is None or spread.reason else spread.design_effect
    asked = spread if rule.ci == "cluster-t" else None
    if rule.ci == "cluster-bootstrap":
        asked = interval_of_mean(differences, clusters, rule=rule, hits=False, bounds=(-1, 1))
    if movable is None:
        movable = ~(np.isin(first, (0.0, 1.0)) & np.isin(second, (0.0, 1.0)))
    return PairedTest(
        difference=clusters.mean(differences),
        interval=asked,
        p_value=p_value,
        exact=exact,
        flips=flips,
        seed=None if exact else seed,
        clusters=clusters.count,
        clusters_with_difference=len(moved),
        smallest_p=min(1.0, 2.0 ** (1 - len(moved))),
        wins=int(np.count_nonzero(differences > 0)),
        losses=int(np.count_nonzero(differences < 0)),
        ties=int(np.count_nonzero(differences == 0)),
        discordance=float(np.count_nonzero(differences)) / len(differences),
        design_effect=effect,
        minimum_detectable_effect=_detectable(differences, sums, clusters, effect, rule.alpha),
        mcnemar=mcnemar(first, second, movable) if hits else None,
    )


def _flip(sums: Values, resamples: int, seed: int) -> tuple[float, int, bool]:
    """The p-value of these sums of clusters if each could as well have the other sign; the flips; whether all."""
    from scipy.stats import permutation_test

    if len(sums) < 2:  # one that is flipped differs as much the other way round
        return 1.0, 2 ** len(sums), True
    exact = len(sums) <= math.log2(max(resamples, MOST_FLIPS))
    found = permutation_test(
        (sums,),
        # Rounded, as sums of shares that are equal differ in their last digit by the order of their terms.
        lambda flipped, axis: np.round(flipped.sum(axis), 9),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf if exact else resamples,
        batch=max(1, _NUMBERS_AT_ONCE // len(sums)),
        rng=np.random.default_rng(seed),
    )
    return float(min(found.pvalue, 1.0)), 2 ** len(sums) if exact else resamples, exact


def _detectable(
    differences: Values, sums: Values, clusters: Clusters, effect: float | None, alpha: float
) -> float | None:
    """The least difference that such a comparison shows; None if there is no difference or none so small."""
    macro = clusters.average == "macro"
    # What the mean is of: labels, or queries that their clusters make alike.
    each = sums * (len(sums) / math.fsum(clusters.weights)) if macro else differences
    square = math.fsum(each**2) / len(each)
    # So many clusters can give no p below this, whatever the difference is.
    if not square or 2.0 ** (1 - clusters.count) > alpha or alpha >= POWER:
        return None
    found = detectable_difference(
        len(each),
        discordance=square,
        design_effect=1.0 if macro else max(1.0, effect or 1.0),
        alpha=alpha,
        freedom=clusters.count - 1,
    )
    largest = math.fsum(abs(each)) / len(each)  # if all that differ did so on one side
    return None if found > largest else found


def mcnemar(first: Values, second: Values, movable: npt.NDArray[np.bool_]) -> McNemar:
    """McNemar's test on the queries that no tie can move.

    Args:
        first: (n,) hits of the first system, 0 or 1.
        second: (n,) those of the second.
        movable: (n,) queries to leave out.
    """
    from scipy.stats import binom, binomtest

    a, b = first[~movable] > 0.5, second[~movable] > 0.5
    wins, losses = int(np.count_nonzero(b & ~a)), int(np.count_nonzero(a & ~b))
    discordant, fewer = wins + losses, min(wins, losses)
    exact = float(binomtest(wins, discordant, 0.5).pvalue) if discordant else 1.0
    mid_p = float(2 * binom.cdf(fewer, discordant, 0.5) - binom.pmf(fewer, discordant, 0.5)) if discordant else 1.0
    return McNemar(exact, min(mid_p, 1.0), wins, losses, len(a), int(np.count_nonzero(movable)))


def adjust_holm(p_values: list[float]) -> list[float]:
    """Holm's adjusted p-values: the chance of one false finding among all stays below the level.

    Holm (1979), A simple sequentially rejective multiple test procedure.

    >>> [round(p, 3) for p in adjust_holm([0.01, 0.04, 0.03, 0.005, 0.2])]
    [0.04, 0.09, 0.09, 0.025, 0.2]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for left, row in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - left) * p_values[row]))
        adjusted[row] = largest
    return adjusted
