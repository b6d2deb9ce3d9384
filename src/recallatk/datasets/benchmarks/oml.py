"""A table of OpenMetricLearning (OML): its validation rows, and its rule for sequences."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from recallatk.datasets.benchmarks.description import Benchmark, Part
from recallatk.datasets.manifest import FLAG_COLUMNS, from_table
from recallatk.datasets.tables import Table, read_table
from recallatk.types import Dataset, OnError, RecallatkError
from recallatk.wording import counted

NEEDED = ("label", "path", "split", *FLAG_COLUMNS)
SPLITS = ("train", "validation")
SEQUENCE = "sequence"


def load(data: Path, *, part: str, on_error: OnError, root: str | os.PathLike[str] | None = None) -> Dataset:
    """Read the validation rows; relative paths start from `root`, which is the table's folder by default."""
    table = read_table(data)
    absent = [name for name in NEEDED if name not in table.columns]
    if absent:
        raise RecallatkError(
            f"{data}: no column {' and no column '.join(map(repr, absent))}; OML's tables have {', '.join(NEEDED)}; "
            "any other table is --layout manifest"
        )
    split = [str(value).strip() for value in table.columns["split"]]
    for place, value in zip(table.places, split, strict=True):
        if value not in SPLITS:
            raise RecallatkError(f"{data}: {place}: the split is {value!r}; OML knows {' and '.join(SPLITS)}")
    kept = [row for row, value in enumerate(split) if value == "validation"]
    if not kept:
        raise RecallatkError(f"{data}: no row has the split 'validation'; there is nothing to evaluate")
    columns = {
        name: [values[row] for row in kept]
        for name, values in table.columns.items()
        if name != "split" and not name.startswith("Unnamed:")
    }
    notes = list(table.notes)
    if len(kept) < len(split):
        notes.append(f"{counted(len(split) - len(kept), 'training row')} left aside")
    if SEQUENCE in columns:
        columns[SEQUENCE] = ["" if value is None else str(value) for value in columns[SEQUENCE]]
        for place, value in zip((table.places[row] for row in kept), columns[SEQUENCE], strict=True):
            if value in ("", "nan"):
                raise RecallatkError(f"{data}: {place}: the sequence is empty; give every validation row one")
    else:
        columns[SEQUENCE] = [f"row {row}" for row in kept]  # so that ignoring it ignores the image itself alone
        notes.append("there is no column 'sequence', so every image is a sequence of its own")
    places = tuple(table.places[row] for row in kept)
    read = Table({name: tuple(values) for name, values in columns.items()}, places)
    dataset = from_table(data, read, root=root, on_error=on_error)
    return dataclasses.replace(dataset, notes=(*notes, *dataset.notes))


BENCHMARK = Benchmark(
    title="A table of OpenMetricLearning",
    summary="a table of OpenMetricLearning (df.csv): its validation rows, by is_query and is_gallery",
    load=load,
    reads="file",
    files={
        "label, path, split, is_query, is_gallery": "columns; paths start from the table's folder, or from --root",
        "sequence": "optional column: images of the query's sequence take no rank",
        "x_1, y_1, x_2, y_2": "optional columns: the box that is the image",
        "category": "optional column: kept as a group, as every other column is",
    },
    parts={
        "validation": Part(
            summary="the rows whose split is validation; both flags true is one against the rest; it is any data set, "
            "so no count is checked",
            counts={},
            protocol={"ignore_same": SEQUENCE},
        ),
    },
    traps=(
        "OML leaves out what is of the query's sequence, whatever its label; where there is no column sequence, only "
        "the query itself.",
        "OML's own converters for CUB and Cars take the official split for classification, so their numbers are not "
        "those of metric learning: see --layout cub200.",
        "A query whose positives are all of its own sequence is left out and counted here. OML (3.1 and 4.0) warns "
        "and counts it as a miss, as --no-positive miss does, or as found where nothing at all is left for it.",
        "Two rows of one file and one box are the same image here, neither the other's answer. In OML they are two.",
        "OML's map@k divides by the positives that were found and precision@k by those that fit, so neither is a "
        "metric here under that name; its cmc@k is recall@k.",
    ),
    options={"root": None},
)
