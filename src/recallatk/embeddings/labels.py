"""Files of labels, for arrays that carry none."""

from __future__ import annotations

import array
import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from recallatk.embeddings import arrays, parquet
from recallatk.embeddings.samples import APART, POSITION_COLUMNS, Samples, from_columns, readable
from recallatk.types import Memo, RecallatkError


def read_npy(path: Path, name: str, *, several: bool) -> Samples:
    """An array of integers or text, one a row."""
    return Samples(labels=arrays.read_array(path, name))


def read_parquet(path: Path, name: str, *, several: bool) -> Samples:
    """A table with a column `label` (or `labels`), and ids and groups if it has them."""
    return parquet.read_samples(path, name)


def read_text(path: Path, name: str, *, several: bool) -> Samples:
    """One label a line; only the line break is taken off. With several labels a line, an empty line is none."""
    with readable(name), path.open(encoding="utf-8-sig") as stream:
        lines = Memo(str).each(line.removesuffix("\n") for line in stream)
    while lines and not lines[-1] and not several:  # of several labels an empty line says that there is none
        lines.pop()
    if not several and "" in lines:
        raise RecallatkError(f"{name}: line {lines.index('') + 1} is empty; every row needs one")
    return Samples(labels=lines)


def read_json(path: Path, name: str, *, several: bool) -> Samples:
    """A list of text, integers or lists of them."""
    with readable(name, RecursionError):
        labels: Any = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(labels, list):
        raise RecallatkError(f"{name}: holds a {type(labels).__name__}; labels are a list, one element a row")
    return Samples(labels=labels)


def read_csv(path: Path, name: str, *, several: bool) -> Samples:
    """A table with a header: `label`, `id`, `easting` and `northing`, and groups, as far as they are there."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with readable(name, csv.Error), path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter, strict=True)
        header = next(reader, [])
        keep: list[Callable[[str], str]] = [str if column in APART else Memo(str).__getitem__ for column in header]
        cells: list[list[str]] = [[] for _ in header]
        numbers = array.array("q")
        odd: list[tuple[int, int]] = []  # from the first row that does not fit on; empty ones at the end are no rows
        for row in reader:
            if odd or len(row) != len(header):
                odd += [(reader.line_num, len(row))] if row or not odd else []
                continue
            numbers.append(reader.line_num)
            for column, kept, cell in zip(cells, keep, row, strict=True):
                column.append(kept(cell))
    if len(odd) > 1 or (odd and odd[0][1]):
        raise RecallatkError(f"{name}: line {odd[0][0]} has {odd[0][1]} cells, the header has {len(header)}")
    if len(set(header)) != len(header):
        raise RecallatkError(f"{name}: two columns have one name ({', '.join(header)}); rename one")
    columns: dict[str, list[str]] = dict(zip(header, cells, strict=True))
    positions = None
    if columns.keys() >= set(POSITION_COLUMNS):
        rows = zip(*(columns.pop(column) for column in POSITION_COLUMNS), strict=True)
        positions = np.array([_point(point, number, name) for point, number in zip(rows, numbers, strict=True)])
    return from_columns(columns, positions=positions)


def _point(cells: tuple[str, ...], number: int, name: str) -> list[float]:
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        wanted = " and ".join(POSITION_COLUMNS)
        raise RecallatkError(f"{name}: line {number}: {wanted} are {cells!r}; write numbers, in metres") from error


LABEL_FORMATS = {
    ".npy": read_npy,
    ".txt": read_text,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".json": read_json,
    ".parquet": read_parquet,
}
