"""Two systems on the same queries: exact values, scipy and statsmodels as oracles, and how often chance is taken in."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recallatk import IntervalRule, RecallatkError
from recallatk.statistics import adjust_holm, cluster_queries, mcnemar, paired_test


def table(both: int, first: int, second: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    """Hits of two systems: queries that both hit, only the first, only the second, and neither."""
    counts = [both, first, second, neither]
    return np.repeat([1.0, 1.0, 0.0, 0.0], counts), np.repeat([1.0, 0.0, 1.0, 0.0], counts)


def alone(n: int):
    return cluster_queries([""] * n)


# both, only first, only second, neither -> exact p, mid-p
MCNEMAR = [
    ((80, 12, 5, 3), 0.143463134765625, 0.0962524414),
    ((50, 10, 0, 40), 0.001953125, 0.0009765625),
    ((600, 30, 14, 96), 0.0226288412, 0.0160943600),
    ((500, 8, 2, 30), 0.109375, 0.0654296875),
    ((4000, 150, 110, 1664), 0.0154155828, 0.0131372821),
    ((10, 0, 0, 5), 1.0, 1.0),
    ((90, 5, 5, 0), 1.0, 1.0),
    ((0, 6, 0, 0), 0.03125, 0.015625),
    ((0, 5, 0, 0), 0.0625, 0.03125),
]


@pytest.mark.parametrize(("counts", "exact", "mid_p"), MCNEMAR)
def test_mcnemar_is_that_of_the_books_and_of_statsmodels(counts, exact, mid_p):
    from statsmodels.stats.contingency_tables import mcnemar as oracle

    first, second = table(*counts)
    found = mcnemar(first, second, np.zeros(len(first), bool))
    assert (found.exact, found.mid_p) == (pytest.approx(exact, abs=6e-11), pytest.approx(mid_p, abs=6e-11))
    assert found.exact == pytest.approx(oracle(np.reshape(counts, (2, 2)), exact=True).pvalue, rel=1e-12)
    assert (found.wins, found.losses, found.n, found.left_out) == (counts[2], counts[1], sum(counts), 0)


@pytest.mark.parametrize(("counts", "exact", "mid_p"), MCNEMAR)
def test_with_every_query_a_cluster_the_flips_are_mcnemar(counts, exact, mid_p):
    first, second = table(*counts)
    found = paired_test(first, second, alone(len(first)))
    assert found.p_value == pytest.approx(exact, abs=1e-9 if found.exact else 0.015)
    assert found.exact == (counts[1] + counts[2] <= 16)
    assert (found.wins, found.losses, found.ties) == (counts[2], counts[1], counts[0] + counts[3])
    assert found.difference == pytest.approx((counts[2] - counts[1]) / sum(counts), abs=1e-15)


@pytest.mark.parametrize(("discordant", "least"), list(enumerate([1, 1, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625])))
def test_the_least_p_that_so_few_can_show(discordant, least):
    first, second = table(3, 0, discordant, 3)
    found = paired_test(first, second, alone(len(first)))
    assert found.smallest_p == least
    assert found.p_value == least


def clustered_pair():
    """Ten classes of ten queries with 12 wins and 5 losses, of which one class holds four."""
    wins, losses = [4, 3, 2, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
    first, second, labels = [], [], []
    for label, (won, lost) in enumerate(zip(wins, losses, strict=True)):
        first += [0] * won + [1] * lost + [1] * (10 - won - lost)
        second += [1] * won + [0] * lost + [1] * (10 - won - lost)
        labels += [f"{label}"] * 10
    return np.array(first, float), np.array(second, float), labels


def test_flips_of_whole_classes():
    first, second, labels = clustered_pair()
    found = paired_test(first, second, cluster_queries(labels))
    assert (found.p_value, found.exact, found.flips, found.seed) == (0.33984375, True, 512, None)
    assert (found.clusters, found.clusters_with_difference) == (10, 9)
    assert found.mcnemar.exact == pytest.approx(0.143463134765625, rel=1e-12)
    assert (found.interval.low, found.interval.high) == pytest.approx((-0.0608232, 0.2008232), abs=6e-8)
    assert found.interval.standard_error == pytest.approx(0.05783117, abs=6e-9)
    boot = paired_test(first, second, cluster_queries(labels), rule=IntervalRule("cluster-bootstrap"))
    assert (boot.interval.low, boot.interval.high) == pytest.approx((-0.03, 0.18), abs=0.011)


def test_the_interval_is_the_cluster_robust_one_of_statsmodels():
    from statsmodels.api import OLS

    first, second, labels = clustered_pair()
    groups = np.array(labels, int)
    fit = OLS(second - first, np.ones(100)).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    found = paired_test(first, second, cluster_queries(labels)).interval
    assert (found.low, found.high) == pytest.approx(tuple(fit.conf_int()[0]), rel=1e-10)


def count_flips(sums) -> float:
    """The p-value by writing out every flip."""
    moved = [value for value in sums if abs(value) > 1e-9]
    observed = abs(round(sum(moved), 9))
    flips = [
        abs(round(sum(s * v for s, v in zip(signs, moved, strict=True)), 9))
        for signs in itertools.product([-1, 1], repeat=len(moved))
    ]
    return sum(flip >= observed for flip in flips) / len(flips)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdefg"), *[st.sampled_from([0.0, 1.0, 0.5, 1 / 3, 2 / 3])] * 2), min_size=1),
    st.sampled_from(["micro", "macro"]),
)
def test_the_flips_are_every_flip(rows, average):
    labels = [row[0] for row in rows]
    first, second = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
    clusters = cluster_queries(labels, average=average)
    found = paired_test(first, second, clusters)
    assert found.exact
    assert found.p_value == pytest.approx(count_flips(clusters.sums(second - first)), rel=1e-12)
    back = paired_test(second, first, clusters)
    assert (back.p_value, back.difference) == (found.p_value, pytest.approx(-found.difference, abs=1e-15))
    again = np.random.default_rng(len(rows)).permutation(len(rows))
    shuffled = cluster_queries([labels[row] for row in again], average=average)
    assert paired_test(first[again], second[again], shuffled) == found


def test_many_clusters_are_sampled_with_a_seed_of_their_own():
    rng = np.random.default_rng(3)
    first, second = (rng.random(400) < 0.6).astype(float), (rng.random(400) < 0.66).astype(float)
    clusters = cluster_queries([f"{i // 4}" for i in range(400)])
    found = paired_test(first, second, clusters)
    np.random.seed(1)  # noqa: NPY002  # the global state must not matter
    assert paired_test(first, second, clusters) == found
    assert (found.exact, found.flips, found.seed) == (False, 9_999, 0)
    from scipy.stats import permutation_test

    oracle = permutation_test(
        (clusters.sums(second - first),), np.sum, permutation_type="samples", n_resamples=9_999, rng=11
    )
    assert found.p_value == pytest.approx(oracle.pvalue, abs=0.015)
    assert (found.p_value * 10_000) == pytest.approx(round(found.p_value * 10_000))
    assert paired_test(first, second, clusters, seed=5, resamples=99).p_value >= 0.01


def test_a_difference_that_every_query_has_and_none():
    everywhere = paired_test(np.zeros(8), np.ones(8), cluster_queries(list("aabbccdd")))
    assert (everywhere.difference, everywhere.p_value, everywhere.interval) == (1.0, 0.125, None)
    nowhere = paired_test(np.ones(8), np.ones(8), cluster_queries(list("aabbccdd")))
    assert (nowhere.difference, nowhere.p_value, nowhere.flips) == (0.0, 1.0, 1)
    assert nowhere.minimum_detectable_effect is None
    assert paired_test(np.zeros(1), np.ones(1), alone(1)).p_value == 1.0


def test_ties_leave_mcnemar_and_stay_in_the_flips():
    first, second = np.array([0.5, 1, 0, 0]), np.array([1, 1, 1, 1.0])
    found = paired_test(first, second, alone(4))
    assert (found.mcnemar.n, found.mcnemar.left_out, found.mcnemar.wins) == (3, 1, 2)
    assert (found.wins, found.clusters_with_difference) == (3, 3)
    moved = paired_test(first, second, alone(4), movable=np.array([True, False, False, True]))
    assert (moved.mcnemar.n, moved.mcnemar.wins) == (2, 1)


def test_so_few_clusters_detect_nothing():
    labels = np.arange(300) % 5
    first, second = np.zeros(300), np.tile([1.0, 0, 0, 0], 75)
    few = paired_test(first, second, cluster_queries([str(label) for label in labels]))
    assert few.smallest_p == 0.0625
    assert few.minimum_detectable_effect is None  # whatever the difference, p cannot reach 0.05
    one = paired_test(first, second, cluster_queries(["one"] * 300))
    assert (one.minimum_detectable_effect, one.design_effect) == (None, None)
    lenient = IntervalRule(confidence=0.1)
    assert paired_test(first, second, alone(300), rule=lenient).minimum_detectable_effect is None


def test_what_a_mean_over_labels_detects_goes_by_labels():
    rng = np.random.default_rng(3)
    names = [str(label) for label in range(30) for _ in range(20)]
    lean = np.repeat(rng.uniform(0.2, 0.9, 30), 20)  # labels are won and lost together
    first, second = 1.0 * (rng.random(600) > lean), 1.0 * (rng.random(600) < lean)
    micro, macro = (
        paired_test(first, second, cluster_queries(names, average=average)).minimum_detectable_effect
        for average in ("micro", "macro")
    )
    assert macro == pytest.approx(micro, rel=0.1)  # labels of one size: the two means are one
    assert macro > 1.3 * paired_test(first, second, alone(600)).minimum_detectable_effect


def test_a_query_with_several_labels_is_flipped_as_one():
    labels = [tuple("abcdef"), *((one,) for one in "abcdef" * 5)]
    first, second = np.zeros(31), np.eye(31)[0]
    found = paired_test(first, second, cluster_queries(labels, average="macro"))
    assert (found.wins, found.clusters_with_difference, found.p_value) == (1, 1, 1.0)
    assert found.difference == pytest.approx(1 / 6)  # of each of six labels one query of six is won


def test_an_interval_of_one_share_is_none_of_a_difference():
    with pytest.raises(RecallatkError, match="ci=wilson is for one share, not for a difference"):
        paired_test(np.zeros(2), np.ones(2), alone(2), rule=IntervalRule("wilson"))
    with pytest.raises(RecallatkError, match="3 values against 2"):
        paired_test(np.zeros(3), np.ones(2), alone(2))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_that_of_statsmodels(p_values):
    from statsmodels.stats.multitest import multipletests

    expected = multipletests(p_values, method="holm")[1].tolist() if p_values else []
    assert adjust_holm(p_values) == pytest.approx(expected, rel=1e-12, abs=1e-300)


def test_holm_as_worked_out():
    assert adjust_holm([0.01, 0.04, 0.03, 0.005, 0.2]) == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.2])
    assert adjust_holm([0.0226288412, 0.109375, 0.5]) == pytest.approx([0.0678865236, 0.21875, 0.5])


def false_alarms(*, clustered: bool, rounds: int = 300) -> tuple[float, float]:
    """How often two equal systems are told apart at 5 %: by flips of classes, and by McNemar."""
    rng = np.random.default_rng(clustered)
    classes, n, discordance, correlation = 30, 59, 0.1, 0.2
    labels = np.repeat([f"{i}" for i in range(classes)], n).tolist()
    clusters, total = cluster_queries(labels), (1 - correlation) / correlation
    flips = naive = 0
    for _ in range(rounds):
        share = rng.beta(total / 2, total / 2, (classes, 1)) if clustered else 0.5
        differs, wins = rng.random((classes, n)) < discordance, rng.random((classes, n)) < share
        first = (differs & ~wins).ravel().astype(float)
        second = (differs & wins).ravel().astype(float)
        found = paired_test(first, second, clusters, resamples=999)
        flips += found.p_value <= 0.05
        naive += found.mcnemar.exact <= 0.05
    return flips / rounds, naive / rounds


def test_flips_of_classes_keep_the_level_and_mcnemar_does_not():
    """The full tables: benchmarks/coverage.py."""
    flips, naive = false_alarms(clustered=True)
    assert 0.02 <= flips <= 0.09
    assert naive >= 0.11
    flips, naive = false_alarms(clustered=False)
    assert flips <= 0.09
    assert naive <= 0.09
