"""The ranks of the positives as counts: the one object that every metric is computed from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Depth: TypeAlias = Literal["first", "all"]
Number = TypeVar("Number", np.int64, np.float64)
Counts: TypeAlias = npt.NDArray[np.int64]
Similarities: TypeAlias = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Ranking:
    """For a block of queries: how many negatives stand ahead of, and level with, their positives.

    The rank of a positive is its place among the positives plus the number of negatives ahead of it, so nothing else
    of the gallery's order is needed. A *level* is a distinct similarity of a query's positives; the levels of the i-th
    query are `starts[i]:starts[i + 1]`, nearest first: one at most at depth "first", all of them at depth "all".
    Counts of two parts of a gallery add.

    Attributes:
        queries: the rows of the queries, a contiguous slice.
        starts: (b + 1,) where the levels of each query begin.
        similarity: (levels,) exact; for embeddings a whole number of grid steps.
        negatives_ahead: (levels,) negatives with a greater similarity.
        negatives_tied: (levels,) negatives with the same similarity.
        positives_tied: (levels,) positives with this similarity, at least 1.
        best_positive: (b,) gallery row of the nearest positive, the first row of several; -1 without a positive.
        near_above: (b,) negatives at most 1e-6 above the best level (none where similarities come from elsewhere).
        near_below: (b,) negatives at most 1e-6 below the best level.
        n_positives: (b,) positives that are left after everything ignored is gone.
        n_candidates: (b,) gallery items that are left after everything ignored is gone.
        n_ranked: (b,) candidates that have a place: all of them, or those that a ranked list holds.
        gains: the grades of the positives in the order of their levels, the greatest first within a level; None where
            every positive counts the same, and at depth "first".
        ideal_gains: the grades of all positives of each query, the greatest first; None as `gains`.
    """

    queries: slice
    starts: Counts
    similarity: Similarities
    negatives_ahead: Counts
    negatives_tied: Counts
    positives_tied: Counts
    best_positive: Counts
    near_above: Counts
    near_below: Counts
    n_positives: Counts
    n_candidates: Counts
    n_ranked: Counts
    gains: Counts | None = None
    ideal_gains: Counts | None = None

    def __len__(self) -> int:
        return int(self.queries.stop - self.queries.start)

    def at_best(self, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """A column of the levels at each query's best positive; 0 for a query without a level."""
        best = np.zeros(len(self), dtype=values.dtype)
        found = self.starts[1:] > self.starts[:-1]
        best[found] = values[self.starts[:-1][found]]
        return best


def join_blocks(blocks: Sequence[Ranking]) -> Ranking:
    """Blocks that follow each other, at least one, as one block."""

    def column(field: str) -> Counts | None:
        parts = [getattr(block, field) for block in blocks]
        return None if parts[0] is None else np.concatenate(parts)

    sizes = np.concatenate([np.diff(block.starts) for block in blocks])
    joined = {
        "queries": slice(blocks[0].queries.start, blocks[-1].queries.stop),
        "starts": np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)]),
    }
    others = [field.name for field in dataclasses.fields(Ranking) if field.name not in joined]
    return Ranking(**joined, **{field: column(field) for field in others})  # type: ignore[arg-type]
