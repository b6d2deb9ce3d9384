"""Read a state dict that torch saved in its format of before 1.6, with numpy and a restricted unpickler.

The file is five pickles (a magic number, the format's version, facts on the machine, the dictionary, the keys of the
storages) and then each storage: its length as int64 and its raw little-endian values.
"""

from __future__ import annotations

import collections
import pickle
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_STORAGE_TYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "IntStorage": "<i4",
    "LongStorage": "<i8",
}


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype[Any]
    length: int


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _rebuild_tensor(storage: _Storage, offset: int, shape: Any, strides: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    **{("torch", name): np.dtype(dtype) for name, dtype in _STORAGE_TYPES.items()},
}


class _Unpickler(pickle.Unpickler):
    """Knows tensors and dictionaries; whatever else a pickle may ask for is refused, so nothing can be run."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the file asks for {module}.{name}, which is not allowed") from None

    def persistent_load(self, reference: Any) -> _Storage:
        kind, dtype, key, _location, length = reference[:5]
        if kind != "storage":
            raise pickle.UnpicklingError(f"the file refers to {kind!r}, not to a storage")
        return _Storage(key, dtype, length)


def read_legacy_pth(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The tensors of a legacy `.pth` file by name.

    Raises:
        pickle.UnpicklingError: it holds something other than plain tensors.
        ValueError: it is another format, or its parts do not fit together.
    """
    with path.open("rb") as file:
        if _Unpickler(file).load() != _MAGIC or _Unpickler(file).load() != _VERSION:
            raise ValueError(f"{path} is not a torch file in the legacy format")
        _Unpickler(file).load()  # byte order and sizes of C types: always the same on the machines torch runs on
        tensors: dict[str, _Tensor] = _Unpickler(file).load()
        keys: list[str] = _Unpickler(file).load()
        storages = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
        values = {key: _read_values(file, storages[key]) for key in keys}
    return {name: _as_array(tensor, values[tensor.storage.key]) for name, tensor in tensors.items()}


def _read_values(file: IO[bytes], storage: _Storage) -> npt.NDArray[Any]:
    length = int.from_bytes(file.read(8), "little")
    raw = file.read(length * storage.dtype.itemsize)
    if length != storage.length or len(raw) != length * storage.dtype.itemsize:
        raise ValueError(f"storage {storage.key} should hold {storage.length} values, the file has another number")
    return np.frombuffer(raw, storage.dtype)


def _as_array(tensor: _Tensor, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    last = tensor.offset + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
    if tensor.offset < 0 or last >= len(values) or min(tensor.strides, default=0) < 0:
        raise ValueError(f"a tensor reaches outside its storage {tensor.storage.key}")
    strides = [stride * values.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, strides, writeable=False).copy()
