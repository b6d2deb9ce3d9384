"""The metrics as folds over counts: their names, their closed forms at sizes that no list of orders reaches."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from recallatk.metrics import METRICS, MetricName, chance_of_hit, mean_value, parse_metric
from recallatk.ranking import Ranking
from recallatk.types import Average, ChoiceError, Ties


def ranking(*queries: list[tuple[int, int, int]], n_candidates: int = 10**6) -> Ranking:
    """A block from the levels of each query: (negatives ahead, negatives tied, positives tied), nearest first."""
    levels = np.array([level for query in queries for level in query], dtype=np.int64).reshape(-1, 3)
    n = len(queries)
    return Ranking(
        queries=slice(0, n),
        starts=np.cumsum([0, *map(len, queries)]),
        similarity=-np.arange(len(levels), dtype=np.float64),
        negatives_ahead=levels[:, 0],
        negatives_tied=levels[:, 1],
        positives_tied=levels[:, 2],
        best_positive=np.zeros(n, np.int64),
        near_above=np.zeros(n, np.int64),
        near_below=np.zeros(n, np.int64),
        n_positives=np.array([sum(level[2] for level in query) for query in queries], dtype=np.int64),
        n_candidates=np.full(n, n_candidates),
        n_ranked=np.full(n, n_candidates),
    )


def value(metric, block, ties="expected"):
    return parse_metric(metric).values(block, ties=ties).tolist()


def texts(name: str, k: int) -> list[str]:
    """Every way to write a metric."""
    return {"always": [f"{name}@{k}"], "maybe": [name, f"{name}@{k}"], "never": [name]}[METRICS[name].cutoff]


def test_every_metric_is_described_and_can_be_named():
    for name, row in METRICS.items():
        for text in texts(name, 7):
            assert str(parse_metric(text)) == text
            assert parse_metric(text).metric is row
        assert row.summary
        assert f"{name}" in (row.compute.__doc__ or "")
        assert "ties" in (row.compute.__doc__ or "").lower()
        assert row.depth in {"first", "all"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recal@5", "there is no metric 'recal'; did you mean 'recall@5'"),
        ("ap", r"there is no metric 'ap'.*the metrics are: recall, "),
        ("", "there is no metric ''"),
        ("@5", "there is no metric ''"),
        ("Recall@5", "there is no metric 'Recall'"),
        ("recall", "recall needs a cutoff k of at least 1, as in 'recall@10'"),
        ("recall@", "needs a cutoff"),
        ("recall@0", "needs a cutoff"),
        ("recall@-1", "needs a cutoff"),
        ("recall@1.5", "needs a cutoff"),
        ("recall@1@2", "needs a cutoff"),
        ("recall@ 5", "needs a cutoff"),
        ("recall@\u0665", "needs a cutoff"),  # an Arabic-Indic five
        ("recall@\u00b2", "needs a cutoff"),  # a raised two
        ("mrr@10", "mrr takes no cutoff; write 'mrr'"),
        ("mrr@", "mrr takes no cutoff"),
        ("map@", "map needs a cutoff"),
        ("map_r@5", "map_r takes no cutoff; write 'map_r'"),
        (f"recall@{2**62 + 1}", f"the largest cutoff is {2**62}"),
        (f"recall@{'9' * 5000}", f"the largest cutoff is {2**62}"),
    ],
)
def test_a_metric_that_is_none_is_refused(text, message):
    with pytest.raises(ChoiceError, match=message):
        parse_metric(text)


def test_the_largest_cutoff_is_one():
    assert parse_metric(f"recall@{2**62}") == MetricName("recall", 2**62)
    assert value(f"map@{2**62}", ranking([(1, 0, 1)])) == [0.5]


def test_a_cutoff_has_one_spelling():
    assert parse_metric("recall@010") == MetricName("recall", 10) == parse_metric("recall@10")


# Closed forms, beyond what can be counted out


def by_lot(total: int, positives: int, places: int) -> Fraction:
    """P(at least one positive among the first places) as a product: one draw after the other finds none."""
    miss = Fraction(1)
    for drawn in range(min(places, total)):
        miss *= Fraction(max(total - positives - drawn, 0), total - drawn)
    return 1 - miss


@given(st.integers(0, 30), st.integers(0, 300), st.integers(1, 40), st.integers(1, 200))
def test_a_hit_under_ties_is_drawn_without_replacement(ahead, negatives, positives, k):
    block = ranking([(ahead, negatives, positives)])
    exact = by_lot(negatives + positives, positives, k - ahead) if k > ahead else 0
    assert value(f"recall@{k}", block) == [float(exact)]
    assert value(f"recall@{k}", block, "pessimistic") == [float(ahead + negatives < k)]
    assert value(f"recall@{k}", block, "optimistic") == [float(ahead < k)]


@given(st.integers(0, 30), st.integers(0, 120), st.integers(1, 20))
def test_the_reciprocal_rank_under_ties_is_the_mean_over_places(ahead, negatives, positives):
    total = negatives + positives
    exact = sum(
        Fraction(math.comb(total - j, positives - 1), math.comb(total, positives)) / (ahead + j)
        for j in range(1, negatives + 2)
    )
    block = ranking([(ahead, negatives, positives)])
    assert value("mrr", block) == [pytest.approx(float(exact), rel=1e-13)]
    assert value("mrr", block, "pessimistic") == [1 / (ahead + negatives + 1)]
    assert value("mrr", block, "optimistic") == [1 / (ahead + 1)]


def test_large_tied_groups_keep_their_digits():
    # One positive among a million equal items: chance is k / 10^6, and 1/rank is the millionth harmonic number / 10^6.
    block = ranking([(0, 999_999, 1)])
    assert value("recall@10", block) == [1e-5]
    assert value("set_recall@10", block) == [1e-5]
    assert value("precision@10", block) == pytest.approx([1e-6], rel=1e-15)
    harmonic = math.fsum(1 / j for j in range(1, 10**6 + 1))
    assert value("mrr", block) == [pytest.approx(harmonic / 10**6, rel=1e-12)]
    # Six thousand positives among sixty thousand.
    assert value("recall@10", ranking([(0, 54_000, 6_000)])) == [float(by_lot(60_000, 6_000, 10))]


LEVELS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(1, 4)), min_size=0, max_size=4)


@given(st.lists(LEVELS, min_size=1, max_size=5), st.integers(1, 40), st.sampled_from(get_args(Ties)))
def test_shares_found_are_the_sum_over_levels(queries, k, ties):
    # From steps to negatives ahead: what is tied with a level is ahead of the next one.
    levels = []
    for query in queries:
        ahead, made = 0, []
        for step, tied, positives in query:
            made.append((ahead + step, tied, positives))
            ahead += step + tied
        levels.append(made)
    block = ranking(*levels)
    found = []
    for query in levels:
        total, before = Fraction(0), 0
        for ahead, tied, positives in query:
            places = min(max(k - ahead - before, 0), tied + positives)
            total += {
                "expected": Fraction(places * positives, tied + positives),
                "pessimistic": max(places - tied, 0),
                "optimistic": min(places, positives),
            }[ties]
            before += positives
        found.append((total, before))
    shares = [float(total / before) if before else 0.0 for total, before in found]
    assert value(f"set_recall@{k}", block, ties) == pytest.approx(shares, rel=1e-15, abs=0)
    assert value(f"precision@{k}", block, ties) == pytest.approx([float(t / k) for t, _ in found], rel=1e-15, abs=0)


@pytest.mark.parametrize("ties", get_args(Ties))
@pytest.mark.parametrize("metric", METRICS)
def test_a_query_without_a_positive_is_zero_and_moves_no_neighbour(metric, ties):
    one, other = [(1, 2, 2), (5, 0, 1)], [(0, 1, 1)]
    for name in texts(metric, 3):
        alone = [*value(name, ranking(one), ties), *value(name, ranking(other), ties)]
        assert value(name, ranking([], one, [], [], other, []), ties) == [0.0, alone[0], 0.0, 0.0, alone[1], 0.0]


def test_a_block_without_any_positive_has_values():
    for metric in METRICS:
        for name in texts(metric, 3):
            assert value(name, ranking([], [])) == [0.0, 0.0]


# Chance and means


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 60))
def test_chance_is_a_draw_by_lot(negatives, positives, k):
    n = negatives + positives
    (found,) = chance_of_hit(np.array([n]), np.array([positives]), k)
    assert found == float(oracle.chance(n, positives, k))


@given(
    st.lists(
        st.tuples(st.fractions(0, 1, max_denominator=50), st.sets(st.sampled_from("abc"), min_size=1)), min_size=1
    ),
    st.sampled_from(get_args(Average)),
    st.randoms(use_true_random=False),
)
def test_a_mean_is_the_exact_mean_in_any_order(rows, average, random):
    def mean(rows):
        values, labels = [float(value) for value, _ in rows], [tuple(sorted(own)) for _, own in rows]
        return mean_value(values, labels, average=average)

    exact = oracle.mean([value for value, _ in rows], [tuple(own) for _, own in rows], average)
    found = mean(rows)
    assert found == pytest.approx(float(exact), rel=1e-15, abs=0)
    random.shuffle(rows)
    assert mean(rows) == found


def test_macro_leaves_out_a_query_without_labels():
    assert mean_value([1.0, 0.0, 0.0], [("a",), ("b",), ()], average="macro") == 0.5
    assert mean_value([1.0, 0.0, 0.0], [("a",), ("b",), ()], average="micro") == 1 / 3
