"""Hard embeddings, and their counts taken one query at a time in whole numbers: what backends are held against."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable

import numpy as np

import oracle
from recallatk.ranking import Grid, Ranking, to_grid
from recallatk.relevance import Relevance, build_relevance
from recallatk.types import EmbeddingSet, EvalProtocol

COLUMNS = [
    "starts",
    "similarity",
    "negatives_ahead",
    "negatives_tied",
    "positives_tied",
    "best_positive",
    "near_above",
    "near_below",
    "n_positives",
    "n_candidates",
]
UNIT = 2**26
Columns = dict[str, np.ndarray]


# What is compared


def columns_of(blocks: Iterable[Ranking]) -> Columns:
    """Every column of all blocks, checked to cover the queries in order."""
    blocks = list(blocks)
    starts = [0, *itertools.accumulate(len(block) for block in blocks)]
    assert [(block.queries.start, block.queries.stop) for block in blocks] == list(itertools.pairwise(starts))
    levels = [0, *itertools.accumulate(int(block.starts[-1]) for block in blocks)]
    parts = {name: [getattr(block, name) for block in blocks] for name in COLUMNS}
    parts["starts"] = [
        np.zeros(1, np.int64),
        *(block.starts[1:] + first for block, first in zip(blocks, levels, strict=False)),
    ]
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def assert_same(found: Columns, expected: Columns, what: str, but: tuple[str, ...] = ()) -> None:
    for name in COLUMNS:
        if name not in but:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{name}: {what}")


@dataclasses.dataclass(frozen=True)
class QueryTruth:
    """One query: its levels, nearest first, as (similarity, negatives ahead, negatives tied, positives tied)."""

    levels: list[tuple[int, int, int, int]]
    best_positive: int
    near_above: int
    near_below: int
    n_positives: int
    n_candidates: int

    def kept(self, depth: str, limit: int | None) -> list[tuple[int, int, int, int]]:
        """The best level, and at depth "all" those that begin before the limit."""
        before = [0, *itertools.accumulate(level[3] for level in self.levels)]
        return [
            level
            for place, level in enumerate(self.levels)
            if place == 0 or (depth == "all" and (limit is None or level[1] + before[place] < limit))
        ]


def whole_number_truths(query: Grid, gallery: Grid, judged: list[tuple[set[int], set[int]]]) -> list[QueryTruth]:
    """The counts from int64 products of grid rows, one query at a time."""
    truths = []
    wide = gallery.rows.astype(np.int64)
    for row, (positives, ignored) in zip(query.rows.astype(np.int64), judged, strict=True):
        euclidean = gallery.similarity == "euclidean"
        sims = -((wide - row) ** 2).sum(axis=1) if euclidean else (wide * row).sum(axis=1)
        is_positive, exists = np.zeros(len(sims), bool), np.ones(len(sims), bool)
        is_positive[list(positives)] = True
        exists[list(ignored)] = False
        negatives, found = sims[exists & ~is_positive], sims[is_positive]
        values = sorted(set(found.tolist()), reverse=True)
        gaps = negatives - values[0] if values else np.empty(0, np.int64)
        truths.append(
            QueryTruth(
                levels=[(v, *(int(m.sum()) for m in (negatives > v, negatives == v, found == v))) for v in values],
                best_positive=min((g for g in positives if sims[g] == values[0]), default=-1),
                near_above=int(((gaps > 0) & (gaps <= gallery.near)).sum()),
                near_below=int(((gaps < 0) & (gaps >= -gallery.near)).sum()),
                n_positives=len(positives),
                n_candidates=len(sims) - len(ignored),
            )
        )
    return truths


def truth_columns(truths: list[QueryTruth], unit: float, depth: str, limit: np.ndarray | None = None) -> Columns:
    """The columns of a `Ranking` of all queries."""
    limits = [None] * len(truths) if limit is None else limit.tolist()
    kept = [truth.kept(depth, most) for truth, most in zip(truths, limits, strict=True)]
    levels = np.array(list(itertools.chain.from_iterable(kept)), dtype=np.int64).reshape(-1, 4)
    per_query = {name: np.array([getattr(truth, name) for truth in truths], np.int64) for name in COLUMNS[5:]}
    return {
        "starts": np.array([0, *itertools.accumulate(map(len, kept))]),
        "similarity": levels[:, 0] * unit,
        "negatives_ahead": levels[:, 1],
        "negatives_tied": levels[:, 2],
        "positives_tied": levels[:, 3],
        **per_query,
    }


def truth_of(it: World, depth: str = "first") -> Columns:
    """The columns of a world without a limit."""
    return truth_columns(whole_number_truths(it.query, it.gallery, it.judged), it.gallery.unit, depth)


# The worlds


def clusters(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Rows around a few centres: many similarities near the best."""
    centres = rng.normal(size=(max(n // 8, 1), d))
    return centres[rng.integers(0, len(centres), n)] + 0.5 * rng.normal(size=(n, d))


def duplicates(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """A third of the rows are copies of others, some of them scaled by a power of two."""
    rows = clusters(rng, n, d)
    copies = rng.random(n) < 1 / 3
    rows[copies] = rows[rng.integers(0, n, copies.sum())] * 2.0 ** rng.integers(-3, 4, (copies.sum(), 1))
    return rows


def one_point(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """A collapsed encoder: one direction."""
    return np.tile(rng.normal(size=d), (n, 1)) * 2.0 ** rng.integers(-3, 4, (n, 1))


def almost_one_point(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Nearly collapsed: similarities differ by about a near-tie."""
    return rng.normal(size=d) + 7e-4 * rng.normal(size=(n, d))


def last_bit(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Rows whose grid rows differ by one step in one coordinate."""
    row = to_grid(rng.normal(size=(1, d)))[0].rows[0].astype(np.float64)
    rows = np.tile(row / UNIT, (n, 1))
    rows[np.arange(n), rng.integers(0, d, n)] += rng.integers(-1, 2, n) / UNIT
    return rows


def opposite(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Every query's neighbours point away from it."""
    axis = rng.normal(size=d)
    return np.where(np.arange(n) % 2, 1, -1)[:, None] * axis + 0.1 * rng.normal(size=(n, d))


def outlier_coordinate(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """One large coordinate takes the 8-bit range from the others; which one, and how large, changes by row."""
    rows = rng.normal(size=(n, d))
    rows[np.arange(n), rng.integers(0, min(d, 3), n)] = 10.0 ** rng.integers(0, 5, n)
    return rows


def wild_lengths(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Lengths over nine orders of magnitude, as inner products of raw rows may have."""
    return clusters(rng, n, d) * 10.0 ** rng.uniform(-8, 1, (n, 1))


def codes(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Binary codes: few distinct similarities, so most queries are tied."""
    return np.where(rng.random((n, d)) < 0.5, -1.0, 1.0)


def one_sided(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """What rounding to 8 bits takes away all points in one direction, and some rows lie in it: the bound is reached."""
    steps = rng.integers(-100, 100, size=(n, d)) + 0.4999
    steps[np.arange(n), rng.integers(0, d, n)] = 127
    steps[::3] = 1.0
    return steps


WORLDS: dict[str, Callable[[np.random.Generator, int, int], np.ndarray]] = {
    "clusters": clusters,
    "duplicates": duplicates,
    "one point": one_point,
    "almost one point": almost_one_point,
    "last bit": last_bit,
    "opposite": opposite,
    "outlier coordinate": outlier_coordinate,
    "wild lengths": wild_lengths,
    "codes": codes,
    "one-sided": one_sided,
}


@dataclasses.dataclass(frozen=True)
class World:
    query: Grid
    gallery: Grid
    relevance: Relevance
    judged: list[tuple[set[int], set[int]]]


def world(
    rng: np.random.Generator,
    rows: np.ndarray,
    n_queries: int | None = None,
    *,
    n_labels: int = 8,
    similarity: str = "cosine",
    ignore_same: str = "none",
    exclude_self: str = "id",
) -> World:
    """Self-retrieval, or the first rows as queries against the others, with labels, cameras and ids at random."""
    n = len(rows)
    rows = np.where((rows == 0).all(axis=1, keepdims=True), 1.0, rows)
    ids = [f"i{k}" for k in range(n)]
    labels = [f"l{k}" for k in rng.integers(0, n_labels, n)]
    cameras = [f"c{k}" if k else "" for k in rng.integers(0, 4, n)]
    cut = n_queries or n
    if n_queries:  # some queries lie in the gallery as well, under their own label
        for k in range(min(cut, n - cut) // 2):
            ids[cut + k], labels[cut + k], rows[cut + k] = ids[k], labels[k], rows[k]
    sets = [EmbeddingSet(rows[:cut], labels[:cut], ids=ids[:cut], groups={"camera": cameras[:cut]})]
    sides = [oracle.Side(labels[:cut], ids[:cut], groups={"camera": cameras[:cut]})]
    if n_queries:
        sets.append(EmbeddingSet(rows[cut:], labels[cut:], ids=ids[cut:], groups={"camera": cameras[cut:]}))
        sides.append(oracle.Side(labels[cut:], ids[cut:], groups={"camera": cameras[cut:]}))
    protocol = EvalProtocol(exclude_self=exclude_self, ignore_same=ignore_same)
    relevance = build_relevance(sets[0], sets[1] if n_queries else None, protocol)
    grids = to_grid(*(side.embeddings for side in sets), similarity=similarity)
    columns = () if ignore_same == "none" else ignore_same.split("+")
    judged = oracle.judge(sides[0], sides[-1], exclude_self=exclude_self, ignore_same=columns)
    return World(grids[0], grids[-1], relevance, judged)


def sample(
    rng: np.random.Generator, maker: str, n: int, *, labels: int = 30, d: int = 9, name: str = "row"
) -> EmbeddingSet:
    """Rows of one of these worlds, with labels, ids and cameras at random."""
    return EmbeddingSet(
        WORLDS[maker](rng, n, d),
        [f"label {i}" for i in rng.integers(0, labels, n)],
        ids=[f"{name} {i}" for i in range(n)],
        groups={"camera": [f"camera {i}" for i in rng.integers(0, 3, n)]},
    )
