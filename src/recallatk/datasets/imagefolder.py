"""A folder with a table `metadata` in it, as Hugging Face's `imagefolder` has it -> Dataset."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from recallatk.datasets.manifest import METADATA, load_manifest
from recallatk.datasets.tables import READERS, read_table
from recallatk.datasets.walk import walk_images
from recallatk.types import Dataset, OnError, RecallatkError
from recallatk.wording import counted


def find_metadata(data: Path) -> list[Path]:
    """The tables directly below DATA that are called `metadata`."""
    return [file for file in (data / f"{METADATA}{suffix}" for suffix in READERS) if file.is_file()]


def is_imagefolder(data: Path) -> bool:
    """Whether DATA has such a table, with the column `file_name` that makes it one."""
    try:
        return any("file_name" in read_table(file).columns for file in find_metadata(data))
    except RecallatkError:  # not a table of ours: the folder is read as if it were not there
        return False


def load_imagefolder(
    data: Path, *, label_separator: str | None = None, labels_required: bool = True, on_error: OnError = "error"
) -> Dataset:
    """Read a folder whose table `metadata` names its images; the options are those of `load_manifest`.

    Raises:
        RecallatkError: no such table, or more than one, or what `load_manifest` finds.
    """
    tables = find_metadata(data)
    if len(tables) != 1:
        named = " and ".join(table.name for table in tables)
        raise RecallatkError(
            f"{data}: {named} are both there; keep one"
            if tables
            else f"{data}: no {METADATA}.csv, .jsonl or .parquet in this folder; name the folder that holds it"
        )
    dataset = load_manifest(
        tables[0], label_separator=label_separator, labels_required=labels_required, on_error=on_error
    )
    sides = [dataset.query] if dataset.gallery is None else [dataset.query, dataset.gallery]
    listed = {os.path.normpath(element) for side in sides for element in side.elements}
    others = [image.below for image in walk_images(data).images if os.path.normpath(image.path) not in listed]
    if not others:
        return dataset
    note = f"{counted(len(others), 'image')} left aside that {tables[0].name} does not use (such as {others[0]!r})"
    return dataclasses.replace(dataset, notes=(*dataset.notes, note))
