"""The benchmarks of the field: the table, one file each, and what all of them share."""

from __future__ import annotations

from recallatk.datasets.benchmarks import (
    cars196,
    coco,
    cub200,
    dukemtmc,
    flickr30k,
    gldv2,
    inat2018,
    inshop,
    market1501,
    msls,
    msmt17,
    mteb,
    oml,
    pitts30k,
    roxford5k,
    rparis6k,
    sop,
    tokyo247,
    vpr,
    wildlife,
)
from recallatk.datasets.benchmarks.counting import check_counts
from recallatk.datasets.benchmarks.description import Benchmark, Counts, Part, PublishedRow
from recallatk.datasets.benchmarks.identify import identify, looks_like

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "Counts",
    "Part",
    "PublishedRow",
    "check_counts",
    "identify",
    "looks_like",
]

BENCHMARKS: dict[str, Benchmark] = {
    "cub200": cub200.BENCHMARK,
    "cars196": cars196.BENCHMARK,
    "sop": sop.BENCHMARK,
    "inshop": inshop.BENCHMARK,
    "inat2018": inat2018.BENCHMARK,
    "market1501": market1501.BENCHMARK,
    "dukemtmc": dukemtmc.BENCHMARK,
    "msmt17": msmt17.BENCHMARK,
    "roxford5k": roxford5k.BENCHMARK,
    "rparis6k": rparis6k.BENCHMARK,
    "gldv2": gldv2.BENCHMARK,
    "vpr": vpr.BENCHMARK,
    "pitts30k": pitts30k.BENCHMARK,
    "pitts250k": pitts30k.PITTS250K,
    "msls": msls.BENCHMARK,
    "tokyo247": tokyo247.BENCHMARK,
    "wildlife": wildlife.BENCHMARK,
    "oml": oml.BENCHMARK,
    "mteb": mteb.BENCHMARK,
    "flickr30k": flickr30k.BENCHMARK,
    "coco": coco.BENCHMARK,
}
"""Name -> benchmark; each is a row of LAYOUTS too."""
