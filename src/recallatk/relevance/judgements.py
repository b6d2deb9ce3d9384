"""The judgements of a block of queries, from the rules that hold for all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from recallatk.relevance.matching import Matcher, Matching, PairMatching, Rows, owners_of


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
        distractors: for each gallery item whether it is never positive; None where all may be.
        doubts: what can make the number look right and be wrong, a line each.
    """

    n_queries: int
    n_gallery: int
    positive: Matcher
    no_match: str
    ignored: Mapping[str, Matcher]
    distractors: npt.NDArray[np.bool_] | None = None
    doubts: tuple[str, ...] = ()

    @classmethod
    def listed(cls, n_gallery: int, starts: Rows, rows: Rows) -> Relevance:
        """The positives of the i-th query are `rows[starts[i]:starts[i + 1]]`, in any order; nothing is ignored."""
        queries = np.arange(len(starts))
        matching = Matching(query_starts=queries, query_keys=queries[:-1], key_starts=starts, key_rows=rows)
        return cls(len(starts) - 1, n_gallery, matching, "no gallery item is listed for it", {})

    @property
    def pairs(self) -> Rows:
        """For each query, at most how many gallery rows are judged: what a block of queries costs in memory."""
        return self.positive.pairs + sum((rule.pairs for rule in self.ignored.values()), np.int64(0))

    def judge(self, queries: slice | Rows) -> Judgements:
        """The positive and the ignored rows of these queries."""
        rows = np.arange(queries.start, queries.stop) if isinstance(queries, slice) else queries
        ignored = self._keys(rows, self.ignored.values())
        positive, grades = self._positives(rows)
        kept = ~_among(positive, ignored)
        left = None if grades is None else grades[kept]
        return Judgements(*self._split(positive[kept], len(rows)), *self._split(ignored, len(rows)), left)

    def part(self, queries: slice, rows: slice) -> Relevance:
        """What holds for some of the queries in some of the gallery, a shard of it, both numbered from 0.

        It is no larger than these queries and rows, so that it can be sent where they are.
        """
        return Relevance(
            n_queries=queries.stop - queries.start,
            n_gallery=rows.stop - rows.start,
            positive=self.positive.part(queries, rows),
            no_match=self.no_match,
            ignored={name: rule.part(queries, rows) for name, rule in self.ignored.items()},
            distractors=None if self.distractors is None else self.distractors[rows],
        )

    def judge_ignored(self, queries: Rows) -> tuple[Rows, Rows]:
        """The ignored rows alone of these queries: where each query's begin, and the rows."""
        return self._split(self._keys(queries, self.ignored.values()), len(queries))

    def groups(self, at_least: int) -> Iterator[tuple[Rows, Rows]]:
        """Queries that have the same positives, before anything is ignored, with these rows.

        Only groups of so many queries and rows at least, and only where the rule knows of groups (labels do).
        """
        if not isinstance(self.positive, Matching):
            return
        for queries, rows in self.positive.groups(at_least):
            kept = rows if self.distractors is None else rows[~self.distractors[rows]]
            if len(kept) >= at_least:
                yield queries, kept

    def why_no_positive(self, query: int) -> str:
        """Why this query has no positive, in words."""
        alone = np.array([query])
        positive, _ = self._positives(alone)
        if not len(positive):
            return self.no_match
        removed = {name: _among(positive, self._keys(alone, [rule])) for name, rule in self.ignored.items()}
        enough = [name for name, gone in removed.items() if gone.all()][:1]
        return f"every positive is {' or '.join(enough or [name for name, gone in removed.items() if gone.any()])}"

    def _positives(self, queries: Rows) -> tuple[Rows, Rows | None]:
        """The positive pairs before anything is ignored, as `_keys`, and their grades where they have some."""
        keys = self._keys(queries, [self.positive])
        grades = self.positive.grades_of(queries) if isinstance(self.positive, PairMatching) else None
        if self.distractors is None:
            return keys, grades
        kept = ~self.distractors[keys % max(self.n_gallery, 1)]
        return keys[kept], None if grades is None else grades[kept]

    def _keys(self, queries: Rows, rules: Iterable[Matcher]) -> Rows:
        """Distinct pairs as sorted single numbers: place in the block x gallery size + gallery row."""
        parts = [owners * self.n_gallery + rows for owners, rows in (rule.match(queries) for rule in rules)]
        keys = np.sort(np.concatenate([np.empty(0, np.int64), *parts]))  # sorting is faster than np.unique
        return keys[np.diff(keys, prepend=-1) > 0]

    def _split(self, keys: Rows, n: int) -> tuple[Rows, Rows]:
        """Where the keys of each query begin, and their gallery rows."""
        first = np.arange(n + 1) * self.n_gallery
        starts = np.searchsorted(keys, first)
        return starts, keys - np.repeat(first[:-1], np.diff(starts))


def _among(keys: Rows, others: Rows) -> npt.NDArray[np.bool_]:
    """Which of the sorted keys are among the sorted others."""
    if not len(others):
        return np.zeros(len(keys), np.bool_)
    there: npt.NDArray[np.bool_] = others[np.minimum(np.searchsorted(others, keys), len(others) - 1)] == keys
    return there
