"""What the rows of a side are called in hashed lines, and in which order they come."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import operator
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.types import EmbeddingSet, Samples, float32_blocks

Rows = npt.NDArray[np.int64]

DIGEST_BYTES = hashlib.sha256().digest_size

LINES_A_BLOCK = 2**14
"""Lines that are put together at a time."""

_PLAIN = re.compile(r"[^\\\t\n\r\x80-\U0010ffff]*").fullmatch
"""Whether a text stands in lines as it is."""


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
        digests = np.empty((len(embeddings), DIGEST_BYTES), np.uint8)
        for start, block in float32_blocks(embeddings):
            rows = little_endian(block).view(f"V{block.shape[1] * 4}").ravel().tolist()  # one bytes object a row
            hashed = b"".join([hashlib.sha256(row).digest() for row in rows])
            digests[start : start + len(rows)] = np.frombuffer(hashed, np.uint8).reshape(-1, DIGEST_BYTES)
        return digests

    @functools.cached_property
    def order(self) -> Rows:
        """The rows in the order of their names; rows of one name as they come."""
        if self.twin is not None:
            return self.twin.order
        if self._named_by_digest:
            return _order_of(self.row_digests)
        names = self._names
        if all(map(operator.le, names, itertools.islice(names, 1, None))):  # as most lists of files are
            return np.arange(len(names))
        return np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)

    @functools.cached_property
    def ties(self) -> Rows:
        """(m, 2) places of the order where several rows have one name: the first, and the one behind the last.

        Without ids these are rows of equal values.
        """
        if self.twin is not None:
            return self.twin.ties
        again = np.zeros(max(len(self.order) - 1, 0), np.bool_)
        for start in range(0, len(again), LINES_A_BLOCK):
            places = slice(start, start + LINES_A_BLOCK + 1)
            if self._named_by_digest:
                ordered = self.row_digests[self.order[places]]
                same = (ordered[1:] == ordered[:-1]).all(axis=1)
            else:
                same = np.fromiter(itertools.starmap(operator.eq, itertools.pairwise(self.names(places))), np.bool_)
            again[start : start + LINES_A_BLOCK] = same
        edges = np.flatnonzero(np.diff(again, prepend=False, append=False)).reshape(-1, 2)
        edges[:, 1] += 1
        return edges

    def blocks(self) -> Iterator[tuple[slice, list[slice]]]:
        """The places of the order, some at a time, each time with the ties among them, counted from the first one.

        No tie is cut in two.
        """
        start, tie = 0, 0
        while start < len(self.order):
            stop = min(start + LINES_A_BLOCK, len(self.order))
            last = int(np.searchsorted(self.ties[:, 0], stop))
            stop = max(stop, int(self.ties[last - 1, 1])) if last else stop
            inside = (self.ties[tie:last] - start).tolist()
            yield slice(start, stop), [slice(*edges) for edges in inside]
            start, tie = stop, last

    def names(self, places: slice) -> list[str]:
        """The names at these places of the order."""
        if not self._named_by_digest:
            return [self._names[row] for row in self.order[places].tolist()]
        digests = self.row_digests[self.order[places]]
        return digests.tobytes().hex(" ", DIGEST_BYTES).split()

    @property
    def _named_by_digest(self) -> bool:
        return self.samples.ids is None and isinstance(self.samples, EmbeddingSet)

    @functools.cached_property
    def _names(self) -> Sequence[str]:
        if self.twin is not None:
            return self.twin._names
        return tuple(self.samples.row_ids) if self.samples.ids is None else escape_names(self.samples.ids)


def _order_of(digests: npt.NDArray[np.uint8]) -> Rows:
    """Rows in the order of their digests, equal ones as they come: by the first 8 bytes, and by all where these tie."""
    first = digests[:, :8].copy().view(">u8").ravel().astype(np.uint64)
    order = np.argsort(first, kind="stable").astype(np.int64, copy=False)
    again = np.diff(first[order]) == 0
    tied = np.flatnonzero(np.append(again, False) | np.insert(again, 0, False)) if len(order) else order
    if len(tied):
        words = digests[order[tied]].view(">u8").astype(np.uint64)
        order[tied] = order[tied][np.lexsort(words.T[::-1])]
    return order


def escape_names(names: Sequence[str]) -> Sequence[str]:
    """Names as they stand in lines."""
    return names if all(map(_PLAIN, _joined(names))) else [escape_name(name) for name in names]


def _joined(names: Sequence[str]) -> Iterator[str]:
    return ("".join(names[start : start + LINES_A_BLOCK]) for start in range(0, len(names), LINES_A_BLOCK))


def escape_name(name: str) -> str:
    """A name in composed form, with what would end a cell or a line escaped."""
    escaped = name.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return unicodedata.normalize("NFC", escaped)


def little_endian(rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Rows as they are hashed."""
    return np.ascontiguousarray(rows, dtype="<f4")
