"""Columns of text that are made when they are asked for, so that not every row has a text in memory."""

from __future__ import annotations

import operator
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

AT_ONCE = 2**12
"""Rows whose texts are made together."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Texts(Sequence[str]):
    """A column of text; equal to the tuple of its texts."""

    @abstractmethod
    def some(self, start: int, stop: int) -> list[str]:
        """The texts of these rows."""

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> tuple[str, ...]: ...
    def __getitem__(self, row: int | slice) -> str | tuple[str, ...]:
        if isinstance(row, slice):
            start, stop, step = row.indices(len(self))
            return tuple(
                self.some(start, max(start, stop)) if step == 1 else map(self.__getitem__, range(len(self))[row])
            )
        place = range(len(self))[row]
        return self.some(place, place + 1)[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), AT_ONCE):
            yield from self.some(start, min(start + AT_ONCE, len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | Texts):
            return NotImplemented
        return self is other or (len(self) == len(other) and all(map(operator.eq, self, other)))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"<{len(self):,} texts: {shown}{', ...' if len(self) > 3 else ''}>"


class RowNumbers(Texts):
    """What rows are called that have no ids.

    >>> RowNumbers(3)[-1], tuple(RowNumbers(3))
    ('2', ('0', '1', '2'))
    """

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    def some(self, start: int, stop: int) -> list[str]:
        """The numbers of these rows."""
        return list(map(str, range(start, stop)))


class HexDigests(Texts):
    """Hashes in hex.

    Attributes:
        digests: (n, bytes) of uint8.
    """

    def __init__(self, digests: npt.NDArray[np.uint8]) -> None:
        self.digests = np.ascontiguousarray(digests)

    @classmethod
    def of(cls, texts: Sequence[str]) -> HexDigests | None:
        """Hashes in hex as their bytes, half as many; None if one of the texts is no sha256."""
        if not texts or not all(map(_SHA256.fullmatch, texts)):
            return None
        parts = (bytes.fromhex("".join(texts[start : start + AT_ONCE])) for start in range(0, len(texts), AT_ONCE))
        return cls(np.frombuffer(b"".join(parts), np.uint8).reshape(len(texts), -1))

    def __len__(self) -> int:
        return len(self.digests)

    def some(self, start: int, stop: int) -> list[str]:
        """The hashes of these rows."""
        return self.digests[start:stop].tobytes().hex(" ", self.digests.shape[1]).split()

    def take(self, rows: Sequence[int]) -> HexDigests:
        """The hashes of these rows, in this order."""
        return HexDigests(self.digests[np.asarray(rows, dtype=np.int64)])
