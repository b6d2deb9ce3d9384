"""The nouns: what is on disk, what an encoder made of it, and everything that can change the number."""

from __future__ import annotations

import dataclasses
import operator
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pathlib import Path

Label: TypeAlias = str | tuple[str, ...]
"""One label as text, or the several labels of one sample (an empty tuple: none)."""

LabelKind: TypeAlias = Literal["text", "integer"]
Float32Rows: TypeAlias = npt.NDArray[np.float32]

ExcludeSelf: TypeAlias = Literal["id", "content", "none"]
RelevanceKind: TypeAlias = Literal["label", "labels"]
NoPositive: TypeAlias = Literal["exclude", "miss", "error"]
Ties: TypeAlias = Literal["expected", "pessimistic", "optimistic"]
Average: TypeAlias = Literal["micro", "macro"]
Similarity: TypeAlias = Literal["cosine"]
OnError: TypeAlias = Literal["error", "skip"]


class RecallatkError(Exception):
    """What the caller can fix, in one line: what is wrong, which item, what to do."""


class ChoiceError(RecallatkError):
    """A choice that does not exist: a flag's value, a name; the command line exits with 2 instead of 3."""


@runtime_checkable
class Encoder(Protocol):
    """Any callable from a batch (a list of n images) to an array (n, d).

    There is no base class. Three optional attributes end up in the record: `name` (text), `fingerprint` (a hash of
    the weights) and `preprocessing` (a mapping: size, resampling, normalisation).
    """

    def __call__(self, batch: list[Any], /) -> Any:
        """Encode a batch; row i of the result belongs to element i."""


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A file or row that was left out because it could not be used (`--on-error skip`)."""

    item: str
    reason: str


@dataclasses.dataclass(frozen=True, eq=False)
class ImageSet:
    """One side of a data set as it lies on disk; nothing is decoded yet.

    Attributes:
        elements: a path for each image (in `evaluate`, whatever the caller's encoder takes).
        ids: unique names, the path below DATA with "/".
        labels: one label a sample, or a tuple of several.
        same: what makes two elements *the same image* (default: the id); datasets set the resolved file.
        groups: named columns such as `camera`, one text a sample.
        label_kind: what the labels were before they became text.
    """

    elements: tuple[Any, ...]
    ids: tuple[str, ...]
    labels: tuple[Label, ...]
    same: tuple[str, ...] | None = None
    groups: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    label_kind: LabelKind = "text"

    def __post_init__(self) -> None:
        _normalise_columns(self, len(self.elements), "images", "image set")

    def __len__(self) -> int:
        return len(self.elements)

    def take(self, rows: Sequence[int]) -> ImageSet:
        """The set of these rows, in this order."""
        return dataclasses.replace(self, elements=tuple(self.elements[r] for r in rows), **_take_columns(self, rows))


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """What a layout yields: two sides (or one, for leave-one-out) and what was noticed on the way.

    Attributes:
        query: the queries.
        gallery: the gallery; None means leave-one-out, every image is query and gallery.
        root: the folder that ids are relative to.
        skipped: what the layout itself had to leave out (rows whose file is missing, with `on_error="skip"`).
        notes: one line for each thing that was left aside or converted, for the reader of the report.
        warnings: one line for each thing that can make the number look right and be wrong.
    """

    query: ImageSet
    gallery: ImageSet | None
    root: Path
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class EmbeddingSet:
    """Embeddings with what is known of each row; checked once, trusted afterwards.

    Attributes:
        embeddings: (n, d) real numbers of any dtype; every row finite and non-zero as float32.
        labels: one label a row, or a tuple of several; integers become decimal text, floats are refused.
        ids: unique names, or None where there are none (rows are then named by number and never match across sets).
        same: what makes two rows *the same image* (default: the id); need not be unique.
        groups: named columns such as `camera`, one text a row.
        content: sha256 of each image's bytes, in hex.
        label_kind: what the labels were before they became text.
        name: how messages call this set ("query", a file name).

    Raises:
        RecallatkError: the columns do not fit, or a row has no direction (NaN, infinite, all zero).
    """

    embeddings: npt.NDArray[Any]
    labels: tuple[Label, ...]
    ids: tuple[str, ...] | None = None
    same: tuple[str, ...] | None = None
    groups: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    content: tuple[str, ...] | None = None
    label_kind: LabelKind = "text"
    name: str = "embeddings"

    def __post_init__(self) -> None:
        array = as_rows(self.embeddings, self.name)
        object.__setattr__(self, "embeddings", array)
        _normalise_columns(self, len(array), "embedding rows", self.name)
        bad = unusable_rows(array)
        if bad:
            row, why = bad[0]
            more = f" (and {len(bad) - 1} more rows)" if len(bad) > 1 else ""
            raise RecallatkError(
                f"{self.name}: row {row} ({self.row_ids[row]!r}) {why}{more}; "
                "fix the encoder, or leave such rows out with on_error='skip' (--on-error skip)"
            )

    def __len__(self) -> int:
        return len(self.embeddings)

    @property
    def row_ids(self) -> tuple[str, ...]:
        """The ids, or row numbers where none were given."""
        return self.ids if self.ids is not None else tuple(str(row) for row in range(len(self)))

    @property
    def identity(self) -> tuple[str, ...] | None:
        """What makes two rows the same image; None when nothing is known."""
        return self.same if self.same is not None else self.ids

    def take(self, rows: Sequence[int]) -> EmbeddingSet:
        """The set of these rows, in this order."""
        content = None if self.content is None else tuple(self.content[r] for r in rows)
        index = np.asarray(rows, dtype=np.int64)
        return dataclasses.replace(
            self, embeddings=self.embeddings[index], content=content, **_take_columns(self, rows)
        )


def _part(key: str, default: Any) -> Any:
    return dataclasses.field(default=default, metadata={"part": key})


@dataclasses.dataclass(frozen=True)
class EvalProtocol:
    """Everything that can change the number, and nothing else.

    Its fields are the flags, the keys of a protocol file, the keys of the record and the parts of the signature.

    Attributes:
        ks: the cutoffs k of recall@k; positive integers, kept sorted and once each.
        exclude_self: which gallery items are the query itself and leave its ranking: equal `same` (default: equal
            id), equal image bytes (`content`), or none.
        ignore_same: columns joined by "+"; a gallery item equal to the query in all of them takes no rank
            (`camera+label`, `sequence`). "none": nothing is ignored.
        relevance: what makes a gallery item positive: the same `label`, or at least one shared label of several.
        no_positive: a query without a positive is left out and counted, counted as a miss, or an error.
        ties: the order of equal similarities: the mean over all orders, negatives first, or positives first.
        average: the mean over queries (micro) or the mean of per-label means (macro; a query counts for each label).
        similarity: cosine.
    """

    ks: tuple[int, ...] = _part("k", (1, 5, 10))
    exclude_self: ExcludeSelf = _part("self", "id")
    ignore_same: str = _part("ign", "none")
    relevance: RelevanceKind = _part("rel", "label")
    no_positive: NoPositive = _part("nopos", "exclude")
    ties: Ties = _part("ties", "expected")
    average: Average = _part("avg", "micro")
    similarity: Similarity = _part("sim", "cosine")

    def __post_init__(self) -> None:
        object.__setattr__(self, "ks", _as_cutoffs(self.ks))
        for field, choices in _CHOICES.items():
            value = getattr(self, field)
            if value not in choices:
                raise ChoiceError(f"{field}={value!r} is not a choice; choose one of: {', '.join(choices)}")
        if not self.ignore_same or any(not column for column in self.ignore_same.split("+")):
            raise RecallatkError(f"ignore_same={self.ignore_same!r}: join columns by +, such as camera+label, or none")

    @property
    def ignore_columns(self) -> tuple[str, ...]:
        """The columns of `ignore_same`; empty when nothing is ignored."""
        return () if self.ignore_same == "none" else tuple(self.ignore_same.split("+"))


_CHOICES: dict[str, tuple[str, ...]] = {
    "exclude_self": get_args(ExcludeSelf),
    "relevance": get_args(RelevanceKind),
    "no_positive": get_args(NoPositive),
    "ties": get_args(Ties),
    "average": get_args(Average),
    "similarity": get_args(Similarity),
}


def _as_cutoffs(ks: Any) -> tuple[int, ...]:
    values = [ks] if isinstance(ks, int | float | str) else list(ks)
    cutoffs = set()
    for k in values:
        try:
            number = operator.index(k)  # type: ignore[arg-type]  # anything may be handed over: that is the check
        except TypeError:
            number = 0
        if number < 1 or isinstance(k, bool):
            raise ChoiceError(f"k={k!r} is not a cutoff; every k must be a whole number of at least 1")
        cutoffs.add(number)
    if not cutoffs:
        raise ChoiceError("no k was given; name at least one cutoff, such as ks=(1, 5, 10)")
    return tuple(sorted(cutoffs))


def as_numbers(values: Any, name: str) -> npt.NDArray[Any]:
    """Anything that an array library or a list holds, as a numpy array of real numbers.

    Torch tensors are detached and moved to the CPU (bfloat16 becomes float32, which is exact).

    Raises:
        RecallatkError: rows of different length, or not real numbers.
    """
    if hasattr(values, "detach"):
        tensor = values.detach().cpu()
        values = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
    try:
        array = np.asanyarray(values)
    except ValueError as error:
        raise RecallatkError(f"{name}: rows of different length are no (n, d) array ({error})") from error
    if array.dtype.kind not in "fiu" and array.size:
        raise RecallatkError(f"{name}: the dtype is {array.dtype}, not numeric; embeddings are rows of real numbers")
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
    """The rows as float32, a block at a time: (first row, block). Overflow becomes infinity, which is checked."""
    for start in range(0, len(embeddings), rows_a_block):
        with np.errstate(over="ignore", invalid="ignore"):
            yield start, np.asarray(embeddings[start : start + rows_a_block], dtype=np.float32)


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
        RecallatkError: a float, an empty text, or integers and text in one column.
    """
    shape = getattr(values, "shape", (len(values),) if isinstance(values, Sequence) else (0,))
    if len(shape) != 1:
        raise RecallatkError(f"{name}: the labels have shape {tuple(shape)}; give one label a row, or a list of lists")
    if hasattr(values, "tolist"):
        values = values.tolist()
    labels: list[Label] = []
    kinds: dict[LabelKind, Any] = {}

    def text(value: Any, row: int) -> str:
        if isinstance(value, str):
            if not value:
                raise RecallatkError(f"{name}: row {row} has an empty label; give it one, or leave the row out")
            kinds.setdefault(kind, value)
            return unicodedata.normalize("NFC", value)
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
    return tuple(labels), next(iter(kinds), kind)


def _as_texts(values: Iterable[Any]) -> tuple[str, ...]:
    listed = values.tolist() if hasattr(values, "tolist") else values
    # None and NaN (an empty cell of a data frame) are an empty text, which says "unknown".
    return tuple("" if value is None or value != value else str(value) for value in listed)


def _normalise_columns(rows: ImageSet | EmbeddingSet, n: int, noun: str, name: str) -> None:
    """Bring ids, labels, same, groups and content to tuples of text, and check that all are aligned."""
    labels, kind = as_labels(rows.labels, name, kind=rows.label_kind)
    columns: dict[str, tuple[Any, ...]] = {"labels": labels}
    for field in ("ids", "same", "content"):
        values = getattr(rows, field, None)
        if values is not None:
            columns[field] = _as_texts(values)
    groups = {column: _as_texts(values) for column, values in rows.groups.items()}
    for column, values in (*columns.items(), *groups.items()):
        if len(values) != n:
            raise RecallatkError(f"{name}: {len(values)} {column} for {n} {noun}; there must be one for each")
    for field, values in columns.items():
        object.__setattr__(rows, field, values)
    object.__setattr__(rows, "groups", groups)
    object.__setattr__(rows, "label_kind", kind)
    ids = columns.get("ids")
    if ids is not None and len(set(ids)) != n:
        seen: set[str] = set()
        twice = next(i for i in ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise RecallatkError(f"{name}: the id {twice!r} occurs more than once; ids must be unique within a set")


def _take_columns(rows: ImageSet | EmbeddingSet, index: Sequence[int]) -> dict[str, Any]:
    def pick(values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        return None if values is None else tuple(values[r] for r in index)

    return {
        "ids": pick(rows.ids),
        "labels": pick(rows.labels),
        "same": pick(rows.same),
        "groups": {column: pick(values) for column, values in rows.groups.items()},
    }
