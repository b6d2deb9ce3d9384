"""What a paired test says, in words: the verdict first, then what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recallatk.statistics import Interval, name_clusters
from recallatk.wording import counted

if TYPE_CHECKING:
    from recallatk.comparison.comparing import Comparison, Contrast

SHOWN_DIGITS = 4


def verdict(comparison: Comparison) -> list[str]:
    """Which run is better, a line or two a run; never a difference where p is above the level."""
    lines = [line for contrast in comparison.contrasts for line in _verdict_on(comparison, contrast)]
    if comparison.differences or comparison.dropped.lines():
        lines.append(
            f"forced: about the {counted(len(comparison.ids), 'query', 'queries')} that all runs have in common; "
            "what else differs is listed below and may be the reason"
        )
    if comparison.by_row:
        lines.append("forced: there are no ids; this holds if the rows of all runs are the same queries in one order")
    return lines


def _verdict_on(comparison: Comparison, contrast: Contrast) -> list[str]:
    test, alpha = contrast.test, comparison.alpha
    name, baseline, metric = contrast.name, comparison.baseline.name, comparison.metric
    value = comparison.baseline.values[metric].value
    if not test.discordance:
        every = counted(len(comparison.ids), "query", "queries")
        return [f"{name} equals {baseline} on every query: {metric} {value:.6f} in both ({every}, p = 1)"]
    found = f"{metric} {signed(test.difference)} ({_interval(comparison, test.interval)}{_p(comparison, contrast)})"
    if contrast.p_holm <= alpha:
        word = "better" if test.difference > 0 else "worse"
        return [f"{name} is {word} than {baseline}: {found}", *_disagreement(comparison, contrast)]
    if smallest_holm(comparison, contrast) > alpha:
        return [
            f"no difference between {name} and {baseline} can be shown: {found}",
            _what_is_too_few(comparison, contrast),
            *_disagreement(comparison, contrast),
        ]
    lines = [
        f"no difference between {name} and {baseline} is shown: {found}",
        f"that does not show that they are equal: {_what_is_missed(test.minimum_detectable_effect)}",
    ]
    return [*lines, *_disagreement(comparison, contrast)]


def _what_is_too_few(comparison: Comparison, contrast: Contrast) -> str:
    test, m = contrast.test, contrast.test.clusters_with_difference
    if not m:
        return f"wins and losses cancel within every {_noun(comparison)[0]}"
    least = p_value(smallest_holm(comparison, contrast), comparison.alpha)
    if not test.exact:
        return f"a sample of {counted(test.flips, 'flip')} can give no p below {least}: raise resamples (--resamples)"
    have = "has" if m == 1 else "have"
    return f"only {clusters_of(comparison, contrast, m)} {have} a difference, and so few can give no p below {least}"


def _what_is_missed(least_seen: float | None) -> str:
    if least_seen is None:
        return "these queries are too few or too alike to show any difference reliably"
    return f"with these queries one below about {plain(least_seen)} is easily missed"


def _disagreement(comparison: Comparison, contrast: Contrast) -> list[str]:
    """A line where the interval and the test say different things, and why they may."""
    interval = contrast.test.interval
    if interval is None:
        return []
    leaves_zero_out = interval.low > 0 or interval.high < 0
    if leaves_zero_out == (contrast.p_holm <= comparison.alpha):
        return []
    holds = "leaves 0 out" if leaves_zero_out else "holds 0"
    if interval.reason and not alone(comparison, contrast):
        why = "takes queries as independent"
    elif contrast.test.p_value <= comparison.alpha < contrast.p_holm:
        why = "is not adjusted for the number of runs"
    else:
        units = (
            "queries are few" if alone(comparison, contrast) else f"{_noun(comparison)[1]} are few or unequal in size"
        )
        why = f"comes from another calculation, which is rough where {units}"
    return [f"the interval {holds}, but it {why}; the verdict goes by the test"]


def test_lines(comparison: Comparison, contrast: Contrast) -> list[str]:
    """What the verdict rests on, a line for each thing."""
    test, alpha = contrast.test, comparison.alpha
    single = alone(comparison, contrast)
    whole = "queries" if single else f"whole {_noun(comparison)[1]}"
    within = "" if single else f" in {clusters_of(comparison, contrast, test.clusters)}"
    lines = [
        f"{contrast.name} against {comparison.baseline.name}: {comparison.metric}, "
        f"{counted(len(comparison.ids), 'query', 'queries')}{within}",
        f"difference: {signed(test.difference)}",
        f"interval: {_interval_in_full(comparison, contrast)}",
        f"sign flips of {whole}: p = {p_value(test.p_value, alpha)} ({_flips(comparison, contrast)})",
    ]
    if len(comparison.contrasts) > 1:
        lines.append(f"adjusted (Holm, {len(comparison.contrasts)} runs): p = {p_value(contrast.p_holm, alpha)}")
    if test.mcnemar is not None:
        mcnemar = test.mcnemar
        left = ""
        if mcnemar.left_out:
            left = f"; without {counted(mcnemar.left_out, 'query', 'queries')} that ties can move"
        lines.append(
            f"McNemar, if queries were independent: exact p = {p_value(mcnemar.exact, alpha)}, "
            f"mid-p = {p_value(mcnemar.mid_p, alpha)} ({mcnemar.wins:,} won, {mcnemar.losses:,} lost{left})"
            if mcnemar.n
            else "McNemar: none, as ties can move every query"
        )
    words = ("won", "lost", "equal") if comparison.is_hit else ("higher", "lower", "equal")
    numbers = ", ".join(f"{n:,} {word}" for n, word in zip((test.wins, test.losses, test.ties), words, strict=True))
    lines.append(f"queries: {numbers} (discordance {test.discordance:.4f})")
    if test.design_effect is not None and not single:
        lines.append(f"design effect of the difference: {test.design_effect:.2f}")
    if test.discordance:
        least = test.minimum_detectable_effect
        lines.append(
            "minimum detectable difference: none, these queries are too few or too alike (power 0.8)"
            if least is None
            else f"minimum detectable difference: {plain(least)} (power 0.8)"
        )
    return lines


def smallest_holm(comparison: Comparison, contrast: Contrast) -> float:
    """The least p that so many clusters with a difference, or so many flips, can give, times Holm's factor."""
    test = contrast.test
    others = sum(other.test.p_value >= test.p_value for other in comparison.contrasts)
    least = test.smallest_p if test.exact else max(test.smallest_p, 2 / (test.flips + 1))
    return min(1.0, least * others)


