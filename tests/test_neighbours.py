"""The lists against the counts that the number is made of, and against loops over whole numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from recallatk.evaluation import evaluate_embeddings
from recallatk.neighbours import Neighbours, nearest
from recallatk.ranking import Block
from recallatk.types import EmbeddingSet, EvalProtocol, Qrels, RecallatkError
from worlds import draw_world

SMALL = Block(queries=2, pairs=3, gallery=2, part=2)


def columns(found: Neighbours) -> dict[str, np.ndarray]:
    return {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}


def assert_equal(found: Neighbours, expected: Neighbours) -> None:
    for name, column in columns(expected).items():
        np.testing.assert_array_equal(getattr(found, name), column, err_msg=name)


def expected_lists(world, protocol, similarities, k):
    """Of each query the rows of the list, ranks and sizes of ties, from the oracle's whole numbers."""
    ids = world.other.ids or range(len(world.other))
    for sims, (positives, ignored) in zip(similarities, world.judge(protocol), strict=True):
        left = sorted(set(range(len(sims))) - ignored, key=lambda g, sims=sims: (-sims[g], ids[g]))
        yield (
            left[:k],
            [1 + sum(sims[h] > sims[g] for h in left) for g in left[:k]],
            [sum(sims[h] == sims[g] for h in left) for g in left[:k]],
            positives,
            next((g for g in left if g not in positives), -1),
            next((g for g in left if g in positives), -1),
        )


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("ignore_same", ["none", "camera", "camera+label"])
@pytest.mark.parametrize("block", [None, SMALL])
def test_lists_are_those_of_loops(alone, several, ignore_same, block):
    for seed in range(30):
        world = draw_world(seed, alone=alone, several=several)
        protocol = EvalProtocol(ignore_same=ignore_same, exclude_self=("id", "none", "content")[seed % 3])
        for k in (1, 3, 20):
            found = nearest(world.query, world.gallery, k, protocol=protocol, block=block)
            expected = expected_lists(world, protocol, world.similarities, k)
            for i, (order, ranks, ties, positives, wrong, best) in enumerate(expected):
                n = len(order)
                assert found.rows[i].tolist() == order + [-1] * (k - n)
                assert found.ranks[i].tolist() == ranks + [0] * (k - n)
                assert found.ties[i].tolist() == ties + [0] * (k - n)
                assert found.tied[i].tolist() == [size > 1 for size in ties] + [False] * (k - n)
                assert found.positive[i].tolist() == [g in positives for g in order] + [False] * (k - n)
                assert found.similarity[i, :n].tolist() == [world.similarities[i][g] * 2.0**-52 for g in order]
                assert np.isnan(found.similarity[i, n:]).all()
                assert found.best_negative[i] == wrong
                assert found.best_positive[i] == best


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("classes", [3, 40])
@pytest.mark.parametrize("alone", [True, False])
def test_positives_stand_where_the_engine_counts_them(similarity, classes, alone):
    rng = np.random.default_rng([classes, alone])
    rows = rng.integers(-2, 3, (500, 4)) + np.array([0, 0, 0, 7])  # few values: ties everywhere
    labels = [f"c{c}" for c in rng.integers(0, classes, 500)]
    ids = [f"i{i}" for i in rng.permutation(500)]
    sets = [EmbeddingSet(rows[s], labels[s], ids=ids[s]) for s in (slice(0, 200), slice(200, 500))]
    query, gallery = (EmbeddingSet(rows, labels, ids=ids), None) if alone else sets
    protocol = EvalProtocol(ks=(1, 5, 20), similarity=similarity)
    found = nearest(query, gallery, 500, protocol=protocol, block=Block(64, 3000, 90))
    values = {
        ties: evaluate_embeddings(query, gallery, protocol=dataclasses.replace(protocol, ties=ties))
        for ties in ("pessimistic", "optimistic")
    }
    counts = values["optimistic"].queries
    for name in ("negatives_ahead", "negatives_tied", "positives_tied", "n_positives", "n_candidates"):
        np.testing.assert_array_equal(getattr(found, name), counts[name], err_msg=name)
    np.testing.assert_array_equal(
        found.best_positive_similarity[found.n_positives > 0], counts["similarity"][found.n_positives > 0]
    )
    evaluated = found.n_positives > 0
    for k in (1, 5, 20):
        hit = (found.positive & (found.ranks <= k) & (found.ranks > 0)).any(axis=1)
        assert hit[evaluated].mean() == values["optimistic"][f"recall@{k}"]
        # Pessimistic: the negatives of a tied group come before its positives.
        wrong = ~found.positive & (found.similarity >= found.best_positive_similarity[:, None])
        sure = (wrong.sum(axis=1) < k) & evaluated
        assert sure.sum() / evaluated.sum() == values["pessimistic"][f"recall@{k}"]


