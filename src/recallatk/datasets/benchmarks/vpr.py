"""Place recognition as VPR-datasets-downloader formats it: positions in the names of the files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from recallatk.datasets.benchmarks import pitts30k, tokyo247
from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.files import Item, image_set
from recallatk.datasets.folders import SIDE_NAMES, find_sides
from recallatk.datasets.naming import shown
from recallatk.datasets.tables import as_number
from recallatk.datasets.walk import walk_images
from recallatk.types import Dataset, OnError, RecallatkError, Skipped
from recallatk.wording import and_more, counted

PARTS = ("test", "val", "train")
PROTOCOL = {"ks": (1, 5, 10, 20), "relevance": "radius", "radius": 25.0, "no_positive": "miss"}

KNOWN = {
    (6_816, 10_000): "Pitts30k test",
    (7_608, 10_000): "Pitts30k val",
    (740, 18_871): "the official list of MSLS val (740 queries), not that of the formatter (some 11,000)",
    (315, 75_984): "Tokyo 24/7",
}
"""Queries and gallery images of sets in this form, by which a copy is told."""


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read both folders of a part; every image has its position (UTM, in metres) in its name, and no label."""
    root, folders, notes = _find_sides(data, part)
    sides, skipped, left = [], [], 0
    for side, folder in folders.items():
        listing = walk_images(root / folder)
        if listing.unusable and on_error == "error":
            one = listing.unusable[0]
            raise RecallatkError(
                f"{root / folder / one.item}: {one.reason}{and_more(len(listing.unusable), 'item')}; remove it, or "
                "leave such files out with --on-error skip"
            )
        paths = [image.path.relative_to(root).as_posix() for image in listing.images]
        items, unplaced = _place(root, paths, on_error)
        images, missing = image_set(root, items, on_error=on_error, side=side)
        sides.append(images)
        skipped += [*listing.unusable, *unplaced, *missing]
        left += len(listing.others)
    query, gallery = sides
    if left:
        notes.append(f"{counted(left, 'file')} left aside that {'is no image' if left == 1 else 'are no images'}")
    if (known := KNOWN.get((len(query), len(gallery)))) is not None:
        notes.append(f"{len(query):,} queries and {len(gallery):,} gallery images: the counts of {known}")
    return Dataset(
        query=query,
        gallery=gallery,
        root=root,
        skipped=tuple(skipped),
        notes=tuple(notes),
        warnings=_degrees([*_positions(query), *_positions(gallery)]),
    )


def _find_sides(data: Path, part: str) -> tuple[Path, dict[str, str], list[str]]:
    """The folder that holds both sides, what each side's folder is called there, and notes."""
    found: dict[Path, dict[str, list[str]]] = {}
    for root in (data / "images" / part, data / part, data, data / "images"):
        if root.is_dir() and any((found := {**found, root: find_sides(root)})[root].values()):
            break
    else:
        there = [name for name in PARTS if (data / "images" / name).is_dir() or (data / name).is_dir()]
        other = f"; the parts that are there: {', '.join(there)} (--part {there[0]})" if there else ""
        raise RecallatkError(
            f"{data}: no images/{part}/database and images/{part}/queries in this folder{other}; DATA is the folder of "
            "one data set, its images/, or the folder of a part"
        )
    folders = {}
    for side, names in found[root].items():
        if len(names) != 1:
            what = f"{' and '.join(names)} are both there" if names else f"no folder {' or '.join(SIDE_NAMES[side])}"
            raise RecallatkError(f"{root}: {what} for the {side} side; there must be one, as database/ and queries/")
        folders[side] = names[0]
    notes = []
    if root == data and data.name.lower() in set(PARTS) - {part}:
        notes.append(f"DATA is the folder of the part {data.name} itself, which is what was read")
    return root, folders, notes