def clusters_of(comparison: Comparison, contrast: Contrast, n: int) -> str:
    """So many clusters, by what they are."""
    return counted(n, *(("query", "queries") if alone(comparison, contrast) else _noun(comparison)))


def alone(comparison: Comparison, contrast: Contrast) -> bool:
    """Whether every query is a cluster of its own."""
    return contrast.test.clusters == len(comparison.ids) and comparison.average == "micro"


def _noun(comparison: Comparison) -> tuple[str, str]:
    return name_clusters(comparison.intervals.cluster, several=comparison.several_labels)


def _interval(comparison: Comparison, interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f"{_share(comparison)} interval {signed(interval.low)} to {signed(interval.high)}, "


def _interval_in_full(comparison: Comparison, contrast: Contrast) -> str:
    interval = contrast.test.interval
    if comparison.intervals.ci == "none":
        return "none was asked for"
    if interval is None:
        alike = "every query has the same difference" if contrast.test.discordance else "no query has a difference"
        return f"none, as {alike}"
    method = {"cluster-t": "cluster-robust t", "cluster-bootstrap": "cluster bootstrap"}[interval.method]
    over = f"over queries, as {interval.reason}"
    if not interval.reason:
        over = f"over {clusters_of(comparison, contrast, interval.clusters)}"
    ends = f"{signed(interval.low)} to {signed(interval.high)}"
    cut = " and ".join(f"{end:+}" for end in (-1, 1) if end in (interval.low, interval.high))
    return f"{ends} ({_share(comparison)}, {method} {over}{f', cut at {cut}' if interval.cut else ''})"


def _flips(comparison: Comparison, contrast: Contrast) -> str:
    """What the sign flips were counted over."""
    test = contrast.test
    if not test.clusters_with_difference:
        return f"no {'query' if alone(comparison, contrast) else _noun(comparison)[0]} has a difference"
    how = f"all {test.flips:,} flips" if test.exact else f"a sample of {test.flips:,} flips, seed {test.seed},"
    moved = clusters_of(comparison, contrast, test.clusters_with_difference)
    # Twice the smaller tail, (0 + 1) / (flips + 1) where no flip of the sample came out as far.
    least = ", and none came out as far" if not test.exact and test.p_value <= 2 / (test.flips + 1) else ""
    return f"{how} of the {moved} with a difference{least}"


def _p(comparison: Comparison, contrast: Contrast) -> str:
    adjusted = f" after Holm over {len(comparison.contrasts)} runs" if len(comparison.contrasts) > 1 else ""
    return f"p = {p_value(contrast.p_holm, comparison.alpha)}{adjusted}"


def _share(comparison: Comparison) -> str:
    return f"{100 * comparison.intervals.confidence:.10g} %"


def p_value(p: float, alpha: float) -> str:
    """A p-value in three digits, or as many as it takes to stay on its side of the level.

    >>> p_value(0.0123456, 0.05), p_value(0.050000001, 0.05), p_value(1.0, 0.05)
    ('0.0123', '0.050000001', '1')
    """
    for digits in range(3, 18):
        text = f"{p:.{digits}g}"
        if (float(text) <= alpha) == (p <= alpha) and (float(text) == alpha) == (p == alpha):
            break
    return text


def signed(number: float) -> str:
    """A difference with its sign, in four decimals; a smaller one in two digits.

    >>> signed(0.0264), signed(-0.5), signed(0.0), signed(-0.0000312)
    ('+0.0264', '-0.5000', '0.0000', '-3.1e-05')
    """
    return plain(number) if not number else f"{'+' if number > 0 else '-'}{plain(abs(number))}"


def plain(number: float) -> str:
    """A number from 0 on in four decimals; a smaller one in two digits."""
    return f"{number:.1e}" if 0 < number < 10**-SHOWN_DIGITS else f"{number:.{SHOWN_DIGITS}f}"
