"""The torch backend beside torch's own product and topk on one GPU, in at most five minutes. Prints Markdown.

Needs numpy and torch (2.9 or newer) and nothing else: recallatk is taken from ../src if it is not installed.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if importlib.util.find_spec("torch") is None:
    sys.exit("benchmarks/gpu.py needs torch: pip install torch")
if importlib.util.find_spec("recallatk") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import numpy as np
import torch

from recallatk.memory import default_memory
from recallatk.metrics import METRICS
from recallatk.ranking import Grid, Ranking, to_grid
from recallatk.ranking.torch_screen import rank_blocks
from recallatk.relevance import Relevance, build_relevance
from recallatk.types import EmbeddingSet, EvalProtocol

KS = (1, 5, 10)
SECONDS = 270
"""When nothing new is begun."""

CORES = os.cpu_count() or 1

CHECKED = 64
"""Queries of each case whose counts are compared with whole numbers."""

Found = list[float]


@dataclasses.dataclass(frozen=True)
class Case:
    """Made-up unit rows on the device: classes of about five around centres.

    Attributes:
        query: (q, d) rows.
        query_labels: (q,) class numbers.
        gallery: (n, d) rows; the same object as `query` for self-retrieval.
        gallery_labels: (n,) class numbers.
    """

    query: torch.Tensor
    query_labels: torch.Tensor
    gallery: torch.Tensor
    gallery_labels: torch.Tensor

    @property
    def alone(self) -> bool:
        """Whether each query is left out of its own ranking."""
        return self.query is self.gallery


@dataclasses.dataclass(frozen=True)
class Size:
    """What to make: `queries` is 0 for self-retrieval."""

    queries: int
    n: int
    d: int
    dtype: torch.dtype = torch.float32

    @property
    def work(self) -> int:
        """Multiplications."""
        return (self.queries or self.n) * self.n * self.d

    def __str__(self) -> str:
        pair = f"{self.queries:,} x {self.n:,}" if self.queries else f"self-retrieval {self.n:,}"
        return f"{pair}, d={self.d}, {str(self.dtype).removeprefix('torch.')}"


GPU_SIZES = [
    Size(0, 20_000, 512),
    Size(0, 60_000, 512),
    Size(0, 200_000, 512),
    Size(10_000, 1_000_000, 256, torch.float16),
]
CPU_SIZES = [Size(0, 600, 64), Size(100, 2_000, 32, torch.float16)]


def make(size: Size, device: str) -> Case:
    """Rows of which some two thirds find their class first; the noise differs from row to row."""
    torch.manual_seed(0)
    total = size.queries + size.n
    labels = torch.randint(max(1, int(total / 5.3)), (total,), device=device)
    centres = torch.randn(int(labels.max()) + 1, size.d, device=device)
    rows = torch.randn(total, size.d, device=device)
    rows *= 1.1 * (size.d**0.5 / 4.3 - 1) ** 0.5 * torch.exp(0.3 * torch.randn(total, 1, device=device))
    rows += centres[labels]
    rows = (rows / rows.norm(dim=1, keepdim=True)).to(size.dtype)
    query, gallery = rows[: size.queries], rows[size.queries :]
    q_labels, g_labels = labels[: size.queries], labels[size.queries :]
    return Case(query, q_labels, gallery, g_labels) if size.queries else Case(gallery, g_labels, gallery, g_labels)


# ---- recallatk


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Grid rows and relevance, on the host."""

    query: Grid
    gallery: Grid
    relevance: Relevance

    @classmethod
    def of(cls, case: Case) -> Prepared:
        """From the device's embeddings and labels."""
        pairs = [(case.query, case.query_labels), (case.gallery, case.gallery_labels)][case.alone :]
        sets = [EmbeddingSet(rows.cpu().numpy(), labels.cpu().numpy()) for rows, labels in pairs]
        relevance = build_relevance(sets[0], None if case.alone else sets[1], EvalProtocol(ks=KS))
        grids = to_grid(*(side.embeddings for side in sets))
        return cls(grids[0], grids[-1], relevance)

    def rank(self) -> Ranking:
        """Counts, from rows on the host."""
        choices = {"memory": default_memory(), "threads": CORES}
        (ranking,) = rank_blocks(self.query, self.gallery, self.relevance, depth="first", **choices)
        return ranking


def recalls(ranking: Ranking) -> Found:
    """recall@k of every k."""
    kept = ranking.n_positives > 0
    return [float(METRICS["recall"].compute(ranking, k, "expected")[kept].mean()) for k in KS]


def differences(prepared: Prepared, case: Case, ranking: Ranking) -> int:
    """How many of some queries have counts other than whole numbers give."""
    rng = np.random.default_rng(0)
    queries = np.sort(rng.permutation(len(prepared.query.rows))[:CHECKED])
    rows = prepared.query.rows[queries].astype(np.float64)
    blocks = range(0, len(prepared.gallery.rows), 2**16)
    similarity = np.concatenate(  # no sum is rounded, see docs/exactness.md
        [rows @ prepared.gallery.rows[at : at + 2**16].astype(np.float64).T for at in blocks], axis=1
    )
    labels, g_labels = case.query_labels.cpu().numpy(), case.gallery_labels.cpu().numpy()
    wrong = 0
    for query, mine in zip(queries, similarity, strict=True):
        positive = g_labels == labels[query]
        negatives = mine[~positive]
        positive[query] &= not case.alone
        best = mine[positive].max(initial=-np.inf)
        level = slice(*ranking.starts[query : query + 2])
        found = [ranking.negatives_ahead[level].tolist(), ranking.negatives_tied[level].tolist()]
        expected = [[int((negatives > best).sum())], [int((negatives == best).sum())]]
        wrong += found != (expected if np.isfinite(best) else [[], []])
    return wrong


