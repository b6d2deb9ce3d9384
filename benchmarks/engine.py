"""The engine beside exact searches of other libraries: CPU time of one thread each, runs interleaved in one process.

Prints Markdown. `python benchmarks/engine.py --help` lists the choices; benchmarks/README.md says how to read it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from data import CASES, FULL_CASES, Case, self_retrieval
from threadpoolctl import threadpool_info, threadpool_limits

from recallatk.evaluation import evaluate_embeddings
from recallatk.evaluation.task import Task
from recallatk.ranking import fastest_backend, rank, to_grid
from recallatk.types import EmbeddingSet, EvalProtocol

KS = (1, 5, 10)
Found = dict[str, float]
Places = npt.NDArray[np.integer]

# ---- recallatk


def sets_of(case: Case) -> tuple[EmbeddingSet, EmbeddingSet | None]:
    """The case as embedding sets; self-retrieval has no gallery of its own."""
    query = EmbeddingSet(case.query, case.query_labels)
    return query, None if case.gallery is None else EmbeddingSet(case.gallery, case.gallery_labels)


def count_with(backend: str) -> Callable[[Case], Callable[[], Found]]:
    """Grid, relevance, counts and metrics with one backend; checking and hashing the data are left out."""

    def prepare(case: Case) -> Callable[[], Found]:
        query, gallery = sets_of(case)

        def run() -> Found:
            task = Task.of(query, gallery, EvalProtocol(ks=KS), None, case.metrics)
            grids = to_grid(*[side.embeddings for side in (query, gallery) if side is not None])
            blocks = rank(
                grids[0], grids[-1], task.relevance, depth=task.depth, limit=task.limit, backend=backend, threads=1
            )
            hits: dict[str, list[npt.NDArray[np.float64]]] = {str(name): [] for name in task.names}
            for block in blocks:
                for name in task.names:
                    hits[str(name)].append(name.values(block, ties="expected")[block.n_positives > 0])
            return {name: float(np.concatenate(values).mean()) for name, values in hits.items()}

        return run

    return prepare


def evaluate(case: Case) -> Callable[[], Found]:
    """A whole evaluation, from arrays to a report: data checked, hashed and signed."""

    def run() -> Found:
        report = evaluate_embeddings(*sets_of(case), metrics=case.metrics, protocol=EvalProtocol(ks=KS), threads=1)
        return {f"recall@{k}": report[f"recall@{k}"] for k in KS}

    return run


# ---- others: each fetches the nearest rows and looks for a positive among them


def hit_rates(case: Case, nearest: Places) -> Found:
    """The share of queries with a positive among the first k, the query itself and queries without one left out."""
    alone = case.gallery is None
    labels = case.query_labels if alone else case.gallery_labels
    queries = np.arange(len(nearest))
    if alone:
        not_self = nearest != queries[:, None]
        order = np.argsort(~not_self, axis=1, kind="stable")[:, : nearest.shape[1] - 1]
        nearest = np.take_along_axis(nearest, order, axis=1)
    hits = labels[nearest] == case.query_labels[queries, None]
    sizes = np.bincount(labels, minlength=int(case.query_labels.max()) + 1)[case.query_labels[queries]] - alone
    return {f"recall@{k}": float(hits[sizes > 0, :k].any(axis=1).mean()) for k in KS}


def largest_k(case: Case) -> int:
    """How many rows have to be fetched: the query finds itself as well."""
    gallery = case.query if case.gallery is None else case.gallery
    return min(max(case.largest_k, max(KS)) + (case.gallery is None), len(gallery))


def faiss_flat(case: Case) -> Callable[[], Found]:
    """faiss.IndexFlatIP."""
    import faiss

    gallery = case.query if case.gallery is None else case.gallery

    def run() -> Found:
        faiss.omp_set_num_threads(1)
        index = faiss.IndexFlatIP(gallery.shape[1])
        index.add(gallery)
        return hit_rates(case, index.search(case.query, largest_k(case))[1])

    return run


def recipe(case: Case) -> Callable[[], Found]:
    """What people write: the whole similarity matrix, then argpartition."""
    gallery = case.query if case.gallery is None else case.gallery
    k = largest_k(case)

    def run() -> Found:
        query = case.query / np.linalg.norm(case.query, axis=1, keepdims=True)
        similarity = query @ (gallery / np.linalg.norm(gallery, axis=1, keepdims=True)).T
        top = np.argpartition(-similarity, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(similarity, top, axis=1), axis=1)
        return hit_rates(case, np.take_along_axis(top, order, axis=1))

    return run


def torch_topk(case: Case) -> Callable[[], Found]:
    """torch: product and topk, 1024 queries at a time."""
    import torch

    torch.set_num_threads(1)
    query = torch.from_numpy(case.query)
    gallery = query if case.gallery is None else torch.from_numpy(case.gallery)

    def run() -> Found:
        parts = [(query[at : at + 1024] @ gallery.T).topk(largest_k(case)).indices for at in range(0, len(query), 1024)]
        return hit_rates(case, torch.cat(parts).numpy())

    return run


def scikit_learn(case: Case) -> Callable[[], Found]:
    """sklearn.neighbors.NearestNeighbors, brute force."""
    from sklearn.neighbors import NearestNeighbors

    gallery = case.query if case.gallery is None else case.gallery

    def run() -> Found:
        index = NearestNeighbors(n_neighbors=largest_k(case), algorithm="brute", metric="cosine", n_jobs=1)
        return hit_rates(case, index.fit(gallery).kneighbors(case.query, return_distance=False))

    return run


def usearch_exact(case: Case) -> Callable[[], Found]:
    """usearch.index.search(..., exact=True)."""
    from usearch.index import MetricKind, search

    gallery = case.query if case.gallery is None else case.gallery

    def run() -> Found:
        found = search(gallery, case.query, largest_k(case), MetricKind.IP, exact=True, threads=1)
        return hit_rates(case, found.keys.astype(np.int64))

    return run


Contender = tuple[str, str, Callable[[Case], Callable[[], Found]], int]
CONTENDERS: dict[str, Contender] = {
    "faiss": ("faiss", "faiss-cpu", faiss_flat, 0),
    "native": ("recallatk", "recallatk", count_with("native"), 0),
    "numpy": ("recallatk", "recallatk", count_with("numpy"), 0),
    "whole evaluation": ("recallatk", "recallatk", evaluate, 0),
    "forty-line recipe": ("numpy", "numpy", recipe, 2000),
    "torch top-k": ("torch", "torch", torch_topk, 0),
    "scikit-learn": ("sklearn", "scikit-learn", scikit_learn, 4000),
    "usearch exact": ("usearch", "usearch", usearch_exact, 400),
}
"""Name -> (module, distribution, what prepares a run, how many queries it is given: its time is scaled up; 0: all)."""

PEER_SIZE = 20_000, 512


# ---- measuring


def installed(name: str) -> bool:
    """Whether the contender's package is there (and, for native, whether it works on this machine)."""
    return importlib.util.find_spec(CONTENDERS[name][0]) is not None and (
        name != "native" or fastest_backend()[0] == "native"
    )


