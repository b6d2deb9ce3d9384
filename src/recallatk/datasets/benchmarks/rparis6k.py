"""Revisited Paris 6k (Radenovic et al. 2018): cropped queries, and images judged easy, hard or junk."""

from __future__ import annotations

from pathlib import Path

from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.revisited import METRICS, PARTS, TRAPS, load_revisited, protocol
from recallatk.datasets.benchmarks.roxford5k import GEM, SOURCE
from recallatk.types import Dataset, OnError

FOLDER = "rparis6k"
TRUTH = "gnd_rparis6k"
PUBLISHED = {
    "medium": {"map_trapezoid": "77.20%", "mp@1": "100.00%", "mp@5": "98.86%", "mp@10": "98.14%"},
    "easy": {"map_trapezoid": "92.12%", "mp@1": "100.00%", "mp@5": "97.14%", "mp@10": "96.14%"},
    "hard": {"map_trapezoid": "56.32%", "mp@1": "94.29%", "mp@5": "90.29%", "mp@10": "89.14%"},
}


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the ground truth of Revisited Paris 6k; every part has the same images and judgements."""
    return load_revisited(data, FOLDER, TRUTH, on_error=on_error)


BENCHMARK = Benchmark(
    title="Revisited Paris 6k",
    summary="Revisited Paris 6k: 70 cropped queries of buildings, Easy, Medium and Hard",
    load=load,
    files={
        "gnd_rparis6k.mat": "the ground truth; gnd_rparis6k.pkl will do, of which nothing is run",
        "jpg/": "the images of paris_1-v1.tgz and paris_2-v1.tgz, in it or in folders of it",
    },
    marks=((f"{TRUTH}.mat", f"{TRUTH}.pkl"),),
    parts={
        level: Part(
            summary=what,
            counts={"queries": 70, "gallery": 6_322},
            protocol=protocol(level),
            metrics=METRICS,
            published=(PublishedRow(GEM, PUBLISHED[level], SOURCE),),
            other_counts={
                55: "the number of queries of the original Paris 6k",
                6_412: "all images, queries and damaged ones among them, which the revisited protocol takes out",
            },
        )
        for level, what in PARTS.items()
    },
    traps=(*TRAPS, "Some pictures of the original archives are damaged; the ground truth does not name them."),
)
