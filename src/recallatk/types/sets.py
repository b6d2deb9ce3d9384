"""What is on disk, and what an encoder made of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from recallatk.types.checks import Label, LabelKind, as_ids, as_rows, take_rows, unusable_rows
from recallatk.types.columns import normalise_columns, take_columns
from recallatk.types.errors import RecallatkError
from recallatk.types.protocol import EvalProtocol
from recallatk.types.texts import RowNumbers

if TYPE_CHECKING:
    from pathlib import Path

OnError: TypeAlias = Literal["error", "skip"]
ElementKind: TypeAlias = Literal["image", "text"]

Box: TypeAlias = tuple[int, int, int, int]
"""A part of a picture in whole pixels: left, top, right, bottom (x1, y1, x2, y2); right and bottom are outside."""


@runtime_checkable
class Stored(Protocol):
    """An image that is stored and can be read when it is needed: a `Path`, or a place in a larger file.

    Elements that are none of paths must be hashable, and equal where they lead to the same bytes. Where they lie in a
    larger file, its path is the attribute `file`: a change is noticed by it.
    """

    def read_bytes(self) -> bytes:
        """The bytes of an image file, as they are stored.

        Raises:
            OSError: they cannot be read.
        """


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A file or row that was left out because it could not be used (`--on-error skip`)."""

    item: str
    reason: str


class Samples(Protocol):
    """The columns of a set of samples: all that relevance looks at."""

    @property
    def labels(self) -> tuple[Label, ...]:
        """One label a row, or a tuple of several; an empty tuple is no label."""

    @property
    def ids(self) -> tuple[str, ...] | None:
        """Unique names; None where there are none."""

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Named columns."""

    @property
    def content(self) -> Sequence[str] | None:
        """sha256 of each image's bytes."""

    @property
    def positions(self) -> npt.NDArray[np.float64] | None:
        """(n, 2) coordinates in metres."""

    @property
    def label_kind(self) -> LabelKind:
        """What the labels were before they became text."""

    @property
    def name(self) -> str:
        """How messages call this set."""

    @property
    def row_ids(self) -> Sequence[str]:
        """The ids, or row numbers where none were given."""

    @property
    def identity(self) -> tuple[str, ...] | None:
        """What makes two rows the same image; None when nothing is known."""

    def __len__(self) -> int:
        """The number of rows."""


@dataclasses.dataclass(frozen=True, eq=False)
class Qrels:
    """Judged pairs: who is relevant for whom, and how much. One entry a pair, each pair once.

    Attributes:
        query_ids: the id of each pair's query.
        gallery_ids: the id of each pair's gallery item.
        grades: whole numbers; from the protocol's `min_grade` on a pair is positive, below it is a negative.
        levels: a text for each pair, such as "easy", "hard" or "junk"; the protocol's `level` says what they mean.
    """

    query_ids: tuple[str, ...]
    gallery_ids: tuple[str, ...]
    grades: npt.NDArray[np.int64]
    levels: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _normalise_pairs(self, "qrels")
        n = len(self.query_ids)
        for name, column in (("gallery ids", self.gallery_ids), ("grades", self.grades), ("levels", self.levels)):
            if column is not None and len(column) != n:
                raise RecallatkError(f"qrels: {len(column)} {name} for {n} query ids; there must be one for each")
        pairs = list(zip(self.query_ids, self.gallery_ids, strict=True))
        if len(set(pairs)) != n:
            query, gallery = next(pair for pair, times in Counter(pairs).items() if times > 1)
            raise RecallatkError(f"qrels: the pair {query!r}, {gallery!r} is judged more than once; keep one")

    def __len__(self) -> int:
        return len(self.query_ids)


@dataclasses.dataclass(frozen=True, eq=False)
class RankedLists:
    """What a system returned: gallery items with scores. One entry a returned item, in any order.

    Attributes:
        query_ids: the id of each entry's query.
        gallery_ids: the id of each entry's gallery item.
        scores: higher is nearer; equal scores of a query are ties.
    """

    query_ids: tuple[str, ...]
    gallery_ids: tuple[str, ...]
    scores: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        _normalise_pairs(self, "ranked lists")
        n = len(self.query_ids)
        if len(self.gallery_ids) != n or len(self.scores) != n:
            raise RecallatkError(
                f"ranked lists: {len(self.gallery_ids)} gallery ids and {len(self.scores)} scores for {n} query ids; "
                "there must be one for each"
            )
        bad = np.flatnonzero(np.isnan(self.scores))
        if len(bad):
            raise RecallatkError(f"ranked lists: entry {bad[0]} of query {self.query_ids[bad[0]]!r} has the score NaN")


