"""Runs over epochs or commits: the curve of one metric, with what chance alone would show."""

from recallatk.history.curve import AGAINST, Change, History, Step, track
from recallatk.history.selection import Selection, expected_best

__all__ = ["AGAINST", "Change", "History", "Selection", "Step", "expected_best", "track"]
