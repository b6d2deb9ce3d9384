"""What it costs to choose the best of several runs on the queries that it is then reported on."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Selection:
    """By how much the best of several equally good runs looks better than they are.

    Attributes:
        runs: how many there are to choose from.
        standard_errors: `expected_best(runs)`.
        standard_error: of one run, from what differs between neighbouring runs on the same queries (the median of the
            standard errors of their differences, over the square root of 2); None where it is not known.
    """

    runs: int
    standard_errors: float
    standard_error: float | None

    @property
    def bias(self) -> float | None:
        """How much too high the best value is then, on average."""
        return None if self.standard_error is None else self.standard_errors * self.standard_error

    def lines(self, *, percent: bool = False) -> list[str]:
        """The bias in words."""
        size = "how much that is here is not known (no two runs in succession differ, or there are no intervals)"
        if self.bias is not None and self.standard_error is not None:
            one, all_ = (f"{100 * x:.2f}" if percent else f"{x:.4f}" for x in (self.standard_error, self.bias))
            size = f"one is about {one} here, from what differs between runs in succession, so that is {all_}"
        return [
            f"the best of {self.runs} equally good runs looks better than they are by {self.standard_errors:.4f} "
            f"standard errors; {size}",
            "choose the run on other queries than those that its value is reported on, or a step beforehand",
        ]


def select(runs: int, errors: Sequence[float]) -> Selection:
    """The bias of the best of these runs.

    Args:
        runs: how many there are.
        errors: the standard errors of the differences between runs in succession.
    """
    known = [error for error in errors if error > 0]
    return Selection(runs, expected_best(runs), statistics.median(known) / math.sqrt(2) if known else None)


def expected_best(m: int) -> float:
    """The mean of the largest of m independent standard normal numbers.

    >>> round(expected_best(5), 4), round(expected_best(50), 4)
    (1.163, 2.2491)
    """
    from scipy.integrate import quad
    from scipy.special import ndtr

    def density(x: float) -> Any:
        return m * x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * ndtr(x) ** (m - 1)

    # The whole of it lies here for any m that fits a disk; quad over the infinite line can miss the peak.
    return float(quad(density, -9.0, 9.0, epsabs=1e-10, limit=200)[0]) if m > 1 else 0.0
