"""The grid: rows as whole numbers, so that every similarity is an exact integer in any order of summation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recallatk.types import Similarity, float32_blocks, release_pages, take_rows

GridRows = npt.NDArray[np.int32]

UNIT_BITS = 26
"""A coordinate of a unit row is a multiple of 2**-26, held as an integer of at most 2**26 in size."""

RAW_BITS = {"dot": 26, "euclidean": 25}
"""The longest raw row is at most 2**26 (dot), or 2**25 (euclidean), grid steps long."""

NEAR = 1_000_000
"""Similarities within one part in a million of the largest possible one are near-ties: what float32 products err."""


@dataclasses.dataclass(frozen=True, eq=False)
class StreamedRows:
    """Grid rows that are made from embeddings whenever a part of them is asked for, and not kept.

    Attributes:
        embeddings: (n, d), mapped from a file as a rule.
        bits: None for unit rows; for raw ones the power of two that they are multiplied by.
    """

    embeddings: npt.NDArray[np.generic]
    bits: int | None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        n, d = self.embeddings.shape
        return n, d

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, rows: slice | npt.NDArray[np.int64]) -> GridRows:
        """The grid rows of a slice, or of these row numbers (read fastest when they rise)."""
        part = self.embeddings[rows] if isinstance(rows, slice) else take_rows(self.embeddings, rows)
        grid = np.empty(part.shape, dtype=np.int32)
        for start, block in float32_blocks(part, rows_a_block=_rows_a_block(part)):
            _write_rows(block, self.bits, grid[start : start + len(block)])
        release_pages(self.embeddings)
        return grid


@dataclasses.dataclass(frozen=True)
class Grid:
    """Rows on the grid.

    Attributes:
        rows: (n, d) int32, in grid steps; in memory, or made in parts (`StreamedRows`).
        similarity: what is computed from them.
        unit: what one step of a similarity is worth: an exact power of two.
        near: the width of a near-tie in steps of a similarity.
    """

    rows: GridRows | StreamedRows
    similarity: Similarity
    unit: float
    near: int

    @property
    def dim(self) -> int:
        """The number of columns."""
        return int(self.rows.shape[1])

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, rows: slice) -> LoadedGrid:
        """Some of the rows, in memory; all of what is in memory already is the grid itself."""
        if isinstance(self, LoadedGrid) and rows.start == 0 and rows.stop >= len(self):
            return self
        return LoadedGrid(self.rows[rows], self.similarity, self.unit, self.near)

    def load(self) -> LoadedGrid:
        """All of the rows, in memory."""
        return self.part(slice(0, len(self)))


@dataclasses.dataclass(frozen=True)
class LoadedGrid(Grid):
    """Rows on the grid, all of them in memory."""

    rows: GridRows


def load_both(query: Grid, gallery: Grid) -> tuple[LoadedGrid, LoadedGrid]:
    """Both in memory; one object for both stays one."""
    own = query.load()
    return own, own if query is gallery else gallery.load()


def to_grid(*sets: npt.NDArray[np.generic], similarity: Similarity = "cosine") -> tuple[LoadedGrid, ...]:
    """Bring embeddings to the grid; see `stream_grid`. The grid rows of all are in memory.

    >>> to_grid(np.array([[3.0, 4.0]]))[0].rows
    array([[40265318, 53687091]], dtype=int32)
    """
    return tuple(grid.load() for grid in stream_grid(*sets, similarity=similarity))


def stream_grid(*sets: npt.NDArray[np.generic], similarity: Similarity = "cosine") -> tuple[Grid, ...]:
    """Bring embeddings to the grid when they are asked for; sets that are compared with each other go in together.

    cosine: a row becomes float32, is scaled to unit length in float64, and that is rounded (half to even) to multiples
    of 2**-26. The squares of float32 numbers are exact in float64; they are summed in one fixed order, so the result
    is the same on every machine. Scaling a row by a power of two (inside float32's normal range) changes nothing.

    dot, euclidean: float32 rows as they are, all multiplied by one common power of two such that the longest row is
    at most 2**26 (euclidean: 2**25) steps long, and rounded once. The euclidean similarity is -|x - y|**2.

    Exact: with |x|, |y| the lengths of two rows in steps, every product of coordinates and every partial sum of an
    inner product is at most |x| |y| in size: at most 2**52, beside what rounding adds to a length (less than
    sqrt(d) / 2 steps). |x - y|**2 = |x|**2 - 2 x y + |y|**2 is at most 4 * 2**50 = 2**52. All of that is below 2**53,
    so float64 holds it exactly on any BLAS, with any number of threads and any block size.

    Args:
        sets: (n, d) each, every row finite and non-zero as float32.
        similarity: cosine, dot or euclidean.
    """
    if similarity == "cosine":
        near, unit, bits = 2 ** (2 * UNIT_BITS) // NEAR, 2.0 ** (-2 * UNIT_BITS), None
    else:
        near = 2 ** (2 * RAW_BITS[similarity]) // NEAR
        bits = RAW_BITS[similarity] - _longest(sets)
        unit = 2.0 ** (-2 * bits)
    return tuple(Grid(StreamedRows(rows, bits), similarity, unit, near) for rows in sets)


def _write_rows(embeddings: npt.NDArray[np.float32], bits: int | None, out: GridRows) -> None:
    rows = embeddings.astype(np.float64)
    if bits is None:
        rows /= np.sqrt(_sums(rows * rows))[:, None]
        rows *= 2.0**UNIT_BITS
    else:
        np.ldexp(rows, bits, out=rows)
    out[:] = np.rint(rows, out=rows)


def _longest(sets: Sequence[npt.NDArray[np.generic]]) -> int:
    """The exponent e of the longest row: its length is at most 2**e."""
    longest: float = 0.0
    for embeddings in sets:
        for _, block in float32_blocks(embeddings, rows_a_block=_rows_a_block(embeddings)):
            rows = block.astype(np.float64)
            longest = max(longest, float(np.sqrt(_sums(rows * rows)).max(initial=0.0)))
    return math.frexp(longest)[1]


def _rows_a_block(embeddings: npt.NDArray[np.generic]) -> int:
    return max(1, 2**17 // int(embeddings.shape[1]))  # stays in the cache


def _sums(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sum each row by halving, in place: one fixed tree of additions, whatever numpy's own sum does here."""
    width = values.shape[1]
    while width > 1:
        half = (width + 1) // 2
        values[:, : width - half] += values[:, half:width]
        width = half
    return values[:, 0]
