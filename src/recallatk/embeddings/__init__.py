"""EmbeddingSet <-> files; to add a format, write a reader and a writer and add a row to FORMATS."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from recallatk.embeddings import arrays, clip_retrieval, hdf5, parquet, parts, tensors
from recallatk.embeddings.labels import LABEL_FORMATS, read_text
from recallatk.embeddings.samples import COLUMNS, Samples, half_precision
from recallatk.memory import FRACTION_OF_FREE, default_memory, new_array
from recallatk.types import (
    EmbeddingSet,
    OnError,
    RecallatkError,
    SampleSet,
    Skipped,
    as_labels,
    as_rows,
    release_pages,
    take_rows,
    unusable_rows,
)

Row = TypeVar("Row")


@dataclasses.dataclass(frozen=True)
class Format:
    """How one kind of file is read and written, where its labels are, and whether they lie in a file beside it.

    A reader that takes `most` keeps an array of more bytes than that on disk. `in_place` does not load the rows, or
    gives None where that does not go.
    """

    read: Callable[..., tuple[npt.NDArray[Any], Samples]]
    write: Callable[[Path, EmbeddingSet, Mapping[str, Any]], tuple[Path, ...]] | None
    labels: str
    side_file: Callable[[Path], Path] | None = None
    takes_most: bool = False
    in_place: Callable[[Path, str], tuple[npt.NDArray[Any], Samples] | None] | None = None


FORMATS = {
    ".npy": Format(arrays.read_npy, arrays.write_npy, "NAME.samples.parquet beside it", arrays.side_file),
    ".npz": Format(arrays.read_npz, arrays.write_npz, "an array `labels`", in_place=arrays.map_npz),
    ".parquet": Format(parquet.read, parquet.write, "a column `label`", takes_most=True, in_place=parts.read_file),
    ".safetensors": Format(tensors.read, tensors.write, "a tensor `labels`, or JSON under `labels` in its header"),
    ".h5": Format(hdf5.read, hdf5.write, "a dataset `labels`", takes_most=True),
    ".hdf5": Format(hdf5.read, hdf5.write, "a dataset `labels`", takes_most=True),
}
CLIP_RETRIEVAL = Format(clip_retrieval.read, None, "a column `label` of the tables in metadata/", takes_most=True)
"""The one kind of folder that is read; it is not written."""

PARTS = Format(parts.read, None, "a column `label` of its parts")
"""A folder of part-000000.parquet and so on, as `recallatk embed --cluster` writes it; its rows are never held."""

ROWS_A_BLOCK = 4096
RUNS_CODE = (".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")


@dataclasses.dataclass(frozen=True)
class LoadedEmbeddings:
    """What a file held.

    Attributes:
        embeddings: the set, checked.
        skipped: the rows that were left out because they have no direction (`on_error="skip"`).
        metadata: what `save_embeddings` was given.
        notes: one line for each thing in the file that was not used.
    """

    embeddings: EmbeddingSet
    skipped: tuple[Skipped, ...] = ()
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


def load_embeddings(
    path: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | None = None,
    name: str | None = None,
    on_error: OnError = "error",
    label_separator: str | None = None,
    labels_required: bool = True,
    memory: int | None = None,
    in_place: bool = False,
) -> LoadedEmbeddings:
    """Read embeddings, their ids and labels; nothing is ever unpickled.

    Args:
        path: a .npy (mapped, not loaded), .npz, .parquet, .safetensors or .h5 (.hdf5) file, or a folder that
            clip-retrieval wrote, or one of part-000000.parquet and so on, whose rows are not loaded either.
        labels: a file of labels, one a row, in place of those that `path` holds: .npy, .txt, .csv, .tsv, .json or
            .parquet. If both files have ids, these must agree row by row. Tables may have ids, groups and positions
            (`easting` and `northing`, in metres) too.
        name: how messages call the set ("query", "gallery"); by default the file's name.
        on_error: what to do with a row that is not finite or all zero.
        label_separator: splits one text into several labels; an empty text is then no label.
        labels_required: whether rows without positions must have labels.
        memory: bytes for the whole process; embeddings of a .parquet file that take more than a quarter of it are
            unpacked to a temporary file (default: more than a quarter of what is free).
        in_place: also rows of a .parquet file (of row groups up to 64 MB) or an uncompressed .npz stay there, and are
            read when they are asked for, as workers of a cluster do.

    Raises:
        RecallatkError: the file is absent, damaged, of an unknown kind, has no labels, or does not fit together.
    """
    path = Path(path)
    name = path.name if name is None else name
    where = name if path.name in name else f"{name} ({path.name})"
    address = parts.store_address(path)
    if address is not None:
        format_ = PARTS
    elif path.is_dir():
        if not parts.is_folder(path) and not clip_retrieval.is_folder(path):
            raise RecallatkError(f"{where}: {path} is a folder; name a file, or a clip-retrieval folder with img_emb/")
        format_ = PARTS if parts.is_folder(path) else CLIP_RETRIEVAL
    else:
        format_ = _format_of(path, FORMATS, "embeddings", where)
        _check_file(path, where)
    most = default_memory() if memory is None else memory // FRACTION_OF_FREE
    source_of_rows = path if address is None else address
    more = {"most": most} if format_.takes_most else {}
    left_there = format_.in_place(path, where) if in_place and format_.in_place else None
    found, samples = left_there or format_.read(source_of_rows, where, **more)
    beside = None if format_.side_file is None else format_.side_file(path)
    if beside is not None and beside.is_file():
        if labels is None:
            samples = parquet.read_samples(beside, f"{where}: {beside.name}")
        else:
            samples = Samples(notes=(f"{beside.name} was not read, because a file of labels was given",))
    if labels is not None:
        source = f"{where}, labels from {Path(labels).name}"
        given = _read_labels(Path(labels), source, several=label_separator is not None, labels_required=labels_required)
        samples = _with_labels_from(given, samples, source)
    elif samples.labels is None and samples.positions is None and labels_required:
        raise RecallatkError(
            f"{where}: there are no labels; give a file of them (labels=..., --query-labels or --gallery-labels), "
            f"or keep them in {format_.labels.replace('NAME', path.stem)}"
        )
    else:
        source = where
    rows = as_rows(found, where)
    if isinstance(rows, np.memmap) and not rows.flags.c_contiguous:
        # Column by column (Fortran order): a row of a mapped file would touch a page in every column.
        rows = _copy_rows(rows, slice(0, len(rows)), most)
    columns = _columns(samples, len(rows), label_separator, source)
    _check_lengths(columns, len(rows), source)
    skipped: list[Skipped] = []
    if on_error == "skip" and (bad := dict(unusable_rows(rows))):
        ids = columns["ids"]
        skipped = [Skipped(f"row {row}" if ids is None else str(ids[row]), why) for row, why in bad.items()]
        keep = [row for row in range(len(rows)) if row not in bad]
        rows = _copy_rows(rows, np.asarray(keep, dtype=np.int64), most)
        columns = {column: _take(values, keep) for column, values in columns.items()}
    try:
        embeddings = EmbeddingSet(rows, name=name, **columns)
    except RecallatkError as error:
        raise RecallatkError(f"{source}: {str(error).removeprefix(f'{name}: ')}") from error
    return LoadedEmbeddings(embeddings, tuple(skipped), dict(samples.metadata), (*samples.notes, *_dtype_notes(rows)))


def _dtype_notes(rows: npt.NDArray[Any]) -> list[str]:
    """A line where embeddings are held in half precision: an encoder gives more digits."""
    return [half_precision("float16")] if rows.dtype.name == "float16" else []


def _copy_rows(rows: npt.NDArray[Any], which: slice | npt.NDArray[np.int64], most: int) -> npt.NDArray[Any]:
    """These rows as an array of their own, row by row; on disk where they take more than `most` bytes."""
    n = len(which) if isinstance(which, np.ndarray) else len(rows)
    copied, _ = new_array((n, rows.shape[1]), rows.dtype, most=most)
    for start in range(0, n, ROWS_A_BLOCK):
        some = slice(start, start + ROWS_A_BLOCK)
        copied[some] = take_rows(rows, which[some]) if isinstance(which, np.ndarray) else rows[some]
        release_pages(copied)
        release_pages(rows)
    return copied


def read_matrix(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Map a .npy file of numbers, such as a matrix of scores; nothing is ever unpickled.

    Raises:
        RecallatkError: the file is absent, of another kind, damaged, or holds objects.
    """
    path = Path(path)
    _format_of(path, {".npy": None}, "score", path.name)
    _check_file(path, path.name)
    return arrays.read_array(path, path.name)


