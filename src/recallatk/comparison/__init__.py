"""Comparison of saved runs: is one better than the other, on the same queries?"""

from recallatk.comparison.pairing import Alignment, Dropped, Pairing, align, pair

__all__ = ["Alignment", "Dropped", "Pairing", "align", "pair"]
