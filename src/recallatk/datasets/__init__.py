"""Data sets on disk -> Dataset: the table of layouts, and which of them a path is."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recallatk.datasets.folders import SIDE_NAMES, find_sides, load_classes, load_folder, load_two_folders
from recallatk.datasets.manifest import load_manifest
from recallatk.datasets.qrels import load_qrels
from recallatk.datasets.ranked_lists import load_ranked_lists
from recallatk.datasets.sampling import sample_dataset
from recallatk.datasets.tables import READERS
from recallatk.types import ChoiceError, Dataset, OnError, RecallatkError

__all__ = [
    "LAYOUTS",
    "Layout",
    "detect_layout",
    "load_dataset",
    "load_qrels",
    "load_ranked_lists",
    "load_two_folders",
    "sample_dataset",
]


@dataclasses.dataclass(frozen=True)
class Layout:
    """A row of the table of layouts.

    Attributes:
        load: called with DATA and the options, by name.
        summary: one line for the list of layouts.
        options: the options of `load_dataset` it takes, beside `on_error`; others are refused, not passed over.
    """

    load: Callable[..., Dataset]
    summary: str
    options: tuple[str, ...]


LAYOUTS: dict[str, Layout] = {
    "folder": Layout(
        load_folder,
        "query/ and gallery/, each with a folder for every label",
        ("label_from", "label_separator"),
    ),
    "classes": Layout(
        load_classes,
        "a folder for every label; each image is a query, all the others are its gallery (leave-one-out)",
        ("label_from", "label_separator"),
    ),
    "manifest": Layout(
        load_manifest,
        "a table (.csv, .tsv, .jsonl, .parquet): path, label; optional id, role, easting and northing, any groups",
        ("root", "label_separator"),
    ),
}
"""Layout name -> how it is read."""


def load_dataset(
    data: str | os.PathLike[str],
    *,
    layout: str | None = None,
    label_from: str = "parent",
    label_separator: str | None = None,
    root: str | os.PathLike[str] | None = None,
    labels_required: bool = True,
    on_error: OnError = "error",
) -> Dataset:
    """Read a data set.

    Args:
        data: a folder, or a manifest.
        layout: a row of `LAYOUTS`; None looks at DATA.
        label_from: folders only: "parent", or "regex:..." searched in the path below DATA.
        label_separator: splits a label into several.
        root: manifests only: the folder that relative paths start from.
        labels_required: whether the rows of a manifest must have labels (or positions); images in folders always do.
        on_error: whether a file that is missing stops the run or is skipped.

    Raises:
        ChoiceError: an unknown layout, or an option that the layout does not take.
        RecallatkError: no such data, or what the layout found.
    """
    data = Path(data)
    if layout is not None and layout not in LAYOUTS:
        near = difflib.get_close_matches(layout, LAYOUTS, n=1)
        meant = f"did you mean {near[0]}?" if near else f"choose one of: {', '.join(LAYOUTS)}"
        raise ChoiceError(f"layout={layout!r} is not a layout; {meant}")
    if not data.exists():
        raise RecallatkError(f"{data}: no such file or folder; name a folder of images, or a manifest")
    name, warnings = (layout, ()) if layout is not None else detect_layout(data)
    row = LAYOUTS[name]
    if name == "manifest" and data.is_dir():
        raise RecallatkError(f"{data}: a folder, not a manifest; name the file ({', '.join(READERS)})")
    if name != "manifest" and not data.is_dir():
        raise RecallatkError(f"{data}: a file; the layout {name} reads a folder")
    given: dict[str, tuple[Any, Any]] = {
        "label_from": (label_from, "parent"),
        "label_separator": (label_separator, None),
        "root": (root, None),
    }
    for option, (value, default) in given.items():
        if value != default and option not in row.options:
            raise ChoiceError(
                f"{option}={str(value)!r}: the layout {name} does not take it; it takes {', '.join(row.options)}"
            )
    options = {option: given[option][0] for option in row.options}
    if name == "manifest":
        options["labels_required"] = labels_required
    dataset = row.load(data, on_error=on_error, **options)
    return dataclasses.replace(dataset, warnings=(*warnings, *dataset.warnings))


def detect_layout(data: Path) -> tuple[str, tuple[str, ...]]:
    """The layout that DATA looks like, and a warning where it could have been meant otherwise."""
    if not data.is_dir():
        return "manifest", ()
    sides = find_sides(data)
    present = [side for side, names in sides.items() if names]
    if len(present) == len(sides):
        return "folder", ()
    if not present:
        return "classes", ()
    (side,) = present
    (absent,) = set(sides) - {side}
    return "classes", (
        f"{sides[side][0]}/ is there but no {'/ or '.join(SIDE_NAMES[absent])}/: DATA is read as class folders, "
        "leave-one-out; say so with layout='classes' (--layout classes), or give both folders",
    )