def load_samples(
    labels: str | os.PathLike[str] | None = None,
    *,
    ids: str | os.PathLike[str] | None = None,
    name: str = "samples",
    label_separator: str | None = None,
    labels_required: bool = True,
) -> SampleSet:
    """Read what is known of rows whose similarities somebody else computed.

    Args:
        labels: a file of labels, as for `load_embeddings`; tables may have ids, groups and positions too.
        ids: a text file with an id a line. If `labels` has ids too, these must agree row by row.
        name: how messages call the set ("query", "gallery").
        label_separator: as for `load_embeddings`.
        labels_required: as for `load_embeddings`.

    Raises:
        RecallatkError: a file is absent, damaged, or does not fit the other, or there are no labels.
    """
    source, samples = name, Samples()
    if ids is not None:
        source = f"{name}, ids from {Path(ids).name}"
        _check_file(Path(ids), source)
        samples = Samples(ids=read_text(Path(ids), source, several=False).labels)
    if labels is not None:
        source = f"{name}, labels from {Path(labels).name}"
        given = _read_labels(Path(labels), source, several=label_separator is not None, labels_required=labels_required)
        samples = _with_labels_from(given, samples, source, here="among the ids")
    elif labels_required:
        raise RecallatkError(f"{name}: there are no labels; give a file of them (--{name}-labels)")
    columns = (samples.labels, samples.ids, samples.positions, *samples.groups.values())
    n = max((len(column) for column in columns if column is not None), default=0)
    fields = _columns(samples, n, label_separator, source)
    _check_lengths(fields, n, source, noun="rows")
    return SampleSet(name=name, **fields)


