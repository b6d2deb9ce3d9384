"""Every backend counts the same: as the reference, and as whole numbers taken one query at a time."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from backends_here import HERE
from grid_worlds import (
    COLUMNS,
    UNIT,
    WORLDS,
    Columns,
    World,
    assert_same,
    clusters,
    codes,
    columns_of,
    duplicates,
    last_bit,
    one_point,
    one_sided,
    outlier_coordinate,
    truth_columns,
    truth_of,
    whole_number_truths,
    wild_lengths,
    world,
)
from recallatk.ranking import Block, Grid, positives, rank, to_grid
from recallatk.ranking.native import SUPERBLOCK
from recallatk.ranking.products import float32_rows, round_down, round_up
from recallatk.relevance import build_relevance
from recallatk.types import EmbeddingSet, EvalProtocol, RecallatkError


def check(it: World, **choices: object) -> None:
    """All backends against whole numbers, at both depths, with and without a limit."""
    n = len(it.query.rows)
    limit = np.random.default_rng(n).integers(1, 12, n)
    truths = whole_number_truths(it.query, it.gallery, it.judged)
    for depth, given in (("first", None), ("all", None), ("all", limit)):
        expected = truth_columns(truths, it.gallery.unit, depth, given)
        for name in HERE:
            found = rank(it.query, it.gallery, it.relevance, depth=depth, limit=given, backend=name, **choices)
            assert_same(columns_of(found), expected, f"{name}, depth {depth}, limit {given is not None}")


@pytest.mark.parametrize("name", WORLDS)
def test_every_backend_counts_as_whole_numbers_do(name):
    rng = np.random.default_rng(1)
    for d in (1, 2, 3, 5, 64):
        check(world(rng, WORLDS[name](rng, 60, d)))
        check(world(rng, WORLDS[name](rng, 70, d), 20))


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("name", WORLDS)
def test_every_similarity_is_counted_exactly(name, similarity):
    rng = np.random.default_rng(2)
    for d in (4, 65):
        check(world(rng, WORLDS[name](rng, 90, d), similarity=similarity, ignore_same="camera"))
        check(world(rng, WORLDS[name](rng, 90, d), 40, similarity=similarity))


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 200])
def test_widths_that_do_not_fit_the_kernel(d):
    rng = np.random.default_rng(d)
    check(world(rng, clusters(rng, 70, d)))
    check(world(rng, clusters(rng, 71, d), 7, n_labels=3))


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 63, 64, 65, 191, 192, 193, 383, 384, 385])
def test_sizes_around_panels_and_superblocks(n):
    rng = np.random.default_rng(n)
    rows = duplicates(rng, n + 3, 9)
    for queries in {1, min(n, 9)}:  # separate sets: so many queries against n rows, and the other way round
        check(world(rng, np.resize(rows, (queries + n, 9)), queries, n_labels=4))
        check(world(rng, np.resize(rows, (queries + n, 9)), n, n_labels=40))
    check(world(rng, rows[:n], n_labels=max(n // 4, 1)))


def test_more_superblocks_than_pass_by_a_panel_at_once():
    rng = np.random.default_rng(11)
    rows = outlier_coordinate(rng, 5 * SUPERBLOCK + 7, 6)
    for it in (world(rng, rows, n_labels=200), world(rng, rows, 4 * SUPERBLOCK + 1, n_labels=100)):
        expected = truth_of(it)
        for name, threads in itertools.product(HERE, (1, 2, 3)):
            found = columns_of(rank(it.query, it.gallery, it.relevance, backend=name, threads=threads))
            assert_same(found, expected, f"{name}, {threads} threads")


@pytest.mark.parametrize("ignore_same", ["none", "camera", "label", "camera+label"])
@pytest.mark.parametrize("exclude_self", ["id", "none"])
def test_what_is_ignored_counts_for_nothing(ignore_same, exclude_self):
    rng = np.random.default_rng(3)
    for maker in (clusters, one_point, codes):
        check(world(rng, maker(rng, 80, 8), ignore_same=ignore_same, exclude_self=exclude_self))
        check(world(rng, maker(rng, 80, 8), 30, ignore_same=ignore_same, exclude_self=exclude_self))


def test_queries_without_any_positive_are_left_alone():
    rng = np.random.default_rng(4)
    check(world(rng, clusters(rng, 50, 6), n_labels=10**6))
    check(world(rng, clusters(rng, 50, 6), 20, n_labels=10**6))


SIZES = [Block(1, 1, 1), Block(3, 7, 5, 11), Block(64, 100, 33, 64), Block(1000, 10**6, 1000)]


@pytest.mark.parametrize("block", SIZES)
@pytest.mark.parametrize("depth", ["first", "all"])
def test_block_sizes_and_threads_change_no_count(block, depth):
    rng = np.random.default_rng(5)
    for it in (world(rng, duplicates(rng, 50, 12)), world(rng, duplicates(rng, 60, 12), 17)):
        expected = columns_of(rank(it.query, it.gallery, it.relevance, depth=depth, backend="reference"))
        for name, threads in itertools.product(HERE, (1, 2, 3)):
            found = rank(it.query, it.gallery, it.relevance, depth=depth, backend=name, block=block, threads=threads)
            assert_same(columns_of(found), expected, f"{name}, {block}, {threads} threads")


def test_a_small_budget_of_memory_changes_no_count():
    rng = np.random.default_rng(6)
    it = world(rng, clusters(rng, 200, 40))
    for depth in ("first", "all"):
        expected = columns_of(rank(it.query, it.gallery, it.relevance, depth=depth, backend="reference"))
        for name in HERE:
            found = rank(it.query, it.gallery, it.relevance, depth=depth, backend=name, memory=250_000)
            assert_same(columns_of(found), expected, name)


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("depth", ["first", "all"])
def test_the_order_of_rows_changes_no_count(name, depth):
    rng = np.random.default_rng(7)
    rows = duplicates(rng, 400, 16)
    labels = [f"l{k}" for k in rng.integers(0, 60, 400)]
    first = [f"i{k}" for k in range(400)]

    def counts(order: np.ndarray, queries: np.ndarray | None) -> Columns:
        gallery = EmbeddingSet(rows, labels, ids=first).take(order.tolist())
        query = gallery if queries is None else EmbeddingSet(rows, labels, ids=first).take(queries.tolist())
        relevance = build_relevance(query, None if queries is None else gallery, EvalProtocol())
        grids = to_grid(*(side.embeddings for side in ([gallery] if queries is None else [query, gallery])))
        return columns_of(rank(grids[0], grids[-1], relevance, depth=depth, backend=name))

    straight, shuffled, some = np.arange(400), rng.permutation(400), np.arange(0, 400, 3)
    for_rows = ("best_positive",)
    assert_same(counts(shuffled, some), counts(straight, some), "another order of the gallery", but=for_rows)
    expected, found = counts(straight, None), counts(shuffled, None)
    for column in COLUMNS[4 + (depth == "all") :]:
        if column not in (*for_rows, "positives_tied"):
            np.testing.assert_array_equal(found[column], expected[column][shuffled], err_msg=column)
    for new, old in enumerate(shuffled.tolist()):
        mine, its = (slice(*c["starts"][at : at + 2]) for c, at in ((found, new), (expected, old)))
        for column in ("similarity", "negatives_ahead", "negatives_tied", "positives_tied"):
            np.testing.assert_array_equal(found[column][mine], expected[column][its], err_msg=column)


@pytest.mark.parametrize("name", [*WORLDS])
def test_groups_compared_by_one_product_count_the_same(name, monkeypatch):
    monkeypatch.setattr(positives, "SHARED", 2)
    rng = np.random.default_rng(8)
    check(world(rng, WORLDS[name](rng, 60, 7), n_labels=3))
    check(world(rng, WORLDS[name](rng, 60, 7), 30, n_labels=3, similarity="dot", ignore_same="camera"))
    check(world(rng, WORLDS[name](rng, 60, 7), n_labels=3, ignore_same="camera+label"), block=Block(4, 50, 9))


@pytest.mark.parametrize("name", ["clusters", "duplicates", "one point", "last bit"])
def test_three_large_classes_count_as_whole_numbers_do(name):
    rng = np.random.default_rng(9)
    it = world(rng, WORLDS[name](rng, 480, 20), n_labels=3, ignore_same="camera")
    expected = truth_of(it)
    for backend in HERE:
        assert_same(columns_of(rank(it.query, it.gallery, it.relevance, backend=backend)), expected, backend)


@pytest.mark.parametrize("backend", HERE)
def test_a_label_given_twice_is_one_label(backend, monkeypatch):
    monkeypatch.setattr(positives, "SHARED", 2)
    rows = np.random.default_rng(10).normal(size=(6, 4))
    once = EmbeddingSet(rows, [["a"], ["a"], ["a"], ["b"], ["b"], ["a", "b"]])
    twice = EmbeddingSet(rows, [["a", "a"], ["a"], ["a", "a"], ["b"], ["b", "b"], ["b", "a", "b"]])
    protocol = EvalProtocol(relevance="labels")
    grid = to_grid(rows)[0]
    found, expected = (
        columns_of(rank(grid, grid, build_relevance(rows_, None, protocol), backend=backend)) for rows_ in (twice, once)
    )
    assert_same(found, expected, "repeated labels")
    assert found["n_positives"].tolist() == [3, 3, 3, 2, 2, 5]


def test_near_ties_end_exactly_at_their_border():
    """Similarities are the best one plus 0, 1, the width of a near-tie, and one step on either side of it."""
    near = to_grid(np.eye(3))[0].near
    gaps = [sign * gap for sign in (1, -1) for gap in (0, 1, near - 1, near, near + 1, 3 * near)]
    base = 2**22

    def row(gap: int) -> list[int]:
        coarse, fine = divmod(gap, UNIT)
        return [base + coarse, fine // 2, fine - fine // 2]

    for d, fillers in itertools.product((3, 40), (0, 400)):
        rows = np.zeros((len(gaps) + 1 + fillers, d), dtype=np.int32)
        rows[: len(gaps) + 1, :3] = [row(0), *map(row, gaps)]
        rows[len(gaps) + 1 :] = to_grid(np.random.default_rng(12).normal(size=(max(fillers, 1), d)))[0].rows[:fillers]
        query = np.zeros((1, d), dtype=np.int32)
        query[0, :3] = UNIT, 1, 1
        assert (
            (rows[1 : len(gaps) + 1].astype(np.int64) @ query[0]) - rows[0].astype(np.int64) @ query[0]
        ).tolist() == gaps
        similarity, unit = "cosine", 2.0**-52
        labels = ["a", *"b" * len(gaps), *"c" * fillers]
        relevance = build_relevance(
            EmbeddingSet(np.ones((1, 1)), ["a"]), EmbeddingSet(np.ones((len(rows), 1)), labels), EvalProtocol()
        )
        judged = [({0}, set())]
        it = World(Grid(query, similarity, unit, near), Grid(rows, similarity, unit, near), relevance, judged)
        check(it)
        found = columns_of(rank(it.query, it.gallery, relevance, backend=HERE[0]))
        if not fillers:
            assert (found["negatives_ahead"][0], found["negatives_tied"][0]) == (5, 2)
            assert (found["near_above"][0], found["near_below"][0]) == (3, 3)


@pytest.mark.parametrize("maker", [clusters, outlier_coordinate, codes, one_sided, last_bit])
def test_wide_rows_count_as_whole_numbers_do(maker):
    rng = np.random.default_rng(13)
    it = world(rng, maker(rng, 60, 5000))
    expected = truth_of(it)
    for backend in HERE:
        assert_same(columns_of(rank(it.query, it.gallery, it.relevance, backend=backend)), expected, backend)


def test_parts_of_the_gallery_add_up():
    """Queries against two halves: the better best positive, and counts that add where it is the same."""
    rng = np.random.default_rng(14)
    rows = clusters(rng, 300, 10)
    labels = np.array([f"l{k}" for k in rng.integers(0, 5, 300)])
    query, gallery = EmbeddingSet(rows[:50], labels[:50]), EmbeddingSet(rows[50:], labels[50:])
    grids = to_grid(rows[:50], rows[50:])
    for backend in HERE:
        whole = columns_of(
            rank(grids[0], grids[1], build_relevance(query, gallery, EvalProtocol()), depth="all", backend=backend)
        )
        halves = []
        for part in (slice(0, 100), slice(100, 250)):
            grid = dataclasses.replace(grids[1], rows=np.ascontiguousarray(grids[1].rows[part]))
            side = EmbeddingSet(rows[50:][part], labels[50:][part])
            halves.append(
                columns_of(
                    rank(grids[0], grid, build_relevance(query, side, EvalProtocol()), depth="all", backend=backend)
                )
            )
        for q in range(50):
            best = [half["similarity"][half["starts"][q]] for half in halves]
            assert whole["similarity"][whole["starts"][q]] == max(best)
            assert whole["n_positives"][q] == sum(half["n_positives"][q] for half in halves)
            assert whole["n_candidates"][q] == sum(half["n_candidates"][q] for half in halves)


def test_an_unknown_backend_is_refused_by_name():
    grid = to_grid(np.eye(2))[0]
    relevance = build_relevance(EmbeddingSet(np.eye(2), ["a", "a"]), None, EvalProtocol())
    with pytest.raises(RecallatkError, match=r"gpu.*auto, native, numpy, torch, reference"):
        rank(grid, grid, relevance, backend="gpu")


# The bound of the float32 screen


def hardest_rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Grid rows whose rounding to float32 is as large as it gets, all in one direction."""
    scale = UNIT / np.sqrt(d)
    coarse = 2.0 ** np.floor(np.log2(scale))  # just above a power of two float32 is coarsest
    step = max(coarse * 2.0**-23, 1.0)
    rows = np.full((n, d), coarse) + rng.integers(0, 8, (n, d)) * step + max(step / 2 - 1, 0)
    return (rows * np.where(rng.random((n, 1)) < 0.5, -1, 1)).astype(np.int32)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 63, 64, 65, 200, 10_000])