def fewer_queries(case: Case, n: int) -> Case:
    """The first queries against the whole gallery."""
    if not n or n >= len(case.query):
        return case
    if case.gallery is not None:
        return Case(case.query[:n], case.query_labels[:n], case.gallery, case.gallery_labels, largest_k=case.largest_k)
    return Case(case.query[:n], case.query_labels[:n], case.query, case.query_labels, largest_k=case.largest_k)


def measure(case: Case, names: Sequence[str], rounds: int) -> dict[str, tuple[float, Found]]:
    """Median CPU seconds of each contender over interleaved rounds, and what it found."""
    runs = {}
    for name in names:
        part = fewer_queries(case, CONTENDERS[name][3])
        runs[name] = (CONTENDERS[name][2](part), len(case.query) / len(part.query))
    seconds: dict[str, list[float]] = {name: [] for name in names}
    found: dict[str, Found] = {}
    for _ in range(rounds):
        for name, (run, times) in runs.items():
            start = time.process_time()
            found[name] = run()
            seconds[name].append((time.process_time() - start) * times)
    return {name: (statistics.median(seconds[name]), found[name]) for name in names}


def measure_alone(name: str, n: int, d: int) -> tuple[float, float]:
    """CPU seconds, and megabytes at the peak beyond the data, of one run of self-retrieval in a process of its own.

    In a process that has worked before, memory is used again that was never given back. NaN where the system does not
    tell the peak (Linux does).
    """
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "131072"  # what the data maker used is given back at once
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run_alone, (name, n, d))


def _run_alone(name: str, n: int, d: int) -> tuple[float, float]:
    with threadpool_limits(1):
        CONTENDERS[name][2](self_retrieval(500, 32))()  # imports
        run = CONTENDERS[name][2](fewer_queries(self_retrieval(n, d), CONTENDERS[name][3]))
        clear = Path("/proc/self/clear_refs")
        if clear.exists():
            clear.write_text("5", encoding="ascii")  # the peak so far is forgotten
        before, start = _status("VmRSS"), time.process_time()
        run()
        return time.process_time() - start, (_status("VmHWM") - before) / 1024


def _status(key: str) -> float:
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((float(line.split()[1]) for line in lines if line.startswith(key)), float("nan"))


