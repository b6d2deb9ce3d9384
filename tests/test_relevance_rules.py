"""Who is positive and who is ignored: every rule against loops, alone and combined, and the reasons in words."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import oracle
from oracle import Judged, Side
from recallatk.evaluation import evaluate_embeddings, evaluate_scores
from recallatk.ranking import Block, rank_scores
from recallatk.relevance import build_relevance
from recallatk.types import ChoiceError, EmbeddingSet, EvalProtocol, Qrels, RecallatkError, SampleSet

LEVELS = ("easy", "hard", "junk", "")


def as_qrels(judged, query, gallery) -> Qrels:
    return Qrels(
        tuple(query.row_ids[pair.query] for pair in judged),
        tuple(gallery.row_ids[pair.item] for pair in judged),
        np.array([pair.grade for pair in judged], dtype=np.int64),
        tuple(pair.level or "" for pair in judged),
    )


def side(samples: SampleSet) -> Side:
    return Side(samples.labels, samples.identity, samples.content, samples.groups, samples.positions)


def assert_judged(query, gallery, protocol, qrels=None, judged=(), step=3):
    """The engine's rows, in blocks of any size, are those of the loops; `pairs` says at least how many there are."""
    relevance = build_relevance(query, gallery, protocol, qrels=qrels)
    ours = side(query)
    rules = {
        field: getattr(protocol, field)
        for field in (
            *("exclude_self", "relevance", "radius", "min_grade", "level", "junk_labels", "distractor_labels"),
        )
    }
    theirs = oracle.judge(
        ours,
        ours if gallery is None else side(gallery),
        ignore_same=protocol.ignore_columns,
        qrels=judged,
        **rules,
    )
    found = []
    for start in range(0, len(query), step):
        block = slice(start, min(start + step, len(query)))
        rows = relevance.judge(block)
        for i in range(block.stop - block.start):
            positive = rows.positive_rows[rows.positive_starts[i] : rows.positive_starts[i + 1]].tolist()
            ignored = rows.ignored_rows[rows.ignored_starts[i] : rows.ignored_starts[i + 1]].tolist()
            assert positive == sorted(set(positive))
            assert ignored == sorted(set(ignored))
            found.append((set(positive), set(ignored)))
            assert relevance.pairs[block.start + i] >= len(positive) + len(ignored)
        if rows.positive_grades is not None:
            grades = {(pair.query, pair.item): pair.grade for pair in judged}
            own = zip((rows.positive_queries + start).tolist(), rows.positive_rows.tolist(), strict=True)
            assert rows.positive_grades.tolist() == [grades[pair] for pair in own]
    assert found == theirs
    return found


def draw(seed: int, *, alone: bool = False, several: bool = False, positions: bool = False):
    rng = np.random.default_rng([seed, alone, several, positions])

    def samples(n, role):
        letters = np.array(list("abcdJD"))
        labels = rng.choice(letters, size=n).tolist()
        if several:
            labels = [tuple(a for a in letters.tolist() if rng.random() < 0.3) for _ in range(n)]
        shared = rng.permutation(12)[:n]  # some ids, some images and some bytes are on both sides
        return SampleSet(
            labels,
            ids=[f"x{i}" for i in shared] if alone else [f"{role}{i}" for i in shared],
            same=None if seed % 3 == 0 else [f"s{i}" for i in rng.integers(0, 8, n)],
            groups={
                "camera": rng.choice(["1", "2", "3", ""], size=n).tolist(),
                "sequence": rng.choice(["u", "v", ""], size=n).tolist(),
            },
            content=rng.choice(["c0", "c1", "c2", "c3"], size=n).tolist(),
            positions=rng.integers(0, 30, size=(n, 2)) * 5.0 if positions else None,
            name={"q": "query", "g": "gallery"}[role],
        )

    query = samples(int(rng.integers(1, 9)), "q")
    gallery = None if alone else samples(int(rng.integers(1, 12)), "g")
    other = query if gallery is None else gallery
    judged = [
        Judged(q, g, int(rng.integers(1, 4)), str(rng.choice(LEVELS)))
        for q in range(len(query))
        for g in range(len(other))
        if rng.random() < 0.5
    ]
    judged = [judged[i] for i in rng.permutation(len(judged))]
    return query, gallery, judged


IGNORING = ("none", "camera", "sequence", "camera+label", "label", "camera+sequence", "label+sequence+camera")


