"""Who is positive for a query, and who is ignored: asked for a block of queries at a time."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from recallatk.types import EmbeddingSet, EvalProtocol, Label, RecallatkError

Rows = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Judgements:
    """The positive and the ignored gallery rows of a block of queries.

    The rows of the i-th query of the block are `positive_rows[positive_starts[i]:positive_starts[i + 1]]`, ascending;
    ignored rows likewise. No row is both.
    """

    positive_starts: Rows
    positive_rows: Rows
    ignored_starts: Rows
    ignored_rows: Rows

    @property
    def positive_queries(self) -> Rows:
        """The place in the block of the query that each positive belongs to."""
        return _owners(self.positive_starts)

    @property
    def ignored_queries(self) -> Rows:
        """The place in the block of the query that each ignored row belongs to."""
        return _owners(self.ignored_starts)


@dataclasses.dataclass(frozen=True)
class Matching:
    """Which gallery rows share a key with a query: keys are labels, identities, or values of group columns.

    Held as the keys of each query and the rows of each key, so its size is that of the data and never that of the
    matching pairs.
    """

    query_starts: Rows
    query_keys: Rows
    key_starts: Rows
    key_rows: Rows

    @classmethod
    def of(cls, query: Sequence[Iterable[Hashable]], gallery: Sequence[Iterable[Hashable]]) -> Matching:
        """Match queries and gallery rows by the keys that each of them has."""
        codes: dict[Hashable, int] = {}
        rows: list[int] = []
        row_keys: list[int] = []
        for row, keys in enumerate(gallery):
            for key in keys:
                rows.append(row)
                row_keys.append(codes.setdefault(key, len(codes)))
        known = [[codes[key] for key in keys if key in codes] for keys in query]
        by_key = np.argsort(np.array(row_keys, dtype=np.int64), kind="stable")
        return cls(
            query_starts=_starts(np.fromiter((len(keys) for keys in known), np.int64, len(known))),
            query_keys=np.fromiter(itertools.chain.from_iterable(known), np.int64),
            key_starts=_starts(np.bincount(np.array(row_keys, dtype=np.int64), minlength=len(codes))),
            key_rows=np.array(rows, dtype=np.int64)[by_key],
        )

    @property
    def pairs(self) -> Rows:
        """For each query, how many rows it matches (a row that shares several keys counts for each)."""
        sizes = np.diff(self.key_starts)[self.query_keys]
        return np.diff(np.concatenate([[0], np.cumsum(sizes)])[self.query_starts])

    def match(self, queries: slice) -> tuple[Rows, Rows]:
        """The matching pairs as (place in the block, gallery row); a pair may come more than once."""
        first, last = self.query_starts[queries.start], self.query_starts[queries.stop]
        keys = self.query_keys[first:last]
        owners = _owners(self.query_starts[queries.start : queries.stop + 1] - first)
        sizes = np.diff(self.key_starts)[keys]
        # The k-th pair of a key is the k-th row of that key's run in key_rows.
        offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.repeat(owners, sizes), self.key_rows[np.repeat(self.key_starts[keys], sizes) + offsets]


@dataclasses.dataclass(frozen=True)
class Relevance:
    """Who is positive and who is ignored for each query.

    Attributes:
        n_queries: the number of queries.
        n_gallery: the number of gallery items.
        positive: matches by label, before anything is ignored.
        ignored: the rules that make gallery items not exist for a query, each by words that fit after "every positive
            is".
    """

    n_queries: int
    n_gallery: int
    positive: Matching
    ignored: Mapping[str, Matching]

    @property
    def pairs(self) -> Rows:
        """For each query, at most how many gallery rows are judged: what a block of queries costs in memory."""
        return self.positive.pairs + sum((rule.pairs for rule in self.ignored.values()), np.int64(0))

    def judge(self, queries: slice) -> Judgements:
        """The positive and the ignored rows of the queries `queries.start` to `queries.stop`."""
        n = queries.stop - queries.start
        ignored = self._keys(queries, self.ignored.values())
        positive = np.setdiff1d(self._keys(queries, [self.positive]), ignored, assume_unique=True)
        return Judgements(*self._split(positive, n), *self._split(ignored, n))

    def why_no_positive(self, query: int) -> str:
        """Why this query has no positive, in words."""
        block = slice(query, query + 1)
        if len(self.positive.match(block)[0]) == 0:
            return "no gallery item shares its label"
        positive = self._keys(block, [self.positive])
        for name, rule in self.ignored.items():
            if np.isin(positive, self._keys(block, [rule])).all():
                return f"every positive is {name}"
        return f"every positive is {' or '.join(self.ignored)}"

    def _keys(self, queries: slice, rules: Iterable[Matching]) -> Rows:
        """Distinct pairs as sorted single numbers: place in the block x gallery size + gallery row."""
        parts = [owners * self.n_gallery + rows for owners, rows in (rule.match(queries) for rule in rules)]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    def _split(self, keys: Rows, n: int) -> tuple[Rows, Rows]:
        owners, rows = np.divmod(keys, max(self.n_gallery, 1))
        return _starts(np.bincount(owners, minlength=n)), rows


def build_relevance(query: EmbeddingSet, gallery: EmbeddingSet | None, protocol: EvalProtocol) -> Relevance:
    """What the protocol says about these sets.

    Args:
        query: the queries.
        gallery: the gallery; None for leave-one-out, where a row is always the same image as itself.
        protocol: `exclude_self`, `ignore_same` and `relevance` are used.

    Raises:
        RecallatkError: integer labels on one side and text on the other, an id with two different labels, a column
            that is not there, or `exclude_self="content"` without image contents.
    """
    other = query if gallery is None else gallery
    if gallery is not None:
        _check_label_kinds(query, gallery)
        if query.ids is not None and gallery.ids is not None:
            check_labels_agree(query.ids, query.labels, gallery.ids, gallery.labels)
    ignored = {}
    if protocol.exclude_self != "none":
        rule = "the query itself" if protocol.exclude_self == "id" else "an image with the query's bytes"
        ignored[f"{rule} (exclude_self={protocol.exclude_self})"] = _match_self(query, gallery, protocol)
    if protocol.ignore_columns:
        names = " and ".join(protocol.ignore_columns)
        ignored[f"of the query's {names} (ignore_same={protocol.ignore_same})"] = Matching.of(
            _column_keys(query, protocol.ignore_columns), _column_keys(other, protocol.ignore_columns)
        )
    return Relevance(
        n_queries=len(query),
        n_gallery=len(other),
        positive=Matching.of(_several(query.labels), _several(other.labels)),
        ignored=ignored,
    )


def check_labels_agree(
    query_ids: Sequence[str], query_labels: Sequence[Label], gallery_ids: Sequence[str], gallery_labels: Sequence[Label]
) -> None:
    """Refuse an id that names a query with one label and a gallery item with another.

    Raises:
        RecallatkError: names the first such id and both labels.
    """
    in_gallery = dict(zip(gallery_ids, gallery_labels, strict=True))
    for identifier, label in zip(query_ids, query_labels, strict=True):
        if identifier in in_gallery and in_gallery[identifier] != label:
            raise RecallatkError(
                f"id {identifier!r} has the label {label!r} as a query and {in_gallery[identifier]!r} in the gallery; "
                "equal ids mean the same image, so give different images different ids"
            )


def _check_label_kinds(query: EmbeddingSet, gallery: EmbeddingSet) -> None:
    sides = {side.label_kind: side for side in (gallery, query) if any(side.labels)}
    if len(sides) == 2:
        words = {"integer": "integers (int)", "text": "text (str)"}
        raise RecallatkError(
            f"{query.name}: the labels are {words[query.label_kind]}, {gallery.name}: the labels are "
            f"{words[gallery.label_kind]}; 1 and '1' may be different things, so convert one side"
        )


def _match_self(query: EmbeddingSet, gallery: EmbeddingSet | None, protocol: EvalProtocol) -> Matching:
    other = query if gallery is None else gallery
    if protocol.exclude_self == "content":
        for side in (query, other):
            if side.content is None:
                raise RecallatkError(
                    f"{side.name}: exclude_self=content needs the sha256 of every image, which these embeddings do not "
                    "carry; evaluate the images, or use exclude_self=id"
                )
        return Matching.of(_single(query.content or ()), _single(other.content or ()))
    if gallery is None:
        identity = query.identity or query.row_ids
        return Matching.of(_single(identity), _single(identity))
    if query.identity is None or gallery.identity is None:
        return Matching.of([()] * len(query), [()] * len(gallery))
    return Matching.of(_single(query.identity), _single(gallery.identity))


def _column_keys(rows: EmbeddingSet, columns: Sequence[str]) -> list[list[tuple[str, ...]]]:
    """For each row its combinations of values; an empty cell is unknown and matches nothing."""
    values: list[Sequence[tuple[str, ...]]] = []
    for column in columns:
        if column == "label":
            values.append(_several(rows.labels))
        elif column in rows.groups:
            values.append(_single(rows.groups[column]))
        else:
            known = ", ".join(["label", *sorted(rows.groups)])
            raise RecallatkError(f"{rows.name}: ignore_same names the column {column!r}, but the columns are: {known}")
    return [list(itertools.product(*cells)) for cells in zip(*values, strict=True)]


def _single(values: Sequence[str]) -> list[tuple[str, ...]]:
    # An empty text is unknown and matches nothing.
    return [(value,) if value else () for value in values]


def _several(labels: Sequence[Label]) -> list[tuple[str, ...]]:
    return [(label,) if isinstance(label, str) else label for label in labels]


def _starts(counts: npt.NDArray[np.int64]) -> Rows:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def _owners(starts: Rows) -> Rows:
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))
