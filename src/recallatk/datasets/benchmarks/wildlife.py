"""A data frame of wildlife-datasets: one row an animal, the identity is the label."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recallatk.datasets.benchmarks.description import Benchmark, Part
from recallatk.datasets.manifest import BOX_COLUMNS, FLAG_COLUMNS, POSITION_COLUMNS, from_table
from recallatk.datasets.tables import Table, as_number, read_table
from recallatk.types import Dataset, OnError, RecallatkError
from recallatk.wording import counted

NEEDED = ("image_id", "identity", "path")
UNKNOWN = "unknown"
"""The identity that wildlife-datasets reserves for animals that nobody told."""

SPLIT = "split"
ROLES = {
    **dict.fromkeys(("test", "query", "queries"), "query"),
    **dict.fromkeys(("train", "database", "gallery", "reference"), "gallery"),
}
BOX = "bbox"
_LEFT_ASIDE = {BOX, "keypoints", "segmentation", "label", "id", "role", "query", *FLAG_COLUMNS}
_LEFT_ASIDE |= {name for names in (*BOX_COLUMNS, *POSITION_COLUMNS) for name in names}
"""Columns that become no groups: lists of numbers, and names that mean something else to a manifest."""


def load(
    data: Path,
    *,
    part: str,
    on_error: OnError,
    root: str | os.PathLike[str] | None = None,
    split_column: str | None = None,
) -> Dataset:
    """Read a frame; relative paths start from `root`, which is the table's folder by default."""
    table = read_table(data, nested=(BOX,))
    absent = [name for name in NEEDED if name not in table.columns]
    if absent:
        raise RecallatkError(
            f"{data}: no column {' and no column '.join(map(repr, absent))}; a frame of wildlife-datasets has "
            f"{', '.join(NEEDED)}; any other table is --layout manifest"
        )
    notes = list(table.notes)
    rows = list(range(len(table.places)))
    roles = _roles(data, table, part, split_column, notes)
    if roles is not None:
        rows = [row for row in rows if roles[row] is not None]
    days = _days(table) if "date" in table.columns or part == "other-days" else None
    if part == "other-days":
        rows = _with_days(data, days, rows, notes)
    columns: dict[str, list[Any]] = {
        name: [values[row] for row in rows]
        for name, values in table.columns.items()
        if name not in _LEFT_ASIDE and name not in ("identity", SPLIT) and not name.startswith("Unnamed:")
    }
    columns["label"] = _identities([table.columns["identity"][row] for row in rows], notes)
    if roles is not None:
        columns["role"] = [roles[row] for row in rows]
    if days is not None:
        columns["day"] = [days[row] for row in rows]
    places = [table.places[row] for row in rows]
    if BOX in table.columns:
        cells = [table.columns[BOX][row] for row in rows]
        boxes = [_box(cell, f"{data}: {place}") for cell, place in zip(cells, places, strict=True)]
        columns |= {name: [box[side] for box in boxes] for side, name in enumerate(BOX_COLUMNS[0])}
    ids = _ids(columns)
    if ids is not None:
        columns["id"] = ids
        notes.append("rows that name the same picture, and the same box or none, are told apart by their image_id")
    read = Table({name: tuple(values) for name, values in columns.items()}, tuple(places))
    dataset = from_table(data, read, root=root, on_error=on_error)
    return dataclasses.replace(dataset, notes=(*notes, *dataset.notes))


def _roles(data: Path, table: Table, part: str, split_column: str | None, notes: list[str]) -> list[str | None] | None:
    """The side of each row (None: left aside); None where each row is a query among all others."""
    if split_column is not None and part != "frame":
        raise RecallatkError(f"split_column={split_column!r}: the part {part} is leave-one-out and has no use for it")
    name = split_column or SPLIT
    if part != "frame" or (split_column is None and SPLIT not in table.columns):
        notes.append("leave-one-out: every image is a query, all the others are its gallery")
        return None
    if name not in table.columns:
        found = ", ".join(map(repr, table.columns))
        raise RecallatkError(f"{data}: no column {name!r} that tells queries from gallery; columns found: {found}")
    given = [str(value).strip().lower() if value is not None else "" for value in table.columns[name]]
    roles = [ROLES.get(value) for value in given]
    if not {"query", "gallery"} <= set(roles):
        raise RecallatkError(
            f"{data}: the column {name!r} holds {', '.join(sorted(map(repr, set(given)))[:5])}; queries are "
            "test or query, the gallery is train, database, gallery or reference, and there must be both; name another "
            "column with --split-column, or take every image with --part leave-one-out"
        )
    aside = collections.Counter(repr(value) for value, role in zip(given, roles, strict=True) if role is None)
    notes.append(f"the column {name!r} tells queries from gallery")
    if aside:
        most = ", ".join(f"{value}: {number:,}" for value, number in aside.most_common(3))
        notes.append(f"{counted(aside.total(), 'row')} left aside, whose {name} names neither side ({most})")
    return roles


