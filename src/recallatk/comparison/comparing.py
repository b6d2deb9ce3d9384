"""Runs compared with a baseline: values, paired tests, and the queries and labels that changed."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from recallatk.comparison.pairing import (
    Alignment,
    Dropped,
    Values,
    align,
    choose_metric,
    choose_rule,
    pair_at,
)
from recallatk.comparison.rendering import as_csv, as_html, as_latex, as_markdown, as_text
from recallatk.report import Report
from recallatk.report import is_hit as _is_hit
from recallatk.statistics import (
    RESAMPLES,
    SEED,
    Clusters,
    Interval,
    PairedTest,
    adjust_holm,
    interval_of_mean,
    paired_test,
)
from recallatk.types import IntervalRule, Label, each_label

SCHEMA = "recallatk.comparison/1"


@dataclasses.dataclass(frozen=True)
class ComparedValue:
    """One metric of one system on the compared queries.

    Attributes:
        value: in 0..1, under the tie rule and average of its protocol.
        interval: how far it would move over other queries; None where nothing can be said.
    """

    value: float
    interval: Interval | None


@dataclasses.dataclass(frozen=True)
class System:
    """One run.

    Attributes:
        name: what it is called.
        run_id: of its signature.
        signature: its recipe.
        encoder: the name of its encoder, where that is known.
        values: each metric that all runs have, on the compared queries.
    """

    name: str
    run_id: str
    signature: str
    encoder: str | None
    values: Mapping[str, ComparedValue]


@dataclasses.dataclass(frozen=True)
class Contrast:
    """One run against the baseline, at the metric of the comparison.

    Attributes:
        name: the run.
        test: what was found; differences are this run minus the baseline.
        p_holm: the p-value, adjusted by Holm for the number of runs; with one run the same.
    """

    name: str
    test: PairedTest
    p_holm: float


@dataclasses.dataclass(frozen=True)
class ChangedQuery:
    """A query whose value some run changes; columns are in the order of the systems.

    Attributes:
        id: the query.
        label: its label.
        values: its value in each system.
        ranks: (first, last) rank of its best positive in each: ties decide where between; None without a positive.
        best: its best positive in each; None without one.
    """

    id: str
    label: Label
    values: tuple[float, ...]
    ranks: tuple[tuple[int, int] | None, ...]
    best: tuple[str | None, ...]


@dataclasses.dataclass(frozen=True)
class ComparedLabel:
    """The queries of one label.

    Attributes:
        label: the label.
        n: how many compared queries have it.
        values: their mean in each system, in the order of the systems.
    """

    label: str
    n: int
    values: tuple[float, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """What comparing runs says.

    Attributes:
        metric: what was tested; other metrics are shown beside it.
        average: micro or macro.
        intervals: how intervals were made; its confidence sets the level of the verdict.
        systems: the runs; the first is the baseline.
        contrasts: each other run against the baseline.
        ids: the compared queries.
        changed: the queries whose value some run changes, the largest loss first, then by id.
        labels: the labels of the compared queries, the largest loss of the first other run first, then by name.
        differences: what differs in protocol or data, in words; empty unless forced.
        dropped: the queries that were left aside; none unless forced.
        notes: what differs and does not matter, and what the runs were warned of, in words.
        by_row: queries were paired by row, as they have no ids.
    """

    metric: str
    average: str
    intervals: IntervalRule
    systems: tuple[System, ...]
    contrasts: tuple[Contrast, ...]
    ids: tuple[str, ...]
    changed: tuple[ChangedQuery, ...]
    labels: tuple[ComparedLabel, ...]
    differences: tuple[str, ...]
    dropped: Dropped
    notes: tuple[str, ...]
    by_row: bool

    @property
    def baseline(self) -> System:
        """The run that the others are compared with."""
        return self.systems[0]

    @property
    def is_hit(self) -> bool:
        """Whether the metric is a hit or a miss for each query."""
        return _is_hit(self.metric)

    @property
    def several_labels(self) -> bool:
        """Whether some compared query has several labels."""
        return sum(label.n for label in self.labels) > len(self.ids)

    @property
    def alpha(self) -> float:
        """The level: differences with p above it are not shown."""
        return self.intervals.alpha

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return as_html(self)

    def text(self, *, everything: bool = False) -> str:
        """For people: the verdict, then sections in square brackets.

        Args:
            everything: every changed query and label, not the first ten.
        """
        return as_text(self, everything=everything)

    def markdown(self, *, everything: bool = False) -> str:
        """The same as Markdown tables."""
        return as_markdown(self, everything=everything)

    def latex(self) -> str:
        """A table of the systems with the difference, its interval and p-value, for a paper."""
        return as_latex(self)

    def csv(self) -> str:
        """One table with a column `row`: `system` (a metric of a system), `query` (a changed one), `label`."""
        return as_csv(self)

    def record(self) -> dict[str, Any]:
        """Everything as JSON values: lists, dicts, text, plain numbers."""
        record = {
            "schema": SCHEMA,
            "metric": self.metric,
            "average": self.average,
            "num_common": len(self.ids),
            "paired_by": "row" if self.by_row else "id",
            "intervals": dataclasses.asdict(self.intervals),
            "systems": [dataclasses.asdict(system) for system in self.systems],
            "contrasts": [dataclasses.asdict(contrast) for contrast in self.contrasts],
            "changed": [dataclasses.asdict(query) for query in self.changed],
            "labels": [dataclasses.asdict(label) for label in self.labels],
            "differences": list(self.differences),
            "dropped": dataclasses.asdict(self.dropped),
            "notes": list(self.notes),
        }
        plain: dict[str, Any] = json.loads(json.dumps(record, allow_nan=False))
        return plain

    def to_json(self) -> str:
        """The record as strict JSON, indented for people."""
        return json.dumps(self.record(), indent=2, ensure_ascii=False, allow_nan=False)


def compare(
    reports: Mapping[str, Report],
    *,
    metric: str | None = None,
    force: bool = False,
    intervals: IntervalRule | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Comparison:
    """Compare runs with the first of them, on the same queries.

    Args:
        reports: at least two runs by name; the first is the baseline.
        metric: what is tested, such as `recall@1`; default: recall at the smallest k that all runs have.
        force: compare runs that differ in protocol or data, on the queries that all of them have.
        intervals: how intervals are made; default: over the clusters and at the confidence of the first run.
        resamples: how many sign flips are sampled where there are too many to count them all.
        seed: of that sample.

    Raises:
        RecallatkError: the runs are not comparable (and not forced), or have no query in common.
        ChoiceError: a metric that not all runs have, a column that is not there, an interval that is none of a
            difference.

    >>> import numpy as np
    >>> from recallatk import EmbeddingSet, evaluate_embeddings
    >>> ids, labels = ["p", "q", "r", "s"], ["a", "a", "b", "b"]
    >>> base = evaluate_embeddings(EmbeddingSet(np.eye(4)[[0, 1, 0, 1]], labels, ids=ids))
    >>> new = evaluate_embeddings(EmbeddingSet(np.eye(4)[[0, 0, 1, 1]], labels, ids=ids))
    >>> found = compare({"base": base, "new": new})
    >>> found.contrasts[0].test.difference, found.contrasts[0].test.wins
    (1.0, 4)
    """
    aligned = align(reports, force=force)
    metric = choose_metric(aligned, metric)
    baseline = next(iter(reports))
    rule = choose_rule(reports[baseline], intervals)
    clusters = aligned.clusters(rule)
    tests = []
    for name in list(reports)[1:]:
        pairing = pair_at(aligned, name, metric, clusters, rule)
        tests.append(
            paired_test(
                pairing.first,
                pairing.second,
                clusters,
                rule=rule,
                movable=pairing.movable,
                hits=pairing.hits,
                resamples=resamples,
                seed=seed,
            )
        )
    adjusted = adjust_holm([test.p_value for test in tests])
    values = np.stack([aligned.values(name, metric) for name in reports])
    return Comparison(
        metric=metric,
        average=reports[baseline].protocol.average,
        intervals=rule,
        systems=tuple(_system(aligned, name, clusters, rule) for name in reports),
        contrasts=tuple(map(Contrast, list(reports)[1:], tests, adjusted)),
        ids=aligned.ids,
        changed=_changed(aligned, values),
        labels=_labels(aligned, values),
        differences=aligned.differences,
        dropped=aligned.dropped,
        notes=(*aligned.notes, *_warnings(reports)),
        by_row=aligned.by_row,
    )


def _warnings(reports: Mapping[str, Report]) -> list[str]:
    """What the runs were warned of, each with the runs that were."""
    warned: dict[str, list[str]] = {}
    for name, report in reports.items():
        for text in report.warnings:
            warned.setdefault(text, []).append(name)
    return [f"warning of {' and '.join(names)}: {text}" for text, names in warned.items()]


def _system(aligned: Alignment, name: str, clusters: Clusters, rule: IntervalRule) -> System:
    report = aligned.reports[name]
    values = {}
    for metric in aligned.metrics:
        each = aligned.values(name, metric)
        interval = interval_of_mean(each, clusters, rule=rule, hits=_is_hit(metric))
        values[metric] = ComparedValue(aligned.mean(name, metric, clusters), interval)
    return System(name, report.signature.run_id, str(report.signature), report.provenance.encoder, values)


def _changed(aligned: Alignment, values: Values) -> tuple[ChangedQuery, ...]:
    """The queries that some run changes, the largest loss first."""
    largest_loss = (values[1:] - values[0]).min(axis=0)
    rows = np.flatnonzero((np.abs(values[1:] - values[0]) > 1e-9).any(axis=0))
    rows = rows[np.argsort(largest_loss[rows], kind="stable")]  # equal losses stay in the order of ids
    columns = []
    for name in aligned.reports:
        ahead, tied, level = (
            np.asarray(aligned.column(name, column))
            for column in ("negatives_ahead", "negatives_tied", "positives_tied")
        )
        best = aligned.column(name, "best_positive")
        columns.append(
            [
                ((int(ahead[row]) + 1, int(ahead[row] + tied[row]) + 1) if level[row] else None, best[row])
                for row in rows.tolist()
            ]
        )
    return tuple(
        ChangedQuery(
            aligned.ids[row],
            aligned.labels[row],
            tuple(values[:, row].tolist()),
            tuple(column[place][0] for column in columns),
            tuple(column[place][1] for column in columns),
        )
        for place, row in enumerate(rows.tolist())
    )


def _labels(aligned: Alignment, values: Values) -> tuple[ComparedLabel, ...]:
    """The mean of each label in each system; a query with several labels counts for each of them."""
    if not any(any(each_label(label)) for label in aligned.labels):
        return ()
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(aligned.labels):
        for one in filter(None, each_label(label)):
            rows.setdefault(one, []).append(row)
    found = [
        ComparedLabel(label, len(own), tuple(math.fsum(system[own]) / len(own) for system in values))
        for label, own in rows.items()
    ]
    return tuple(sorted(found, key=lambda one: (round(one.values[1] - one.values[0], 12), one.label)))
