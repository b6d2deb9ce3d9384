"""The protocol: everything that can change the number."""

from __future__ import annotations

import dataclasses
import math
import operator
import unicodedata
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, get_args

from recallatk.types.checks import valid_text
from recallatk.types.errors import ChoiceError

LARGEST_K = 2**62
"""Ranks are 64-bit integers; no gallery is that large."""

ExcludeSelf: TypeAlias = Literal["id", "content", "none"]
RelevanceKind: TypeAlias = Literal["label", "labels", "radius", "qrels"]
Level: TypeAlias = Literal["none", "easy", "medium", "hard"]
NoPositive: TypeAlias = Literal["exclude", "miss", "error"]
Ties: TypeAlias = Literal["expected", "pessimistic", "optimistic"]
Average: TypeAlias = Literal["micro", "macro"]
Similarity: TypeAlias = Literal["cosine", "dot", "euclidean"]


def _part(key: str, default: Any) -> Any:
    return dataclasses.field(default=default, metadata={"part": key})


@dataclasses.dataclass(frozen=True)
class EvalProtocol:
    """Everything that can change the number, and nothing else.

    Its fields are the flags, the keys of a protocol file, the keys of the record and the parts of the signature.

    Attributes:
        ks: the cutoffs k of recall@k; positive integers, kept sorted and once each.
        exclude_self: which gallery items are the query itself and leave its ranking: those known to be the same image
            (id: the same file or id), those with the same bytes (content), or none.
        ignore_same: columns joined by "+", kept sorted and once each; a gallery item equal to the query in all of
            them takes no rank (`camera+label`, `sequence`). "none": nothing is ignored.
        relevance: what makes a gallery item positive: the same `label`, at least one shared of several `labels`, a
            position within the `radius`, or a judged pair (`qrels`).
        radius: with relevance=radius: how near a positive is, in metres, the border included.
        min_grade: with relevance=qrels: the least grade of a positive.
        level: with qrels that have levels: which are positive and which are ignored. easy: easy ones are, hard ones
            are ignored; medium: both are; hard: hard ones are, easy ones are ignored. Junk is always ignored.
        junk_labels: gallery items with one of these labels are ignored for every query.
        distractor_labels: gallery items with one of these labels are never positive, and take ranks.
        no_positive: a query without a positive is left out and counted, counted as a miss, or an error.
        ties: the order of equal similarities: the mean over all orders, negatives first, or positives first.
        average: the mean over queries (micro) or the mean of per-label means (macro; a query counts for each label).
        similarity: cosine; or dot or euclidean on the rows as they are.
    """

    ks: tuple[int, ...] = _part("k", (1, 5, 10))
    exclude_self: ExcludeSelf = _part("self", "id")
    ignore_same: str = _part("ign", "none")
    relevance: RelevanceKind = _part("rel", "label")
    radius: float = 25.0
    min_grade: int = 1
    level: Level = "none"
    junk_labels: tuple[str, ...] = ()
    distractor_labels: tuple[str, ...] = ()
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
        object.__setattr__(self, "ignore_same", _as_columns(self.ignore_same))
        for field in ("junk_labels", "distractor_labels"):
            object.__setattr__(self, field, _as_names(getattr(self, field)))
        try:
            object.__setattr__(self, "radius", float(self.radius))
            object.__setattr__(self, "min_grade", operator.index(self.min_grade))
        except (TypeError, ValueError) as error:
            raise ChoiceError(f"radius={self.radius!r}, min_grade={self.min_grade!r}: {error}") from error
        if not (0 < self.radius < math.inf):
            raise ChoiceError(f"radius={self.radius!r} is no radius; give metres above 0")
        if self.min_grade < 1:
            raise ChoiceError(f"min_grade={self.min_grade!r}: a positive has a grade of at least 1")

    @property
    def relevance_rule(self) -> str:
        """What `rel` says in the signature before its hash: the relevance with all that qualifies it."""
        rule: str = self.relevance
        if self.relevance == "radius":
            short = f"{self.radius:g}"
            rule += f"@{short if float(short) == self.radius else repr(self.radius)}"
        if self.relevance == "qrels" and self.min_grade != 1:
            rule += f"@{self.min_grade}"
        if self.level != "none":
            rule += f"/{self.level}"
        for name, labels in (("junk", self.junk_labels), ("distractor", self.distractor_labels)):
            if labels:
                rule += f"+{name}={','.join(label.translate(_ESCAPES) for label in labels)}"
        return rule

    @property
    def ignore_columns(self) -> tuple[str, ...]:
        """The columns of `ignore_same`; empty when nothing is ignored."""
        return () if self.ignore_same == "none" else tuple(self.ignore_same.split("+"))


_CHOICES: dict[str, tuple[str, ...]] = {
    "exclude_self": get_args(ExcludeSelf),
    "relevance": get_args(RelevanceKind),
    "level": get_args(Level),
    "no_positive": get_args(NoPositive),
    "ties": get_args(Ties),
    "average": get_args(Average),
    "similarity": get_args(Similarity),
}


_ESCAPES = {ord(mark): f"%{ord(mark):02X}" for mark in "%,+="}
"""What joins labels in `relevance_rule`, where a label holds it."""


def _as_columns(columns: Any) -> str:
    names = columns.split("+") if isinstance(columns, str) else [""]
    if not all(names):
        raise ChoiceError(f"ignore_same={columns!r}: join columns by +, such as camera+label, or none")
    return "+".join(sorted({valid_text(name) for name in names}))


def _as_names(labels: Any) -> tuple[str, ...]:
    several = isinstance(labels, Iterable) and not isinstance(labels, str)
    return tuple(
        sorted({unicodedata.normalize("NFC", valid_text(str(label))) for label in (labels if several else [labels])})
    )


def _as_cutoffs(ks: Any) -> tuple[int, ...]:
    cutoffs = set()
    several = isinstance(ks, Iterable) and not isinstance(ks, str | bytes) and getattr(ks, "shape", None) != ()
    for k in ks if several else [ks]:
        try:
            number = operator.index(k)
        except TypeError:
            number = 0
        if number < 1 or isinstance(k, bool):
            raise ChoiceError(f"k={k!r} is not a cutoff; every k must be a whole number of at least 1")
        if number > LARGEST_K:
            raise ChoiceError(f"k={k!r} is too large; the largest cutoff is {LARGEST_K}")
        cutoffs.add(number)
    if not cutoffs:
        raise ChoiceError("no k was given; name at least one cutoff, such as ks=(1, 5, 10)")
    return tuple(sorted(cutoffs))