@pytest.mark.parametrize("exclude_self", ["id", "content", "none"])
@pytest.mark.parametrize("ignore_same", IGNORING)
@pytest.mark.parametrize("several", [False, True])
def test_labels_groups_and_junk_combine(exclude_self, ignore_same, several):
    seen = Counter()
    for seed in range(12):
        query, gallery, _ = draw(seed, alone=seed % 4 == 1, several=several)
        protocol = EvalProtocol(
            relevance="labels" if several else "label",
            exclude_self=exclude_self,
            ignore_same=ignore_same,
            junk_labels=("J",) if seed % 2 else (),
            distractor_labels=("D",) if seed % 3 and not several else (),
        )
        for positives, ignored in assert_judged(query, gallery, protocol):
            seen["positive"] += len(positives)
            seen["ignored"] += len(ignored)
    assert seen["ignored"] > 0
    assert (seen["positive"] > 0) == (ignore_same != "label")  # what shares a label is then ignored


@pytest.mark.parametrize("level", ["none", "easy", "medium", "hard"])
@pytest.mark.parametrize("min_grade", [1, 2, 3])
def test_qrels_with_grades_or_levels_combine_with_everything_else(level, min_grade):
    for seed in range(16):
        query, gallery, judged = draw(seed, alone=seed % 4 == 1)
        if level != "none":  # whether a grade counts where there are levels is a test of its own
            judged = [Judged(pair.query, pair.item, max(pair.grade, min_grade), pair.level) for pair in judged]
        protocol = EvalProtocol(
            relevance="qrels",
            level=level,
            min_grade=min_grade,
            ignore_same=IGNORING[seed % len(IGNORING)],
            exclude_self=("id", "content", "none")[seed % 3],
            junk_labels=("J",) if seed % 2 else (),
        )
        assert_judged(query, gallery, protocol, as_qrels(judged, query, gallery or query), judged)


@pytest.mark.parametrize("relevance", ["label", "radius"])
@pytest.mark.parametrize("level", ["none", "easy", "medium", "hard"])
def test_junk_of_the_qrels_is_ignored_whatever_the_relevance(relevance, level):
    for seed in range(12):
        query, gallery, judged = draw(seed, alone=seed % 4 == 1, positions=True)
        protocol = EvalProtocol(relevance=relevance, level=level, radius=25.0, ignore_same="sequence")
        assert_judged(query, gallery, protocol, as_qrels(judged, query, gallery or query), judged)


@pytest.mark.parametrize("radius", [5.0, 25.0, 24.999999999, 1000.0])
def test_a_radius_combines_with_everything_else(radius):
    for seed in range(16):
        query, gallery, _ = draw(seed, alone=seed % 4 == 1, positions=True)
        protocol = EvalProtocol(
            relevance="radius",
            radius=radius,
            ignore_same=IGNORING[seed % len(IGNORING)],
            junk_labels=("J",) if seed % 2 else (),
        )
        assert_judged(query, gallery, protocol)


def test_distractors_of_several_labels_are_never_positive():
    # EvalProtocol: "gallery items with one of these labels are never positive, and take ranks"
    query = SampleSet([("a",)], ids=["q"])
    gallery = SampleSet([("a", "bg"), ("a",)], ids=["x", "y"])
    protocol = EvalProtocol(relevance="labels", distractor_labels=("bg",))
    assert assert_judged(query, gallery, protocol) == [({1}, set())]


@pytest.mark.parametrize("relevance", ["radius", "qrels"])
def test_distractors_are_never_positive_whatever_the_relevance(relevance):
    query = SampleSet(["a"], ids=["q"], positions=[[0, 0]])
    gallery = SampleSet(["bg", "a"], ids=["x", "y"], positions=[[0, 1], [0, 2]])
    judged = [Judged(0, 0), Judged(0, 1)]
    protocol = EvalProtocol(relevance=relevance, distractor_labels=("bg",))
    try:
        found = assert_judged(query, gallery, protocol, as_qrels(judged, query, gallery), judged)
    except RecallatkError:
        return  # refusing what cannot be honoured would do as well
    assert found == [({1}, set())]


# Leave-one-out


@pytest.mark.parametrize("exclude_self", ["id", "content"])
def test_in_leave_one_out_a_row_is_itself_even_where_its_own_column_is_unknown(exclude_self):
    # build_relevance: "None for leave-one-out, where a row is always the same image as itself"
    query = SampleSet(["a", "a", "b"], same=["", "x", "y"], content=["", "c1", "c2"])
    relevance = build_relevance(query, None, EvalProtocol(exclude_self=exclude_self))
    rows = relevance.judge(slice(0, 3))
    own = set(zip(rows.ignored_queries.tolist(), rows.ignored_rows.tolist(), strict=True))
    assert {(0, 0), (1, 1), (2, 2)} <= own


