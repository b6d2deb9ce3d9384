"""track(): runs in order, each against the first, the one before and the best."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from recallatk.comparison.differences import check_rows
from recallatk.comparison.pairing import Alignment, align, choose_metric, choose_rule
from recallatk.history.order import Order, missing_steps, order_runs
from recallatk.history.selection import Selection, select
from recallatk.report import Report, Value, is_hit
from recallatk.statistics import Interval, PairedTest, adjust_holm, interval_of_mean, paired_test
from recallatk.types import IntervalRule, RecallatkError
from recallatk.wording import counted, one_line

Against: TypeAlias = Literal["first", "previous", "best"]
AGAINST: tuple[Against, ...] = ("first", "previous", "best")


@dataclasses.dataclass(frozen=True)
class Change:
    """A run against another one on the same queries.

    Attributes:
        against: the name of the other run.
        test: this run less the other one.
        p_holm: the p-value of the test, adjusted (Holm) for all runs that are held against the same kind of run.
    """

    against: str
    test: PairedTest
    p_holm: float


@dataclasses.dataclass(frozen=True)
class Step:
    """One run of a history.

    Attributes:
        step: the epoch or commit, as text.
        name: the run.
        value: the metric, 0..1; None if the run failed.
        number: the step as a number; None where it is none.
        interval: around the value; None where nothing can be said.
        n: evaluated queries.
        encoder: the encoder's name.
        finished: when it was evaluated, in the form of ISO 8601.
        run_id: of its signature.
        error: why there is no value; empty if there is one.
        first: the change against the first run; None for that one.
        previous: the change against the run before.
        best: the change against the best run; None for that one.
    """

    step: str
    name: str
    value: float | None
    number: float | None = None
    interval: Interval | None = None
    n: int = 0
    encoder: str | None = None
    finished: str | None = None
    run_id: str | None = None
    error: str = ""
    first: Change | None = None
    previous: Change | None = None
    best: Change | None = None


@dataclasses.dataclass(frozen=True)
class History:
    """One metric over epochs or commits.

    Attributes:
        metric: the metric.
        steps: the runs in order, failed ones too.
        order: where the order comes from, in words.
        missing: steps that a regular series would have and that are not there: "4", "7 to 9".
        selection: what it costs to choose the best of these runs; None for one run.
        rule: how intervals are made.
        notes: what was forced, left aside or noticed, a line each.
    """

    metric: str
    steps: tuple[Step, ...]
    order: str
    missing: tuple[str, ...]
    selection: Selection | None
    rule: IntervalRule
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text()

    @property
    def evaluated(self) -> tuple[Step, ...]:
        """The runs that have a value."""
        return tuple(step for step in self.steps if step.value is not None)

    @property
    def failed(self) -> tuple[Step, ...]:
        """The runs that have none."""
        return tuple(step for step in self.steps if step.value is None)

    @property
    def best(self) -> Step:
        """The run with the highest value, the first of them."""
        return max(self.evaluated, key=lambda step: step.value or 0.0)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from recallatk.history.tables import as_html

        return as_html(self)

    def text(self, *, percent: bool = False) -> str:
        """What `recallatk history` prints."""
        from recallatk.history.tables import as_text

        return as_text(self, percent=percent)

    def markdown(self, *, percent: bool = False) -> str:
        """The table of runs as Markdown."""
        from recallatk.history.tables import as_table

        return as_table(self, "github", percent=percent)

    def latex(self, *, percent: bool = False) -> str:
        """The table of runs as LaTeX."""
        from recallatk.history.tables import as_table

        return as_table(self, "latex", percent=percent)

    def csv(self) -> str:
        """A row a run, with everything that is known of it."""
        from recallatk.history.tables import as_csv

        return as_csv(self)

    def record(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {"schema": "recallatk.history/1", **dataclasses.asdict(self), "best": self.best.name}

    def to_json(self) -> str:
        """The record as strict JSON, indented for people."""
        return json.dumps(self.record(), indent=2, ensure_ascii=False, allow_nan=False)


def track(
    runs: Mapping[str, Report | Exception],
    *,
    metric: str | None = None,
    by: str | None = None,
    force: bool = False,
    intervals: IntervalRule | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> History:
    """Put runs of one evaluation in order and hold each against the first, the one before and the best.

    The order is that of the number which tells the names of the runs apart (epoch_2 before epoch_10), else of the one
    that tells their encoders apart, else of the time when they were finished.

    Args:
        runs: reports by name; an exception for a run that failed.
        metric: such as `recall@1`; default: recall at the smallest k that all runs have.
        by: a regular expression that finds the step in the name of a run, or in its encoder.
        force: also put runs that differ in protocol or data in one curve, on the queries that all of them have.
        intervals: how intervals are made; default: as the first run made its own.
        on_progress: called with the number of tests that are done and that there are.

    Raises:
        RecallatkError: no run has a value, or the runs are not comparable (and not forced).
        ChoiceError: not every run has the metric, or `by` does not give each run a step.
    """
    names = list(runs)
    order = order_runs(names, [_encoder(run) for run in runs.values()], [_finished(run) for run in runs.values()], by)
    ordered = {names[row]: _checked(names[row], runs[names[row]]) for row in order.rows}
    reports = {name: run for name, run in ordered.items() if isinstance(run, Report)}
    failed = {name: one_line(str(run)) for name, run in ordered.items() if not isinstance(run, Report)}
    if not reports:
        told = "; ".join(f"{name}: {error}" for name, error in failed.items()) or "there are none"
        raise RecallatkError(f"no run can be put in a curve: {told}")
    steps: dict[str, dict[str, Any]]
    numbers = order.numbers or (None,) * len(ordered)
    steps = {
        name: {"step": step, "number": number} for name, step, number in zip(ordered, order.steps, numbers, strict=True)
    }
    if len(reports) == 1:
        return _alone(reports, failed, steps, order, metric)
    aligned = align(reports, force=force)
    chosen = choose_metric(aligned, metric)
    rule = choose_rule(next(iter(reports.values())), intervals)
    curve = _Curve(aligned, chosen, rule, on_progress)
    changes: dict[str, dict[str, Change]] = {against: curve.changes(against) for against in AGAINST}
    made = {
        name: Step(
            **steps[name],
            name=name,
            value=curve.values[name],
            interval=curve.interval(name),
            n=len(aligned.ids),
            **_known(report),
            first=changes["first"].get(name),
            previous=changes["previous"].get(name),
            best=changes["best"].get(name),
        )
        for name, report in reports.items()
    }
    errors = [
        change.test.interval.standard_error
        for change in changes["previous"].values()
        if change.test.interval is not None and change.test.interval.standard_error is not None
    ]
    notes = (*aligned.differences, *aligned.dropped.lines(), *aligned.notes)
    forced = []
    if aligned.differences or aligned.dropped.lines():
        forced.append(f"forced into one curve, on {counted(len(aligned.ids), 'common query', 'common queries')}")
    if aligned.by_row:
        forced.append("forced: there are no ids; this holds if the rows of all runs are the same queries in one order")
    return History(
        chosen,
        _with_failed(steps, made, failed),
        order.how,
        missing_steps(order.numbers),
        select(len(reports), errors),
        rule,
        (*forced, *notes),
    )


def _checked(name: str, run: Report | Exception) -> Report | Exception:
    """A run, or why its rows are not those of its record."""
    try:
        if isinstance(run, Report):
            check_rows(name, run)
    except RecallatkError as error:
        return error
    return run


def _alone(
    reports: Mapping[str, Report],
    failed: Mapping[str, str],
    steps: Mapping[str, Mapping[str, Any]],
    order: Order,
    metric: str | None,
) -> History:
    """A curve of one point, as its report has it."""
    ((name, report),) = reports.items()
    metric = metric or next(iter(report))
    if metric not in report:
        raise RecallatkError(f"{name} has no {metric}; it has {', '.join(report)}")
    value: Value = report.values_by_metric[metric]
    step = Step(**steps[name], name=name, value=value.value, interval=value.interval, n=value.n, **_known(report))
    made = _with_failed(steps, {name: step}, failed)
    return History(metric, made, order.how, missing_steps(order.numbers), None, report.intervals)


def _with_failed(
    steps: Mapping[str, Mapping[str, Any]], made: Mapping[str, Step], failed: Mapping[str, str]
) -> tuple[Step, ...]:
    return tuple(
        made[name] if name in made else Step(**place, name=name, value=None, error=failed[name] or "it failed")
        for name, place in steps.items()
    )


def _known(report: Report) -> dict[str, Any]:
    return {"encoder": _encoder(report), "finished": _finished(report), "run_id": report.signature.run_id}


class _Curve:
    """The values of every run on the common queries, and tests between any two, each made once."""

    def __init__(
        self,
        aligned: Alignment,
        metric: str,
        rule: IntervalRule,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.metric, self.rule, self.names = metric, rule, list(aligned.reports)
        self.clusters = aligned.clusters(rule)
        self.hits = is_hit(metric)
        self.per_query = {name: aligned.values(name, metric) for name in self.names}
        self.movable = {name: aligned.movable(name, metric) for name in self.names}
        self.values = {name: aligned.mean(name, metric, self.clusters) for name in self.names}
        self.best = max(self.names, key=self.values.__getitem__)
        self._done, self._on_progress = 0, on_progress
        self._tests: dict[tuple[str, str], PairedTest] = {}
        # Of a difference there is no Wilson interval; where every query stands on its own, so do the clusters.
        self._paired = dataclasses.replace(rule, ci="cluster-t") if rule.ci in ("wilson", "clopper-pearson") else rule

    def interval(self, name: str) -> Interval | None:
        return interval_of_mean(self.per_query[name], self.clusters, rule=self.rule, hits=self.hits)

    def changes(self, against: Against) -> dict[str, Change]:
        """Each run against the first, the one before or the best, with Holm's adjustment over all of these."""
        pairs = [(other, name) for name in self.names if (other := self._other(name, against)) not in (None, name)]
        tests = [self._test(str(other), name) for other, name in pairs]
        adjusted = adjust_holm([test.p_value for test in tests])
        return {
            name: Change(str(other), test, p) for (other, name), test, p in zip(pairs, tests, adjusted, strict=True)
        }

    def _other(self, name: str, against: Against) -> str | None:
        row = self.names.index(name)
        others: Sequence[str | None] = (self.names[0], self.names[row - 1] if row else None, self.best)
        return others[AGAINST.index(against)]

    def _test(self, first: str, second: str) -> PairedTest:
        self._done += 1
        if (first, second) not in self._tests:
            one, other = self.movable[first], self.movable[second]
            self._tests[first, second] = paired_test(
                self.per_query[first],
                self.per_query[second],
                self.clusters,
                rule=self._paired,
                movable=None if one is None or other is None else one | other,
                hits=self.hits,
            )
        if self._on_progress is not None:
            self._on_progress(self._done, len(AGAINST) * (len(self.names) - 1))
        return self._tests[first, second]


def _encoder(run: Report | Exception) -> str | None:
    return run.provenance.encoder if isinstance(run, Report) else None


def _finished(run: Report | Exception) -> str | None:
    return run.provenance.environment.get("finished") if isinstance(run, Report) else None
