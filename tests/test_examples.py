"""The examples as a newcomer runs them: real training, and recall@1 with its interval after each epoch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
EXAMPLES = Path(__file__).parents[1] / "examples"
NEEDS = {
    "pytorch_loop": ["torch", "torchmetrics"],
    "lightning_loop": ["torch", "lightning"],
    "transformers_trainer": ["torch", "transformers", "accelerate"],
    "keras_jax_arrays": ["keras", "jax"],
}
# recall@1 after each epoch, where the example prints epochs; the last line is that of the report.
VALUE = re.compile(r"recall@1 (0\.\d{4}), interval (0\.\d{4}) to (0\.\d{4})")


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*NEEDS, "photos"}


@pytest.mark.parametrize("name", NEEDS)
def test_example(name, tmp_path):
    missing = [module for module in NEEDS[name] if find_spec(module) is None]
    if missing:
        pytest.skip(f"make test-integrations installs {missing}")
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    report = re.search(r"^recall@1: (0\.\d+)$", done.stdout, re.MULTILINE)
    assert report, done.stdout
    if name == "lightning_loop":
        assert re.search(r"'val/recall@1_low': 0\.\d+", done.stdout)
        assert re.search(r"best recall@1: 0\.\d+", done.stdout)
    else:
        epochs = [tuple(map(float, found)) for found in VALUE.findall(done.stdout)]
        assert len(epochs) == 2
        assert all(low < value < high for value, low, high in epochs)
        assert epochs[-1][0] == pytest.approx(float(report[1]), abs=1e-4)
    assert "[signature]" in done.stdout
    assert not list(tmp_path.iterdir())  # nothing is left behind