# The radius


UTM = 5_412_345.678


@pytest.mark.parametrize(
    ("offset", "inside"),
    [((0, 25), True), ((25, 0), True), ((7, 24), True), ((-15, 20), True), ((0, 25.001), False), ((18, 18), False)],
)
def test_the_border_of_25_metres_is_inside_at_utm_scale(offset, inside):
    query = SampleSet([()], positions=[[654_321.123, UTM]])
    gallery = SampleSet([()], positions=[[654_321.123 + offset[0], UTM + offset[1]]])
    rows = build_relevance(query, gallery, EvalProtocol(relevance="radius")).judge(slice(0, 1))
    assert rows.positive_rows.tolist() == ([0] if inside else [])


def decimal_pairs(n: int, offsets, low: int, high: int):
    """Coordinates with three decimals, as a manifest has them, and the same moved by an exact decimal offset."""
    rng = np.random.default_rng(n)
    thousandths = rng.integers(low * 1000, high * 1000, size=(n, 2))
    moves = rng.choice([(round(x * 1000), round(y * 1000)) for x, y in offsets], size=n)
    as_doubles = [[float(Fraction(int(v), 1000)) for v in row] for row in thousandths]
    moved = [[float(Fraction(int(v), 1000)) for v in row] for row in thousandths + moves]
    return np.array(as_doubles), np.array(moved)


@pytest.mark.parametrize("whole", [True, False])
def test_points_that_are_25_metres_apart_in_the_manifest_are_within_25_metres(whole):
    # The nearest doubles of 5412345.678 and of 5412369.078 differ from their decimals by less than a nanometre; no
    # border point may be lost to that.
    offsets = [(0, 25), (7, 24), (-15, 20)] if whole else [(8.8, 23.4), (-23.4, 8.8), (13.44, 21.08)]
    query, gallery = decimal_pairs(300, offsets, 5_000_000, 6_000_000)
    relevance = build_relevance(
        SampleSet([()] * 300, positions=query),
        SampleSet([()] * 300, positions=gallery),
        EvalProtocol(relevance="radius"),
    )
    rows = relevance.judge(slice(0, 300))
    found = set(zip(rows.positive_queries.tolist(), rows.positive_rows.tolist(), strict=True))
    lost = [i for i in range(300) if (i, i) not in found]
    assert not lost, f"{len(lost)} of 300, e.g. {query[lost[0]]} and {gallery[lost[0]]}"


def test_thousands_of_points_are_judged_as_by_loops_over_exact_distances():
    rng = np.random.default_rng(5)
    query = np.array([654_000.125, UTM]) + rng.integers(0, 200, size=(30, 2)) * 2.5
    gallery = np.array([654_000.125, UTM]) + rng.integers(0, 200, size=(2000, 2)) * 2.5
    gallery[:500] = gallery[0]  # five hundred images of one place
    found = assert_judged(
        SampleSet([()] * 30, positions=query),
        SampleSet([()] * 2000, positions=gallery),
        EvalProtocol(relevance="radius", radius=25.0),
        step=17,
    )
    on_border = sum(
        float((dx := query[q] - gallery[g]) @ dx) == 625.0 for q, (positives, _) in enumerate(found) for g in positives
    )
    assert on_border > 5


@pytest.mark.parametrize("radius", [1e-200, 1e-9, 1e9, 1e200])
def test_no_radius_is_too_small_or_too_large(radius):
    query = SampleSet([()], positions=[[0, 0]])
    gallery = SampleSet([()] * 3, positions=[[0, 0], [1e-10, 0], [1e8, 1e8]])
    rows = build_relevance(query, gallery, EvalProtocol(relevance="radius", radius=radius)).judge(slice(0, 1))
    assert rows.positive_rows.tolist() == {1e-200: [0], 1e-9: [0, 1], 1e9: [0, 1, 2], 1e200: [0, 1, 2]}[radius]


@pytest.mark.parametrize("radius", [0, -1, float("inf"), float("nan")])
def test_what_is_no_radius_is_refused(radius):
    with pytest.raises(ChoiceError, match="radius"):
        EvalProtocol(relevance="radius", radius=radius)


