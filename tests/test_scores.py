"""Scores that somebody else computed: a matrix and ranked lists give the counts that embeddings give."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import oracle
from recallatk.evaluation import evaluate_embeddings, evaluate_scores
from recallatk.metrics import METRICS
from recallatk.ranking import Block, RankedRows, Ranking, rank, rank_scores, to_grid
from recallatk.ranking import scores as scoring
from recallatk.relevance import build_relevance
from recallatk.types import EmbeddingSet, EvalProtocol, Qrels, RankedLists, RecallatkError, SampleSet

TIES = ("expected", "pessimistic", "optimistic")
EVERY = [f"{name}@4" if row.cutoff == "always" else name for name, row in METRICS.items()]
COLUMNS = [field.name for field in dataclasses.fields(Ranking) if field.name not in ("near_above", "near_below")]
"""What a ranking holds, but for near-ties: there are none where nothing was rounded."""

STEP = 2.0**-52


def draw(seed: int):
    """Embeddings full of ties, who is relevant to what degree, and the exact cosines as float64."""
    rng = np.random.default_rng(seed)
    n, m, d = int(rng.integers(2, 7)), int(rng.integers(2, 12)), int(rng.integers(1, 6))
    some = rng.normal(size=(4, d)).astype(np.float32)
    emb = [some[rng.integers(4, size=size)] * rng.choice([-1, 1, 2], size=(size, 1)) for size in (n, m)]
    sims = oracle.similarities(*[to_rows.tolist() for to_rows in emb])
    judged = [
        (f"q{q}", f"g{g}", int(rng.integers(0, 4)), str(rng.choice(["easy", "junk"], p=[0.85, 0.15])))
        for q in range(n)
        for g in range(m)
        if rng.random() < 0.6
    ]
    judged = judged or [("q0", "g0", 1, "easy")]
    query_ids, item_ids, grades, levels = zip(*judged, strict=True)
    ids = {"q": [f"q{i}" for i in range(n)], "g": [f"g{i}" for i in range(m)]}
    return emb, np.array(sims) * STEP, ids, Qrels(query_ids, item_ids, np.array(grades), levels)


def as_lists(matrix, ids, seed=0, keep=lambda q, g: True) -> RankedLists:
    """The matrix as one entry a pair, in an order that means nothing."""
    entries = [
        (ids["q"][q], ids["g"][g], float(matrix[q, g]))
        for q, g in itertools.product(range(matrix.shape[0]), range(matrix.shape[1]))
        if keep(q, g)
    ]
    entries = [entries[i] for i in np.random.default_rng(seed).permutation(len(entries))]
    queries, items, scores = zip(*entries, strict=True) if entries else ((), (), ())
    return RankedLists(queries, items, np.array(scores, dtype=np.float64))


def as_rows(matrix) -> RankedRows:
    n, m = matrix.shape
    return RankedRows(np.arange(n + 1) * m, np.tile(np.arange(m), n), matrix.ravel())


def assert_same(ours, theirs, columns=COLUMNS):
    for one, other in zip(ours, theirs, strict=True):
        for column in columns:
            a, b = getattr(one, column), getattr(other, column)
            if isinstance(a, slice) or a is None or b is None:
                assert a == b, column
            else:
                np.testing.assert_array_equal(a, b, err_msg=column)


PROTOCOLS = {
    "qrels": EvalProtocol(ks=(1, 2, 4), relevance="qrels"),
    "grade 2": EvalProtocol(ks=(1, 2, 4), relevance="qrels", min_grade=2),
    "misses": EvalProtocol(ks=(1, 2, 4), relevance="qrels", no_positive="miss"),
}


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("depth", ["first", "all"])
@pytest.mark.parametrize("block", [None, Block(1, 10**6, 1), Block(2, 10**6, 3)])
@pytest.mark.parametrize("wide", [1, scoring.WIDE], ids=["row by row", "rows together"])
def test_cosines_as_a_matrix_and_as_full_lists_rank_as_the_embeddings_do(depth, block, graded, wide, monkeypatch):
    monkeypatch.setattr(scoring, "WIDE", wide)
    for seed in range(25):
        emb, matrix, ids, qrels = draw(seed)
        rng = np.random.default_rng(seed)
        query, gallery = (SampleSet(rng.integers(0, 3, len(ids[role])), ids=ids[role]) for role in "qg")
        protocol = PROTOCOLS["qrels"] if graded else EvalProtocol()
        relevance = build_relevance(query, gallery, protocol, qrels=qrels)
        own = list(rank(*to_grid(*emb), relevance, depth=depth, block=block, backend="reference"))
        by_matrix = list(rank_scores(matrix, relevance, depth=depth, block=block))
        by_lists = list(rank_scores(as_rows(matrix), relevance, depth=depth, block=block))
        assert_same(own, by_matrix)
        assert_same(own, by_lists)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("ties", TIES)
def test_reports_of_embeddings_matrix_and_lists_hold_the_same_values(protocol, ties):
    for seed in range(8):
        emb, matrix, ids, qrels = draw(seed)
        chosen = dataclasses.replace(PROTOCOLS[protocol], ties=ties)
        sets = [EmbeddingSet(rows, None, ids=ids[role]) for role, rows in zip("qg", emb, strict=True)]
        samples = [SampleSet([()] * len(rows), ids=ids[role]) for role, rows in zip("qg", emb, strict=True)]
        common = {"protocol": chosen, "qrels": qrels, "metrics": EVERY}
        try:
            own = evaluate_embeddings(*sets, **common)
        except RecallatkError:
            continue  # this one has no positive of grade 2
        for scores in (matrix, as_lists(matrix, ids, seed)):
            theirs = evaluate_scores(scores, *samples, **common)
            assert dict(theirs) == dict(own)
            assert [v.low for v in theirs.values_by_metric.values()] == [v.low for v in own.values_by_metric.values()]
            assert (theirs.num_evaluated, theirs.without_positive) == (own.num_evaluated, own.without_positive)
            assert theirs.queries["best_positive"] == own.queries["best_positive"]


def test_random_cosines_of_many_dimensions_rank_as_the_embeddings_do():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(120, 64)).astype(np.float32)
    labels = rng.integers(0, 12, size=120)
    grid = to_grid(rows)[0].rows.astype(np.int64)
    own = evaluate_embeddings(EmbeddingSet(rows, labels), metrics=EVERY)
    theirs = evaluate_scores((grid @ grid.T) * STEP, SampleSet(labels), metrics=EVERY)
    assert dict(own) == dict(theirs)
    np.testing.assert_array_equal(own.queries["similarity"], theirs.queries["similarity"])


# What a score may be


def hit(scores, labels, k=1, **columns):
    protocol = EvalProtocol(ks=(k,), exclude_self="none")
    return evaluate_scores(np.array(scores), SampleSet(["a"]), SampleSet(labels), protocol=protocol, **columns)


@pytest.mark.parametrize(
    ("scores", "value"),
    [
        ([-3.0, -1.0, -2.0], 1.0),
        ([-3.0, -3.0, -3.0], 1 / 3),
        ([0.0, -0.0, -1.0], 1 / 2),
        ([np.inf, np.inf, 1.0], 1 / 2),
        ([-np.inf, -np.inf, -np.inf], 1 / 3),
        ([1.0, np.inf, -np.inf], 1.0),
        ([np.inf, 1.0, 2.0], 0.0),
        ([5e-324, 0.0, -5e-324], 0.0),
        ([0.0, 5e-324, -5e-324], 1.0),
        ([np.inf, np.finfo(np.float64).max, 0.0], 0.0),
        ([-np.inf, np.finfo(np.float64).min, -np.inf], 1.0),
        ([-1.7e308, 1.7e308, 0.0], 1.0),
    ],
)
@pytest.mark.parametrize("form", ["matrix", "lists"])
def test_scores_order_as_numbers_and_only_equal_ones_are_ties(scores, value, form):
    matrix = np.array([scores])
    ids = {"q": ["q"], "g": ["x", "y", "z"]}
    given = matrix if form == "matrix" else as_lists(matrix, ids)
    sides = SampleSet(["a"], ids=ids["q"]), SampleSet(["b", "a", "b"], ids=ids["g"])
    report = evaluate_scores(given, *sides, protocol=EvalProtocol(ks=(1,)), metrics=["map", "ndcg"])
    assert report["recall@1"] == value


@pytest.mark.parametrize("form", ["matrix", "lists"])
def test_positives_at_both_ends_of_all_numbers_make_no_noise(form):
    matrix = np.array([[np.inf, -np.inf, 0.0, -1.7e308, 1.7e308]])
    ids = {"q": ["q"], "g": list("vwxyz")}
    given = matrix if form == "matrix" else as_lists(matrix, ids)
    sides = SampleSet(["a"], ids=ids["q"]), SampleSet(["a", "a", "b", "a", "a"], ids=ids["g"])
    # ranks: v 1, z 2, x 3 (no positive), y 4, w 5
    assert evaluate_scores(given, *sides, metrics=["map"])["map"] == pytest.approx((1 + 1 + 3 / 4 + 4 / 5) / 4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint8, np.int64, np.float64])
def test_scores_of_any_dtype_are_taken_as_they_are(dtype):
    assert hit(np.array([[3, 2, 3]], dtype=dtype), ["b", "a", "a"])["recall@1"] == 0.5


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_whole_numbers_beyond_float64_are_not_tied_in_silence(dtype):
    scores = np.array([[2**53 + 1, 2**53]], dtype=dtype)
    try:
        value = hit(scores, ["a", "b"])["recall@1"]
    except RecallatkError:
        return  # refusing them would do as well
    assert value == 1.0


@pytest.mark.parametrize("wide", [1, scoring.WIDE], ids=["row by row", "rows together"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nan_is_found_wherever_it_stands(dtype, wide, monkeypatch):
    # a positive, one of several, a negative, the query itself (ignored), all of a row, a row without a positive
    monkeypatch.setattr(scoring, "WIDE", wide)
    sides = SampleSet(["a", "a", "a", "b", "c"])
    for k in (1, 5):
        for row, column in itertools.product(range(5), [0, 1, 2, 3, 4, slice(None)]):
            matrix = np.array([[9, 5, 5, 3, 1]] * 5, dtype=dtype)
            assert evaluate_scores(matrix, sides, metrics=[f"map@{k}"]).num_evaluated == 3
            matrix[row, column] = np.nan
            with pytest.raises(RecallatkError, match=f"row {row} holds NaN"):
                evaluate_scores(matrix, sides, metrics=[f"map@{k}"])
    with pytest.raises(RecallatkError, match="row 0 holds NaN"):
        hit([[np.nan]], ["a"])


def test_a_score_that_is_nan_is_an_error_that_names_its_row():
    query, gallery = SampleSet(["a", "a"], ids=["q0", "q1"]), SampleSet(["a", "b"])
    with pytest.raises(RecallatkError, match=r"(row 1|q1).*NaN"):
        evaluate_scores(np.array([[0.0, 1.0], [np.nan, 1.0]]), query, gallery)
    with pytest.raises(RecallatkError, match=r"'q1'.*NaN"):
        RankedLists(("q0", "q1"), ("x", "y"), np.array([1.0, np.nan]))


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (3, 2, 1), (6,), (0, 3), (2, 0)])
def test_a_matrix_of_another_shape_is_an_error_in_one_line(shape):
    with pytest.raises(RecallatkError, match="scores") as error:
        evaluate_scores(np.zeros(shape), SampleSet(["a"] * 3), SampleSet(["a"] * 2))
    assert "\n" not in str(error.value)
    assert "embedding" not in str(error.value)


def test_a_memory_map_is_read_block_by_block(tmp_path):
    rng = np.random.default_rng(8)
    matrix = rng.normal(size=(50, 40)).astype(np.float32)
    np.save(tmp_path / "scores.npy", matrix)
    mapped = np.load(tmp_path / "scores.npy", mmap_mode="r")
    sides = SampleSet(rng.integers(0, 4, 50)), SampleSet(rng.integers(0, 4, 40))
    assert dict(evaluate_scores(mapped, *sides, metrics=EVERY)) == dict(evaluate_scores(matrix, *sides, metrics=EVERY))

    taken = []

    class Rows:
        shape = matrix.shape

        def __getitem__(self, rows):
            taken.append(rows)
            return mapped[rows]

    relevance = build_relevance(*sides, EvalProtocol())
    blocks = list(rank_scores(Rows(), relevance, block=Block(queries=7, pairs=10**6, gallery=9)))
    assert_same(blocks, rank_scores(matrix, relevance, block=Block(queries=7, pairs=10**6, gallery=9)))
    assert taken == [slice(start, min(start + 7, 50)) for start in range(0, 50, 7)]


def test_too_little_memory_is_said_and_changes_nothing():
    sides = SampleSet(["a"] * 9), SampleSet(["a"] * 9)
    scores = np.arange(81.0).reshape(9, 9)
    plain, squeezed = evaluate_scores(scores, *sides), evaluate_scores(scores, *sides, memory=1000)
    assert dict(squeezed) == dict(plain)
    assert squeezed.provenance.notes[0].startswith("memory: 1 MB is too little, as the process holds ")
    assert not plain.provenance.notes


def test_the_scores_given_are_not_written_to():
    scores = np.array([[3.0, np.inf, 1.0]])
    scores.setflags(write=False)
    assert hit(scores, ["a", "b", "a"])["recall@1"] == 0.0


def test_leave_one_out_leaves_out_the_diagonal():
    scores = np.array([[9.0, 1, 2], [1, 9, 2], [1, 2, 9]])
    report = evaluate_scores(scores, SampleSet(["a", "a", "b"]), protocol=EvalProtocol(ks=(1, 2)))
    assert (report["recall@1"], report["recall@2"], report.num_excluded) == (0.0, 1.0, 1)


# Lists


def toy():
    """Three queries with two positives each among six items."""
    ids = {"q": ["q0", "q1", "q2"], "g": [f"g{i}" for i in range(6)]}
    query = SampleSet(["a", "b", "c"], ids=ids["q"], name="query")
    gallery = SampleSet(["a", "b", "c", "a", "b", "c"], ids=ids["g"], name="gallery")
    return ids, query, gallery


def test_what_a_list_does_not_hold_is_never_found_and_still_counts():
    _, query, gallery = toy()
    lists = RankedLists(("q0", "q0", "q1"), ("g1", "g0", "g2"), np.array([2.0, 1.0, 1.0]))
    protocol = EvalProtocol(ks=(1, 2, 6))
    report = evaluate_scores(lists, query, gallery, protocol=protocol, metrics=["set_recall@6", "map", "minp", "mrr"])
    assert report.num_evaluated == 3  # q1 found nothing, q2 has no list
    assert (report["recall@1"], report["recall@2"], report["recall@6"]) == (0.0, 1 / 3, 1 / 3)
    assert report["set_recall@6"] == pytest.approx(1 / 6)
    assert report["map"] == pytest.approx((1 / 2) / 2 / 3)
    assert report["mrr"] == pytest.approx(1 / 2 / 3)
    assert report["minp"] == 0.0
    text = " ".join(report.warnings)
    assert "1 query without a list (such as 'q2')" in text
    assert "truncated" in text
    assert list(report.queries["best_positive"]) == ["g0", None, None]


def test_a_positive_that_was_not_returned_has_no_similarity():
    _, query, gallery = toy()
    lists = RankedLists(("q0", "q1"), ("g0", "g2"), np.array([-3.0, -4.0]))
    report = evaluate_scores(lists, query, gallery)
    assert report.queries["similarity"][0] == -3.0
    assert np.isnan(report.queries["similarity"][1:]).all()


def test_empty_lists_find_nothing_and_are_counted():
    _, query, gallery = toy()
    report = evaluate_scores(RankedLists((), (), np.array([])), query, gallery, metrics=EVERY)
    assert set(report.values()) == {0.0}
    assert report.num_evaluated == 3
    assert any("3 queries without a list" in warning for warning in report.warnings)


def test_a_shorter_list_never_scores_more_and_no_order_of_its_lines_counts():
    ids, query, gallery = toy()
    rng = np.random.default_rng(4)
    for seed in range(20):
        matrix = rng.integers(0, 4, size=(3, 6)).astype(float)
        full = evaluate_scores(as_lists(matrix, ids, seed), query, gallery, metrics=EVERY)
        assert dict(full) == dict(evaluate_scores(matrix, query, gallery, metrics=EVERY))
        cut = rng.integers(0, 5)
        shorter = as_lists(matrix, ids, seed, keep=lambda q, g, m=matrix, c=cut: m[q, g] >= c)
        values = evaluate_scores(shorter, query, gallery, metrics=EVERY)
        assert all(values[name] <= full[name] + 1e-12 for name in full)
        again = as_lists(matrix, ids, seed + 100, keep=lambda q, g, m=matrix, c=cut: m[q, g] >= c)
        assert dict(evaluate_scores(again, query, gallery, metrics=EVERY)) == dict(values)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("q0", "g0", 1.0), ("q0", "g0", 1.0)], ["'q0'", "'g0'", "more than once"]),
        ([("q0", "g0", 2.0), ("q1", "g0", 1.0), ("q0", "g0", 1.0)], ["'q0'", "'g0'", "more than once"]),
        ([("q1", "nobody", 1.0)], ["'q1'", "'nobody'", "gallery"]),
    ],
)
def test_a_list_that_cannot_be_is_an_error_that_names_query_and_item(entries, words):
    _, query, gallery = toy()
    queries, items, scores = zip(*entries, strict=True)
    with pytest.raises(RecallatkError) as error:
        evaluate_scores(RankedLists(queries, items, np.array(scores)), query, gallery)
    assert all(word in str(error.value) for word in words), error.value


def test_lists_of_queries_that_nobody_asked_for_are_counted():
    _, query, gallery = toy()
    lists = RankedLists(("q0", "z", "z"), ("g0", "g0", "elsewhere"), np.array([1.0, 1.0, 2.0]))
    report = evaluate_scores(lists, query, gallery, protocol=EvalProtocol(ks=(1,)))
    assert report["recall@1"] == 1 / 3
    assert any("there are lists of 1 query not evaluated (such as 'z')" in text for text in report.warnings)


def test_columns_of_lists_must_be_aligned():
    with pytest.raises(RecallatkError, match="one for each"):
        RankedLists(("q", "q"), ("g",), np.array([1.0, 2.0]))


def warned_of_truncation(report) -> bool:
    return any("truncated" in warning for warning in report.warnings)


def listing(names, query="q"):
    return RankedLists((query,) * len(names), tuple(names), -np.arange(float(len(names))))


@pytest.mark.parametrize(
    ("length", "ks", "metrics", "truncated"),
    [
        (10, (10,), [], False),
        (10, (11,), [], True),
        (10, (1,), ["set_recall@10", "ndcg@10", "map@10", "map_capped@10"], False),
        (10, (1,), ["set_recall@20"], True),
        (10, (1,), ["ndcg@20"], True),
        (10, (1,), ["map"], True),
        (10, (1,), ["minp"], True),
        (10, (1,), ["r_precision"], True),  # R is 15
        (30, (100,), ["map", "minp"], False),  # the whole gallery
    ],
)
def test_a_metric_that_looks_further_than_a_list_reaches_says_that_it_is_truncated(length, ks, metrics, truncated):
    names = [f"g{i}" for i in range(30)]
    gallery = SampleSet(["a"] * 15 + ["b"] * 15, ids=names)
    report = evaluate_scores(
        listing(names[:length]), SampleSet(["a"], ids=["q"]), gallery, protocol=EvalProtocol(ks=ks), metrics=metrics
    )
    assert warned_of_truncation(report) == truncated


def test_a_list_that_ignored_items_make_too_short_is_truncated():
    # Ten items, five of them of the query's camera: what is left ends at rank 5, and rank 10 is not known.
    names = [f"g{i}" for i in range(30)]
    query = SampleSet(["a"], ids=["q"], groups={"camera": ["1"]})
    gallery = SampleSet(["b"] * 29 + ["a"], ids=names, groups={"camera": ["1"] * 5 + ["2"] * 25})
    protocol = EvalProtocol(ks=(10,), ignore_same="camera")
    assert warned_of_truncation(evaluate_scores(listing(names[:10]), query, gallery, protocol=protocol))
    assert not warned_of_truncation(evaluate_scores(listing(names[:15]), query, gallery, protocol=protocol))


def test_a_list_of_everything_but_the_query_itself_is_not_truncated():
    names = ["x", "y", "z"]
    samples = SampleSet(["a", "a", "a"], ids=names)
    entries = [(q, g, 1.0 + i) for q in names for i, g in enumerate(names) if q != g]
    queries, items, scores = zip(*entries, strict=True)
    report = evaluate_scores(RankedLists(queries, items, np.array(scores)), samples, protocol=EvalProtocol(ks=(3,)))
    assert report["recall@3"] == 1.0
    assert not warned_of_truncation(report)


def test_the_signature_of_scores_claims_no_cosine():
    report = hit([[1.0, 2.0]], ["a", "b"])
    assert report.signature.parts["sim"] != "cosine"


def test_the_hash_of_scores_depends_on_the_scores_and_not_on_their_order():
    ids, query, gallery = toy()
    rng = np.random.default_rng(3)
    matrix = rng.normal(size=(3, 6))
    rows, columns = rng.permutation(3), rng.permutation(6)
    moved_query = SampleSet([query.labels[r] for r in rows], ids=[ids["q"][r] for r in rows])
    moved_gallery = SampleSet([gallery.labels[c] for c in columns], ids=[ids["g"][c] for c in columns])
    own = evaluate_scores(matrix, query, gallery)
    moved = evaluate_scores(matrix[rows][:, columns], moved_query, moved_gallery)
    assert str(own.signature) == str(moved.signature)
    assert dict(own) == dict(moved)
    matrix[0, 0] += 1e-9
    assert evaluate_scores(matrix, query, gallery).signature.parts["emb"] != own.signature.parts["emb"]
