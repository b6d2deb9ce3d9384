"""DukeMTMC-reID (Zheng et al. 2017, after Ristani et al. 2016): the form of Market-1501, with names of its own."""

from __future__ import annotations

import re
from pathlib import Path

from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.reid import METRICS, PROTOCOL, TRAPS, load_people
from recallatk.types import Dataset, OnError

FOLDER = "DukeMTMC-reID"
NAMES = re.compile(r"(?P<person>\d{4})_c(?P<camera>\d)_f\d+", re.IGNORECASE)
EXAMPLE = "0005_c2_f0046985.jpg"


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the names of the images of DukeMTMC-reID; the label is the person as it is written there."""
    dataset, _ = load_people(data, FOLDER, NAMES, EXAMPLE, on_error=on_error)
    return dataset


BENCHMARK = Benchmark(
    title="DukeMTMC-reID",
    summary="DukeMTMC-reID: people seen by eight cameras, query/ against bounding_box_test/",
    load=load,
    files={
        "query/": f"the queries, named after person, camera and frame: {EXAMPLE}",
        "bounding_box_test/": "the gallery, with 408 people whom one camera alone saw",
    },
    marks=("query/*_c?_f*", "bounding_box_test/*_c?_f*"),
    parts={
        "test": Part(
            summary="single query: an image of the query's person by the query's camera takes no rank",
            counts={"queries": 2_228, "gallery": 17_661, "labels": 702},
            protocol=PROTOCOL,
            metrics=METRICS,
            published=(
                PublishedRow(
                    "OSNet x1.0, 256 x 128, Euclidean",
                    {"recall@1": "87.0%", "map": "70.2%"},
                    "model zoo of torchreid (deep-person-reid)",
                ),
                PublishedRow(
                    "ResNet-50, softmax loss, 256 x 128, Euclidean",
                    {"recall@1": "78.3%", "map": "58.9%"},
                    "model zoo of torchreid (deep-person-reid)",
                ),
            ),
            other_counts={16_522: "the training set"},
        ),
    },
    traps=(
        *TRAPS,
        "Its distractors are people like others, with ids of their own; there is no junk and no person 0000.",
        "The videos that the images were cut from, and this set with them, are no longer offered by Duke University.",
    ),
)
