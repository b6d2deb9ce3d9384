"""Runs side by side, query by query: what may be compared, what was dropped, and the values in one order.

Queries are paired by id, never by position, and stand in the order of their ids, so the order of a run's rows changes
nothing. Where ids were made up (row numbers) nothing says that two rows are one query; that takes `force`.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.comparison.differences import check_rows, find_differences, find_notes
from recallatk.report import Report, is_hit
from recallatk.statistics import Clusters, cluster_queries
from recallatk.types import ChoiceError, IntervalRule, Label, RecallatkError
from recallatk.wording import counted, one_line

Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

IDS_NAMED = 3
"""How many ids a message names."""


@dataclasses.dataclass(frozen=True)
class Dropped:
    """The queries that not every run can say something of.

    Attributes:
        only_in: by run, the ids that it has and some other run has not; runs without such ids are absent.
        excluded_in: by run, the ids that all runs have and that this one left out (no positive) and another did not.
    """

    only_in: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    excluded_in: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def lines(self) -> list[str]:
        """What was dropped, a line a run and reason, with a few ids."""
        only = [
            f"{counted(len(ids), 'query', 'queries')} only in {name}: {_few(ids)}" for name, ids in self.only_in.items()
        ]
        return only + [
            f"{counted(len(ids), 'query', 'queries')} without a positive only in {name}: {_few(ids)}"
            for name, ids in self.excluded_in.items()
        ]


@dataclasses.dataclass(frozen=True, eq=False)
class Alignment:
    """Runs on the evaluated queries that all of them have.

    Attributes:
        reports: the runs by name; the first is the baseline.
        rows: for each run the rows of the common queries, in the order of `ids`.
        ids: the common queries, sorted; row numbers, in their order, where ids were made up.
        labels: their labels, as the baseline has them.
        metrics: the metrics that all runs have, in the order of the baseline.
        differences: what differs and should not, in words; empty unless forced.
        notes: what differs and does not matter, in words.
        dropped: the queries that were left aside; none unless forced.
        by_row: queries were paired by row, as they have no ids.
    """

    reports: Mapping[str, Report]
    rows: Mapping[str, npt.NDArray[np.int64]]
    ids: tuple[str, ...]
    labels: tuple[Label, ...]
    metrics: tuple[str, ...]
    differences: tuple[str, ...]
    notes: tuple[str, ...]
    dropped: Dropped
    by_row: bool

    def column(self, name: str, column: str) -> Any:
        """A column of the queries of one run, for the common queries."""
        values = _column(name, self.reports[name], column)
        rows = self.rows[name]
        return values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows.tolist()]

    def values(self, name: str, metric: str) -> Values:
        """The value of each common query in one run, under the tie rule of its protocol."""
        return np.asarray(self.column(name, metric), np.float64)

    def mean(self, name: str, metric: str, clusters: Clusters) -> float:
        """The mean over the common queries; where these are all of the run's, to the last digit what it reported."""
        report, values = self.reports[name], self.values(name, metric)
        if len(values) == report.num_evaluated and clusters.average == report.protocol.average:
            return report[metric]
        return clusters.mean(values)

    def movable(self, name: str, metric: str) -> Flags | None:
        """Of a hit at k: the queries for which the order of equal similarities decides; None of another metric."""
        if not is_hit(metric):
            return None
        k = int(metric.partition("@")[2])
        ahead, tied, level = (
            np.asarray(self.column(name, column), np.int64)
            for column in ("negatives_ahead", "negatives_tied", "positives_tied")
        )
        # With every tie broken for us it is a hit, with every tie broken against us a miss. (k - tied, not
        # ahead + tied: k may be as large as an integer can be.)
        movable: Flags = (level > 0) & (ahead < k) & (ahead >= k - tied)
        return movable

    def clusters(self, rule: IntervalRule) -> Clusters:
        """The clusters of the common queries, from what the baseline knows of them.

        Raises:
            ChoiceError: the baseline has no such column, or the rule does not fit a mean over labels.
        """
        name, baseline = next(iter(self.reports.items()))
        average = baseline.protocol.average
        if average == "macro" and rule.ci != "none" and (rule.cluster != "label" or not rule.clustered):
            raise ChoiceError(
                f"ci={rule.ci}, cluster={rule.cluster}: these runs are means over labels (average=macro), so the "
                "labels are their clusters; use cluster-t or cluster-bootstrap over label, or none"
            )
        if rule.cluster == "label":
            values: Any = self.labels
        elif f"group.{rule.cluster}" in baseline.queries:
            values = self.column(name, f"group.{rule.cluster}")
        else:
            known = ["label", *(column[6:] for column in baseline.queries if column.startswith("group."))]
            raise ChoiceError(
                f"cluster={rule.cluster!r} is no column of the queries of {name}; its columns are: {', '.join(known)}"
            )
        return cluster_queries([value or "" for value in values], column=rule.cluster, average=average)