@pytest.mark.parametrize(
    "choice", [{"min_grade": 1.5}, {"min_grade": "2"}, {"radius": "25"}, {"junk_labels": -1}, {"distractor_labels": 0}]
)
def test_a_choice_of_the_wrong_type_is_taken_or_refused_in_one_line(choice):
    (field,) = choice
    said = field
    try:
        EvalProtocol(**choice)
    except ChoiceError as error:
        said = str(error)
    assert field in said


@pytest.mark.parametrize(("one", "other"), [(25.0, 25.00001), (1_234_567.0, 1_234_568.0)])
def test_two_radii_are_two_rules_in_the_signature(one, other):
    assert EvalProtocol(relevance="radius", radius=one).relevance_rule != (
        EvalProtocol(relevance="radius", radius=other).relevance_rule
    )


# Grades and levels


def test_a_level_does_not_lift_the_least_grade():
    # min_grade: "with relevance=qrels: the least grade of a positive"
    query, gallery = SampleSet([()], ids=["q"]), SampleSet([()] * 2, ids=["x", "y"])
    judged = [Judged(0, 0, 1, "easy"), Judged(0, 1, 2, "easy")]
    protocol = EvalProtocol(relevance="qrels", level="easy", min_grade=2)
    assert assert_judged(query, gallery, protocol, as_qrels(judged, query, gallery), judged) == [({1}, set())]


def test_a_positive_of_grade_0_is_no_crash():
    query, gallery = SampleSet([()], ids=["q"]), SampleSet([()] * 2, ids=["x", "y"])
    qrels = Qrels(("q",), ("x",), np.array([0]), ("easy",))
    protocol = EvalProtocol(relevance="qrels", level="easy", ks=(1,))
    with pytest.raises(RecallatkError):
        evaluate_scores(np.array([[1.0, 2.0]]), query, gallery, qrels=qrels, protocol=protocol, metrics=["ndcg"])


def test_a_level_without_qrels_is_not_taken_in_silence():
    query = SampleSet(["a", "a"])
    with pytest.raises(RecallatkError, match="qrels"):
        evaluate_scores(np.eye(2), query, protocol=EvalProtocol(level="hard", ks=(1,)))


def test_a_level_needs_levels():
    query, gallery = SampleSet([()], ids=["q"]), SampleSet([()], ids=["x"])
    with pytest.raises(RecallatkError, match="level=hard needs a level for every judged pair"):
        build_relevance(
            query,
            gallery,
            EvalProtocol(relevance="qrels", level="hard"),
            qrels=Qrels(("q",), ("x",), np.array([1])),
        )


def test_a_junk_label_matches_in_any_unicode_form():
    gallery = SampleSet(["caf\u00e9", "a"])
    protocol = EvalProtocol(junk_labels=("cafe\u0301",), ks=(1,))
    assert evaluate_scores(np.array([[2.0, 1.0]]), SampleSet(["a"]), gallery, protocol=protocol)["recall@1"] == 1.0


def test_integer_labels_can_be_junk():
    protocol = EvalProtocol(junk_labels=(-1,), distractor_labels=(0,), ks=(1,))
    query, gallery = SampleSet(np.array([1, 0])), SampleSet(np.array([-1, 1, 0]))
    assert assert_judged(query, gallery, protocol) == [({1}, {0}), (set(), {0})]


@pytest.mark.parametrize("field", ["junk_labels", "distractor_labels"])
def test_a_label_that_no_item_has_is_said(field):
    protocol = EvalProtocol(**{field: ("no-such-label",)}, ks=(1,))
    report = evaluate_scores(np.array([[2.0, 1.0]]), SampleSet(["a"]), SampleSet(["b", "a"]), protocol=protocol)
    assert any("no-such-label" in warning for warning in report.warnings)


def test_a_level_that_is_a_typing_error_is_said():
    query, gallery = SampleSet([(), ()], ids=["q", "r"]), SampleSet([()] * 2, ids=["x", "y"])
    qrels = Qrels(("q", "r"), ("x", "y"), np.array([1, 1]), ("easy", "Easy"))
    protocol = EvalProtocol(relevance="qrels", level="easy", ks=(1,))
    said: object
    try:
        said = evaluate_scores(np.eye(2), query, gallery, qrels=qrels, protocol=protocol).warnings
    except RecallatkError as error:  # refusing it would do as well
        said = error
    assert "Easy" in str(said)


# Excluded queries, by reason