def test_the_order_of_rows_is_free():
    rng = np.random.default_rng(5)
    rows = rng.integers(-1, 2, (60, 3)) + np.array([0, 0, 3])
    base = EmbeddingSet(rows, [f"c{i % 7}" for i in range(60)], ids=[f"i{i:02}" for i in range(60)])
    expected = nearest(base, None, 12)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(60)
        found = nearest(base.take(order), None, 12, block=Block(7, 100, 13, 20))
        back = np.argsort(order)
        np.testing.assert_array_equal(order[found.rows][back], expected.rows)
        for name in ("similarity", "ranks", "ties", "positive", "negatives_ahead"):
            np.testing.assert_array_equal(getattr(found, name)[back], getattr(expected, name))
        np.testing.assert_array_equal(order[found.best_negative][back], expected.best_negative)


def test_an_encoder_that_maps_everything_to_one_point_ties_all():
    rows = EmbeddingSet(np.ones((300, 8)), ["a", "b", "c"] * 100, ids=[f"i{i:03}" for i in reversed(range(300))])
    found = nearest(rows, None, 4, block=Block(50, 10_000, 64))
    assert (found.ranks == 1).all()
    assert (found.ties == 299).all()
    assert found.rows[0].tolist() == [299, 298, 297, 296]  # i000 first


def test_chosen_rows_come_in_the_order_asked_for():
    world = draw_world(1, alone=False, several=False)
    everything = nearest(world.query, world.gallery, 3)
    some = nearest(world.query, world.gallery, 3, rows=[2, 0, 2])
    for name, column in columns(some).items():
        np.testing.assert_array_equal(column, getattr(everything, name)[[2, 0, 2]], err_msg=name)
    assert len(nearest(world.query, world.gallery, 3, rows=[])) == 0
    assert nearest(world.query, world.gallery, 3, rows=[]).rows.shape == (0, 3)


def test_qrels_say_who_is_positive_and_who_is_junk():
    query = EmbeddingSet([[1.0, 0]], [()], ids=["q"])
    gallery = EmbeddingSet([[1, 0.1], [1, 0.2], [1, 0.3]], [()] * 3, ids=["junk", "far", "near"])
    qrels = Qrels(["q", "q"], ["junk", "near"], np.array([1, 1]), levels=["junk", "easy"])
    found = nearest(query, gallery, 3, protocol=EvalProtocol(relevance="qrels", level="medium"), qrels=qrels)
    assert found.rows.tolist() == [[1, 2, -1]]
    assert found.positive.tolist() == [[False, True, False]]
    assert found.best_positive_rank.tolist() == [2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k=0: a list"),
        ({"k": True}, "k=True"),
        ({"rows": [3]}, "rows: 3 is no row of the 3 queries"),
        ({"rows": [-1]}, "rows: -1 is no row"),
        ({"rows": [0.5]}, "rows: 0.5 is no row"),
        ({"threads": 0}, "threads=0"),
        ({"gallery": np.eye(3)}, "gallery: ndarray is no EmbeddingSet"),
        ({"gallery": EmbeddingSet(np.eye(2), ["a", "b"])}, "3 columns"),
    ],
)
def test_what_does_not_fit_is_said_in_a_line(change, message):
    arguments = {"query": EmbeddingSet(np.eye(3), ["a", "a", "b"]), "gallery": None, "k": 2, **change}
    with pytest.raises(RecallatkError) as error:
        nearest(**arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
