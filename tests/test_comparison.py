"""Runs compared on the same queries: the numbers against scipy and statsmodels, and what may not be compared."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import permutation_test
from statsmodels.api import OLS
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from command_line import recallatk
from recallatk import (
    EmbeddingSet,
    EvalProtocol,
    IntervalRule,
    Qrels,
    RecallatkError,
    Report,
    SampleSet,
    compare,
    evaluate_embeddings,
    evaluate_scores,
    load_report,
    save_run,
)
from recallatk.comparison import pair
from recallatk.comparison.verdict import p_value
from recallatk.types import ChoiceError

PHOTOS = Path(__file__).parents[1] / "src" / "recallatk" / "assets" / "photos"
FEW = EvalProtocol(ks=(1,))


def run_of(hits, labels=None, *, ids=True, order=None, protocol=FEW, metrics=(), prefix="q") -> Report:
    """A run whose queries are hit and missed at 1 as given: one item a label, and one that is in the way of misses."""
    n = len(hits)
    labels = [f"label {row}" for row in range(n)] if labels is None else list(labels)
    order = range(n) if order is None else order
    items = [*dict.fromkeys(labels), "in the way"]
    scores = np.array([[1.0 * (item == labels[row]) for item in items] for row in order])
    scores[:, -1] = [0.5 if hits[row] else 2.0 for row in order]
    names = [f"{prefix}{row:05d}" for row in order] if ids else None
    query = SampleSet([labels[row] for row in order], ids=names)
    gallery = SampleSet(items, ids=[f"g{row}" for row in range(len(items))])
    return evaluate_scores(scores, query, gallery, protocol=protocol, metrics=metrics)


def table(both, first, second, neither):
    """Hits of two systems that agree and differ so often."""
    a = [1] * both + [1] * first + [0] * second + [0] * neither
    return a, [1] * both + [0] * first + [1] * second + [0] * neither


def embedded(seed, noise=0.7, *, n=48, labels=8, ids=True, order=None, metrics=(), **protocol) -> Report:
    """A run of noisy embeddings."""
    rows = np.random.default_rng(9).normal(size=(labels, 6))[np.arange(n) % labels]
    rows = rows + noise * np.random.default_rng(seed).normal(size=rows.shape)
    order = np.arange(n) if order is None else order
    samples = EmbeddingSet(
        rows[order], [f"label {row % labels}" for row in order], ids=[f"q{row:02d}" for row in order] if ids else None
    )
    return evaluate_embeddings(samples, protocol=EvalProtocol(**protocol), metrics=metrics)


def verdict_of(comparison) -> str:
    return comparison.text().splitlines()[1]


# --- the numbers


@pytest.mark.parametrize(
    ("cells", "difference", "exact", "mid_p"),
    [
        ((80, 12, 5, 3), 0.07, 0.143463134765625, 0.0962524414),
        ((50, 10, 0, 40), 0.10, 0.001953125, 0.0009765625),
        ((600, 30, 14, 96), 0.0216216216, 0.0226288412, 0.0160943600),
        ((500, 8, 2, 30), 0.0111111111, 0.109375, 0.0654296875),
        ((10, 0, 0, 5), 0.0, 1.0, 1.0),
        ((90, 5, 5, 0), 0.0, 1.0, 1.0),
        ((0, 6, 0, 0), 1.0, 0.03125, 0.015625),
        ((0, 5, 0, 0), 1.0, 0.0625, 0.03125),
    ],
)
def test_two_systems_on_independent_queries(cells, difference, exact, mid_p):
    a, b = table(*cells)
    (contrast,) = compare({"a": run_of(a), "b": run_of(b)}).contrasts
    test = contrast.test
    assert test.difference == pytest.approx(-difference, abs=1e-9)
    assert (test.losses, test.wins) == (cells[1], cells[2])
    assert test.mcnemar.exact == pytest.approx(exact, abs=1e-10)
    assert test.mcnemar.mid_p == pytest.approx(mid_p, abs=1e-10)
    oracle = mcnemar([[cells[0], cells[1]], [cells[2], cells[3]]], exact=True).pvalue
    assert test.mcnemar.exact == pytest.approx(oracle, abs=1e-12)
    # With a label a query the two are one test, up to sampling.
    assert test.p_value == pytest.approx(exact, abs=1e-12 if test.exact else 0.015)


def clustered_pair():
    """Ten labels of ten queries: wins of the first and of the second in each."""
    first, second, labels = [], [], []
    for label, (wins, losses) in enumerate(
        zip([4, 3, 2, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1, 1, 1], strict=True)
    ):
        first += [1] * wins + [0] * losses + [1] * (10 - wins - losses)
        second += [0] * wins + [1] * losses + [1] * (10 - wins - losses)
        labels += [f"label {label}"] * 10
    return first, second, labels


def test_queries_that_are_won_together_are_tested_together():
    first, second, labels = clustered_pair()
    comparison = compare({"a": run_of(first, labels), "b": run_of(second, labels)})
    test = comparison.contrasts[0].test
    assert test.p_value == 0.33984375
    assert test.exact
    assert test.mcnemar.exact == pytest.approx(0.143463134765625, abs=1e-12)
    difference = np.array(second) - np.array(first)
    codes = np.array([int(label.split()[1]) for label in labels])
    fit = OLS(difference, np.ones(100)).fit(cov_type="cluster", cov_kwds={"groups": codes}, use_t=True)
    assert (test.interval.low, test.interval.high) == pytest.approx(fit.conf_int()[0], abs=1e-12)
    oracle = permutation_test(
        (np.bincount(codes, weights=difference),), np.sum, permutation_type="samples", n_resamples=np.inf
    )
    assert test.p_value == pytest.approx(oracle.pvalue, abs=1e-12)
    assert verdict_of(comparison).startswith("no difference between b and a is shown: recall@1 -0.0700 (95 % interval ")
    assert "sign flips of whole labels: p = 0.34 (all 512 flips of the 9 labels with a difference)" in comparison.text()


def test_the_p_values_of_several_systems_are_adjusted():
    rng = np.random.default_rng(3)
    hits = {f"run {row}": (rng.random(60) < share).astype(int) for row, share in enumerate((0.4, 0.5, 0.65, 0.8))}
    comparison = compare({name: run_of(hit) for name, hit in hits.items()})
    raw = [contrast.test.p_value for contrast in comparison.contrasts]
    assert [contrast.p_holm for contrast in comparison.contrasts] == pytest.approx(multipletests(raw, method="holm")[1])
    assert comparison.text().count("after Holm over 3 runs") == 3
    assert [contrast.name for contrast in comparison.contrasts] == ["run 1", "run 2", "run 3"]


def test_values_are_those_of_the_runs_to_the_last_digit():
    first, second = embedded(1, metrics=["map"]), embedded(2, metrics=["mrr"])
    comparison = compare({"a": first, "b": second})
    for system, report in zip(comparison.systems, (first, second), strict=True):
        assert {name: value.value for name, value in system.values.items()} == {
            k: report[k] for k in comparison.baseline.values
        }
        assert [value.interval for value in system.values.values()] == [
            report.values_by_metric[name].interval for name in system.values
        ]
    assert list(comparison.baseline.values) == ["recall@1", "recall@5", "recall@10"]


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_called_better_unless_p_says_so(seed):
    rng = np.random.default_rng(seed)
    labels = [f"label {row}" for row in rng.integers(0, 5 + 4 * seed, 80)]
    hits = {name: (rng.random(80) < share).astype(int) for name, share in (("a", 0.5), ("b", 0.55), ("c", 0.75))}
    comparison = compare({name: run_of(hit, labels) for name, hit in hits.items()})
    said = comparison.text().partition("[systems]")[0]
    for contrast in comparison.contrasts:
        shown = bool(re.search(rf"^{contrast.name} is (better|worse) than a: ", said, re.MULTILINE))
        assert shown == (contrast.p_holm <= 0.05)


def test_an_all_hit_run_against_an_all_miss_run():
    labels = [f"label {row % 8}" for row in range(24)]
    miss = run_of([0] * 23 + [1], labels)
    comparison = compare({"miss": run_of([0] * 24, labels), "hit": run_of([1] * 24, labels)})
    test = comparison.contrasts[0].test
    assert (test.difference, test.p_value, test.interval) == (1.0, 2**-7, None)
    assert verdict_of(comparison) == "hit is better than miss: recall@1 +1.0000 (p = 0.00781)"
    assert "interval: none, as every query has the same difference" in comparison.text()
    assert compare({"miss": miss, "hit": run_of([1] * 24, labels)}).contrasts[0].test.wins == 23


@pytest.mark.parametrize("labels", [["one"] * 12, None])
def test_too_few_clusters_with_a_difference_are_said_to_show_nothing(labels):
    comparison = compare({"a": run_of([1] * 8 + [0] * 4, labels), "b": run_of([1] * 12, labels)})
    what = "1 label has" if labels else "4 queries have"
    least = "1" if labels else "0.125"
    said = comparison.text().splitlines()
    assert said[1].startswith("no difference between b and a can be shown: recall@1 +0.3333")
    assert said[2] == f"only {what} a difference, and so few can give no p below {least}"


def test_one_query():
    comparison = compare({"a": run_of([0]), "b": run_of([1])})
    assert comparison.contrasts[0].test.p_value == 1.0
    assert "only 1 query has a difference" in comparison.text()


def test_a_run_equals_itself():
    report = embedded(1)
    comparison = compare({"a": report, "again": report})
    test = comparison.contrasts[0].test
    assert (test.difference, test.p_value, comparison.changed) == (0.0, 1.0, ())
    assert (
        verdict_of(comparison)
        == f"again equals a on every query: recall@1 {report['recall@1']:.6f} in both (48 queries, p = 1)"
    )
    assert "nan" not in comparison.text().lower()


def test_wins_and_losses_that_cancel_in_every_label():
    labels = ["x", "x", "y", "y"]
    comparison = compare({"a": run_of([1, 0, 1, 0], labels), "b": run_of([0, 1, 0, 1], labels)})
    assert comparison.text().splitlines()[2] == "wins and losses cancel within every label"


def test_a_sample_that_is_too_small_is_said_to_show_nothing():
    comparison = compare({"a": run_of([0] * 30), "b": run_of([1] * 30)}, resamples=9)
    assert not comparison.contrasts[0].test.exact
    said = comparison.text().splitlines()
    assert said[1].startswith("no difference between b and a can be shown: recall@1 +1.0000")
    assert said[2] == "a sample of 9 flips can give no p below 0.2: raise resamples (--resamples)"


def test_an_interval_that_takes_queries_as_independent_is_said_to():
    labels = ["one"] * 300
    text = compare({"a": run_of([1] * 200 + [0] * 100, labels), "b": run_of([1] * 225 + [0] * 75, labels)}).text()
    assert text.splitlines()[3] == (
        "the interval leaves 0 out, but it takes queries as independent; the verdict goes by the test"
    )
    assert "design effect of the difference" not in text
    assert "minimum detectable difference: none, these queries are too few or too alike" in text


def test_why_interval_and_test_disagree_is_said():
    labels = [f"label {row % 12}" for row in range(24)]
    base, better = run_of([0] * 24, labels), run_of([1] * 8 + [0] * 16, labels)
    assert compare({"a": base, "b": better}).contrasts[0].test.p_value == 2**-7
    # With seven runs Holm makes 0.0078 of 2 / 2^8 no longer enough.
    runs = {"a": base} | {f"run {row}": run_of([1] * 8 + [0] * 16, labels) for row in range(7)}
    said = compare(runs).text().splitlines()
    assert (
        "the interval leaves 0 out, but it is not adjusted for the number of runs; the verdict goes by the test" in said
    )
    one_label = [*["big"] * 12, *(f"label {row}" for row in range(12))]
    uneven = compare({"a": run_of([0] * 24, one_label), "b": run_of([1] * 16 + [0] * 8, one_label)})
    assert uneven.contrasts[0].test.p_value > 0.05
    assert "labels are few or unequal in size; the verdict goes by the test" in uneven.text()


def test_mcnemar_of_no_query_is_none():
    same = np.ones((8, 2))
    labels, ids = [f"label {row % 2}" for row in range(8)], [f"q{row}" for row in range(8)]
    one_point = evaluate_embeddings(EmbeddingSet(same, labels, ids=ids), protocol=FEW)
    text = compare({"a": one_point, "b": one_point}).text()
    assert "McNemar: none, as ties can move every query" in text
    assert "- warning of a and b: for 8 of 8 queries every negative is as near as the best positive" in text


def test_a_graded_metric_has_no_mcnemar():
    comparison = compare({"a": embedded(1, metrics=["mrr"]), "b": embedded(2, 0.4, metrics=["mrr"])}, metric="mrr")
    assert comparison.contrasts[0].test.mcnemar is None
    text = comparison.text()
    assert "McNemar" not in text
    assert "higher in b: " in text
    assert comparison.contrasts[0].test.minimum_detectable_effect is not None


def test_macro_flips_labels_of_equal_weight():
    labels = ["x"] * 9 + [f"small {row}" for row in range(7)]
    runs = [
        run_of(hits, labels, protocol=EvalProtocol(ks=(1,), average="macro"))
        for hits in ([0] * 16, [1] * 5 + [0] * 4 + [1] * 7)
    ]
    comparison = compare(dict(zip("ab", runs, strict=True)))
    test = comparison.contrasts[0].test
    assert test.difference == pytest.approx(runs[1]["recall@1"] - runs[0]["recall@1"], abs=1e-12)
    assert (test.clusters, test.p_value) == (8, 2**-7)
    assert "means of the means of labels" in comparison.text()
    with pytest.raises(ChoiceError, match="labels are their clusters"):
        compare(dict(zip("ab", runs, strict=True)), intervals=IntervalRule(cluster="camera"))


def test_queries_with_several_labels_count_for_each_of_them_in_the_table():
    labels = [("x", "y"), ("x",), ("y", "z"), ("z",)]
    gallery = SampleSet([("x",), ("y",), ("z",), ("none",)], ids=list("abcd"))
    query = SampleSet(labels, ids=list("pqrs"))
    scores = np.array([[any(label in own for own in [labels[row]]) for label in "xyz"] for row in range(4)], float)
    runs = {
        name: evaluate_scores(np.hstack([scores, np.full((4, 1), way)]), query, gallery, protocol=FEW)
        for name, way in (("a", 2.0), ("b", 0.5))
    }
    comparison = compare(runs)
    assert [(one.label, one.n, one.values) for one in comparison.labels] == [
        ("x", 2, (0.0, 1.0)),
        ("y", 2, (0.0, 1.0)),
        ("z", 2, (0.0, 1.0)),
    ]


def test_without_labels_every_query_is_a_cluster():
    qrels = Qrels(list("pqrstu"), list("abcdef"), np.ones(6, np.int64))
    query, gallery = SampleSet(None, ids=list("pqrstu")), SampleSet(None, ids=list("abcdef"))
    protocol = EvalProtocol(ks=(1,), relevance="qrels")
    runs = {
        name: evaluate_scores(scores, query, gallery, protocol=protocol, qrels=qrels)
        for name, scores in (("a", np.roll(np.eye(6), 1, axis=1)), ("b", np.eye(6)))
    }
    comparison = compare(runs)
    assert comparison.contrasts[0].test.clusters == 6
    assert comparison.contrasts[0].test.p_value == 2 / 2**6
    assert comparison.labels == ()
    assert "sign flips of queries: p = 0.0312 (all 64 flips of the 6 queries with a difference)" in comparison.text()


@pytest.mark.parametrize("ties", ["expected", "pessimistic", "optimistic"])
def test_mcnemar_leaves_out_queries_that_ties_can_move(ties):
    labels = [f"label {row}" for row in range(6)]
    query, gallery = SampleSet(labels, ids=list("pqrstu")), SampleSet([*labels, "other"], ids=list("abcdefg"))
    base, new = np.eye(6), np.eye(6)
    protocol = EvalProtocol(ks=(1,), ties=ties)
    runs = {
        name: evaluate_scores(np.hstack([own, np.array([column]).T]), query, gallery, protocol=protocol)
        for name, own, column in (("a", base, [1.0, 2, 2, 2, 2, 0]), ("b", new, [0, 1.0, 0, 0, 0, 0]))
    }
    found = compare(runs).contrasts[0].test.mcnemar
    assert (found.left_out, found.n, found.wins, found.losses) == (2, 4, 3, 0)
    assert "without 2 queries that ties can move" in compare(runs).text()
    ranks = {query.id: query.ranks for query in compare(runs).changed}
    assert ranks["q"] == ((2, 2), (1, 2)) if ties != "pessimistic" else "q" not in ranks


def test_clusters_of_another_column_and_of_the_first_run():
    def grouped(hits, **rule):
        labels = [f"label {row}" for row in range(8)]
        query = SampleSet(labels, ids=list("abcdefgh"), groups={"place": list("wwxxyyzz")})
        scores = np.hstack([np.eye(8), np.where(hits, 0.5, 2.0)[:, None]])
        return evaluate_scores(scores, query, SampleSet([*labels, "z"], ids=list("ABCDEFGHZ")), protocol=FEW, **rule)

    plain = [grouped([1, 1, 0, 0, 0, 0, 0, 0]), grouped([1] * 8)]
    by_place = [
        grouped([1, 1, 0, 0, 0, 0, 0, 0], intervals=IntervalRule(cluster="place", confidence=0.9)),
        plain[1],
    ]
    assert compare(dict(zip("ab", plain, strict=True))).contrasts[0].test.p_value == 2 / 2**6
    comparison = compare(dict(zip("ab", by_place, strict=True)))
    assert comparison.contrasts[0].test.p_value == 2 / 2**3
    assert "sign flips of whole values of place" in comparison.text()
    assert "90 %" in comparison.text()
    asked = compare(dict(zip("ab", plain, strict=True)), intervals=IntervalRule(cluster="place"))
    assert asked.contrasts[0].test.p_value == 2 / 2**3
    with pytest.raises(ChoiceError, match="'nix' is no column of the queries of a; its columns are: label, place"):
        compare(dict(zip("ab", plain, strict=True)), intervals=IntervalRule(cluster="nix"))


# --- what may be compared


def refused(first: Report, second: Report, **choices) -> str:
    with pytest.raises(RecallatkError) as caught:
        compare({"base": first, "new": second}, **choices)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_queries_of_one_side_only_are_named_and_forced_away():
    first = run_of([1, 1, 0, 1, 0, 1])
    second = run_of([0, 1, 0, 1, 1], prefix="q")
    said = refused(first, second)
    assert "1 query only in base: 'q00005'" in said
    assert "evaluated queries: 6 in base, 5 in new" in said
    assert "the 5 queries that both have in common all the same with force=True (--force)" in said
    forced = compare({"base": first, "new": second}, force=True)
    assert forced.baseline.values["recall@1"].value == 3 / 5
    assert forced.contrasts[0].test.difference == 0.0
    text = forced.text()
    assert "forced: about the 5 queries that all runs have in common" in text
    assert "\n[forced]\ndropped: 1 query only in base: 'q00005'\n" in text
    assert refused(first, run_of([1, 1, 0, 1, 0, 1], prefix="x"), force=True).startswith(
        "base and new have no evaluated query in common: "
        "6 queries only in base: 'q00000', 'q00001', 'q00002' and 3 more; 6 queries only in new: "
    )


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"ties": "optimistic"}, "ties: expected in base, optimistic in new"),
        ({"exclude_self": "none"}, "exclude_self: id in base, none in new"),
        ({"average": "macro"}, "average: micro in base, macro in new"),
        ({"no_positive": "miss"}, "no_positive: exclude in base, miss in new"),
        ({"similarity": "dot"}, "similarity: cosine in base, dot in new"),
        ({"distractor_labels": ("label 1",)}, "relevance: label in base, label+distractor=label%25201 in new"),
    ],
)
def test_another_protocol_is_refused_and_the_part_is_named(choices, words):
    assert words.replace("%2520", "%20") in refused(embedded(1), embedded(2, **choices)).replace("%2520", "%20")


def test_labels_that_differ_are_named():
    labels = [f"label {row % 4}" for row in range(12)]
    other = [*labels[:11], "label 0"]
    said = refused(run_of([1] * 12, labels), run_of([1] * 12, other))
    assert "labels differ for 1 query, e.g. 'q00011': 'label 3' in base, 'label 0' in new" in said


def test_labels_that_are_only_called_otherwise_are_a_note():
    labels = [f"label {row % 4}" for row in range(12)]
    comparison = compare({"a": run_of([1] * 12, labels), "b": run_of([1] * 12, [label.upper() for label in labels])})
    assert any("labels are called otherwise in b" in note for note in comparison.notes)


def test_another_gallery_is_refused():
    rows = np.random.default_rng(0).normal(size=(12, 4))
    labels = [f"label {row % 3}" for row in range(12)]
    query = EmbeddingSet(rows, labels, ids=[f"q{row}" for row in range(12)])

    def against(n, prefix="g"):
        return evaluate_embeddings(
            query, EmbeddingSet(rows[:n] + 0.1, labels[:n], ids=[f"{prefix}{row}" for row in range(n)]), protocol=FEW
        )

    assert "gallery items: 12 in base, 9 in new" in refused(against(12), against(9))
    assert "ids or labels of the gallery differ" in refused(against(12), against(12, "other"))
    # In a gallery of one label the queries of the others have no positive.
    said = refused(against(12), against(1))
    assert "8 queries without a positive only in new: 'q1', 'q10', 'q11' and 5 more" in said
    forced = compare({"base": against(12), "new": against(1)}, force=True)
    assert len(forced.ids) == 4
    assert "dropped: 8 queries without a positive only in new" in forced.text()


def test_k_and_what_one_run_does_not_know_are_notes():
    first = embedded(1, ks=(1, 5))
    second = embedded(2, ks=(1, 20))
    comparison = compare({"a": first, "b": second})
    assert comparison.notes == ("k: 1,5 in a, 1,20 in b; compared are those that both have",)
    assert list(comparison.baseline.values) == ["recall@1"]
    with_bytes = dataclasses.replace(
        first, signature=dataclasses.replace(first.signature, parts={**first.signature.parts, "img": "0123456789ab"})
    )
    assert "image bytes: known of a only" in compare({"a": with_bytes, "b": first}).notes
    assert "recall at no k in common (base has k=1,5, new has k=2)" in refused(first, embedded(2, ks=(2,)))
    assert "base has no map; metrics that all runs have: recall@1" in refused(first, second, metric="map")


def test_runs_without_ids_are_paired_by_row_only_when_forced():
    first, second = embedded(1, ids=False), embedded(2, ids=False)
    said = refused(first, second)
    assert "the queries of base and new have no ids, so nothing says that row 0 of one is row 0 of the other" in said
    forced = compare({"base": first, "new": second}, force=True)
    named = compare({"base": embedded(1), "new": embedded(2)})
    assert forced.contrasts == named.contrasts
    assert "forced: there are no ids; this holds if the rows of all runs are the same queries" in forced.text()
    assert "those of base have" in refused(embedded(1), second, force=True)
    assert "their numbers differ (48 in base, 40 in new)" in refused(first, embedded(2, ids=False, n=40), force=True)
    # Early records do not say whether there were ids.
    early = [dataclasses.replace(report, ids_given=None) for report in (first, embedded(1))]
    assert "have no ids" in refused(early[0], early[0])
    assert compare({"a": early[1], "b": early[1]}).ids[0] == "q00"


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_rows_of_another_run_are_refused(tmp_path, average):
    for name, seed in (("a", 1), ("b", 2)):
        save_run(embedded(seed, average=average, ks=(1,)), tmp_path / name)
    (tmp_path / "b/queries.parquet").write_bytes((tmp_path / "a/queries.parquet").read_bytes())
    a, b = (load_report(tmp_path / name) for name in "ab")
    with pytest.raises(RecallatkError, match=r"^b: recall@1 is 0\.\d+ in its rows and 0\.\d+ in its record"):
        compare({"a": a, "b": b})
    fewer = dict(a.queries) | {"recall@1": np.where(np.arange(48) == 3, np.nan, a.queries["recall@1"])}
    with pytest.raises(RecallatkError, match=r"^b: 47 queries with recall@1 in its rows, 48 in its record"):
        compare({"a": a, "b": dataclasses.replace(a, queries=fewer)})


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("id", [None] * 48, "an id is no text"),
        ("id", list(range(48)), "an id is no text"),
        ("recall@1", ["1"] * 48, "the column recall@1 holds other than numbers"),
        ("negatives_ahead", [None] * 48, "the column negatives_ahead holds other than whole numbers"),
    ],
)
def test_rows_that_are_damaged_are_one_line(tmp_path, column, values, words):
    save_run(embedded(1), tmp_path / "run")
    table = pq.read_table(tmp_path / "run/queries.parquet")
    damaged = table.set_column(table.column_names.index(column), column, pa.array(values))
    pq.write_table(damaged, tmp_path / "run/queries.parquet")
    with pytest.raises(RecallatkError, match=words):
        load_report(tmp_path / "run")


def test_a_run_without_a_column_says_so():
    report = embedded(1)
    less = dataclasses.replace(
        report, queries={name: column for name, column in report.queries.items() if name != "negatives_tied"}
    )
    assert "new: its queries have no column 'negatives_tied'; repeat the run" in refused(report, less)


def test_one_name_in_two_forms_of_unicode_is_one_query():
    rows, labels = np.eye(4)[[0, 0, 1, 1]], ["a", "a", "b", "b"]
    first, second = (
        evaluate_embeddings(EmbeddingSet(rows, labels, ids=[*"pqr", unicodedata.normalize(form, "\xe9")]), protocol=FEW)
        for form in ("NFC", "NFD")
    )
    assert first.queries["id"] != second.queries["id"]
    assert len(compare({"a": first, "b": second}).ids) == 4


def test_misses_of_queries_without_a_positive_are_compared_too():
    labels = ["a", "a", "b", "b", "alone"]
    ids = list("pqrst")
    runs = {
        name: evaluate_embeddings(
            EmbeddingSet(np.eye(5)[rows], labels, ids=ids), protocol=EvalProtocol(ks=(1,), no_positive="miss")
        )
        for name, rows in (("a", [0, 0, 1, 1, 2]), ("b", [0, 1, 0, 1, 2]))
    }
    comparison = compare(runs)
    assert len(comparison.ids) == 5
    assert comparison.contrasts[0].test.ties == 1
    assert comparison.systems[0].values["recall@1"].value == runs["a"]["recall@1"] == 0.8


def test_one_run_is_no_comparison():
    with pytest.raises(ChoiceError, match="at least two runs"):
        compare({"a": embedded(1)})


def test_the_order_of_rows_changes_nothing():
    order = np.random.default_rng(5).permutation(48)
    plain = compare({"a": embedded(1, metrics=["map"]), "b": embedded(2, metrics=["map"])}, metric="map")
    mixed = compare({"a": embedded(1, metrics=["map"]), "b": embedded(2, metrics=["map"], order=order)}, metric="map")
    both = compare(
        {"a": embedded(1, metrics=["map"], order=order[::-1]), "b": embedded(2, metrics=["map"], order=order)},
        metric="map",
    )
    for form in ("text", "markdown", "latex", "csv"):
        assert getattr(plain, form)() == getattr(mixed, form)() == getattr(both, form)()


def test_pair_is_what_a_paired_test_takes():
    paired = pair(run_of([1, 0, 1]), run_of([0, 0, 1], order=[2, 0, 1]), names=("a", "b"))
    assert paired.metric == "recall@1"
    assert (paired.first.tolist(), paired.second.tolist()) == ([1, 0, 1], [0, 0, 1])
    assert paired.clusters.count == 3
    assert not paired.movable.any()


# --- the forms


HOSTILE = ["[x] & $y_1$ | `a`\n# <b>", "*b*\u202e%\\end{tabular}"]
LABELS = ["=cmd|x", "a|b\n", "007", "1e5", "<script>", "*b*", "\U0001f642", '"quoted", and more']


@pytest.fixture
def hostile():
    def run(hits):
        ids = [f"{label}{row}" for row in range(2) for label in LABELS]
        query = SampleSet([*LABELS, *LABELS], ids=ids)
        gallery = SampleSet([*LABELS, "other"], ids=[f"item {label}" for label in [*LABELS, "other"]])
        scores = np.hstack([np.tile(np.eye(8), (2, 1)), np.where(hits, 0.5, 2.0)[:, None]])
        return evaluate_scores(scores, query, gallery, protocol=FEW)

    return compare({HOSTILE[0]: run([0] * 16), HOSTILE[1]: run([1] * 14 + [0] * 2)})


def test_no_name_or_label_breaks_a_form(hostile):
    text = hostile.text(everything=True)
    assert all(line.isprintable() for line in text.splitlines())
    rows = [line for line in hostile.markdown(everything=True).splitlines() if line.startswith("|")]
    columns = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert columns == {4, 7, 6}
    assert not re.search(r"(?<!\\)[<`*]", "".join(row for row in rows if not row.startswith("|:")))
    latex = [line for line in hostile.latex().splitlines() if line.endswith("\\\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in latex} == {4}
    assert not any(re.match(r"\s*[\[*]", line) for line in latex)
    code = [line for line in hostile.latex().splitlines() if not line.startswith("%")]
    assert "".join(code).count("\\end{tabular}") == 1
    read = list(csv.DictReader(io.StringIO(hostile.csv())))
    assert {row["item"] for row in read if row["row"] == "label"} == set(LABELS)
    assert {row["system"] for row in read} == set(HOSTILE)
    assert "007" in text
    assert "1e5" in text


def test_the_csv_and_the_record_hold_everything(hostile):
    read = list(csv.DictReader(io.StringIO(hostile.csv())))
    assert len([row for row in read if row["row"] == "query"]) == len(hostile.changed) == 14
    tested = next(row for row in read if row["p_value"])
    assert float(tested["p_value"]) == hostile.contrasts[0].test.p_value
    assert float(tested["difference"]) == hostile.contrasts[0].test.difference
    record = json.loads(hostile.to_json())
    assert record == hostile.record()
    assert record["num_common"] == 16
    assert len(record["changed"]) == 14


def test_lists_are_cut_and_the_cut_is_said():
    hits = np.ones(60, int)
    comparison = compare({"a": run_of(hits), "b": run_of(1 - hits)})
    assert "... and 50 more (--all shows them)" in comparison.text()
    assert "... 40 more (--all)" in comparison.text()
    everything = comparison.text(everything=True)
    assert "--all" not in everything
    assert everything.count("miss, rank 2") == 60


def test_labels_stand_with_the_largest_loss_first():
    first, second, labels = clustered_pair()
    comparison = compare({"a": run_of(first, labels), "b": run_of(second, labels)})
    differences = [one.values[1] - one.values[0] for one in comparison.labels]
    assert differences == sorted(differences)
    assert [one.label for one in comparison.labels[:3]] == ["label 0", "label 1", "label 2"]
    losses = [query.values[1] - query.values[0] for query in comparison.changed]
    assert losses == sorted(losses)


@pytest.mark.parametrize("p", [0.0499999, 0.05, 0.0500001, 0.051, 0.012345, 1e-12, 1.0])
def test_a_printed_p_is_on_its_side_of_the_level(p):
    shown = float(p_value(p, 0.05))
    assert (shown <= 0.05) == (p <= 0.05)
    assert shown == pytest.approx(p, rel=0.01)


# --- the command, on runs of real encoders


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    encoders = [part for name in ("hog", "color-histogram", "lite0") for part in ("--encoder", name)]
    result = recallatk("eval", PHOTOS, *encoders, "-m", "mrr", "-o", folder, "--no-cache", "--quiet")
    assert result.code == 0, result.err
    return folder


def test_runs_of_real_encoders(runs):
    result = recallatk("compare", runs / "color-histogram", runs / "hog", runs / "lite0")
    assert (result.code, result.err) == (0, "")
    base, hog = (load_report(runs / name) for name in ("color-histogram", "hog"))
    queries = {row["id"]: row for row in rows_of(hog)}
    nets: dict[str, float] = {}
    for row in rows_of(base):
        if not math.isnan(row["recall@1"]):
            net = queries[row["id"]]["recall@1"] - row["recall@1"]
            nets[row["label"]] = nets.get(row["label"], 0.0) + net
    moved = np.array([net for net in nets.values() if net])
    oracle = permutation_test((moved,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue
    assert f"p = {p_value(oracle, 0.05)} (all {2 ** len(moved)} flips of the {len(moved)} labels" in result.out
    assert result.out.splitlines()[3].startswith("lite0 is better than color-histogram: recall@1 +0.5130 ")
    assert [line for line in result.out.splitlines() if re.fullmatch(r"\[[a-z ]+\]", line)] == [
        *("[verdict]", "[systems]", "[test]", "[test]"),
        *("[changed queries]", "[changed labels]") * 2,
        "[notes]",
    ]


def rows_of(report: Report) -> list[dict]:
    names = ("id", "label", "recall@1")
    return [dict(zip(names, row, strict=True)) for row in zip(*(report.queries[name] for name in names), strict=True)]


def test_the_forms_of_the_command(runs, tmp_path):
    two = (runs / "hog", runs / "lite0")
    read = compare({path.name: load_report(path) for path in two})
    forms = {"text": read.text(), "markdown": read.markdown(), "latex": read.latex(), "csv": read.csv().rstrip("\n")}
    forms["json"] = read.to_json()
    for form, expected in forms.items():
        assert recallatk("compare", *two, "--format", form).out == expected + "\n"
    assert recallatk("compare", *two, "--json").out == forms["json"] + "\n"
    for suffix, form in ((".md", "markdown"), (".tex", "latex"), (".csv", "csv"), (".json", "json"), (".log", "text")):
        file = tmp_path / f"result{suffix}"
        result = recallatk("compare", *two, "-o", file)
        assert (result.code, result.out, result.err) == (0, "", "")
        assert file.read_text("utf-8") == forms[form] + "\n"
    assert "there is a file already" in recallatk("compare", *two, "-o", file).err
    assert recallatk("compare", *two, "-o", file, "--overwrite", "--format", "csv").code == 0
    assert file.read_text("utf-8") == forms["csv"] + "\n"


@pytest.mark.parametrize("flags", [["-k", "5"], ["--metric", "recall@5"], ["--ks=5"]])
def test_what_is_tested_may_stand_before_the_runs(runs, flags):
    two = (runs / "hog", runs / "lite0")
    before, after = recallatk("compare", *flags, *two), recallatk("compare", *two, *flags)
    assert before == after
    assert "recall@5 +0.2522" in before.out.splitlines()[1]


@pytest.mark.parametrize("method", ["wilson", "none"])
def test_what_is_not_given_of_the_intervals_is_as_in_the_first_run(tmp_path, method):
    labels = [f"label {row}" for row in range(8)]
    query = SampleSet(labels, ids=list("abcdefgh"), groups={"place": list("wwxxyyzz")})
    gallery = SampleSet([*labels, "z"], ids=list("ABCDEFGHZ"))
    for name, way, rule in (("a", 2.0, IntervalRule(method, "place", 0.8)), ("b", 0.5, IntervalRule())):
        scores = np.hstack([np.eye(8), np.full((8, 1), way)])
        scores[0, -1] = 0.5
        save_run(evaluate_scores(scores, query, gallery, protocol=FEW, intervals=rule), tmp_path / name)
    plain, level, label = (
        recallatk("compare", tmp_path / "a", tmp_path / "b", *flags).out
        for flags in ([], ["--confidence", "0.9"], ["--cluster", "label"])
    )
    assert "(80 %, cluster-robust t over 4 values of place" in plain
    assert "(90 %, cluster-robust t over 4 values of place" in level
    assert "sign flips of queries" in label
    assert "80 % interval" in label
    # Of one share there may be such an interval, of a difference not.
    with pytest.raises(ChoiceError, match="not for a difference"):
        compare({"a": embedded(1), "b": embedded(2)}, intervals=IntervalRule("wilson"))


def test_runs_have_telling_names(runs, tmp_path):
    for place in ("x/run", "y/run"):
        save_run(load_report(runs / "hog"), tmp_path / place)
    result = recallatk("compare", tmp_path / "x" / "run", tmp_path / "y" / "run" / "record.json")
    assert result.out.splitlines()[1].startswith("y/run equals x/run on every query")
    result = recallatk("compare", runs / "hog", runs / "hog")
    assert result.out.splitlines()[1].startswith("hog (2) equals hog on every query")
    result = recallatk("compare", runs / "hog", runs / "lite0", "--name", "old", "--name", "new")
    assert result.out.splitlines()[1].startswith("new is better than old")


@pytest.mark.parametrize(
    ("code", "argv", "words"),
    [
        (2, ["hog"], "name at least two runs"),
        (2, [], "name at least two runs"),
        (3, ["hog", "nowhere"], "nowhere"),
        (2, ["hog", "lite0", "-k", "1", "5"], "name one thing to test"),
        (2, ["hog", "lite0", "-k", "1", "-m", "mrr"], "name one thing to test"),
        (2, ["hog", "lite0", "-k", "0"], "needs a cutoff k of at least 1"),
        (2, ["hog", "lite0", "-k", "3"], "hog has no recall@3; metrics that all runs have: recall@1"),
        (2, ["hog", "lite0", "-m", "precision"], "needs a cutoff"),
        (2, ["hog", "lite0", "--ci", "wilson"], "wilson"),
        (2, ["hog", "lite0", "--cluster", "place"], "is no column"),
        (2, ["hog", "lite0", "--name", "a"], "1 of 2 runs"),
        (2, ["hog", "lite0", "--name", "a", "--name", "a"], "a name of its own"),
        (2, ["hog", "lite0", "--resamples", "0"], "at least 1"),
        (2, ["hog", "lite0", "--seed", "-1"], "from 0 on"),
        (2, ["hog", "lite0", "--overwrite"], "needs the file"),
        (2, ["hog", "lite0", "--json", "--format", "csv"], "choose one"),
        (3, ["hog", "lite0", "-o", "nowhere/file.md"], "there is no folder"),
        (3, ["hog", "lite0", "-o", "hog"], "this is a folder"),
    ],
)
def test_an_error_is_one_line(runs, monkeypatch, code, argv, words):
    monkeypatch.chdir(runs)
    result = recallatk("compare", *argv)
    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert words in result.err


def test_a_record_says_whether_there_were_ids(tmp_path):
    for name, report in (("with", embedded(1)), ("without", embedded(1, ids=False))):
        save_run(report, tmp_path / name)
        assert load_report(tmp_path / name).ids_given == (name == "with")
    result = recallatk("compare", tmp_path / "without", tmp_path / "without")
    assert result.code == 3
    assert "have no ids" in result.err
