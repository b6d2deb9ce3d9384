"""Data sets on disk -> Dataset: the table of layouts, and which of them a path is."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from recallatk.datasets.benchmarks import BENCHMARKS, Benchmark, Counts, check_counts, looks_like
from recallatk.datasets.benchmarks.writing import describe
from recallatk.datasets.folders import SIDE_NAMES, find_sides, load_classes, load_folder, load_two_folders
from recallatk.datasets.imagefolder import is_imagefolder, load_imagefolder
from recallatk.datasets.manifest import load_manifest
from recallatk.datasets.naming import as_source
from recallatk.datasets.qrels import load_qrels
from recallatk.datasets.ranked_lists import load_ranked_lists
from recallatk.datasets.sampling import sample_dataset
from recallatk.types import ChoiceError, Dataset, OnError, RecallatkError

__all__ = [
    "BENCHMARKS",
    "LAYOUTS",
    "Layout",
    "describe_layout",
    "detect_layout",
    "find_layout",
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
        load: called with DATA, and by name with `on_error` and every option.
        summary: one line for the list of layouts.
        reads: what DATA is.
        options: the options of `load_dataset` it takes, with their defaults; others are refused, not passed over.
        benchmark: what is known of it, where it is a benchmark of the field.
    """

    load: Callable[..., Dataset]
    summary: str
    reads: Literal["folder", "file"]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    benchmark: Benchmark | None = None


def _of_benchmark(benchmark: Benchmark) -> Layout:
    """The row of a benchmark: its part chosen and the copy's counts checked."""

    def load(data: Path, *, part: str | None, counts: Counts, on_error: OnError, **options: Any) -> Dataset:
        name = benchmark.part_named(part)
        dataset = benchmark.load(data, part=name, on_error=on_error, **options)
        warnings = check_counts(benchmark, name, dataset.query, dataset.gallery, counts=counts)
        return dataclasses.replace(
            dataset,
            warnings=(*warnings, *dataset.warnings),
            protocol=benchmark.parts[name].eval_protocol,
            metrics=benchmark.parts[name].metrics,
            views=benchmark.parts[name].views,
        )

    options = {"part": None, "counts": "official", **benchmark.options}
    return Layout(load, benchmark.summary, benchmark.reads, options, benchmark)


LAYOUTS: dict[str, Layout] = {
    "folder": Layout(
        load_folder,
        "query/ and gallery/, each with a folder for every label",
        "folder",
        {"label_from": "parent", "label_separator": None},
    ),
    "classes": Layout(
        load_classes,
        "a folder for every label; each image is a query, all the others are its gallery (leave-one-out)",
        "folder",
        {"label_from": "parent", "label_separator": None},
    ),
    "manifest": Layout(
        load_manifest,
        "a table (.csv, .tsv, .jsonl, .parquet): path, label; optional id, role, easting and northing, any groups",
        "file",
        {"root": None, "label_separator": None, "labels_required": True},
    ),
    "imagefolder": Layout(
        load_imagefolder,
        "a folder whose metadata.csv, .jsonl or .parquet has a column file_name, as Hugging Face's imagefolder",
        "folder",
        {"label_separator": None, "labels_required": True},
    ),
    **{name: _of_benchmark(benchmark) for name, benchmark in BENCHMARKS.items()},
}
"""Layout name -> how it is read."""


