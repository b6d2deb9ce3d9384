"""The report: the number with everything needed to trust, repeat and defend it, as text and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing as npt

from recallatk import arrow
from recallatk.markup import html_table
from recallatk.signature import Signature
from recallatk.statistics import Interval, describe_rule
from recallatk.types import EvalProtocol, IntervalRule, RecallatkError, SampleSet, Skipped
from recallatk.wording import counted, one_line

SCHEMA = "recallatk.record/1"
SKIPPED_SHOWN = 20


@dataclasses.dataclass(frozen=True)
class Value:
    """One metric.

    Attributes:
        value: in 0..1, under the protocol's tie rule and average.
        n: the number of evaluated queries.
        low: the value with every tie broken against us (pessimistic).
        high: the value with every tie broken for us (optimistic).
        hits: recall@k only: the hits, a real number under ties.
        hits_min: the hits with every tie broken against us.
        hits_max: the hits with every tie broken for us.
        chance: recall@k only: the value of a random order of the gallery; None where the gallery is not known.
        interval: how far the value would move over other queries of the same kind; None where nothing can be said.
    """

    value: float
    n: int
    low: float
    high: float
    hits: float | None = None
    hits_min: int | None = None
    hits_max: int | None = None
    chance: float | None = None
    interval: Interval | None = None


def is_hit(metric: str) -> bool:
    """Whether a metric is a hit or a miss for each query.

    >>> is_hit("recall@5"), is_hit("map@5")
    (True, False)
    """
    return metric.partition("@")[0] in ("recall", "cmc")


@dataclasses.dataclass(frozen=True)
class WithoutPositive:
    """Queries without a positive, for one reason.

    Attributes:
        reason: in words.
        count: how many queries.
        example: the id of one of them.
        label: its label.
    """

    reason: str
    count: int
    example: str
    label: str


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where the embeddings came from, and what was noticed on the way; every part may be unknown.

    Attributes:
        encoder: the encoder's name.
        fingerprint: the hash of its weights.
        preprocessing: what the encoder does to an RGB image (size, crop, normalisation), as JSON values.
        decode: how bytes became RGB images, as JSON values; None where that was up to the encoder.
        data: where the images or embeddings lie, as JSON values.
        skipped: files and rows that could not be used.
        notes: what was left aside or converted, a line each.
        warnings: what can make the number look right and be wrong, a line each.
        environment: versions, machine, command, time; never part of a hash.
    """

    encoder: str | None = None
    fingerprint: str | None = None
    preprocessing: Mapping[str, Any] | None = None
    decode: Mapping[str, Any] | None = None
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    environment: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Report(Mapping[str, float]):
    """What one evaluation says; reads like a dict of its metrics: `report["recall@1"]`.

    Attributes:
        protocol: everything that could change the number.
        values_by_metric: each metric by its text, recall@k first.
        num_queries: queries that were looked at: evaluated and excluded ones.
        num_gallery: gallery items.
        num_labels: distinct labels on both sides.
        embedding_dim: columns of the embeddings; None where similarities came from elsewhere.
        without_positive: the queries without a positive, by reason (left out, or misses: `protocol.no_positive`).
        tied_queries: evaluated queries for which the order of equal similarities can move a metric.
        near_tied_queries: evaluated queries whose hit at some k hangs on similarities within 1e-6.
        warnings: what can make the number look right and be wrong.
        signature: the recipe in one line.
        hashes: the full hashes behind the signature.
        provenance: encoder, data, environment.
        queries: one column for each thing known of a query, one row a query, in the order of the query set.
        intervals: how the intervals were made.
        samples: the rows of the "query" and the "gallery" side (leave-one-out: of "both"), without embeddings; what
            `recallatk verify` names things by.
        ids_given: whether the queries have ids, or were numbered by row; None where an early record does not say.
    """

    protocol: EvalProtocol
    values_by_metric: Mapping[str, Value]
    num_queries: int
    num_gallery: int
    num_labels: int
    embedding_dim: int | None
    without_positive: tuple[WithoutPositive, ...]
    tied_queries: int
    near_tied_queries: int
    warnings: tuple[str, ...]
    signature: Signature
    hashes: Mapping[str, str]
    provenance: Provenance
    queries: Mapping[str, tuple[Any, ...] | npt.NDArray[Any]]
    intervals: IntervalRule = dataclasses.field(default_factory=lambda: IntervalRule("none"))
    samples: Mapping[str, SampleSet] = dataclasses.field(default_factory=dict)
    ids_given: bool | None = None

    def __getitem__(self, metric: str) -> float:
        if metric not in self.values_by_metric:
            raise KeyError(f"{metric!r} is not in this report; it has {', '.join(self.values_by_metric)}")
        return self.values_by_metric[metric].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_metric)

    def __len__(self) -> int:
        return len(self.values_by_metric)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value:.6f}" for name, value in self.items())
        return f"<Report {values}, n={self.num_evaluated}>"

    @property
    def recall(self) -> dict[int, float]:
        """recall@k by k."""
        return {k: self[f"recall@{k}"] for k in self.protocol.ks}

    @property
    def num_evaluated(self) -> int:
        """The queries that the values are means over."""
        return next(iter(self.values_by_metric.values())).n

    @property
    def num_excluded(self) -> int:
        """The queries that were left out because they have no positive."""
        return self.num_queries - self.num_evaluated

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """What a notebook shows: the values with interval and chance, what was left out, and the recipe."""
        rows = []
        for name, value in self.values_by_metric.items():
            ends = "" if value.interval is None else f"{value.interval.low:.4f} to {value.interval.high:.4f}"
            rows.append([name, f"{value.value:.6f}", ends, "" if value.chance is None else f"{value.chance:.6f}"])
        excluded = [f"{group.reason}: {counted(group.count, 'query', 'queries')}" for group in self.without_positive]
        notes = [*excluded, *(f"warning: {warning}" for warning in self.warnings), str(self.signature)]
        title = f"{self.num_evaluated:,} of {counted(self.num_queries, 'query', 'queries')} evaluated"
        title += f", gallery {self.num_gallery:,}"
        return html_table(title, ["metric", "value", "interval", "chance"], rows, notes)

    def to_arrow(self) -> Any:
        """A pyarrow.Table, one row a query: `queries`, where an excluded query's values are null."""
        return arrow.to_arrow(self.queries)

    def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame, if pandas is installed."""
        return arrow.to_pandas(self.queries)

    def to_polars(self) -> Any:
        """The same as a polars.DataFrame, if polars is installed."""
        return arrow.to_polars(self.queries)

    def text(self, *, percent: bool = False) -> str:
        """The printed report: the well-known template, then sections as they apply.

        Args:
            percent: values in 0..100 instead of 0..1.
        """
        sections = {
            "evaluation": [
                f"num queries: {self.num_queries}",
                f"num gallery: {self.num_gallery}",
                f"embedding_dim: {'na' if self.embedding_dim is None else self.embedding_dim}",
            ],
            "recall": self._lines("value", recall=True, percent=percent),
            "excluded": self._without_positive_lines(),
            "skipped": self._skipped_lines(),
            "metrics": self._lines("value", recall=False, percent=percent),
            "interval": self._interval_lines(percent=percent),
            "chance": self._lines("chance", recall=True, percent=percent),
            "ties": self._tie_lines(percent=percent),
            "warnings": [f"- {one_line(warning)}" for warning in self.warnings],
            "signature": [
                str(self.signature),
                f"protocol id: {self.signature.protocol_id}",
                f"run id: {self.signature.run_id}",
            ],
        }
        return "\n".join(f"[{name}]\n" + "\n".join(lines) for name, lines in sections.items() if lines)

    def _skipped_lines(self) -> list[str]:
        skipped = self.provenance.skipped
        if not skipped:
            return []
        shown = [one_line(f"{item.item}: {item.reason}") for item in skipped[:SKIPPED_SHOWN]]
        if len(skipped) > SKIPPED_SHOWN:
            shown.append(f"and {len(skipped) - SKIPPED_SHOWN} more; the record lists all")
        return [f"skipped: {len(skipped)}", *shown]

    def _lines(self, field: str, *, recall: bool, percent: bool) -> list[str]:
        return [
            f"{name}: {_number(number, percent=percent)}"
            for name, value in self.values_by_metric.items()
            if name.startswith("recall@") == recall and (number := getattr(value, field)) is not None
        ]

    def _interval_lines(self, *, percent: bool) -> list[str]:
        known = {name: value.interval for name, value in self.values_by_metric.items() if value.interval is not None}
        if not known:
            return []
        several = self.protocol.relevance == "labels"
        clusters = next(iter(known.values())).clusters
        lines = [describe_rule(self.intervals, clusters, several=several, labelled=self.num_labels > 0)]
        for name, interval in known.items():
            low, high = (_number(end, percent=percent) for end in (interval.low, interval.high))
            lines.append(f"{name}: {low} to {high}" + _in_brackets(interval))
        return lines

    def _without_positive_lines(self) -> list[str]:
        if not self.without_positive:
            return []
        how = "excluded" if self.protocol.no_positive == "exclude" else "counted as a miss"
        total = sum(group.count for group in self.without_positive)
        lines = [f"evaluated: {self.num_evaluated}", f"{how} (no positive): {total}"]
        for group in self.without_positive:
            label = f", label {group.label!r}" if group.label else ""
            lines.append(one_line(f"{group.reason}: {group.count} (e.g. {group.example}{label})"))
        return lines

    def _tie_lines(self, *, percent: bool) -> list[str]:
        if not self.tied_queries and not self.near_tied_queries:
            return []
        lines = [f"rule: {self.protocol.ties}"]
        for name, value in self.values_by_metric.items():
            if value.low != value.high:
                low, high = (_number(end, percent=percent) for end in (value.low, value.high))
                lines.append(f"{name}: between {low} and {high}")
        lines.append(f"queries that ties can move (some metric): {self.tied_queries}")
        lines.append(f"queries that near-ties can move (recall, within 1e-6): {self.near_tied_queries}")
        return lines

    def record(self) -> dict[str, Any]:
        """Everything but the rows of the queries, as JSON values: lists, dicts, text, plain numbers."""
        record = {
            "schema": SCHEMA,
            "signature": str(self.signature),
            "protocol_id": self.signature.protocol_id,
            "run_id": self.signature.run_id,
            "metrics": {name: _known(dataclasses.asdict(value)) for name, value in self.values_by_metric.items()},
            "counts": {
                "num_queries": self.num_queries,
                "num_evaluated": self.num_evaluated,
                "num_excluded": self.num_excluded,
                "num_gallery": self.num_gallery,
                "num_labels": self.num_labels,
                "num_skipped": len(self.provenance.skipped),
                "embedding_dim": self.embedding_dim,
                "tied_queries": self.tied_queries,
                "near_tied_queries": self.near_tied_queries,
            },
            "without_positive": [dataclasses.asdict(group) for group in self.without_positive],
            "warnings": list(self.warnings),
            "protocol": dataclasses.asdict(self.protocol),
            "intervals": dataclasses.asdict(self.intervals),
            "ids_given": self.ids_given,
            "hashes": dict(self.hashes),
            "provenance": dataclasses.asdict(self.provenance),
        }
        # There and back, so that a record in memory is the record that is read again.
        plain: dict[str, Any] = json.loads(json.dumps(record, allow_nan=False, default=_plain))
        return plain

    def to_json(self) -> str:
        """The record as strict JSON, indented for people."""
        return json.dumps(self.record(), indent=2, ensure_ascii=False, allow_nan=False)


def report_from_record(
    record: Mapping[str, Any], queries: Mapping[str, Any], samples: Mapping[str, SampleSet] | None = None
) -> Report:
    """Rebuild a report from its record and the rows of its queries.

    Raises:
        RecallatkError: the record has another schema.
        ValueError: it has no metric.
    """
    if record.get("schema") != SCHEMA:
        raise RecallatkError(f"this record has the schema {record.get('schema')!r}; this version reads {SCHEMA!r}")
    counts, provenance = record["counts"], record["provenance"]
    if not record["metrics"]:
        raise ValueError("it has no metric")
    columns = ("num_queries", "num_gallery", "num_labels", "embedding_dim", "tied_queries", "near_tied_queries")
    return Report(
        protocol=EvalProtocol(**{**record["protocol"], "ks": tuple(record["protocol"]["ks"])}),
        values_by_metric={name: _value(value) for name, value in record["metrics"].items()},
        **{name: counts[name] for name in columns},
        without_positive=tuple(WithoutPositive(**group) for group in record["without_positive"]),
        warnings=tuple(record["warnings"]),
        signature=Signature.parse(record["signature"]),
        hashes=record["hashes"],
        provenance=Provenance(
            **{
                **provenance,
                "skipped": tuple(Skipped(**skipped) for skipped in provenance["skipped"]),
                "notes": tuple(provenance["notes"]),
                "warnings": tuple(provenance["warnings"]),
            }
        ),
        queries=queries,
        # Runs of before there were intervals are still read.
        intervals=IntervalRule(**record.get("intervals", {"ci": "none"})),
        samples={} if samples is None else samples,
        ids_given=record.get("ids_given"),
    )


def _value(known: Mapping[str, Any]) -> Value:
    interval = known.get("interval")
    return Value(**{**known, "interval": None if interval is None else Interval(**interval)})


def _plain(value: Any) -> Any:
    """A number or an array of numpy as JSON values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} ({type(value).__name__}) is no JSON value")


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _in_brackets(interval: Interval) -> str:
    """What is to be known of an interval, in brackets behind it; nothing if it is as was asked and tells no more."""
    parts = []
    if interval.reason and interval.method == "wilson":
        parts.append(f"wilson, as if queries were independent: {interval.reason}")
    elif interval.reason:
        parts.append(f"{interval.method} over queries: {interval.reason}")
    elif interval.design_effect is not None and interval.effective_n is not None:
        parts.append(f"design effect {interval.design_effect:.2f}, effective n {interval.effective_n:.1f}")
    if interval.cut:
        parts.append(f"cut at {' and '.join(str(end) for end in (0, 1) if end in (interval.low, interval.high))}")
    parts += [interval.caveat] if interval.caveat else []
    return f" ({'; '.join(parts)})" if parts else ""


def _number(value: float, *, percent: bool) -> str:
    return f"{100 * value:.4f}" if percent else f"{value:.6f}"
