"""Small sets in which everything that goes wrong happens: ties, copies, unknowns, queries without a positive.

Shared by the tests of the engine. The embeddings come from a few directions, most of them opposite to each other, so
that equal and negative similarities are the rule and not the exception.
"""

from __future__ import annotations

import dataclasses
import functools
from fractions import Fraction

import numpy as np

import oracle
from recallatk.types import EmbeddingSet, EvalProtocol

DIRECTIONS = np.array([[1, 0], [0, 1], [-1, 0], [-1, -1], [2, 1], [1, 2.0**-11], [3, -1], [-2, 3]], dtype=np.float32)
"""(1, 0) and (1, 2^-11) are near-ties for a query along either: their cosine is 1 - 1.2e-7."""

IDENTITIES = ("ids", "same", "nothing")


@dataclasses.dataclass(frozen=True)
class World:
    """Queries and a gallery (None: leave-one-out)."""

    query: EmbeddingSet
    gallery: EmbeddingSet | None

    @property
    def other(self) -> EmbeddingSet:
        """The set that is searched."""
        return self.query if self.gallery is None else self.gallery

    @functools.cached_property
    def similarities(self) -> list[list[int]]:
        """The oracle's exact similarities."""
        rows = [*self.query.embeddings, *self.other.embeddings]
        assert not any(near for row in rows for near in oracle.near_border(row)), "choose rows off the rounding borders"
        return oracle.similarities(self.query.embeddings, self.other.embeddings)

    def judge(self, protocol: EvalProtocol) -> list[tuple[set[int], set[int]]]:
        """The oracle's positives and ignored rows of each query."""
        return oracle.judge(
            self.query, self.other, exclude_self=protocol.exclude_self, ignore_same=protocol.ignore_columns
        )

    def values(
        self, metric: str, k: int | None, protocol: EvalProtocol, ties: str | None = None
    ) -> list[Fraction | None]:
        """The oracle's value of every query; None (a miss: 0) for a query without a positive."""
        missing = Fraction(0) if protocol.no_positive == "miss" else None
        return [
            _value(metric, tuple(sims), frozenset(positives), frozenset(ignored), k, ties or protocol.ties)
            if positives
            else missing
            for sims, (positives, ignored) in zip(self.similarities, self.judge(protocol), strict=True)
        ]


@functools.cache
def _value(metric, sims, positives, ignored, k, ties):
    return oracle.value(metric, sims, set(positives), set(ignored), k=k, ties=ties)


@functools.cache
def draw_world(seed: int, *, alone: bool, several: bool) -> World:
    """A world of at most 7 queries and 9 gallery items; every fifth has one query, or one gallery item."""
    rng = np.random.default_rng([seed, alone, several])
    n = 14
    directions = rng.choice(len(DIRECTIONS), size=rng.integers(1, 6), replace=False)
    embeddings = DIRECTIONS[rng.choice(directions, size=n)] * 2.0 ** rng.integers(-3, 4, size=(n, 1)).astype(np.float32)
    names = [f"x{i}" for i in range(n)]
    letters = "abcd"[: rng.integers(2, 5)]
    labels = [str(label) for label in rng.choice(list(letters), size=n)]
    if several:
        labels = [tuple(a for a in letters if rng.random() < 0.35) for _ in range(n)]
    same = rng.choice(["s0", "s1", "s2", "s3", ""], size=n).tolist()
    content = rng.choice(["c0", "c1", "c2", "c3", ""], size=n).tolist()
    groups = {
        "camera": rng.choice(["1", "2", ""], size=n).tolist(),
        "sequence": rng.choice(["u", "v", "w", ""], size=n).tolist(),
    }
    identity = IDENTITIES[seed % 3]

    def side(rows: np.ndarray, role: str, flip: bool) -> EmbeddingSet:
        return EmbeddingSet(
            embeddings[rows] * (-1 if flip else 1),
            [labels[r] for r in rows],
            ids={"ids": [names[r] for r in rows], "same": [f"{role}{r}" for r in rows], "nothing": None}[identity],
            same=[same[r] for r in rows] if identity == "same" else None,
            content=[content[r] for r in rows],
            groups={column: [values[r] for r in rows] for column, values in groups.items()},
            name={"q": "query", "g": "gallery"}[role],
        )

    n_query, n_gallery = rng.integers(2, 8), rng.integers(2, 10)
    if seed % 5 == 3:
        n_query = 1
    if seed % 5 == 4:
        n_gallery = 1
    if alone:
        return World(side(rng.choice(n, size=n_gallery, replace=False), "q", False), None)
    # Odd worlds turn the queries round: with one or two directions, every similarity is then negative.
    return World(
        side(rng.choice(n, size=n_query, replace=False), "q", bool(seed % 2)),
        side(rng.choice(n, size=n_gallery, replace=False), "g", False),
    )
