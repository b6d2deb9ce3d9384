"""A report against printed numbers: one that somebody names, or the rows that are known of a benchmark."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from recallatk.report import Report
from recallatk.statistics.published import PublishedCheck, check_published, parse_published
from recallatk.types import ChoiceError
from recallatk.wording import one_line


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

    def lines(self) -> list[str]:
        """The verdicts, a line each, under the system's name; then what ours would have to be to print so."""
        lines = [f"{one_line(self.system)} ({one_line(self.source)})"]
        for check in self.checks:
            lines.append(
                f"  {check.metric}: published {check.published.printed}, ours {check.value:.6f}: {check.verdict}"
            )
            if check.hits is not None and check.fitting_hits is None:
                lines.append(f"  no count of hits among our {check.n:,} queries prints so: another number of queries")
        return lines


def check_report(report: Report, text: str) -> PublishedCheck:
    """Hold a printed number against a report.

    Args:
        report: the report.
        text: as for `parse_published`; without a metric it is of the report's first recall@k.

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


def compare_with_published(report: Report, rows: Sequence[Published]) -> list[PublishedSystem]:
    """Hold a report against every row that was published for a benchmark.

    Printed numbers of metrics that the report does not have are left out; a system of which none is left is too.
    """
    systems = []
    for row in rows:
        checks = tuple(
            check_report(report, f"{metric}={digits}")
            for metric, digits in row.values.items()
            if metric in report.values_by_metric
        )
        if checks:
            systems.append(PublishedSystem(row.system, row.source, checks))
    return systems
