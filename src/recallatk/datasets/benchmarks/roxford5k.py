"""Revisited Oxford 5k (Radenovic et al. 2018): cropped queries, and images judged easy, hard or junk."""

from __future__ import annotations

from pathlib import Path

from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.revisited import METRICS, PARTS, TRAPS, load_revisited, protocol
from recallatk.types import Dataset, OnError

FOLDER = "roxford5k"
TRUTH = "gnd_roxford5k"
GEM = "R-GeM (ResNet-101), features offered with the benchmark"
SOURCE = "README of filipradenovic/revisitop"
PUBLISHED = {
    "medium": {"map_trapezoid": "64.67%", "mp@1": "97.14%", "mp@5": "90.67%", "mp@10": "84.67%"},
    "easy": {"map_trapezoid": "84.81%", "mp@1": "97.06%", "mp@5": "92.06%", "mp@10": "86.49%"},
    "hard": {"map_trapezoid": "38.47%", "mp@1": "81.43%", "mp@5": "63.00%", "mp@10": "53.00%"},
}


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the ground truth of Revisited Oxford 5k; every part has the same images and judgements."""
    return load_revisited(data, FOLDER, TRUTH, on_error=on_error)


BENCHMARK = Benchmark(
    title="Revisited Oxford 5k",
    summary="Revisited Oxford 5k: 70 cropped queries of buildings, Easy, Medium and Hard",
    load=load,
    files={
        "gnd_roxford5k.mat": "the ground truth; gnd_roxford5k.pkl will do, of which nothing is run",
        "jpg/": "the images of oxbuild_images-v1.tgz, in it or in folders of it",
    },
    marks=((f"{TRUTH}.mat", f"{TRUTH}.pkl"),),
    parts={
        level: Part(
            summary=what,
            counts={"queries": 70, "gallery": 4_993},
            protocol=protocol(level),
            metrics=METRICS,
            published=(PublishedRow(GEM, PUBLISHED[level], SOURCE),),
            other_counts={
                55: "the number of queries of the original Oxford 5k",
                68: "the number of queries with a right image at Easy; the protocol leaves the other two out",
                5_063: "all images, queries among them, which the revisited protocol takes out",
            },
        )
        for level, what in PARTS.items()
    },
    traps=(
        *TRAPS,
        "At Easy two of the 70 queries have no right image, so values there are over 68: the 97.06 % that R-GeM has in "
        "mP@1 is 66 of 68, and its 97.14 % at Medium 68 of 70.",
    ),
)
