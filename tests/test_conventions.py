"""The conventions of the field, written down here once more from their definitions, equal recallatk query by query.

Each function below is our own text of a published rule: what is removed, what counts, which queries are averaged.
Nothing is tied in these sets, because the tools leave ties to chance. The tests marked `integration` run the tools.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import pytrec_eval

from recallatk.evaluation import evaluate_embeddings, evaluate_scores
from recallatk.types import EmbeddingSet, EvalProtocol, Qrels, RankedLists, RecallatkError, SampleSet


def cosine_order(query, gallery):
    """For each query the gallery rows, nearest first, in float64."""
    a, b = (rows.astype(np.float64) / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (query, gallery))
    return np.argsort(-(a @ b.T), axis=1, kind="stable")


def clustered(rng, labels, d=12, noise=1.6):
    """Rows around a direction of their label, so that the values are neither 0 nor 1."""
    directions = {label: rng.normal(size=d) for label in sorted(set(labels))}
    return np.stack([directions[label] + noise * rng.normal(size=d) for label in labels]).astype(np.float32)


# Person re-identification: Market-1501 as torchreid and fast-reid evaluate it


def reid(order, query_ids, query_cameras, gallery_ids, gallery_cameras, k_max):
    """CMC, AP and INP of every query with a match.

    The gallery has lost identity -1 when it was read. For a query, items of its identity seen by its camera are taken
    out of the ranking; identity 0 stays as a wrong answer. A query without a match is skipped.
    """
    results = {}
    for q, row in enumerate(order):
        kept = [
            g
            for g in row
            if gallery_ids[g] != -1 and not (gallery_ids[g] == query_ids[q] and gallery_cameras[g] == query_cameras[q])
        ]
        match = np.array([gallery_ids[g] == query_ids[q] for g in kept], dtype=int)
        if not match.any():
            continue
        so_far = match.cumsum()
        cmc = np.minimum(so_far[:k_max], 1)
        precision = so_far / np.arange(1, len(match) + 1)
        last = int(np.flatnonzero(match)[-1])
        results[q] = (cmc, float((precision * match).sum() / match.sum()), float(so_far[last] / (last + 1)))
    return results


def market(seed):
    rng = np.random.default_rng(seed)
    query_ids = rng.integers(1, 9, size=24)
    gallery_ids = rng.choice([-1, 0, *range(1, 8)], size=150, p=[0.15, 0.15, *[0.1] * 7])  # nobody is number 8
    cameras = rng.integers(1, 4, size=24), rng.integers(1, 4, size=150)
    gallery_ids[(gallery_ids == 7) & (cameras[1] != 1)] = 0  # number 7 is seen by camera 1 only
    emb = clustered(rng, [*query_ids.tolist(), *gallery_ids.tolist()])
    return emb[:24], emb[24:], query_ids, gallery_ids, cameras


def with_cameras(rows, ids, cameras):
    return EmbeddingSet(rows, ids, groups={"camera": [str(camera) for camera in cameras]})


MARKET = EvalProtocol(
    ks=(1, 5, 10),
    exclude_self="none",
    ignore_same="camera+label",
    junk_labels=("-1",),
    distractor_labels=("0",),
)


@pytest.mark.parametrize("seed", range(4))
def test_market_1501_as_torchreid_and_fast_reid_evaluate_it(seed):
    query, gallery, query_ids, gallery_ids, cameras = market(seed)
    theirs = reid(cosine_order(query, gallery), query_ids, cameras[0], gallery_ids, cameras[1], 10)
    sets = with_cameras(query, query_ids, cameras[0]), with_cameras(gallery, gallery_ids, cameras[1])
    report = evaluate_embeddings(*sets, protocol=MARKET, metrics=["cmc@1", "cmc@5", "cmc@10", "map", "minp"])
    assert 0 < report.num_excluded == 24 - len(theirs)
    for q in range(24):
        if q not in theirs:
            assert math.isnan(report.queries["map"][q])
            continue
        cmc, ap, inp = theirs[q]
        for k in (1, 5, 10):
            assert report.queries[f"cmc@{k}"][q] == report.queries[f"recall@{k}"][q] == cmc[k - 1]
        assert report.queries["map"][q] == pytest.approx(ap, abs=1e-12)
        assert report.queries["minp"][q] == pytest.approx(inp, abs=1e-12)
    assert report["map"] == pytest.approx(np.mean([ap for _, ap, _ in theirs.values()]), abs=1e-12)
    assert report["minp"] == pytest.approx(np.mean([inp for _, _, inp in theirs.values()]), abs=1e-12)
    reasons = " ".join(group.reason for group in report.without_positive)
    assert "camera" in reasons
    assert "no gallery item shares its label" in reasons


def test_the_market_1501_baseline_takes_the_trapezoid_and_divides_by_all_queries():
    query, gallery, query_ids, gallery_ids, cameras = market(1)
    order = cosine_order(query, gallery)
    areas = []
    for q, row in enumerate(order):
        seen_again = (gallery_ids == query_ids[q]) & (cameras[1] == cameras[0][q])
        kept = [g for g in row if gallery_ids[g] != -1 and not seen_again[g]]
        good = [place for place, g in enumerate(kept) if gallery_ids[g] == query_ids[q]]  # the first place is 0
        area = 0.0
        for i, place in enumerate(good):
            old = i / place if place else 1.0
            area += (old + (i + 1) / (place + 1)) / 2 / len(good)
        areas.append(area)
    sets = with_cameras(query, query_ids, cameras[0]), with_cameras(gallery, gallery_ids, cameras[1])
    protocol = EvalProtocol(
        exclude_self="none",
        ignore_same="camera+label",
        junk_labels=("-1",),
        distractor_labels=("0",),
        no_positive="miss",
    )
    report = evaluate_embeddings(*sets, protocol=protocol, metrics=["map_trapezoid", "map"])
    assert report["map_trapezoid"] == pytest.approx(np.mean(areas), abs=1e-12)
    assert report["map_trapezoid"] != pytest.approx(report["map"], abs=1e-4)


def test_the_worked_market_ranking():
    # Query 0001 of camera 1; nearest first: 0001 camera 1, -1, 0000, 0002, 0001 camera 3. The first hit is rank 3.
    gallery = SampleSet(
        np.array([1, -1, 0, 2, 1]), groups={"camera": ["1", "3", "2", "2", "3"]}, ids=["a", "b", "c", "d", "e"]
    )
    query = SampleSet(np.array([1]), groups={"camera": ["1"]}, ids=["q"])
    scores = np.array([[5.0, 4, 3, 2, 1]])
    assert evaluate_scores(scores, query, gallery, protocol=MARKET, metrics=["mrr"])["mrr"] == 1 / 3
    without_cameras = EvalProtocol(junk_labels=("-1",), distractor_labels=("0",))
    assert evaluate_scores(scores, query, gallery, protocol=without_cameras, metrics=["mrr"])["mrr"] == 1.0
    with_junk = EvalProtocol(ignore_same="camera+label")
    assert evaluate_scores(scores, query, gallery, protocol=with_junk, metrics=["mrr"])["mrr"] == 1 / 4


# Landmarks: Revisited Oxford and Paris


def revisited(order, truth, level, ks):
    """AP and mP@k of every query with an image of this level.

    Ignored images leave the ranking and those behind move up. AP is the mean, over the images that count, of the
    precisions before and at their ranks (1 before the first rank); mP@k is the precision at k, or at the last image
    that counts if that comes first.
    """
    positive, ignored = {
        "easy": (["easy"], ["junk", "hard"]),
        "medium": (["easy", "hard"], ["junk"]),
        "hard": (["hard"], ["junk", "easy"]),
    }[level]
    results = {}
    for q, row in enumerate(order):
        good = {g for kind in positive for g in truth[q][kind]}
        gone = {g for kind in ignored for g in truth[q][kind]}
        if not good:
            continue
        left = [g for g in row if g not in gone]
        places = [place for place, g in enumerate(left) if g in good]
        area = sum(((i / p if p else 1.0) + (i + 1) / (p + 1)) / 2 for i, p in enumerate(places)) / len(good)
        at = []
        for k in ks:
            cut = min(places[-1] + 1, k)
            at.append(sum(p + 1 <= cut for p in places) / cut)
        results[q] = (area, at)
    return results


def landmarks(seed):
    """Queries with easy, hard and junk images; the last ones have no easy, or no hard ones."""
    rng = np.random.default_rng(seed)
    n, m = 12, 80
    truth = []
    for q in range(n):
        sizes = [rng.integers(0, 7), rng.integers(0, 7), rng.integers(0, 5)]
        if q == n - 1:
            sizes[0] = 0
        if q == n - 2:
            sizes[1] = 0
        rows = rng.permutation(m)[: sum(sizes)].tolist()
        easy, hard, junk = rows[: sizes[0]], rows[sizes[0] : sizes[0] + sizes[1]], rows[sizes[0] + sizes[1] :]
        truth.append({"easy": easy, "hard": hard, "junk": junk})
    scores = rng.normal(size=(n, m))
    for q in range(n):  # what is relevant or junk comes near the front
        for kind in truth[q].values():
            scores[q, kind] += 1.3
    names = {"q": [f"q{q}" for q in range(n)], "g": [f"g{g}" for g in range(m)]}
    pairs = [(names["q"][q], names["g"][g], kind) for q in range(n) for kind in truth[q] for g in truth[q][kind]]
    qrels = Qrels(
        tuple(q for q, _, _ in pairs),
        tuple(g for _, g, _ in pairs),
        np.ones(len(pairs), dtype=np.int64),
        tuple(kind for _, _, kind in pairs),
    )
    return scores, truth, names, qrels


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
@pytest.mark.parametrize("seed", range(4))
def test_the_revisited_protocols(level, seed):
    scores, truth, names, qrels = landmarks(seed)
    ks = (1, 5, 10)
    theirs = revisited(np.argsort(-scores, axis=1), truth, level, ks)
    report = evaluate_scores(
        scores,
        SampleSet([()] * len(names["q"]), ids=names["q"]),
        SampleSet([()] * len(names["g"]), ids=names["g"]),
        protocol=EvalProtocol(relevance="qrels", level=level),
        qrels=qrels,
        metrics=["map_trapezoid", *[f"mp@{k}" for k in ks]],
    )
    assert report.num_evaluated == len(theirs)
    for q, (area, at) in theirs.items():
        assert report.queries["map_trapezoid"][q] == pytest.approx(area, abs=1e-12)
        for k, value in zip(ks, at, strict=True):
            assert report.queries[f"mp@{k}"][q] == pytest.approx(value, abs=1e-12)
    assert report["map_trapezoid"] == pytest.approx(np.mean([area for area, _ in theirs.values()]), abs=1e-12)
    assert report["mp@5"] == pytest.approx(np.mean([at[1] for _, at in theirs.values()]), abs=1e-12)


def test_google_landmarks_divides_by_what_100_places_can_hold():
    # Weyand et al., CVPR 2020: the sum of precisions at relevant ranks up to 100, over min(relevant, 100); a query
    # without predictions counts 0.
    rng = np.random.default_rng(2)
    n, m = 6, 400
    sizes = [1, 5, 99, 100, 101, 250]
    relevant = [set(rng.permutation(m)[:size].tolist()) for size in sizes]
    lists = [np.argsort(-rng.normal(size=m))[: rng.integers(60, 101)].tolist() for _ in range(n)]
    lists[1] = []
    expected = []
    for mine, predicted in zip(relevant, lists, strict=True):
        found, total = 0, 0.0
        for rank, g in enumerate(predicted[:100], start=1):
            found += g in mine
            total += found / rank * (g in mine)
        expected.append(total / min(len(mine), 100))
    report = evaluate_scores(
        RankedLists(
            tuple(f"q{q}" for q, row in enumerate(lists) for _ in row),
            tuple(f"g{g}" for row in lists for g in row),
            np.array([-float(rank) for row in lists for rank in range(len(row))]),
        ),
        SampleSet([()] * n, ids=[f"q{q}" for q in range(n)]),
        SampleSet([()] * m, ids=[f"g{g}" for g in range(m)]),
        protocol=EvalProtocol(relevance="qrels"),
        qrels=Qrels(
            tuple(f"q{q}" for q, mine in enumerate(relevant) for _ in mine),
            tuple(f"g{g}" for mine in relevant for g in mine),
            np.ones(sum(sizes), dtype=np.int64),
        ),
        metrics=["map_capped@100"],
    )
    assert report.queries["map_capped@100"].tolist() == pytest.approx(expected, abs=1e-12)
    assert report["map_capped@100"] == pytest.approx(np.mean(expected), abs=1e-12)


# Place recognition: 25 metres


def place_recognition(order, query_xy, gallery_xy, ks, radius=25.0):
    """Recall@k: the share of all queries with an image within the radius among the first k; none at all is a miss."""
    hits = np.zeros(len(ks))
    for q, row in enumerate(order):
        near = [float(np.sum((query_xy[q] - gallery_xy[g]) ** 2)) <= radius**2 for g in row]
        hits += [any(near[:k]) for k in ks]
    return (hits / len(order)).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_place_recognition_within_25_metres(seed):
    rng = np.random.default_rng(seed)
    places = rng.integers(0, 40, size=200)
    xy = np.array([585_000.25, 4_477_000.5]) + np.stack([places * 20.0, rng.integers(0, 3, 200) * 15.0], axis=1)
    xy[:5] += 50_000  # five queries are far from everything
    emb = clustered(rng, places.tolist(), noise=1.2)
    theirs = place_recognition(cosine_order(emb[:50], emb[50:]), xy[:50], xy[50:], (1, 5, 10, 20))
    sets = EmbeddingSet(emb[:50], None, positions=xy[:50]), EmbeddingSet(emb[50:], None, positions=xy[50:])
    protocol = EvalProtocol(ks=(1, 5, 10, 20), relevance="radius", radius=25.0, no_positive="miss")
    report = evaluate_embeddings(*sets, protocol=protocol)
    assert list(report.values()) == pytest.approx(theirs, abs=1e-12)
    assert theirs[0] < theirs[-1] <= 0.9
    excluded = evaluate_embeddings(
        *sets, protocol=EvalProtocol(ks=(1, 5, 10, 20), relevance="radius", no_positive="exclude")
    )
    assert excluded.num_excluded >= 5
    assert excluded["recall@20"] * excluded.num_evaluated == pytest.approx(theirs[3] * 50)


# Metric learning: the accuracies of pytorch-metric-learning


def metric_learning(order, labels):
    """The accuracies of a set that is its own reference; a row is not its own neighbour, lone rows are left out.

    R is the number of other rows of the label. mean_average_precision sums over the whole ranking and is divided by
    R, so with k=None it is our map, and with k=n our map@n; mean_average_precision_at_r is our map_r.
    """
    rows = []
    for q, row in enumerate(order):
        same = np.array([labels[g] == labels[q] for g in row if g != q], dtype=float)
        r = int(same.sum())
        if not r:
            continue
        precision = same.cumsum() / np.arange(1, len(same) + 1)
        rows.append(
            {
                "precision_at_1": same[0],
                "r_precision": same[:r].mean(),
                "mean_average_precision_at_r": float((precision * same)[:r].sum()) / r,
                "mean_average_precision": float((precision * same).sum()) / r,
                "mean_average_precision, k=7": float((precision * same)[:7].sum()) / r,
                "mean_reciprocal_rank": 1 / (1 + int(np.argmax(same))),
                "label": labels[q],
            }
        )
    return rows


OURS = {
    "precision_at_1": "recall@1",
    "r_precision": "r_precision",
    "mean_average_precision_at_r": "map_r",
    "mean_average_precision": "map",
    "mean_average_precision, k=7": "map@7",
    "mean_reciprocal_rank": "mrr",
}


def learned(seed):
    rng = np.random.default_rng(seed)
    labels = [*rng.integers(0, 9, size=70).tolist(), 100, 101]  # the last two are alone
    return clustered(rng, labels, noise=1.1), labels


@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("seed", range(3))
def test_metric_learning_accuracies(seed, average):
    emb, labels = learned(seed)
    rows = metric_learning(cosine_order(emb, emb), labels)
    report = evaluate_embeddings(
        EmbeddingSet(emb, labels),
        protocol=EvalProtocol(ks=(1,), average=average),
        metrics=[name for name in OURS.values() if name != "recall@1"],
    )
    assert report.num_excluded == 2
    for theirs, ours in OURS.items():
        groups = [
            [row[theirs] for row in rows if row["label"] == label] for label in sorted({r["label"] for r in rows})
        ]
        by_class = np.mean([np.mean(group) for group in groups])
        expected = np.mean([row[theirs] for row in rows]) if average == "micro" else by_class
        assert report[ours] == pytest.approx(expected, abs=1e-12), theirs


# Text retrieval: trec_eval and BEIR


def trec(seed, *, cut=None):
    """Graded judgments (some of them 0 or below), scores without ties; lists hold `cut` items at the most."""
    rng = np.random.default_rng(seed)
    n, m = 15, 120
    scores = np.stack([rng.permutation(m) for _ in range(n)]).astype(float)
    grades = rng.choice([-1, 0, 1, 2, 3], size=(n, m), p=[0.1, 0.6, 0.15, 0.1, 0.05])
    judged = rng.random(size=(n, m)) < 0.5
    judged[:, 0] = True
    grades[:, 0] = 3
    scores = np.where(judged, scores + 0.5 + 30 * np.maximum(grades, 0), scores)
    scores = np.argsort(np.argsort(scores, axis=1), axis=1).astype(float)  # places: exact in single precision too
    run, qrels = {}, {}
    for q in range(n):
        kept = np.argsort(-scores[q])[:cut].tolist()
        run[f"q{q}"] = {f"g{g}": scores[q, g] for g in kept}
        qrels[f"q{q}"] = {f"g{g}": int(grades[q, g]) for g in range(m) if judged[q, g]}
    return run, qrels, n, m


TREC = {
    "success": "recall",
    "recall": "set_recall",
    "P": "precision",
    "map_cut": "map",
    "ndcg_cut": "ndcg",
    "map": "map",
    "ndcg": "ndcg",
    "recip_rank": "mrr",
    "Rprec": "r_precision",
}
CUTS = (1, 5, 10, 30, 100, 200)


def ours_of(measure: str) -> str:
    name, _, k = measure.rpartition("_")
    return f"{TREC[name]}@{k}" if k.isdigit() else TREC[measure]


def evaluate_run(run, qrels, n, m, metrics, **choices):
    entries = [(q, g, score) for q, row in run.items() for g, score in row.items()]
    pairs = [(q, g, grade) for q, row in qrels.items() for g, grade in row.items()]
    return evaluate_scores(
        RankedLists(*map(tuple, list(zip(*entries, strict=True))[:2]), np.array([score for *_, score in entries])),
        SampleSet([()] * n, ids=[f"q{q}" for q in range(n)]),
        SampleSet([()] * m, ids=[f"g{g}" for g in range(m)]),
        protocol=EvalProtocol(ks=CUTS, relevance="qrels", **choices),
        qrels=Qrels(*map(tuple, list(zip(*pairs, strict=True))[:2]), np.array([grade for *_, grade in pairs])),
        metrics=metrics,
    )


@pytest.mark.parametrize("cut", [None, 40, 3])
@pytest.mark.parametrize("level", [1, 2])
def test_trec_eval_query_by_query(cut, level):
    run, qrels, n, m = trec(5, cut=cut)
    cuts = ",".join(map(str, CUTS))
    measures = {f"{name}.{cuts}" for name in ("success", "recall", "P", "map_cut", "ndcg_cut")}
    measures |= {"map", "recip_rank", "Rprec", "ndcg"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, measures, relevance_level=level).evaluate(run)
    metrics = sorted({ours_of(name) for name in theirs["q0"]})
    report = evaluate_run(run, qrels, n, m, metrics, min_grade=level)
    assert len(theirs) == n == report.num_evaluated
    for q, row in theirs.items():
        for measure, value in row.items():
            if level == 2 and measure.startswith("ndcg"):
                continue  # trec_eval's ndcg knows no least grade: it counts every grade above 0
            found = report.queries[ours_of(measure)][int(q[1:])]
            assert found == pytest.approx(value, abs=1e-12), (q, measure)


def test_trec_eval_leaves_out_a_query_without_a_run_and_we_do_not():
    run, qrels, n, m = trec(6)
    del run["q3"]
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"map"}).evaluate(run)
    report = evaluate_run(run, qrels, n, m, ["map"])
    assert "q3" not in theirs
    assert report.queries["map"][3] == 0.0
    # trec_eval -c: the missing query counts as 0
    assert report["map"] == pytest.approx(sum(row["map"] for row in theirs.values()) / n, abs=1e-12)
    assert any("1 query without a list" in warning for warning in report.warnings)


def test_beir_caps_recall_by_k():
    # Thakur et al., 2021: of the documents with a grade above 0, those in the first k, over min(k, how many there are)
    run, qrels, n, m = trec(7)
    report = evaluate_run(run, qrels, n, m, [f"capped_recall@{k}" for k in (1, 5, 100)])
    for q, row in run.items():
        relevant = {g for g, grade in qrels[q].items() if grade > 0}
        order = sorted(row, key=lambda g, row=row: -row[g])
        for k in (1, 5, 100):
            expected = len(relevant & set(order[:k])) / min(k, len(relevant))
            assert report.queries[f"capped_recall@{k}"][int(q[1:])] == pytest.approx(expected, abs=1e-12)


def test_where_two_conventions_part_the_names_part():
    # One ranking, positives at ranks 1, 3 and 6 of 8; k = 2. Every number below is somebody's "mAP".
    scores = -np.arange(8.0)[None]
    gallery = SampleSet(["a" if rank in (1, 3, 6) else "b" for rank in range(1, 9)])
    names = ["map", "map@2", "map_capped@2", "map_r", "map_trapezoid"]
    report = evaluate_scores(scores, SampleSet(["a"]), gallery, metrics=names)
    assert report["map"] == pytest.approx((1 + 2 / 3 + 3 / 6) / 3)
    assert report["map@2"] == pytest.approx(1 / 3)
    assert report["map_capped@2"] == pytest.approx(1 / 2)
    assert report["map_r"] == pytest.approx((1 + 2 / 3) / 3)
    assert report["map_trapezoid"] == pytest.approx((1 + (1 / 2 + 2 / 3) / 2 + (2 / 5 + 3 / 6) / 2) / 3)
    assert len({round(report[name], 9) for name in names}) == 5


def test_without_any_positive_every_convention_is_an_error_and_never_0():
    with pytest.raises(RecallatkError, match="camera"):
        evaluate_scores(
            np.ones((1, 1)),
            SampleSet(np.array([1]), groups={"camera": ["1"]}),
            SampleSet(np.array([1]), groups={"camera": ["1"]}),
            protocol=MARKET,
        )


# The tools themselves


@pytest.mark.integration
@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.filterwarnings("ignore")  # the tools' own
def test_pytorch_metric_learning_itself(average):
    import torch
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    emb, labels = learned(11)
    common = {
        "knn_func": CustomKNN(CosineSimilarity()),
        "device": torch.device("cpu"),
        "avg_of_avgs": average == "macro",
    }
    given = torch.tensor(emb), torch.tensor(labels)
    names = tuple(name for name in OURS if "," not in name)
    theirs = AccuracyCalculator(include=names, k=None, **common).get_accuracy(*given)
    short = AccuracyCalculator(include=("mean_average_precision",), k=7, **common).get_accuracy(*given)
    theirs["mean_average_precision, k=7"] = short["mean_average_precision"]
    report = evaluate_embeddings(
        EmbeddingSet(emb, labels),
        protocol=EvalProtocol(ks=(1,), average=average),
        metrics=[name for name in OURS.values() if name != "recall@1"],
    )
    for name, ours in OURS.items():
        assert report[ours] == pytest.approx(theirs[name], abs=1e-6), name


@pytest.mark.integration
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_pytorch_metric_learning_with_a_separate_reference(separate):
    import torch
    from pytorch_metric_learning.distances import CosineSimilarity, LpDistance
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    emb, labels = learned(12)
    distance = LpDistance(normalize_embeddings=False) if separate else CosineSimilarity()
    names = tuple(name for name in OURS if "," not in name)
    calculator = AccuracyCalculator(include=names, k=None, knn_func=CustomKNN(distance), device=torch.device("cpu"))
    parts = [torch.tensor(part) for part in (emb[:25], labels[:25], emb[25:70], labels[25:70])]
    theirs = calculator.get_accuracy(parts[0], parts[1], parts[2], parts[3])
    report = evaluate_embeddings(
        EmbeddingSet(emb[:25], labels[:25]),
        EmbeddingSet(emb[25:70], labels[25:70]),
        protocol=EvalProtocol(ks=(1,), similarity="euclidean" if separate else "cosine"),
        metrics=[OURS[name] for name in names if OURS[name] != "recall@1"],
    )
    for name in names:
        assert report[OURS[name]] == pytest.approx(theirs[name], abs=1e-6), name


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
def test_torchmetrics_where_its_definition_is_sound():
    import torch
    import torchmetrics.retrieval as tm

    run, qrels, n, m = trec(8)
    preds = torch.tensor([[(1 + run[f"q{q}"][f"g{g}"]) / (m + 1) for g in range(m)] for q in range(n)])
    grades = torch.tensor([[max(qrels[f"q{q}"].get(f"g{g}", 0), 0) for g in range(m)] for q in range(n)])
    indexes = torch.arange(n)[:, None].expand(n, m)
    metrics = {
        "recall@5": tm.RetrievalHitRate(top_k=5, empty_target_action="skip"),
        "set_recall@10": tm.RetrievalRecall(top_k=10, empty_target_action="skip"),
        "precision@5": tm.RetrievalPrecision(top_k=5, empty_target_action="skip"),
        "precision@100": tm.RetrievalPrecision(top_k=100, empty_target_action="skip"),
        "map": tm.RetrievalMAP(empty_target_action="skip"),
        "mrr": tm.RetrievalMRR(empty_target_action="skip"),
        "r_precision": tm.RetrievalRPrecision(empty_target_action="skip"),
        "ndcg": tm.RetrievalNormalizedDCG(empty_target_action="skip"),
        "ndcg@10": tm.RetrievalNormalizedDCG(top_k=10, empty_target_action="skip"),
    }
    report = evaluate_run(run, qrels, n, m, [name for name in metrics if name != "recall@5"])
    for name, metric in metrics.items():
        target = grades if name.startswith("ndcg") else (grades > 0).long()
        theirs = float(metric(preds.flatten(), target.flatten(), indexes=indexes.flatten()))
        assert report[name] == pytest.approx(theirs, abs=2e-6), name


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
def test_torchmetrics_averages_a_cut_map_over_what_it_found():
    # Positives at ranks 1, 3 and 6; at 2 one is found. torchmetrics divides by 1, map_capped by 2, map by 3.
    import torch
    import torchmetrics.functional.retrieval as tm

    preds, target = torch.linspace(1, 0.1, 8), torch.tensor([1, 0, 1, 0, 0, 1, 0, 0])
    theirs = float(tm.retrieval_average_precision(preds, target, top_k=2))
    gallery = SampleSet(["a" if hit else "b" for hit in target.tolist()])
    report = evaluate_scores(preds[None].numpy(), SampleSet(["a"]), gallery, metrics=["map@2", "map_capped@2"])
    assert (theirs, report["map_capped@2"], report["map@2"]) == pytest.approx((1.0, 1 / 2, 1 / 3))


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
def test_torchmetrics_averages_over_tied_grades_as_the_expected_rule_does():
    import torch
    import torchmetrics.functional.retrieval as tm

    preds = torch.tensor([0.9, 0.5, 0.5, 0.5, 0.2, 0.2])
    grades = torch.tensor([0, 3, 1, 0, 2, 0])
    qrels = Qrels(("q",) * 3, ("g1", "g2", "g4"), np.array([3, 1, 2]))
    for k in (1, 2, 3, 5, 6):
        report = evaluate_scores(
            preds[None].numpy(),
            SampleSet([()], ids=["q"]),
            SampleSet([()] * 6, ids=[f"g{g}" for g in range(6)]),
            protocol=EvalProtocol(relevance="qrels"),
            qrels=qrels,
            metrics=[f"ndcg@{k}"],
        )
        assert report[f"ndcg@{k}"] == pytest.approx(
            float(tm.retrieval_normalized_dcg(preds, grades, top_k=k)), abs=1e-6
        )
