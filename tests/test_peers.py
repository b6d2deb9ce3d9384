"""The same numbers as the tools that people compare with: trec_eval here, torch libraries in `make test-integrations`.

Where nothing is tied. Under ties each of them takes the order in which the rows happen to lie, and we take the mean.
"""

from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval

from recallatk.evaluation import evaluate_embeddings
from recallatk.metrics import METRICS
from recallatk.types import EmbeddingSet, EvalProtocol

KS = (1, 2, 5, 10, 100)
SEEDS = range(4)


def draw(seed: int, n_query: int, n_gallery: int, n_labels: int = 30, d: int = 8):
    """Clustered rows, so that hits and misses are mixed; returns (embeddings, labels) of both sides.

    The first label on each side is one of its kind, so there is always a query without a positive.
    """
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_labels, d))
    labels = rng.integers(0, n_labels, n_query + n_gallery)
    rows = (centres[labels] + 1.1 * rng.normal(size=(len(labels), d))).astype(np.float32)
    labels[[0, n_query]] = 98, 99
    return (rows[:n_query], labels[:n_query]), (rows[n_query:], labels[n_query:])


def cosines(query, gallery) -> np.ndarray:
    """Plain float64 cosines."""
    a, b = (rows.astype(np.float64) for rows in (query, gallery))
    return (a / np.linalg.norm(a, axis=1, keepdims=True)) @ (b / np.linalg.norm(b, axis=1, keepdims=True)).T


def places(sims) -> np.ndarray:
    """The place of each item from the end: scores in the same order, exact in the float32 that the peers compute in."""
    assert np.diff(np.sort(sims, axis=1), axis=1).min() > 3e-8, "tied: choose other seeds"
    assert sims.min() < 0 < sims.max()
    return sims.argsort(axis=1).argsort(axis=1).astype(np.float32)


# trec_eval

TREC_CUT = {
    "success": ("recall", "cmc"),
    "recall": ("set_recall",),
    "P": ("precision",),
    "map_cut": ("map",),
    "ndcg_cut": ("ndcg",),
}
"""trec_eval's name of a measure at a cutoff -> ours."""

TREC_WHOLE = {"recip_rank": "mrr", "map": "map", "Rprec": "r_precision", "ndcg": "ndcg"}
"""trec_eval's name of a measure over the whole ranking -> ours."""

NO_TREC_TWIN = {"capped_recall", "map_capped", "map_trapezoid", "map_r", "minp", "mp"}
"""Equal by value to other tools, in test_conventions.py."""


def test_every_metric_has_a_trec_twin_or_says_that_it_has_none():
    twins = {name for names in TREC_CUT.values() for name in names} | set(TREC_WHOLE.values())
    assert set(METRICS) == twins | NO_TREC_TWIN
    assert not twins & NO_TREC_TWIN


def trec_scores(sims, positive, left_out):
    """What trec_eval says of each query that has a positive."""
    scores = places(sims)
    qrels = {f"q{q}": {f"g{g}": 1 for g in np.flatnonzero(row)} for q, row in enumerate(positive) if row.any()}
    run = {f"q{q}": {f"g{g}": float(scores[q, g]) for g in np.flatnonzero(~row)} for q, row in enumerate(left_out)}
    cutoffs = ",".join(map(str, KS))
    measures = {f"{name}.{cutoffs}" for name in TREC_CUT} | set(TREC_WHOLE)
    return pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)


@pytest.mark.parametrize("alone", [False, True], ids=["two-sets", "leave-one-out"])
@pytest.mark.parametrize("seed", SEEDS)
def test_trec_eval_gives_the_same_value_to_every_query(seed, alone):
    (query, q_labels), (gallery, g_labels) = draw(seed, 30, 60)
    if alone:
        query, q_labels = gallery, g_labels
    itself = np.eye(len(query), len(gallery), dtype=bool) & alone
    theirs = trec_scores(cosines(query, gallery), (q_labels[:, None] == g_labels) & ~itself, itself)

    names = [f"{name}@{k}" for names in TREC_CUT.values() for name in names for k in KS]
    report = evaluate_embeddings(
        EmbeddingSet(query, q_labels),
        None if alone else EmbeddingSet(gallery, g_labels),
        protocol=EvalProtocol(ks=KS),
        metrics=[*names, *TREC_WHOLE.values()],
    )
    assert report.tied_queries == 0
    assert report.num_evaluated == len(theirs) < len(query)
    compared = 0
    for query_name, scores in theirs.items():
        for measure, score in scores.items():
            name, _, k = measure.rpartition("_")
            twins = [TREC_WHOLE[measure]] if measure in TREC_WHOLE else [f"{twin}@{k}" for twin in TREC_CUT[name]]
            for twin in twins:
                ours = report.queries[twin][int(query_name[1:])]
                assert score == pytest.approx(ours, abs=1e-12), (query_name, measure)
                compared += 1
    assert compared == len(theirs) * (6 * len(KS) + 4)


# torchmetrics, pytorch-metric-learning

TORCH = "make test-integrations installs it"


@pytest.mark.integration
@pytest.mark.parametrize("k", KS[:-1])
@pytest.mark.parametrize("seed", SEEDS)
def test_torchmetrics_counts_the_same_hits(seed, k):
    torch = pytest.importorskip("torch", reason=TORCH)
    retrieval = pytest.importorskip("torchmetrics.retrieval", reason=TORCH)
    (query, q_labels), (gallery, g_labels) = draw(seed, 30, 60)
    # "skip": a query without a positive is left out there as well.
    metric = retrieval.RetrievalHitRate(top_k=k, empty_target_action="skip")
    theirs = metric(
        torch.from_numpy(places(cosines(query, gallery)) / 60).flatten(),
        torch.from_numpy(q_labels[:, None] == g_labels).flatten(),
        indexes=torch.arange(30).repeat_interleave(60),
    )
    sides = EmbeddingSet(query, q_labels), EmbeddingSet(gallery, g_labels)
    report = evaluate_embeddings(*sides, protocol=EvalProtocol(ks=(k,)))
    assert report.num_excluded > 0
    assert float(theirs) == pytest.approx(report[f"recall@{k}"], abs=1e-6)


@pytest.mark.integration
@pytest.mark.parametrize("alone", [False, True], ids=["two-sets", "leave-one-out"])
@pytest.mark.parametrize("seed", SEEDS)
def test_pytorch_metric_learning_finds_the_same_nearest_neighbours(seed, alone):
    torch = pytest.importorskip("torch", reason=TORCH)
    pytest.importorskip("pytorch_metric_learning", reason=TORCH)
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    query, gallery = draw(seed, 60, 120)
    sides = [gallery] if alone else [query, gallery]
    calculator = AccuracyCalculator(include=("precision_at_1",), k=1, knn_func=CustomKNN(CosineSimilarity()))
    theirs = calculator.get_accuracy(*(torch.from_numpy(column) for side in sides for column in side))
    report = evaluate_embeddings(*(EmbeddingSet(*side) for side in sides))
    assert report.num_excluded > 0
    assert 0 < report["recall@1"] < 1
    assert theirs["precision_at_1"] == pytest.approx(report["recall@1"], abs=1e-6)
