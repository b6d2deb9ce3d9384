"""benchmarks/gpu.py runs where there is no GPU, with torch and numpy alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
torch = pytest.importorskip("torch", reason="make test-integrations installs it")

BARE = """
import runpy, sys
for name in ("scipy", "pyarrow", "PIL", "threadpoolctl", "cyclopts", "rich", "onnxruntime"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_benchmark(*words: str) -> subprocess.CompletedProcess[str]:
    """With numpy and torch and nothing else to be imported."""
    script = Path(__file__).parents[1] / "benchmarks" / "gpu.py"
    command = [sys.executable, "-c", BARE, str(script), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_benchmark_runs_with_torch_and_numpy_alone():
    done = run_benchmark("--cpu")
    assert done.returncode == 0, done.stderr
    tables = done.stdout.split("\n### ")[1:]
    assert len(tables) == 2
    for table, checked in zip(tables, (64, 64), strict=True):
        assert f"{checked} of {checked} queries have the counts of whole numbers." in table
        rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| recallatk") or "topk" in line]
        assert len(rows) == 5
        assert len({row[3] for row in rows[:4]}) == 1  # the recall of all but half precision
        assert 0.3 < float(rows[0][3].split(" / ")[0]) < 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_the_benchmark_says_in_one_line_that_there_is_no_gpu():
    done = run_benchmark()
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "no GPU" in done.stderr
