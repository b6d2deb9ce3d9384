"""Equal rows are compared once and count for all: held against int64 products of all rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from grid_worlds import WORLDS, clusters, codes, one_point
from recallatk.ranking import Block, equal_rows, native, screen, to_grid
from recallatk.ranking.equal_rows import group_equal_rows
from recallatk.ranking.native import why_not
from recallatk.ranking.packing import RIGHT, SUPERBLOCK
from recallatk.ranking.passes import LevelCounts

BACKENDS = {"numpy": screen.count_levels} | ({} if why_not() else {"native": native.count_levels})
NEAR = 2**52 // 10**6
KINDS = ("far_above", "above", "level", "near_below")

# Grouping


def groups_by_hand(rows: np.ndarray, best: np.ndarray | None) -> list[int]:
    """For each row the first one that is equal to it."""
    seen: dict[tuple[bytes, float], int] = {}
    keys = [(row.tobytes(), 0.0 if best is None else best[k]) for k, row in enumerate(rows)]
    return [seen.setdefault(key, k) for k, key in enumerate(keys)]


@pytest.mark.parametrize("with_best", [False, True])
@pytest.mark.parametrize("name", WORLDS)
def test_groups_hold_what_is_equal(name, with_best):
    rng = np.random.default_rng(1)
    for d in (1, 7, 8, 9, 40):
        rows = to_grid(WORLDS[name](rng, 150, d))[0].rows
        rows = rows[rng.integers(0, len(rows), 300)]
        best = rng.integers(0, 3, 300).astype(float) if with_best else None
        found = group_equal_rows(rows, best)
        expected = groups_by_hand(rows, best)
        assert found.first[found.group].tolist() == expected
        assert found.first.tolist() == sorted(set(expected))
        assert found.weight.tolist() == [expected.count(k) for k in found.first.tolist()]


@pytest.mark.parametrize("column", [0, 7, 8, 31])
def test_rows_that_differ_in_one_column_are_not_equal(column):
    rows = np.ones((6, 32), np.int32)
    rows[3:, column] = 2
    assert group_equal_rows(rows).group.tolist() == [0, 0, 0, 1, 1, 1]


def test_hashes_are_never_trusted(monkeypatch):
    """Where every hash is the same, rows that differ stay apart."""
    monkeypatch.setattr(equal_rows, "_factors", lambda n: np.zeros(n, np.int64))
    rows = np.array([[1, 2], [3, 4], [1, 2], [3, 4], [5, 6]], np.int32)
    found = group_equal_rows(rows)
    np.testing.assert_array_equal(rows[found.first[found.group]], rows)
    assert found.weight.sum() == 5
    best = np.array([0.0, 0.0, 1.0, 1.0, 1.0])
    found = group_equal_rows(rows, best)
    np.testing.assert_array_equal(best[found.first[found.group]], best)


# Counting


def count_by_hand(query: np.ndarray, gallery: np.ndarray, best: np.ndarray) -> dict[str, np.ndarray]:
    """From int64 products; a query without a best positive counts nothing."""
    products = query.astype(np.int64) @ gallery.astype(np.int64).T
    ranked = np.isfinite(best)
    gap = products - np.where(ranked, best, 0).astype(np.int64)[:, None]
    hits = (gap > NEAR, gap > 0, gap == 0, (gap < 0) & (gap >= -NEAR))
    return {kind: (hit & ranked[:, None]).sum(axis=1) for kind, hit in zip(KINDS, hits, strict=True)}


def some_best(rng: np.random.Generator, query: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    """For each query its similarity with some row, so that something is level; every tenth has none."""
    other = gallery[rng.integers(0, len(gallery), len(query))]
    best = (query.astype(np.int64) * other.astype(np.int64)).sum(axis=1).astype(float)
    best[::10] = np.inf
    return best


def assert_counts(found: LevelCounts, expected: dict[str, np.ndarray], rows: np.ndarray | slice = slice(None)) -> None:
    for kind in KINDS:
        np.testing.assert_array_equal(getattr(found, kind)[rows], expected[kind][rows], err_msg=kind)


def repeated(maker: Callable[..., np.ndarray], share: float) -> Callable[..., np.ndarray]:
    """A share of the rows are copies of a few of the others."""

    def make(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
        rows = maker(rng, n, d)
        copies = rng.permutation(n)[: int(share * n)]
        rows[copies] = rows[rng.integers(0, 5, len(copies))]
        return rows

    return make


SETTINGS = {
    "all equal": one_point,
    "two points": lambda rng, n, d: rng.normal(size=(2, d))[rng.integers(0, 2, n)],
    "one row is there often, in one panel": repeated(clusters, 0.05),
    "half of the rows": repeated(clusters, 0.5),
    "codes": codes,
    "codes, most of them equal": repeated(codes, 0.8),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SETTINGS)
def test_equal_rows_count_for_all(name, backend):
    rng = np.random.default_rng(3)
    count = BACKENDS[backend]
    for n, d, threads in ((3 * RIGHT, 5, 1), (9 * SUPERBLOCK + 5, 16, 2), (700, 33, 3)):
        rows = to_grid(SETTINGS[name](rng, n, d))[0].rows
        best = some_best(rng, rows, rows)
        settings = {"near": NEAR, "threads": threads, "size": Block(gallery=100)}
        found, nothing = count(rows, rows, best, None, **settings)
        assert nothing is None
        assert_counts(found, count_by_hand(rows, rows, best))
        query, gallery = rows[: n // 3], rows[n // 3 :]
        best, other_best = some_best(rng, query, gallery), some_best(rng, gallery, query)
        found, nothing = count(query, gallery, best, None, **settings)
        assert nothing is None
        assert_counts(found, count_by_hand(query, gallery, best))
        here, there = count(query, gallery, best, other_best, **settings)
        assert_counts(here, count_by_hand(query, gallery, best))
        assert_counts(there, count_by_hand(gallery, query, other_best))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", WORLDS)
def test_two_parts_count_each_pair_for_both(name, backend):
    rng = np.random.default_rng(4)
    for d in (3, 64, 70):
        rows = to_grid(WORLDS[name](rng, 330, d))[0].rows
        query, gallery = rows[:130], rows[130:]
        best, other_best = some_best(rng, query, gallery), some_best(rng, gallery, query)
        here, there = BACKENDS[backend](query, gallery, best, other_best, near=NEAR, threads=1, size=Block())
        assert_counts(here, count_by_hand(query, gallery, best))
        assert_counts(there, count_by_hand(gallery, query, other_best))
