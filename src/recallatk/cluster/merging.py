"""Partial results that become one, on any engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recallatk.cluster.engine import Engine, Ref

FAN_IN = 8
"""So many partial results are merged by one task."""


class Merge:
    """Partial results merged in a tree, as they are handed over: no task has more than FAN_IN of them."""

    def __init__(self, engine: Engine, function: Callable[[Sequence[Any]], Any]) -> None:
        self._engine, self._function = engine, function
        self._levels: list[list[Ref]] = []

    def add(self, ref: Ref, level: int = 0) -> None:
        """Hand over a partial result."""
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append(ref)
        if len(self._levels[level]) == FAN_IN:
            together, self._levels[level] = self._levels[level], []
            self.add(self._merged(together), level + 1)

    def root(self) -> Ref | None:
        """The result of everything that was handed over; None of nothing."""
        left = [ref for level in self._levels for ref in level]
        while len(left) > 1:
            left = [self._merged(left[start : start + FAN_IN]) for start in range(0, len(left), FAN_IN)]
        self._levels = [left]
        return left[0] if left else None

    def _merged(self, refs: list[Ref]) -> Ref:
        return refs[0] if len(refs) == 1 else self._engine.run(_merge, self._function, *refs)


def _merge(function: Callable[[Sequence[Any]], Any], *parts: Any) -> Any:
    return function(parts)
