"""Pickles of plain data, read without running anything that they ask for.

A pickle names functions to call. Here containers are known, and stand-ins for what numpy's arrays and numbers are
pickled as; anything else is refused before it is looked up. Tuples become lists, which are no keys: Python's hash of
tuples in tuples takes forever for some hundred bytes, or ends the process.
"""

from __future__ import annotations

import functools
import io
import pickle
import pickletools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from recallatk.types import RecallatkError

_OTHER_OPCODES = {"EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID", "NEXT_BUFFER"}
_MEMO_OPCODES = {"PUT", "BINPUT", "LONG_BINPUT"}


def read_plain_pickle(path: Path) -> Any:
    """The dicts, lists, sets, texts, bytes and numbers of a pickle; tuples become lists, arrays flat ones.

    Raises:
        RecallatkError: the file cannot be read, is no pickle, or asks for anything else.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecallatkError(f"{path}: cannot be read ({error.strerror or error})") from error
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in _OTHER_OPCODES:
                raise _refusal(path, f"the opcode {opcode.name}")
            if opcode.name in _MEMO_OPCODES and int(str(argument)) > len(data):
                raise ValueError("a place in memory beyond its own length")
        return _PlainUnpickler(path, data).load()
    except RecallatkError:
        raise
    except Exception as error:  # damaged bytes make the unpickler raise almost anything
        reason = str(error) or type(error).__name__
        raise RecallatkError(f"{path}: this is no pickle of plain data ({reason}); take the official file") from error


def _refusal(path: Path, what: str) -> RecallatkError:
    return RecallatkError(
        f"{path}: this pickle asks for {what}, which lists of names and numbers do not need; nothing of it was run; "
        "take the official file"
    )


def _take_marked(machine: Any) -> None:
    """What TUPLE does, with a list."""
    values = machine.pop_mark()
    machine.append(values)


def _take_last(n: int, machine: Any) -> None:
    """What TUPLE1 to TUPLE3 and EMPTY_TUPLE do, with a list."""
    values = [machine.stack.pop() for _ in range(n)]
    machine.append(values[::-1])


class _PlainUnpickler(pickle._Unpickler):
    """An unpickler that knows these names and no others; the one in Python, whose opcodes can be replaced."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **pickle._Unpickler.dispatch,
        ord(pickle.TUPLE): _take_marked,
        ord(pickle.EMPTY_TUPLE): functools.partial(_take_last, 0),
        ord(pickle.TUPLE1): functools.partial(_take_last, 1),
        ord(pickle.TUPLE2): functools.partial(_take_last, 2),
        ord(pickle.TUPLE3): functools.partial(_take_last, 3),
    }

    def __init__(self, path: Path, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")  # what Python 2 wrote as text may be bytes
        self._path = path

    def find_class(self, module: str, name: str, /) -> Any:
        """The stand-in for a global."""
        known: dict[tuple[str, str], Callable[..., Any]] = {
            ("builtins", "set"): set,
            ("builtins", "frozenset"): frozenset,
            ("builtins", "list"): list,
            ("builtins", "tuple"): list,
            ("builtins", "dict"): dict,
            ("builtins", "bytes"): _Latin1,  # empty ones
            ("_codecs", "encode"): _Latin1,
            ("numpy", "dtype"): _Kind,
            ("numpy", "ndarray"): _Array,
            ("numpy.multiarray", "_reconstruct"): _Array,
            ("numpy.multiarray", "scalar"): _Number,
            ("numpy.numeric", "_frombuffer"): _Buffer,
        }
        plain = re.sub(r"^__builtin__$", "builtins", re.sub(r"^numpy\._?core\.", "numpy.", module))
        if (plain, name) not in known:
            raise _refusal(self._path, f"{module}.{name}")
        return known[plain, name]


class _Kind:
    """What numpy.dtype is called with: kinds of numbers and of text."""

    def __init__(self, code: str, *_: Any) -> None:
        if not re.fullmatch("O8?|b1|[iu][1248]|f[248]|[US][0-9]{1,4}", code):
            raise ValueError(f"an array of {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: Sequence[Any]) -> None:
        if state[1] in (">", "<"):
            self.dtype = self.dtype.newbyteorder(state[1])

    def values(self, data: Any) -> list[Any]:
        """The values of a buffer, or of the list that stands for one where they are objects."""
        if self.dtype.hasobject:
            return list(data)
        raw = data.encode("latin1") if isinstance(data, str) else data
        return [value.decode("latin1") if isinstance(value, bytes) else value for value in self.read(raw)]

    def read(self, raw: bytes) -> list[Any]:
        """The bytes as numbers or texts."""
        found: list[Any] = np.frombuffer(raw, dtype=self.dtype).tolist()
        return found


class _Array(list[Any]):
    """An array, flat; its shape says nothing that its values do not."""

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Sequence[Any]) -> None:
        kind, _, data = state[-3:]  # before them a version, which old ones have not, and the shape
        self[:] = kind.values(data)


class _Buffer:
    """An array whose bytes come first."""

    def __new__(cls, data: Any, kind: _Kind, *_: Any) -> Any:
        return kind.values(bytes(data))

    def __setstate__(self, state: Any) -> None:
        """None has a state."""


class _Number:
    """A number of numpy's, which becomes one of Python's."""

    def __new__(cls, kind: _Kind, data: Any) -> Any:
        (value,) = kind.values(data)
        return value

    def __setstate__(self, state: Any) -> None:
        """None has a state."""


class _Latin1:
    """Bytes, as protocol 2 writes them: text with the name of its encoding."""

    def __new__(cls, text: str = "", *_: Any) -> Any:
        return text.encode("latin1")

    def __setstate__(self, state: Any) -> None:
        """None has a state."""
