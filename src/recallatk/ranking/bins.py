"""Binning: many similarities against the levels of many queries at once, by one sorted list of whole numbers.

A similarity of the grid is a whole number of steps below 2**53 in size. Put behind the place of its query it becomes
one number of 64 bits, so the levels of a block of queries are one sorted array, and a binary search in it compares a
similarity with the levels of its own query exactly.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from recallatk.ranking.counts import Counts, Similarities

SHIFT = 54
MOST_QUERIES = 2**9
"""So many queries and a similarity fit into 63 bits."""


@dataclasses.dataclass(frozen=True)
class Bins:
    """Thresholds of a block of queries, and how many similarities fell between and onto them.

    The thresholds of a query are its levels, and one near-tie above and below its best level.

    Attributes:
        keys: every threshold with its query, rising.
        starts: (b + 1,) where the thresholds of each query begin.
        above: for each query one bin more than it has thresholds: how many similarities are above so many of them.
        level: (keys,) how many similarities are exactly at a threshold.
        level_at: (levels,) the place of each level among the thresholds.
        edges: (2, b) the places of the near-tie above and below the best level; -1 without a level.
    """

    keys: Counts
    starts: Counts
    above: Counts
    level: Counts
    level_at: Counts
    edges: Counts

    @classmethod
    def of(cls, level_starts: Counts, levels: Similarities, near: int) -> Bins:
        """Empty bins for levels in falling order for each query."""
        n = len(level_starts) - 1
        owners = np.repeat(np.arange(n), np.diff(level_starts))
        ranked = np.flatnonzero(np.diff(level_starts))
        best = levels[level_starts[ranked]]
        all_owners = np.concatenate([owners, ranked, ranked])
        values = np.concatenate([levels, best + near, best - near])
        keys = np.unique(key_of(all_owners, values))
        edges = np.full((2, n), -1, dtype=np.int64)
        edges[0, ranked] = np.searchsorted(keys, key_of(ranked, best + near))
        edges[1, ranked] = np.searchsorted(keys, key_of(ranked, best - near))
        return cls(
            keys=keys,
            starts=np.searchsorted(keys >> SHIFT, np.arange(n + 1)),
            above=np.zeros(len(keys) + n, np.int64),
            level=np.zeros(len(keys), np.int64),
            level_at=np.searchsorted(keys, key_of(owners, levels)),
            edges=edges,
        )

    def add(self, owners: Counts, similarity: Similarities) -> None:
        """Count exact similarities (in steps) of queries of the block."""
        keys = key_of(owners, similarity)
        at = np.searchsorted(self.keys, keys, side="left")
        exact = np.flatnonzero(np.append(self.keys, -1)[at] == keys)
        np.add.at(self.above, at + owners, 1)
        np.add.at(self.level, at[exact], 1)

    def add_sure(self, owners: Counts, low: Similarities, high: Similarities) -> Counts:
        """Count similarities known to lie between two numbers of steps, where no threshold lies between these.

        Returns:
            Which of them are not counted, since a threshold may be on either side of them.
        """
        first = np.searchsorted(self.keys, key_of(owners, np.floor(low)), side="left")
        last = np.searchsorted(self.keys, key_of(owners, np.ceil(high)), side="right")
        sure = first == last
        self.above[:] += np.bincount(first[sure] + owners[sure], minlength=len(self.above))
        return np.flatnonzero(~sure)

    def totals(self) -> tuple[Counts, Counts, Counts, Counts]:
        """For each level those ahead and those level with it; for each query those near above and near below."""
        n = len(self.starts) - 1
        owners = np.repeat(np.arange(n), np.diff(self.starts))
        # Bins of a query lie at starts + owner ... ends + owner; what is above threshold j is in the bins after j.
        later = np.concatenate([np.cumsum(self.above[::-1])[::-1], np.zeros(1, np.int64)])
        ends = self.starts[1:] + np.arange(n) + 1
        greater = later[np.arange(len(self.keys)) + owners + 1] - later[ends][owners]
        best = np.full(n, -1, dtype=np.int64)
        ahead, tied = greater[self.level_at], self.level[self.level_at]
        # The first level of each query is its best.
        level_owner = owners[self.level_at]
        first = np.diff(level_owner, prepend=-1) > 0
        best[level_owner[first]] = self.level_at[first]
        ranked = best >= 0
        near_above, near_below = np.zeros(n, np.int64), np.zeros(n, np.int64)
        top, low = self.edges[0][ranked], self.edges[1][ranked]
        near_above[ranked] = greater[best[ranked]] - greater[top]
        near_below[ranked] = greater[low] + self.level[low] - greater[best[ranked]] - self.level[best[ranked]]
        return ahead, tied, near_above, near_below


def key_of(owners: Counts, similarity: Similarities) -> Counts:
    """The place of a query in its block, and a similarity in whole steps, as one number that sorts like both."""
    keys: Counts = (owners << SHIFT) + similarity.astype(np.int64) + 2**53
    return keys