# ---- printing


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A Markdown table, flushed row by row."""
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)
    print()


def describe_machine() -> None:
    """What the numbers depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    model = facts.get("model name", platform.machine())
    family = f"family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}"
    versions = [f"{d} {importlib.metadata.version(d)}" for n, (_, d, *_) in CONTENDERS.items() if installed(n)]
    backend, why = fastest_backend()
    for pool in threadpool_info():
        if pool["internal_api"] == "openblas":
            versions.append(f"OpenBLAS {pool['version']} ({pool['architecture']} kernels)")
    print(f"- {model} ({family}), {os.cpu_count()} cores, {platform.system()}")
    print(f"- Python {platform.python_version()}; {', '.join(dict.fromkeys(versions))}")
    print(f"- backend: {backend} ({why})")
    for name in CONTENDERS:
        if not installed(name):
            print(f"- {name}: left out, not installed or not usable here")
    print(flush=True)


def ratio(other: float, own: float) -> str:
    """How many times faster."""
    return f"**{other / own:.1f}x**" if own else "-"


def print_cases(cases: dict[str, Callable[[], Case]], rounds: int) -> None:
    """Every case: the native and the numpy backend against faiss."""
    names = [name for name in ("faiss", "native", "numpy") if installed(name)]

    def rows() -> Iterable[Sequence[str]]:
        for title, make in cases.items():
            found = measure(make(), names, rounds)
            base = found["faiss"][0] if "faiss" in found else float("nan")
            cells = [title, f"{base:.2f}"]
            for name in names[1:] if "faiss" in found else names:
                cells += [f"{found[name][0]:.2f}", ratio(base, found[name][0])]
            cells.append(" / ".join(f"{found[name][1]['recall@1']:.4f}" for name in names))
            yield cells

    own = [name for name in names if name != "faiss"]
    head = ["data", "faiss, CPU s"]
    for name in own:
        head += [f"{name}, CPU s", "faster than faiss"]
    table([*head, f"recall@1: {' / '.join(names)}"], rows())


def print_peers(rounds: int) -> None:
    """One case with every contender, and its memory."""
    names = [name for name in CONTENDERS if installed(name)]
    case = self_retrieval(*PEER_SIZE)
    found = measure(case, names, rounds)
    own = found.get("native", found["numpy"])[0]
    print(f"Self-retrieval, {PEER_SIZE[0]} rows, d={PEER_SIZE[1]}; ratios are to recallatk's fastest backend.\n")

    def rows() -> Iterable[Sequence[str]]:
        for name in names:
            queries = CONTENDERS[name][3]
            note = f"{queries} queries, time scaled up, memory as it is" if queries else ""
            yield (
                name,
                f"{found[name][0]:.2f}",
                ratio(found[name][0], own),
                f"{measure_alone(name, *PEER_SIZE)[1]:.0f}",
                note,
            )

    table(["", "CPU s", "takes so many times as long", "peak memory beyond the data, MB", ""], rows())


SIZES = [(5_000, 512), (10_000, 512), (20_000, 512), (40_000, 512), (20_000, 64), (20_000, 1024), (20_000, 2048)]


def print_scaling() -> None:
    """Time and memory of the fastest backend against the number of rows and columns; one run each."""
    names = [name for name in ("faiss", fastest_backend()[0]) if installed(name)]

    def rows() -> Iterable[Sequence[str]]:
        sizes = [
            (5_000, 512),
            (10_000, 512),
            (20_000, 512),
            (40_000, 512),
            (20_000, 64),
            (20_000, 1024),
            (20_000, 2048),
        ]
        for n, d in sizes:
            cells = [f"{n}", f"{d}"]
            for name in names:
                seconds, peak = measure_alone(name, n, d)
                cells += [f"{seconds:.2f}", f"{2 * n * n * d / seconds / 1e9:.0f}", f"{peak:.0f}"]
            yield cells

    head = ["rows", "columns"]
    for name in names:
        head += [f"{name}, CPU s", "G operations/s, full square", "peak MB beyond the data"]
    table(head, rows())


def use_fast_blas() -> None:
    """Start again with one kernel for every OpenBLAS in the process: the one that numpy's newest copy chooses.

    Wheels bundle OpenBLAS of different ages, and an old one may not know this processor and fall back to a kernel that
    is four times slower. Peers are to be measured at their best. Who sets OPENBLAS_CORETYPE decides for themselves.
    """
    cores = [pool.get("architecture") for pool in threadpool_info() if pool["internal_api"] == "openblas"]
    if cores and "OPENBLAS_CORETYPE" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OPENBLAS_CORETYPE": cores[0]})


def main() -> None:
    """Parse, warm up, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="further cases: 60k rows, 500k gallery items (an hour)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds; the median is printed")
    parser.add_argument("--only", default="", help="cases whose name contains this, no further tables")
    options = parser.parse_args()
    use_fast_blas()
    cases = {**CASES, **(FULL_CASES if options.full else {})}
    with threadpool_limits(1):
        measure(self_retrieval(500, 32), [name for name in CONTENDERS if installed(name)], 1)  # imports are not timed
        describe_machine()
        print_cases({name: make for name, make in cases.items() if options.only in name}, options.rounds)
        if not options.only:
            print_peers(options.rounds)
            print_scaling()


if __name__ == "__main__":
    sys.exit(main())
