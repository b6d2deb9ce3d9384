"""The benchmarks of the field: the table, one file each, and what all of them share."""

from __future__ import annotations

from recallatk.datasets.benchmarks import coco, cub200, flickr30k
from recallatk.datasets.benchmarks.counting import check_counts, count_sides, deviations
from recallatk.datasets.benchmarks.description import Benchmark, Counts, Part, PublishedRow
from recallatk.datasets.benchmarks.identify import identify, looks_like

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "Counts",
    "Part",
    "PublishedRow",
    "check_counts",
    "count_sides",
    "deviations",
    "identify",
    "looks_like",
]

BENCHMARKS: dict[str, Benchmark] = {
    "cub200": cub200.BENCHMARK,
    "flickr30k": flickr30k.BENCHMARK,
    "coco": coco.BENCHMARK,
}
"""Name -> benchmark; each is a row of LAYOUTS too."""
