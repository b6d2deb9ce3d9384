"""The benchmarks of the field: the table, one file each, and what all of them share."""

from __future__ import annotations

from recallatk.datasets.benchmarks import cub200, msls, mteb, oml, pitts30k, tokyo247, vpr, wildlife
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
    "vpr": vpr.BENCHMARK,
    "pitts30k": pitts30k.BENCHMARK,
    "pitts250k": pitts30k.PITTS250K,
    "msls": msls.BENCHMARK,
    "tokyo247": tokyo247.BENCHMARK,
    "wildlife": wildlife.BENCHMARK,
    "oml": oml.BENCHMARK,
    "mteb": mteb.BENCHMARK,
}
"""Name -> benchmark; each is a row of LAYOUTS too."""
