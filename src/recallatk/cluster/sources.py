"""Where rows lie, so that a worker reads them itself and the driver does not send them."""

from __future__ import annotations

import dataclasses
import mmap
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recallatk.embeddings.known_file import KnownFile
from recallatk.memory import release_shared_pages
from recallatk.ranking.grid import Grid, StreamedRows
from recallatk.types import Similarity, StoredRows, take_from_pieces

Array: TypeAlias = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True)
class MappedFile:
    """Rows of an array in a file that every node reads under the same path.

    Attributes:
        file: the file, by which a node notices that it has another one.
        offset: where the array begins.
        dtype: of the array.
        shape: of the array.
        rows: which of its rows.
    """

    file: KnownFile
    offset: int
    dtype: str
    shape: tuple[int, int]
    rows: slice

    @classmethod
    def of(cls, array: Array, rows: slice) -> MappedFile | None:
        """Where these rows of an array lie; None if that is in this process, or in a file without a name."""
        if not isinstance(array, np.memmap) or not isinstance(array.base, mmap.mmap) or not array.filename:
            return None
        if array.mode == "c":  # what was changed is in this process and not in the file
            return None
        path = Path(array.filename)
        if not array.flags.c_contiguous or not path.is_file():
            return None
        n, d = array.shape
        return cls(KnownFile.of(path), array.offset, array.dtype.str, (n, d), rows)

    def part(self, rows: slice) -> MappedFile:
        """Some of these rows."""
        start, stop, _ = rows.indices(self.rows.stop - self.rows.start)
        return dataclasses.replace(self, rows=slice(self.rows.start + start, self.rows.start + stop))

    def open(self) -> Array:
        """The rows, mapped.

        Raises:
            RecallatkError: this node does not have the file, or another version of it.
        """
        self.file.check()
        return np.memmap(self.file.path, self.dtype, "r", self.offset, self.shape)[self.rows]


def are_found_there(rows: Array | StoredRows) -> bool:
    """Whether workers read these rows themselves, so that they do not pass through this process."""
    return not isinstance(rows, np.ndarray) or MappedFile.of(rows, slice(0, 0)) is not None


@dataclasses.dataclass(frozen=True)
class Pieces:
    """Rows in several places one after the other, of which one is opened at a time; see `StoredRows`.

    Attributes:
        starts: where the rows of each begin, and where the last ones end.
        places: what opens them.
        rows: which of all rows these are.
        dtype: of the numbers.
        width: the number of columns.
    """

    starts: tuple[int, ...]
    places: tuple[Any, ...]
    rows: slice
    dtype: np.dtype[Any]
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), self.width

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)

    def __getitem__(self, rows: Any) -> Array:
        """The rows of a slice, or of these row numbers, copied."""
        wanted = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        wanted = wanted + self.rows.start
        taken = take_from_pieces(wanted, self.starts, self._piece, width=self.width, dtype=self.dtype)
        release_shared_pages()
        return taken

    def _piece(self, number: int) -> Array:
        release_shared_pages()  # of the piece before
        rows: Array = self.places[number].open()
        return rows

    def part(self, rows: slice) -> Pieces:
        """Some of the rows, of which none is read."""
        start, stop, _ = rows.indices(len(self))
        return dataclasses.replace(self, rows=slice(self.rows.start + start, self.rows.start + stop))

    def open(self) -> Pieces:
        """The rows themselves, where they are read."""
        return self


@dataclasses.dataclass(frozen=True)
class Scale:
    """The grid that rows are brought to; see `Grid`."""

    similarity: Similarity
    unit: float
    near: int
    bits: int | None

    @classmethod
    def of(cls, grid: Grid) -> Scale:
        """That of a grid from `stream_grid`."""
        assert isinstance(grid.rows, StreamedRows)
        return cls(grid.similarity, grid.unit, grid.near, grid.rows.bits)

    def grid(self, rows: Any) -> Grid:
        """Rows on it, made when they are asked for."""
        rows = rows if isinstance(rows, np.ndarray) else rows.open()
        return Grid(StreamedRows(rows, self.bits), self.similarity, self.unit, self.near)
