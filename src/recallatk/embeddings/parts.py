"""Embeddings in one or many parquet files, in a folder or an object store: rows are read when they are asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from recallatk.embeddings import parquet
from recallatk.embeddings.known_file import KnownFile
from recallatk.embeddings.samples import EMBEDDING_COLUMNS, Samples
from recallatk.types import EmbeddingSet, RecallatkError, take_from_pieces

_PART = re.compile(r"part-(\d{6,})\.parquet")


LARGEST_GROUP = 2**26
"""Bytes of a row group that a worker reads as a whole, beside the memory of its task; ours have half of that."""


class Piece(NamedTuple):
    """A row group of a file."""

    file: str
    group: int


@dataclasses.dataclass(frozen=True, eq=False)
class PartedRows:
    """The rows of files one row group after the other; see `recallatk.types.StoredRows`. Pickled, it is where they lie.

    Attributes:
        folder: a path, or an address that pyarrow's file systems know, such as s3://bucket/folder.
        pieces: the row groups that hold rows.
        starts: where the rows of each begin, and where the last ones end.
        width: the number of columns.
        kind: the dtype as text.
        rows: which of all rows these are.
        column: what they are called in the files.
        file: what tells another version of the file, where it is one.
        owner: lives as long as these rows or some of them, in this process: what removes a temporary folder then.
    """

    folder: str
    pieces: tuple[Piece, ...]
    starts: tuple[int, ...]
    width: int
    kind: str
    rows: slice
    column: str = EMBEDDING_COLUMNS[0]
    file: KnownFile | None = None
    owner: Any = dataclasses.field(default=None, repr=False)
    _last: dict[Piece, npt.NDArray[Any]] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), self.width

    @property
    def ndim(self) -> int:
        """Two."""
        return 2

    @property
    def size(self) -> int:
        """How many numbers."""
        return len(self) * self.width

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""
        return np.dtype(self.kind)

    @property
    def nbytes(self) -> int:
        """What all of them would take in memory."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)

    def __reduce__(self) -> tuple[Any, ...]:
        where = self.folder, self.pieces, self.starts, self.width, self.kind, self.rows, self.column, self.file
        return PartedRows, where

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def open(self) -> PartedRows:
        """The rows themselves, on the node that has them read.

        Raises:
            RecallatkError: it does not have the file, or another version of it.
        """
        if self.file is not None:
            self.file.check()
        return self

    def part(self, rows: slice) -> PartedRows:
        """Some of the rows, of which none is read."""
        start, stop, _ = rows.indices(len(self))
        return dataclasses.replace(self, rows=slice(self.rows.start + start, self.rows.start + stop), _last={})

    def __getitem__(self, rows: Any) -> npt.NDArray[Any]:
        """The rows of a slice, or of these row numbers; each row group is read once."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        places = np.asarray(rows, dtype=np.int64) + self.rows.start
        return take_from_pieces(places, self.starts, self._piece, width=self.width, dtype=self.dtype)

    def _piece(self, number: int) -> npt.NDArray[Any]:
        piece = self.pieces[number]
        if piece not in self._last:
            self._last.clear()
            name, group = piece
            with _opened(self.folder, name) as stream:
                self._last[piece] = parquet.read_group(stream, name, self.column, width=self.width, group=group)
        return self._last[piece]


def is_folder(path: Path) -> bool:
    """Whether a folder holds such parts."""
    return any(_PART.fullmatch(file.name) for file in path.iterdir())


def part_name(number: int) -> str:
    """The file of a part.

    >>> part_name(3)
    'part-000003.parquet'
    """
    return f"part-{number:06}.parquet"


def store_address(path: Path) -> str | None:
    """The address of an object store that was given as a path, which has one slash less; None for other paths.

    >>> store_address(Path("s3://bucket/rows")), store_address(Path("rows/query"))
    ('s3://bucket/rows', None)
    """
    found = re.fullmatch(r"(\w{2,}):/+(.*)", str(path), re.DOTALL)
    return None if found is None else f"{found[1]}://{'/' * (found[1] == 'file')}{found[2]}"


def inside(folder: str, name: str) -> str:
    """A folder in a folder; the options of an address stay behind it.

    >>> inside("rows", "query"), inside("s3://bucket/rows?region=eu-west-1", "query")
    ('rows/query', 's3://bucket/rows/query?region=eu-west-1')
    """
    folder, mark, options = folder.partition("?") if "://" in folder else (folder, "", "")
    return f"{folder.rstrip('/')}/{name}{mark}{options}"


def found_anywhere(folder: str) -> str:
    """A folder as other processes find it, whatever their working directory; an address is so already."""
    return folder if "://" in folder else str(Path(folder).absolute())


def file_system(folder: str) -> tuple[Any, str]:
    """What reads and writes a folder, and its path there.

    Raises:
        RecallatkError: nothing knows such an address.
    """
    from pyarrow import fs

    return _at_address(folder) if "://" in folder else (fs.LocalFileSystem(), found_anywhere(folder))


@functools.lru_cache(maxsize=16)
def _at_address(folder: str) -> tuple[Any, str]:
    """Kept, as each has connections of its own."""
    import pyarrow as pa
    from pyarrow import fs

    try:
        system, path = fs.FileSystem.from_uri(folder)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RecallatkError(f"{folder}: no file system is known for this address ({error})") from error
    return system, path


def list_parts(folder: str) -> tuple[str, ...]:
    """The files of the parts that are there, in the order of their numbers; none where there is no folder."""
    found = {int(match[1]): match[0] for name in list_files(folder) if (match := _PART.fullmatch(name))}
    return tuple(found[number] for number in sorted(found))


def list_files(folder: str) -> tuple[str, ...]:
    """The files of a folder, in the order of their names; none where there is no folder."""
    from pyarrow import fs

    system, path = file_system(folder)
    with _reached(folder):
        there = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return tuple(sorted(info.base_name for info in there if info.is_file))


def read(path: str | Path, name: str) -> tuple[npt.NDArray[Any], Samples]:
    """All parts of a folder: where their rows lie, and the columns together.

    Raises:
        RecallatkError: there is none, one is damaged, or they differ in width or dtype.
    """
    folder = str(path)
    found = []
    files = list_parts(folder)
    if not files:
        raise RecallatkError(f"{name}: there is no {part_name(0)} in {folder}; name a folder of such parts")
    for file in files:
        with _opened(folder, file, f"{name}: {file}") as stream:
            found.append(parquet.read_outline(stream, f"{name}: {file}"))
    kinds = {(outline.width, outline.dtype.str) for outline in found if len(outline)}
    if len(kinds) != 1:
        what = "rows of several widths or dtypes" if kinds else "no row"
        raise RecallatkError(f"{name}: the parts in {folder} hold {what}; encode into another folder")
    rows = _parted(found_anywhere(folder), dict(zip(files, found, strict=True)))
    return rows, _joined([outline.samples for outline in found])


def read_file(path: Path, name: str) -> tuple[npt.NDArray[Any], Samples] | None:
    """One parquet file that is no part: where its rows lie, and the columns; None where its row groups are too large.

    Raises:
        RecallatkError: it is damaged, or holds no embeddings.
    """
    outline = parquet.read_outline(path, name)
    row = outline.width * outline.dtype.itemsize
    if not len(outline) or not row or max(outline.heights) * row > LARGEST_GROUP:
        return None
    path = path.resolve()
    return _parted(str(path.parent), {path.name: outline}, KnownFile.of(path)), outline.samples


def _parted(folder: str, outlines: Mapping[str, parquet.Outline], file: KnownFile | None = None) -> npt.NDArray[Any]:
    """The rows of files of one width and dtype."""
    heights = {
        Piece(name, group): n for name, outline in outlines.items() for group, n in enumerate(outline.heights) if n
    }
    starts = tuple(np.cumsum([0, *heights.values()]).tolist())
    first = next(outline for outline in outlines.values() if len(outline))
    kind, column = first.dtype.str, first.column
    rows = PartedRows(folder, tuple(heights), starts, first.width, kind, slice(0, starts[-1]), column, file)
    return cast("npt.NDArray[Any]", rows)


def owned(rows: Any, owner: Any) -> npt.NDArray[Any]:
    """The rows of parts with an owner, as for `PartedRows`."""
    return cast("npt.NDArray[Any]", dataclasses.replace(rows, owner=owner, _last={}))


def read_metadata(folder: str, name: str) -> tuple[Samples, int]:
    """The columns and the number of rows of one part."""
    with _opened(folder, name) as stream:
        outline = parquet.read_outline(stream, f"{name} in {folder}")
    return outline.samples, len(outline)


def read_rows(folder: str, name: str) -> npt.NDArray[Any]:
    """The rows of one part."""
    with _opened(folder, name) as stream:
        return parquet.read_group(stream, f"{name} in {folder}", EMBEDDING_COLUMNS[0])


def write(folder: str, number: int, embeddings: EmbeddingSet, metadata: Mapping[str, Any]) -> None:
    """Write a part: all of it, or nothing.

    Raises:
        RecallatkError: the folder cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="recallatk-") as aside:
        file = Path(aside) / part_name(number)
        parquet.write(file, embeddings, metadata)
        write_bytes(folder, file.name, file.read_bytes())


