"""What the metrics share: the levels of a ranking with what stands ahead of each, and sums over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from recallatk.ranking import Ranking
from recallatk.types import Ties

Values = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

Term = Callable[[Values, Values], Values]
"""What a positive adds: (its rank, the positives up to and with it) -> a value; both may be means under ties."""


@dataclasses.dataclass(frozen=True)
class Levels:
    """The levels of a block: `before` gallery items stand ahead, `positives_before` of them positives."""

    owners: Counts
    before: Counts
    positives_before: Counts
    negatives: Counts
    positives: Counts

    @classmethod
    def of(cls, ranking: Ranking) -> Levels:
        """The levels of all queries of the block, one after the other."""
        owners = np.repeat(np.arange(len(ranking)), np.diff(ranking.starts))
        ahead_of = np.concatenate([np.zeros(1, np.int64), np.cumsum(ranking.positives_tied)])
        positives_before = ahead_of[:-1] - ahead_of[ranking.starts[:-1]][owners]
        before = ranking.negatives_ahead + positives_before
        return cls(owners, before, positives_before, ranking.negatives_tied, ranking.positives_tied)

    @property
    def size(self) -> Counts:
        """How many items are level with each other."""
        return self.negatives + self.positives


def found_at(ranking: Ranking, k: Counts | int, ties: Ties) -> Values:
    """How many positives are among the first k of each query; needs depth "all".

    A tied group of n negatives and p positives, of which r items are taken, holds r p / (n + p) positives in the mean
    over all orders, max(0, r - n) with the negatives first, min(r, p) with the positives first.
    """
    levels = Levels.of(ranking)
    cut = np.broadcast_to(np.asarray(k, dtype=np.int64), (len(ranking),))[levels.owners]
    places = np.clip(cut - levels.before, 0, levels.size)
    if ties == "pessimistic":
        found = np.maximum(places - levels.negatives, 0).astype(np.float64)
    elif ties == "optimistic":
        found = np.minimum(places, levels.positives).astype(np.float64)
    else:
        # At most one level of a query is cut by k; the others are whole numbers, so the sum is rounded twice.
        found = places * levels.positives / levels.size
    return _by_query(levels.owners, found, len(ranking))


def sum_over_positives(ranking: Ranking, term: Term, ties: Ties, cut: Counts | None = None) -> Values:
    """The sum of a term over the positives of each query, up to rank `cut`; needs depth "all".

    In a tied group of T items with p positives, the item at place i is a positive with probability p / T, and then
    (i - 1) (p - 1) / (T - 1) of the places before it are positives in the mean over all orders. A term that is linear
    in the number of positives may so be taken at that mean (McSherry and Najork, ECIR 2008).
    """
    levels = Levels.of(ranking)
    limit = np.full(len(ranking), np.iinfo(np.int64).max) if cut is None else cut
    mixed = (levels.negatives > 0) & (ties == "expected")
    plain = np.flatnonzero(~mixed)
    count = levels.positives[plain]
    place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + 1
    behind = levels.negatives[plain] if ties == "pessimistic" else np.zeros(len(plain), np.int64)
    rank = np.repeat(levels.before[plain] + behind, count) + place
    found = np.repeat(levels.positives_before[plain], count) + place
    owners = np.repeat(levels.owners[plain], count)
    terms = np.where(rank <= limit[owners], term(rank.astype(np.float64), found.astype(np.float64)), 0.0)
    total = _by_query(owners, terms, len(ranking))
    for level in np.flatnonzero(mixed).tolist():
        total[levels.owners[level]] += _mixed_term(levels, level, term, int(limit[levels.owners[level]]))
    return total


def _mixed_term(levels: Levels, level: int, term: Term, limit: int) -> float:
    before, positives = int(levels.before[level]), int(levels.positives[level])
    size = positives + int(levels.negatives[level])
    place = np.arange(1, min(size, max(limit - before, 0)) + 1, dtype=np.float64)
    found = levels.positives_before[level] + 1 + (place - 1) * (positives - 1) / (size - 1)
    return float(np.sum(term(before + place, found))) * positives / size


def _by_query(owners: Counts, values: Values, n: int) -> Values:
    total: Values = np.bincount(owners, weights=values, minlength=n).astype(np.float64)
    return total
