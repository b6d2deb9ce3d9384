"""What the rows of a side are called in hashed lines, and in which order they come."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import operator
import unicodedata
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from recallatk.types import EmbeddingSet, Samples, float32_blocks

Rows = npt.NDArray[np.int64]
Value = TypeVar("Value")

DIGEST_BYTES = hashlib.sha256().digest_size


@dataclasses.dataclass(frozen=True, eq=False)
class Side:
    """Queries ("q") or gallery ("g"), with what each row is called in hashed lines.

    A row is called by its id. Without ids it is called by the sha256 of its float32 values, so that order is free.

    Attributes:
        role: "q" or "g".
        samples: the rows.
        twin: the side of the other role where it holds the same samples: nothing is worked out twice.
    """

    role: str
    samples: Samples
    twin: Side | None = None

    @functools.cached_property
    def row_digests(self) -> npt.NDArray[np.uint8]:
        """(n, 32) the sha256 of the little-endian float32 values of each row; (0, 32) where there are no embeddings."""
        if self.twin is not None:
            return self.twin.row_digests
        embeddings = self.samples.embeddings if isinstance(self.samples, EmbeddingSet) else np.empty((0, 1))
        digests = bytearray()
        for _, block in float32_blocks(embeddings):
            rows = little_endian(block).view(f"V{block.shape[1] * 4}").ravel().tolist()  # one bytes object a row
            digests += b"".join([hashlib.sha256(row).digest() for row in rows])
        return np.frombuffer(digests, np.uint8).reshape(-1, DIGEST_BYTES)

    @functools.cached_property
    def order(self) -> Rows:
        """The rows in the order of their names; rows of one name as they come."""
        if self.twin is not None:
            return self.twin.order
        if self._named_by_digest:
            words = self.row_digests.view(">u8").astype(np.uint64)
            return np.lexsort(words.T[::-1]).astype(np.int64, copy=False)
        names = self._names
        return np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)

    @functools.cached_property
    def ties(self) -> list[slice]:
        """Where in the order several rows have one name: without ids, rows of equal values."""
        if self.twin is not None:
            return self.twin.ties
        if self._named_by_digest:
            ordered = self.row_digests[self.order]
            again = (ordered[1:] == ordered[:-1]).all(axis=1)
        else:
            again = np.fromiter(itertools.starmap(operator.eq, itertools.pairwise(self.names())), np.bool_)
        edges = np.flatnonzero(np.diff(again, prepend=False, append=False))
        return [slice(start, stop + 1) for start, stop in edges.reshape(-1, 2).tolist()]

    def names(self, places: slice = slice(None)) -> list[str]:
        """The names at these places of the order."""
        if not self._named_by_digest:
            return self.in_order(self._names, places)
        digests = self.row_digests[self.order[places]]
        return digests.tobytes().hex(" ", DIGEST_BYTES).split()

    def in_order(self, column: Sequence[Value], places: slice = slice(None)) -> list[Value]:
        """What a column holds at these places of the order."""
        return [column[row] for row in self.order[places].tolist()]

    @property
    def _named_by_digest(self) -> bool:
        return self.samples.ids is None and isinstance(self.samples, EmbeddingSet)

    @functools.cached_property
    def _names(self) -> Sequence[str]:
        if self.twin is not None:
            return self.twin._names
        return self.samples.row_ids if self.samples.ids is None else escape_names(self.samples.ids)


def escape_names(names: Sequence[str]) -> list[str]:
    """Names as they stand in lines."""
    together = "".join(names)
    if together.isascii() and not any(character in together for character in "\\\t\n\r"):
        return list(names)
    return list(map(escape_name, names))


def escape_name(name: str) -> str:
    """A name in composed form, with what would end a cell or a line escaped."""
    escaped = name.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return unicodedata.normalize("NFC", escaped)


def little_endian(rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Rows as they are hashed."""
    return np.ascontiguousarray(rows, dtype="<f4")
