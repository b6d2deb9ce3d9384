"""Depth "all": tiles, bins and limits, with the C extension and without it."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import sys
import time

import numpy as np
import pytest

from grid_worlds import (
    WORLDS,
    World,
    assert_same,
    clusters,
    columns_of,
    duplicates,
    one_point,
    truth_columns,
    whole_number_truths,
    world,
)
from recallatk.ranking import Block, all_levels, bins, finding, rank, to_grid
from recallatk.ranking.all_levels import rank_all
from recallatk.ranking.bins import Bins, MakeAddTile, Tile, add_tiles_in_c, add_tiles_in_numpy, bins_in_c
from recallatk.ranking.native import why_not
from recallatk.ranking.packing import NO_FRAME, RIGHT, SUPERBLOCK, extension, pack
from recallatk.ranking.products import exact_products, float32_rows, round_down
from recallatk.relevance import Relevance
from recallatk.relevance.matching import PairMatching

needs_c = pytest.mark.skipif(not bins_in_c(), reason="the C extension was not built")
needs_native = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

WAYS: dict[str, MakeAddTile] = {"numpy": add_tiles_in_numpy, **({"C": add_tiles_in_c} if bins_in_c() else {})}


def check(it: World, size: Block, threads: int) -> None:
    """Counts against whole numbers, with and without a limit."""
    n = len(it.query.rows)
    limits = [None, np.random.default_rng(n).integers(1, 9, n), np.full(n, 40)]
    truths = whole_number_truths(it.query, it.gallery, it.judged)
    for limit, (name, add_tile) in itertools.product(limits, WAYS.items()):
        found = rank_all(
            it.query,
            it.gallery,
            it.relevance,
            exact_products,
            add_tile,
            size=size,
            limit=limit,
            threads=threads,
        )
        expected = truth_columns(truths, it.gallery.unit, "all", limit)
        assert_same(columns_of(found), expected, f"{name}, {size}, {threads} threads, limit {limit is not None}")


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("size", [Block(7, 10**6, 7), Block(40, 900, 11), Block(600, 10**6, 3000)])
@pytest.mark.parametrize("maker", [clusters, duplicates, one_point])
def test_tiles_and_threads_change_no_count(maker, size, threads):
    rng = np.random.default_rng(threads)
    check(world(rng, maker(rng, 90, 6), ignore_same="camera"), size, threads)
    check(world(rng, maker(rng, 90, 6), 35), size, threads)


@pytest.mark.parametrize("name", WORLDS)
def test_more_queries_than_a_block_holds(name, monkeypatch):
    monkeypatch.setattr(all_levels, "MOST_QUERIES", 16)
    rng = np.random.default_rng(4)
    check(world(rng, WORLDS[name](rng, 150, 20), n_labels=20, similarity="dot"), Block(), 2)
    check(world(rng, WORLDS[name](rng, 150, 20), n_labels=3, ignore_same="camera"), Block(), 2)


def test_two_blocks_of_full_size():
    rng = np.random.default_rng(5)
    it = world(rng, duplicates(rng, 700, 5), n_labels=90)
    reference = columns_of(rank(it.query, it.gallery, it.relevance, depth="all", backend="reference"))
    for name, add_tile in WAYS.items():
        found = rank_all(
            it.query, it.gallery, it.relevance, exact_products, add_tile, size=Block(), limit=None, threads=2
        )
        assert_same(columns_of(found), reference, name)


@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_grades_keep_their_order(backend):
    rng = np.random.default_rng(6)
    n, m = 30, 50
    grids = to_grid(duplicates(rng, n, 4), duplicates(rng, m, 4))
    owners, rows = np.divmod(rng.choice(n * m, 400, replace=False), m)
    relevance = Relevance(n, m, PairMatching.of(n, owners, rows, rng.integers(1, 4, 400)), "", {})
    for limit in (None, rng.integers(1, 9, n)):
        found, expected = (
            list(rank(*grids, relevance, depth="all", limit=limit, backend=name)) for name in (backend, "reference")
        )
        assert_same(columns_of(found), columns_of(expected), backend)
        for column in ("gains", "ideal_gains"):
            ours, theirs = (np.concatenate([getattr(block, column) for block in side]) for side in (found, expected))
            np.testing.assert_array_equal(ours, theirs)


def test_native_counts_without_the_extension_for_bins(monkeypatch):
    monkeypatch.setitem(sys.modules, "recallatk.ranking._levels", None)
    assert not bins_in_c()
    rng = np.random.default_rng(7)
    it = world(rng, duplicates(rng, 80, 7))
    expected = truth_columns(whole_number_truths(it.query, it.gallery, it.judged), it.gallery.unit, "all")
    assert_same(columns_of(rank(it.query, it.gallery, it.relevance, depth="all")), expected, "without")


@pytest.mark.parametrize("symmetric", [True, False])
def test_tiles_cover_every_pair_once(symmetric):
    rng = np.random.default_rng(8)
    it = world(rng, clusters(rng, 50, 3))
    for first, stop, height, width in ((0, 50, 7, 9), (10, 30, 20, 50), (13, 37, 5, 4)):
        cuts = [slice(at, min(at + height, stop)) for at in range(first, stop, height)]
        blocks = [
            all_levels.QueryBlock.of(
                cut, it.relevance, exact_products(it.query.rows, it.gallery.rows, "dot"), 1, 0.0, None
            )
            for cut in cuts
        ]
        tasks = all_levels._tasks(blocks, slice(first, stop) if symmetric else slice(0, 0), slice(0, 50), width)
        seen = np.zeros((50, 50), np.int64)
        for task in tasks:
            seen[task.block.queries, task.rows] += 1
            if task.mirror is not None:
                assert task.mirror.queries == task.rows
                seen[task.rows, task.block.queries] += 1
        assert (seen[first:stop] == 1).all()
        assert (np.delete(seen, np.s_[first:stop], axis=0) == 0).all()


# One tile, in numpy and in C


def one_tile(rng: np.random.Generator, rows: int, columns: int, levels: int, d: int) -> tuple[Bins, Tile, World]:
    """Products of random rows against levels among which many of them lie, some not to be counted."""
    it = world(rng, duplicates(rng, rows + columns, d), rows)
    left, right, error = float32_rows(it.query.rows, it.gallery.rows)
    exact = it.query.rows.astype(np.float64) @ it.gallery.rows.astype(np.float64).T
    counts = rng.integers(0, levels + 1, rows)
    chosen = [np.unique(rng.choice(exact[q], counts[q]))[::-1] for q in range(rows)]
    starts = np.concatenate([[0], np.cumsum([len(values) for values in chosen])])
    lowest = np.array([values[-1] if len(values) else np.inf for values in chosen])
    low = round_down(
        np.minimum(lowest, [values[0] - it.gallery.near if len(values) else np.inf for values in chosen]) * 2.0**-52
        - error
    )
    product = left @ right.T
    product[rng.random(product.shape) < 0.1] = np.nan
    similarity = np.concatenate([np.empty(0), *chosen])
    return Bins.of(starts, similarity, it.gallery.near, error), Tile(product, False, low, error, 0, 0), it


@needs_c
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 63), (5, 64), (17, 65), (40, 130), (3, 1100), (520, 16)])
@pytest.mark.parametrize("levels", [1, 4, 70, 400])
def test_c_fills_the_bins_that_numpy_fills(rows, columns, levels):
    rng = np.random.default_rng(levels)
    for d in (1, 3, 16, 37):
        empty, tile, it = one_tile(rng, min(rows, bins.MOST_QUERIES), columns, levels, d)
        in_columns = dataclasses.replace(tile, product=np.ascontiguousarray(tile.product.T), by_column=True)
        totals = []
        for make_add_tile, given in itertools.product(WAYS.values(), (tile, in_columns)):
            add_tile = make_add_tile(it.query.rows, it.gallery.rows)
            filled = dataclasses.replace(empty, above=empty.above.copy(), level=empty.level.copy())
            add_tile(filled, given)
            add_tile(filled, given)
            totals.append(filled.totals())
        for other in totals[1:]:
            for ours, theirs in zip(totals[0], other, strict=True):
                np.testing.assert_array_equal(ours, theirs)


@needs_c
def test_c_refuses_buffers_that_do_not_fit():
    extension = importlib.import_module("recallatk.ranking._levels")
    f32, i64 = (lambda n: np.zeros(n, np.float32)), (lambda n: np.zeros(n, np.int64))
    rows = np.zeros((2, 4), np.int32)
    good = [
        f32(6),
        f32(2),
        np.array([0, 1, 3]),
        np.zeros(3),
        f32(3),
        f32(3),
        rows,
        np.zeros((3, 4), np.int32),
        i64(5),
        i64(3),
        2,
        3,
        False,
        4,
    ]
    extension.add_tile(*good)
    bad = {
        0: f32(5),
        1: f32(3),
        2: np.array([0, 4, 3]),
        3: np.zeros(2),
        4: f32(2),
        5: f32(4),
        6: rows[:1],
        7: rows,
        8: i64(3),
        9: i64(2),
        10: 3,
        11: 0,
        12: True,
        13: 5,
    }
    for place, value in bad.items():
        with pytest.raises(ValueError, match="do not fit"):
            extension.add_tile(*(value if at == place else given for at, given in enumerate(good)))


# Pairs that are found by 8-bit products


@needs_native
@pytest.mark.parametrize("room", [0, finding.ROOM])
@pytest.mark.parametrize("name", WORLDS)
def test_found_pairs_are_counted_as_whole_numbers_say(name, room, monkeypatch):
    monkeypatch.setattr(all_levels, "ASKED_OF", 0)
    monkeypatch.setattr(finding, "ROOM", room)
    rng = np.random.default_rng(9)
    for it in (
        world(rng, WORLDS[name](rng, 230, 7), n_labels=30),
        world(rng, WORLDS[name](rng, 120, 20), n_labels=3, ignore_same="camera", similarity="dot"),
        world(rng, WORLDS[name](rng, 260, 5), 40, exclude_self="none"),
    ):
        n = len(it.query.rows)
        truths = whole_number_truths(it.query, it.gallery, it.judged)
        for limit, block in itertools.product(
            (rng.integers(1, 9, n), np.full(n, 10**6)), (None, Block(13, 10**6, 40), Block(50, 400, 64))
        ):
            found = rank(
                it.query, it.gallery, it.relevance, depth="all", limit=limit, backend="native", block=block, threads=2
            )
            expected = truth_columns(truths, it.gallery.unit, "all", limit)
            assert_same(columns_of(found), expected, f"{name}, {block}")


@needs_native
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_found_pairs_over_several_superblocks(threads, monkeypatch):
    monkeypatch.setattr(all_levels, "ASKED_OF", 0)
    monkeypatch.setattr(finding, "ROOM", 0)
    rng = np.random.default_rng(10)
    it = world(rng, duplicates(rng, finding.AT_ONCE * SUPERBLOCK + 300, 6), n_labels=200)
    for limit in (np.full(len(it.query), 3), rng.integers(1, 40, len(it.query))):
        ours, expected = (
            columns_of(
                rank(it.query, it.gallery, it.relevance, depth="all", limit=limit, backend=backend, threads=threads)
            )
            for backend in ("native", "reference")
        )
        assert_same(ours, expected, f"{threads} threads")


@needs_native
def test_pairs_are_found_where_few_are_asked_for_and_nowhere_else(monkeypatch):
    asked: list[int] = []
    monkeypatch.setattr(finding.PairFinder, "__call__", lambda self, *args, **_: asked.append(len(self.query)))
    rng = np.random.default_rng(11)
    it = world(rng, clusters(rng, 1500, 4), n_labels=500)
    for limit in (None, np.full(1500, 2)):
        list(rank(it.query, it.gallery, it.relevance, depth="all", limit=limit, backend="native"))
        assert asked == []
    list(rank(it.query, it.gallery, it.relevance, depth="all", limit=np.full(1500, 1), backend="native"))
    assert asked == [1500]


@needs_native
def test_finding_refuses_buffers_that_do_not_fit():
    packed = pack(to_grid(np.eye(8))[0].rows, np.arange(8.0), NO_FRAME)
    room = 2 * RIGHT * SUPERBLOCK

    def some(n: int) -> list[np.ndarray]:
        return [np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n)]

    def call(*, d: int = 8, to: int = 1, right: int = 0, n: int = 8, out: list[np.ndarray]) -> object:
        return extension().find(packed.buffers, n, packed.buffers, n, d, 0.0, 0, to, right, True, *out)

    assert call(out=some(room))[1] == 1
    for wrong in ({"d": 9}, {"to": 2}, {"right": -1}, {"n": 9}):
        with pytest.raises(ValueError, match="fit"):
            call(**wrong, out=some(room))
    for at in range(3):
        out = some(room)
        out[at] = out[at][:-1]
        with pytest.raises(ValueError, match="fit"):
            call(out=out)


def test_an_error_in_one_thread_ends_the_others():
    begun = []

    class Block:
        queries = slice(0, 1)

        def __len__(self):
            return 1

        def add(self, *_args, **_choices):
            begun.append(1)
            if len(begun) == 5:
                raise RuntimeError("out of memory")
            time.sleep(0.001)

    one = all_levels.Part(None, np.ones((1, 2), np.float32), 1.0, 0)
    tasks = [all_levels._Task(Block(), slice(0, 1), None, ()) for _ in range(5000)]
    with pytest.raises(RuntimeError, match="out of memory"):
        all_levels._share(tasks, one, one, 0.0, None, 2)
    assert len(begun) < 500
