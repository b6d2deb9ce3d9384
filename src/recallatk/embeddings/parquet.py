"""Parquet: one row an embedding, the numbers as lists, everything else as columns."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from recallatk.embeddings.samples import (
    APART,
    DOCUMENT_KEY,
    EMBEDDING_COLUMNS,
    NAMED,
    POSITION_COLUMNS,
    Samples,
    as_document,
    from_columns,
    is_plain,
    parse_document,
    readable,
    replacing,
)
from recallatk.memory import megabytes, new_array
from recallatk.types import EmbeddingSet, Memo, RecallatkError, release_pages

BLOCK_BYTES = 2**25
BLOCK_ROWS = 4096


def read(path: Path, name: str, *, most: int | None = None) -> tuple[npt.NDArray[Any], Samples]:
    """The column `embedding` (or `vector`), copied once into an array block by block, and all other columns.

    An array of more than `most` bytes lies in a temporary file.
    """
    with _parquet_file(path, name) as file:
        column = _embedding_column(file, name)
        rows, place = _matrix(file, column, name, most)
        samples = _samples(file, column, name)
    if place is None:
        return rows, samples
    note = f"{megabytes(rows.nbytes)} of embeddings were unpacked to a temporary file in {place}"
    return rows, dataclasses.replace(samples, notes=(*samples.notes, note))


def read_samples(path: Path, name: str) -> Samples:
    """A table without embeddings: the side file of a bare array, or labels from elsewhere."""
    with _parquet_file(path, name) as file:
        return _samples(file, None, name)


def write(path: Path, embeddings: EmbeddingSet, metadata: Mapping[str, Any]) -> tuple[Path, ...]:
    """One file, the embeddings as a list of fixed size in their own dtype."""
    with replacing(path) as temporary:
        _write(temporary, embeddings, metadata, with_embeddings=True)
    return (path,)


def write_samples(path: Path, embeddings: EmbeddingSet, metadata: Mapping[str, Any]) -> None:
    """All but the numbers."""
    _write(path, embeddings, metadata, with_embeddings=False)


@dataclasses.dataclass(frozen=True)
class Outline:
    """All but the numbers of a file, and how these lie in it.

    Attributes:
        samples: the columns.
        column: what the embeddings are called.
        heights: the rows of each row group.
        width: the columns of the embeddings; 0 where there are no rows that say it.
        dtype: of the numbers.
    """

    samples: Samples
    column: str
    heights: tuple[int, ...]
    width: int
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return sum(self.heights)


def read_outline(source: Path | Any, name: str) -> Outline:
    """What a file holds beside the numbers, from a path or an open stream."""
    with _parquet_file(source, name) as file:
        column = _embedding_column(file, name)
        kind, fixed = _list_of_numbers(file, column, name)
        metadata = file.metadata
        heights = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
        first = None if fixed is not None else next(file.iter_batches(1, columns=[column], use_threads=False), None)
        width = len(first.column(0)[0].as_py() or ()) if first is not None else fixed or 0
        return Outline(_samples(file, column, name), column, heights, width, np.dtype(kind.to_pandas_dtype()))


def read_group(
    source: Path | Any, name: str, column: str, *, width: int | None = None, group: int | None = None
) -> npt.NDArray[Any]:
    """The numbers of one row group of a file, or of all, into memory.

    Args:
        source: a path or an open stream.
        name: of the file, for messages.
        column: what the embeddings are called.
        width: how long they are, where that is known.
        group: which row group; None: all.
    """
    with _parquet_file(source, name) as file:
        return _matrix(file, column, name, sys.maxsize, width=width, group=group)[0]


@contextlib.contextmanager
def _parquet_file(path: Path | Any, name: str) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Without pre_buffer and with a small buffer, Arrow holds pages instead of the whole compressed file.
    options = {"pre_buffer": False, "buffer_size": 2**20, "page_checksum_verification": True}
    # The stream is ours: Arrow would take some names for addresses, and refuses those that are no UTF-8.
    with (
        readable(name, pa.ArrowException),
        contextlib.nullcontext(path) if not isinstance(path, Path) else path.open("rb") as stream,
        pq.ParquetFile(stream, **options) as file,
    ):
        twice = {column for column in file.schema_arrow.names if file.schema_arrow.names.count(column) > 1}
        if twice:
            raise RecallatkError(f"{name}: more than one column is called {min(twice)!r}; rename one")
        yield file
    pa.default_memory_pool().release_unused()


def _embedding_column(file: Any, name: str) -> str:
    names = file.schema_arrow.names
    column = next((column for column in EMBEDDING_COLUMNS if column in names), None)
    if column is None:
        raise RecallatkError(
            f"{name}: no column is called {' or '.join(EMBEDDING_COLUMNS)}; the columns are {', '.join(names)}"
        )
    return column


def _list_of_numbers(file: Any, column: str, name: str) -> tuple[Any, int | None]:
    """The type of the numbers of a column of lists, and how long its lists are where the type says so."""
    import pyarrow as pa

    kind = file.schema_arrow.field(column).type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise RecallatkError(f"{name}: the column {column!r} is {kind}; embeddings are lists of numbers")
    return kind.value_type, kind.list_size if pa.types.is_fixed_size_list(kind) else None


def _matrix(
    file: Any, column: str, name: str, most: int | None, *, width: int | None = None, group: int | None = None
) -> tuple[npt.NDArray[Any], str | None]:
    """The numbers of a file, or of one row group alone, which is held in memory."""
    kind, fixed = _list_of_numbers(file, column, name)
    width = fixed if fixed is not None else width
    dtype = kind.to_pandas_dtype()
    groups = list(range(file.metadata.num_row_groups)) if group is None else [group]
    before = 0 if group is None else sum(file.metadata.row_group(one).num_rows for one in range(group))
    n = sum(file.metadata.row_group(one).num_rows for one in groups)
    rows: npt.NDArray[Any] | None = None
    place: str | None = None
    start = 0
    # One array and small blocks: reading the whole column at once would hold it two or three times.
    for batch in file.iter_batches(BLOCK_ROWS, row_groups=groups, columns=[column], use_threads=False):
        block = batch.column(column)
        if block.null_count:
            raise _empty_cell(
                name, before + start + int(np.argmax(block.is_null().to_numpy(zero_copy_only=False))), column
            )
        if width is None:
            width = len(block[0])
        if fixed is None:
            lengths = np.diff(block.offsets.to_numpy())
            other = np.flatnonzero(lengths != width)
            if other.size:
                raise RecallatkError(
                    f"{name}: row {before + start + other[0]} has {lengths[other[0]]} numbers, the rows before it have "
                    f"{width}; all embeddings must have one length"
                )
        numbers = block.flatten()
        if numbers.null_count:
            first = int(np.argmax(numbers.is_null().to_numpy(zero_copy_only=False)))
            raise _empty_cell(name, before + start + first // width, column)
        if rows is None:
            rows, place = new_array((n, width), dtype, most=most)
        rows[start : start + len(block)] = numbers.to_numpy().reshape(len(block), width)
        release_pages(rows)
        start += len(block)
    return np.empty((0, width or 0), dtype=dtype) if rows is None else rows, place


def _samples(file: Any, embedding_column: str | None, name: str) -> Samples:
    columns, aside = {}, []
    positions = _positions(file, name)
    for field in file.schema_arrow:
        if field.name == embedding_column or (positions is not None and field.name in POSITION_COLUMNS):
            continue
        if not _is_text_or_integer(field.type) and field.name not in NAMED:
            aside.append(field.name)
            continue
        # A dot in a name means nesting to Arrow, so that more than the one column can come back.
        cells = file.read(columns=[field.name]).column(field.name)
        values = _listed(cells, field.name)
        if cells.null_count and field.name in NAMED:
            raise _empty_cell(name, values.index(None), field.name)
        # In a group an empty text says "unknown".
        columns[field.name] = ["" if value is None else value for value in values] if cells.null_count else values
    text = (file.schema_arrow.metadata or {}).get(DOCUMENT_KEY.encode())
    return from_columns(columns, aside, None if text is None else parse_document(text, name), positions)


def _listed(cells: Any, column: str) -> list[Any]:
    """The values of a column."""
    if column in APART or not _is_text_or_integer(cells.type):
        return list(cells.to_pylist())
    blocks = (cells.slice(start, BLOCK_ROWS) for start in range(0, len(cells), BLOCK_ROWS))
    itself: Memo[Any, Any] = Memo(lambda value: value)
    return itself.each(value for block in blocks for value in block.to_pylist())


def _positions(file: Any, name: str) -> npt.NDArray[np.float64] | None:
    """The columns `easting` and `northing`, if both are there and hold numbers."""
    import pyarrow as pa

    schema = file.schema_arrow
    kinds = [schema.field(column).type for column in POSITION_COLUMNS if column in schema.names]
    if len(kinds) < 2 or not all(pa.types.is_floating(kind) or pa.types.is_integer(kind) for kind in kinds):
        return None
    coordinates = []
    for column in POSITION_COLUMNS:
        cells = file.read(columns=[column]).column(column)
        if cells.null_count:
            raise _empty_cell(name, cells.to_pylist().index(None), column)
        coordinates.append(cells.to_numpy().astype(np.float64))
    return np.column_stack(coordinates)


def _is_text_or_integer(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind))


def _empty_cell(name: str, row: int, column: str) -> RecallatkError:
    return RecallatkError(f"{name}: row {row} is empty (null) in the column {column!r}; fill it, or leave the row out")


def _write(path: Path, embeddings: EmbeddingSet, metadata: Mapping[str, Any], *, with_embeddings: bool) -> None:
    import pyarrow as pa

    several = all(isinstance(label, tuple) and is_plain(label) for label in embeddings.labels)
    fields: dict[str, tuple[str, Any]] = {"ids": ("id", embeddings.ids), "same": ("same", embeddings.same)}
    fields["content"] = ("content", embeddings.content)
    fields["labels"] = ("labels", embeddings.labels) if several and len(embeddings) else ("label", embeddings.labels)
    held = {
        field: pa.array(values, pa.list_(pa.string()) if column == "labels" else pa.string())
        for field, (column, values) in fields.items()
        if values is not None and (column == "labels" or is_plain(values))
    }
    taken = {*NAMED, *EMBEDDING_COLUMNS, *POSITION_COLUMNS}
    groups = {
        column: pa.array(values, pa.string())
        for column, values in embeddings.groups.items()
        if column not in taken and is_plain([column]) and is_plain(values)
    }
    positions = [] if embeddings.positions is None else list(embeddings.positions.T)
    coordinates = {
        column: pa.array(values, pa.float64()) for column, values in zip(POSITION_COLUMNS, positions, strict=False)
    }
    columns = {fields[field][0]: values for field, values in held.items()} | groups | coordinates
    document = as_document(embeddings, metadata, written=held.keys(), groups=groups.keys())
    schema = pa.schema(
        [pa.field(column, values.type) for column, values in columns.items()], metadata={DOCUMENT_KEY: document}
    )
    if not with_embeddings:
        with path.open("wb") as stream, _writer(stream, schema) as writer:
            writer.write_table(pa.Table.from_arrays(list(columns.values()), schema=schema))
        return
    rows = embeddings.embeddings
    native = rows.dtype.newbyteorder("=")
    width = rows.shape[1]
    schema = schema.append(pa.field(EMBEDDING_COLUMNS[0], pa.list_(pa.from_numpy_dtype(native), width)))
    block_rows = max(1, BLOCK_BYTES // (width * rows.itemsize))
    with path.open("wb") as stream, _writer(stream, schema) as writer:
        for start in range(0, len(rows), block_rows):
            block = np.ascontiguousarray(rows[start : start + block_rows], dtype=native)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), width)
            others = [values.slice(start, len(block)) for values in columns.values()]
            writer.write_table(pa.Table.from_arrays([*others, vectors], schema=schema), row_group_size=len(block))


def _writer(stream: BinaryIO, schema: Any) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(stream, schema, compression="zstd", use_dictionary=False, write_page_checksum=True)