def save_embeddings(
    embeddings: EmbeddingSet, path: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None
) -> tuple[Path, ...]:
    """Write a set so that `load_embeddings` gives back exactly the same; the suffix says how.

    Args:
        embeddings: the set; its dtype is kept.
        path: a .npy, .npz, .parquet, .safetensors or .h5 file, replaced as a whole if it exists.
        metadata: anything that JSON can say (the encoder, the preprocessing).

    Returns:
        The files written (.npy has a second one, `NAME.samples.parquet`, for all but the numbers).

    Raises:
        RecallatkError: the suffix or dtype is not one that is written, or the place is not writable.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from recallatk.types import EmbeddingSet
        >>> photos = EmbeddingSet(np.eye(2, dtype=np.float16), labels=("cat", "dog"), ids=("a.jpg", "b.jpg"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = save_embeddings(photos, f"{folder}/photos.npz", metadata={"encoder": "mine"})
        ...     loaded = load_embeddings(files[0])
        >>> loaded.embeddings.labels, loaded.embeddings.embeddings.dtype, loaded.metadata
        (('cat', 'dog'), dtype('float16'), {'encoder': 'mine'})
    """
    path = Path(path)
    format_ = check_target(path)
    dtype = embeddings.embeddings.dtype
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise RecallatkError(f"{path}: embeddings of dtype {dtype} are not written; convert them to float32 or float64")
    assert format_.write is not None  # every file of FORMATS is written
    return format_.write(path, embeddings, {} if metadata is None else metadata)


def check_target(path: Path, *, overwrite: bool = True) -> Format:
    """The format that a file to be written will have; call it before the work whose result goes there.

    Args:
        path: the file.
        overwrite: whether a file that is there already may be replaced.

    Raises:
        RecallatkError: the suffix is not one that is written, the place is not writable, or a file is there already.
    """
    format_ = _format_of(path, FORMATS, "embeddings", str(path))
    if path.is_dir():
        raise RecallatkError(f"{path}: this is a folder; name a file")
    if not path.parent.is_dir():
        raise RecallatkError(f"{path}: there is no folder {path.parent}; make it first")
    beside = [] if format_.side_file is None else [format_.side_file(path)]
    there = next((file for file in (path, *beside) if file.exists()), None)
    if there is not None and not overwrite:
        raise RecallatkError(f"{there}: this file is there already; name another one, or use --overwrite")
    return format_


