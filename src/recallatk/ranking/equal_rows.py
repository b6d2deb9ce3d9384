"""Rows that are equal: one of them is compared, and it counts for all."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from recallatk.ranking.counts import Counts, Similarities
from recallatk.ranking.grid import GridRows

Hashes = npt.NDArray[np.int64]

FIRST_COLUMNS = 8
"""So many columns tell which rows may be equal at all; the others of those rows are looked at only then."""

ROWS_A_BLOCK = 2**11


@dataclasses.dataclass(frozen=True)
class EqualRows:
    """Groups of equal rows.

    Attributes:
        first: (groups,) the first row of each group, rising.
        group: (n,) the group of each row.
        weight: (groups,) how many rows each group holds.
    """

    first: Counts
    group: Counts
    weight: Counts

    def take_first(self, rows: GridRows) -> GridRows:
        """The row that stands for each group; the same object where nothing is equal."""
        return rows if len(self.first) == len(rows) else rows[self.first]


def group_equal_rows(rows: GridRows, best: Similarities | None = None) -> EqualRows:
    """Group rows that are equal in every column, and in `best` where that is given.

    Rows are only grouped once they were compared; should hashes collide, equal rows may stay apart.

    Args:
        rows: (n, d) grid rows.
        best: (n,) the best positive of each row as a query.
    """
    n = len(rows)
    own = np.zeros(n, np.int64) if best is None else best.view(np.int64) * _factors(1)[0]
    maybe = np.arange(n)
    for columns in (FIRST_COLUMNS, rows.shape[1]):
        key = _hashes(rows[:, :columns], maybe) + own[maybe]
        repeated = _repeated(key)
        maybe, key = maybe[repeated], key[repeated]
        if not len(maybe):
            return EqualRows(np.arange(n), np.arange(n), np.ones(n, np.int64))
    leader = np.arange(n)
    leader[maybe] = maybe[_first_of_its_kind(key)]
    followers = np.flatnonzero(leader != np.arange(n))
    for start in range(0, len(followers), ROWS_A_BLOCK):
        part = followers[start : start + ROWS_A_BLOCK]
        equal = (rows[part] == rows[leader[part]]).all(axis=1)
        if best is not None:
            equal &= best[part] == best[leader[part]]
        leader[part[~equal]] = part[~equal]
    leads = leader == np.arange(n)
    group = (np.cumsum(leads) - 1)[leader]
    return EqualRows(np.flatnonzero(leads), group, np.bincount(group, minlength=int(leads.sum())))


def _hashes(rows: GridRows, which: Counts) -> Hashes:
    """A sum of the coordinates times fixed random numbers, modulo 2**64."""
    factors = _factors(rows.shape[1])
    found = np.empty(len(which), np.int64)
    for start in range(0, len(which), ROWS_A_BLOCK):
        found[start : start + ROWS_A_BLOCK] = rows[which[start : start + ROWS_A_BLOCK]].astype(np.int64) @ factors
    return found


def _factors(n: int) -> Hashes:
    return np.random.default_rng(0).integers(-(2**63), 2**63 - 1, n) | 1


def _repeated(key: Hashes) -> npt.NDArray[np.bool_]:
    """Which keys are there more than once; cheap where none is: then they are only sorted."""
    in_order = np.sort(key)
    repeated = in_order[1:][in_order[1:] == in_order[:-1]]
    return np.isin(key, repeated) if len(repeated) else np.zeros(len(key), np.bool_)


def _first_of_its_kind(key: Hashes) -> Counts:
    """For each key the first place that holds the same key."""
    _, first, kind = np.unique(key, return_index=True, return_inverse=True)
    return first[kind]
