"""Who is positive for a query, and who is ignored: asked for a block of queries at a time."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from recallatk.relevance.matching import Matcher, Matching, PairMatching, RadiusMatching, Rows, owners_of, starts_of
from recallatk.types import EvalProtocol, Label, Qrels, RecallatkError, Samples

__all__ = ["Judgements", "Matcher", "Relevance", "build_relevance", "check_labels_agree"]


@dataclasses.dataclass(frozen=True)
class Judgements:
    """The positive and the ignored gallery rows of a block of queries.

    The rows of the i-th query of the block are `positive_rows[positive_starts[i]:positive_starts[i + 1]]`, ascending;
    ignored rows likewise. No row is both. `positive_grades` are the grades of the positives where they have some.
    """

    positive_starts: Rows
    positive_rows: Rows
    ignored_starts: Rows
    ignored_rows: Rows
    positive_grades: Rows | None = None

    @property
    def positive_queries(self) -> Rows:
        """The place in the block of the query that each positive belongs to."""
        return owners_of(self.positive_starts)

    @property
    def ignored_queries(self) -> Rows:
        """The place in the block of the query that each ignored row belongs to."""
        return owners_of(self.ignored_starts)


@dataclasses.dataclass(frozen=True)
class Relevance:
    """Who is positive and who is ignored for each query.

    Attributes:
        n_queries: the number of queries.
        n_gallery: the number of gallery items.
        positive: who is positive, before anything is ignored.
        no_match: why a query has no positive when `positive` matches nothing, in words.
        ignored: the rules that make gallery items not exist for a query, each by words that fit after "every positive
            is".
        doubts: what can make the number look right and be wrong, a line each.
    """

    n_queries: int
    n_gallery: int
    positive: Matcher
    no_match: str
    ignored: Mapping[str, Matcher]
    doubts: tuple[str, ...] = ()

    @property
    def pairs(self) -> Rows:
        """For each query, at most how many gallery rows are judged: what a block of queries costs in memory."""
        return self.positive.pairs + sum((rule.pairs for rule in self.ignored.values()), np.int64(0))

    def judge(self, queries: slice | Rows) -> Judgements:
        """The positive and the ignored rows of these queries."""
        rows = np.arange(queries.start, queries.stop) if isinstance(queries, slice) else queries
        ignored = self._keys(rows, self.ignored.values())
        positive = self._keys(rows, [self.positive])
        kept = ~np.isin(positive, ignored, assume_unique=True)
        grades = self.positive.grades_of(rows)[kept] if isinstance(self.positive, PairMatching) else None
        return Judgements(*self._split(positive[kept], len(rows)), *self._split(ignored, len(rows)), grades)

    def judge_ignored(self, queries: Rows) -> tuple[Rows, Rows]:
        """The ignored rows alone of these queries: where each query's begin, and the rows."""
        return self._split(self._keys(queries, self.ignored.values()), len(queries))

    def groups(self, at_least: int) -> Iterator[tuple[Rows, Rows]]:
        """Queries that match the same gallery rows, before anything is ignored, with these rows.

        Only groups of so many queries and rows at least, and only where the rule knows of groups (labels do).
        """
        if isinstance(self.positive, Matching):
            yield from self.positive.groups(at_least)

    def why_no_positive(self, query: int) -> str:
        """Why this query has no positive, in words."""
        alone = np.array([query])
        positive = self._keys(alone, [self.positive])
        if not len(positive):
            return self.no_match
        for name, rule in self.ignored.items():
            if np.isin(positive, self._keys(alone, [rule])).all():
                return f"every positive is {name}"
        return f"every positive is {' or '.join(self.ignored)}"

    def _keys(self, queries: Rows, rules: Iterable[Matcher]) -> Rows:
        """Distinct pairs as sorted single numbers: place in the block x gallery size + gallery row."""
        parts = [owners * self.n_gallery + rows for owners, rows in (rule.match(queries) for rule in rules)]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    def _split(self, keys: Rows, n: int) -> tuple[Rows, Rows]:
        owners, rows = np.divmod(keys, max(self.n_gallery, 1))
        return starts_of(np.bincount(owners, minlength=n)), rows


