"""Mapillary Street-Level Sequences (Warburg et al. 2020), validation: Copenhagen and San Francisco."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.files import Item, image_set
from recallatk.datasets.tables import Table, as_number, read_table
from recallatk.types import Dataset, ImageSet, OnError, RecallatkError, Skipped
from recallatk.wording import counted

CITIES = ("cph", "sf")
SIDES = {"query": "query", "gallery": "database"}
FACTS = ("night", "view_direction")
"""Columns of postprocessed.csv that become groups, where they are there."""


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the lists of both cities; images have no label, but a position in metres (UTM)."""
    root = _find_root(data)
    cities = [city for city in CITIES if (root / city).is_dir()]
    notes: list[str] = []
    sides: list[ImageSet] = []
    skipped: list[Skipped] = []
    if absent := set(CITIES) - set(cities):
        notes.append(f"of the two cities {absent.pop()} is not there")
    for side, name in SIDES.items():
        listed = [_read_city(root, city, name, official=part == "val-official") for city in cities]
        aside = sum(panoramas for _, panoramas, _ in listed), sum(others for _, _, others in listed)
        for number, what in zip(aside, ("panorama", "image"), strict=True):
            why = "" if what == "panorama" else ", which the subtask all does not name"
            if number:
                notes.append(f"{counted(number, f'{side} {what}')} left aside{why}")
        items = [item for found, _, _ in listed for item in found]
        images, missing = image_set(root, items, on_error=on_error, side=side)
        sides.append(images)
        skipped += missing
    query, gallery = sides
    return Dataset(query=query, gallery=gallery, root=root, skipped=tuple(skipped), notes=tuple(notes))


def _find_root(data: Path) -> Path:
    """The folder of the cities: DATA, its train_val/, or that of the folder in it that is called after the data set."""
    for root in (data / "train_val", data, *(data / name / "train_val" for name in ("msls", "mapillary_sls", "MSLS"))):
        if any((root / city).is_dir() for city in CITIES):
            return root
    raise RecallatkError(
        f"{data}: no train_val/cph and no train_val/sf in this folder; DATA is the folder that holds train_val/ "
        "(training cities and the test part, whose answers are withheld, are not evaluated)"
    )


def _read_city(root: Path, city: str, folder: str, *, official: bool) -> tuple[list[Item], int, int]:
    """The images of one side of a city, and how many panoramas and images of no subtask were left aside."""
    path = root / city / folder
    table = _read(path / "postprocessed.csv", "key", "easting", "northing")
    keys = [str(key) for key in table.columns["key"]]
    pano = _column(path / "raw.csv", "pano", keys)
    named = _column(path / "subtask_index.csv", "all", keys) if official else lambda row: True
    items, panoramas, others = [], 0, 0
    for row, key in enumerate(keys):
        if pano(row):
            panoramas += 1
        elif not named(row):
            others += 1
        else:
            where = f"{path / 'postprocessed.csv'}: {table.places[row]}"
            position = _metres(table, row, "easting", where), _metres(table, row, "northing", where)
            facts = {name: str(table.columns[name][row]) for name in FACTS if name in table.columns}
            items.append(Item(f"{city}/{folder}/images/{key}.jpg", groups={"city": city, **facts}, position=position))
    return items, panoramas, others


def _read(path: Path, *columns: str) -> Table:
    table = read_table(path)
    absent = [name for name in columns if name not in table.columns]
    if absent:
        raise RecallatkError(
            f"{path}: no column {' and no column '.join(map(repr, absent))}; columns found: "
            f"{', '.join(map(repr, table.columns))}; take the official file"
        )
    return table


def _column(path: Path, column: str, keys: Sequence[str]) -> Callable[[int], bool]:
    """A column of yes and no for these keys; a file without keys has its rows in the same order, as the evaluator."""
    table = _read(path, column)
    if "key" in table.columns:
        rows = {str(key): row for row, key in enumerate(table.columns["key"])}
        absent = [key for key in keys if key not in rows]
        if absent:
            raise RecallatkError(
                f"{path}: nothing about the key {absent[0]!r} of postprocessed.csv; take the official file"
            )
        places = [rows[key] for key in keys]
    elif len(table.places) == len(keys):
        places = list(range(len(keys)))
    else:
        raise RecallatkError(
            f"{path}: {counted(len(table.places), 'row')} where postprocessed.csv has {len(keys):,}; take the official "
            "file"
        )
    return lambda row: _as_flag(table.columns[column][places[row]], f"{path}: {table.places[places[row]]}: {column}")


