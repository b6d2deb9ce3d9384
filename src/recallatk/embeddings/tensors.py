"""Safetensors: the embeddings as a tensor, everything else as JSON text in the header."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.embeddings.samples import (
    DOCUMENT_KEY,
    NAMED,
    POSITIONS,
    Samples,
    as_document,
    from_columns,
    half_precision,
    parse_document,
    pick_embeddings,
    readable,
    replacing,
)
from recallatk.extras import import_extra
from recallatk.types import EmbeddingSet, RecallatkError, release_pages

# What safetensors calls them.
NUMERIC = frozenset(f"{kind}{bits}" for kind in "IU" for bits in (8, 16, 32, 64)) | {"BF16", "F16", "F32", "F64"}
HEADER_BYTES = 100_000_000  # the format's own limit
PURPOSE = "the format .safetensors"


def read(path: Path, name: str) -> tuple[npt.NDArray[Any], Samples]:
    """The tensor `embeddings` (or the only two-dimensional one); ids and labels as tensors or JSON in the header."""
    library = import_extra("safetensors", "safetensors", PURPOSE)
    with readable(name, library.SafetensorError), library.safe_open(path, framework="numpy") as file:
        slices = {key: file.get_slice(key) for key in sorted(file.keys())}
        shapes = {key: tuple(part.get_shape()) for key, part in slices.items() if part.get_dtype() in NUMERIC}
        if "embeddings" in slices and "embeddings" not in shapes:
            raise RecallatkError(
                f"{name}: the tensor 'embeddings' is {slices['embeddings'].get_dtype()}; save it as float32"
            )
        has_positions = len(shapes.get(POSITIONS, ())) == 2
        positions = _read_tensor(path, file, POSITIONS) if has_positions else None
        if has_positions:
            del slices[POSITIONS], shapes[POSITIONS]
        chosen = pick_embeddings(shapes, "tensors", name)
        embeddings = _read_tensor(path, file, chosen)
        columns, aside = {}, []
        for key, part in slices.items():
            if key in NAMED or (shapes.get(key) == embeddings.shape[:1] and part.get_dtype()[0] in "IU"):
                columns[key] = file.get_tensor(key)
            elif key != chosen:
                aside.append(key)
        header = file.metadata() or {}
        for key in NAMED & header.keys():
            columns[key] = json.loads(header[key])
            if not isinstance(columns[key], list):
                raise ValueError(f"{key} in the header is no JSON list")
        document = parse_document(header[DOCUMENT_KEY], name) if DOCUMENT_KEY in header else None
    samples = from_columns(columns, aside, document, positions)
    if slices[chosen].get_dtype() == "BF16":
        samples = dataclasses.replace(samples, notes=(*samples.notes, half_precision("bfloat16")))
    return embeddings, samples


def write(path: Path, embeddings: EmbeddingSet, metadata: Mapping[str, Any]) -> tuple[Path, ...]:
    """The tensors `embeddings` and `positions`; JSON texts `ids`, `labels` and our own in the header."""
    library = import_extra("safetensors.numpy", "safetensors", PURPOSE)
    texts = {"ids": embeddings.ids, "labels": embeddings.labels}
    header = {key: json.dumps(values) for key, values in texts.items() if values is not None}
    header[DOCUMENT_KEY] = as_document(embeddings, metadata, written=header.keys())
    if len(json.dumps(header)) > HEADER_BYTES - 4096:
        raise RecallatkError(
            f"{path}: {len(embeddings)} ids and labels pass the 100 MB that the header of a .safetensors file may "
            "have; save as .parquet or .npz"
        )
    arrays = {"embeddings": embeddings.embeddings, POSITIONS: embeddings.positions}
    # The library writes the memory as it lies, whatever the strides.
    tensors = {key: np.ascontiguousarray(array) for key, array in arrays.items() if array is not None}
    with replacing(path) as temporary:
        library.save_file(tensors, temporary, metadata=header)
    return (path,)


def _read_tensor(path: Path, file: Any, key: str) -> npt.NDArray[Any]:
    """A tensor, mapped instead of loaded: the library would hold it twice while it loads."""
    kind = file.get_slice(key).get_dtype()
    with path.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        tensor = json.loads(stream.read(size))[key]
    shape = tuple(tensor["shape"])
    if not math.prod(shape):
        empty: npt.NDArray[Any] = file.get_tensor(key)
        return empty
    letters = {"BF": "u", "F": "f", "I": "i", "U": "u"}
    dtype = np.dtype(f"<{letters[kind.rstrip('0123456789')]}{int(kind.lstrip('BFIU')) // 8}")
    mapped = np.memmap(path, dtype, "r", offset=8 + size + tensor["data_offsets"][0], shape=shape)
    return _widened(mapped) if kind == "BF16" else mapped


def _widened(halves: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """NumPy has no bfloat16; its bits are the upper half of a float32's, so widening is exact."""
    bits = np.empty(halves.shape, np.uint32)
    np.left_shift(halves, np.uint32(16), out=bits)
    release_pages(halves)
    return bits.view(np.float32)