def market() -> tuple[EmbeddingSet, EmbeddingSet, EvalProtocol, Qrels]:
    """One query for every reason to have no positive, and one that has some."""
    names = ["ok", "self only", "camera only", "junk label", "listed junk", "nobody", "distractor", "self and camera"]
    query = EmbeddingSet(
        np.eye(8),
        labels=["ok", "s", "c", "-1", "l", "n", "0", "m"],
        ids=names,
        groups={"camera": ["1"] * 8},
        name="query",
    )
    rows = [
        ("g0", "ok", "2"),
        ("self only", "s", "9"),
        ("g2", "c", "1"),
        ("g3", "-1", "2"),
        ("g4", "l", "2"),
        ("g5", "0", "2"),
        ("self and camera", "m", "9"),
        ("g7", "m", "1"),
    ]
    gallery = EmbeddingSet(
        np.eye(8),
        labels=[label for _, label, _ in rows],
        ids=[name for name, _, _ in rows],
        groups={"camera": [camera for _, _, camera in rows]},
        name="gallery",
    )
    protocol = EvalProtocol(ks=(1,), ignore_same="camera+label", junk_labels=("-1",), distractor_labels=("0",))
    return query, gallery, protocol, Qrels(("listed junk",), ("g4",), np.array([0]), ("junk",))


def test_every_reason_is_counted_with_its_example():
    query, gallery, protocol, qrels = market()
    report = evaluate_embeddings(query, gallery, protocol=protocol, qrels=qrels)
    assert (report.num_queries, report.num_evaluated, report.num_excluded) == (8, 1, 7)
    examples = {group.example: (group.count, group.reason) for group in report.without_positive}
    for name, count, words in (
        ("self only", 1, ["the query itself", "exclude_self=id"]),
        ("camera only", 1, ["camera and label", "ignore_same=camera+label"]),
        ("junk label", 1, ["junk label", "-1"]),
        ("listed junk", 1, ["junk by the qrels"]),
        ("distractor", 2, ["no gallery item shares its label", "0"]),  # and "nobody": the first id is the example
        ("self and camera", 1, ["the query itself", "camera and label"]),
    ):
        assert examples[name][0] == count, name
        assert all(word in examples[name][1] for word in words), examples[name]


def test_a_reason_names_no_rule_that_removed_nothing():
    query, gallery, protocol, qrels = market()
    report = evaluate_embeddings(query, gallery, protocol=protocol, qrels=qrels)
    reason = next(group.reason for group in report.without_positive if group.example == "self and camera")
    assert "the query itself" in reason
    assert "camera" in reason
    assert "junk" not in reason


def test_the_error_counts_by_rule_when_nothing_is_left():
    query, gallery, protocol, _ = market()
    query, gallery = query.take([1, 2]), gallery.take([1, 2])
    with pytest.raises(RecallatkError) as error:
        evaluate_embeddings(query, gallery, protocol=protocol)
    text = str(error.value)
    assert "\n" not in text
    for words in ("2 queries", "camera", "'camera only'", "the query itself", "'self only'"):
        assert words in text


def test_counts_of_reasons_add_up_to_the_excluded_over_random_worlds():
    for seed in range(10):
        query, gallery, judged = draw(seed, several=bool(seed % 2))
        protocol = EvalProtocol(ks=(1,), ignore_same="camera+label", junk_labels=("J",), relevance="labels")
        found = assert_judged(query, gallery, protocol, as_qrels(judged, query, gallery), judged)
        empty = [q for q, (positives, _) in enumerate(found) if not positives]
        if len(empty) == len(query):
            continue
        scores = np.zeros((len(query), len(gallery)))
        report = evaluate_scores(scores, query, gallery, protocol=protocol, qrels=as_qrels(judged, query, gallery))
        assert sum(group.count for group in report.without_positive) == len(empty) == report.num_excluded
        assert {group.example for group in report.without_positive} <= {query.row_ids[q] for q in empty}


def test_radius_and_qrels_have_reasons_of_their_own():
    query = SampleSet([(), ()], ids=["near", "far"], positions=[[0, 0], [500, 0]])
    gallery = SampleSet([()], ids=["x"], positions=[[0, 20]])
    report = evaluate_scores(np.ones((2, 1)), query, gallery, protocol=EvalProtocol(relevance="radius", ks=(1,)))
    assert [(g.reason, g.count, g.example) for g in report.without_positive] == [("nothing is within 25 m", 1, "far")]
    qrels = Qrels(("near", "far"), ("x", "x"), np.array([2, 1]))
    protocol = EvalProtocol(relevance="qrels", min_grade=2, ks=(1,))
    report = evaluate_scores(np.ones((2, 1)), query, gallery, protocol=protocol, qrels=qrels)
    assert [g.example for g in report.without_positive] == ["far"]
    assert "min_grade=2" in report.without_positive[0].reason


