"""Intervals: exact values, statsmodels as the oracle, and how often they hold what is true."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recallatk import EmbeddingSet, EvalProtocol, IntervalRule, RecallatkError, evaluate_embeddings
from recallatk.statistics import cluster_queries, describe_rule, interval_of_mean, sign_rule

SIZES = [4, 6, 5, 8, 3, 10, 7, 5, 6, 4, 9, 13]
HITS = [4, 6, 4, 8, 1, 10, 3, 5, 5, 0, 9, 6]
VALUES = np.concatenate([[1.0] * hits + [0.0] * (n - hits) for n, hits in zip(SIZES, HITS, strict=True)])
LABELS = [f"class {i}" for i, n in enumerate(SIZES) for _ in range(n)]


def interval(values, labels, ci="cluster-t", *, average="micro", confidence=0.95, hits=True):
    rule = IntervalRule(ci, confidence=confidence)
    return interval_of_mean(np.asarray(values, float), cluster_queries(labels, average=average), rule=rule, hits=hits)


def statsmodels_interval(values, labels, confidence=0.95):
    from statsmodels.api import OLS

    groups = np.unique(labels, return_inverse=True)[1]
    fit = OLS(values, np.ones(len(values))).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    low, high = fit.conf_int(1 - confidence)[0]
    return low, high, fit.bse[0]


# Worked out once with statsmodels 0.15 and scipy 1.17: k, n, Wilson, Clopper-Pearson.
BINOMIAL = [
    (0, 10, (0.0000000000, 0.2775327999), (0, 0.3084971078)),
    (10, 10, (0.7224672001, 1), (0.6915028922, 1)),
    (1, 1, (0.2065493144, 1), (0.0250000000, 1)),
    (0, 1, (0, 0.7934506856), (0, 0.9750000000)),
    (3, 4, (0.3006418426, 0.9544127392), (0.1941204497, 0.9936905368)),
    (87, 100, (0.7901964856, 0.9224283257), (0.7879593229, 0.9289269538)),
    (61, 80, (0.6585922107, 0.8423532713), (0.6542230289, 0.8505462481)),
    (279, 315, (0.8458369343, 0.9162973280), (0.8453031378, 0.9186593991)),
    (682, 740, (0.9000074219, 0.9388810167), (0.8998537348, 0.9399487513)),
    (588, 1000, (0.5572138018, 0.6181126887), (0.5567718885, 0.6187084857)),
    (4141, 5924, (0.6872147371, 0.7105691807), (0.6871602799, 0.7106853012)),
    (13067, 14218, (0.9144487805, 0.9234174012), (0.9144413522, 0.9234788482)),
    (47921, 60502, (0.7888041617, 0.7952716754), (0.7888004191, 0.7952844659)),
]


@pytest.mark.parametrize(("hits", "n", "wilson", "exact"), BINOMIAL)
def test_intervals_of_independent_hits_are_those_of_the_books(hits, n, wilson, exact):
    values = np.repeat([1.0, 0.0], [hits, n - hits])
    for ci, ends in {"wilson": wilson, "clopper-pearson": exact}.items():
        found = interval(values, ["a"] * n, ci)
        assert (found.low, found.high) == pytest.approx(ends, abs=6e-11)
        assert (found.method, found.reason, found.design_effect) == (ci, "", None)


@pytest.mark.parametrize(
    ("confidence", "ends"), [(0.90, (0.8048062641, 0.9157001225)), (0.99, (0.7599889419, 0.9339677492))]
)
def test_another_confidence(confidence, ends):
    found = interval(np.repeat([1.0, 0.0], [87, 13]), ["a"] * 100, "wilson", confidence=confidence)
    assert (found.low, found.high) == pytest.approx(ends, abs=6e-11)


def test_the_default_is_the_cluster_robust_t_of_statsmodels():
    found = interval(VALUES, LABELS)
    assert (found.low, found.high) == pytest.approx((0.55908407, 0.96591593), abs=6e-9)
    assert found.standard_error == pytest.approx(0.0924204011, abs=6e-11)
    assert found.design_effect == pytest.approx(3.4588654012, abs=6e-11)
    assert found.effective_n == pytest.approx(23.1289717, abs=6e-8)
    assert (found.method, found.clusters, found.cut, found.reason, found.caveat) == ("cluster-t", 12, False, "", "")
    low, high, error = statsmodels_interval(VALUES, LABELS)
    assert (found.low, found.high, found.standard_error) == pytest.approx((low, high, error), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from([0.0, 1.0, 0.5, 1 / 3])), min_size=3))
def test_any_queries_get_the_interval_of_statsmodels_or_the_reason_why_not(rows):
    labels, values = [label for label, _ in rows], np.array([value for _, value in rows])
    found = interval(values, labels)
    assert 0 <= found.low <= found.high <= 1
    if found.method == "cluster-t":
        low, high, error = statsmodels_interval(values, labels, 0.95)
        assert (found.low, found.high) == pytest.approx((max(low, 0), min(high, 1)), abs=1e-9)
        assert found.standard_error == pytest.approx(error, abs=1e-9)
        assert found.cut == (low < 0 or high > 1)
    else:
        assert found.method == "wilson"
        assert found.reason
    again = np.random.default_rng(len(rows)).permutation(len(rows))
    assert interval(values[again], [labels[row] for row in again]) == found


def test_the_bootstrap_draws_clusters():
    found = interval(VALUES, LABELS, "cluster-bootstrap")
    assert (found.low, found.high) == pytest.approx((0.5813796, 0.9231256), abs=0.01)
    assert found.standard_error == pytest.approx(0.0878543, abs=0.002)
    order = np.random.default_rng(1).permutation(len(VALUES))
    np.random.seed(7)  # noqa: NPY002  # the global state must not matter
    assert interval(VALUES[order], [LABELS[row] for row in order], "cluster-bootstrap") == found


def test_every_draw_of_three_clusters():
    """27 resamples can be written out; what is drawn at random comes near their quantiles."""
    hits, n = np.array([4, 1, 3]), np.array([5, 4, 3])
    values = np.concatenate([np.repeat([1.0, 0.0], [a, b - a]) for a, b in zip(hits, n, strict=True)])
    found = interval(values, np.repeat(["a", "b", "c"], n).tolist(), "cluster-bootstrap")
    draws = [sum(hits[[i, j, k]]) / sum(n[[i, j, k]]) for i in range(3) for j in range(3) for k in range(3)]
    assert found.standard_error == pytest.approx(np.std(draws), rel=0.03)
    assert (found.low, found.high) == (min(draws), max(draws)) == (0.25, 1.0)


def test_the_mean_over_labels_is_a_mean_of_one_value_a_label():
    found = interval(VALUES, LABELS, average="macro")
    means = np.array(HITS) / SIZES
    from scipy.stats import t, tstd

    error = tstd(means) / math.sqrt(12)
    assert found.standard_error == pytest.approx(error, rel=1e-12)
    half = t.ppf(0.975, 11) * error
    assert (found.low, found.high) == pytest.approx((means.mean() - half, means.mean() + half), rel=1e-12)
    assert means.mean() == pytest.approx(0.7380647131, abs=6e-11)
    assert found.design_effect is None


@pytest.mark.parametrize(
    ("values", "labels", "reason"),
    [
        ([1, 1, 1, 1], "aabb", "every query is a hit"),
        ([0, 0, 0, 0], "aabb", "every query is a miss"),
        ([1, 0, 1, 0], "aaaa", "all queries have one label"),
        ([1], "a", "there is one query"),
        ([1, 0, 1], "abc", "no two queries have the same label"),
        ([1, 0, 1], ["", "", ""], "the queries have no label"),
        ([1, 0, 1, 0], "aabb", "every label has the same value"),
    ],
)
def test_where_clusters_tell_nothing_it_is_wilson_and_says_why(values, labels, reason):
    found = interval(values, list(labels))
    plain = interval(values, list(labels), "wilson")
    assert (found.method, found.reason) == ("wilson", reason)
    assert (found.low, found.high) == (plain.low, plain.high)
    assert interval(values, list(labels), "cluster-bootstrap").reason == reason


def test_with_several_labels_the_mean_over_labels_is_a_weighted_one_of_sets():
    labels = [("a",), ("a", "b"), ("b",), ("a", "b"), ("b",), ("c",), ("a",), ("c",)]
    values = np.array([1, 1, 0, 0, 0, 1, 0, 1.0])
    own = {one: [row for row, several in enumerate(labels) if one in several] for one in "abc"}
    weights = np.array([sum(1 / len(own[one]) for one in several) for several in labels])
    mean = np.mean([values[rows].mean() for rows in own.values()])
    sets = sorted(set(labels))
    spread = sum(
        sum(weights[row] * (values[row] - mean) for row in range(8) if labels[row] == one) ** 2 for one in sets
    )
    found = interval(values, labels, average="macro")
    assert found.clusters == len(sets)
    assert found.standard_error == pytest.approx((spread * len(sets) / (len(sets) - 1)) ** 0.5 / 3)
    assert (found.low + found.high) / 2 == pytest.approx(mean) or found.cut
    assert interval([1, 0, 0], [("a", "b"), ("b", "c"), ("c",)], average="macro").reason == ""  # wilson's is of queries
    same = interval([1, 0, 1, 0, 1, 0], [("a", "b")] * 2 + [("c",)] * 2 + [("d",)] * 2)
    assert same.reason == "every set of labels has the same value"


def test_values_that_are_no_hits_get_the_t_over_queries_or_nothing():
    found = interval([0.2, 0.5, 0.9], list("abc"), hits=False)
    assert (found.method, found.reason) == ("cluster-t", "no two queries have the same label")
    from scipy.stats import ttest_1samp

    ends = ttest_1samp([0.2, 0.5, 0.9], 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((max(0, ends.low), min(1, ends.high)), rel=1e-12)
    assert interval([0.5, 0.5], list("ab"), hits=False) is None
    assert interval([0.5, 0.7], list("ab"), "wilson", hits=False) is None
    assert interval([0.5, 0.7], list("ab"), "none") is None


def test_hits_that_ties_make_no_whole_number_are_rounded_outward():
    found = interval([1, 0.25, 0, 0, 1], list("abcde"), "wilson")
    below, above = (interval(np.repeat([1.0, 0.0], [k, 5 - k]), list("abcde"), "wilson") for k in (2, 3))
    assert (found.low, found.high) == (below.low, above.high)
    thirds = interval([1 / 3] * 3 + [0], list("abcd"), "wilson")
    assert thirds.low == interval([1, 0, 0, 0], list("abcd"), "wilson").low


def test_few_labels_with_a_miss_are_named():
    values, labels = np.ones(60), [f"{i % 20}" for i in range(60)]
    values[[3, 23]] = 0
    miss, hit = (f"only 1 of 20 labels with a {what}, so it may be too narrow" for what in ("miss", "hit"))
    assert interval(values, labels).caveat == f"{miss}: evaluate with --ci wilson too"
    assert interval(1 - values, labels).caveat == f"{hit}: evaluate with --ci wilson too"
    assert interval(values, labels, average="macro").caveat == miss  # wilson is for the mean over queries
    values[[1, 2, 4, 5]] = 0
    assert interval(values, labels).caveat == ""


def coverage(ci, *, classes, correlation, mean=0.7, n=59, rounds=400):
    """How often the interval holds the true mean, of hits that correlate within a class."""
    rng = np.random.default_rng(classes)
    labels = np.repeat([f"{i}" for i in range(classes)], n).tolist()
    total = (1 - correlation) / correlation
    held = 0
    for _ in range(rounds):
        shares = rng.beta(mean * total, (1 - mean) * total, classes)
        found = interval((rng.random((classes, n)) < shares[:, None]).ravel(), labels, ci)
        held += found.low <= mean <= found.high
    return held / rounds


def test_the_default_holds_its_level_and_wilson_does_not_where_hits_correlate():
    """The full tables: benchmarks/coverage.py."""
    assert 0.92 <= coverage("cluster-t", classes=10, correlation=0.1) <= 0.98
    assert 0.92 <= coverage("cluster-t", classes=30, correlation=0.1) <= 0.98
    assert 0.45 <= coverage("wilson", classes=30, correlation=0.1) <= 0.62


# In a report


def world(**columns):
    rng = np.random.default_rng(5)
    labels = np.repeat([f"{i}" for i in range(10)], 6)
    centres = rng.normal(size=(10, 8))
    rows = centres[np.repeat(np.arange(10), 6)] + rng.normal(scale=1.3, size=(60, 8))
    return EmbeddingSet(rows, labels, ids=[f"q{i}" for i in range(60)], **columns)


def test_every_recall_has_its_interval_and_the_signature_says_which():
    report = evaluate_embeddings(world(), metrics=["mrr"])
    for name, value in report.values_by_metric.items():
        low, high, _ = statsmodels_interval(np.asarray(report.queries[name]), report.queries["label"])
        assert value.interval is not None
        assert (value.interval.low, value.interval.high) == pytest.approx((max(0, low), min(1, high)), abs=1e-12)
        assert f"\n{name}: {value.interval.low:.6f} to {value.interval.high:.6f} (design effect" in str(report)
    assert "\n[interval]\n95 % cluster-robust t over 10 labels\n" in str(report)
    assert report.signature.parts["ci"] == "cluster-t,0.95,label,c10"


def test_another_column_makes_the_clusters():
    cameras = [str(i % 4) for i in range(60)]
    report = evaluate_embeddings(world(groups={"camera": cameras}), intervals=IntervalRule(cluster="camera"))
    low, high, _ = statsmodels_interval(np.asarray(report.queries["recall@1"]), cameras)
    found = report.values_by_metric["recall@1"].interval
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    assert "95 % cluster-robust t over 4 values of camera" in str(report)
    with pytest.raises(RecallatkError, match=r"cluster='lens' is no column of the .* its columns are: label, camera"):
        evaluate_embeddings(world(groups={"camera": cameras}), intervals=IntervalRule(cluster="lens"))


def test_none_leaves_the_section_out():
    report = evaluate_embeddings(world(), intervals=IntervalRule(ci="none"))
    assert "[interval]" not in str(report)
    assert report.signature.parts["ci"] == "none"
    assert report.signature.protocol_id == evaluate_embeddings(world()).signature.protocol_id


def test_a_mean_over_labels_has_labels_as_its_clusters():
    protocol = EvalProtocol(average="macro")
    assert evaluate_embeddings(world(), protocol=protocol).values_by_metric["recall@1"].interval.clusters == 10
    for rule in (IntervalRule(ci="wilson"), IntervalRule(cluster="camera")):
        with pytest.raises(RecallatkError, match="average=macro is a mean over labels"):
            evaluate_embeddings(world(groups={"camera": ["0"] * 60}), protocol=protocol, intervals=rule)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ci": "wald"}, "ci='wald' is not a choice; choose one of: cluster-t"),
        ({"confidence": 95}, "confidence=95.0 is no share between 0 and 1"),
        ({"confidence": "high"}, "confidence='high'"),
        ({"cluster": ""}, "cluster='' is no column"),
    ],
)
def test_a_rule_that_is_none_is_refused(wrong, message):
    with pytest.raises(RecallatkError, match=message.replace("(", r"\(")):
        IntervalRule(**wrong)


def test_the_rule_in_the_signature_and_in_words():
    rule = IntervalRule("cluster-bootstrap", cluster="camera", confidence=0.9)
    assert sign_rule(rule, 7) == "cluster-bootstrap,0.9,camera,c7,b9999,s0"
    assert describe_rule(rule, 7) == "90 % cluster bootstrap of 9,999 over 7 values of camera"
    assert describe_rule(IntervalRule("wilson"), 7) == "95 % wilson, every query on its own"
