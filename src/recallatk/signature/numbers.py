"""The values of a column as the numbers of their first appearance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from recallatk.signature.sides import Side

Cell: TypeAlias = str | tuple[str, ...]
"""The values that a row has in a column: one (an empty text is none), or several."""


@dataclasses.dataclass
class Numbers:
    """Counts values in the order in which it is asked for them.

    Only what comes again is remembered, so that a column of ids takes no memory for each of them.

    Attributes:
        again: the hashes of texts that come more than once, rising; None: all are remembered.
        afresh: the places of sides that count from the beginning, because they hold the very rows of another.
    """

    again: npt.NDArray[np.int64] | None
    afresh: frozenset[int]
    _place: int = -1
    _next: int = 0
    _numbers: dict[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, sides: Sequence[Side], column: Sequence[Sequence[Cell]]) -> Numbers:
        """For a column of these sides."""
        twins = frozenset(place for place, side in enumerate(sides) if side.twin is not None)
        # Rows of one name may come in another order the second time.
        if any(len(sides[place].ties) for place in twins):
            return cls(None, frozenset())
        if any(isinstance(cell, tuple) for cells in column for cell in cells):
            return cls(None, twins)
        hashes = [
            np.fromiter(map(hash, cells), np.int64, len(cells))
            for place, cells in enumerate(column)
            if place not in twins
        ]
        return cls(_repeated(np.concatenate(hashes)), twins)

    def texts(self, place: int, cells: Sequence[Cell]) -> list[str]:
        """The numbers of the next cells of the side at this place, as text; those of one cell joined by commas."""
        if place != self._place and place in self.afresh:
            self._next = 0
            self._numbers.clear()
        self._place = place
        if self.again is None or not len(self.again):
            known = self.again is None
            return [",".join([str(self._number(value, known=known)) for value in values_of(cell)]) for cell in cells]
        hashes = np.fromiter(map(hash, cells), np.int64, len(cells))
        known_hashes = self.again[np.minimum(np.searchsorted(self.again, hashes), len(self.again) - 1)]
        come_again = (known_hashes == hashes).tolist()
        numbered = zip(cells, come_again, strict=True)
        return [str(self._number(value, known=known)) if value else "" for value, known in numbered]  # type: ignore[arg-type]

    def _number(self, value: str, *, known: bool) -> int:
        number = self._numbers.get(value) if known else None
        if number is None:
            number = self._next
            self._next += 1
            if known:
                self._numbers[value] = number
        return number


def values_of(cell: Cell) -> tuple[str, ...]:
    """The values that a cell holds."""
    return cell if isinstance(cell, tuple) else (cell,) if cell else ()


def _repeated(hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """What comes more than once, rising."""
    hashes.sort()
    as_before = np.diff(hashes, prepend=hashes[:1]) == 0
    as_before[:1] = False
    repeated: npt.NDArray[np.int64] = hashes[as_before & np.append(~as_before[1:], True)]
    return repeated
