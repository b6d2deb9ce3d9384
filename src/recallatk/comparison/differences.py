"""What makes two runs incomparable, and what does not: the parts of their signatures, in words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.report import Report
from recallatk.signature import DATA_KEYS, PROTOCOL_KEYS, REPORT_KEYS, UNKNOWN
from recallatk.types import EvalProtocol, Label, RecallatkError, each_label
from recallatk.wording import counted, one_line

Named = Mapping[str, tuple[Report, npt.NDArray[np.int64]]]
"""The runs by name, and the rows of the queries that all of them have."""

FIELDS = {field.metadata["part"]: field.name for field in dataclasses.fields(EvalProtocol) if "part" in field.metadata}
_ROUNDING = 1e-9
"""What a mean may differ by from that of the same values, added up in another way."""

WORDS = {
    **FIELDS,
    "n": "evaluated queries",
    "g": "gallery items",
    "c": "distinct labels",
    "img": "image bytes",
}


def check_rows(name: str, report: Report) -> None:
    """Refuse a run whose rows do not give the values of its record: the rows of another run, or an edited file.

    Raises:
        RecallatkError: the number of evaluated queries, or a mean over them, is another.
    """
    for metric, value in report.values_by_metric.items():
        if metric not in report.queries:
            continue
        column = np.asarray(report.queries[metric], np.float64)
        evaluated = column[~np.isnan(column)]
        total = math.fsum(evaluated)
        known = value.value * value.n if report.protocol.average == "micro" else value.hits
        wrong = ""
        if len(evaluated) != value.n:
            wrong = (
                f"{counted(len(evaluated), 'query', 'queries')} with {metric} in its rows, {value.n:,} in its record"
            )
        elif known is not None and not abs(total - known) <= _ROUNDING * value.n:
            wrong = f"{metric} is {total / value.n:.6f} in its rows and {known / value.n:.6f} in its record"
        if wrong:
            raise RecallatkError(one_line(f"{name}: {wrong}; they are not of one run, or were changed: repeat the run"))


def find_differences(
    first: str, second: str, runs: Named, common: Sequence[str], *, by_row: bool = False
) -> Iterator[str]:
    """What differs between two runs and makes their numbers incomparable, a line each.

    Args:
        first: the baseline.
        second: the other run.
        runs: all runs.
        common: the ids of the queries that all of them have.
        by_row: whether ids were made up; then hashes of rows that are named by their values say nothing.
    """
    parts, other = (runs[name][0].signature.parts for name in (first, second))
    differing = {
        key
        for key in (*PROTOCOL_KEYS, *DATA_KEYS)
        if key not in REPORT_KEYS and parts[key] != other[key] and UNKNOWN not in (parts[key], other[key])
    }
    for key in (*PROTOCOL_KEYS, *DATA_KEYS):
        if key in differing and key not in ("rel", "lab") and not (by_row and key == "img"):
            with_texts = any("text" in (runs[name][0].provenance.preprocessing or {}) for name in (first, second))
            word = "bytes of images and texts" if key == "img" and with_texts else WORDS[key]
            yield f"{word}: {parts[key]} in {first}, {other[key]} in {second}"
    rules = [part.rpartition("-")[0] for part in (parts["rel"], other["rel"])]
    if rules[0] != rules[1]:
        yield f"relevance: {rules[0]} in {first}, {rules[1]} in {second}"
    elif "rel" in differing and not differing & {"lab", "self", "ign"} and not by_row:  # else it follows from those
        yield f"{_what_relevance_used(runs[first][0].protocol)} differ (rel:{parts['rel']}, rel:{other['rel']})"
    if "lab" in differing or by_row:
        found = _other_label(first, second, runs, common)
        if found:
            yield found
        elif not by_row and "c" not in differing and "g" not in differing and _same_queries(first, second, runs):
            yield (
                f"ids or labels of the gallery differ (lab:{parts['lab']}, lab:{other['lab']}; a gallery without ids "
                "is known by its embeddings, so give it ids)"
            )


def find_notes(first: str, second: str, runs: Named) -> Iterator[str]:
    """What differs between two runs and does not make their numbers incomparable, a line each."""
    parts, other = (runs[name][0].signature.parts for name in (first, second))
    if parts["k"] != other["k"]:
        yield f"k: {parts['k']} in {first}, {other['k']} in {second}; compared are those that both have"
    for key in (*PROTOCOL_KEYS, *DATA_KEYS):
        if parts[key] != other[key] and UNKNOWN in (parts[key], other[key]):
            known = second if parts[key] == UNKNOWN else first
            yield f"{WORDS.get(key, key)}: known of {known} only"
    if parts["v"] != other["v"]:
        yield f"version of recallatk: {parts['v']} in {first}, {other['v']} in {second}"
    names = [runs[name][0].hashes.get("labels") for name in (first, second)]
    if parts["lab"] == other["lab"] and names[0] != names[1] and None not in names:
        yield f"labels are called otherwise in {second}; they part the items alike, and the names of {first} are shown"


def _same_queries(first: str, second: str, runs: Named) -> bool:
    """Whether neither run has queries that the other has not."""
    return all(runs[name][0].num_queries == len(runs[name][1]) for name in (first, second))


def _other_label(first: str, second: str, runs: Named, common: Sequence[str]) -> str:
    """Which queries have another label in the other run, in words; empty if labels are only called otherwise."""
    labels, others = (
        [runs[name][0].queries["label"][row] for row in runs[name][1].tolist()] for name in (first, second)
    )
    there: dict[Label, Label] = {}
    back: dict[Label, Label] = {}
    renamed = all(
        there.setdefault(_plain(one), _plain(other)) == _plain(other)
        and back.setdefault(_plain(other), _plain(one)) == _plain(one)
        for one, other in zip(labels, others, strict=True)
    )
    wrong = [row for row, (one, other) in enumerate(zip(labels, others, strict=True)) if _plain(one) != _plain(other)]
    if renamed or not wrong:
        return ""
    row = wrong[0]
    shown = [", ".join(each_label(_plain(side[row]))) for side in (labels, others)]
    return (
        f"labels differ for {counted(len(wrong), 'query', 'queries')}, e.g. {common[row]!r}: "
        f"{shown[0]!r} in {first}, {shown[1]!r} in {second}"
    )


def _plain(label: Any) -> Label:
    """A label as a value to compare: several labels in one order."""
    return tuple(sorted(label)) if isinstance(label, tuple) else label or ""


def _what_relevance_used(protocol: EvalProtocol) -> str:
    used = {"radius": ["positions"], "qrels": ["judged pairs"]}.get(protocol.relevance, [])
    if protocol.exclude_self != "none":
        used = [*used, "which items are the same image"]
    used = [*used, *(f"values of {column}" for column in protocol.ignore_columns if column != "label")]
    return " or ".join(used) or "what relevance looks at"
