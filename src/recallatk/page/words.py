"""What a page says in sentences: what fails, what was left out, what ties can move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recallatk.page.selection import smallest_k, value_of
from recallatk.report import Report, Value
from recallatk.statistics import Interval
from recallatk.wording import counted

Fact = tuple[str, str]
"""A kind (plain, warning) and a sentence."""

_TIE_RULES = {
    "expected": "equal similarities count as the mean over all their orders",
    "pessimistic": "of equal similarities, wrong ones come first",
    "optimistic": "of equal similarities, right ones come first",
}


def headline(report: Report) -> list[dict[str, Any]]:
    """Each metric with its interval and chance, for the top of the page."""
    return [
        {
            "name": name,
            "value": f"{value.value:.4f}",
            "beside": interval_words(value.interval),
            "chance": _chance(value),
            "gauge": gauge(value.value, value.interval, value.chance),
        }
        for name, value in report.values_by_metric.items()
    ]


def gauge(value: float | None, interval: Interval | None, chance: float | None) -> dict[str, float | None] | None:
    """Where value, interval and chance stand on a scale from 0 to 1, in percent; None for what has another scale."""
    if value is None or not 0 <= value <= 1:
        return None
    low, high = (value, value) if interval is None else (max(interval.low, 0.0), min(interval.high, 1.0))
    places = {"value": value, "low": low, "width": max(high - low, 0.0), "chance": chance}
    return {name: None if place is None else round(100 * place, 2) for name, place in places.items()}


def interval_words(interval: Interval | None) -> str:
    """An interval as it stands under its number."""
    if interval is None:
        return "no interval"
    return f"{100 * interval.confidence:g} % interval {interval.low:.3f} to {interval.high:.3f}"


def _chance(value: Value) -> str:
    return "" if value.chance is None else f"chance {value.chance:.3f}"


def about(report: Report) -> str:
    """What was evaluated, and when, in one line."""
    provenance = report.provenance
    root = str(provenance.data.get("root") or "").replace("\\", "/").rstrip("/").rpartition("/")[2]
    finished = str(provenance.environment.get("finished") or "")[:10]
    parts = (("data", root), ("encoder", provenance.encoder), ("finished", finished))
    return " · ".join(f"{name} {text}" for name, text in parts if text)


def in_short(
    report: Report,
    labels: Sequence[Mapping[str, Any]],
    confusions: Sequence[tuple[str, str, int, str]],
) -> list[str]:
    """Where the encoder fails, in a few sentences."""
    k = smallest_k(report)
    values = value_of(report, k)
    evaluated = ~np.isnan(values)
    missed = evaluated & (values < 1)
    n, m = int(evaluated.sum()), int(missed.sum())
    if not m:
        return [f"The one evaluated query hits at {k}." if n == 1 else f"All {n:,} evaluated queries hit at {k}."]
    ahead = np.asarray(report.queries["negatives_ahead"], np.int64)[missed]
    found = np.asarray(report.queries["has_positive"], np.bool_)[missed]
    near = int(np.count_nonzero(found & (ahead + 1 <= 2 * k)))
    far = int(np.count_nonzero(~found | (ahead + 1 > 10 * k)))
    said = [
        f"{m:,} of {counted(n, 'query', 'queries')} miss at {k} ({100 * m / n:.1f} %): {near:,} nearly, with a "
        f"positive within the first {2 * k}; {far:,} by far, with none within the first {10 * k}."
    ]
    failing = [one for one in labels if one["low"] is not None and one["low"] < 1]
    evaluated_labels = sum(one["low"] is not None for one in labels)
    if failing and evaluated_labels > 1:
        worst = ", ".join(
            f"{_alone(one['label'])} ({min(one['low'], 0.99):.2f}, n = {one['n']:,})" for one in failing[:3]
        )
        said.append(f"{len(failing):,} of {counted(evaluated_labels, 'label')} have misses. Lowest recall: {worst}.")
        lost = sorted(((one["misses"], one["label"]) for one in failing), key=lambda one: -one[0])
        most = ", ".join(f"{_alone(label)} ({number:,})" for number, label in lost[:3] if number > 1)
        if most and len(failing) > 3:
            said.append(f"Most misses: {most}.")
    named = [(a, b, count) for a, b, count, _ in confusions if a and b]
    if named:
        pairs = ", ".join(f"{_alone(b)} for {_alone(a)} ({counted(count, 'time')})" for a, b, count in named[:3])
        said.append(f"Retrieved instead, most often: {pairs}.")
    return said


def _alone(name: str) -> str:
    """A name whose direction of writing ends with it, so that it cannot turn the sentence around."""
    return f"\u2068{name}\u2069"


def left_out(report: Report) -> list[Fact]:
    """What the number is not about."""
    facts: list[Fact] = []
    how = "left out" if report.protocol.no_positive == "exclude" else "counted as a miss"
    for group in report.without_positive:
        label = f", label {group.label}" if group.label else ""
        facts.append(
            (
                "plain",
                f"{counted(group.count, 'query', 'queries')} {how}: {group.reason} (such as {group.example}{label})",
            )
        )
    skipped = report.provenance.skipped
    if skipped:
        facts.append(("warning", f"{counted(len(skipped), 'file or row', 'files or rows')} could not be used"))
        facts += [("plain", f"{item.item}: {item.reason}") for item in skipped[:10]]
        if len(skipped) > 10:
            facts.append(("plain", f"and {len(skipped) - 10:,} more; the record of the run lists all"))
    return facts or [("plain", "nothing: every query was evaluated and every file was read")]


def noticed(report: Report) -> list[Fact]:
    """Ties, duplicates, leaks, and whatever else can make a number look right and be wrong."""
    facts: list[Fact] = [("warning", warning) for warning in report.warnings]
    if report.tied_queries:
        facts.append(
            (
                "plain",
                f"ties: for {counted(report.tied_queries, 'query', 'queries')} the order of equal similarities can "
                f"move a metric; here {_TIE_RULES[report.protocol.ties]}",
            )
        )
        facts += [
            ("plain", f"{name} lies between {value.low:.4f} and {value.high:.4f}, whatever their order")
            for name, value in report.values_by_metric.items()
            if value.low != value.high
        ]
    else:
        facts.append(("plain", "ties: none moves a metric"))
    if report.near_tied_queries:
        facts.append(
            (
                "plain",
                f"near-ties: for {counted(report.near_tied_queries, 'query', 'queries')} a hit hangs on similarities "
                "within 0.000001 of each other",
            )
        )
    facts += _copies(report)
    facts += [("plain", note) for note in report.provenance.notes]
    return sorted(facts, key=lambda fact: fact[0] != "warning")


def _copies(report: Report) -> list[Fact]:
    """Identical images, from the hashes of their bytes."""
    samples = report.samples
    known = {role: side.content for role, side in samples.items() if side.content is not None}
    if not known:
        return [("plain", "duplicates: not looked for; this run knows no bytes of images")] if samples else []
    if "query" in known and "gallery" in known:
        shared = set(filter(None, known["query"])) & set(filter(None, known["gallery"]))
        queries = sum(one in shared for one in known["query"])
        if queries:
            return [
                ("warning", f"leak: {counted(queries, 'query is', 'queries are')} in the gallery too, byte for byte")
            ]
        return [("plain", "duplicates: no image is on both sides")]
    contents = next(iter(known.values()))
    copies = len(contents) - len(set(contents))
    if copies:
        return [("warning", f"duplicates: {copies:,} of {len(contents):,} images are copies of another, byte for byte")]
    return [("plain", f"duplicates: none; all {len(contents):,} images are different")]


def recipe(report: Report) -> dict[str, list[tuple[str, str]]]:
    """Everything that makes the number repeatable, by heading."""
    record = report.record()
    provenance = record["provenance"]
    return {
        "Protocol": _flat({**record["protocol"], **{f"interval.{k}": v for k, v in record["intervals"].items()}}),
        "Encoder": _flat(
            {"name": provenance["encoder"], "weights": provenance["fingerprint"], "embedding_dim": report.embedding_dim}
        ),
        "Preprocessing": _flat({**(provenance["preprocessing"] or {}), "decode": provenance["decode"] or "unknown"}),
        "Data": _flat(
            {
                "queries": report.num_queries,
                "gallery": report.num_gallery,
                "labels": report.num_labels,
                **provenance["data"],
            }
        ),
        "Hashes": _flat({"protocol id": record["protocol_id"], "run id": record["run_id"], **record["hashes"]}),
        "Versions and machine": _flat(provenance["environment"]),
    }


def _flat(values: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{before}{name}.")
        else:
            rows.append((before + name, "unknown" if value is None else _text(value)))
    return rows


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_text(one)}" for name, one in value.items())
    return str(value)