# ---- torch


def search(case: Case, dtype: torch.dtype, precision: str) -> Callable[[], Found]:
    """A block of products, topk, and a look whether a row of the same class is among the first k."""
    query = case.query.to(dtype)
    gallery = query if case.alone else case.gallery.to(dtype)
    block = max(16, min(8192, 2**29 // len(gallery)))
    labels, g_labels = case.query_labels, case.gallery_labels
    sizes = torch.bincount(g_labels, minlength=int(labels.max()) + 1)[labels] - int(case.alone)

    def run() -> Found:
        torch.backends.cuda.matmul.fp32_precision = precision
        hits = []
        for at in range(0, len(query), block):
            product = query[at : at + block] @ gallery.T
            if case.alone:
                product.diagonal(at).fill_(-torch.inf)
            nearest = product.topk(min(max(KS), len(gallery))).indices
            hits.append(g_labels[nearest] == labels[at : at + block, None])
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        kept = torch.cat(hits)[sizes > 0]
        return [float(kept[:, :k].any(dim=1).double().mean()) for k in KS]

    return run


# ---- measuring


def contenders(case: Case, prepared: Prepared) -> dict[str, Callable[[], Found]]:
    """What is run, from rows on the host (recallatk) and rows on the device (torch)."""
    return {
        "recallatk, counts": lambda: recalls(prepared.rank()),
        "recallatk, grid, relevance and counts": lambda: recalls(Prepared.of(case).rank()),
        "torch float32 + topk": search(case, torch.float32, "ieee"),
        "torch TF32 + topk": search(case, torch.float32, "tf32"),
        "torch float16 + topk": search(case, torch.float16, "ieee"),
    }


def timed(run: Callable[[], Found], device: str) -> tuple[float, float, Found]:
    """Wall seconds, gigabytes on the device beyond what was there, and recall."""
    before = peak = 0
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
    start = time.perf_counter()
    found = run()
    if device == "cuda":
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
    return time.perf_counter() - start, peak / 1e9, found


def print_case(size: Size, device: str, until: float) -> float:
    """One table, of three rounds or as many as end in time; returns the seconds that one round and its data took."""
    begun = time.perf_counter()
    case = make(size, device)
    prepared = Prepared.of(case)
    runs = contenders(case, prepared)
    results: dict[str, list[tuple[float, float, Found]]] = {name: [] for name in runs}
    first = 0.0
    for _ in range(3):
        for name, run in runs.items():
            results[name].append(timed(run, device))
        first = first or time.perf_counter() - begun
        if time.perf_counter() + first > until:
            break
    seconds = {name: statistics.median(result[0] for result in results[name]) for name in runs}
    own = seconds["recallatk, counts"]
    rounds = len(results["recallatk, counts"])
    print(f"\n### {size}\n\nMedian of {rounds} interleaved round{'s' * (rounds > 1)}.\n")
    print("| | seconds | times recallatk's counts | recall@1 / 5 / 10 | GB on the GPU beyond the rows |")
    print("|---|---|---|---|---|")
    for name, result in results.items():
        peak = f"{max(part[1] for part in result):.2f}" if device == "cuda" else "-"
        recall = " / ".join(f"{value:.6f}" for value in result[-1][2])
        print(f"| {name} | {seconds[name]:.3f} | {seconds[name] / own:.2f} | {recall} | {peak} |")
    wrong = differences(prepared, case, prepared.rank())
    checked = min(CHECKED, len(case.query))
    print(f"\n{checked - wrong} of {checked} queries have the counts of whole numbers.", flush=True)
    return first


def describe(device: str) -> None:
    """What the numbers depend on."""
    name: Any = platform.processor() or platform.machine()
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        name = f"{properties.name}, {properties.total_memory / 1e9:.0f} GB, CUDA {torch.version.cuda}"
    print(f"- {name}; {CORES} cores; {platform.system()}")
    print(f"- Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}", flush=True)


def main() -> None:
    """Parse, warm up, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", action="store_true", help="small sizes on the CPU, to see that it runs")
    options = parser.parse_args()
    if not options.cpu and not torch.cuda.is_available():
        sys.exit("torch sees no GPU here: nothing is measured (--cpu runs small sizes on the CPU)")
    device = "cpu" if options.cpu else "cuda"
    start = time.perf_counter()
    describe(device)
    rate = 0.0  # seconds for each multiplication
    sizes = CPU_SIZES if options.cpu else GPU_SIZES
    warm = make(Size(0, 500, 64), device)
    for run in contenders(warm, Prepared.of(warm)).values():
        run()
    for size in sizes:
        if time.perf_counter() + rate * size.work > start + SECONDS:
            print(f"\n### {size}\n\nLeft out: it would not end within five minutes.", flush=True)
            continue
        rate = print_case(size, device, start + SECONDS) / size.work


if __name__ == "__main__":
    main()
