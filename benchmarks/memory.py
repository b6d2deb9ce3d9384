"""How much a whole process holds while it evaluates a gallery that is larger than the memory it may use.

`python benchmarks/memory.py FOLDER MEGABYTES` evaluates `query.npy` against `gallery.npy` in FOLDER and prints JSON;
`measure_memory` makes these files and runs it in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ALLOWED = 300
"""Megabytes; the gallery has 512."""


def measure_memory(queries: int = 2_000, n: int = 500_000, d: int = 256) -> dict[str, float]:
    """Resident megabytes before and at the peak, CPU seconds and recall@1, of a process that may hold `ALLOWED`."""
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        centres = rng.normal(size=(n // 5, d)).astype(np.float32)
        for name, rows in (("query", queries), ("gallery", n)):
            labels = rng.integers(0, len(centres), rows)
            np.save(Path(folder) / f"{name}.labels.npy", labels)
            made = np.lib.format.open_memmap(Path(folder) / f"{name}.npy", "w+", np.float32, (rows, d))
            for start in range(0, rows, 4096):
                part = labels[start : start + 4096]
                made[start : start + 4096] = centres[part] + 2 * rng.normal(size=(len(part), d))
            made.flush()
        done = subprocess.run([sys.executable, __file__, folder, str(ALLOWED)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def main(folder: Path, megabytes: int) -> None:
    """Evaluate the files in this folder."""
    from recallatk import EvalProtocol, evaluate_embeddings, load_embeddings

    before, start = _megabytes("VmRSS"), time.process_time()
    sets = [
        load_embeddings(folder / f"{name}.npy", labels=folder / f"{name}.labels.npy", name=name).embeddings
        for name in ("query", "gallery")
    ]
    report = evaluate_embeddings(*sets, protocol=EvalProtocol(ks=(1, 5, 10)), memory=megabytes * 10**6, threads=1)
    found = {"allowed": megabytes, "before": before, "peak": _megabytes("VmHWM")}
    print(json.dumps({**found, "seconds": time.process_time() - start, "recall@1": report["recall@1"]}))


def _megabytes(key: str) -> float:
    """What Linux says of this process; NaN elsewhere."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((float(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(key)), float("nan"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