@dataclasses.dataclass(frozen=True, eq=False)
class Pairing:
    """Two runs at one metric, query by query: what a paired test takes.

    Attributes:
        metric: the metric.
        ids: the common evaluated queries, sorted.
        labels: their labels, as the first run has them.
        first: (n,) the value of each in the first run.
        second: (n,) in the second run.
        clusters: which queries belong together.
        movable: (n,) the queries whose hit the order of ties decides in one of the runs; None of other metrics.
        hits: whether the values are hits and misses.
        rule: how intervals are made.
        differences: what differs and should not, in words; empty unless forced.
        notes: what differs and does not matter, in words.
        dropped: the queries that were left aside; none unless forced.
    """

    metric: str
    ids: tuple[str, ...]
    labels: tuple[Label, ...]
    first: Values
    second: Values
    clusters: Clusters
    movable: Flags | None
    hits: bool
    rule: IntervalRule
    differences: tuple[str, ...]
    notes: tuple[str, ...]
    dropped: Dropped


def pair(
    first: Report,
    second: Report,
    *,
    metric: str | None = None,
    force: bool = False,
    intervals: IntervalRule | None = None,
    names: tuple[str, str] = ("the first run", "the second run"),
    forcible: bool = True,
) -> Pairing:
    """Pair two runs by query id.

    Args:
        first: the baseline.
        second: the run that is compared with it.
        metric: such as `recall@1`; default: recall at the smallest k that both have.
        force: also pair runs that differ in protocol or data, on the queries that both have.
        intervals: how intervals are made; default: as the first run made its own.
        names: what messages call them.
        forcible: whether `force` is offered where the runs do not fit each other.

    Raises:
        RecallatkError: they are not comparable (and not forced), or have no query in common.
        ChoiceError: a metric that one of them has not, or a column that is not there.
    """
    if names[0] == names[1]:
        names = (names[0], f"{names[1]} (2)")
    aligned = align({names[0]: first, names[1]: second}, force=force, forcible=forcible)
    metric = choose_metric(aligned, metric)
    rule = choose_rule(first, intervals)
    return pair_at(aligned, names[1], metric, aligned.clusters(rule), rule)


def pair_at(aligned: Alignment, name: str, metric: str, clusters: Clusters, rule: IntervalRule) -> Pairing:
    """The baseline and one other of aligned runs."""
    baseline = next(iter(aligned.reports))
    movable = [aligned.movable(run, metric) for run in (baseline, name)]
    return Pairing(
        metric,
        aligned.ids,
        aligned.labels,
        aligned.values(baseline, metric),
        aligned.values(name, metric),
        clusters,
        None if movable[0] is None or movable[1] is None else movable[0] | movable[1],
        is_hit(metric),
        rule,
        aligned.differences,
        aligned.notes,
        aligned.dropped,
    )


def align(reports: Mapping[str, Report], *, force: bool = False, forcible: bool = True) -> Alignment:
    """Put runs side by side on the evaluated queries that all of them have.

    Args:
        reports: at least two, by name; the first is the baseline.
        force: also put runs side by side that differ in protocol or data.
        forcible: whether `force` is offered where the runs do not fit each other.

    Raises:
        RecallatkError: they are not comparable (and not forced), or have no query in common.
    """
    if len(reports) < 2:
        raise ChoiceError("a comparison takes at least two runs; name another one")
    names = list(reports)
    baseline = reports[names[0]]
    columns = {name: _composed(_column(name, report, "id")) for name, report in reports.items()}
    by_row = any(has_made_up_ids(report) for report in reports.values())
    if by_row:
        _check_row_numbers(reports, force=force, forcible=forcible)
    for name, report in reports.items():
        check_rows(name, report)
    places = {name: {one: row for row, one in enumerate(ids)} for name, ids in columns.items()}
    for name, ids in columns.items():
        if len(places[name]) < len(ids):
            raise RecallatkError(f"{name}: an id stands twice among its queries; the run is damaged, repeat it")
    everywhere = set.intersection(*(set(ids) for ids in places.values()))
    common = [one for one in columns[names[0]] if one in everywhere]
    if not by_row:
        common.sort()
    only = {name: tuple(sorted(set(ids) - everywhere)) for name, ids in places.items()}
    rows = {name: np.array([places[name][one] for one in common], np.int64) for name in names}
    evaluated = {name: _evaluated(name, reports[name])[rows[name]] for name in names}
    everyone = np.logical_and.reduce(list(evaluated.values()))
    someone = np.logical_or.reduce(list(evaluated.values()))
    excluded = {name: tuple(common[row] for row in np.flatnonzero(someone & ~evaluated[name])) for name in names}
    dropped = Dropped(
        {name: ids for name, ids in only.items() if ids}, {name: ids for name, ids in excluded.items() if ids}
    )
    named = {name: (report, rows[name]) for name, report in reports.items()}
    differences = [
        line for name in names[1:] for line in find_differences(names[0], name, named, common, by_row=by_row)
    ]
    ids = tuple(common[row] for row in np.flatnonzero(everyone))
    if (differences or dropped.lines()) and not force:
        what = "; ".join([*dropped.lines(), *dict.fromkeys(differences)])
        common_ones = (
            f"the {counted(len(ids), 'query', 'queries')} that {'both' if len(names) == 2 else 'all'} have in common"
        )
        forced = f", or compare {common_ones} all the same with force=True (--force)" if forcible else ""
        raise RecallatkError(one_line(f"{' and '.join(names)} are not comparable: {what}; evaluate them alike{forced}"))
    if not ids:
        raise RecallatkError(
            one_line(f"{' and '.join(names)} have no evaluated query in common: {'; '.join(dropped.lines())}")
        )
    labels = _column(names[0], baseline, "label")
    return Alignment(
        reports,
        {name: places_[everyone] for name, places_ in rows.items()},
        ids,
        tuple(labels[row] for row in rows[names[0]][everyone].tolist()),
        tuple(metric for metric in baseline if all(metric in report for report in reports.values())),
        tuple(dict.fromkeys(differences)),
        tuple(dict.fromkeys(line for name in names[1:] for line in find_notes(names[0], name, named))),
        dropped,
        by_row,
    )