def _identities(given: Sequence[Any], notes: list[str]) -> list[str]:
    """The labels; an empty identity is the unknown one."""
    identities = [UNKNOWN if _is_empty(value) else str(value) for value in given]
    empty = sum(map(_is_empty, given))
    if empty:
        notes.append(f"{counted(empty, 'empty identity', 'empty identities')} read as {UNKNOWN!r}")
    if number := identities.count(UNKNOWN):
        notes.append(
            f"{counted(number, 'row')} of the identity {UNKNOWN!r}: junk, which is no answer and takes no rank"
        )
    return identities


def _days(table: Table) -> list[str]:
    """The day of each row: what stands before the time in its date; empty where there is none."""
    dates = table.columns.get("date", [None] * len(table.places))
    return ["" if _is_empty(date) else re.split(r"[T ]", str(date).strip(), maxsplit=1)[0] for date in dates]


def _with_days(data: Path, days: Sequence[str] | None, rows: list[int], notes: list[str]) -> list[int]:
    kept = [row for row in rows if days is not None and days[row]]
    if not kept:
        raise RecallatkError(f"{data}: no row has a date, so days cannot be told apart; take another --part")
    if len(kept) < len(rows):
        notes.append(f"{counted(len(rows) - len(kept), 'row')} without a date left aside")
    return kept


def _box(cell: Any, where: str) -> tuple[int, ...] | tuple[None, ...]:
    """[x, y, width, height] as left, top, right and bottom; rounded as Pillow's crop does, and cut at 0."""
    if isinstance(cell, str) and cell.strip().lower() not in ("", "nan", "none"):
        try:
            cell = json.loads(cell)
        except ValueError:
            cell = cell.strip("[]() ").replace(",", " ").split()
    if cell is None or isinstance(cell, str) or (isinstance(cell, float) and cell != cell):
        return (None,) * 4
    if isinstance(cell, list) and any(_is_empty(value) for value in cell):
        return (None,) * 4  # as wildlife-datasets: all of the picture
    numbers = [as_number(value) for value in cell] if isinstance(cell, list) else []
    if len(numbers) != 4 or None in numbers:
        raise RecallatkError(f"{where}: bbox is {cell!r}, not four numbers [x, y, width, height] in pixels")
    left, top, width, height = (number for number in numbers if number is not None)
    corners = (left, top, left + width, top + height)
    return tuple(max(0, round(number)) for number in corners)


def _ids(columns: dict[str, list[Any]]) -> list[str] | None:
    """Ids for rows that share a picture without a box; None where paths and boxes tell all rows apart."""
    boxes = list(zip(*(columns[name] for name in BOX_COLUMNS[0] if name in columns), strict=True))
    boxes = boxes or [(None,)] * len(columns["path"])
    times = collections.Counter(zip(columns["path"], boxes, strict=True))
    if all(number == 1 for number in times.values()):
        return None
    return [
        f"{path}@{','.join(map(str, box))}"
        if box[0] is not None and times[path, box] == 1
        else f"{path}#{image}"
        if times[path, box] > 1
        else path
        for path, box, image in zip(columns["path"], boxes, columns["image_id"], strict=True)
    ]


def _is_empty(value: Any) -> bool:
    return value is None or value != value or str(value).strip().lower() in ("", "nan")


PROTOCOL = {"junk_labels": (UNKNOWN,)}

BENCHMARK = Benchmark(
    title="A frame of wildlife-datasets",
    summary="a data frame of wildlife-datasets (.csv or .parquet): the identity is the label",
    load=load,
    reads="file",
    files={
        "image_id, identity, path": "columns; paths start from the table's folder, or from --root",
        "split": "optional column: test (or query) against train (or `database`, `gallery`, `reference`); another one "
        "is named with --split-column",
        "date": "optional column: the day of each picture",
        "bbox": "optional column: [x, y, width, height] in pixels, which is cut out",
        "orientation": "optional column: kept as a group, as every other column is",
    },
    parts={
        "frame": Part(
            summary="queries against gallery by the column split (or --split-column), or leave-one-out where there is "
            "none; it is any data set, so no count is checked",
            counts={},
            protocol=PROTOCOL,
        ),
        "leave-one-out": Part(
            summary="every image is a query among all others, whatever the column split says",
            counts={},
            protocol=PROTOCOL,
        ),
        "other-days": Part(
            summary="leave-one-out, where pictures of the query's own day take no rank, so that a query must find its "
            "animal on another day",
            counts={},
            protocol={**PROTOCOL, "ignore_same": "day"},
        ),
    },
    traps=(
        "The identity 'unknown' is reserved for animals that nobody told. Two of them need not be one animal, and one "
        "of them may be the query's, so here they are junk: no query, no answer, no rank. Give --junk-labels or "
        "--distractor-labels to decide otherwise.",
        "Pictures of one burst or one day make re-identification look easy: random splits have neighbouring frames on "
        "both sides. --part other-days, or a split by time, does not.",
        "A box is cut out, as wildlife-datasets does with img_load='bbox'; by default that library gives the whole "
        "picture.",
        "The frame's index is a nameless first column of its .csv and is left aside.",
    ),
    options={"root": None, "split_column": None},
)
