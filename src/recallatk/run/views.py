"""Several evaluations of one encoding: both directions, folds, and the mean over folds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from recallatk.report import Report, Value, is_hit
from recallatk.run.encoded import EncodedDataset, evaluate_encoded, of_fold
from recallatk.statistics import cluster_queries, describe_rule, interval_of_mean
from recallatk.types import EmbeddingSet, IntervalRule, RecallatkError, View

BOTH_DIRECTIONS: Mapping[str, View] = {"query-to-gallery": View(), "gallery-to-query": View(swapped=True)}
"""From the queries to the gallery, and back."""


@dataclasses.dataclass(frozen=True)
class FoldMean:
    """The mean over folds, each of which was evaluated alone.

    Attributes:
        name: what is averaged, such as "1k-text-to-image".
        runs: the folds by name, with the run id of each.
        values: each metric: the mean of the folds; `n` counts the queries of all of them.
        intervals: how the intervals were made: over the queries of all folds together.
    """

    name: str
    runs: Mapping[str, str]
    values: Mapping[str, Value]
    intervals: IntervalRule

    @property
    def rule(self) -> str:
        """How the intervals were made, in words; empty where there are none."""
        rule = describe_intervals(self.intervals, self.values)
        return f"{rule}; the queries of all folds together" if rule else ""

    def record(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "schema": "recallatk.folds/1",
            "name": self.name,
            "runs": dict(self.runs),
            "metrics": {
                name: {key: one for key, one in dataclasses.asdict(value).items() if one is not None}
                for name, value in self.values.items()
            },
            "intervals": dataclasses.asdict(self.intervals),
        }


def describe_intervals(rule: IntervalRule, values: Mapping[str, Value], *, several: bool = False) -> str:
    """How the intervals of values were made, with why some were made otherwise; empty where there are none."""
    known = [value.interval for value in values.values() if value.interval is not None]
    if not known:
        return ""
    odd = sorted({f"{interval.method}: {interval.reason}" for interval in known if interval.reason})
    said = describe_rule(rule, known[0].clusters, several=several)
    return said + (f", but for some by {'; '.join(odd)}" if odd else "")


def view_of(encoded: EncodedDataset, name: str) -> EncodedDataset:
    """What one of the views of a data set evaluates; `evaluate_encoded` takes it.

    Raises:
        RecallatkError: the view needs a gallery, a column `fold`, or a direction that judged pairs do not have.
    """
    view = encoded.views[name]
    query, gallery = encoded.query, encoded.gallery
    if view.swapped and (gallery is None or encoded.qrels is not None):
        what = "a gallery of its own" if gallery is None else "labels: judged pairs have one direction"
        raise RecallatkError(f"{name}: the way back from the gallery to the queries needs {what}")
    if view.fold is not None:
        query = of_fold(query, view.fold)
        gallery = None if gallery is None else of_fold(gallery, view.fold)
    if view.swapped and gallery is not None:
        query, gallery = _as("query", gallery), _as("gallery", query)
    provenance = dataclasses.replace(encoded.provenance, data=_data_of(encoded.provenance.data, name, view))
    return dataclasses.replace(encoded, query=query, gallery=gallery, provenance=provenance, views={})


def evaluate_views(encoded: EncodedDataset, **options: Any) -> dict[str, Report]:
    """Evaluate every view of an encoded data set, such as both directions between images and texts.

    Args:
        encoded: what `encode_dataset` gives for a data set with `views`; embeddings get them with
            `dataclasses.replace(encoded, views=BOTH_DIRECTIONS)`.
        options: as for `evaluate_encoded`.

    Returns:
        A report for each view, by its name.

    Raises:
        RecallatkError: as for `view_of` and `evaluate_encoded`; or the data set has no views.
    """
    if not encoded.views:
        raise RecallatkError("the data set has one evaluation only; use evaluate_encoded")
    return {name: evaluate_encoded(view_of(encoded, name), **options) for name in encoded.views}


def average_folds(views: Mapping[str, View], reports: Mapping[str, Report]) -> list[FoldMean]:
    """The mean over folds of each group of views that says so; a group of which a report is missing has none.

    The interval is over the queries of all folds together, in the clusters that each fold has (an image with its
    captions lies in one fold). With average=macro there is none.
    """
    groups: dict[str, list[str]] = {}
    for name, view in views.items():
        if view.mean_of:
            groups.setdefault(view.mean_of, []).append(name)
    complete = {mean: names for mean, names in groups.items() if all(name in reports for name in names)}
    return [_average(mean, {name: reports[name] for name in names}) for mean, names in complete.items()]


def _average(name: str, folds: Mapping[str, Report]) -> FoldMean:
    reports = list(folds.values())
    runs = {fold: report.signature.run_id for fold, report in folds.items()}
    values = {metric: _average_metric(metric, reports) for metric in reports[0]}
    return FoldMean(name, runs, values, reports[0].intervals)


def _average_metric(metric: str, reports: list[Report]) -> Value:
    values = [report.values_by_metric[metric] for report in reports]
    n = sum(value.n for value in values)
    interval = None
    rule = reports[0].intervals
    if reports[0].protocol.average == "micro":
        column = "label" if rule.cluster == "label" else f"group.{rule.cluster}"
        scaled, owners = [], []
        for report, value in zip(reports, values, strict=True):
            own = np.asarray(report.queries[metric], np.float64)
            kept = np.flatnonzero(~np.isnan(own))
            # So that folds of other sizes count alike: the mean of these is the mean of the means.
            scaled.append(own[kept] * (n / (len(reports) * value.n)))
            owners += [report.queries[column][row] for row in kept.tolist()]
        equal = len({value.n for value in values}) == 1
        interval = interval_of_mean(
            np.concatenate(scaled),
            cluster_queries(owners, column=rule.cluster),
            rule=rule,
            hits=is_hit(metric) and equal,
        )
    means = [math.fsum(getattr(value, end) for value in values) / len(values) for end in ("value", "low", "high")]
    return Value(means[0], n, means[1], means[2], interval=interval)


def _as(role: str, rows: EmbeddingSet) -> EmbeddingSet:
    """The rows in their role of this direction, which messages name them by."""
    other = "gallery" if role == "query" else "query"
    return dataclasses.replace(rows, name=role + rows.name.removeprefix(other))


def _data_of(data: Mapping[str, Any], name: str, view: View) -> dict[str, Any]:
    """Where the data lie, said so that this view alone is read again."""
    read = dict(data.get("read", {}))
    if "layout" in read:  # each view of a benchmark is a part of its own
        return {**data, "read": {**read, "part": name}}
    if "query" not in read:
        return dict(data)
    if view.swapped:
        for sides in (("query", "gallery"), ("query_labels", "gallery_labels")):
            swapped = {sides[0]: read.pop(sides[1], None), sides[1]: read.pop(sides[0], None)}
            read |= {side: path for side, path in swapped.items() if path is not None}
    if view.fold is not None:
        read["fold"] = view.fold
    return {**data, "read": read, "files": [read[side] for side in ("query", "gallery") if side in read]}
