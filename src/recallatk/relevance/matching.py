"""Which gallery rows belong to a query: by shared keys, by listed pairs, or by position."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from scipy.spatial import KDTree

Rows = npt.NDArray[np.int64]
Narrow = npt.NDArray[np.integer[Any]]
"""Numbers that are held in four bytes where they fit, and handed out as `Rows`."""

MOST_NARROW = 2**31 - 1

BORDER = 2 * float(np.finfo(np.float64).eps)
"""The width of the border of a radius, as a share of the coordinates."""


class Matcher(Protocol):
    """A rule that matches queries with gallery rows; asked for a block of queries at a time."""

    @property
    def pairs(self) -> Rows:
        """For each query, at most how many rows it matches."""

    def match(self, queries: Rows) -> tuple[Rows, Rows]:
        """The matching pairs of these queries as (place among them, gallery row); a pair may come more than once."""

    def part(self, queries: slice, rows: slice) -> Matcher:
        """The same rule for some of the queries and some of the gallery, both numbered from 0; no larger than these."""


@dataclasses.dataclass(frozen=True)
class Keys:
    """The keys of rows: those of row i are `values[starts[i]:starts[i + 1]]`, each once; without starts one a row."""

    starts: Rows | None
    values: Sequence[Hashable]

    @classmethod
    def of(cls, cells: Sequence[Collection[Hashable]]) -> Keys:
        """Any number of keys a row."""
        return cls(starts_of(_integers(map(len, cells), len(cells))), list(itertools.chain.from_iterable(cells)))

    @classmethod
    def known(cls, values: Sequence[Hashable]) -> Keys:
        """One key a row, or none where the value is empty: what is unknown has no key."""
        if all(values):
            return cls(None, values)
        return cls(starts_of(_integers(map(bool, values), len(values))), list(filter(None, values)))


@dataclasses.dataclass(frozen=True)
class Matching:
    """Which gallery rows share a key with a query: keys are labels, identities, or values of group columns.

    Held as the keys of each query and the rows of each of these keys, so its size is that of the data and never that
    of the matching pairs.
    """

    query_starts: Rows
    query_keys: Narrow
    key_starts: Rows
    key_rows: Narrow

    @classmethod
    def of(cls, query: Keys, gallery: Keys) -> Matching:
        """Match queries and gallery rows by the keys that each of them has."""
        codes = {key: code for code, key in enumerate(dict.fromkeys(query.values))}
        query_keys = _narrow(map(codes.__getitem__, query.values), len(query.values))
        row_keys = query_keys
        if gallery is not query:  # most keys of a large gallery may be no query's
            row_keys = _narrow(map(codes.get, gallery.values, itertools.repeat(-1)), len(gallery.values))
        wanted = np.flatnonzero(row_keys >= 0)
        row_keys = row_keys[wanted]
        by_key = wanted[np.argsort(row_keys, kind="stable")]
        return cls(
            query_starts=np.arange(len(query.values) + 1) if query.starts is None else query.starts,
            query_keys=query_keys,
            key_starts=starts_of(np.bincount(row_keys, minlength=len(codes))),
            key_rows=_narrow(by_key if gallery.starts is None else owners_of(gallery.starts)[by_key], len(by_key)),
        )

    @property
    def pairs(self) -> Rows:
        """For each query, how many rows it matches (a row that shares several keys counts for each)."""
        sizes = np.diff(self.key_starts)[self.query_keys]
        return np.diff(np.concatenate([[0], np.cumsum(sizes)])[self.query_starts])

    def match(self, queries: Rows) -> tuple[Rows, Rows]:
        """The matching pairs of these queries as (place among them, gallery row); a pair may come more than once."""
        owners, keys = take_runs(self.query_starts, self.query_keys, queries)
        key_owners, rows = take_runs(self.key_starts, self.key_rows, keys)
        return owners[key_owners], rows

    def part(self, queries: slice, rows: slice) -> Matching:
        """The same rule for some of the queries and some of the gallery; only keys of these queries are left."""
        starts = self.query_starts[queries.start : queries.stop + 1]
        keys, codes = np.unique(self.query_keys[starts[0] : starts[-1]], return_inverse=True)
        keys = keys.astype(np.int64)  # key * width takes more than four bytes
        width, pairs = self._pairs
        first, last = min(rows.start, width), min(rows.stop, width)
        begin, end = np.searchsorted(pairs, keys * width + first), np.searchsorted(pairs, keys * width + last)
        sizes = end - begin
        places = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes - begin, sizes)
        return Matching(starts - starts[0], codes, starts_of(sizes), pairs[places] % width - rows.start)

    @functools.cached_property
    def _pairs(self) -> tuple[int, Rows]:
        """Every (key, row) as one rising number, key * width + row, and the width."""
        width = int(self.key_rows.max(initial=0)) + 1
        pairs = owners_of(self.key_starts)
        pairs *= width
        pairs += self.key_rows
        pairs.sort()
        return width, pairs

    def groups(self, at_least: int) -> Iterator[tuple[Rows, Rows]]:
        """Queries that have the same keys, with the gallery rows that they match: so many of both at least."""
        counts = np.diff(self.query_starts)
        alone = np.flatnonzero(counts == 1)
        keys = self.query_keys[self.query_starts[alone]]
        by_key = alone[np.argsort(keys, kind="stable")]
        starts = starts_of(np.bincount(keys, minlength=len(self.key_starts) - 1))
        large = (np.diff(starts) >= at_least) & (np.diff(self.key_starts) >= at_least)
        for key in np.flatnonzero(large).tolist():
            found = self.key_rows[self.key_starts[key] : self.key_starts[key + 1]]
            yield by_key[starts[key] : starts[key + 1]], found.astype(np.int64)
        several: dict[bytes, list[int]] = {}
        for query in np.flatnonzero(counts > 1).tolist():
            own = np.sort(self.query_keys[self.query_starts[query] : self.query_starts[query + 1]])
            several.setdefault(own.tobytes(), []).append(query)
        for group in several.values():
            if len(group) >= at_least:
                rows = np.unique(self.match(np.array(group[:1]))[1])
                if len(rows) >= at_least:
                    yield np.array(group, dtype=np.int64), rows


@dataclasses.dataclass(frozen=True)
class OwnRow:
    """Each query matches the one gallery row that is itself: the i-th query is the gallery row `first` + i.

    Attributes:
        n_queries: the number of queries.
        n_rows: gallery rows from here on are nobody's; 0: nobody is in the gallery.
        first: the row of the first query; below 0 where the first ones are not in this part of the gallery.
    """

    n_queries: int
    n_rows: int
    first: int = 0

    @property
    def pairs(self) -> Rows:
        """For each query, whether it is in the gallery."""
        found = np.zeros(self.n_queries, np.int64)
        found[max(-self.first, 0) : max(self.n_rows - self.first, 0)] = 1
        return found

    def match(self, queries: Rows) -> tuple[Rows, Rows]:
        """These queries themselves."""
        rows = queries + self.first
        there = np.flatnonzero((rows >= 0) & (rows < self.n_rows))
        return there, rows[there]

    def part(self, queries: slice, rows: slice) -> OwnRow:
        """The same for some of the queries and some of the gallery."""
        n_rows = min(self.n_rows, rows.stop) - rows.start
        return OwnRow(queries.stop - queries.start, max(n_rows, 0), self.first + queries.start - rows.start)


@dataclasses.dataclass(frozen=True)
class PairMatching:
    """Pairs that somebody listed, with a grade each: the rows of the i-th query are `rows[starts[i]:starts[i + 1]]`."""

    starts: Rows
    rows: Rows
    grades: Rows

    @classmethod
    def of(cls, n_queries: int, owners: Rows, rows: Rows, grades: Rows) -> PairMatching:
        """Sort pairs by query and row."""
        order = np.lexsort((rows, owners))
        return cls(starts_of(np.bincount(owners, minlength=n_queries)), rows[order], grades[order])

    @property
    def pairs(self) -> Rows:
        """For each query, how many rows are listed."""
        return np.diff(self.starts)

    def match(self, queries: Rows) -> tuple[Rows, Rows]:
        """The listed pairs, sorted by query and row."""
        return take_runs(self.starts, self.rows, queries)

    def part(self, queries: slice, rows: slice) -> PairMatching:
        """The pairs of some of the queries with some of the gallery."""
        owners, found = self.match(np.arange(queries.start, queries.stop))
        kept = (found >= rows.start) & (found < rows.stop)
        grades = self.grades[self.starts[queries.start] : self.starts[queries.stop]]
        counts = np.bincount(owners[kept], minlength=queries.stop - queries.start)
        return PairMatching(starts_of(counts), found[kept] - rows.start, grades[kept])

    def grades_of(self, queries: Rows) -> Rows:
        """The grade of each pair of `match`."""
        return take_runs(self.starts, self.grades, queries)[1]


@dataclasses.dataclass(frozen=True)
class RadiusMatching:
    """Gallery rows within a radius, the border included, in double precision."""

    query: npt.NDArray[np.float64]
    gallery: npt.NDArray[np.float64]
    radius: float

    def __reduce__(self) -> tuple[type[RadiusMatching], tuple[object, ...]]:
        """Sent elsewhere without what can be made again there: the tree is three times as large as the positions."""
        return RadiusMatching, (self.query, self.gallery, self.radius)

    @functools.cached_property
    def pairs(self) -> Rows:
        """For each query, how many rows lie within (hardly more than) the radius."""
        return np.asarray(self._tree.query_ball_point(self.query, self._reach, return_length=True), dtype=np.int64)

    def match(self, queries: Rows) -> tuple[Rows, Rows]:
        """The pairs within the radius."""
        points = self.query[queries]
        near: list[list[int]] = list(self._tree.query_ball_point(points, self._reach))
        owners = owners_of(starts_of(np.array([len(rows) for rows in near], dtype=np.int64)))
        rows = np.fromiter(itertools.chain.from_iterable(near), np.int64, len(owners))
        # The tree only proposes: what is within the radius is decided here. Coordinates are the doubles nearest to
        # decimals, and no border point may be lost to that: in UTM it moves a distance by nanometres.
        ours, theirs = points[owners], self.gallery[rows]
        slack = BORDER * (np.abs(ours).max(axis=1) + np.abs(theirs).max(axis=1))
        inside = np.hypot(*(ours - theirs).T) <= self.radius + slack
        return owners[inside], rows[inside]

    def part(self, queries: slice, rows: slice) -> RadiusMatching:
        """The same radius for some of the queries and some of the gallery."""
        return RadiusMatching(self.query[queries], self.gallery[rows], self.radius)

    @property
    def _reach(self) -> float:
        largest = sum(float(np.abs(side).max(initial=0.0)) for side in (self.query, self.gallery))
        return self.radius * (1 + 1e-9) + 2 * BORDER * largest

    @functools.cached_property
    def _tree(self) -> KDTree:
        from scipy.spatial import KDTree  # slow to import, and only here

        return KDTree(self.gallery)


def _integers(values: Iterable[int], n: int) -> Rows:
    return np.fromiter(values, np.int64, n)


def _narrow(values: Iterable[int] | Rows, n: int) -> Narrow:
    """Numbers below the number of all rows or keys."""
    if isinstance(values, np.ndarray):
        return values.astype(np.int32) if int(values.max(initial=0)) <= MOST_NARROW else values
    return np.fromiter(values, np.int32 if n <= MOST_NARROW else np.int64, n)


def starts_of(counts: Rows) -> Rows:
    """Where the run of each owner begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def owners_of(starts: Rows) -> Rows:
    """The owner of each element of the runs that begin at `starts`."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def take_runs(starts: Rows, values: Narrow, which: Rows) -> tuple[Rows, Rows]:
    """The runs of these owners one after the other, each value with the place of its owner in `which`."""
    sizes = np.diff(starts)[which]
    # The k-th value of a run is the k-th behind its start.
    offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(np.arange(len(which)), sizes), values[np.repeat(starts[which], sizes) + offsets].astype(np.int64)