def build_relevance(
    query: Samples, gallery: Samples | None, protocol: EvalProtocol, *, qrels: Qrels | None = None
) -> Relevance:
    """What the protocol says about these sets.

    Args:
        query: the queries.
        gallery: the gallery; None for leave-one-out, where a row is always the same image as itself.
        protocol: who is positive and who is ignored.
        qrels: judged pairs: the positives with `relevance="qrels"`; pairs that the level makes junk are ignored
            whatever the relevance.

    Raises:
        RecallatkError: integer labels on one side and text on the other, an id with two different labels, a column
            that is not there, or what a choice needs (image contents, positions, qrels, ids) is not there.
    """
    other = query if gallery is None else gallery
    if gallery is not None:
        _check_label_kinds(query, gallery)
        if query.ids is not None and gallery.ids is not None:
            check_labels_agree(query.ids, query.labels, gallery.ids, gallery.labels)
    judged = None if qrels is None else _Judged.of(query, other, qrels, protocol)
    positive, no_match = _positives(query, other, protocol, judged)
    return Relevance(
        n_queries=len(query),
        n_gallery=len(other),
        positive=positive,
        no_match=no_match,
        ignored=_ignored(query, gallery, protocol, judged),
        doubts=() if judged is None else judged.doubts,
    )


def _positives(query: Samples, gallery: Samples, protocol: EvalProtocol, judged: _Judged | None) -> tuple[Matcher, str]:
    """Who is positive, and the words for a query that nobody is positive for."""
    if protocol.relevance == "qrels":
        if judged is None:
            raise RecallatkError("relevance=qrels needs the judged pairs; hand over qrels=... (--qrels FILE)")
        return judged.positive, f"the qrels hold no positive for it ({judged.rule})"
    if protocol.relevance == "radius":
        positions = []
        for side in (query, gallery):
            if side.positions is None:
                raise RecallatkError(
                    f"{side.name}: relevance=radius needs a position for every row, in metres; a manifest has them in "
                    "the columns easting and northing (or x and y)"
                )
            positions.append(side.positions)
        return RadiusMatching(positions[0], positions[1], protocol.radius), f"nothing is within {protocol.radius:g} m"
    never = set(protocol.distractor_labels)
    keys = [tuple(label for label in labels if label not in never) for labels in _several(query.labels)]
    return Matching.of(keys, _several(gallery.labels)), "no gallery item shares its label" + (
        f" (distractor labels count for none: {', '.join(protocol.distractor_labels)})" if never else ""
    )


def _ignored(
    query: Samples, gallery: Samples | None, protocol: EvalProtocol, judged: _Judged | None
) -> dict[str, Matcher]:
    """The rules by which gallery items do not exist for a query, in the user's words."""
    other = query if gallery is None else gallery
    rules: dict[str, Matcher] = {}
    if protocol.exclude_self != "none":
        rule = "the query itself" if protocol.exclude_self == "id" else "an image with the query's bytes"
        rules[f"{rule} (exclude_self={protocol.exclude_self})"] = _match_self(query, gallery, protocol)
    if protocol.ignore_columns:
        names = " and ".join(protocol.ignore_columns)
        rules[f"of the query's {names} (ignore_same={protocol.ignore_same})"] = Matching.of(
            _column_keys(query, protocol.ignore_columns), _column_keys(other, protocol.ignore_columns)
        )
    if protocol.junk_labels:
        junk = set(protocol.junk_labels)
        is_junk = [("junk",) if junk.intersection(labels) else () for labels in _several(other.labels)]
        rules[f"of a junk label ({', '.join(protocol.junk_labels)})"] = Matching.of([("junk",)] * len(query), is_junk)
    if judged is not None:
        rules[f"junk by the qrels ({judged.rule})"] = judged.junk
    return rules


