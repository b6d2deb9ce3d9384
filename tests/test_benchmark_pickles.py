"""Pickles are read and nothing in them is run."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recallatk.datasets.benchmarks.pickles import read_plain_pickle
from recallatk.types import RecallatkError

PLAIN = {
    "imlist": ["a", "b", "caf\u00e9"],
    "gnd": [{"bbx": [136.5, 34.1, 648.5, 955.7], "easy": [0], "hard": [], "junk": [2, 10**30]}],
    "flags": [True, None, b"\x00\xff", {1, 2}, frozenset({3})],
}


def save(path: Path, value: Any, protocol: int = 2) -> Path:
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_comes_back(tmp_path: Path, protocol: int) -> None:
    assert read_plain_pickle(save(tmp_path / "gnd.pkl", PLAIN, protocol)) == PLAIN


ARRAYS = [
    np.array([3, 1, 2]),
    np.array([], dtype=np.int32),
    np.array([1.5, -2.0], dtype=">f8"),
    np.array([7], dtype=np.uint8),
    np.array([True, False]),
    np.array(["all_souls_000013", "b"]),
    np.array([b"x", b"yz"]),
    np.array(["a", None, 3], dtype=object),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_arrays_become_lists(tmp_path: Path, array: np.ndarray[Any, Any], protocol: int) -> None:
    expected = [value.decode() if isinstance(value, bytes) else value for value in array.tolist()]
    assert read_plain_pickle(save(tmp_path / "gnd.pkl", {"easy": array}, protocol)) == {"easy": expected}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_numbers_of_numpy_become_numbers(tmp_path: Path, protocol: int) -> None:
    value = read_plain_pickle(save(tmp_path / "gnd.pkl", [np.float64(1.5), np.int64(7), np.float32(2)], protocol))
    assert value == [1.5, 7, 2.0]
    assert [type(number) for number in value] == [float, int, float]


def test_python_2_wrote_such_pickles(tmp_path: Path) -> None:
    """Text without an encoding, and the raw bytes of an array as such text; numpy's module had its old name."""
    path = tmp_path / "gnd.pkl"
    path.write_bytes(
        b"\x80\x02}q\x00(U\x06imlistq\x01]q\x02(U\x01aU\x01beU\x04easycnumpy.core.multiarray\n_reconstruct\n"
        b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x02\x85cnumpy\ndtype\nU\x02i8K\x00K\x01\x87R"
        b"(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x10"
        + struct.pack("<qq", 5, 200)
        + b"tbU\x04setsc__builtin__\nset\n]K\x01a\x85Ru."
    )
    assert read_plain_pickle(path) == {"imlist": ["a", "b"], "easy": [5, 200], "sets": {1}}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_tuples_become_lists(tmp_path: Path, protocol: int) -> None:
    value = [(), (1,), (1, "b"), (1, 2, (3, 4)), (1, 2, 3, 4)]
    found = read_plain_pickle(save(tmp_path / "gnd.pkl", value, protocol))
    assert found == [[], [1], [1, "b"], [1, 2, [3, 4]], [1, 2, 3, 4]]


class Calls:
    """Pickled as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("where", ["alone", "in a list", "in an array"])
def test_what_a_pickle_asks_to_run_is_refused_and_not_run(tmp_path: Path, where: str, protocol: int) -> None:
    touched = tmp_path / "touched"
    call = Calls(os.system, f"touch {touched}")
    array = np.array([None, None], dtype=object)
    array[0] = call
    value = {"alone": call, "in a list": {"gnd": [1, call]}, "in an array": {"easy": array}}[where]
    path = save(tmp_path / "gnd.pkl", value, protocol)
    with pytest.raises(RecallatkError, match=r"asks for (posix|nt).system, .*nothing of it was run"):
        read_plain_pickle(path)
    assert not touched.exists()
    pickle.loads(path.read_bytes())  # it would have been
    assert touched.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("builtins", "list.append"),
        ("__builtin__", "__import__"),
        ("os", "path.exists"),
        ("collections", "OrderedDict"),
        ("numpy", "load"),
        ("numpy.core.multiarray", "fromfile"),
        ("recallatk.datasets.benchmarks.pickles", "re.compile"),
        ("a module that is not there", "x"),
    ],
)
def test_other_globals_are_named(tmp_path: Path, module: str, name: str) -> None:
    path = tmp_path / "gnd.pkl"
    path.write_bytes(b"c" + f"{module}\n{name}\n".encode() + b".")
    with pytest.raises(RecallatkError, match=rf"gnd.pkl: this pickle asks for {module}.{name}, ".replace(".", r"\.")):
        read_plain_pickle(path)
    stacked = io.BytesIO()
    for text in (module, name):
        stacked.write(b"\x8c" + bytes([len(text)]) + text.encode())
    path.write_bytes(b"\x80\x04" + stacked.getvalue() + b"\x93.")
    with pytest.raises(RecallatkError, match="which lists of names and numbers do not need"):
        read_plain_pickle(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no pickle at all",
        pickle.dumps(PLAIN)[:-9],
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a place in memory far beyond its own length
        b"\x80\x02\x82\x01.",  # an extension code
        b"P1\n.",  # somebody else's object
        b"cnumpy\ndtype\n(S'V8'\nI0\nI1\ntR.",  # a kind of array that holds anything
        b"c_codecs\nencode\n}S'__code__'\nI1\nsb.",  # a stand-in that is to be changed
        b"cnumpy\nndarray\n}S'append'\nI1\nsb.",
        b"cbuiltins\nlist\n(N}S'append'\nI1\nstb.",
        b"0" * 100,
        b"\x80\x02})" + b"\x85" * 10**6 + b"K\x01s.",  # a key of tuples in tuples, whose hash overflows the stack
        b"\x80\x04\x8f()" + b"\x85" * 10**6 + b"\x90.",  # likewise in a set
        b"\x80\x02})" + b"q\x000h\x00h\x00\x86" * 99 + b"K\x01s.",  # a key of 2 ** 99 tuples
        b"\x80\x02cbuiltins\ntuple\n](K\x01]e\x85R}h\x00K\x01s.",
    ],
)
def test_damaged_and_hostile_bytes_are_one_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "gnd.pkl"
    path.write_bytes(data)
    with pytest.raises(RecallatkError, match=r"^\S*gnd.pkl: this .*take the official file$"):
        read_plain_pickle(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecallatkError, match=r"gnd.pkl: cannot be read \(No such file"):
        read_plain_pickle(tmp_path / "gnd.pkl")


def test_what_pickletools_writes_shorter_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "gnd.pkl"
    path.write_bytes(pickletools.optimize(pickle.dumps(PLAIN)))
    assert read_plain_pickle(path) == PLAIN
