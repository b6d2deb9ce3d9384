"""The oracle against numbers worked out by hand, and against trec_eval where nothing is tied."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import pytrec_eval

import oracle
from oracle import Side

UNIT = 1 << 26


def circle(*degrees: float) -> np.ndarray:
    """Rows on the unit circle: the nearest item is the one at the smallest angle."""
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def means(metric, query, gallery, query_side, gallery_side, ks, *, ties="expected", average="micro", **judging):
    """The mean at each k, queries without a positive left out."""
    rows = oracle.similarities(query, gallery)
    judged = oracle.judge(query_side, gallery_side, **judging)
    return [
        oracle.mean(
            [oracle.value(metric, sims, *sets, k=k, ties=ties) for sims, sets in zip(rows, judged, strict=True)],
            query_side.labels,
            average,
        )
        for k in ks
    ]


def test_a_row_becomes_multiples_of_two_to_the_minus_26():
    assert oracle.grid_row([2.0, 0.0]) == [UNIT, 0]
    # 3-4-5: 0.6 * 2^26 = 40265318.4 and 0.8 * 2^26 = 53687091.2
    assert oracle.grid_row([3, -4]) == [40265318, -53687091]
    # 2^26 / sqrt(2) = 47453132.81...
    assert oracle.grid_row(np.array([5.0, 5.0], dtype=np.float16)) == [47453133, 47453133]


def test_an_exact_half_goes_to_the_even_neighbour():
    # The squares of these whole numbers add up to 2^54: the length is 2^27, every coordinate becomes its half.
    row = [134217720, 46340, 296, 18, 1, 3, -5, -3]
    assert sum(x * x for x in row) == 2**54
    assert oracle.grid_row(row) == [67108860, 23170, 148, 9, 0, 2, -2, -2]
    assert oracle.near_border(row) == [False] * 4 + [True] * 4


def test_near_a_border_the_exact_length_decides():
    # (1, x) has a length a little above 1, so x = 3/2 steps becomes a little less than 3/2.
    step = 2.0**-26
    assert oracle.grid_row([1, 1.5 * step])[1] == 1
    assert oracle.grid_row([1, (1.5 + 2.0**-20) * step])[1] == 2
    assert oracle.near_border([1, 1.5 * step]) == [False, True]
    assert oracle.near_border([1, 1.4 * step]) == [False, False]


def test_float64_gives_the_same_grid_away_from_the_borders():
    rows = np.random.default_rng(3).normal(size=(20, 96)).astype(np.float32)
    for row in rows:
        wide = row.astype(np.float64)
        quick = np.rint(wide / math.sqrt(math.fsum(wide * wide)) * UNIT).astype(int).tolist()
        exact, near = oracle.grid_row(row), oracle.near_border(row)
        assert all(a == b or (n and abs(a - b) == 1) for a, b, n in zip(quick, exact, near, strict=True))
    assert not any(near)


def test_a_power_of_two_changes_no_coordinate():
    row = np.random.default_rng(4).normal(size=40).astype(np.float32)
    assert oracle.grid_row(row) == oracle.grid_row(row * np.float32(2.0**-90))


def test_a_zero_row_has_no_direction():
    with pytest.raises(ValueError, match="no direction"):
        oracle.grid_row([0.0, 0.0])


def test_a_similarity_is_the_exact_inner_product():
    assert oracle.similarity(oracle.grid_row([1, 0]), oracle.grid_row([7, 0])) == 1 << 52
    assert oracle.similarity(oracle.grid_row([3, 4]), oracle.grid_row([-4, 3])) == 0
    assert oracle.similarity([UNIT, 3], [-UNIT, 5]) == 15 - (1 << 52)


def test_hit_rate_and_share_found_are_two_numbers():
    # rk01. Angles of the gallery: 10A 20B 30A 40A 50C 60A; the ranks of the positives of each query:
    #   0 A -> 10A 20B 30A 40A 50C 60A : ranks 1 3 4 6
    #  46 B -> 50C 40A 60A 30A 20B 10A : rank 5
    #  52 C -> 50C                      : rank 1
    #  24 A -> 20B 30A 10A 40A 50C 60A : ranks 2 3 4 6
    query = circle(0, 46, 52, 24) * np.array([[1], [7], [0.25], [3]], dtype=np.float32)
    sides = Side(["A", "B", "C", "A"]), Side(["A", "B", "A", "A", "C", "A"])
    data = (query, circle(10, 20, 30, 40, 50, 60), *sides)
    # hits at 1: queries 1 and 3; at 2 and 3 the last one as well; at 5 all
    assert means("recall", *data, (1, 2, 3, 5), exclude_self="none") == [
        Fraction(1, 2),
        Fraction(3, 4),
        Fraction(3, 4),
        Fraction(1),
    ]
    # found / positives at 1: (1/4 + 0 + 1 + 0) / 4; at 2: (1/4 + 0 + 1 + 1/4) / 4; at 3: (2/4 + 0 + 1 + 2/4) / 4
    # at 5: (3/4 + 1 + 1 + 3/4) / 4
    assert means("set_recall", *data, (1, 2, 3, 5)) == [Fraction(5, 16), Fraction(3, 8), Fraction(1, 2), Fraction(7, 8)]
    # found / k at 3: (2/3 + 0 + 1/3 + 2/3) / 4; at 10 all positives are found: (4 + 1 + 1 + 4) / 10 / 4
    assert means("precision", *data, (3, 10)) == [Fraction(5, 12), Fraction(1, 4)]
    # first ranks 1, 5, 1, 2: (1 + 1/5 + 1 + 1/2) / 4
    assert means("mrr", *data, (None,)) == [Fraction(27, 40)]
    # macro, hit at 1: A (1 + 0) / 2, B 0, C 1: their mean
    assert means("recall", *data, (1,), average="macro") == [Fraction(1, 2)]
    # macro, mrr: A (1 + 1/2) / 2, B 1/5, C 1: (3/4 + 1/5 + 1) / 3
    assert means("mrr", *data, (None,), average="macro") == [Fraction(13, 20)]


def test_a_removed_self_never_comes_back_at_large_k():
    # rk07, leave-one-out at 0A 22A 30B 50C 56C. Without the query itself:
    #   0 -> 22A first: rank 1        30 -> no other B: left out
    #  22 -> 30B, 0A: rank 2          50 -> 56C: rank 1        56 -> 50C: rank 1
    emb = circle(0, 22, 30, 50, 56)
    side = Side(["A", "A", "B", "C", "C"], identity=["p0", "p1", "r0", "s0", "s1"])
    assert oracle.judge(side, side)[2] == (set(), {2})
    assert means("recall", emb, emb, side, side, (1, 2, 5, 10)) == [
        Fraction(3, 4),
        Fraction(1),
        Fraction(1),
        Fraction(1),
    ]
    assert means("set_recall", emb, emb, side, side, (5,)) == [Fraction(1)]
    # counted as a miss, the B query pulls the mean down: 3/4 * 4/5
    rows, judged = oracle.similarities(emb, emb), oracle.judge(side, side)
    missed = [oracle.value("recall", s, *sets, k=1) or Fraction(0) for s, sets in zip(rows, judged, strict=True)]
    assert oracle.mean(missed, side.labels) == Fraction(3, 5)


TIED = (
    # rk13, set 1: query A ties with B A B B (one positive of four) and then D C D C follow at 0;
    # query C meets D alone at 0.8, then C D C tied at 0.6 (two positives of three)
    np.array([[1, 0, 0, 0], [0, 1, 0, 0]], dtype=np.float32),
    np.array([[0.6, 0, 0.8, 0]] * 4 + [[0, 0.8, 0, 0.6]] + [[0, 0.6, 0, 0.8]] * 3, dtype=np.float32),
    Side(["A", "C"]),
    Side(["B", "A", "B", "B", "D", "C", "D", "C"]),
)


@pytest.mark.parametrize(
    ("ties", "expected"),
    [
        # query A: 1/4, 2/4, 3/4, 1; query C: 0, 2/3 (one draw of three), 1 (two draws, only one is no C), 1
        ("expected", [Fraction(1, 8), Fraction(7, 12), Fraction(7, 8), Fraction(1)]),
        ("optimistic", [Fraction(1, 2), Fraction(1), Fraction(1), Fraction(1)]),
        # A: after the three negatives, rank 4; C: after D and the tied D, rank 3
        ("pessimistic", [Fraction(0), Fraction(0), Fraction(1, 2), Fraction(1)]),
    ],
)
def test_three_ways_to_count_ties(ties, expected):
    assert means("recall", *TIED, (1, 2, 3, 4), ties=ties) == expected


def test_ties_in_the_other_metrics_are_means_over_all_orders():
    # mrr: A is at rank 1 to 4 alike: (1 + 1/2 + 1/3 + 1/4) / 4 = 25/48. C at ranks 2 3, 2 4 or 3 4: the first is at
    # rank 2 in two orders and at 3 in one: (1/2 + 1/2 + 1/3) / 3 = 4/9
    assert means("mrr", *TIED, (None,)) == [(Fraction(25, 48) + Fraction(4, 9)) / 2]
    # at 2, A: 2/4 found; C: one draw of three, two of them C: 2/3 of an item, of two positives 1/3
    assert means("set_recall", *TIED, (2,)) == [(Fraction(1, 2) + Fraction(1, 3)) / 2]
    assert means("precision", *TIED, (2,)) == [(Fraction(1, 4) + Fraction(1, 3)) / 2]


def test_a_constant_encoder_scores_chance():
    # rk13, set 2: one positive among five equal items
    sims, positives = [7] * 5, {0}
    for k, expected in ((1, Fraction(1, 5)), (3, Fraction(3, 5)), (5, Fraction(1))):
        assert oracle.value("recall", sims, positives, k=k) == expected == oracle.chance(5, 1, k)
    # 1 - C(4, 3) / C(6, 3) = 1 - 4/20
    assert oracle.value("recall", [7] * 6, {1, 4}, k=3) == oracle.chance(6, 2, 3) == Fraction(4, 5)
    assert oracle.chance(6, 2, 9) == 1
    assert oracle.chance(6, 0, 3) == 0


def test_several_labels_share_at_least_one():
    # rk24. Gallery 0{a} 10{b,c} 20{c} 30{d} 40{a,d}; the nearest first, + is a positive:
    #  12 {a,b} -> 10+ 20 0+ 30 40+ : ranks 1 3 5
    #  21 {d}   -> 20 30+ 10 40+ 0  : ranks 2 4
    # 5.2 {c,d} -> 10+ 0 20+ 30+ 40+: ranks 1 3 4 5       33 {} -> no label, no positive
    query, gallery = circle(12, 21, 5.2, 33), circle(0, 10, 20, 30, 40)
    sides = Side([("a", "b"), ("d",), ("c", "d"), ()]), Side([("a",), ("b", "c"), ("c",), ("d",), ("a", "d")])
    assert [positives for positives, _ in oracle.judge(*sides)] == [{0, 1, 4}, {3, 4}, {1, 2, 3, 4}, set()]
    # three queries are left: hits at 1 are the first and the third, at 3 all
    assert means("recall", query, gallery, *sides, (1, 3)) == [Fraction(2, 3), Fraction(1)]
    # found at 1: (1/3 + 0 + 1/4) / 3; at 3: (2/3 + 1/2 + 2/4) / 3
    assert means("set_recall", query, gallery, *sides, (1, 3)) == [Fraction(7, 36), Fraction(5, 9)]


def test_self_is_told_by_identity_or_by_content_or_not_at_all():
    query = Side(["A"], identity=["x"], content=["1f"])
    gallery = Side(["A", "A", "A"], identity=["x", "y", "z"], content=["1f", "1f", "2e"])
    assert oracle.judge(query, gallery) == [({1, 2}, {0})]
    assert oracle.judge(query, gallery, exclude_self="content") == [({2}, {0, 1})]
    assert oracle.judge(query, gallery, exclude_self="none") == [({0, 1, 2}, set())]


def test_rows_without_names_are_themselves_only_within_one_set():
    side = Side(["A", "A"])
    assert oracle.judge(side, side) == [({1}, {0}), ({0}, {1})]
    assert oracle.judge(side, Side(["A", "A"])) == [({0, 1}, set())] * 2


def test_ignored_columns_must_all_be_equal():
    query = Side(["A"], groups={"camera": ["c1"]})
    gallery = Side(["A", "B", "A"], groups={"camera": ["c1", "c1", "c2"]})
    assert oracle.judge(query, gallery, ignore_same=("camera", "label")) == [({2}, {0})]
    assert oracle.judge(query, gallery, ignore_same=("camera",)) == [({2}, {0, 1})]
    several = Side([("A", "C")]), Side([("C", "D"), ("D",)])
    assert oracle.judge(*several, ignore_same=("label",)) == [(set(), {0})]


def test_an_unknown_column_equals_nothing():
    query = Side(["A"], identity=[""], content=[""], groups={"camera": [""]})
    gallery = Side(["A", "A"], identity=["", "x"], content=["", "1f"], groups={"camera": ["", "c1"]})
    for exclude_self in ("id", "content"):
        assert oracle.judge(query, gallery, exclude_self=exclude_self, ignore_same=("camera",)) == [({0, 1}, set())]


def test_an_ignored_item_takes_no_rank():
    sims = [9, 8, 7]
    assert oracle.value("recall", sims, {1}, {0}, k=1) == 1
    assert oracle.value("recall", sims, {1}, set(), k=1) == 0
    assert oracle.value("mrr", sims, {2}, {0}) == Fraction(1, 2)
    assert oracle.value("recall", sims, set(), {0}, k=1) is None


def test_levels_count_what_is_ahead_and_what_is_level():
    #        row:  0  1  2  3  4  5  6
    sims = [9, 9, 8, 5, 5, 5, 1]
    assert oracle.levels(sims, {1, 4, 5}, {2}) == [(9, 0, 1, 1), (5, 1, 1, 2)]


def test_near_negatives_lie_within_a_millionth():
    gap = (1 << 52) // 1_000_000  # 4503599627 steps, a little less than 1e-6
    sims = [0, gap, gap + 1, -gap, -gap - 1, 0]
    assert oracle.near_negatives(sims, {0}, set()) == (1, 1)
    assert oracle.near_negatives(sims, {0}, {1}) == (0, 1)


def test_macro_counts_a_query_for_each_of_its_labels():
    # a: (1 + 0) / 2, b: 1, c: 0; the query without a value counts nowhere, not even for d
    values, labels = [Fraction(1), Fraction(0), None], [("a", "b"), ("a", "c"), ("d",)]
    assert oracle.mean(values, labels, "macro") == Fraction(1, 2)
    assert oracle.mean([Fraction(1), Fraction(1), Fraction(0)], ["a", "a", "b"], "macro") == Fraction(1, 2)
    assert oracle.mean([Fraction(1), Fraction(1), Fraction(0)], ["a", "a", "b"]) == Fraction(2, 3)
    with pytest.raises(ValueError, match="nothing to average"):
        oracle.mean([None], ["a"])


def test_the_oracle_refuses_what_it_cannot_try():
    with pytest.raises(ValueError, match="too many orders"):
        oracle.value("recall", [0] * 40, set(range(20)), k=1)
    with pytest.raises(ValueError, match="cutoff"):
        oracle.value("recall", [1], {0})


def test_trec_eval_agrees_where_nothing_is_tied():
    rng = np.random.default_rng(11)
    query, gallery = rng.normal(size=(12, 6)), rng.normal(size=(30, 6))
    labels = [str(n) for n in rng.integers(0, 7, 12)], [str(n) for n in rng.integers(0, 7, 30)]
    rows, judged = oracle.similarities(query, gallery), oracle.judge(Side(labels[0]), Side(labels[1]))
    assert all(len(set(row)) == 30 for row in rows)
    qrels = {f"q{q}": {f"g{g}": 1 for g in positives} for q, (positives, _) in enumerate(judged) if positives}
    # trec_eval reads scores as float32: hand over the place from the end, which float32 holds exactly
    run = {f"q{q}": {f"g{g}": float(sum(s < row[g] for s in row)) for g in range(30)} for q, row in enumerate(rows)}
    measures = {"success.1,5,10", "recall.1,5,10", "P.1,5,10,50", "recip_rank"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    assert len(theirs) > 8
    ours = {"success": "recall", "recall": "set_recall", "P": "precision", "recip_rank": "mrr"}
    for q, row in theirs.items():
        number = int(q[1:])
        for name, score in row.items():
            measure, _, k = name.rpartition("_") if name != "recip_rank" else (name, "", "0")
            assert score == pytest.approx(float(oracle.value(ours[measure], rows[number], *judged[number], k=int(k))))
