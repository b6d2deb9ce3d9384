"""Pitts30k and Pitts250k (Torii et al. 2013, in the splits of NetVLAD): street views of Pittsburgh."""

from __future__ import annotations

import functools
from pathlib import Path

from recallatk.datasets.benchmarks.dbstruct import find_dbstruct, folder_of, read_dbstruct
from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.files import image_set
from recallatk.types import Dataset, OnError

FOLDERS = ("pitts30k", "pitts250k", "Pittsburgh250k", "pittsburgh")
PROTOCOL = {"ks": (1, 5, 10, 20), "relevance": "radius", "radius": 25.0, "no_positive": "miss"}


def load(data: Path, *, part: str, on_error: OnError, name: str = "pitts30k") -> Dataset:
    """Read a list of Pittsburgh; images have no label, but a position in metres (UTM, zone 17)."""
    root, path = find_dbstruct(data, f"{name}_{part}.mat", *FOLDERS)
    query, gallery = read_dbstruct(path)
    below = folder_of(root, query.names, "queries_real", "queries", "")
    queries, no_query = image_set(root, query.items(below), on_error=on_error, side="query")
    below = folder_of(root, gallery.names, "", "database", "images")
    images, no_image = image_set(root, gallery.items(below), on_error=on_error, side="gallery image")
    return Dataset(query=queries, gallery=images, root=root, skipped=(*no_query, *no_image))


def _files(name: str, last: str) -> dict[str, str]:
    return {
        f"{name}_test.mat, {name}_val.mat": "the dbStruct of each part, here or in datasets/",
        f"000/ to {last}/": "the gallery: 000/000829_pitch1_yaw1.jpg and so on",
        "queries_real/": "the queries, in folders of the same names",
    }


TRAPS = (
    "The .mat files count: a folder that only happens to hold the images says nothing about positions. utmDb and utmQ "
    "have two rows, easting and northing, and the fields of dbStruct are known by their order.",
    "A gallery image at exactly 25 m is a positive. A query without any would be a miss, which here is none or a few.",
    "Queries and gallery have the same file names in different folders: 000/000829_pitch1_yaw1.jpg is one image in "
    "queries_real/ and another one outside it.",
    "Many papers resize the images before they encode them, to 480 x 640, 320 x 320 or 322 x 322; that moves recall.",
    "A copy in the form of VPR-datasets-downloader (`images/test/database/@...@.jpg`) is --layout vpr.",
)

BENCHMARK = Benchmark(
    title="Pitts30k",
    summary="Pitts30k: street views of Pittsburgh, a hit is an image within 25 m",
    load=load,
    files=_files("pitts30k", "006"),
    parts={
        "test": Part(
            summary="the test part: 6,816 queries against 10,000 images, positives within 25 m",
            counts={"queries": 6_816, "gallery": 10_000},
            protocol=PROTOCOL,
            published=(
                PublishedRow(
                    "MixVPR, ResNet-50, 4096 columns, images of 320",
                    {"recall@1": "91.6%", "recall@5": "95.5%", "recall@10": "96.4%"},
                    "the authors of MixVPR (WACV 2023)",
                ),
                PublishedRow(
                    "BoQ, DINOv2",
                    {"recall@1": "93.7%", "recall@5": "97.1%", "recall@10": "97.9%"},
                    "the authors of BoQ (CVPR 2024)",
                ),
            ),
            other_counts={
                7_608: "so many queries has the validation part: --part val",
                8_280: "so many queries has the test part of Pitts250k: --layout pitts250k",
            },
        ),
        "val": Part(
            summary="the validation part: 7,608 queries against 10,000 images",
            counts={"queries": 7_608, "gallery": 10_000},
            protocol=PROTOCOL,
            other_counts={6_816: "so many queries has the test part: --part test"},
        ),
    },
    traps=TRAPS,
)

PITTS250K = Benchmark(
    title="Pitts250k",
    summary="Pitts250k: the larger set of Pittsburgh, a hit is an image within 25 m",
    load=functools.partial(load, name="pitts250k"),
    files=_files("pitts250k", "010"),
    parts={
        "test": Part(
            summary="the test part: 8,280 queries (the size of the gallery is not checked)",
            counts={"queries": 8_280},
            protocol=PROTOCOL,
            other_counts={6_816: "so many queries has the test part of Pitts30k: --layout pitts30k"},
        ),
        "val": Part(
            summary="the validation part (its counts are not checked)",
            counts={},
            protocol=PROTOCOL,
        ),
    },
    traps=TRAPS,
)