@dataclasses.dataclass(frozen=True, eq=False)
class ImageSet:
    """One side of a data set as it lies on disk; nothing is decoded yet.

    Attributes:
        elements: a path or another `Stored` image for each (in `evaluate`, whatever the caller's encoder takes).
        ids: unique names, the path below DATA with "/".
        labels: one label a sample, or a tuple of several.
        same: what makes two elements *the same image* (default: the id); datasets set the resolved file.
        groups: named columns such as `camera`, one text a sample.
        positions: (n, 2) coordinates in metres, such as UTM easting and northing.
        label_kind: what the labels were before they became text.
        boxes: the part of each picture that is the image (None: all of it); ids and `same` tell boxes apart.
        kind: what the elements are: images, or texts, which only an encoder with `encode_texts` takes.
    """

    elements: tuple[Any, ...]
    ids: tuple[str, ...]
    labels: tuple[Label, ...]
    same: tuple[str, ...] | None = None
    groups: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    positions: npt.NDArray[np.float64] | None = None
    label_kind: LabelKind = "text"
    boxes: tuple[Box | None, ...] | None = None
    kind: ElementKind = "image"

    def __post_init__(self) -> None:
        normalise_columns(self, len(self.elements), f"{self.kind}s", f"{self.kind} set")
        if self.boxes is not None and len(self.boxes) != len(self.elements):
            raise RecallatkError(f"image set: {len(self.boxes)} boxes for {len(self.elements)} images; give one each")

    def __len__(self) -> int:
        return len(self.elements)

    def take(self, rows: Sequence[int]) -> ImageSet:
        """The set of these rows, in this order."""
        boxes = None if self.boxes is None else tuple(self.boxes[r] for r in rows)
        elements = tuple(self.elements[r] for r in rows)
        return dataclasses.replace(self, elements=elements, boxes=boxes, **take_columns(self, rows))


@dataclasses.dataclass(frozen=True)
class View:
    """One of several evaluations that are made of one encoding.

    Attributes:
        swapped: from the gallery to the queries.
        fold: only the rows of both sides that have this value in the column `fold`; None: all rows.
        mean_of: what the values are averaged under, over the folds; empty: they stand alone.
    """

    swapped: bool = False
    fold: str | None = None
    mean_of: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """What a layout yields: two sides (or one, for leave-one-out) and what was noticed on the way.

    Attributes:
        query: the queries.
        gallery: the gallery; None means leave-one-out, every image is query and gallery.
        root: the folder that ids are relative to.
        skipped: what the layout itself had to leave out (rows whose file is missing, with `on_error="skip"`).
        qrels: judged pairs, where the data set has them.
        protocol: what the data set is evaluated by where nothing else is said; None: the defaults.
        metrics: what is published beside recall@k.
        views: the evaluations that are made of one encoding, by name, such as both directions; empty: this one alone.
        source: how it was read, as JSON values: the arguments that give it again.
        notes: one line for each thing that was left aside or converted, for the reader of the report.
        warnings: one line for each thing that can make the number look right and be wrong.
    """

    query: ImageSet
    gallery: ImageSet | None
    root: Path
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    qrels: Qrels | None = None
    protocol: EvalProtocol | None = None
    metrics: tuple[str, ...] = ()
    views: Mapping[str, View] = dataclasses.field(default_factory=dict)
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class _Rows:
    """What rows are called, whether they come with embeddings or without."""

    ids: tuple[str, ...] | None
    same: tuple[str, ...] | None

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def row_ids(self) -> Sequence[str]:
        """The ids, or row numbers where none were given."""
        return RowNumbers(len(self)) if self.ids is None else self.ids

    @property
    def identity(self) -> tuple[str, ...] | None:
        """What makes two rows the same image; None when nothing is known."""
        return self.same if self.same is not None else self.ids


@dataclasses.dataclass(frozen=True, eq=False)
class EmbeddingSet(_Rows):
    """Embeddings with what is known of each row; checked once, trusted afterwards.

    Attributes:
        embeddings: (n, d) real numbers of any dtype; every row finite and non-zero as float32.
        labels: one label a row, or a tuple of several; integers become decimal text, floats are refused. None: no row
            has a label (with relevance by radius or qrels).
        ids: unique names, or None where there are none (rows are then named by number and never match across sets).
        same: what makes two rows *the same image* (default: the id); need not be unique.
        groups: named columns such as `camera`, one text a row.
        content: sha256 of each image's bytes, in hex.
        positions: (n, 2) coordinates in metres, such as UTM easting and northing.
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
    content: Sequence[str] | None = None
    positions: npt.NDArray[np.float64] | None = None
    label_kind: LabelKind = "text"
    name: str = "embeddings"

    def __post_init__(self) -> None:
        array = as_rows(self.embeddings, self.name)
        object.__setattr__(self, "embeddings", array)
        normalise_columns(self, len(array), "embedding rows", self.name)
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

    def take(self, rows: Sequence[int]) -> EmbeddingSet:
        """The set of these rows, in this order."""
        index = np.asarray(rows, dtype=np.int64)
        return dataclasses.replace(self, embeddings=take_rows(self.embeddings, index), **take_columns(self, rows))


@dataclasses.dataclass(frozen=True, eq=False)
class SampleSet(_Rows):
    """Samples of which somebody else computed the similarities; the attributes are those of `EmbeddingSet`."""

    labels: tuple[Label, ...]
    ids: tuple[str, ...] | None = None
    same: tuple[str, ...] | None = None
    groups: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    content: Sequence[str] | None = None
    positions: npt.NDArray[np.float64] | None = None
    label_kind: LabelKind = "text"
    name: str = "samples"

    def __post_init__(self) -> None:
        given: Any = self.ids if self.labels is None else self.labels
        normalise_columns(self, 0 if given is None else len(given), "samples", self.name)

    def __len__(self) -> int:
        return len(self.labels)


def _normalise_pairs(pairs: Qrels | RankedLists, name: str) -> None:
    """Bring ids to the text that the ids of samples become."""
    for field in ("query_ids", "gallery_ids"):
        object.__setattr__(pairs, field, as_ids(getattr(pairs, field), name))