def _format_of(path: Path, formats: Mapping[str, Row], noun: str, where: str) -> Row:
    suffix = path.suffix.lower()
    if suffix in formats:
        return formats[suffix]
    if suffix in RUNS_CODE:
        raise RecallatkError(
            f"{where}: a {suffix} file can run code when it is opened, so it is refused; open it yourself if you trust "
            f"it and save the plain array: np.save({path.stem + '.npy'!r}, np.asarray(values))"
        )
    close = difflib.get_close_matches(suffix, formats, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise RecallatkError(
        f"{where}: {suffix or 'no suffix'} is no kind of {noun} file that is read; {', '.join(formats)} are{hint}"
    )


def _check_file(path: Path, where: str) -> None:
    if path.is_dir():
        raise RecallatkError(f"{where}: {path} is a folder; name a file")
    if not path.is_file():
        raise RecallatkError(f"{where}: there is no file {path}")


def _read_labels(path: Path, where: str, *, several: bool, labels_required: bool) -> Samples:
    read = _format_of(path, LABEL_FORMATS, "labels", where)
    _check_file(path, where)
    given: Samples = read(path, where, several=several)
    if given.labels is None and given.positions is None and labels_required:
        found = [names[-1] for field, names in COLUMNS.items() if getattr(given, field) is not None]
        raise RecallatkError(
            f"{where}: no column is called label; the columns are {', '.join([*given.groups, *found]) or 'none'}"
        )
    return given


def _with_labels_from(given: Samples, own: Samples, where: str, *, here: str = "among the embeddings") -> Samples:
    """The samples with what another file says of them: labels, and ids, groups and so on where it has them."""
    if own.ids is not None and given.ids is not None:
        pairs = enumerate(zip(map(str, own.ids), map(str, given.ids), strict=False))
        for row, (ours, theirs) in pairs:
            if ours != theirs:
                raise RecallatkError(f"{where}: row {row} is {ours!r} {here} and {theirs!r} there")
    return dataclasses.replace(
        own,
        labels=own.labels if given.labels is None else given.labels,
        label_kind=own.label_kind if given.labels is None else given.label_kind,
        ids=own.ids if given.ids is None else given.ids,
        same=own.same if given.same is None else given.same,
        content=own.content if given.content is None else given.content,
        positions=own.positions if given.positions is None else given.positions,
        groups={**own.groups, **given.groups},
        notes=own.notes + given.notes,
    )


def _columns(samples: Samples, n: int, separator: str | None, name: str) -> dict[str, Any]:
    """The arguments of EmbeddingSet or SampleSet for n rows; without labels every row has none."""
    values = [()] * n if samples.labels is None else samples.labels
    if separator is not None:
        if not separator:
            raise RecallatkError("label_separator is empty; give the text between two labels, such as ';'")
        if getattr(values, "ndim", 1) == 1:
            values = [_split(value, separator) for value in values]
    labels, kind = as_labels(values, name, kind=samples.label_kind)
    columns = {column: _texts(getattr(samples, column), column, name) for column in ("ids", "same", "content")}
    groups = {column: _texts(group, column, name) for column, group in samples.groups.items()}
    return {"labels": labels, "label_kind": kind, "groups": groups, "positions": samples.positions, **columns}


def _split(label: Any, separator: str) -> Any:
    if not isinstance(label, str):
        return label
    return tuple(label.split(separator)) if label else ()


def _texts(values: Any, column: str, name: str) -> tuple[str, ...] | None:
    if values is None:
        return None
    if getattr(values, "ndim", 1) != 1:
        raise RecallatkError(f"{name}: {column!r} has shape {values.shape}; give one text or integer a row")
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    if not all(isinstance(value, str | int) for value in listed):
        other = next(value for value in listed if not isinstance(value, str | int))
        raise RecallatkError(f"{name}: {column!r} holds {other!r} ({type(other).__name__}); give text or integers")
    return tuple(str(value) for value in listed)


def _check_lengths(columns: Mapping[str, Any], n: int, name: str, *, noun: str = "embedding rows") -> None:
    singles = {column: values for column, values in columns.items() if column not in ("groups", "label_kind")}
    for column, values in {**singles, **columns["groups"]}.items():
        if values is not None and len(values) != n:
            raise RecallatkError(f"{name}: {len(values)} {column} for {n} {noun}; there must be one for each")


def _take(values: Any, rows: Sequence[int]) -> Any:
    """These rows of a column, or of each of the groups."""
    if isinstance(values, dict):
        return {column: _take(group, rows) for column, group in values.items()}
    if isinstance(values, np.ndarray):
        return values[np.asarray(rows, dtype=np.int64)]
    return tuple(values[row] for row in rows) if isinstance(values, tuple) else values