def write_bytes(folder: str, name: str, data: bytes) -> None:
    """Write a small file into a folder, which is made where there is none: all of it, or nothing.

    Raises:
        RecallatkError: the folder cannot be written.
    """
    from pyarrow import fs

    system, path = file_system(folder)
    try:
        system.create_dir(path, recursive=True)
        if isinstance(system, fs.LocalFileSystem):
            temporary = Path(f"{path}/.{name}.{secrets.token_hex(8)}.tmp")  # of any machine that shares the folder
            try:
                temporary.write_bytes(data)
            except FileNotFoundError:  # a command that ends at this moment has removed the folder, which was empty
                system.create_dir(path, recursive=True)
                temporary.write_bytes(data)
            temporary.replace(f"{path}/{name}")
        else:  # an object is there once its stream is closed
            with system.open_output_stream(f"{path}/{name}") as stream:
                stream.write(data)
    except OSError as error:
        raise RecallatkError(f"{folder}: cannot be written ({error.strerror or error})") from error


def remove(folder: str, names: Sequence[str]) -> None:
    """Remove files of a folder, those that are there."""
    from pyarrow import fs

    system, path = file_system(folder)
    with _reached(folder):
        for name in names:
            if system.get_file_info(f"{path}/{name}").type != fs.FileType.NotFound:
                system.delete_file(f"{path}/{name}")


