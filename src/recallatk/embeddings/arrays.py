"""NumPy's .npy and .npz, without ever unpickling."""

from __future__ import annotations

import contextlib
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from recallatk.embeddings import parquet
from recallatk.embeddings.samples import (
    NAMED,
    POSITIONS,
    Samples,
    as_document,
    from_columns,
    is_document,
    is_plain,
    parse_document,
    pick_embeddings,
    readable,
    replacing,
)
from recallatk.types import EmbeddingSet, RecallatkError

Header = tuple[tuple[int, ...], np.dtype[Any]]


def side_file(path: Path) -> Path:
    """Where the ids, labels and so on of a bare array are kept."""
    return path.with_name(f"{path.stem}.samples.parquet")


def read_npy(path: Path, name: str) -> tuple[npt.NDArray[Any], Samples]:
    """A bare array, mapped instead of loaded."""
    return read_array(path, name), Samples()


def read_array(path: Path, name: str) -> npt.NDArray[Any]:
    """The array of a .npy file, mapped.

    Raises:
        RecallatkError: damaged, an archive, or an object array.
    """
    with _numpy_file(name):
        with path.open("rb") as stream:
            shape, _, dtype = _header(stream)
        if dtype.hasobject:
            raise _refused(name, "the array")
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r" if shape else None, allow_pickle=False)
    return array


def write_npy(path: Path, embeddings: EmbeddingSet, metadata: Mapping[str, Any]) -> tuple[Path, ...]:
    """The array, and all the rest in the side file."""
    beside = side_file(path)
    with replacing(path) as array_file, replacing(beside) as samples_file:
        parquet.write_samples(samples_file, embeddings, metadata)
        with array_file.open("wb") as stream:
            np.save(stream, embeddings.embeddings, allow_pickle=False)
    return path, beside


def read_npz(path: Path, name: str, *, mapped: bool = False) -> tuple[npt.NDArray[Any], Samples]:
    """An archive of ours, or anybody's: `embeddings`, `labels`, `ids`, `positions`, and groups as further arrays."""
    with _numpy_file(name), zipfile.ZipFile(path) as archive:
        headers = _headers(archive)
    numeric = {key: shape for key, (shape, dtype) in headers.items() if dtype.kind in "fiu"}
    has_positions = len(numeric.get(POSITIONS, ())) == 2
    if has_positions:
        del numeric[POSITIONS]
    matrices = any(len(shape) == 2 for shape in numeric.values())
    for key, (_, dtype) in headers.items():
        if dtype.hasobject and (key in NAMED or key == "embeddings" or not matrices):
            raise _refused(name, f"the array {key!r}")
    # Text under this name is passed on too: the check of the rows says what is wrong with it.
    chosen = "embeddings" if "embeddings" in headers else pick_embeddings(numeric, "arrays", name)
    with _numpy_file(name), np.load(path, allow_pickle=False) as arrays:
        there = _map_member(path, f"{chosen}.npy") if mapped else None
        embeddings: npt.NDArray[Any] = arrays[chosen] if there is None else there
        positions = arrays[POSITIONS] if has_positions else None
        columns, aside, document = {}, [], None
        for key, (shape, dtype) in headers.items():
            if key == "meta" and shape == () and dtype.kind == "U" and is_document(str(arrays[key])):
                document = parse_document(str(arrays[key]), name)
            elif key in NAMED or (shape == embeddings.shape[:1] and dtype.kind in "iuU"):
                columns[key] = arrays[key]
            elif key != chosen and not (has_positions and key == POSITIONS):
                aside.append(key)
    return embeddings, from_columns(columns, aside, document, positions)


def map_npz(path: Path, name: str) -> tuple[npt.NDArray[Any], Samples]:
    """As `read_npz`, with embeddings that are not compressed mapped; nobody then checks their checksum."""
    return read_npz(path, name, mapped=True)


def write_npz(path: Path, embeddings: EmbeddingSet, metadata: Mapping[str, Any]) -> tuple[Path, ...]:
    """The arrays `embeddings`, `ids`, `labels` and `positions`; what they cannot say is JSON in the array `meta`."""
    texts = {"ids": embeddings.ids, "labels": embeddings.labels}
    arrays: dict[str, Any] = {
        key: np.array(values, dtype=np.str_) for key, values in texts.items() if values and is_plain(values)
    }
    if embeddings.positions is not None:
        arrays[POSITIONS] = embeddings.positions
    arrays["meta"] = np.array(as_document(embeddings, metadata, written=arrays.keys()))
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, embeddings=embeddings.embeddings, **arrays)
    return (path,)


def _map_member(path: Path, member: str) -> npt.NDArray[Any] | None:
    """An array of an archive, mapped; None of a compressed, encrypted or empty one."""
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(member)
    if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
        return None
    with path.open("rb") as stream:
        stream.seek(entry.header_offset + 26)  # where the header says how long its two last fields are
        stream.seek(sum(struct.unpack("<HH", stream.read(4))), 1)
        shape, is_fortran, dtype = _header(stream)
        begin = stream.tell()
    if not shape or not math.prod(shape):
        return None
    mapped: npt.NDArray[Any] = np.memmap(path, dtype, "r", begin, shape, "F" if is_fortran else "C")
    return mapped


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    header: tuple[tuple[int, ...], bool, np.dtype[Any]] = read(stream)
    return header


def _headers(archive: zipfile.ZipFile) -> dict[str, Header]:
    headers = {}
    for entry in archive.infolist():
        if entry.filename.endswith(".npy"):
            with archive.open(entry) as stream:
                shape, _, dtype = _header(stream)
            # Otherwise a damaged header makes NumPy ask for any amount of memory.
            if not dtype.hasobject and math.prod(shape) * dtype.itemsize > entry.file_size:
                raise ValueError(f"{entry.filename} is shorter than its shape {shape} says")
            headers[entry.filename.removesuffix(".npy")] = (shape, dtype)
    return headers


@contextlib.contextmanager
def _numpy_file(name: str) -> Iterator[None]:
    damage = (zipfile.BadZipFile, zlib.error, tokenize.TokenError, SyntaxError, TypeError, KeyError, RuntimeError)
    with readable(name, *damage):
        yield


def _refused(name: str, what: str) -> RecallatkError:
    return RecallatkError(
        f"{name}: {what} holds Python objects and would need unpickling, which runs code and is refused; "
        "save it as plain numbers or text, such as np.array(values, dtype=np.float32) or np.array(labels, dtype=str)"
    )
