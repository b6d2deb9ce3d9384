"""Whether what was read of a record is of the kinds that it is written in."""

from __future__ import annotations

import math
from collections.abc import Mapping

from recallatk.report import Report, Value


def check_kinds(report: Report) -> None:
    """Refuse a record whose parts are of another kind than any version writes.

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


def _check_value(metric: str, value: Value) -> None:
    numbers = {"value": value.value, "n": value.n}
    numbers |= {
        name: number for name in ("hits", "hits_min", "hits_max") if (number := getattr(value, name)) is not None
    }
    if value.interval is not None:
        numbers |= {"low": value.interval.low, "high": value.interval.high}
    for name, number in numbers.items():
        if type(number) not in (int, float) or not math.isfinite(number):
            raise ValueError(f"{metric}: {name} is {number!r}, which is no number")
    if value.n < 1:
        raise ValueError(f"{metric}: it is of {value.n!r} queries")
