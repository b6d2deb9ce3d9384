"""From sets and a protocol to the rules: who is positive, who is ignored, and what cannot be."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from recallatk.relevance.judgements import Relevance
from recallatk.relevance.matching import Keys, Matcher, Matching, OwnRow, PairMatching, RadiusMatching
from recallatk.types import (
    EmbeddingSet,
    EvalProtocol,
    Label,
    Memo,
    Qrels,
    RecallatkError,
    Samples,
    SampleSet,
    distinct_labels,
    each_label,
)


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
    if gallery is not None and any(query.labels) and any(gallery.labels):
        _check_label_kinds(_sides(query, gallery))
        if query.ids is not None and gallery.ids is not None:
            check_labels_agree(query.ids, query.labels, gallery.ids, gallery.labels)
    if qrels is None and protocol.level != "none":
        raise RecallatkError(f"level={protocol.level} needs judged pairs; hand over qrels=... (--qrels FILE)")
    judged = None if qrels is None else _Judged.of(_sides(query, gallery), qrels, protocol)
    positive, no_match = _positives(_sides(query, gallery), protocol, judged)
    if protocol.distractor_labels:
        no_match += f" (distractor labels count for none: {', '.join(protocol.distractor_labels)})"
    return Relevance(
        n_queries=len(query),
        n_gallery=len(other),
        positive=positive,
        no_match=no_match,
        ignored=_ignored(query, gallery, protocol, judged),
        distractors=_have_label(other, protocol.distractor_labels) if protocol.distractor_labels else None,
        doubts=(*_unused_labels(other, protocol), *(() if judged is None else judged.doubts)),
    )


def side_names(query: Samples, gallery: Samples | None) -> tuple[str, str]:
    """How messages call the two sides: by role, and by name where they have one; alone a set has no role.

    >>> side_names(SampleSet(["a"]), SampleSet(["a"], name="shop.npz"))
    ('query', 'gallery (shop.npz)')
    """
    if gallery is None:
        return query.name, query.name
    unnamed = {"query", "gallery", EmbeddingSet.name, SampleSet.name}
    sides = (("query", query.name), ("gallery", gallery.name))
    named = (name if name.startswith(role) else f"{role} ({name})" for role, name in sides)
    first, second = (role if name in unnamed else shown for (role, name), shown in zip(sides, named, strict=True))
    return first, second


Sides = Sequence[tuple[str, Samples]]
"""Queries and gallery, each with how messages call it."""


def _sides(query: Samples, gallery: Samples | None) -> Sides:
    return list(zip(side_names(query, gallery), (query, query if gallery is None else gallery), strict=True))


def _positives(sides: Sides, protocol: EvalProtocol, judged: _Judged | None) -> tuple[Matcher, str]:
    """Who is positive, and the words for a query that nobody is positive for."""
    if protocol.relevance == "qrels":
        if judged is None:
            raise RecallatkError("relevance=qrels needs the judged pairs; hand over qrels=... (--qrels FILE)")
        return judged.positive, f"the qrels hold no positive for it ({judged.rule})"
    if protocol.relevance == "radius":
        positions = []
        for name, side in sides:
            if side.positions is None:
                raise RecallatkError(
                    f"{name}: relevance=radius needs a position for every row, in metres; a manifest has them in "
                    "the columns easting and northing (or x and y)"
                )
            positions.append(side.positions)
        return RadiusMatching(positions[0], positions[1], protocol.radius), f"nothing is within {protocol.radius:g} m"
    (_, query), (_, gallery) = sides
    return _matching(query.labels, gallery.labels, _label_keys), "no gallery item shares its label"


def _ignored(
    query: Samples, gallery: Samples | None, protocol: EvalProtocol, judged: _Judged | None
) -> dict[str, Matcher]:
    """The rules by which gallery items do not exist for a query, in the user's words."""
    sides = _sides(query, gallery)
    other = sides[1][1]
    rules: dict[str, Matcher] = {}
    if protocol.exclude_self == "id":
        rules["the query itself (exclude_self=id)"] = _itself(query, gallery)
    if protocol.exclude_self == "content":
        for name, side in sides:
            if side.content is None:
                raise RecallatkError(
                    f"{name}: exclude_self=content needs the sha256 of every image, which these rows do not carry; "
                    "evaluate the images, or use exclude_self=id"
                )
        contents = same_image_keys(query, gallery, by="content")
        rules["an image with the query's bytes (exclude_self=content)"] = _matching(*contents, Keys.known)
    if protocol.ignore_columns:
        names = " and ".join(protocol.ignore_columns)
        keys = [_column_keys(name, side, protocol.ignore_columns) for name, side in sides]
        rules[f"of the query's {names} (ignore_same={protocol.ignore_same})"] = Matching.of(*keys)
    if protocol.junk_labels:
        is_junk = Keys.known(_have_label(other, protocol.junk_labels).tolist())
        everybody = Keys.known([True] * len(query))
        rules[f"of a junk label ({', '.join(protocol.junk_labels)})"] = Matching.of(everybody, is_junk)
    if judged is not None:
        rules[f"junk by the qrels ({judged.rule})"] = judged.junk
    return rules


def _itself(query: Samples, gallery: Samples | None) -> Matcher:
    """Which gallery rows are the query itself."""
    own = query.identity
    if gallery is None and (own is None or own is query.ids):  # ids are unique
        return OwnRow(len(query), len(query))
    if gallery is not None and (own is None or gallery.identity is None):  # made-up names never match across sets
        return OwnRow(len(query), 0)
    return _matching(*same_image_keys(query, gallery, by="identity"), Keys.known)


