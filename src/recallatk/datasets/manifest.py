"""A manifest -> Dataset: one row an image, with its path, label, and what else is known of it."""

from __future__ import annotations

import collections
import dataclasses
import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from recallatk.datasets.naming import same_file, shown, split_labels
from recallatk.datasets.tables import Table, as_number, read_table
from recallatk.images import box_suffix
from recallatk.types import Box, Dataset, ImageSet, OnError, RecallatkError, Skipped
from recallatk.wording import and_more, counted

Role = Literal["query", "gallery", "both"]

METADATA = "metadata"
"""What Hugging Face's `imagefolder` calls its table, whose column `file_name` is the path."""

POSITION_COLUMNS = (("easting", "northing"), ("utm_east", "utm_north"), ("x", "y"))
"""Pairs of columns that are a position in metres; the first pair that is there in full counts."""

BOX_COLUMNS = (("x1", "y1", "x2", "y2"), ("x_1", "y_1", "x_2", "y_2"))
"""Columns that are a box in pixels: left, top, right, bottom; the first four that are there in full count."""

FLAG_COLUMNS = ("is_query", "is_gallery")
"""Two columns of yes and no that are the role of a row, as in the tables of OML."""

_FLAGS = {True: True, False: False, None: False}  # 1 and 0 are equal to them
_FLAG_WORDS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False, "": False, "nan": False}

_ALIASES = {
    "path": ("filename", "file_name", "image", "filepath"),
    "label": ("class", "class_name", "identity", "category"),
}
"""What others call our columns: never read as ours, as they may be something else, but named in the error."""


@dataclasses.dataclass(frozen=True)
class _Row:
    place: str
    role: Role
    name: str
    file: Path | None  # None: not there
    id: str
    label: Any
    groups: tuple[str, ...]
    position: tuple[float, ...]
    box: Box | None


def load_manifest(
    path: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    label_separator: str | None = None,
    labels_required: bool = True,
    on_error: OnError = "error",
) -> Dataset:
    """Read a manifest: .csv, .tsv, .jsonl, .ndjson or .parquet.

    Columns: `path` and `label`; optional `id` and `role` (query, gallery or both), and `easting` and `northing` (or
    `utm_east` and `utm_north`, or `x` and `y`), which are each row's position in metres; every other column is a group
    column. `is_query` and `is_gallery` are read as `role` where there is no `role`, and so is `split` when it names
    query or gallery rows. Without roles every row is both, which is leave-one-out. `x1, y1, x2, y2` (or `x_1, y_1, x_2,
    y_2`) are a box in pixels, left, top, right, bottom: that part of the picture is the image. In a file called
    `metadata`, as `imagefolder` has it, `file_name` is the path. Cells of .csv and .tsv stay the text they are. Rows
    need no label where they have positions; without a column `label` they have none, which the notes say.

    Args:
        path: the manifest.
        root: the folder that relative paths start from; default: the manifest's own.
        label_separator: splits a label cell into several labels; an empty cell is then no label.
        labels_required: whether rows without positions must have labels.
        on_error: whether rows whose file is missing stop the run or are skipped.

    Raises:
        RecallatkError: a column, cell or file is missing or not understood; the message names the line.
    """
    path = Path(path)
    return from_table(
        path,
        _with_path(path, read_table(path)),
        root=root,
        label_separator=label_separator,
        labels_required=labels_required,
        on_error=on_error,
    )


