"""Market-1501 (Zheng et al. 2015): single query, with junk and distractors in the gallery."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from pathlib import Path

from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.reid import GALLERY, METRICS, PROTOCOL, TRAPS, load_people
from recallatk.types import Dataset, OnError
from recallatk.wording import counted

FOLDER = "Market-1501-v15.09.15"
NAMES = re.compile(r"(?P<person>-1|\d{4})_c(?P<camera>\d)s\d+_", re.IGNORECASE)
EXAMPLE = "0002_c1s1_000451_03.jpg"
JUNK = "-1"
DISTRACTOR = "0000"


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the names of the images of Market-1501; the label is the person as it is written there."""
    dataset, gallery = load_people(data, FOLDER, NAMES, EXAMPLE, on_error=on_error)
    people = Counter(gallery.labels)
    junk = f"{GALLERY}/: {counted(people[JUNK], 'image')} of nobody ({JUNK}), which take no rank"
    distractors = f"{counted(people[DISTRACTOR], 'distractor')} ({DISTRACTOR}), which are never right"
    kept = f"{len(gallery) - people[JUNK]:,} are left without the former"
    return dataclasses.replace(dataset, notes=(*dataset.notes, f"{junk}, and {distractors}; {kept}"))


BENCHMARK = Benchmark(
    title="Market-1501",
    summary="Market-1501: people seen by six cameras, query/ against bounding_box_test/",
    load=load,
    files={
        "query/": f"the queries, named after person and camera: {EXAMPLE}",
        "bounding_box_test/": "the gallery, with junk (-1_c...) and distractors (0000_c...)",
    },
    marks=("query/*_c?s?_*", "bounding_box_test/*_c?s?_*"),
    parts={
        "test": Part(
            summary="single query: an image of the query's person by the query's camera takes no rank, nor does junk",
            counts={"queries": 3_368, "gallery": 19_732, "labels": 750},
            protocol={**PROTOCOL, "junk_labels": (JUNK,), "distractor_labels": (DISTRACTOR,)},
            metrics=METRICS,
            published=(
                PublishedRow(
                    "OSNet x1.0, 256 x 128, Euclidean",
                    {"recall@1": "94.2%", "map": "82.6%"},
                    "model zoo of torchreid (deep-person-reid)",
                ),
                PublishedRow(
                    "ResNet-50, softmax loss, 256 x 128, Euclidean",
                    {"recall@1": "87.9%", "map": "70.4%"},
                    "model zoo of torchreid (deep-person-reid)",
                ),
                PublishedRow(
                    "BoT, ResNet-50", {"recall@1": "94.4%", "map": "86.1%"}, "model zoo of FastReID (fast-reid)"
                ),
            ),
            other_counts={
                15_913: "the gallery without the junk named -1; junk takes no rank, so the values are the same",
                12_936: "the training set",
            },
        ),
    },
    traps=(
        *TRAPS,
        "Without the camera rule the nearest image is nearly always the next frame, and rank-1 is close to 100 %.",
        "Person -1 is junk and takes no rank; person 0000 is a distractor, which is never right and does take one. "
        "Treated alike, either way, they give another number.",
        "A query whose person no other camera saw is left out, not counted as a miss.",
        "rank-k and CMC are recall@k here. The code of the first baseline takes mAP by the trapezoid (map_trapezoid); "
        "torchreid and FastReID take the step form (map).",
        "The 500,000 further distractors (Market-1501+500k) are not read.",
    ),
)
