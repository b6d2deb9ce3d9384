"""The engine beside exact searches of other libraries: CPU time of one thread each, runs interleaved in one process.

Prints Markdown. `python benchmarks/engine.py --help` lists the choices; benchmarks/README.md says how to read it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from contenders import CONTENDERS, Found, fewer_queries, installed
from data import AIMS, CASES, FULL_CASES, LEFT_OUT, Case, self_retrieval
from memory import measure_memory
from threadpoolctl import threadpool_info, threadpool_limits

from recallatk.ranking import fastest_backend

PEER_SIZE = 20_000, 512


# ---- measuring


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
    for title, why in LEFT_OUT.items():
        print(f"- {title}: left out, {why}")
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
            cells = [title, AIMS.get(title, "-"), f"{base:.2f}"]
            for name in names[1:] if "faiss" in found else names:
                cells += [f"{found[name][0]:.2f}", ratio(base, found[name][0])]
            cells.append(" / ".join(f"{found[name][1]['recall@1']:.4f}" for name in names))
            yield cells

    own = [name for name in names if name != "faiss"]
    head = ["data", "aim", "faiss, CPU s"]
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


def print_memory() -> None:
    """A gallery that does not fit: what the whole process holds at its peak, mapped pages counted."""
    found = measure_memory()
    print("2,000 queries against a memory-mapped gallery of 500,000 rows, d=256 (512 MB), the whole evaluation:\n")
    table(
        ["allowed, MB", "resident before, MB", "at the peak, MB", "CPU s", "recall@1"],
        [[f"{found[key]:{form}}" for key, form in MEMORY_COLUMNS.items()]],
    )


MEMORY_COLUMNS = {"allowed": ".0f", "before": ".0f", "peak": ".0f", "seconds": ".2f", "recall@1": ".4f"}


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
    cases = {name: make for name, make in cases.items() if options.only in name and name not in LEFT_OUT}
    with threadpool_limits(1):
        measure(self_retrieval(500, 32), [name for name in CONTENDERS if installed(name)], 1)  # imports are not timed
        describe_machine()
        print_cases(cases, options.rounds)
        if not options.only:
            print_peers(options.rounds)
            print_scaling()
            print_memory()


if __name__ == "__main__":
    sys.exit(main())
