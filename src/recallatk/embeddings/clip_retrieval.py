"""The folders that clip-retrieval writes: parts of embeddings in .npy files, and a table for each of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from recallatk.embeddings import arrays, parquet
from recallatk.embeddings.samples import Samples
from recallatk.memory import megabytes, new_array
from recallatk.types import RecallatkError, as_rows, release_pages

EMBEDDINGS, METADATA, TEXTS = "img_emb", "metadata", "text_emb"
BLOCK_ROWS = 4096


def is_folder(path: Path) -> bool:
    """Whether a folder is one of clip-retrieval: it holds `img_emb`."""
    return (path / EMBEDDINGS).is_dir()


def read(path: Path, name: str, *, most: int | None = None) -> tuple[npt.NDArray[Any], Samples]:
    """The parts `img_emb/img_emb_0.npy` and so on, in the order of their numbers, as one array of their own dtype.

    `metadata/metadata_0.parquet` and so on are the samples: `image_path` is the id; `label`, `id` and other columns
    are read as those of a .parquet file. An array of more than `most` bytes lies in a temporary file.
    """
    parts = _parts(path / EMBEDDINGS, ".npy")
    if not parts:
        raise RecallatkError(f"{name}: no {EMBEDDINGS}_0.npy in {path / EMBEDDINGS}; name the folder that holds it")
    mapped = [
        as_rows(arrays.read_array(part, f"{name}: {part.name}"), f"{name}: {part.name}") for part in parts.values()
    ]
    first, width = mapped[0].dtype, mapped[0].shape[1]
    for part, array in zip(parts.values(), mapped, strict=True):
        if array.shape[1] != width or array.dtype != first:
            raise RecallatkError(
                f"{name}: {part.name} has {array.shape[1]} columns of {array.dtype}, the first {width} of {first}; "
                "all parts must be of one encoder"
            )
    samples = _read_samples(path, name, {number: len(array) for number, array in zip(parts, mapped, strict=True)})
    rows, place = new_array((sum(map(len, mapped)), mapped[0].shape[1]), mapped[0].dtype, most=most)
    start = 0
    for array in mapped:
        for row in range(0, len(array), BLOCK_ROWS):
            block = array[row : row + BLOCK_ROWS]
            rows[start : start + len(block)] = block
            start += len(block)
            release_pages(array)
            release_pages(rows)
    notes = list(samples.notes)
    if place is not None:
        notes.append(f"{megabytes(rows.nbytes)} of embeddings were unpacked to a temporary file in {place}")
    if (path / TEXTS).is_dir():
        notes.append(f"the embeddings of texts in {TEXTS}/ were not read")
    return rows, dataclasses.replace(samples, notes=tuple(notes))


def _read_samples(path: Path, name: str, rows: dict[int, int]) -> Samples:
    """What the tables say of all parts, one after the other."""
    tables = _parts(path / METADATA, ".parquet")
    if not tables:
        return Samples(notes=(f"there is no {METADATA}/ in the folder, so the rows have no ids",))
    if tables.keys() != rows.keys():
        number = min(tables.keys() ^ rows.keys())
        here, there = (METADATA, EMBEDDINGS) if number in tables else (EMBEDDINGS, METADATA)
        raise RecallatkError(f"{name}: part {number} is in {here}/ and not in {there}/; copy the missing file")
    parts = []
    for number, table in tables.items():
        found = parquet.read_samples(table, f"{name}: {table.name}")
        groups = dict(found.groups)
        paths = groups.pop("image_path", None)
        found = dataclasses.replace(found, groups=groups, ids=paths if found.ids is None else found.ids)
        columns = [found.labels, found.ids, *groups.values()]
        lengths = {len(column) for column in columns if column is not None} - {rows[number]}
        if lengths:
            raise RecallatkError(
                f"{name}: {table.name} has {min(lengths)} rows for the {rows[number]} embeddings of its part; "
                "both must come from one run"
            )
        parts.append(found)
    names = set(parts[0].groups).intersection(*(part.groups for part in parts))
    lost = sorted(set().union(*(part.groups for part in parts)) - names)
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    if lost:
        notes[f"columns left aside that not every part has: {', '.join(map(repr, lost))}"] = None
    return Samples(
        labels=_joined([part.labels for part in parts], "label", name),
        ids=_joined([part.ids for part in parts], "image_path", name),
        groups={
            column: _joined([part.groups[column] for part in parts], column, name) or () for column in sorted(names)
        },
        notes=tuple(notes),
    )


def _joined(columns: Sequence[Any], what: str, name: str) -> list[Any] | None:
    there = [column for column in columns if column is not None]
    if there and len(there) < len(columns):
        raise RecallatkError(f"{name}: the column {what!r} is in some parts of {METADATA}/ only; add it to all")
    return [value for column in there for value in column] if there else None


def _parts(folder: Path, suffix: str) -> dict[int, Path]:
    """The files NAME_0, NAME_1 and so on by their numbers, in their order; numbers may begin with zeros."""
    found: dict[int, Path] = {}
    for file in sorted(folder.glob(f"{folder.name}_*{suffix}")):
        number = re.fullmatch(rf"{folder.name}_(\d+)", file.stem)
        if number is None:
            continue
        if int(number[1]) in found:
            raise RecallatkError(
                f"{folder}: {found[int(number[1])].name} and {file.name} are both part {int(number[1])}"
            )
        found[int(number[1])] = file
    return dict(sorted(found.items()))