def _as_flag(value: Any, where: str) -> bool:
    known = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
    flag = known.get(str(value).strip().lower())
    if flag is None:
        raise RecallatkError(f"{where} is {value!r}, not True or False; take the official file")
    return flag


def _metres(table: Table, row: int, column: str, where: str) -> float:
    number = as_number(table.columns[column][row])
    if number is None:
        raise RecallatkError(f"{where}: {column} is {table.columns[column][row]!r}, no number; take the official file")
    return number


PROTOCOL = {"ks": (1, 5, 10, 20), "relevance": "radius", "radius": 25.0}

BENCHMARK = Benchmark(
    title="MSLS validation",
    summary="MSLS validation (Copenhagen and San Francisco): a hit is an image within 25 m",
    load=load,
    files={
        "train_val/cph/, train_val/sf/": "the two cities; each has `query/` and `database/` with the files below",
        "postprocessed.csv": "key, easting, northing, and more",
        "raw.csv": "key, pano (whether it is a panorama), and more",
        "subtask_index.csv": "only for val-official: the column all",
        "images/": "KEY.jpg",
    },
    marks=("train_val/cph", "train_val/sf"),
    parts={
        "val-official": Part(
            summary="the rule of the official evaluator (image to image, subtask all, no panoramas): 747 queries, of "
            "which 7 have nothing within 25 m and are left out, so 740 are evaluated",
            counts={"queries": 747, "gallery": 18_871},
            protocol={**PROTOCOL, "no_positive": "exclude"},
            metrics=("map_capped@5", "map_capped@10", "map_capped@20"),
            published=(
                PublishedRow(
                    "MixVPR, ResNet-50, 4096 columns, images of 320",
                    {"recall@1": "88.2%", "recall@5": "93.1%", "recall@10": "94.3%"},
                    "the authors of MixVPR (WACV 2023); somebody who ran it again had 83.4% (issue 5 there)",
                ),
                PublishedRow(
                    "SALAD, DINOv2",
                    {"recall@1": "92.2%", "recall@5": "96.4%", "recall@10": "97.0%"},
                    "the authors of SALAD (CVPR 2024)",
                ),
                PublishedRow(
                    "BoQ, DINOv2",
                    {"recall@1": "93.8%", "recall@5": "96.8%", "recall@10": "97.0%"},
                    "the authors of BoQ (CVPR 2024)",
                ),
                PublishedRow(
                    "MegaLoc", {"recall@1": "93.5%"}, "VPR-methods-evaluation, issue 19, on the list of 740 queries"
                ),
            ),
            other_counts={
                740: "so many are left when the 7 queries without a positive are gone already: the same evaluation, so "
                "--counts any is right",
                750: "so many has the subtask all with its panoramas, which the evaluator leaves out",
            },
        ),
        "val-all": Part(
            summary="all queries but panoramas, as VPR-datasets-downloader formats it: some 11,000, a query without a "
            "positive is a miss (the count is not checked)",
            counts={},
            protocol={**PROTOCOL, "no_positive": "miss"},
            published=(PublishedRow("MegaLoc", {"recall@1": "91.0%"}, "the paper of MegaLoc (2025)"),),
        ),
    },
    traps=(
        "Two numbers are called MSLS val. The official evaluator takes the queries of the subtask all and leaves out "
        "those without a positive: 498 of Copenhagen and 242 of San Francisco against 12,556 and 6,315 images. The "
        "common scripts take every query, 6,595 and 4,525 before panoramas are gone, and count those without a "
        "positive as misses.",
        "Panoramas (pano in raw.csv) belong to neither side.",
        "val-all takes the positions of postprocessed.csv. The formatter works them out from latitude and longitude "
        "and cuts them to centimetres, which can move a pair at the border of 25 m.",
        "Patch v1.1 replaced corrupt images; a copy without it has other pictures under the same keys.",
        "The answers of the test part are withheld. Copies of the formatter have a folder test that is val once more.",
    ),
)