def _have_label(rows: Samples, labels: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Whether each row has one of these labels."""
    named = set(labels)
    has: Memo[Label, bool] = Memo(lambda label: not named.isdisjoint(each_label(label)))
    return np.array(has.each(rows.labels), dtype=np.bool_)


def _unused_labels(gallery: Samples, protocol: EvalProtocol) -> list[str]:
    """A line when a label that the protocol names is nobody's: most likely a slip."""
    if not protocol.junk_labels and not protocol.distractor_labels:
        return []
    there = distinct_labels(gallery.labels)
    named = {"junk_labels": protocol.junk_labels, "distractor_labels": protocol.distractor_labels}
    absent = {field: [label for label in labels if label not in there] for field, labels in named.items()}
    return [
        f"{field}: no gallery item has the label {' or '.join(map(repr, labels))}"
        for field, labels in absent.items()
        if labels
    ]


@dataclasses.dataclass(frozen=True)
class _Judged:
    """Qrels as pairs of rows, parted by the protocol's level and grade."""

    positive: PairMatching
    junk: PairMatching
    rule: str
    doubts: tuple[str, ...]

    @classmethod
    def of(cls, sides: Sides, qrels: Qrels, protocol: EvalProtocol) -> _Judged:
        for name, side in sides:
            if side.ids is None:
                raise RecallatkError(f"{name}: qrels name rows by id, and these have no ids; give them ids")
        (_, query), (_, gallery) = sides
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
            positive &= ~junk
            if positive_levels:
                strange = sorted(set(qrels.levels) - {"easy", "hard", "junk", ""})
                if strange:
                    raise RecallatkError(
                        f"qrels: {strange[0]!r} is no level; pairs are easy, hard or junk, or have none"
                    )
                positive &= np.isin(levels, positive_levels)
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
    """Refuse an id that names a query with one label and a gallery item with another; an empty id names nothing.

    Raises:
        RecallatkError: names the first such id and both labels.
    """
    shared = set(query_ids).intersection(gallery_ids)
    in_gallery: dict[str, set[tuple[str, ...]]] = {}
    for identifier, label in zip(gallery_ids, gallery_labels, strict=True) if shared else ():
        if identifier in shared:
            in_gallery.setdefault(identifier, set()).add(each_label(label))
    for identifier, label in zip(query_ids, query_labels, strict=True):
        others = in_gallery.get(identifier, set()) - {each_label(label)}
        if identifier and others:
            raise RecallatkError(
                f"id {identifier!r} has the label {_shown(each_label(label))} as a query and {_shown(min(others))} in "
                "the gallery; equal ids mean the same image, so give different images different ids"
            )


def _shown(labels: tuple[str, ...]) -> str:
    return repr(labels[0] if len(labels) == 1 else labels)


def _check_label_kinds(sides: Sides) -> None:
    words = {"integer": "integers (int)", "text": "text (str)"}
    first, second = (f"{name}: the labels are {words[side.label_kind]}" for name, side in sides)
    if sides[0][1].label_kind != sides[1][1].label_kind:
        raise RecallatkError(f"{first}, {second}; 1 and '1' may be different things, so convert one side")


def same_image_keys(
    query: Samples, gallery: Samples | None, *, by: Literal["identity", "content"]
) -> tuple[Sequence[str | int], Sequence[str | int]]:
    """A key of each query and each gallery row, equal where both are the same image.

    What is unknown has an empty key and is the same as nothing, but alone a row is always the same as itself.
    """
    own = query.identity if by == "identity" else query.content
    if gallery is None:
        keys = range(1, len(query) + 1) if own is None else [value or row for row, value in enumerate(own, start=1)]
        return keys, keys
    other = gallery.identity if by == "identity" else gallery.content
    if own is None or other is None:  # made-up names never match across sets
        return [""] * len(query), [""] * len(gallery)
    return own, other


Column = TypeVar("Column")


def _matching(query: Column, gallery: Column, keys: Callable[[Column], Keys]) -> Matching:
    """Match two columns, which are one and the same for leave-one-out."""
    own = keys(query)
    return Matching.of(own, own if gallery is query else keys(gallery))


def _label_keys(labels: Sequence[Label]) -> Keys:
    return Keys.of(Memo(each_label).each(labels)) if tuple in set(map(type, labels)) else Keys.known(labels)


def _column_keys(name: str, rows: Samples, columns: Sequence[str]) -> Keys:
    """For each row its combinations of values; an empty cell is unknown and matches nothing."""
    values: list[list[tuple[str, ...]]] = []
    for column in columns:
        if column == "label":
            values.append(Memo(each_label).each(rows.labels))
        elif column in rows.groups:
            values.append(Memo(_cell_keys).each(rows.groups[column]))
        else:
            there = ", ".join(["label", *sorted(rows.groups)])
            raise RecallatkError(f"{name}: ignore_same names the column {column!r}, but the columns are: {there}")
    combinations: Memo[tuple[tuple[str, ...], ...], list[tuple[str, ...]]]
    combinations = Memo(lambda cells: list(itertools.product(*cells)))
    return Keys.of(combinations.each(zip(*values, strict=True)))


def _cell_keys(value: str) -> tuple[str, ...]:
    """The keys of a cell: an empty text is unknown and has none."""
    return (value,) if value else ()