# What cannot be done, in one line


@pytest.mark.parametrize(
    ("protocol", "columns", "words"),
    [
        (EvalProtocol(ignore_same="cam+label"), {}, ["'cam'", "camera", "sequence"]),
        (EvalProtocol(relevance="radius"), {}, ["position", "metres"]),
        (EvalProtocol(relevance="qrels"), {}, ["qrels"]),
        (EvalProtocol(exclude_self="content"), {"content": None}, ["content"]),
    ],
)
def test_what_is_missing_is_named(protocol, columns, words):
    given = {"groups": {"camera": ["1"], "sequence": ["u"]}, **columns}
    query = SampleSet(["a"], ids=["q"], name="query", **given)
    gallery = SampleSet(["a"], ids=["g"], name="gallery", **given)
    with pytest.raises(RecallatkError) as error:
        build_relevance(query, gallery, protocol)
    assert all(word in str(error.value) for word in words), error.value


def test_ids_that_the_qrels_name_and_nobody_has_are_counted():
    query, gallery = SampleSet([()], ids=["q"]), SampleSet([()], ids=["x"])
    qrels = Qrels(("q", "q", "r", "s"), ("x", "y", "x", "z"), np.ones(4, dtype=np.int64))
    doubts = build_relevance(query, gallery, EvalProtocol(relevance="qrels"), qrels=qrels).doubts
    assert ["2 queries" in doubts[0], "'r'" in doubts[0]] == [True, True]
    assert ["2 gallery items" in doubts[1], "'y'" in doubts[1]] == [True, True]


def test_a_macro_mean_without_labels_is_an_error_and_no_crash():
    query = SampleSet([()], positions=[[0, 0]])
    gallery = SampleSet([()], positions=[[0, 0]])
    protocol = EvalProtocol(relevance="radius", average="macro", ks=(1,))
    with pytest.raises(RecallatkError, match="label"):
        evaluate_scores(np.ones((1, 1)), query, gallery, protocol=protocol)


def test_a_label_on_one_side_only_does_not_contradict_where_labels_do_not_matter():
    query = SampleSet(["a"], ids=["i"], positions=[[0, 0]])
    gallery = SampleSet([(), ()], ids=["i", "j"], positions=[[0, 0], [0, 1]])
    report = evaluate_scores(
        np.ones((1, 2)), query, gallery, protocol=EvalProtocol(relevance="radius", ks=(1,), exclude_self="none")
    )
    assert report["recall@1"] == 1.0


# No list of all pairs


BIG = """
import resource
import numpy as np
from recallatk.evaluation import evaluate_embeddings
from recallatk.ranking import rank, to_grid
from recallatk.relevance import build_relevance
from recallatk.types import EmbeddingSet, EvalProtocol

rng = np.random.default_rng(0)
n = 60_000
labels = np.arange(n) % 10
rows = rng.normal(size=(n, 4)).astype(np.float32)
everything = EmbeddingSet(rows, labels, groups={"camera": [str(c) for c in rng.integers(0, 6, n)]})
protocol = EvalProtocol(ignore_same="camera+label", junk_labels=("9",))

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
relevance = build_relevance(everything, None, protocol)
assert relevance.pairs.sum() > 400_000_000
grid, = to_grid(rows)
blocks = rank(grid, grid, relevance, depth="first", memory=256 * 2**20, backend="reference")
assert len(next(blocks)) + len(next(blocks)) > 100
some = everything.take(range(150))
how = {"memory": 256 * 2**20, "backend": "reference"}
report = evaluate_embeddings(some, everything, protocol=protocol, metrics=["map", "cmc@1"], **how)
assert report.num_evaluated == 135, report.num_evaluated
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) // 1024)
"""


def test_ten_classes_of_six_thousand_stay_within_a_small_budget():
    # All pairs would be 360 million; as two columns of eight bytes 5.8 GB.
    done = subprocess.run([sys.executable, "-c", BIG], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 512


def test_a_block_is_cut_by_the_pairs_it_judges():
    labels = ["a"] * 50
    relevance = build_relevance(SampleSet(labels), SampleSet(labels), EvalProtocol())
    sizes = [len(block) for block in rank_scores(np.zeros((50, 50)), relevance, block=Block(queries=40, pairs=120))]
    assert sizes == [2] * 25
