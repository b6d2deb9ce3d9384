"""Whether what was read of a run fits together: numbers that are numbers, and values that are those of its queries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from recallatk.report import Report, Value
from recallatk.types import Label, each_label

_ROUNDING = 1e-9
_TEXTS = ("id", "label")
_COUNTS = ("has_positive", "negatives_ahead", "negatives_tied", "positives_tied", "n_positives", "n_candidates")


def check_kinds(report: Report) -> None:
    """Refuse a run whose parts are of another kind than any version writes.

    Raises:
        ValueError: one is, with which.
    """
    for name, given in (("hashes", report.hashes), ("environment", report.provenance.environment)):
        if not isinstance(given, Mapping):
            raise ValueError(f"{name} is {given!r}, which is no mapping")
    for name, digest in report.hashes.items():
        if not isinstance(digest, str):
            raise ValueError(f"the hash {name} is {digest!r}, which is no text")
    for metric, value in report.values_by_metric.items():
        _check_value(metric, value)
    for column in _TEXTS:
        if not all(isinstance(one, (str, tuple)) for one in report.queries.get(column, ())):
            raise ValueError(f"the column {column} of its queries holds what is no text")
    for column in (*_COUNTS, *report.values_by_metric):
        if not isinstance(report.queries.get(column, _NONE), np.ndarray):
            raise ValueError(f"the column {column} of its queries holds what is no number")


_NONE: np.ndarray[Any, Any] = np.zeros(0)


def check_values(report: Report) -> None:
    """Refuse a run whose values are not the means of those of its queries, as where files of two runs are mixed.

    Raises:
        ValueError: one is not.
    """
    for metric, value in report.values_by_metric.items():
        if metric not in report.queries:
            continue
        of_queries = np.asarray(report.queries[metric], np.float64)
        kept = np.flatnonzero(~np.isnan(of_queries))
        labels = None
        if report.protocol.average == "macro":
            if "label" not in report.queries:
                continue
            labels = [report.queries["label"][row] or "" for row in kept.tolist()]
        mean = _mean(of_queries[kept].tolist(), labels) if len(kept) == value.n else math.nan
        if not abs(mean - value.value) <= _ROUNDING * max(1.0, abs(mean)):
            raise ValueError(
                f"{metric} is {value.value:.6f} of {value.n:,} queries, and {len(kept):,} in queries.parquet give "
                f"{mean:.6f}: these files are not of one run, or were edited"
            )


def _mean(values: list[float], labels: list[Label] | None) -> float:
    """The mean of the values, or that of the means of each label."""
    if labels is None:
        return math.fsum(values) / len(values)
    by_label: dict[str, list[float]] = {}
    for value, several in zip(values, labels, strict=True):
        for label in each_label(several):
            by_label.setdefault(label, []).append(value)
    return math.fsum(math.fsum(own) / len(own) for own in by_label.values()) / len(by_label)


def _check_value(metric: str, value: Value) -> None:
    numbers = {"value": value.value, "n": value.n}
    numbers |= {
        name: getattr(value, name) for name in ("hits", "hits_min", "hits_max") if getattr(value, name) is not None
    }
    if value.interval is not None:
        numbers |= {"low": value.interval.low, "high": value.interval.high}
    for name, number in numbers.items():
        if type(number) not in (int, float) or not math.isfinite(number):
            raise ValueError(f"{metric}: {name} is {number!r}, which is no number")
    if value.n < 1:
        raise ValueError(f"{metric}: it is of {value.n!r} queries")
