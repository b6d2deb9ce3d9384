"""Power: how many queries it takes to see a difference, and which difference so many queries show.

Paired: the difference of two hits is -1, 0 or 1, so its variance is the share of queries that differ
(discordance) less the square of the difference. Where queries of one cluster are alike, n queries tell as much as
n / design effect of independent ones. The power is that of the paired t-test (statsmodels' `TTestPower`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from recallatk.types import ChoiceError

POWER = 0.8
ALPHA = 0.05
_MOST_QUERIES = 1e12
_CERTAIN = 30.0
"""Standard errors at which nothing is left to doubt; the noncentral t of scipy gives NaN a little further on."""
_ONE_SIDED = 5.0
"""Standard errors from which chance never shows the opposite; scipy gives NaN for so little, or for a little less."""
_LARGE = 1e5
"""From so many queries on t is normal to five digits, and the noncentral t loses its own."""


def paired_power(
    difference: float, n: float, *, discordance: float, alpha: float = ALPHA, freedom: float | None = None
) -> float:
    """The chance that n independent queries show a difference at the two-sided level alpha.

    Args:
        difference: of two means, in 0..1.
        n: how many queries, more than 1.
        discordance: the share of queries that differ; the mean square of the differences for a metric that is graded.
        alpha: the level of the test.
        freedom: the degrees of freedom of the variance; default: n - 1.
    """
    from scipy.stats import nct, norm, t

    freedom = n - 1 if freedom is None else freedom
    variance = discordance - difference**2
    if variance <= 0:
        return 1.0
    shift = difference / math.sqrt(variance) * math.sqrt(n)
    if shift > _CERTAIN:
        return 1.0
    if freedom >= _LARGE:
        limit = norm.isf(alpha / 2)
        return float(norm.sf(limit - shift) + norm.cdf(-limit - shift))
    limit = t.isf(alpha / 2, freedom)
    other_side = float(nct.cdf(-limit, freedom, shift)) if shift < _ONE_SIDED else 0.0
    return float(nct.sf(limit, freedom, shift)) + (0.0 if math.isnan(other_side) else other_side)


def queries_needed(
    difference: float,
    *,
    discordance: float,
    design_effect: float = 1.0,
    power: float = POWER,
    alpha: float = ALPHA,
) -> int:
    """The least number of queries that show a difference with this power.

    Args:
        difference: of two means, above 0 and below the discordance (it cannot be larger).
        discordance: the share of queries that differ, in 0..1.
        design_effect: how many queries tell as much as one that is independent.
        power: the chance to see the difference, in 0..1.
        alpha: the level of the test.

    Raises:
        ChoiceError: a number that none of these can be.

    >>> queries_needed(0.01, discordance=0.1)
    7843
    """
    _check(discordance, design_effect, power, alpha)
    if not 0 < difference <= discordance:
        raise ChoiceError(
            f"difference={difference!r} must be above 0 and at most the share of queries that differ, {discordance!r}"
        )

    def gain(n: float) -> float:
        return paired_power(difference, n, discordance=discordance, alpha=alpha) - power

    independent = 2.0 if gain(2.0) >= 0 else _root(gain, 2.0, _MOST_QUERIES)
    return math.ceil(round(independent * design_effect, 6))


def detectable_difference(
    n: float,
    *,
    discordance: float,
    design_effect: float = 1.0,
    power: float = POWER,
    alpha: float = ALPHA,
    freedom: float | None = None,
) -> float:
    """The least difference that n queries show with this power.

    Args:
        n: how many queries.
        discordance: as for `queries_needed`.
        design_effect: as for `queries_needed`.
        power: as for `queries_needed`.
        alpha: as for `queries_needed`.
        freedom: as for `paired_power`; clusters of queries less 1 where the variance is known from these.

    Returns:
        A difference of two means. Of hits it is at most the discordance, so a larger one cannot be seen at all.

    Raises:
        ChoiceError: as for `queries_needed`.

    >>> round(detectable_difference(5924, discordance=0.1), 4)
    0.0115
    """
    _check(discordance, design_effect, power, alpha)
    independent = max(n / design_effect, 2.0)

    def gain(difference: float) -> float:
        return paired_power(difference, independent, discordance=discordance, alpha=alpha, freedom=freedom) - power

    return _root(gain, 0.0, math.sqrt(discordance))


def unpaired_queries(value: float, gain: float, *, power: float = POWER, alpha: float = ALPHA) -> float | None:
    """The independent queries that each of two systems takes, on different queries, to show a gain over a value.

    By Cohen's effect size h, the difference of arcsines (statsmodels' `proportion_effectsize`, `NormalIndPower`).

    Returns:
        None if there is no such gain: the value would be above 1.

    >>> round(unpaired_queries(0.9, 0.02), 1)
    3204.7
    """
    if value + gain > 1:
        return None
    h = 2 * (math.asin(math.sqrt(value + gain)) - math.asin(math.sqrt(value)))
    return 2 * (_margin(power, alpha) / h) ** 2


def unpaired_difference(value: float, n: float, *, power: float = POWER, alpha: float = ALPHA) -> float | None:
    """The least gain over a value that two systems show on n different independent queries each.

    Returns:
        None if no gain is large enough.

    >>> round(unpaired_difference(0.7, 740), 4)
    0.0644
    """
    angle = math.asin(math.sqrt(value)) + _margin(power, alpha) * math.sqrt(2 / n) / 2
    return None if angle > math.pi / 2 else math.sin(angle) ** 2 - value


def _margin(power: float, alpha: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(1 - alpha / 2) + ndtri(power))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-12, rtol=1e-12))


def _check(discordance: float, design_effect: float, power: float, alpha: float) -> None:
    shares = {"discordance": discordance, "power": power, "alpha": alpha}
    for name, value in shares.items():
        if not 0 < value < 1 and not (name == "discordance" and value == 1):
            raise ChoiceError(f"{name}={value!r} is no share between 0 and 1")
    if not design_effect > 0:
        raise ChoiceError(f"design_effect={design_effect!r} must be above 0")
    if power <= alpha:
        raise ChoiceError(f"power={power!r} must be above alpha={alpha!r}, the chance to see what is not there")
