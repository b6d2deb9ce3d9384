"""Dot and euclidean on raw rows: exact on one common grid, and the ranking that float64 gives.

The bound. With s the common power of two, the longest row is less than 2^b steps long before it is rounded (b = 26 for
dot, 25 for euclidean); rounding moves each coordinate by at most half a step, so a length by at most sqrt(d) / 2. Any
partial sum of |x_i y_i| is at most |x| |y| (Cauchy and Schwarz), so at most P = (2^b + sqrt(d) / 2)^2. For d up to
2^40, sqrt(d) / 2 is at most 2^19: P < 1.02 * 2^52 for dot. Euclidean adds up 2 x y, -|x|^2 and -|y|^2; on the way it
is at most 3 P and in the end at most (|x| + |y|)^2 <= 4 P < 1.04 * 2^52. All whole numbers below 2^53.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

import oracle
from recallatk.evaluation import evaluate_embeddings
from recallatk.metrics import METRICS, parse_metric
from recallatk.ranking import Block, rank, to_grid
from recallatk.relevance import build_relevance
from recallatk.types import EmbeddingSet, EvalProtocol, RecallatkError, SampleSet

RAW = ("dot", "euclidean")
BITS = {"dot": 26, "euclidean": 25}
LARGEST = float(np.finfo(np.float32).max)
SMALLEST = 2.0**-149
DEEP = [f"{name}@3" if row.cutoff == "always" else name for name, row in METRICS.items()]


def ranked(query, gallery, labels, similarity, *, depth="all", block=None):
    relevance = build_relevance(SampleSet(labels[0]), SampleSet(labels[1]), EvalProtocol())
    return list(rank(*to_grid(query, gallery, similarity=similarity), relevance, depth=depth, block=block))


def adversarial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    half = np.full((3, 999), 2.0**-26, dtype=np.float32) * np.array([[0.5], [1.5], [-0.5]], dtype=np.float32)
    edge = np.array([[1.0], [np.nextafter(np.float32(1), np.float32(0))], [-1.0]], dtype=np.float32)
    rows = {
        "one column": np.array([[LARGEST], [-LARGEST], [1], [SMALLEST]], dtype=np.float32),
        "the edge of a power of two": edge,
        "just below a power of two": edge[1:2],
        "all equal and large": np.full((2, 3000), LARGEST, dtype=np.float32),
        "all equal and tiny": np.full((2, 500), SMALLEST, dtype=np.float32),
        "denormals": (rng.integers(-(2**20), 2**20, size=(3, 50)) * SMALLEST).astype(np.float32),
        "a giant among the tiny": np.vstack([rng.normal(size=(3, 40)) * 1e-30, np.full((1, 40), 1e30)]).astype(
            np.float32
        ),
        "a giant among the ordinary": np.vstack([rng.normal(size=(3, 40)), rng.normal(size=(1, 40)) * 1e4]).astype(
            "f4"
        ),
        "every coordinate at a rounding border": np.hstack([[[0.99], [0.0], [0.0]], half]).astype(np.float32),
        "one coordinate holds all the length": np.eye(4, 70, dtype=np.float32) * np.float32(2 - 2**-23),
        "opposite": np.vstack([np.full((1, 64), 0.2499), np.full((1, 64), -0.2499)]).astype(np.float32),
    }
    return {name: values.astype(np.float32) for name, values in rows.items()}


ADVERSARIAL = adversarial()


@pytest.mark.parametrize("similarity", RAW)
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_rows_are_those_of_exact_arithmetic_and_no_sum_reaches_2_to_the_53(name, similarity):
    rows = ADVERSARIAL[name]
    grid = to_grid(rows, similarity=similarity)[0]
    (exact,) = oracle.raw_rows(rows.tolist(), kind=similarity)
    assert grid.rows.tolist() == exact
    assert_below_the_bound(grid, similarity)
    scale = Fraction(exact[0][0]) / Fraction(float(rows[0, 0])) if exact[0][0] == rows[0, 0] else None
    assert scale is None or Fraction(grid.unit) == 1 / scale**2


def assert_below_the_bound(grid, similarity):
    """The greatest of all partial sums, in Python's whole numbers, and the engine's products equal to them."""
    wide = grid.rows.astype(np.int64)
    floats = grid.rows.astype(np.float64)
    lengths = [int(np.sum(row * row)) for row in wide]  # below 2^63: each length is
    assert max(lengths) <= (2 ** BITS[similarity] + int(wide.shape[1] ** 0.5) // 2 + 1) ** 2
    for i, j in itertools.product(range(len(wide)), repeat=2):
        products = wide[i] * wide[j]
        reach = int(np.abs(products).sum())
        exact = int(products.sum())
        if similarity == "euclidean":
            reach = 2 * reach + lengths[i] + lengths[j]
            assert lengths[i] + lengths[j] - 2 * exact == int(((wide[i] - wide[j]) ** 2).sum())
        assert reach < 2**53
        for order in (slice(None), slice(None, None, -1)):
            assert int(floats[i][order] @ floats[j][order]) == exact


@pytest.mark.parametrize("similarity", RAW)
@pytest.mark.parametrize("value", [LARGEST, 1.0, 2.0**-100, SMALLEST])
@pytest.mark.parametrize("d", [1, 100_000])
def test_equal_rows_of_any_width_and_size_stay_below_the_bound(similarity, value, d):
    rows = np.full((3, d), value, dtype=np.float32)
    rows[1] *= -1
    rows[2, ::2] = 0
    if d == 1:
        rows[2] = np.float32(value) / 2 if value > SMALLEST else value
    grid = to_grid(rows, similarity=similarity)[0]
    assert_below_the_bound(grid, similarity)
    lengths = np.sqrt((grid.rows.astype(np.float64) ** 2).sum(axis=1))
    assert 2.0 ** (BITS[similarity] - 1) * 0.99 < lengths.max() <= 2.0 ** BITS[similarity] * 1.01  # no bit is wasted


@pytest.mark.parametrize("similarity", RAW)
def test_the_worst_rounding_of_a_hundred_thousand_columns_stays_below_the_bound(similarity):
    # One coordinate makes the row long; every other one is rounded up from a half.
    d, step = 100_000, 2.0 ** -BITS[similarity]
    rows = np.full((2, d), 1.5 * step, dtype=np.float32)
    rows[:, 0] = np.float32(1) - np.float32(2**-24)
    rows[1, 1:] *= -1
    grid = to_grid(rows, similarity=similarity)[0]
    assert set(np.abs(grid.rows[:, 1:]).ravel().tolist()) == {2}
    assert_below_the_bound(grid, similarity)


def draw(seed: int, similarity: str):
    """Whole numbers in a few dimensions: many similarities are equal, and everything is exact."""
    rng = np.random.default_rng([seed, RAW.index(similarity)])
    n, m, d = int(rng.integers(1, 5)), int(rng.integers(1, 9)), int(rng.integers(1, 4))
    scale = 2.0 ** rng.integers(-20, 20)
    query, gallery = (
        (rng.integers(-3, 4, size=(size, d)) * scale).astype(np.float32) + np.float32(0) for size in (n, m)
    )
    query[0, 0] = scale  # something has a length
    return query, gallery, [rng.choice(list("ab"), size=size).tolist() for size in (n, m)]


@pytest.mark.parametrize("similarity", RAW)
@pytest.mark.parametrize("block", [None, Block(1, 1, 1), Block(3, 8, 2)])
def test_counts_are_those_of_the_oracle_on_sets_full_of_ties(similarity, block):
    for seed in range(30):
        query, gallery, labels = draw(seed, similarity)
        sims = oracle.similarities(query.tolist(), gallery.tolist(), similarity)
        near = to_grid(query, gallery, similarity=similarity)[0].near
        for ranking in ranked(query, gallery, labels, similarity, block=block):
            unit = to_grid(query, gallery, similarity=similarity)[0].unit
            for place, row in enumerate(range(ranking.queries.start, ranking.queries.stop)):
                positives = {g for g, label in enumerate(labels[1]) if label == labels[0][row]}
                levels = slice(ranking.starts[place], ranking.starts[place + 1])
                found = zip(
                    (ranking.similarity[levels] / unit).tolist(),
                    ranking.negatives_ahead[levels].tolist(),
                    ranking.negatives_tied[levels].tolist(),
                    ranking.positives_tied[levels].tolist(),
                    strict=True,
                )
                assert list(found) == oracle.levels(sims[row], positives, set())
                if positives:
                    counted = ranking.near_above[place], ranking.near_below[place]
                    assert counted == oracle.near_negatives(sims[row], positives, set(), near)


@pytest.mark.parametrize("similarity", RAW)
@pytest.mark.parametrize("text", DEEP)
def test_every_metric_is_that_of_the_oracle(text, similarity):
    name = parse_metric(text)
    for seed in range(20):
        query, gallery, labels = draw(seed, similarity)
        sims = oracle.similarities(query.tolist(), gallery.tolist(), similarity)
        for ties in ("expected", "pessimistic", "optimistic"):
            values = [v for b in ranked(query, gallery, labels, similarity) for v in name.values(b, ties=ties)]
            expected = [
                oracle.value(
                    name.name, row, {g for g, other in enumerate(labels[1]) if other == label}, k=name.k, ties=ties
                )
                for row, label in zip(sims, labels[0], strict=True)
            ]
            assert values == pytest.approx([float(v or 0) for v in expected], abs=1e-12)


def brute_force(query, gallery, similarity):
    """Similarities in float64, of the rows as float32."""
    a, b = query.astype(np.float32).astype(np.float64), gallery.astype(np.float32).astype(np.float64)
    return a @ b.T if similarity == "dot" else -((a[:, None] - b[None]) ** 2).sum(axis=2)


def first_ranks(sims, labels):
    relevant = np.array(labels[0])[:, None] == np.array(labels[1])
    return [1 + int((row > row[own].max()).sum()) for row, own in zip(sims, relevant, strict=True)]


@pytest.mark.parametrize("similarity", RAW)
@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_separated_rows_rank_as_in_float64(similarity, spread):
    rng = np.random.default_rng(7)
    lengths = np.exp(spread * rng.normal(size=(160, 1)))
    rows = (rng.normal(size=(160, 24)) * lengths).astype(np.float32)
    labels = rng.integers(0, 8, size=160)
    query, gallery, sides = rows[:40], rows[40:], (labels[:40].tolist(), labels[40:].tolist())
    sims = brute_force(query, gallery, similarity)
    blocks = ranked(query, gallery, sides, similarity)
    ahead = np.concatenate([b.at_best(b.negatives_ahead) for b in blocks])
    tied = np.concatenate([b.at_best(b.negatives_tied) for b in blocks])
    near = np.concatenate([b.near_above + b.near_below for b in blocks])
    assert not tied.any()
    differs = ahead + 1 != first_ranks(sims, sides)
    assert not (differs & (near == 0)).any()
    # With lengths over seven orders of magnitude the short rows lose digits, which near-ties say.
    assert spread > 1 or not differs.any()
    best = np.concatenate([b.at_best(b.similarity) for b in blocks])
    own = [row[np.array(sides[1]) == label].max() for row, label in zip(sims, sides[0], strict=True)]
    np.testing.assert_allclose(best, own, atol=1e-6 * float((rows.astype(np.float64) ** 2).sum(axis=1).max()))


@pytest.mark.parametrize("similarity", RAW)
@pytest.mark.parametrize("exponent", [0, 4, 8, 12, 16, 20, 24, 30, 60])
def test_whatever_a_giant_row_rounds_away_is_counted_as_near_ties(similarity, exponent):
    # The giant is nobody's positive and far from everything; it only sets the scale.
    rng = np.random.default_rng(exponent)
    rows = rng.normal(size=(90, 12)).astype(np.float32)
    giant = np.zeros((1, 12), dtype=np.float32)
    giant[0, 0] = -(2.0**exponent)
    labels = rng.integers(0, 5, size=91)
    query, gallery = rows[:30], np.vstack([rows[30:], giant])
    sides = [str(x) for x in labels[:30]], [*[str(x) for x in labels[30:90]], "giant"]
    sets = EmbeddingSet(query, sides[0]), EmbeddingSet(gallery, sides[1])
    report = evaluate_embeddings(*sets, protocol=EvalProtocol(similarity=similarity, ks=(1, 3)))
    truth = np.array(first_ranks(brute_force(query, gallery, similarity), sides))
    for k in (1, 3):
        differs = report.queries[f"recall@{k}"] != (truth <= k)
        assert np.count_nonzero(differs) <= report.near_tied_queries + report.tied_queries


@pytest.mark.parametrize("similarity", RAW)
@pytest.mark.parametrize("exponent", [-60, -1, 1, 33, 80])
def test_one_power_of_two_for_all_rows_changes_no_count(similarity, exponent):
    rng = np.random.default_rng(3)
    query, gallery = (rng.normal(size=(n, 9)).astype(np.float32) for n in (20, 50))
    labels = [rng.integers(0, 4, size=n).tolist() for n in (20, 50)]
    factor = np.float32(2.0**exponent)
    own, other = (
        ranked(query * f, gallery * f, labels, similarity, block=Block(6, 50, 7)) for f in (np.float32(1), factor)
    )
    for a, b in zip(own, other, strict=True):
        for column in ("starts", "negatives_ahead", "negatives_tied", "positives_tied", "near_above", "near_below"):
            np.testing.assert_array_equal(getattr(a, column), getattr(b, column))
        np.testing.assert_array_equal(a.similarity * 4.0**exponent, b.similarity)


@pytest.mark.parametrize("similarity", RAW)
def test_no_order_of_rows_and_no_block_changes_a_value(similarity):
    rng = np.random.default_rng(5)
    rows = (rng.integers(-2, 3, size=(60, 3)) + np.array([0.5, 0, 0])).astype(np.float32)
    labels = rng.integers(0, 6, size=60)
    own = evaluate_embeddings(EmbeddingSet(rows, labels), protocol=EvalProtocol(similarity=similarity), metrics=DEEP)
    order = rng.permutation(60)
    moved = EmbeddingSet(rows[order], labels[order])
    protocol = EvalProtocol(similarity=similarity)
    other = evaluate_embeddings(moved, protocol=protocol, metrics=DEEP, memory=2 * 10**6)
    assert dict(own) == dict(other)


def test_the_scale_is_common_to_both_sides():
    query, gallery = np.array([[1.0, 0.25]]), np.array([[1024.0, 0.0], [0.5, 0.0]])
    for similarity in RAW:
        grids = to_grid(query, gallery, similarity=similarity)
        assert grids[0].unit == grids[1].unit
        step = np.sqrt(grids[0].unit)
        np.testing.assert_array_equal(grids[0].rows * step, query)
        np.testing.assert_array_equal(grids[1].rows * step, gallery)


def test_the_three_similarities_on_one_example():
    # By dot a long row attracts everything; by angle and by distance it does not.
    rows, labels = np.array([[1, 0], [3, 1], [0.2, 2], [0.9, -0.1]]), ["a", "b", "c", "a"]
    query, gallery = EmbeddingSet(rows[3:], labels[3:]), EmbeddingSet(rows[:3], labels[:3])
    found = {
        similarity: evaluate_embeddings(query, gallery, protocol=EvalProtocol(ks=(1,), similarity=similarity))
        for similarity in ("cosine", *RAW)
    }
    assert {name: report["recall@1"] for name, report in found.items()} == {"cosine": 1.0, "dot": 0.0, "euclidean": 1.0}
    assert {report.signature.parts["sim"] for report in found.values()} == {"cosine", "dot", "euclidean"}
    assert found["dot"].queries["similarity"][0] == pytest.approx(0.9)
    assert found["euclidean"].queries["similarity"][0] == pytest.approx(-(0.1**2 + 0.1**2))


def test_rows_of_equal_length_rank_alike_by_all_three():
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(80, 8))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = rng.integers(0, 9, size=80)
    values = [
        dict(evaluate_embeddings(EmbeddingSet(rows, labels), protocol=EvalProtocol(similarity=name), metrics=DEEP))
        for name in ("cosine", *RAW)
    ]
    for other in values[1:]:
        assert other == pytest.approx(values[0], abs=1e-12)


@pytest.mark.parametrize("similarity", ["cosine", *RAW])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39, 0.0])
def test_a_row_that_cannot_be_compared_is_named(similarity, bad):
    rows = np.array([[1.0, 2.0], [bad, 0.0]])
    with pytest.raises(RecallatkError, match="row 1"):
        evaluate_embeddings(EmbeddingSet(rows, ["a", "a"]), protocol=EvalProtocol(similarity=similarity))


@pytest.mark.parametrize("similarity", RAW)
def test_rows_that_vanish_beside_a_giant_are_ties_and_are_said_to_be(similarity):
    rng = np.random.default_rng(9)
    tiny = rng.normal(size=(20, 4)) * 1e-20
    labels = ["a", "b"] * 10
    query = EmbeddingSet(tiny, labels)
    gallery = EmbeddingSet(np.vstack([rng.normal(size=(20, 4)) * 1e-20, [[1e20, 0, 0, 0]]]), [*labels, "giant"])
    grids = to_grid(query.embeddings, gallery.embeddings, similarity=similarity)
    assert not grids[0].rows.any()
    report = evaluate_embeddings(query, gallery, protocol=EvalProtocol(similarity=similarity, ks=(1, 5)))
    assert report.tied_queries == 20
    assert report["recall@1"] == pytest.approx(10 / (21 if similarity == "dot" else 20))


@pytest.mark.parametrize("similarity", RAW)
def test_sets_of_zeros_only_need_no_scale(similarity):
    grid = to_grid(np.zeros((2, 3), dtype=np.float32), similarity=similarity)[0]
    assert not grid.rows.any()
    assert np.isfinite(grid.unit)