def from_table(
    path: Path,
    table: Table,
    *,
    root: str | os.PathLike[str] | None = None,
    label_separator: str | None = None,
    labels_required: bool = True,
    on_error: OnError = "error",
) -> Dataset:
    """The data set of a table whose columns are called as `load_manifest` says; `path` is where it was read from."""
    folder = path.parent if root is None else Path(root)
    if not folder.is_dir():
        raise RecallatkError(f"{folder}: no such folder; root is the folder that the paths of {path} start from")
    position_columns = next((pair for pair in POSITION_COLUMNS if table.columns.keys() >= set(pair)), ())
    box_columns = _find_box_columns(path, table)
    notes = list(table.notes)
    _check_columns(path, table, notes, labels_required=labels_required and not position_columns)
    roles, role_columns = _read_roles(path, table, notes)
    taken = ("path", "label", "id", *role_columns, *position_columns, *box_columns)
    group_columns = [name for name in table.columns if name not in taken]
    columns = _Columns(group_columns, position_columns, box_columns)
    rows = _read_rows(path, table, roles, columns, folder, label_separator, notes)
    _check_ids(path, rows, by_path="id" not in table.columns)
    alone = all(row.role == "both" for row in rows)
    missing = [row for row in rows if row.file is None]
    if missing and on_error == "error":
        raise RecallatkError(
            f"{path}: {missing[0].place}: no such file {missing[0].name!r}{and_more(len(missing), 'row')}; "
            f"correct the path (relative ones start from {folder}), or leave such rows out with on_error='skip' "
            "(--on-error skip)"
        )
    rows = [row for row in rows if row.file is not None]
    sides = {side: [row for row in rows if row.role in (side, "both")] for side in ("query", "gallery")}
    for side, members in sides.items():
        if not members:
            reason = "the file of every such row is missing" if missing else f"set role to {side} or both in some rows"
            raise RecallatkError(f"{path}: no row is in the {side} side; {reason}")
    real_folder, real_folders = os.path.realpath(folder), dict[str, str]()

    def image_set(members: Sequence[_Row]) -> ImageSet:
        files = [row.file for row in members if row.file is not None]
        return ImageSet(
            elements=tuple(files),
            ids=tuple(row.id for row in members),
            labels=tuple(row.label for row in members),
            same=tuple(
                same_file(_real_path(file, real_folders), [(real_folder, "")]) + _suffix(row.box)
                for file, row in zip(files, members, strict=True)
            ),
            groups={name: tuple(row.groups[i] for row in members) for i, name in enumerate(group_columns)},
            positions=np.array([row.position for row in members]) if position_columns else None,
            boxes=tuple(row.box for row in members) if box_columns else None,
        )

    return Dataset(
        query=image_set(sides["query"]),
        gallery=None if alone else image_set(sides["gallery"]),
        root=folder,
        skipped=tuple(Skipped(row.name, f"no such file ({path.name}, {row.place})") for row in missing),
        notes=tuple(notes),
    )


def _check_columns(path: Path, table: Table, notes: list[str], *, labels_required: bool) -> None:
    for column, aliases in _ALIASES.items():
        if column in table.columns:
            continue
        if column == "label" and not labels_required:
            notes.append("there is no column 'label', so no row has a label")
            continue
        found = ", ".join(repr(name) for name in table.columns)
        plain = {name.lower(): name for name in table.columns}
        near = next((plain[name] for name in (column, *aliases) if name in plain), None)
        advice = "Rename one, or add it" if near is None else f"To use it, rename {near!r} to {column!r}"
        raise RecallatkError(f"{path}: no column {column!r}; columns found: {found}. {advice}")


@dataclasses.dataclass(frozen=True)
class _Columns:
    """The names of columns whose names are not fixed."""

    groups: Sequence[str]
    position: Sequence[str]
    box: Sequence[str]


def _with_path(path: Path, table: Table) -> Table:
    """The table with `file_name` as the path, where it is metadata of Hugging Face's `imagefolder`."""
    if path.stem != METADATA or "path" in table.columns or "file_name" not in table.columns:
        return table
    columns = {"path" if name == "file_name" else name: values for name, values in table.columns.items()}
    return dataclasses.replace(table, columns=columns)


def _find_box_columns(path: Path, table: Table) -> tuple[str, ...]:
    """The four columns of a crop box, or none of them; some of the four would crop nothing without a word."""
    for four in BOX_COLUMNS:
        there = [name for name in four if name in table.columns]
        if len(there) == len(four):
            return four
        if len(there) > 1:
            absent = [name for name in four if name not in table.columns]
            raise RecallatkError(
                f"{path}: there are columns {', '.join(there)} but no {', '.join(absent)}; a crop box needs all four, "
                "so add what is missing, or rename the others"
            )
    return ()


