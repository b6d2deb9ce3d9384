"""One set of embeddings in many parquet files, in a folder or an object store: rows are read when asked for."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from recallatk.embeddings import parquet
from recallatk.embeddings.samples import Samples
from recallatk.types import EmbeddingSet, RecallatkError

_PART = re.compile(r"part-(\d{6,})\.parquet")


@dataclasses.dataclass(frozen=True, eq=False)
class PartedRows:
    """The rows of several files one after the other; see `recallatk.types.StoredRows`. Pickled, it is where they lie.

    Attributes:
        folder: a path, or an address that pyarrow's file systems know, such as s3://bucket/folder.
        names: the files that hold rows.
        starts: where the rows of each begin, and where the last ones end.
        width: the number of columns.
        kind: the dtype as text.
        rows: which of all rows these are.
        owner: lives as long as these rows or some of them, in this process: what removes a temporary folder then.
    """

    folder: str
    names: tuple[str, ...]
    starts: tuple[int, ...]
    width: int
    kind: str
    rows: slice
    owner: Any = dataclasses.field(default=None, repr=False)
    _last: dict[str, npt.NDArray[Any]] = dataclasses.field(default_factory=dict, repr=False)

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
        return PartedRows, (self.folder, self.names, self.starts, self.width, self.kind, self.rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def open(self) -> PartedRows:
        """The rows themselves, on the node that has them read."""
        return self

    def part(self, rows: slice) -> PartedRows:
        """Some of the rows, of which none is read."""
        start, stop, _ = rows.indices(len(self))
        return dataclasses.replace(self, rows=slice(self.rows.start + start, self.rows.start + stop), _last={})

    def __getitem__(self, rows: Any) -> npt.NDArray[Any]:
        """The rows of a slice, or of these row numbers; each file is read once."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        places = np.asarray(rows, dtype=np.int64) + self.rows.start
        found = np.empty((len(places), self.width), self.dtype)
        which = np.searchsorted(self.starts, places, side="right") - 1
        for file in np.unique(which).tolist():
            here = which == file
            found[here] = self._file(file)[places[here] - self.starts[file]]
        return found

    def _file(self, file: int) -> npt.NDArray[Any]:
        name = self.names[file]
        if name not in self._last:
            self._last.clear()
            self._last[name] = read_rows(self.folder, name)
        return self._last[name]


def is_folder(path: Path) -> bool:
    """Whether a folder holds such parts."""
    return any(_PART.fullmatch(file.name) for file in path.iterdir())


def part_name(number: int) -> str:
    """The file of a part.

    >>> part_name(3)
    'part-000003.parquet'
    """
    return f"part-{number:06}.parquet"


def address_of(path: Path) -> str | None:
    """The address of an object store that was taken for a path, which has one slash less; None of other paths.

    >>> address_of(Path("s3://bucket/rows")), address_of(Path("rows/query"))
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


def file_system(folder: str) -> tuple[Any, str]:
    """What reads and writes a folder, and its path there.

    Raises:
        RecallatkError: nothing knows such an address.
    """
    import pyarrow as pa
    from pyarrow import fs

    if "://" not in folder:
        return fs.LocalFileSystem(), str(Path(folder).absolute())
    try:
        system, path = fs.FileSystem.from_uri(folder)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RecallatkError(f"{folder}: no file system is known for this address ({error})") from error
    return system, path


def list_parts(folder: str) -> tuple[str, ...]:
    """The files of the parts that are there, in the order of their numbers; none where there is no folder."""
    from pyarrow import fs

    system, path = file_system(folder)
    there = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    found = {int(match[1]): match[0] for info in there if (match := _PART.fullmatch(info.base_name))}
    return tuple(found[number] for number in sorted(found))


def read(path: str | Path, name: str, *, owner: Any = None) -> tuple[npt.NDArray[Any], Samples]:
    """All parts of a folder: where their rows lie, and the columns together; `owner` is that of `PartedRows`.

    Raises:
        RecallatkError: there is none, one is damaged, or they differ in width or dtype.
    """
    folder = str(path)
    rows, all_samples, kinds = [], [], set()
    files = list_parts(folder)
    if not files:
        raise RecallatkError(f"{name}: there is no {part_name(0)} in {folder}; name a folder of such parts")
    for file in files:
        system, below = file_system(folder)
        with _opened(system, f"{below}/{file}", f"{name}: {file}") as stream:
            samples, n, width, dtype = parquet.read_part(stream, f"{name}: {file}")
        all_samples.append(samples)
        if n:
            rows.append((file, n))
            kinds.add((width, dtype.str))
    if len(kinds) != 1:
        what = "rows of several widths or dtypes" if kinds else "no row"
        raise RecallatkError(f"{name}: the parts in {folder} hold {what}; encode into another folder")
    ((width, kind),) = kinds
    starts = np.cumsum([0, *(n for _, n in rows)]).tolist()
    names, all_rows = tuple(file for file, _ in rows), slice(0, starts[-1])
    parted = PartedRows(folder, names, tuple(starts), width, kind, all_rows, owner)
    return cast("npt.NDArray[Any]", parted), _joined(all_samples)


def read_metadata(folder: str, name: str) -> tuple[Samples, int]:
    """The columns and the number of rows of one part."""
    system, below = file_system(folder)
    with _opened(system, f"{below}/{name}", name) as stream:
        samples, n, _, _ = parquet.read_part(stream, name)
    return samples, n


def read_rows(folder: str, name: str) -> npt.NDArray[Any]:
    """The rows of one part."""
    system, below = file_system(folder)
    with _opened(system, f"{below}/{name}", name) as stream:
        return parquet.read_part_rows(stream, name)


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
            temporary = f"{path}/.{name}.{os.getpid()}.tmp"
            Path(temporary).write_bytes(data)
            Path(temporary).replace(f"{path}/{name}")
        else:  # an object is there once its stream is closed
            with system.open_output_stream(f"{path}/{name}") as stream:
                stream.write(data)
    except OSError as error:
        raise RecallatkError(f"{folder}: cannot be written ({error.strerror or error})") from error


def remove(folder: str, names: Sequence[str]) -> None:
    """Remove files of a folder, those that are there."""
    from pyarrow import fs

    system, path = file_system(folder)
    for name in names:
        if system.get_file_info(f"{path}/{name}").type != fs.FileType.NotFound:
            system.delete_file(f"{path}/{name}")


def read_bytes(folder: str, name: str) -> bytes | None:
    """A small file of a folder; None if it is not there."""
    from pyarrow import fs

    system, path = file_system(folder)
    if system.get_file_info(f"{path}/{name}").type == fs.FileType.NotFound:
        return None
    with _opened(system, f"{path}/{name}", name) as stream:
        data: bytes = stream.read()
    return data


def _opened(system: Any, path: str, name: str) -> Any:
    try:
        return system.open_input_file(path)
    except OSError as error:
        raise RecallatkError(f"{name}: cannot be read ({error.strerror or error})") from error


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
        "notes": list(dict.fromkeys(note for part in parts for note in part.metadata.get("notes", []))),
    }
    return Samples(
        **columns,
        positions=np.concatenate(positions) if len(positions) == len(with_rows) and positions else None,
        groups={name: [v for part in with_rows for v in part.groups[name]] for name in with_rows[0].groups},
        label_kind=with_rows[0].label_kind,
        metadata=metadata,
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )
