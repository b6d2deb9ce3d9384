"""Integrations where their framework is not installed: one line that says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["torchmetrics", "lightning"])
def test_an_absent_framework_is_named_with_its_command(module):
    absent = dict.fromkeys(["torch", "torchmetrics", "lightning", "pytorch_lightning"])
    code = f"import sys; sys.modules.update({absent}); import recallatk.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f": pip install 'recallatk[{module}]'" in done.stderr.splitlines()[-1]