def _read_roles(path: Path, table: Table, notes: list[str]) -> tuple[list[Role | None], tuple[str, ...]]:
    """The role of each row (None: left aside), and the columns it came from."""
    known = get_args(Role)
    if "role" in table.columns:
        for place, value in zip(table.places, table.columns["role"], strict=True):
            if value not in known:
                raise RecallatkError(f"{path}: {place}: the role is {value!r}; write {', '.join(known)}")
        return list(table.columns["role"]), ("role",)
    if table.columns.keys() >= set(FLAG_COLUMNS):
        return _read_flags(path, table, notes), FLAG_COLUMNS
    split = table.columns.get("split", ())
    if not {"query", "gallery"}.intersection(value for value in split if isinstance(value, str)):
        return ["both"] * len(table.places), ()
    aside = collections.Counter(repr(value) for value in split if value not in known)
    if aside:
        most = ", ".join(f"{value}: {number:,}" for value, number in aside.most_common(3))
        rows = counted(aside.total(), "row")
        notes.append(f"{rows} left aside, whose split is none of {', '.join(known)} ({most})")
    return [value if value in known else None for value in split], ("split",)


def _read_flags(path: Path, table: Table, notes: list[str]) -> list[Role | None]:
    """Roles from two columns of yes and no; a row where neither says yes is left aside."""
    meanings: dict[tuple[bool, bool], Role | None]
    meanings = {(True, True): "both", (True, False): "query", (False, True): "gallery", (False, False): None}
    flags = []
    for column in FLAG_COLUMNS:
        flags.append([_as_flag(value) for value in table.columns[column]])
        if None in flags[-1]:
            row = flags[-1].index(None)
            raise RecallatkError(
                f"{path}: {table.places[row]}: {column} is {table.columns[column][row]!r}; write True or False, or "
                "leave both empty where the row is neither"
            )
    roles = [meanings[bool(query), bool(gallery)] for query, gallery in zip(*flags, strict=True)]
    if aside := roles.count(None):
        notes.append(f"{counted(aside, 'row')} left aside, where neither {' nor '.join(FLAG_COLUMNS)} is true")
    return roles


def _as_flag(value: Any) -> bool | None:
    """A cell as yes or no, an empty one being no; None where it is neither."""
    if isinstance(value, str):
        return _FLAG_WORDS.get(value.strip().lower())
    return False if value != value else _FLAGS.get(value)  # NaN: an empty cell of a data frame


def _read_rows(
    path: Path,
    table: Table,
    roles: Sequence[Role | None],
    names: _Columns,
    folder: Path,
    separator: str | None,
    notes: list[str],
) -> list[_Row]:
    columns, rows, converted, recoded = table.columns, [], 0, 0
    empty = collections.Counter[str]()
    for row, (place, role) in enumerate(zip(table.places, roles, strict=True)):
        if role is None:
            continue
        where = f"{path}: {place}"
        given = columns["path"][row]
        if not isinstance(given, str) or not given:
            raise RecallatkError(f"{where}: the path is {given!r}; write the image's path, or remove the row")
        name, file = _locate(folder, given)
        converted += os.sep == "/" and name == given.replace("\\", "/") != given
        recoded += file is not None and name not in (given, given.replace("\\", "/"))
        box = _read_box([columns[column][row] for column in names.box], where, names.box)
        name = shown(name)
        identity = columns["id"][row] if "id" in columns else name + _suffix(box)
        if identity in (None, ""):
            raise RecallatkError(f"{where}: the id is empty; give every row one, or remove the column")
        label = _read_label(columns["label"][row], f"{where} ({name!r})", separator) if "label" in columns else ()
        groups = tuple("" if columns[column][row] is None else str(columns[column][row]) for column in names.groups)
        empty.update(column for column, value in zip(names.groups, groups, strict=True) if not value)
        position = tuple(_coordinate(columns[column][row], where, column) for column in names.position)
        rows.append(_Row(place, role, name, file, str(identity), label, groups, position, box))
    if converted:
        notes.append(
            f"{counted(converted, 'path')} written with a backslash read with /, as the files are only there so"
        )
    if recoded:
        notes.append(f"{counted(recoded, 'path')} read in another Unicode form, as the files are only there so")
    notes.extend(f"the column {column!r} is empty in {counted(number, 'row')}" for column, number in empty.items())
    return rows