def load_dataset(
    data: str | os.PathLike[str],
    *,
    layout: str | None = None,
    label_from: str | None = None,
    label_separator: str | None = None,
    root: str | os.PathLike[str] | None = None,
    part: str | None = None,
    counts: Counts = "official",
    split_column: str | None = None,
    labels_required: bool = True,
    on_error: OnError = "error",
    **more: Any,
) -> Dataset:
    """Read a data set.

    An option that is None is not given: the layout has its own default.

    Args:
        data: a folder, or a manifest.
        layout: a row of `LAYOUTS`; None looks at DATA.
        label_from: folders only: "parent" (the default), or "regex:..." searched in the path below DATA.
        label_separator: splits a label into several.
        root: manifests and other tables only: the folder that relative paths start from.
        part: benchmarks only: which of its evaluations; see `recallatk datasets show NAME`.
        counts: benchmarks only: whether the copy must have the official counts, or may have others (any), which the
            report then says.
        split_column: tables of wildlife-datasets only: the column that tells queries from gallery.
        labels_required: whether the rows of a manifest must have labels (or positions); images in folders always do.
        on_error: whether a file that is missing stops the run or is skipped.
        more: options of layouts that were added to the table.

    Raises:
        ChoiceError: an unknown layout, or an option that the layout does not take.
        RecallatkError: no such data, or what the layout found.
    """
    data = Path(data)
    if layout is not None:
        find_layout(layout)
    if not data.exists():
        raise RecallatkError(f"{data}: no such file or folder; name a folder of images, or a manifest")
    name, warnings = (layout, ()) if layout is not None else detect_layout(data)
    row = LAYOUTS[name]
    found: Literal["folder", "file"] = "folder" if data.is_dir() else "file"
    if found != row.reads:
        raise RecallatkError(f"{data}: a {found}; the layout {name} reads a {row.reads}: {row.summary}")
    named = {"label_from": label_from, "label_separator": label_separator, "root": root, "part": part, "counts": counts}
    named |= {"split_column": split_column}
    given = {option: value for option, value in {**named, **more}.items() if value is not None}
    # The default of another layout asks for nothing: a caller may name every option there is.
    defaults = {option: default for other in LAYOUTS.values() for option, default in other.options.items()}
    for option, value in given.items():
        if option not in row.options and (option not in defaults or value != defaults[option]):
            taken = ", ".join(row.options) or "no options"
            raise ChoiceError(f"{option}={str(value)!r}: the layout {name} does not take it; it takes {taken}")
    given["labels_required"] = labels_required  # not refused: where every image has a label it changes nothing
    options = {option: given.get(option, default) for option, default in row.options.items()}
    dataset = row.load(data, on_error=on_error, **options)
    source = {"data": data, "layout": name, **given, "on_error": on_error}
    return dataclasses.replace(dataset, warnings=(*warnings, *dataset.warnings), source=as_source(source))


def find_layout(name: str) -> Layout:
    """The row of LAYOUTS.

    Raises:
        ChoiceError: there is no such layout.
    """
    if name not in LAYOUTS:
        near = difflib.get_close_matches(name, LAYOUTS, n=1)
        meant = f"did you mean {near[0]}?" if near else f"choose one of: {', '.join(LAYOUTS)}"
        raise ChoiceError(f"layout={name!r} is not a layout; {meant}")
    return LAYOUTS[name]


def describe_layout(name: str) -> str:
    """What a layout is, in words: all that is known of a benchmark.

    Raises:
        ChoiceError: there is no such layout.
    """
    layout = find_layout(name)
    return f"{name}: {layout.summary}\n" if layout.benchmark is None else describe(name, layout.benchmark)


def detect_layout(data: Path) -> tuple[str, tuple[str, ...]]:
    """The layout that DATA looks like, and a warning where it could have been meant otherwise."""
    if not data.is_dir():
        return "manifest", ()
    known = tuple(
        f"DATA looks like {BENCHMARKS[name].title}, and is read as any folder: to evaluate it as published, give "
        f"layout='{name}' (--layout {name})"
        for name in looks_like(data, BENCHMARKS)
    )
    sides = find_sides(data)
    present = [side for side, names in sides.items() if names]
    if len(present) == len(sides):
        return "folder", known
    if not present:
        return "imagefolder" if is_imagefolder(data) else "classes", known
    (side,) = present
    (absent,) = set(sides) - {side}
    return "classes", (
        *known,
        f"{sides[side][0]}/ is there but no {'/ or '.join(SIDE_NAMES[absent])}/: DATA is read as class folders, "
        "leave-one-out; say so with layout='classes' (--layout classes), or give both folders",
    )
