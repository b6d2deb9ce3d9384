"""Power: the tables of a paired comparison, and statsmodels as the oracle."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recallatk import RecallatkError
from recallatk.statistics import detectable_difference, paired_power, queries_needed

# Queries for a difference of 0.5, 1, 2 and 5 points: Connor's formula and the paired t-test, to a query.
NEEDED = {
    0.05: [(15_696, 15_692), (3_923, 3_919), (979, 976), None],
    0.10: [(31_394, 31_390), (7_847, 7_843), (1_960, 1_957), (312, 309)],
    0.20: [(62_789, 62_785), (15_696, 15_692), (3_923, 3_919), (626, 622)],
    0.30: [(94_185, 94_181), (23_545, 23_541), (5_885, 5_881), (940, 936)],
}
# The least difference in points with discordance 0.05, 0.1 and 0.2, by Connor's formula.
DETECTABLE = {
    315: (3.52, 4.97, 7.03),
    740: (2.30, 3.25, 4.60),
    1_000: (1.98, 2.80, 3.96),
    3_368: (1.08, 1.53, 2.16),
    5_000: (0.89, 1.25, 1.77),
    5_924: (0.81, 1.15, 1.63),
    6_816: (0.76, 1.07, 1.52),
    8_131: (0.69, 0.98, 1.39),
    14_218: (0.53, 0.74, 1.05),
    60_502: (0.25, 0.36, 0.51),
    136_093: (0.17, 0.24, 0.34),
}


@pytest.mark.parametrize("discordance", NEEDED)
def test_queries_needed(discordance):
    for difference, known in zip((0.005, 0.01, 0.02, 0.05), NEEDED[discordance], strict=True):
        if known is not None:
            connor, t_test = known
            found = queries_needed(difference, discordance=discordance)
            assert found == t_test
            assert 0 <= connor - found <= 4


@pytest.mark.parametrize("n", DETECTABLE)
def test_the_difference_that_so_many_queries_show(n):
    for discordance, points in zip((0.05, 0.1, 0.2), DETECTABLE[n], strict=True):
        found = 100 * detectable_difference(n, discordance=discordance)
        assert found == pytest.approx(points, abs=0.005 + 0.01 * points)
        assert found <= points + 0.005


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 1), st.floats(0.05, 0.9), st.integers(3, 200_000))
def test_power_is_that_of_statsmodels(discordance, share, n):
    from statsmodels.stats.power import TTestPower

    difference = discordance * share
    effect = difference / (discordance - difference**2) ** 0.5
    found = paired_power(difference, n, discordance=discordance)
    expected = TTestPower().power(effect, n, 0.05)
    assert 0 <= found <= 1
    if expected == expected:  # it has no number for large samples and effects
        assert found == pytest.approx(expected, abs=2e-5)  # from 100,000 queries on it is the normal power


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 0.9), st.integers(20, 10**6), st.floats(1, 20))
def test_the_two_questions_answer_each_other(discordance, n, design_effect):
    difference = detectable_difference(n, discordance=discordance, design_effect=design_effect)
    if n / design_effect > 10 and difference < discordance:
        again = queries_needed(difference, discordance=discordance, design_effect=design_effect)
        assert again == pytest.approx(n, rel=1e-4, abs=1)


def test_a_strict_level_has_a_number_too():
    # scipy's noncentral t has none for the tail on the other side here
    found = detectable_difference(1565, discordance=0.003446, alpha=1e-6, freedom=182)
    assert paired_power(found, 1565, discordance=0.003446, alpha=1e-6, freedom=182) == pytest.approx(0.8)


def test_a_variance_from_few_clusters_takes_a_larger_difference():
    of_all = detectable_difference(400, discordance=0.2, design_effect=4.0)
    assert detectable_difference(400, discordance=0.2, design_effect=4.0, freedom=99) == of_all
    few = detectable_difference(400, discordance=0.2, design_effect=4.0, freedom=7)
    # as (t(0.975, df) + t(0.8, df)) standard errors, roughly
    assert few / of_all == pytest.approx(3.261 / 2.830, abs=0.02)


@pytest.mark.parametrize(
    ("difference", "choices", "message"),
    [
        (0.2, {"discordance": 0.1}, "difference=0.2 must be above 0 and at most the share of queries that differ"),
        (0.0, {"discordance": 0.1}, "must be above 0"),
        (0.1, {"discordance": 0.0}, "discordance=0.0 is no share"),
        (0.1, {"discordance": 0.2, "power": 1.0}, "power=1.0 is no share"),
        (0.1, {"discordance": 0.2, "power": 0.04}, "power=0.04 must be above alpha"),
        (0.1, {"discordance": 0.2, "design_effect": 0.0}, "design_effect=0.0 must be above 0"),
    ],
)
def test_what_cannot_be_is_refused(difference, choices, message):
    with pytest.raises(RecallatkError, match=message):
        queries_needed(difference, **choices)