def test_float32_products_stay_within_their_bound(d):
    rng = np.random.default_rng(d)
    worlds = [to_grid(maker(rng, 40, d))[0].rows for maker in WORLDS.values()]
    worlds += [to_grid(wild_lengths(rng, 40, d), similarity="dot")[0].rows, hardest_rows(rng, 40, d)]
    for rows, other in itertools.pairwise([*worlds, worlds[0]]):
        for left_rows, right_rows in ((rows, rows), (rows, other)):
            left, right, error = float32_rows(left_rows, right_rows)
            exact = (left_rows.astype(np.float64) @ right_rows.astype(np.float64).T) * 2.0**-52
            in_order = np.zeros((len(left), len(right)), np.float32)  # the longest chain of roundings
            for column in range(min(d, 200)):
                in_order += np.outer(left[:, column], right[:, column])
            products = [left @ right.T, left[:1] @ right.T, left @ right[:1].T]
            if d <= 200:
                products.append(in_order)
            for product in products:
                gap = np.abs(product.astype(np.float64) - exact[: len(product), : product.shape[1]])
                assert gap.max() <= error


def test_a_float32_threshold_is_never_on_the_wrong_side():
    rng = np.random.default_rng(15)
    values = np.concatenate([rng.normal(size=1000), rng.normal(size=1000) * 1e-30, [0.0, 1.0, -1.0]])
    assert (round_down(values).astype(np.float64) < values).all()
    assert (round_up(values).astype(np.float64) > values).all()
