"""Which backends the tests run over: those that work on this machine, torch aside (test_torch.py)."""

from __future__ import annotations

from recallatk.ranking import BACKENDS
from recallatk.ranking.native import why_not

HERE = [name for name in BACKENDS if name != "torch" and (name != "native" or why_not() is None)]