def remove_folder(folder: str) -> None:
    """Remove a folder with all that it holds; one that is not there is no error."""
    from pyarrow import fs

    system, path = file_system(folder)
    with _reached(folder):
        if system.get_file_info(path).type == fs.FileType.Directory:
            system.delete_dir(path)


def read_bytes(folder: str, name: str) -> bytes | None:
    """A small file of a folder; None if it is not there."""
    from pyarrow import fs

    system, path = file_system(folder)
    with _reached(folder):
        if system.get_file_info(f"{path}/{name}").type == fs.FileType.NotFound:
            return None
    with _opened(folder, name) as stream:
        data: bytes = stream.read()
    return data


@contextlib.contextmanager
def _reached(folder: str) -> Iterator[None]:
    """What a file system says, in one line."""
    try:
        yield
    except OSError as error:
        raise RecallatkError(f"{folder}: cannot be reached ({error.strerror or error})") from error


def _opened(folder: str, file: str, name: str | None = None) -> Any:
    system, path = file_system(folder)
    try:
        return system.open_input_file(f"{path}/{file}")
    except OSError as error:
        raise RecallatkError(f"{name or file}: cannot be read ({error.strerror or error})") from error


def _joined(parts: Sequence[Samples]) -> Samples:
    """The columns of all parts one after the other; of what parts say of the whole, everything once."""
    first = parts[0].metadata
    columns: dict[str, Any] = {}
    with_rows = [part for part in parts if part.labels is not None and len(part.labels)]
    for column in ("labels", "ids", "same", "content"):
        found = [getattr(part, column) for part in with_rows]
        columns[column] = None if None in found else [value for values in found for value in values]
    positions = [part.positions for part in with_rows if part.positions is not None]
    metadata: dict[str, Any] = {
        **first,
        "skipped": [item for part in parts for item in part.metadata.get("skipped", [])],
        "notes": _each_once(parts, "notes"),
        "warnings": _each_once(parts, "warnings"),
        "conversions": {k: v for part in parts for k, v in part.metadata.get("conversions", {}).items()},
    }
    return Samples(
        **columns,
        positions=np.concatenate(positions) if len(positions) == len(with_rows) and positions else None,
        groups={name: [v for part in with_rows for v in part.groups[name]] for name in with_rows[0].groups},
        label_kind=with_rows[0].label_kind,
        metadata=metadata,
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _each_once(parts: Sequence[Samples], key: str) -> list[str]:
    return list(dict.fromkeys(line for part in parts for line in part.metadata.get(key, [])))
