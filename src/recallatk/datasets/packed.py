"""Images inside Parquet files, as Hugging Face stores them: read one after another, and never all at once."""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallatk.types import RecallatkError, first_line

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROWS = 16
"""So many rows are read at once; images are large, and one batch of them is what memory holds at least."""
KEPT = 4
"""So many batches are kept: threads ask in nearly the order of the rows, and not in the order itself."""
OPEN = 8
"""So many files are kept open."""


@dataclasses.dataclass(frozen=True)
class PackedImage:
    """One image in a Parquet file; a `Stored` element of an `ImageSet`.

    Attributes:
        file: the file.
        column: the column of images: bytes, or a struct that has them as `bytes`.
        group: the row group.
        row: the row in its group.
    """

    file: Path
    column: str
    group: int
    row: int

    def read_bytes(self) -> bytes:
        """The bytes of the image file.

        Raises:
            OSError: the file cannot be read any more, or nothing is stored there.
        """
        import pyarrow as pa

        try:
            reader = _reader(self.file, self.column, self.file.stat().st_mtime_ns)
            return reader.bytes_at(self.group, self.row)
        except (pa.ArrowException, StopIteration) as error:
            raise OSError(str(error) or "the file has fewer rows") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedImage, (self.file.absolute(), self.column, self.group, self.row)  # found from any other process

    def __str__(self) -> str:
        return f"{self.file}: row {self.row} of group {self.group}"


def list_packed(file: Path, column: str) -> list[PackedImage | None]:
    """The images of a file, one a row; None where a row has no bytes. Images are only read where nothing else says so.

    Raises:
        RecallatkError: the file is no Parquet file, or its column holds no images.
    """
    import pyarrow as pa  # slow to import

    images: list[PackedImage | None] = []
    try:
        with _open(file) as parquet:
            leaf = _leaf(file, column, parquet)
            for group in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(group).num_rows
                absent = _without_bytes(parquet, group, leaf)
                images += [None if row in absent else PackedImage(file, column, group, row) for row in range(rows)]
    except pa.ArrowException as error:
        raise RecallatkError(f"{file}: cannot be read as Parquet ({first_line(error)})") from error
    except OSError as error:
        raise RecallatkError(f"{file}: cannot be read ({error.strerror or error})") from error
    return images


def list_paths(file: Path, column: str) -> list[str | None]:
    """What the rows of a file say of the names of their images; None where they say nothing."""
    import pyarrow as pa

    with _open(file) as parquet:
        kind = parquet.schema_arrow.field(column).type
        if not pa.types.is_struct(kind) or kind.get_field_index("path") < 0:
            return [None] * parquet.metadata.num_rows
        cells = parquet.read(columns=[f"{column}.path"]).column(column).to_pylist()
    return [None if cell is None else cell["path"] for cell in cells]


def _open(file: Path) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    return pq.ParquetFile(file, memory_map=True)


def _leaf(file: Path, column: str, parquet: pq.ParquetFile) -> str:
    """What the bytes of a column are called in the file."""
    import pyarrow as pa

    names = parquet.schema_arrow.names
    if column not in names:
        raise RecallatkError(f"{file}: no column {column!r} of images; columns found: {', '.join(map(repr, names))}")
    kind = parquet.schema_arrow.field(column).type
    name = column
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind, name = kind.field("bytes").type, f"{column}.bytes"
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise RecallatkError(
            f"{file}: the column {column!r} holds {kind}, no images; images are bytes, or a struct of bytes and path "
            "as Hugging Face writes them"
        )
    return name


def _without_bytes(parquet: pq.ParquetFile, group: int, leaf: str) -> frozenset[int]:
    """The rows of a group that have no bytes."""
    metadata = parquet.metadata.row_group(group)
    chunks = [metadata.column(place) for place in range(metadata.num_columns)]
    known = next((chunk.statistics for chunk in chunks if chunk.path_in_schema == leaf), None)
    if known is not None and known.has_null_count and known.null_count == 0:
        return frozenset()
    absent = []
    for start, values in _batches(parquet, group, leaf):
        absent += [start + row for row, there in enumerate(values.is_valid().to_pylist()) if not there]
    return frozenset(absent)


def _batches(parquet: pq.ParquetFile, group: int, leaf: str) -> Iterator[tuple[int, pa.Array]]:
    """The bytes of a row group in batches, each with its first row."""
    start = 0
    for batch in parquet.iter_batches(ROWS, row_groups=[group], columns=[leaf], use_threads=False):
        values = batch.column(0)
        yield start, values.field("bytes") if "." in leaf else values
        start += batch.num_rows


class _Reader:
    """One file that is read forward; who asks for what lies behind it makes it begin the group again."""

    def __init__(self, file: Path, column: str) -> None:
        self._parquet = _open(file)
        self._leaf = _leaf(file, column, self._parquet)
        self._lock = threading.Lock()
        self._kept: collections.deque[tuple[int, int, pa.Array]] = collections.deque(maxlen=KEPT)
        self._group, self._next = -1, 0
        self._ahead: Iterator[tuple[int, pa.Array]] = iter(())

    def bytes_at(self, group: int, row: int) -> bytes:
        with self._lock:
            value = self._find(group, row)
            if value is None:
                if group != self._group or row < self._next:
                    self._group, self._next = group, 0
                    self._ahead = _batches(self._parquet, group, self._leaf)
                while row >= self._next:
                    start, values = next(self._ahead)
                    self._kept.append((group, start, values))
                    self._next = start + len(values)
                value = self._find(group, row)
        found = None if value is None else value.as_py()
        if found is None:
            raise OSError("no image is stored there")
        return bytes(found)

    def _find(self, group: int, row: int) -> Any:
        for own, start, values in self._kept:
            if own == group and start <= row < start + len(values):
                return values[row - start]
        return None


@functools.lru_cache(maxsize=OPEN)
def _reader(file: Path, column: str, changed: int) -> _Reader:
    """The reader of a file as it was when it changed last."""
    return _Reader(file, column)
