"""HDF5: the embeddings as a dataset, ids and labels as datasets beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from recallatk.embeddings.samples import (
    DOCUMENT_KEY,
    NAMED,
    POSITIONS,
    Samples,
    as_document,
    from_columns,
    is_plain,
    parse_document,
    pick_embeddings,
    readable,
    replacing,
)
from recallatk.extras import import_extra
from recallatk.memory import megabytes, new_array
from recallatk.types import EmbeddingSet, RecallatkError, release_pages

BLOCK_BYTES = 2**25
PURPOSE = "the format HDF5 (.h5, .hdf5)"


def read(path: Path, name: str, *, most: int | None = None) -> tuple[npt.NDArray[Any], Samples]:
    """The dataset `embeddings` (or the only two-dimensional one), `labels`, `ids`, `positions`, and groups.

    The numbers are copied once, block by block; an array of more than `most` bytes lies in a temporary file.
    """
    h5py = import_extra("h5py", "hdf5", PURPOSE)
    with readable(name, RuntimeError, KeyError), h5py.File(path, "r") as file:
        datasets = {key: item for key in file if isinstance(item := file.get(key), h5py.Dataset)}
        aside = [key for key in file if key not in datasets]
        shapes = {key: found.shape for key, found in datasets.items() if found.dtype.kind in "fiu"}
        if "embeddings" in datasets and "embeddings" not in shapes:
            raise RecallatkError(
                f"{name}: the dataset 'embeddings' is {datasets['embeddings'].dtype}, not numeric; save it as float32"
            )
        positions = datasets.pop(POSITIONS)[()] if len(shapes.get(POSITIONS, ())) == 2 else None
        if positions is not None:
            del shapes[POSITIONS]
        chosen = pick_embeddings(shapes, "datasets", name)
        rows, place = _copy(datasets.pop(chosen), most)
        document = datasets.pop(DOCUMENT_KEY, None)
        text = None if document is None or document.shape != () else document.asstr()[()]
        columns = {}
        for key, found in datasets.items():
            if key in NAMED or (found.shape == rows.shape[:1] and _is_text_or_integer(h5py, found)):
                columns[key] = _values(h5py, found)
            else:
                aside.append(key)
        samples = from_columns(columns, aside, None if text is None else parse_document(text, name), positions)
    if place is None:
        return rows, samples
    note = f"{megabytes(rows.nbytes)} of embeddings were unpacked to a temporary file in {place}"
    return rows, dataclasses.replace(samples, notes=(*samples.notes, note))


def write(path: Path, embeddings: EmbeddingSet, metadata: Mapping[str, Any]) -> tuple[Path, ...]:
    """The datasets `embeddings`, `ids`, `labels` and `positions`; what they cannot say is JSON in `recallatk`."""
    h5py = import_extra("h5py", "hdf5", PURPOSE)
    texts = {"ids": embeddings.ids, "labels": embeddings.labels}
    held = {key: values for key, values in texts.items() if values and is_plain(values) and not _has_nul(values)}
    document = as_document(embeddings, metadata, written=held.keys())
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        file.create_dataset("embeddings", data=embeddings.embeddings)
        if embeddings.positions is not None:
            file.create_dataset(POSITIONS, data=embeddings.positions)
        for key, values in held.items():
            file.create_dataset(key, data=list(values), dtype=h5py.string_dtype())
        file.create_dataset(DOCUMENT_KEY, data=document, dtype=h5py.string_dtype())
    return (path,)


def _copy(found: Any, most: int | None) -> tuple[npt.NDArray[Any], str | None]:
    """The numbers of a dataset, in the machine's byte order, without a second copy of them."""
    if found.ndim != 2:
        return found[()], None  # the check of the rows says what is wrong
    rows, place = new_array(found.shape, found.dtype.newbyteorder("="), most=most)
    block = max(1, BLOCK_BYTES // max(1, rows.itemsize * rows.shape[1]))
    for start in range(0, len(rows), block):
        rows[start : start + block] = found[start : start + block]
        release_pages(rows)
    return rows, place


def _is_text_or_integer(h5py: Any, found: Any) -> bool:
    return found.dtype.kind in "iu" or h5py.check_string_dtype(found.dtype) is not None


def _values(h5py: Any, found: Any) -> npt.NDArray[Any]:
    """The cells of a dataset; text comes as bytes, unless it is asked for."""
    values: npt.NDArray[Any] = found.asstr()[()] if h5py.check_string_dtype(found.dtype) is not None else found[()]
    return values


def _has_nul(values: Any) -> bool:
    """Whether a text holds a NUL, which ends a text in HDF5."""
    return any("\0" in text for text in values)