def choose_metric(aligned: Alignment, metric: str | None) -> str:
    """The metric that was asked for, or recall at the smallest k that all runs have.

    Raises:
        ChoiceError: not all of them have it.
    """
    known = ", ".join(aligned.metrics) or "none"
    if metric is None:
        metric = next((name for name in aligned.metrics if name.startswith("recall@")), "")
        if not metric:
            cutoffs = (
                f"{name} has k={','.join(map(str, report.protocol.ks))}" for name, report in aligned.reports.items()
            )
            raise ChoiceError(
                one_line(
                    f"these runs have recall at no k in common ({', '.join(cutoffs)}); evaluate them at one k, or "
                    f"choose a metric that all of them have with metric=... (--metric): {known}"
                )
            )
    for name, report in aligned.reports.items():
        if metric not in report:
            raise ChoiceError(one_line(f"{name} has no {metric}; metrics that all runs have: {known}"))
    return metric


def choose_rule(baseline: Report, intervals: IntervalRule | None = None) -> IntervalRule:
    """The rule that was asked for; else clusters and confidence as in the baseline's own intervals.

    An interval of one share (wilson, clopper-pearson) is none of a difference; then, and where a run has none, the
    default method stands in.
    """
    own = baseline.intervals
    if intervals is not None:
        return intervals
    return own if own.clustered else IntervalRule(cluster=own.cluster, confidence=own.confidence)


def has_made_up_ids(report: Report) -> bool:
    """Whether its queries are known by row numbers only; of a record that does not say, whether they look so."""
    if report.ids_given is not None:
        return not report.ids_given
    return all(one == str(row) for row, one in enumerate(report.queries.get("id", ())))


def _check_row_numbers(reports: Mapping[str, Report], *, force: bool, forcible: bool) -> None:
    """Without ids rows are paired only where that was asked for and can be."""
    without = [name for name, report in reports.items() if has_made_up_ids(report)]
    told = f"the queries of {' and '.join(without)} have no ids"
    how = "give ids (a table of labels with a column `id`, --query-ids for scores, ids= in Python) and repeat the run"
    if len(without) < len(reports):
        other = next(name for name in reports if name not in without)
        raise RecallatkError(
            one_line(f"{told}, and those of {other} have: nothing says which rows are the same query; {how}")
        )
    sizes = {name: report.num_queries for name, report in reports.items()}
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{n:,} in {name}" for name, n in sizes.items())
        raise RecallatkError(one_line(f"{told}, and their numbers differ ({shown}): rows cannot be paired; {how}"))
    if not force:
        forced = ", or pair them row by row all the same with force=True (--force)" if forcible else ""
        raise RecallatkError(
            one_line(f"{told}, so nothing says that row 0 of one is row 0 of the other; {how}{forced}")
        )


def _composed(ids: Sequence[str]) -> Sequence[str]:
    """Ids as the signature takes them: in Unicode's composed form, where that keeps them apart."""
    composed = [unicodedata.normalize("NFC", one) for one in ids]
    return composed if len(set(composed)) == len(set(ids)) else ids


def _evaluated(name: str, report: Report) -> Flags:
    return ~np.isnan(np.asarray(_column(name, report, next(iter(report.values_by_metric))), np.float64))


def _column(name: str, report: Report, column: str) -> Any:
    if column not in report.queries:
        raise RecallatkError(
            one_line(f"{name}: its queries have no column {column!r}; repeat the run with this version")
        )
    return report.queries[column]


def _few(ids: tuple[str, ...]) -> str:
    more = f" and {len(ids) - IDS_NAMED:,} more" if len(ids) > IDS_NAMED else ""
    return one_line(", ".join(map(repr, ids[:IDS_NAMED]))) + more
