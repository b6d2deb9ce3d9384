"""What a record says of where the data lie and how they were read, checked before it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recallatk.report import Report
from recallatk.types import RecallatkError

FILES = ("query", "gallery", "query_labels", "gallery_labels")
"""Arguments of `load_encoded` that name files."""


# Argument -> what it is in a record; every other one is a text, a number, true or false.
_KINDS: dict[str, type] = {
    **dict.fromkeys(("data", "queries_folder", "gallery_folder", "root", "qrels", "run", "scores", *FILES), str),
    **dict.fromkeys(("spec", "device", "dtype", "layout", "label_from", "label_separator"), str),
    **dict.fromkeys(("part", "counts", "fold"), str),
    **dict.fromkeys(("batch", "limit", "seed"), int),
    "decode": bool,
}


def recorded(report: Report, folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Where the record says the data lie, and how they were read.

    Raises:
        RecallatkError: it holds what no version writes.
    """
    given: Any = report.provenance.data
    parts: list[Any] = [given]
    if isinstance(given, Mapping):
        parts += [given.get("read", {}), given.get("encode", {}), given.get("rows", {})]
    odd = ["data is no mapping"] if not all(isinstance(part, Mapping) for part in parts) else []
    for part in () if odd else parts:
        odd += [
            f"{name}={part[name]!r}" for name, kind in _KINDS.items() if name in part and type(part[name]) is not kind
        ]
    if not odd and ("limit" in parts[1]) != ("seed" in parts[1]):
        odd = ["limit and seed belong together"]
    if odd:
        raise RecallatkError(f"{folder}: the record is damaged (provenance: {odd[0]}); repeat the run")
    return given, given.get("read") or _read_before(given)


def _read_before(given: Mapping[str, Any]) -> dict[str, Any]:
    """How the data of a run was read that was made before its record said so: by default."""
    if "files" in given:
        return dict(zip(("query", "gallery"), given["files"], strict=False))
    return {"data": given["root"]} if "root" in given else {}
