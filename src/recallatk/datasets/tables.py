"""Tables on disk -> columns: CSV, TSV, JSON lines and Parquet, with the place of every row for messages."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recallatk.types import RecallatkError, first_line
from recallatk.wording import counted


@dataclasses.dataclass(frozen=True)
class Table:
    """The columns of a file.

    Attributes:
        columns: name -> values; text from CSV and TSV, what the file says from the others (None: no value).
        places: where each row stands ("line 5").
        notes: one line for each thing that was left aside.
    """

    columns: Mapping[str, Sequence[Any]]
    places: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_table(path: Path, *, nested: Sequence[str] = ()) -> Table:
    """Read a table; its suffix names the format.

    Args:
        path: the file.
        nested: columns that are kept although they hold lists or objects.

    Raises:
        RecallatkError: an unknown suffix, or a file that is not what its suffix says.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise RecallatkError(f"{path}: manifests end in {', '.join(READERS)}; convert it, or name a folder")
    try:
        table = reader(path, nested)
    except OSError as error:
        raise RecallatkError(f"{path}: cannot be read ({error.strerror or error})") from error
    if not table.places:
        raise RecallatkError(f"{path}: no rows below the header; there must be at least one")
    return table


def as_number(value: Any) -> float | None:
    """A cell as a finite number; None where it is none.

    >>> as_number("4190000.5"), as_number(7), as_number("7 m"), as_number("nan")
    (4190000.5, 7.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, str) and "_" in value:
        return None  # Python alone reads 1_000 as a number
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _read_text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RecallatkError(f"{path}: line {line} is not UTF-8; save the file as UTF-8") from error


def _read_delimited(path: Path, nested: Sequence[str], *, delimiter: str) -> Table:
    rows = _delimited_rows(path, delimiter)
    _, header = next(rows, (0, None))
    if header is None:
        raise RecallatkError(f"{path}: the file is empty; its first line names the columns")
    if len(header) == 1:
        wrong = next((mark for mark in ";\t,|" if mark in header[0] and mark != delimiter), None)
        if wrong is not None:
            advice = "name it .tsv" if wrong == "\t" else "name it .csv" if wrong == "," else "save it with commas"
            raise RecallatkError(
                f"{path}: one column found, {header[0]!r}: the separator is {wrong!r}, not {delimiter!r}; {advice}"
            )
    _refuse_twins(path, header)
    cells, places = [], []
    for line, row in rows:
        if len(row) != len(header):
            raise RecallatkError(
                f"{path}: line {line} has {counted(len(row), 'field')}, the header has {len(header)}; "
                f"put cells that hold {delimiter!r} in double quotes"
            )
        cells.append(row)
        places.append(f"line {line}")
    columns = dict(zip(header, zip(*cells, strict=True), strict=True)) if cells else {}
    unnamed = columns.pop("", None)
    notes = () if unnamed is None else ("a column without a name left aside",)
    return Table(columns, tuple(places), notes)


def _delimited_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Each row with the line it begins on; a cell in quotes may span lines. Empty lines are no rows."""
    reader = csv.reader(io.StringIO(_read_text(path), newline=""), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise RecallatkError(
                f"{path}: the row that begins on line {line} is not valid ({error}); check its double quotes"
            ) from error
        if row is None:
            return
        if row:
            yield line, row


def read_json_rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its place; lists and objects in them are kept.

    Raises:
        RecallatkError: not readable, or a line that is no JSON object.
    """
    rows = []
    try:
        text = _read_text(path)
    except OSError as error:
        raise RecallatkError(f"{path}: cannot be read ({error.strerror or error})") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise RecallatkError(f"{path}: line {number} is not JSON ({error}); write one object a line") from error
        if not isinstance(row, dict):
            raise RecallatkError(f'{path}: line {number} is no object; write {{"column": ..., "column": ...}}')
        rows.append((f"line {number}", row))
    return rows


def as_table(found: Sequence[tuple[str, dict[str, Any]]], nested: Sequence[str] = ()) -> Table:
    """The columns of what `read_json_rows` read; columns of lists and objects are left aside, unless they are ours."""
    ours = (*_OURS, *nested)
    rows, places = [row for _, row in found], [place for place, _ in found]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    aside = [
        name
        for name, values in columns.items()
        if name not in ours and any(isinstance(value, list | dict) for value in values)
    ]
    return Table(
        {name: values for name, values in columns.items() if name not in aside}, tuple(places), _nested_notes(aside)
    )


def _read_json_lines(path: Path, nested: Sequence[str]) -> Table:
    return as_table(read_json_rows(path), nested)


def _read_parquet(path: Path, nested: Sequence[str]) -> Table:
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    def is_nested(kind: pa.DataType) -> bool:
        return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

    try:
        with path.open("rb") as stream, pq.ParquetFile(stream) as file:
            schema = file.schema_arrow
            _refuse_twins(path, schema.names)
            ours = (*_OURS, *nested)
            aside = [field.name for field in schema if field.name not in ours and is_nested(field.type)]
            table = file.read(columns=[name for name in schema.names if name not in aside])
    except pa.ArrowException as error:
        raise RecallatkError(f"{path}: cannot be read as Parquet ({first_line(error)})") from error
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    places = tuple(f"row {row} (counted from 0)" for row in range(table.num_rows))
    return Table(columns, places, _nested_notes(aside))


# The columns that mean something: everything else is a group column.
_OURS = ("path", "label", "id", "role", "split")


def _nested_notes(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"the column {name!r} holds lists, objects or bytes and is left aside" for name in names)


def _refuse_twins(path: Path, header: Sequence[str]) -> None:
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise RecallatkError(f"{path}: the column {twice!r} occurs more than once; rename one")


READERS: dict[str, Callable[[Path, Sequence[str]], Table]] = {
    ".csv": functools.partial(_read_delimited, delimiter=","),
    ".tsv": functools.partial(_read_delimited, delimiter="\t"),
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
}
"""Suffix -> reader."""
