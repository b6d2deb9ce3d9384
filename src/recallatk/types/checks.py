"""What comes from outside, brought to one form: numbers, rows of numbers, labels."""

from __future__ import annotations

import mmap
import operator
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from recallatk.types.errors import RecallatkError
from recallatk.types.memo import Memo
from recallatk.types.texts import HexDigests, Texts

Label: TypeAlias = str | tuple[str, ...]
"""One label as text, or the several labels of one sample (an empty tuple: none)."""

LabelKind: TypeAlias = Literal["text", "integer"]
Float32Rows: TypeAlias = npt.NDArray[np.float32]


@runtime_checkable
class StoredRows(Protocol):
    """Rows that lie elsewhere and become an array where they are asked for; it stands where an array of rows may."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""

    def __len__(self) -> int:
        """The number of rows."""

    def __getitem__(self, rows: Any, /) -> npt.NDArray[Any]:
        """The rows of a slice, or of these row numbers."""

    def part(self, rows: slice) -> StoredRows:
        """Some of the rows, of which none is read."""


MAPPED_BYTES = 2**24
"""So much of a mapped file is read before its pages are given back."""

FETCHED = 256
"""Rows that are fetched one by one before that: the system maps some 64 KB around each."""


def as_numbers(values: Any, name: str) -> npt.NDArray[Any]:
    """Anything that an array library or a list holds, as a numpy array of real numbers.

    Torch tensors are detached and moved to the CPU (bfloat16 becomes float32, which is exact).

    Raises:
        RecallatkError: rows of different length, or not real numbers.
    """
    if isinstance(values, StoredRows):
        return cast("npt.NDArray[Any]", values)
    if hasattr(values, "detach"):
        tensor = values.detach().cpu()
        values = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
    try:
        array = np.asanyarray(values)
    except ValueError as error:
        raise RecallatkError(f"{name}: rows of different length are no (n, d) array ({error})") from error
    if array.dtype.kind not in "fiu" and array.size:
        raise RecallatkError(f"{name}: the dtype is {array.dtype}, not numeric; real numbers are needed")
    return cast("npt.NDArray[Any]", array)


def as_rows(embeddings: Any, name: str) -> npt.NDArray[Any]:
    """Embeddings as a two-dimensional array of real numbers, (rows, columns).

    Raises:
        RecallatkError: not two-dimensional, no columns, or not real numbers.
    """
    array = as_numbers(embeddings, name)
    if array.ndim != 2 or array.shape[1] == 0:
        raise RecallatkError(f"{name}: the shape is {array.shape}; embeddings must be two-dimensional, (rows, columns)")
    return array


def float32_blocks(embeddings: npt.NDArray[Any], rows_a_block: int = 4096) -> Iterable[tuple[int, Float32Rows]]:
    """The rows as float32, a block at a time: (first row, block). Overflow becomes infinity, which is checked.

    Of a mapped file, what was read does not stay in memory.
    """
    kept = 0
    for start in range(0, len(embeddings), rows_a_block):
        part = embeddings[start : start + rows_a_block]
        with np.errstate(over="ignore", invalid="ignore"):
            yield start, np.asarray(part, dtype=np.float32)
        kept += part.nbytes
        if kept >= MAPPED_BYTES or start + rows_a_block >= len(embeddings):
            release_pages(embeddings)
            kept = 0


def release_pages(array: npt.NDArray[Any]) -> None:
    """Give back the memory of what was read of a mapped file; it is read again when it is needed.

    Until the system wants it back, such memory counts as the process' own.
    """
    owner: Any = array
    modes = set()
    while isinstance(owner, np.ndarray):
        if isinstance(owner, np.memmap):
            modes.add(owner.mode)
        owner = owner.base
    # Any other mapping may be a private one, which would lose what was written to it.
    shared = modes and modes <= {"r", "r+", "w+"}
    if shared and isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)


def take_rows(array: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """These rows of an array; of a mapped file, what was read does not stay in memory."""
    if not isinstance(array, np.memmap):
        return array[rows]
    taken = np.empty((len(rows), *array.shape[1:]), array.dtype)
    for start in range(0, len(rows), FETCHED):
        taken[start : start + FETCHED] = array[rows[start : start + FETCHED]]
        release_pages(array)
    return taken


def take_from_pieces(
    rows: npt.NDArray[np.int64],
    starts: Sequence[int],
    piece: Callable[[int], npt.NDArray[Any]],
    *,
    width: int,
    dtype: npt.DTypeLike,
) -> npt.NDArray[Any]:
    """These rows of an array that is in pieces, of which one is held at a time, and each is asked for once.

    Args:
        rows: row numbers, in any order.
        starts: where the rows of each piece begin, and where the last ones end.
        piece: gives the rows of the piece of this number.
        width: the number of columns.
        dtype: of the array.
    """
    taken = np.empty((len(rows), width), dtype)
    which = np.searchsorted(starts, rows, side="right") - 1
    for number in np.unique(which).tolist():
        here = which == number
        taken[here] = piece(number)[rows[here] - starts[number]]
    return taken


def unusable_rows(embeddings: npt.NDArray[Any]) -> list[tuple[int, str]]:
    """The rows that have no direction as float32, each with the reason in words."""
    bad = []
    for start, block in float32_blocks(embeddings):
        finite = np.logical_and.reduce(np.isfinite(block), axis=1)
        nonzero = np.logical_or.reduce(block != 0, axis=1)
        for row in np.flatnonzero(~(finite & nonzero)):
            zero = "is all zero (norm 0), so it has no direction"
            bad.append((start + int(row), zero if finite[row] else "is not finite (NaN, or beyond float32)"))
    return bad


def as_labels(values: Iterable[Any], name: str, *, kind: LabelKind = "text") -> tuple[tuple[Label, ...], LabelKind]:
    """Labels as text in Unicode's composed form (NFC), and whether they were integers.

    A list, tuple or set is several labels of one sample. Spaces and case are kept.

    Raises:
        RecallatkError: a float, an empty text, integers and text in one column, or rows of 0 and 1.
    """
    values = _label_list(values, name)
    types = set(map(type, values))
    if types == {int}:
        return tuple(Memo(str).each(values)), "integer"
    if types == {str} and all(values):
        composed = tuple(map(Memo(_composed).__getitem__, values))
        # Labels that need nothing done stay where they are: sets that are made of each other share one column.
        unchanged = type(values) is tuple and all(map(operator.is_, composed, values))
        return (values if unchanged else composed), kind  # type: ignore[return-value]  # mypy keeps the other type
    return _labels_one_by_one(values, name, kind)


def _labels_one_by_one(values: Sequence[Any], name: str, kind: LabelKind) -> tuple[tuple[Label, ...], LabelKind]:
    """Labels that are not all plain integers or plain texts."""
    labels: list[Label] = []
    kinds: dict[LabelKind, Any] = {}

    def text(value: Any, row: int) -> str:
        if isinstance(value, str):
            if not value:
                raise RecallatkError(f"{name}: row {row} has an empty label; give it one, or leave the row out")
            kinds.setdefault(kind, value)
            return _composed(value)
        if isinstance(value, bytes):
            raise RecallatkError(f"{name}: the label of row {row} is bytes ({value!r}); decode it to text")
        try:
            number = operator.index(value)
        except TypeError:
            number = None
        if number is None or isinstance(value, bool):
            raise RecallatkError(
                f"{name}: the label of row {row} is {value!r} ({type(value).__name__}); labels are text or integers"
            )
        kinds.setdefault("integer", value)
        return str(number)

    for row, value in enumerate(values):
        if isinstance(value, list | tuple | set | frozenset | np.ndarray):
            several = value.tolist() if isinstance(value, np.ndarray) else value
            labels.append(tuple(sorted({text(item, row) for item in several})))
        else:
            labels.append(text(value, row))
    if len(kinds) == 2:
        raise RecallatkError(
            f"{name}: the labels mix integers (int, {kinds['integer']!r}) and text (str, {kinds['text']!r}); "
            "make them one kind"
        )
    if "integer" in kinds and all(_is_indicator(value) for value in values):
        raise RecallatkError(
            f"{name}: every row of the labels is a list of zeros and ones, as one-hot labels are; "
            "give each row the number or the name of its class"
        )
    return tuple(labels), next(iter(kinds), kind)


def _label_list(values: Any, name: str) -> Sequence[Any]:
    if values is None:
        raise RecallatkError(f"{name}: there are no labels; give one a row")
    if isinstance(values, str):
        raise RecallatkError(f"{name}: the labels are one text ({values!r}); give one label a row")
    shape = getattr(values, "shape", (0,))
    if len(shape) != 1:
        raise RecallatkError(f"{name}: the labels have shape {tuple(shape)}; give one label a row, or a list of lists")
    return _listed(values)


def _is_indicator(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray) and len(value) > 2 and all(cell in (0, 1) for cell in value)


def each_label(label: Label) -> tuple[str, ...]:
    """The labels of one sample.

    >>> each_label("cat"), each_label(("cat", "pet"))
    (('cat',), ('cat', 'pet'))
    """
    return (label,) if isinstance(label, str) else label


def distinct_labels(*columns: Iterable[Label]) -> set[str]:
    """Every label that some sample has.

    >>> sorted(distinct_labels(["cat", ("cat", "pet"), ()], ["dog"]))
    ['cat', 'dog', 'pet']
    """
    return {one for label in set().union(*columns) for one in each_label(label)}


def as_texts(values: Iterable[Any]) -> tuple[str, ...]:
    """A column of anything as text; an empty text says "unknown"."""
    values = _listed(values)
    types = set(map(type, values))
    if types == {int} or (types == {str} and all(map(str.isascii, values))):
        return values if type(values) is tuple and types == {str} else tuple(map(str, values))
    texts = tuple("" if _is_unknown(value) else valid_text(str(value)) for value in values)
    return values if type(values) is tuple and all(map(operator.is_, texts, values)) else texts


def as_content(values: Iterable[Any]) -> Sequence[str]:
    """A column of hashes as text, held as bytes where every row has one."""
    if isinstance(values, HexDigests):
        return values
    texts = as_texts(values)
    return HexDigests.of(texts) or texts


def as_ids(values: Iterable[Any], name: str) -> tuple[str, ...]:
    """A column of ids as text; an empty text says "unknown".

    Raises:
        RecallatkError: a float: 0 and 0.0 would pass as two ids.
    """
    listed = _listed(values)
    has_floats = any(issubclass(kind, float | np.floating) for kind in set(map(type, listed)))
    for row, value in enumerate(listed if has_floats else ()):
        if isinstance(value, float | np.floating) and not _is_unknown(value):
            raise RecallatkError(f"{name}: the id of row {row} is {value!r} (float); ids are text or integers")
    return as_texts(listed)


def valid_text(text: str) -> str:
    r"""Text that can be written as UTF-8: half a surrogate pair, as in a file name of other bytes, is made visible.

    It is a plain `str`, also where a NumPy array or an enumeration gave the text.

    >>> valid_text("caf\udce9")
    'caf\\udce9'
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return str.__str__(text)


def _composed(text: str) -> str:
    text = valid_text(text)
    composed = unicodedata.normalize("NFC", text)
    return text if composed == text else composed  # the object that is there already


def _listed(values: Iterable[Any]) -> Sequence[Any]:
    if isinstance(values, tuple | list | Texts):
        return values
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _is_unknown(value: Any) -> bool:
    """Whether a cell is None or NaN, as an empty cell of a data frame is."""
    return value is None or bool(value != value)


def as_positions(positions: Any, n: int, name: str) -> npt.NDArray[np.float64]:
    """Coordinates in metres as (n, 2) float64.

    Raises:
        RecallatkError: another shape, or a coordinate that is not finite.
    """
    array = as_numbers(positions, f"{name} positions").astype(np.float64)
    if array.shape != (n, 2):
        raise RecallatkError(f"{name}: positions have the shape {array.shape}; {n} rows need ({n}, 2), in metres")
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if len(bad):
        raise RecallatkError(f"{name}: the position of row {bad[0]} is not finite; give every row one")
    return array