@dataclasses.dataclass(frozen=True)
class _Judged:
    """Qrels as pairs of rows, parted by the protocol's level and grade."""

    positive: PairMatching
    junk: PairMatching
    rule: str
    doubts: tuple[str, ...]

    @classmethod
    def of(cls, query: Samples, gallery: Samples, qrels: Qrels, protocol: EvalProtocol) -> _Judged:
        for side in (query, gallery):
            if side.ids is None:
                raise RecallatkError(f"{side.name}: qrels name rows by id, and these have no ids; give them ids")
        query_rows = {name: row for row, name in enumerate(query.ids or ())}
        gallery_rows = {name: row for row, name in enumerate(gallery.ids or ())}
        owners = np.array([query_rows.get(name, -1) for name in qrels.query_ids], dtype=np.int64)
        rows = np.array([gallery_rows.get(name, -1) for name in qrels.gallery_ids], dtype=np.int64)
        known = (owners >= 0) & (rows >= 0)
        positive = known & (qrels.grades >= protocol.min_grade)
        junk = np.zeros(len(known), dtype=np.bool_)
        rule = f"min_grade={protocol.min_grade}"
        if qrels.levels is not None:
            levels = np.array(qrels.levels)
            positive_levels, junk_levels = LEVELS[protocol.level]
            junk = known & np.isin(levels, junk_levels)
            positive = known & ~junk & (np.isin(levels, positive_levels) if positive_levels else positive)
            rule = f"level={protocol.level}" if positive_levels else rule
        elif protocol.level != "none":
            raise RecallatkError(f"level={protocol.level} needs a level for every judged pair; the qrels have none")
        return cls(
            positive=PairMatching.of(len(query), owners[positive], rows[positive], qrels.grades[positive]),
            junk=PairMatching.of(len(query), owners[junk], rows[junk], qrels.grades[junk]),
            rule=rule,
            doubts=(
                *_strangers("queries", "query", [name for name in qrels.query_ids if name not in query_rows]),
                *_strangers("gallery items", "gallery", [n for n in qrels.gallery_ids if n not in gallery_rows]),
            ),
        )


LEVELS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "none": ((), ("junk",)),
    "easy": (("easy",), ("junk", "hard")),
    "medium": (("easy", "hard"), ("junk",)),
    "hard": (("hard",), ("junk", "easy")),
}
"""Level -> (levels of pairs that are positive, levels that are ignored), as in the Revisited Oxford and Paris sets.

At "none" the grade alone says what is positive.
"""


def _strangers(noun: str, side: str, names: Sequence[str]) -> list[str]:
    """A line when qrels name what is not there."""
    unknown = sorted(set(names))
    if not unknown:
        return []
    return [f"the qrels name {len(unknown)} {noun} that the {side} side does not have (such as {unknown[0]!r})"]


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


def _check_label_kinds(query: Samples, gallery: Samples) -> None:
    sides = {side.label_kind: side for side in (gallery, query) if any(side.labels)}
    if len(sides) == 2:
        words = {"integer": "integers (int)", "text": "text (str)"}
        raise RecallatkError(
            f"{query.name}: the labels are {words[query.label_kind]}, {gallery.name}: the labels are "
            f"{words[gallery.label_kind]}; 1 and '1' may be different things, so convert one side"
        )


def _match_self(query: Samples, gallery: Samples | None, protocol: EvalProtocol) -> Matching:
    other = query if gallery is None else gallery
    if protocol.exclude_self == "content":
        for side in (query, other):
            if side.content is None:
                raise RecallatkError(
                    f"{side.name}: exclude_self=content needs the sha256 of every image, which these rows do not "
                    "carry; evaluate the images, or use exclude_self=id"
                )
        return Matching.of(_single(query.content or ()), _single(other.content or ()))
    if gallery is None:
        identity = query.identity or query.row_ids
        return Matching.of(_single(identity), _single(identity))
    if query.identity is None or gallery.identity is None:
        return Matching.of([()] * len(query), [()] * len(gallery))
    return Matching.of(_single(query.identity), _single(gallery.identity))


def _column_keys(rows: Samples, columns: Sequence[str]) -> list[list[tuple[str, ...]]]:
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
