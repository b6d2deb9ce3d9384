"""A report against printed numbers: one that somebody names, or the rows that are known of a benchmark."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from recallatk.markup import make_table
from recallatk.report import Report
from recallatk.statistics.published import ALPHA, PublishedCheck, check_published, parse_published
from recallatk.types import ChoiceError, EvalProtocol
from recallatk.wording import counted, one_line


class Published(Protocol):
    """A system of which numbers were printed."""

    @property
    def system(self) -> str:
        """The system."""

    @property
    def values(self) -> Mapping[str, str]:
        """Metric -> the digits as they were printed."""

    @property
    def source(self) -> str:
        """Where they were printed."""


@dataclasses.dataclass(frozen=True)
class PublishedSystem:
    """A report against what was printed for one system.

    Attributes:
        system: the system.
        source: where its numbers were printed.
        checks: one for each printed number of a metric that the report has.
    """

    system: str
    source: str
    checks: tuple[PublishedCheck, ...]


def check_report(report: Report, text: str, *, other_counts: Mapping[str, int] | None = None) -> PublishedCheck:
    """Hold a printed number against a report.

    Args:
        report: the report.
        text: as for `parse_published`; without a metric it is of the report's first recall@k.
        other_counts: other numbers of queries that may have been meant, by what they are.

    Raises:
        ChoiceError: it is no printed number, or of a metric that the report does not have.
    """
    published = parse_published(text)
    metric = next(iter(report.values_by_metric)) if published.metric is None else published.metric
    if metric not in report.values_by_metric:
        raise ChoiceError(f"published {text!r}: the run has no {metric}; it has {', '.join(report.values_by_metric)}")
    value = report.values_by_metric[metric]
    shares = value.hits is not None and report.protocol.average == "micro"
    found = int(report.queries["has_positive"].sum())  # type: ignore[union-attr]  # a column of numbers
    others = {
        "with the queries that have no positive, as misses": report.num_queries,
        "without the queries that have no positive": found,
        **(other_counts or {}),
    }
    return check_published(
        published,
        metric=metric,
        value=value.value,
        n=value.n,
        hits=value.hits if shares else None,
        hits_min=value.hits_min,
        hits_max=value.hits_max,
        other_counts={what: n for what, n in others.items() if n != value.n},
    )


def compare_with_published(
    report: Report, rows: Sequence[Published], *, other_counts: Mapping[str, int] | None = None
) -> tuple[PublishedSystem, ...]:
    """Hold a report against every row that was published for a benchmark.

    Printed numbers of metrics that the report does not have are left out; a system of which none is left is too.

    Args:
        report: the report.
        rows: what was printed, such as `BENCHMARKS["cub200"].parts["dml"].published`.
        other_counts: as for `check_report`.
    """
    systems = []
    for row in rows:
        checks = tuple(
            check_report(report, f"{metric}={digits}", other_counts=other_counts)
            for metric, digits in row.values.items()
            if metric in report.values_by_metric
        )
        if checks:
            systems.append(PublishedSystem(row.system, row.source, checks))
    return tuple(systems)


SMALLEST_P = 1e-300
"""Below it a probability is no longer told from nothing."""


def protocol_differences(report: Report, protocol: EvalProtocol) -> list[str]:
    """What was evaluated otherwise than the published rows are, a text each; cutoffs change no number.

    Args:
        report: the report.
        protocol: that of the rows, such as `BENCHMARKS["cub200"].parts["dml"].eval_protocol`.
    """
    return [
        f"{field.name}={_plain(ours)} where theirs is {_plain(theirs)}"
        for field in dataclasses.fields(EvalProtocol)
        if (ours := getattr(report.protocol, field.name)) != (theirs := getattr(protocol, field.name))
        and field.name != "ks"
    ]


def _plain(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text or "none"


HEADS = ("system", "metric", "published", "prints so", "ours", "hits that print so", "verdict")


def published_lines(systems: Sequence[PublishedSystem]) -> list[str]:
    """The table of a report against published rows, and below it what is to be known of it, a line each.

    Where printed numbers cannot be shares of our queries, the first other count that all of them can be shares of is
    named, or else every one that some can.
    """
    table = [
        [system.system if first else "", *_cells(check)]
        for system in systems
        for first, check in zip((True, *(False,) * len(system.checks)), system.checks, strict=False)
    ]
    lines = make_table(HEADS, table, "plain").splitlines()
    sources: dict[str, list[str]] = {}
    for system in systems:
        sources.setdefault(system.source, []).append(system.system)
    lines += [one_line(f"source: {source} ({'; '.join(names)})") for source, names in sources.items()]
    checks = [check for system in systems for check in system.checks]
    found = next((check.n for check in checks if check.hits is not None), 0)
    alone = [check for check in checks if check.hits is not None and check.fitting_hits is None]
    if alone:
        everywhere = [other for other in alone[0].others if all(_fits(check, other.n) for check in alone)]
        likeliest = everywhere[:1] or [other for other in alone[0].others if any(_fits(c, other.n) for c in alone)]
        listed = "; ".join(f"{other.n:,} can ({other.what})" for other in likeliest)
        lines.append(
            f"{counted(len(alone), 'number')} above cannot be a share of our {counted(found, 'query', 'queries')}"
            + (f": {listed}" if listed else "")
        )
    if any(check.p_value is not None for check in checks):
        lines.append(
            "p: exact binomial test that takes queries as independent and the published number as a constant; both "
            "make it too small"
        )
    return lines


def _fits(check: PublishedCheck, n: int) -> bool:
    return bool(check.published.hits(n))


def _cells(check: PublishedCheck) -> tuple[str, ...]:
    published = check.published
    # The places that hold half a unit of the last printed digit, whether that was of a share or of percent.
    places = len(str(published.step.denominator * 10)) - 1
    low, high = (f"{float(end):.{places}f}" for end in (published.low, published.high))
    if check.hits is None:
        fitting = "-"
    elif check.fitting_hits is None:
        fitting = f"none of {check.n:,}"
    else:
        least, most = check.fitting_hits
        fitting = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return (check.metric, published.printed, f"{low} to {high}", f"{check.value:.6f}", fitting, _verdict(check))


def _verdict(check: PublishedCheck) -> str:
    if check.reproduced:
        return "reproduced"
    points = 100 * (check.value - float(check.published.value))
    away = f"{abs(points):.2f} points {'above' if points > 0 else 'below'}"
    if check.p_value is None or check.p_nearest is None:
        return away
    # What the rounding hides is no difference, so the nearer of the values that print so counts.
    p = f"p = {check.p_nearest:.3g}" if check.p_nearest >= SMALLEST_P else f"p < {SMALLEST_P:g}"
    return f"{away}, {'within noise' if check.p_nearest >= ALPHA else 'more than noise'} ({p})"
