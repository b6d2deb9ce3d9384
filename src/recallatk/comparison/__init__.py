"""Comparison of saved runs: is one better than the other, on the same queries?"""

from recallatk.comparison.comparing import (
    ChangedQuery,
    ComparedLabel,
    ComparedValue,
    Comparison,
    Contrast,
    System,
    compare,
)
from recallatk.comparison.pairing import Alignment, Dropped, Pairing, align, pair
from recallatk.comparison.verdict import p_value, signed

__all__ = [
    "Alignment",
    "ChangedQuery",
    "ComparedLabel",
    "ComparedValue",
    "Comparison",
    "Contrast",
    "Dropped",
    "Pairing",
    "System",
    "align",
    "compare",
    "p_value",
    "pair",
    "signed",
]
