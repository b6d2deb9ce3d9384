"""Gates: whether a run is good enough to go on, by a least value or by the most that it may lose against another run.

A condition is decided exactly: values that are shares of whole hits are compared as fractions, so 0.80 passes 0.80.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from recallatk.comparison import Pairing, pair
from recallatk.comparison.differences import check_rows
from recallatk.comparison.verdict import p_value
from recallatk.report import Report, Value
from recallatk.statistics import Interval, PairedTest, name_clusters, paired_test
from recallatk.types import ChoiceError, IntervalRule
from recallatk.wording import one_line

_ROUNDING = Fraction(1, 10**12)
"""Means that are no shares of whole hits (ties, means over labels, graded metrics) are as exact as this."""
_DECIMAL = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")


@dataclasses.dataclass(frozen=True)
class Condition:
    """One condition and how the run met it.

    Attributes:
        kind: `min` or `max-drop`.
        metric: the metric.
        limit: the least value, or the most that may be lost.
        value: the run's value.
        baseline: the name of the run that it is held against; None for `min`.
        baseline_value: that run's value; None for `min`.
        passed: whether the condition is met.
        short: by how much the value misses what is asked for; negative where it is more.
        in_noise: whether chance alone could give as much: for `min`, the limit lies in the interval of the value; for
            `max-drop`, the paired test shows no drop. None where nothing can be said, as where so few labels differ
            that the test never could show one.
        interval: of the value, or of the difference from the baseline.
        test: the paired test against the baseline; None for `min`.
        line: all of this in one line.
    """

    kind: str
    metric: str
    limit: float
    value: float
    baseline: str | None
    baseline_value: float | None
    passed: bool
    short: float
    in_noise: bool | None
    interval: Interval | None
    test: PairedTest | None
    line: str


def check_gate(
    report: Report,
    *,
    minimum: Mapping[str, float | str] | None = None,
    max_drop: Sequence[tuple[str, Report, float | str]] = (),
    metric: str | None = None,
    significant_only: bool = False,
    intervals: IntervalRule | None = None,
) -> tuple[Condition, ...]:
    """Check a run against least values and against other runs.

    Args:
        report: the run.
        minimum: the least value by metric, `{"recall@1": 0.8}`; as text ("0.80") it is taken to the digit.
        max_drop: (name, earlier run, the most that may be lost against it), each 0..1.
        metric: the one that drops are measured in; default: recall at the smallest k that both runs have.
        significant_only: a drop fails only if the paired test shows that the run is worse at all. It leaves least
            values alone.
        intervals: how intervals are made; default: as the first run of each comparison made its own.

    Returns:
        The conditions in this order, met or not.

    Raises:
        ChoiceError: there is no condition, a limit is no share in 0..1, or the run has no such metric.
        RecallatkError: a run is not comparable with it.

    >>> from recallatk import EmbeddingSet, evaluate_embeddings
    >>> report = evaluate_embeddings(EmbeddingSet([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [1, 0.2]], labels=list("aabba")))
    >>> [condition.passed for condition in check_gate(report, minimum={"recall@1": "1.0"})]
    [True]
    """
    minimum = minimum or {}
    if not minimum and not max_drop:
        raise ChoiceError("there is nothing to check; give a least value (--min recall@1=0.80) or --max-drop BASE=0.01")
    if significant_only and not max_drop:
        raise ChoiceError("--significant-only is about drops; give --max-drop BASE=0.01 with it")
    check_rows("the run", report)
    floors = [_at_least(report, name, limit) for name, limit in minimum.items()]
    drops = [
        _drop(report, name, base, limit, metric, significant_only=significant_only, intervals=intervals)
        for name, base, limit in max_drop
    ]
    return (*floors, *drops)


def parse_limit(limit: float | str, where: str) -> Fraction:
    """A limit as the fraction that its decimal digits say.

    Raises:
        ChoiceError: it is no share in 0..1.

    >>> parse_limit(0.1, "--min recall@1=0.1")
    Fraction(1, 10)
    """
    text = str(limit).strip()
    exact = Fraction(text) if _DECIMAL.fullmatch(text) else Fraction(-1)
    if not 0 <= exact <= 1:
        percent = f"; for {limit} % write {float(exact) / 100:g}" if 1 < exact <= 100 else ""
        raise ChoiceError(f"{where}: {limit!r} is no share in 0..1{percent}")
    return exact


def _at_least(report: Report, metric: str, limit: float | str) -> Condition:
    least = parse_limit(limit, f"--min {metric}={limit}")
    if metric not in report:
        raise ChoiceError(f"--min {metric}={limit}: the run has no {metric}; it has {', '.join(report)}")
    value = report.values_by_metric[metric]
    short = least - _exact(value, macro=report.protocol.average == "macro")
    passed, interval = short <= 0, value.interval
    line = f"{metric} is {value.value:.6f}, " + (
        f"exactly the {_share(least)} asked for"
        if short == 0
        else f"{_apart(short)} {'above' if passed else 'below'} the {_share(least)} asked for"
    )
    noise = None if interval is None else interval.low <= float(least) <= interval.high
    if interval is not None:
        where = "within noise: it lies in" if noise else "beyond noise: it lies outside of"
        line += f"; {where} the {_ends(interval)}"
    return _condition("min", metric, least, value.value, passed, short, noise, interval, line)


def _drop(
    report: Report,
    name: str,
    base: Report,
    limit: float | str,
    metric: str | None,
    *,
    significant_only: bool,
    intervals: IntervalRule | None,
) -> Condition:
    most = parse_limit(limit, f"--max-drop {name}={limit}")
    pairing = pair(base, report, metric=metric, intervals=intervals, names=(name, "the run"), forcible=False)
    rule = pairing.rule
    test = paired_test(
        pairing.first, pairing.second, pairing.clusters, rule=rule, movable=pairing.movable, hits=pairing.hits
    )
    before, now = (run.values_by_metric[pairing.metric] for run in (base, report))
    drop = _exact_drop(pairing, before, now, macro=report.protocol.average == "macro")
    short = drop - most
    alpha = rule.alpha
    shown = test.difference < 0 and test.p_value <= alpha
    passed = short <= 0 or (significant_only and not shown)
    line = _drop_line(name, pairing.metric, before.value, now.value, drop, most, test, alpha)
    told = shown or test.smallest_p <= alpha
    noun = name_clusters(rule.cluster)[1]
    if drop > 0:
        line += "; " + (
            "the paired test shows a drop"
            if shown
            else "within noise: the paired test shows no drop"
            if told
            else f"noise or not cannot be told: so few {noun} differ that the paired test never shows a drop"
        )
        if short > 0 and passed:
            line += ", and --significant-only lets that pass"
    return _condition(
        "max-drop",
        pairing.metric,
        most,
        now.value,
        passed,
        short,
        not shown if drop > 0 and told else None,
        test.interval,
        line,
        baseline=name,
        baseline_value=before.value,
        test=test,
    )


def _drop_line(
    name: str, metric: str, before: float, now: float, drop: Fraction, most: Fraction, test: PairedTest, alpha: float
) -> str:
    way = "lost" if drop > 0 else "gained"
    line = f"{metric} is {now:.6f}, " + (
        f"the same as in {name}" if drop == 0 else f"{_apart(drop)} {way} against {name} ({before:.6f})"
    )
    if drop > most:
        line += f", {_apart(drop - most)} more than the {_share(most)} allowed"
    elif drop > 0:
        line += f", exactly the {_share(most)} allowed" if drop == most else f"; {_share(most)} is allowed"
    line += f"; p = {p_value(test.p_value, alpha)}"
    return line + (f", {_ends(test.interval)} of the change" if test.interval is not None else "")


def _condition(
    kind: str,
    metric: str,
    limit: Fraction,
    value: float,
    passed: bool,
    short: Fraction,
    in_noise: bool | None,
    interval: Interval | None,
    line: str,
    **against: Any,
) -> Condition:
    against = {"baseline": None, "baseline_value": None, "test": None, **against}
    return Condition(
        kind=kind,
        metric=metric,
        limit=float(limit),
        value=value,
        passed=passed,
        short=float(short),
        in_noise=in_noise,
        interval=interval,
        line=one_line(f"{'passed' if passed else 'failed'}: {line}"),
        **against,
    )


def _exact(value: Value, *, macro: bool) -> Fraction:
    """The value as a fraction of whole hits; where it is none, to twelve digits."""
    if not macro and value.hits is not None and value.hits == int(value.hits):
        return Fraction(int(value.hits), value.n)
    return _rounded(Fraction(value.value))


def _exact_drop(pairing: Pairing, before: Value, now: Value, *, macro: bool) -> Fraction:
    if before.n == now.n == len(pairing.ids):
        return _rounded(_exact(before, macro=macro) - _exact(now, macro=macro))
    return _rounded(Fraction(math.fsum(pairing.first) - math.fsum(pairing.second)) / len(pairing.ids))


def _rounded(exact: Fraction) -> Fraction:
    """As it is if it is a fraction of whole hits, else without the noise of float64."""
    if exact.denominator < 10**9:
        return exact
    return round(exact / _ROUNDING) * _ROUNDING


def _share(limit: Fraction) -> str:
    text = f"{float(limit):.15g}"
    return text if len(text) > 3 else f"{float(limit):.2f}"


def _apart(difference: Fraction) -> str:
    """A difference in six decimals; a smaller one in two digits, as it is not nothing.

    >>> _apart(Fraction(-1, 3)), _apart(Fraction(1, 10**9))
    ('0.333333', '1.0e-09')
    """
    size = abs(float(difference))
    return f"{size:.6f}" if size >= 5e-7 or not size else f"{size:.1e}"


def _ends(interval: Interval) -> str:
    return f"{100 * interval.confidence:g} % interval {interval.low:.4f} to {interval.high:.4f}"