def _locate(folder: Path, given: str) -> tuple[str, Path | None]:
    """The path with "/" and the file, which is None when it is not there."""
    plain = given.replace("\\", "/")
    # A name that went over a Mac comes back decomposed, and the table that was written elsewhere does not, or so.
    forms = () if plain.isascii() else (unicodedata.normalize("NFC", plain), unicodedata.normalize("NFD", plain))
    for name in dict.fromkeys((given, plain, *forms)):
        if os.path.isfile(folder / name):  # noqa: PTH113 - Path.is_file raises on a name that is too long
            return name.replace(os.sep, "/"), folder / name
    return given.replace(os.sep, "/"), None


def _real_path(file: Path, known: dict[str, str]) -> str:
    """The file with links followed; every folder is resolved once."""
    if file.is_symlink():
        return os.path.realpath(file)
    parent = str(file.parent)
    if parent not in known:
        known[parent] = os.path.realpath(parent)
    return str(Path(known[parent], file.name))


def _coordinate(value: Any, where: str, column: str) -> float:
    number = as_number(value)
    if number is None:
        raise RecallatkError(
            f"{where}: {column} is {value!r}; write the position of every row as numbers, in metres, or rename the "
            "column if it is something else"
        )
    return number


def _read_box(cells: Sequence[Any], where: str, names: Sequence[str]) -> Box | None:
    """The box of a row; None where its cells are empty, which means all of the picture."""
    given = [cell for cell in cells if not (cell is None or cell == "" or cell != cell)]
    if not given:
        return None
    numbers = [as_number(cell) for cell in cells]
    if None in numbers or any(number != int(number) for number in numbers if number is not None):
        raise RecallatkError(
            f"{where}: {', '.join(names)} are {list(cells)!r}; write a box in whole pixels, or leave all four empty"
        )
    left, top, right, bottom = (int(number) for number in numbers if number is not None)
    if not (0 <= left < right and 0 <= top < bottom):
        raise RecallatkError(
            f"{where}: the box {(left, top, right, bottom)} is empty or begins outside the picture; "
            f"{', '.join(names)} are left, top, right and bottom in pixels"
        )
    return left, top, right, bottom


def _suffix(box: Box | None) -> str:
    return "" if box is None else box_suffix(box)


def _read_label(value: Any, where: str, separator: str | None) -> str | int | tuple[str | int, ...]:
    if isinstance(value, list):
        return tuple(_single_label(item, where) for item in value)
    if separator is not None:
        return split_labels(value, separator) if isinstance(value, str) else (_single_label(value, where),)
    return _single_label(value, where)


def _single_label(value: Any, where: str) -> str | int:
    if value == "":
        raise RecallatkError(f"{where}: the label is empty; give the row a label, or remove it")
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if value is None:
        raise RecallatkError(f"{where}: there is no label; give the row a label, or remove it")
    raise RecallatkError(f"{where}: the label is {value!r} ({type(value).__name__}); labels are text or integers")


def _check_ids(path: Path, rows: Sequence[_Row], *, by_path: bool) -> None:
    """An id stands once on a side; on both sides it must be the same image with the same label."""
    noun, advice = ("path", "or tell them apart in an id column") if by_path else ("id", "or change one")
    seen: dict[str, list[_Row]] = {}
    for row in rows:
        for other in seen.setdefault(row.id, []):
            places = f"{path}: {other.place} and {row.place} have the same {noun} {row.id!r}"
            if row.role == other.role or "both" in (row.role, other.role):
                side = row.role if row.role != "both" else other.role
                raise RecallatkError(f"{places} (role {side}); remove one, {advice}")
            if row.label != other.label:
                raise RecallatkError(f"{places} but the labels {other.label!r} and {row.label!r}; correct one")
            if row.position != other.position:
                raise RecallatkError(f"{places} but the positions {other.position} and {row.position}; correct one")
            if row.box != other.box:
                raise RecallatkError(f"{places} but the boxes {other.box} and {row.box}; correct one")
            if row.file != other.file or row.name != other.name:
                raise RecallatkError(f"{places} but the files {other.name!r} and {row.name!r}; change one id")
        seen[row.id].append(row)
