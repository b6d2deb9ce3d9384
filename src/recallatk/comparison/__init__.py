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
from recallatk.comparison.pairing import Alignment, Dropped, Pairing, align, choose_rule, pair
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
    "choose_rule",
    "compare",
    "p_value",
    "pair",
    "signed",
]
