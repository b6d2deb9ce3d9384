"""MSMT17 (Wei et al. 2018): the lists name images and people; the camera is in the name."""

from __future__ import annotations

import re
from pathlib import Path

from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.files import Item, find_root, image_set, read_fields
from recallatk.datasets.benchmarks.reid import METRICS, PROTOCOL, TRAPS
from recallatk.types import Dataset, OnError, RecallatkError

FOLDER = "MSMT17_V1"
PLAIN = "test"
MASKED = "mask_test_v2"
NAMES = re.compile(r"\d+_\d+_(?P<camera>\d+)_")
EXAMPLE = "0000/0000_000_01_0303morning_0015_0.jpg"


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the two lists of MSMT17; person and camera are numbers, with zeros before them or without."""
    root = find_root(data, FOLDER, "list_query.txt", "list_gallery.txt", (PLAIN, MASKED))
    folder = PLAIN if (root / PLAIN).is_dir() and any((root / PLAIN).iterdir()) else MASKED
    queries = _read_list(root / "list_query.txt", folder)
    gallery = _read_list(root / "list_gallery.txt", folder)
    query_set, query_skipped = image_set(root, queries, on_error=on_error, side="query")
    gallery_set, gallery_skipped = image_set(root, gallery, on_error=on_error, side="gallery image")
    version = "V1, faces as they are" if folder == PLAIN else "V2, faces made unrecognisable"
    return Dataset(
        query=query_set,
        gallery=gallery_set,
        root=root,
        skipped=(*query_skipped, *gallery_skipped),
        notes=(f"the images of {folder}/: {version}",),
    )


def _read_list(path: Path, folder: str) -> list[Item]:
    items = []
    for where, (name, person) in read_fields(path, "path", "person"):
        camera = NAMES.match(name.rpartition("/")[2])
        if camera is None or not person.isdecimal():
            raise RecallatkError(
                f"{where}: {name!r} and {person!r} are no path and person, which are like '{EXAMPLE} 0' (the third "
                "number of the name is the camera); take the official file"
            )
        items.append(Item(f"{folder}/{name}", str(int(person)), {"camera": str(int(camera["camera"]))}))
    return items


BENCHMARK = Benchmark(
    title="MSMT17",
    summary="MSMT17: people seen by fifteen cameras, list_query.txt against list_gallery.txt",
    load=load,
    files={
        "list_query.txt": "path below test/, and person",
        "list_gallery.txt": "the same for the gallery",
        "test/": "the images of V1; of V2 they are in mask_test_v2/",
    },
    marks=("list_query.txt", "list_gallery.txt"),
    parts={
        "test": Part(
            summary="single query: an image of the query's person by the query's camera takes no rank",
            counts={"queries": 11_659, "gallery": 82_161},
            protocol=PROTOCOL,
            metrics=METRICS,
            published=(
                PublishedRow(
                    "OSNet x1.0, 256 x 128, Euclidean",
                    {"recall@1": "74.9%", "map": "43.8%"},
                    "model zoo of torchreid (deep-person-reid)",
                ),
                PublishedRow(
                    "ResNet-50, softmax loss, 256 x 128, Euclidean",
                    {"recall@1": "63.2%", "map": "33.9%"},
                    "model zoo of torchreid (deep-person-reid)",
                ),
            ),
            other_counts={
                93_820: "queries and gallery together",
                32_621: "the training set with its validation part",
            },
        ),
    },
    traps=(
        *TRAPS,
        "V1 shows faces; in V2 they are made unrecognisable. The lists are alike, the pictures and so the values are "
        "not, and papers do not always say which they took.",
        "People count from 0 in the training lists and again from 0 in these: person 0 here is somebody else.",
        "Person 0 is a person. The distractor 0000 is one of Market-1501 alone.",
    ),
)