def _place(root: Path, paths: Sequence[str], on_error: OnError) -> tuple[list[Item], list[Skipped]]:
    """The images with their positions, and those whose names have none."""
    items, skipped = [], []
    for path in paths:
        position = _position(Path(path).name)
        if position is not None:
            items.append(Item(path, position=position))
        elif on_error == "skip":
            skipped.append(Skipped(path, "its name does not begin with a position"))
        else:
            raise RecallatkError(
                f"{shown(str(root / path))}: the name does not begin with a position, as @0551100.00@4190200.00@...@"
                ".jpg does (easting and northing in metres); rename the file, or leave it out with --on-error skip"
            )
    return items, skipped


def _position(name: str) -> tuple[float, float] | None:
    """The first two fields of a name: @ easting @ northing @ ..."""
    fields = name.split("@")  # of the name alone: a folder may hold an @ too
    numbers = [as_number(field.strip()) for field in fields[1:3]]
    if fields[0] or len(numbers) < 2 or numbers[0] is None or numbers[1] is None:
        return None
    return numbers[0], numbers[1]


def _positions(images: object) -> list[Sequence[float]]:
    positions = getattr(images, "positions", None)
    return [] if positions is None else list(positions)


def _degrees(positions: Sequence[Sequence[float]]) -> tuple[str, ...]:
    """A warning where every position could be a latitude and a longitude."""
    if any(abs(easting) > 180 or abs(northing) > 180 for easting, northing in positions):
        return ()
    return (
        "every position lies within 180 of 0, so these look like degrees; the radius is in metres, and the names must "
        "begin with easting and northing (UTM)",
    )


PUBLISHED = (
    PublishedRow(
        "CosPlace, ResNet-18, 512 columns, on St Lucia (1,464 queries, by hearsay)",
        {"recall@1": "98.8%", "recall@5": "99.7%", "recall@10": "99.9%", "recall@20": "100.0%"},
        "its authors, as the check that VPR-methods-evaluation runs right",
        queries=1_464,
    ),
    *(
        dataclasses.replace(row, system=f"{row.system}, on {title}", queries=queries)
        for benchmark, title, queries in (
            (pitts30k.BENCHMARK, "Pitts30k (6,816 queries)", 6_816),
            (tokyo247.BENCHMARK, "Tokyo 24/7 (315 queries)", 315),
        )
        for row in benchmark.parts["test"].published
    ),
)

BENCHMARK = Benchmark(
    title="Place recognition, formatted",
    summary="place recognition as VPR-datasets-downloader formats it: @easting@northing@...@.jpg, 25 m",
    load=load,
    files={
        "images/test/database/": "the gallery: @easting@northing@...@.jpg; DATA may be images/ or test/ itself",
        "images/test/queries/": "the queries, named likewise",
        "images/val/, images/train/": "the other parts, where the data set has them",
    },
    parts={
        name: Part(
            summary=f"`queries/` against `database/` of `{name}/` within 25 m; many data sets, so no count is checked",
            counts={},
            protocol=PROTOCOL,
            published=PUBLISHED if name == "test" else (),
        )
        for name in PARTS
    },
    traps=(
        "It is the form of many data sets, told by their counts: Pitts30k test has 6,816 queries and 10,000 gallery "
        "images, Pitts30k val 7,608 and 10,000, Tokyo 24/7 315 and (by hearsay) 75,984. The formatted MSLS val has "
        "some 11,000 queries, the official evaluator 740: two numbers under one name.",
        "A query without any image within 25 m counts as a miss, and the radius includes its border.",
        "Only the first two fields of a name are read. They are easting and northing in metres (UTM), not degrees, and "
        "were cut to centimetres by the formatter.",
        "The formatter makes the queries of Tokyo 24/7 smaller (480 pixels) and encodes them as JPEG again, so their "
        "bytes are not those of the original.",
        "For Nordland, groups differ in which season is the gallery, and in how many images it has.",
        "The scripts of the field keep the list of files in images_paths.txt; here the folders are read each time.",
    ),
)
