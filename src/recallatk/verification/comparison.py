"""A run and its repetition, part by part: everything that is not the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from recallatk.report import Provenance, Report
from recallatk.signature import DATA_KEYS, SYSTEM_KEYS
from recallatk.verification.outcome import Moved, Part
from recallatk.wording import counted

# Part of the signature -> the part of the run it is of.
PART_OF_KEY: dict[str, Part] = {
    **dict.fromkeys(DATA_KEYS, "images"),
    **dict.fromkeys(SYSTEM_KEYS, "embeddings"),
    "rel": "relevance",
    "lab": "labels",
    "labels": "labels",
    "res": "queries",
    "pre": "preprocessing",
    "w": "weights",
    "ci": "intervals",
}
# A difference in one of these parts explains that a key differs.
EXPLAINS: dict[str, frozenset[Part]] = {
    "n": frozenset({"images", "skipped", "labels", "columns", "relevance", "queries"}),
    "g": frozenset({"images", "skipped"}),
    "c": frozenset({"images", "skipped", "labels"}),
    "img": frozenset({"images", "skipped"}),
    "lab": frozenset({"images", "skipped", "labels"}),
    "labels": frozenset({"images", "skipped", "labels"}),
    "rel": frozenset({"images", "skipped", "labels", "columns"}),
    "pre": frozenset({"preprocessing", "decoding"}),
    "w": frozenset({"weights", "encoder"}),
    "emb": frozenset({"images", "skipped", "embeddings"}),
    "res": frozenset({"images", "skipped", "queries"}),
    "ci": frozenset({"intervals", "images", "labels"}),
}
# Hashes whose beginning is in the signature.
IN_SIGNATURE = ("img", "lab", "rel", "pre", "emb")
COUNTED = ("num_queries", "num_gallery", "num_labels", "embedding_dim", "tied_queries", "near_tied_queries")
MEANING = {
    "n": "the number of evaluated queries",
    "g": "the number of gallery items",
    "c": "the number of labels",
    "img": "the bytes or names of images",
    "lab": "which rows share a label",
    "labels": "the labels",
    "rel": "what relevance looked at beside labels (judged pairs, columns, links or positions)",
    "pre": "the preprocessing",
    "w": "the weights",
    "emb": "the values of the embeddings or scores",
    "res": "the first ranks",
}


def compare_hashes(then: Report, now: Report, found: list[Moved], *, named: bool) -> list[Moved]:
    """Parts of the signature, and hashes, that differ and are not explained by what was found.

    Args:
        then: the run.
        now: its repetition.
        found: what moved.
        named: whether queries have ids; without, the hash of their ranks depends on their order.
    """
    parts = {moved.part for moved in found}
    pairs = [(key, then.signature.parts[key], now.signature.parts[key]) for key in then.signature.parts if key != "v"]
    both = then.hashes.keys() & now.hashes.keys()
    pairs += [
        (key, then.hashes[key], now.hashes[key]) for key in ("labels", "res") if key in both and (named or key != "res")
    ]
    return [
        Moved(PART_OF_KEY.get(key, "protocol"), f"{MEANING.get(key, key)}: {old} then, {new} now")
        for key, old, new in pairs
        if old != new and not EXPLAINS.get(key, frozenset()) & parts
    ]


def compare_values(then: Report, now: Report) -> list[Moved]:
    """The metrics, with everything that stands beside them."""
    found = [
        Moved("values", f"{name}: not there then, {value.value:.6f} now")
        for name, value in now.values_by_metric.items()
        if name not in then.values_by_metric
    ]
    for name, old in then.values_by_metric.items():
        new = now.values_by_metric.get(name)
        if new is None:
            found.append(Moved("values", f"{name}: {old.value:.6f} then, not there now"))
            continue
        fields = dataclasses.asdict(old), dataclasses.asdict(new)
        moved = [key for key in fields[0] if fields[0][key] != fields[1][key]]
        if old.value != new.value:
            found.append(
                Moved("values", f"{name}: {old.value:.6f} then, {new.value:.6f} now{_apart(old.value, new.value)}")
            )
        elif moved == ["interval"]:
            text = f"{name}: {_interval(old.interval)} then, {_interval(new.interval)} now"
            beside = [{k: "none" if v == "" else v for k, v in (one["interval"] or {}).items()} for one in fields]
            lines = differing_keys(*beside)
            found.append(Moved("intervals", text, tuple(lines)))
        elif moved:
            shown = [
                {**fields_, "interval": _interval(value.interval)}
                for fields_, value in zip(fields, (old, new), strict=True)
            ]
            lines = [f"{key}: {shown[0][key]} then, {shown[1][key]} now" for key in moved]
            found.append(Moved("values", f"{name}: the value is the same, what stands beside it is not", tuple(lines)))
    return found


def compare_counts(then: Report, now: Report) -> list[Moved]:
    """The counts beside the values, for runs that are alike otherwise."""
    pairs = [(name, getattr(then, name), getattr(now, name)) for name in COUNTED]
    old, new = (sorted(group.count for group in report.without_positive) for report in (then, now))
    pairs.append(("queries without a positive, by reason", old, new))
    return [Moved("values", f"{name}: {old} then, {new} now") for name, old, new in pairs if old != new]


def _apart(old: float, new: float) -> str:
    """How far apart, where six digits do not show it."""
    return f" (by {new - old:.3g})" if f"{old:.6f}" == f"{new:.6f}" else ""


def _interval(interval: Any) -> str:
    return "none" if interval is None else f"{interval.low:.6f} to {interval.high:.6f} ({interval.method})"


def compare_encoders(then: Provenance, now: Provenance) -> tuple[list[Moved], list[str], list[str]]:
    """What differs of encoder, weights, preprocessing and decoding; what is not known; and what is no difference."""
    found: list[Moved] = []
    unknown: list[str] = []
    notes: list[str] = []
    if then.encoder is None and now.encoder is None:  # embeddings in a file that says nothing of it
        return found, unknown, notes
    same_weights = then.fingerprint is not None and then.fingerprint == now.fingerprint
    if then.encoder != now.encoder:
        line = f"{then.encoder} then, {now.encoder} now"
        if same_weights:
            notes.append(f"encoder: {line}, with the same weights")
        else:
            found.append(Moved("encoder", line))
    if then.fingerprint is None or now.fingerprint is None:
        unknown.append(f"weights: the encoder {now.encoder} carries no fingerprint; only its embeddings were compared")
    elif not same_weights:
        found.append(Moved("weights", f"another fingerprint: {then.fingerprint} then, {now.fingerprint} now"))
    for part, old, new in (
        ("preprocessing", then.preprocessing, now.preprocessing),
        ("decoding", then.decode, now.decode),
    ):
        if part == "preprocessing" and old is None and new is None:
            unknown.append("preprocessing: the encoder does not say what it does to an image")
        lines = differing_keys(old or {}, new or {})
        if lines:
            found.append(Moved(part, counted(len(lines), "key moved", "keys moved"), tuple(lines)))  # type: ignore[arg-type]
    return found, unknown, notes


def compare_record(record: Mapping[str, Any], report: Report) -> list[Moved]:
    """Whether the record still fits itself."""
    found = []
    for name, given, own in (
        ("run_id", record.get("run_id"), report.signature.run_id),
        ("protocol_id", record.get("protocol_id"), report.signature.protocol_id),
    ):
        if given != own:
            found.append(Moved("record", f"{name} is {given}, but its signature gives {own}: the record was edited"))
    counts = report.record()["counts"]
    for name, count in record["counts"].items():
        rest = counts.get(name, count)
        if count != rest:
            found.append(Moved("record", f"{name} is {count}, but the rest of it gives {rest}: the record was edited"))
    for name in report.hashes.keys() & set(IN_SIGNATURE):
        part = report.signature.parts.get(name, "na").rpartition("-")[2]
        if part != "na" and not report.hashes[name].startswith(part):
            found.append(Moved("record", f"the hash {name} is not the one of its signature: the record was edited"))
    return found


def version_lines(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Versions and machine, one line for each that differs."""
    if not then:
        return ["the run does not say which versions made it"]
    old, new = (_versions(environment) for environment in (then, now))
    return [
        f"{name}: {old.get(name, 'not there')} then, {new.get(name, 'not there')} now"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]


def _versions(environment: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: environment[name] for name in ("recallatk", "python", "system", "processor") if name in environment}
    return {**own, **environment.get("packages", {})}


def differing_keys(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Nested values that differ, by their dotted names.

    >>> differing_keys({"resize": {"size": 256}}, {"resize": {"size": 224}, "crop": 224})
    ['resize.size: 256 then, 224 now', 'crop: not there then, 224 now']
    """
    old, new = dict(_flat(then)), dict(_flat(now))
    return [
        f"{key}: {old.get(key, 'not there')} then, {new.get(key, 'not there')} now"
        for key in dict.fromkeys([*old, *new])
        if key not in old or key not in new or old[key] != new[key]
    ]


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", list(value) if isinstance(value, tuple) else value
