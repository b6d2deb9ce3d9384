"""Printed numbers against runs: held against brute force, and against scipy called directly."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from recallatk import EvalProtocol, RecallatkError, evaluate_embeddings, save_run
from recallatk.statistics.published import LARGEST_N_TRIED, check_published, parse_published
from recallatk.types import ChoiceError, EmbeddingSet
from recallatk.verification import check_run_published


def check(text, hits, n, **more):
    return check_published(parse_published(text), metric="recall@1", value=hits / n, n=n, hits=hits, **more)


def printed(value: Fraction, places: int) -> set[Decimal]:
    """What a value is printed as by those who round a half up, and by those who round it to the even digit."""
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(value.numerator) / Decimal(value.denominator)
        return {exact.quantize(Decimal(1).scaleb(-places), rule) for rule in (ROUND_HALF_UP, ROUND_HALF_EVEN)}


# --- exact values


def test_the_hits_that_print_as_a_number_of_cub():
    assert list(parse_published("69.9%").hits(5924)) == list(range(4138, 4144))
    assert parse_published("0.699") != parse_published("69.9%")
    assert parse_published("0.699").value == parse_published("69.9%").value == Fraction(699, 1000)
    assert parse_published("0.699").step == parse_published("69.9%").step


def test_the_test_of_a_published_number_is_scipys():
    far, near = check("0.699", 4100, 5924), check("0.699", 4141, 5924)
    assert far.p_value == 0.2513054807607862
    assert near.p_value == 1.0
    assert (far.reproduced, near.reproduced) == (False, True)
    assert far.fitting_hits == near.fitting_hits == (4138, 4143)
    assert far.verdict == "not the same, but within the noise of 5,924 queries (p = 0.251)"
    assert near.verdict == "reproduced: ours prints as 0.699"
    assert check("0.8", 4141, 5924).verdict.startswith("different: more than the noise")
    assert check("0.8", 4141, 5924).p_value == binomtest(4141, 5924, 0.8).pvalue


def test_what_rounding_hides_is_no_difference():
    """One miss of 115 is not 100 %, but 99.5 % is printed so as well."""
    result = check("100%", 114, 115)
    assert result.p_value == 0
    assert result.p_nearest == binomtest(114, 115, 0.995).pvalue
    assert result.verdict.startswith(
        "not the same, but within the noise of 115 queries and its rounding (against 0.995,"
    )
    coarse = check("70%", 2700, 4000)
    assert (coarse.p_value, coarse.p_nearest) == tuple(binomtest(2700, 4000, p).pvalue for p in (0.7, 0.695))
    assert coarse.verdict.startswith("different")


def test_digits_that_no_count_among_our_queries_gives():
    result = check("0.935", 107, 115)
    assert result.fitting_hits is None
    assert 115 not in result.smallest_n
    assert result.smallest_n[0] == 31  # 29/31
    assert "and no count of hits among 115 prints so" in result.verdict
    assert any("another number of queries" in line for line in result.lines())


def test_the_queries_that_were_left_out_are_tried():
    # 107 of the 115 queries with a positive; somebody counted all 138.
    result = check("0.775", 107, 115, other_counts={"as misses": 138, "none": 0})
    (other,) = result.others
    assert (other.n, other.fits, other.ours_prints) == (138, True, True)
    assert "our hits among 138 (as misses) print so: that may be what was published" in result.lines()
    assert any(
        line.startswith("138 (all) can print so")
        for line in check("0.935", 107, 115, other_counts={"all": 138}).lines()
    )


def test_halves_are_taken_both_ways_and_edges_are_exact():
    # 1/8 = 0.125 is 0.13 rounded up and 0.12 rounded to even; 3/8 = 0.375 is 0.38 both ways.
    assert [parse_published(text).prints(Fraction(1, 8)) for text in ("0.12", "0.13", "0.14")] == [True, True, False]
    assert [parse_published(text).prints(Fraction(3, 8)) for text in ("0.37", "0.38")] == [False, True]
    # In floating point 0.0005 * 1000 and 1.005 are traps; here they are digits.
    assert list(parse_published("0.001").hits(2000)) == [1, 2]
    assert list(parse_published("1.00").hits(200)) == [199, 200]
    assert list(parse_published("0").hits(3)) == [0, 1]
    assert list(parse_published("100%").hits(3)) == [3]
    assert check("1", 3, 3).p_value == check("0", 0, 3).p_value == 1.0


def test_ties_leave_the_hits_open():
    result = check("0.5", 2.5, 5, hits_min=2, hits_max=3)
    assert result.reproduced
    assert "ties leave ours open between 2 and 3 hits" in result.lines()
    assert any("2.5000 of 5 queries" in line for line in result.lines())


# --- brute force


numbers = st.integers(0, 3).flatmap(
    lambda places: st.tuples(st.integers(0, 10**places), st.just(places), st.booleans())
)


def written(units: int, places: int, percent: bool) -> str:
    """A printed number of `places` digits behind the point of a share."""
    if percent and places >= 2:
        return f"{Decimal(units).scaleb(2 - places):f}%"
    return f"{Decimal(units).scaleb(-places):f}"


@given(numbers, st.integers(1, 120))
def test_the_fitting_hits_are_those_that_print_so(number, n):
    units, places, percent = number
    published = parse_published(written(units, places, percent))
    target = Decimal(units).scaleb(-places)
    expected = [k for k in range(n + 1) if target in printed(Fraction(k, n), places)]
    assert list(published.hits(n)) == expected
    assert [k for k in range(n + 1) if published.prints(Fraction(k, n))] == expected


@given(numbers)
@settings(deadline=None)
def test_the_smallest_numbers_of_queries_are_all_that_fit(number):
    units, places, percent = number
    published = parse_published(written(units, places, percent))
    expected = [n for n in range(1, 150) if any(published.prints(Fraction(k, n)) for k in range(n + 1))]
    found = [n for n in published.smallest_n() if n < 150]
    assert found == expected[:8]
    if places <= 2:
        assert all(n in expected for n in range(published.every_n_from, 150))


@given(st.integers(1, 10**6), st.data())
@settings(deadline=None, max_examples=30)
def test_every_share_prints_as_its_own_digits(n, draw):
    hits = draw.draw(st.integers(0, n))
    places = draw.draw(st.integers(0, 12))
    for digits in printed(Fraction(hits, n), places):
        result = check(f"{digits:f}", hits, n)
        assert result.reproduced
        assert result.fitting_hits[0] <= hits <= result.fitting_hits[1]


def test_more_digits_than_a_share_has_are_not_tried_forever():
    result = check("0.12345678901234567890", 1, 8)
    assert result.smallest_n == ()
    assert any(f"no number of queries up to {LARGEST_N_TRIED:,}" in line for line in result.lines())


# --- what is written


@pytest.mark.parametrize(
    ("text", "metric", "value"),
    [
        ("0.699", None, Fraction(699, 1000)),
        (" 69.9 % ", None, Fraction(699, 1000)),
        ("recall@5=0.914", "recall@5", Fraction(914, 1000)),
        ("recall@5 = 91.4%", "recall@5", Fraction(914, 1000)),
        (".5", None, Fraction(1, 2)),
        ("1", None, Fraction(1)),
        ("100.0%", None, Fraction(1)),
    ],
)
def test_forms(text, metric, value):
    published = parse_published(text)
    assert (published.metric, published.value) == (metric, value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "69.9",
        "1.01",
        "101%",
        "-0.5",
        "0,699",
        "6.99e-1",
        "nan",
        "0.6.9",
        "=0.5",
        "a b=0.5",
        "\u0660.\u0665",
        "1/2",
    ],
)
def test_what_is_no_printed_share_is_refused(text):
    with pytest.raises(ChoiceError, match="published"):
        parse_published(text)


# --- of a run


def test_a_run_is_asked_for_its_metric(tmp_path):
    rows = EmbeddingSet([[1, 0], [1, 0.1], [0, 1], [0.9, 0.2], [0, 2]], labels=["a", "a", "b", "b", "c"])
    save_run(evaluate_embeddings(rows, protocol=EvalProtocol(ks=(1, 2)), metrics=["mrr"]), tmp_path / "run")
    result = check_run_published(tmp_path / "run", "0.5")
    assert (result.metric, result.hits, result.n) == ("recall@1", 2.0, 4)
    assert [(other.n, other.what) for other in result.others] == [
        (5, "with the queries that have no positive, as misses")
    ]
    assert check_run_published(tmp_path / "run", "recall@2=0.500").metric == "recall@2"
    assert check_run_published(tmp_path / "run", "mrr=0.6").p_value is None
    with pytest.raises(ChoiceError, match=r"the run has no recall@3; it has recall@1, recall@2, mrr"):
        check_run_published(tmp_path / "run", "recall@3=0.5")
    with pytest.raises(RecallatkError, match="cannot be read"):
        check_run_published(tmp_path, "0.5")


def test_a_mean_over_labels_is_no_share_of_queries(tmp_path):
    rows = EmbeddingSet([[1, 0], [1, 0.1], [0, 1], [0.9, 0.2]], labels=["a", "a", "b", "b"])
    save_run(evaluate_embeddings(rows, protocol=EvalProtocol(ks=(1,), average="macro")), tmp_path / "run")
    result = check_run_published(tmp_path / "run", "0.75")
    assert (result.hits, result.p_value, result.reproduced) == (None, None, True)
    assert any("the test do not apply" in line for line in result.lines())
