"""Every number of a report against the loop-only oracle, over the table METRICS and the backends that work here."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest

import oracle
from backends_here import HERE
from recallatk.evaluation import NothingToEvaluateError, evaluate_embeddings, evaluate_scores
from recallatk.metrics import METRICS
from recallatk.ranking import Depth
from recallatk.report import Provenance
from recallatk.types import Average, EmbeddingSet, EvalProtocol, ExcludeSelf, NoPositive, RecallatkError, Ties
from worlds import World, draw_world

KS = (1, 2, 3, 5, 20)
IGNORE_SAME = ("none", "camera+label", "sequence")
SEEDS = range(6)


def cutoffs(metric):
    return {"always": KS, "maybe": (None, *KS), "never": (None,)}[METRICS[metric].cutoff]


def text(metric, k):
    return metric if k is None else f"{metric}@{k}"


def assert_value(found, exact, *, metric):
    """Within two roundings; a hit is rounded once, so it must be the very number."""
    expected = float(exact)
    assert type(found) is float
    if metric in ("recall", "cmc"):
        assert found == expected, metric
    else:
        assert found == pytest.approx(expected, rel=5e-16, abs=0), metric


def evaluate(world: World, protocol: EvalProtocol, **choices):
    return evaluate_embeddings(world.query, world.gallery, protocol=protocol, **choices)


def expect_nothing(world, protocol):
    return not any(positives for positives, _ in world.judge(protocol))


def assert_error_names_the_reasons(world, protocol):
    with pytest.raises(RecallatkError, match="positive") as error:
        evaluate(world, protocol)
    assert len(str(error.value).splitlines()) == 1


def test_every_metric_has_an_oracle():
    assert set(METRICS) == set(oracle.METRICS)


@pytest.mark.parametrize("several", [False, True], ids=["one-label", "several-labels"])
@pytest.mark.parametrize("alone", [False, True], ids=["two-sets", "leave-one-out"])
@pytest.mark.parametrize("ignore_same", IGNORE_SAME)
@pytest.mark.parametrize("exclude_self", get_args(ExcludeSelf))
@pytest.mark.parametrize("ties", get_args(Ties))
@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("depth", get_args(Depth))
def test_every_query_and_every_mean_equal_the_oracle(depth, backend, ties, exclude_self, ignore_same, alone, several):
    metrics = [metric for metric, row in METRICS.items() if row.depth == depth]
    names = {text(metric, k): (metric, k) for metric in metrics for k in cutoffs(metric)}
    for seed in SEEDS:
        world = draw_world(seed, alone=alone, several=several)
        choices = (get_args(NoPositive)[:2][seed % 2], get_args(Average)[seed // 2 % 2])
        protocol = EvalProtocol(KS, exclude_self, ignore_same, no_positive=choices[0], ties=ties, average=choices[1])
        if expect_nothing(world, protocol):
            assert_error_names_the_reasons(world, protocol)
            continue
        report = evaluate(world, protocol, metrics=list(names), backend=backend)
        for name, (metric, k) in names.items():
            exact = world.values(metric, k, protocol)
            for found, expected in zip(report.queries[name].tolist(), exact, strict=True):
                if expected is None:
                    assert math.isnan(found), name
                else:
                    assert_value(found, expected, metric=metric)
            value, labels = report.values_by_metric[name], world.query.labels
            assert value.n == sum(v is not None for v in exact)
            for found, rule in ((value.value, ties), (value.low, "pessimistic"), (value.high, "optimistic")):
                expected = oracle.mean(world.values(metric, k, protocol, rule), labels, protocol.average)
                assert found == pytest.approx(float(expected), rel=1e-15, abs=0), (name, rule)
            assert report[name] == value.value


@pytest.mark.parametrize("average", get_args(Average))
@pytest.mark.parametrize("no_positive", get_args(NoPositive)[:2])
@pytest.mark.parametrize("ties", get_args(Ties))
@pytest.mark.parametrize("alone", [False, True], ids=["two-sets", "leave-one-out"])
@pytest.mark.parametrize("several", [False, True], ids=["one-label", "several-labels"])
def test_hits_chance_and_counts_equal_the_oracle(several, alone, ties, no_positive, average):
    for seed in range(30):
        world = draw_world(seed, alone=alone, several=several)
        ignore_same = IGNORE_SAME[seed % 3]
        protocol = EvalProtocol(KS, "id", ignore_same, no_positive=no_positive, ties=ties, average=average)
        if expect_nothing(world, protocol):
            continue
        report = evaluate(world, protocol)
        judged, labels, n_gallery = world.judge(protocol), world.query.labels, len(world.other)
        without = [not positives for positives, _ in judged]
        kept = [q for q in range(len(judged)) if no_positive == "miss" or not without[q]]
        for k in KS:
            value = report.values_by_metric[f"recall@{k}"]
            totals = {
                rule: sum((v for v in world.values("recall", k, protocol, rule) if v is not None), Fraction(0))
                for rule in get_args(Ties)
            }
            assert value.hits == pytest.approx(float(totals[ties]), rel=1e-15, abs=0)
            assert (value.hits_min, value.hits_max) == (totals["pessimistic"], totals["optimistic"])
            assert (type(value.hits_min), type(value.hits_max)) == (int, int)
            by_lot = [
                oracle.chance(n_gallery - len(ignored), len(positives), k) if q in kept else None
                for q, (positives, ignored) in enumerate(judged)
            ]
            assert value.chance == pytest.approx(float(oracle.mean(by_lot, labels, average)), rel=1e-15, abs=0)
        assert (report.num_queries, report.num_gallery) == (len(world.query), n_gallery)
        assert (report.num_evaluated, report.num_excluded) == (len(kept), len(judged) - len(kept))
        assert sum(group.count for group in report.without_positive) == sum(without)
        everywhere = set().union(*(oracle.label_set(label) for label in (*labels, *world.other.labels)))
        assert report.num_labels == len(everywhere)
        assert report.tied_queries == sum(is_tied(world, protocol, q) for q in kept)
        assert report.near_tied_queries == sum(is_near_tied(world, judged, q) for q in kept)


def is_tied(world, protocol, q):
    low, high = ([world.values("recall", k, protocol, rule)[q] for k in KS] for rule in ("pessimistic", "optimistic"))
    return low != high


def is_near_tied(world, judged, q):
    positives, ignored = judged[q]
    if not positives:
        return False
    sims = world.similarities[q]
    _, ahead, tied, _ = oracle.levels(sims, positives, ignored)[0]
    above, below = oracle.near_negatives(sims, positives, ignored)
    return any((ahead - above < k) != (ahead + tied + below < k) for k in KS)


@pytest.mark.parametrize("alone", [False, True], ids=["two-sets", "leave-one-out"])
def test_the_columns_of_the_queries_are_the_counts_at_the_best_positive(alone):
    protocol = EvalProtocol(KS, ignore_same="camera+label")
    looked_at = 0
    for seed in range(30):
        world = draw_world(seed, alone=alone, several=bool(seed % 2))
        if expect_nothing(world, protocol):
            continue
        rows = evaluate(world, protocol).queries
        assert rows["id"] == world.query.row_ids
        assert rows["label"] == world.query.labels
        assert rows["group.camera"] == world.query.groups["camera"]
        for q, (positives, ignored) in enumerate(world.judge(protocol)):
            sims = world.similarities[q]
            assert rows["has_positive"][q] == bool(positives)
            assert rows["n_positives"][q] == len(positives)
            assert rows["n_candidates"][q] == len(world.other) - len(ignored)
            best = max((sims[g] for g in positives), default=None)
            level = oracle.levels(sims, positives, ignored)[0] if positives else (None, 0, 0, 0)
            near = oracle.near_negatives(sims, positives, ignored) if positives else (0, 0)
            columns = ("negatives_ahead", "negatives_tied", "positives_tied", "near_above", "near_below")
            assert tuple(int(rows[column][q]) for column in columns) == (*level[1:], *near)
            first = next((g for g in range(len(sims)) if g in positives and sims[g] == best), None)
            assert rows["best_positive"][q] == (None if first is None else world.other.row_ids[first])
            assert math.isnan(rows["similarity"][q]) if best is None else rows["similarity"][q] == best / 2**52
            looked_at += 1
    assert looked_at > 50


def test_the_worlds_hold_everything_that_goes_wrong():
    seen = {
        "one query": 0,
        "one item": 0,
        "all negative": 0,
        "tied": 0,
        "near": 0,
        "without": 0,
        "ignored": 0,
        "short": 0,
    }
    for seed in range(30):
        for alone in (False, True):
            world, protocol = draw_world(seed, alone=alone, several=False), EvalProtocol(KS, ignore_same="sequence")
            judged = world.judge(protocol)
            seen["one query"] += len(world.query) == 1
            seen["one item"] += len(world.other) == 1
            seen["all negative"] += all(s < 0 for sims in world.similarities for s in sims)
            for q, (positives, ignored) in enumerate(judged):
                sims = world.similarities[q]
                seen["without"] += not positives
                seen["short"] += 0 < len(world.other) - len(ignored) < 3
                if positives:
                    best = max(sims[g] for g in positives)
                    seen["tied"] += oracle.levels(sims, positives, ignored)[0][2] > 0
                    seen["near"] += any(oracle.near_negatives(sims, positives, ignored))
                    seen["ignored"] += any(sims[g] == best for g in ignored)
    assert min(seen.values()) >= 3, seen


# What must hold for any input


@pytest.mark.parametrize("ties", get_args(Ties))
def test_hit_at_one_is_precision_at_one_and_recall_rises_to_one(ties):
    for seed in range(60):
        world = draw_world(seed, alone=bool(seed % 2), several=bool(seed // 2 % 2))
        size = len(world.other)
        protocol = EvalProtocol(tuple(range(1, size + 1)), ties=ties)
        if expect_nothing(world, protocol):
            continue
        report = evaluate(world, protocol, metrics=["precision@1", f"set_recall@{size}", "mrr"])
        assert report["recall@1"] == report["precision@1"]
        np.testing.assert_array_equal(report.queries["recall@1"], report.queries["precision@1"])
        curve = list(report.recall.values())
        assert curve == sorted(curve)
        assert report[f"recall@{size}"] == report[f"set_recall@{size}"] == 1.0
        assert report["recall@1"] <= report["mrr"]


@pytest.mark.parametrize("ties", get_args(Ties))
def test_negative_similarities_count(ties):
    query, gallery = EmbeddingSet([[1.0, 0.1]], ["a"]), EmbeddingSet([[-1.0, 0.2], [-0.5, -1]], ["b", "a"])
    report = evaluate_embeddings(query, gallery, protocol=EvalProtocol(ks=(1, 2), ties=ties))
    assert dict(report) == {"recall@1": 1.0, "recall@2": 1.0}
    assert report.queries["similarity"][0] < 0


@pytest.mark.parametrize("average", get_args(Average))
def test_everything_at_one_point_scores_chance(average):
    labels = ["a"] * 2 + ["b"] * 3 + ["c"] * 5
    protocol = EvalProtocol(ks=(1, 2, 3, 8), average=average)
    report = evaluate_embeddings(EmbeddingSet(np.full((10, 5), -0.3), labels), protocol=protocol)
    for k in protocol.ks:
        value = report.values_by_metric[f"recall@{k}"]
        assert value.value == value.chance
        exact = [oracle.chance(9, labels.count(label) - 1, k) for label in labels]
        assert value.chance == pytest.approx(float(oracle.mean(exact, labels, average)), rel=1e-15)


def test_gallery_and_query_being_one_object_is_leave_one_out():
    rows = EmbeddingSet(np.eye(3)[[0, 0, 1, 1]], list("abab"))
    assert evaluate_embeddings(rows, rows)["recall@1"] == evaluate_embeddings(rows)["recall@1"] == 0.0


def test_only_recall_carries_hits():
    report = evaluate_embeddings(EmbeddingSet(np.eye(2)[[0, 0, 1]], list("aab")), metrics=["mrr"])
    value = report.values_by_metric["recall@1"]
    assert (value.hits, value.hits_min, value.hits_max) == (2.0, 2, 2)
    assert report.values_by_metric["mrr"].hits is None


@pytest.mark.parametrize("k", [10**6, 2**62])
@pytest.mark.parametrize("metric", [name for name, row in METRICS.items() if row.cutoff != "never"])
def test_any_k_beyond_the_gallery_means_all_of_it(metric, k):
    report = evaluate_embeddings(EmbeddingSet(np.eye(2)[[0, 0, 1]], list("aab")), metrics=[f"{metric}@{k}"])
    assert report[f"{metric}@{k}"] == (1 / k if metric == "precision" else 1.0)


def test_an_empty_set_is_an_error_that_says_so():
    some, none = EmbeddingSet(np.eye(2), list("ab")), EmbeddingSet(np.empty((0, 2)), [])
    for sets, message in (
        ((none, some), "there are no queries"),
        ((some, none), "the gallery is empty"),
        ((none, None), "there are no queries"),
    ):
        with pytest.raises(NothingToEvaluateError, match=message):
            evaluate_embeddings(*sets)
        scores = np.zeros([len(side) for side in sets if side is not None])
        with pytest.raises(NothingToEvaluateError, match=message):
            evaluate_scores(scores, *sets)


@pytest.mark.parametrize("wrong", [np.eye(2), [[1.0]], None, "q.npz"])
def test_what_is_no_set_of_embeddings_is_named_with_what_to_do(wrong):
    some = EmbeddingSet(np.eye(2), list("ab"))
    with pytest.raises(RecallatkError, match=rf"query: {type(wrong).__name__} is no EmbeddingSet; make one"):
        evaluate_embeddings(wrong, some)
    with pytest.raises(RecallatkError, match=rf"query: {type(wrong).__name__} is no SampleSet; make one"):
        evaluate_scores(np.eye(2), wrong, some)
    if wrong is not None:
        with pytest.raises(RecallatkError, match=rf"gallery: {type(wrong).__name__} is no EmbeddingSet"):
            evaluate_embeddings(some, wrong)


def test_what_was_noticed_of_the_data_is_said_where_nothing_can_be_evaluated():
    rows = EmbeddingSet(np.eye(2), list("ab"))
    provenance = Provenance(warnings=("two\nfiles are missing",))
    with pytest.raises(
        NothingToEvaluateError, match=r"none of the 2 queries has a positive.*; two\\nfiles are missing$"
    ):
        evaluate_embeddings(rows, provenance=provenance)


def test_a_mean_over_labels_needs_one():
    rows = EmbeddingSet(np.eye(2), None, positions=[[0, 0], [0, 1]])
    with pytest.raises(RecallatkError, match="average=macro is a mean over labels"):
        evaluate_embeddings(rows, protocol=EvalProtocol(relevance="radius", average="macro"))


# The forty lines that people write today


def recipe(query, gallery, query_labels, gallery_labels, ks, query_ids=None, gallery_ids=None):
    """Normalise, multiply, mask the query itself, take the top K: the recipe as it is passed around."""
    q = np.asarray(query, dtype=np.float32)
    g = np.asarray(gallery, dtype=np.float32)
    q = q / np.linalg.norm(q, axis=1, keepdims=True)
    g = g / np.linalg.norm(g, axis=1, keepdims=True)
    sims = q @ g.T
    if query_ids is not None:
        sims[np.asarray(query_ids)[:, None] == np.asarray(gallery_ids)[None, :]] = -np.inf
    query_labels, gallery_labels = np.asarray(query_labels), np.asarray(gallery_labels)
    keep = np.isin(query_labels, gallery_labels)
    found = {}
    for k in ks:
        k = min(k, sims.shape[1])
        top = np.argpartition(-sims, k - 1, axis=1)[:, :k]
        hits = (gallery_labels[top] == query_labels[:, None]).any(axis=1)
        found[k] = int(hits[keep].sum()), int(keep.sum())
    return found


@pytest.mark.parametrize("seed", range(8))
def test_the_recipe_counts_the_same_hits_where_nothing_is_tied(seed):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(30, 16))
    labels = rng.integers(0, 30, 220)
    rows = (centres[labels] + 1.2 * rng.normal(size=(220, 16))).astype(np.float32)
    query, gallery, ks = rows[:90], rows[90:], (1, 2, 5, 10)
    hits = recipe(query, gallery, labels[:90], labels[90:], ks)
    report = evaluate_embeddings(
        EmbeddingSet(query, labels[:90]), EmbeddingSet(gallery, labels[90:]), protocol=EvalProtocol(ks=ks)
    )
    assert report.near_tied_queries == 0
    assert {k: (report.values_by_metric[f"recall@{k}"].hits, report.num_evaluated) for k in ks} == hits
    assert 0 < hits[1][0] < hits[10][0] < hits[10][1]

    # Leave-one-out, where no class has one image only and K stays small: the mask works there.
    common = np.isin(labels, np.flatnonzero(np.bincount(labels) > 1))
    rows, labels = rows[common], labels[common]
    hits = recipe(rows, rows, labels, labels, ks, range(len(rows)), range(len(rows)))
    report = evaluate_embeddings(EmbeddingSet(rows, labels), protocol=EvalProtocol(ks=ks))
    assert {k: (report.values_by_metric[f"recall@{k}"].hits, report.num_evaluated) for k in ks} == hits


def test_where_the_recipe_finds_the_query_itself_we_do_not():
    # One image of "b": the recipe keeps it, and at K = 3 the masked query is its own hit.
    rows, labels, ids = np.array([[1, 0], [1, 0.2], [0, 1]]), ["a", "a", "b"], range(3)
    assert recipe(rows, rows, labels, labels, (3,), ids, ids) == {3: (3, 3)}
    report = evaluate_embeddings(EmbeddingSet(rows, labels), protocol=EvalProtocol(ks=(3,)))
    assert (report.values_by_metric["recall@3"].hits, report.num_evaluated, report.num_excluded) == (2.0, 2, 1)
    # Without ids an overlapping gallery gives back the query at rank 1; a query that is removed stays so at any K.
    assert recipe(rows, rows, labels, labels, (1,)) == {1: (3, 3)}
    named = [EmbeddingSet(rows, labels, ids=["x", "y", "z"]) for _ in range(2)]
    report = evaluate_embeddings(*named, protocol=EvalProtocol(ks=(1, 3)))
    assert (dict(report), report.num_evaluated) == ({"recall@1": 1.0, "recall@3": 1.0}, 2)


def test_where_the_recipe_breaks_ties_by_row_order_we_take_the_mean():
    query, gallery = [[1.0, 0]], [[2.0, 0]] * 4
    first, last = (recipe(query, gallery, ["a"], labels, (1,))[1][0] for labels in (list("abbb"), list("bbba")))
    assert {first, last} == {0, 1}
    for labels in (list("abbb"), list("bbba")):
        report = evaluate_embeddings(EmbeddingSet(query, ["a"]), EmbeddingSet(gallery, labels))
        value = report.values_by_metric["recall@1"]
        assert (value.value, value.low, value.high, value.chance) == (0.25, 0.0, 1.0, 0.25)


def test_where_the_recipe_scores_nothing_we_say_why():
    assert recipe([[1.0, 0]], [[1.0, 0]], ["a"], ["b"], (1,)) == {1: (0, 0)}
    with pytest.raises(NothingToEvaluateError, match="no gallery item shares its label: 1"):
        evaluate_embeddings(EmbeddingSet([[1.0, 0]], ["a"]), EmbeddingSet([[1.0, 0]], ["b"]))


def test_no_positive_error_names_the_labels():
    rows = EmbeddingSet(np.eye(4), list("aaBC"), ids=["1.png", "2.png", "3.png", "4.png"])
    with pytest.raises(RecallatkError, match=r"2 queries have no positive .*'3\.png'.*labels: B, C$"):
        evaluate_embeddings(rows, protocol=EvalProtocol(no_positive="error"))


def test_sets_with_several_labels_say_so_in_the_protocol():
    rows = EmbeddingSet(np.eye(2)[[0, 0, 1]], [["a", "b"], ["b"], []])
    report = evaluate_embeddings(rows)
    assert report.protocol.relevance == "labels"
    assert [(group.reason, group.count) for group in report.without_positive] == [("it has no label", 1)]
    assert dataclasses.replace(report.protocol, relevance="label") == EvalProtocol()


@pytest.mark.parametrize("names", [{}, {"name": "a.npy"}], ids=["no-name", "one-name"])
def test_messages_tell_query_and_gallery_apart(names):
    query, gallery = EmbeddingSet(np.eye(2), list("ab"), **names), EmbeddingSet(np.eye(3), list("abc"), **names)
    named = rf" \({names['name']}\)" if names else ""
    expected = rf"the query{named} embeddings have 2 columns and the gallery{named} embeddings 3"
    with pytest.raises(RecallatkError, match=expected):
        evaluate_embeddings(query, gallery)
    with pytest.raises(RecallatkError, match=r"query.* integers.* gallery.* text"):
        evaluate_embeddings(EmbeddingSet(np.eye(3), [1, 2, 3], **names), gallery)


def test_recall_at_another_k_is_one_more_cutoff():
    rows = EmbeddingSet(np.eye(4)[[0, 0, 1, 1]], labels=["a", "a", "b", "b"])
    report = evaluate_embeddings(rows, protocol=EvalProtocol(ks=(1,)), metrics="recall@3")
    assert report.protocol.ks == (1, 3)
    assert report.signature.parts["k"] == "1,3"
    assert set(report.recall) == {1, 3}


@pytest.mark.parametrize("columns", [{"labels": "aabb"}, {"labels": ["a"] * 4, "groups": {"camera": "1122"}}])
def test_a_text_is_no_column(columns):
    with pytest.raises(RecallatkError, match="one text"):
        EmbeddingSet(np.eye(4), **columns)


def test_a_protocol_is_no_dict_and_a_missing_metric_is_named():
    rows = EmbeddingSet(np.eye(2)[[0, 0]], labels=["a", "a"])
    with pytest.raises(RecallatkError, match=r"protocol is dict; build one, such as EvalProtocol"):
        evaluate_embeddings(rows, protocol={"ks": (1,)})
    with pytest.raises(KeyError, match=r"recall@3.*it has recall@1"):
        evaluate_embeddings(rows)["recall@3"]
