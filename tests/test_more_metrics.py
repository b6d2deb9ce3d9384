"""Every metric, query by query, against the oracle: small sets full of ties, from every source of similarities."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import oracle
from recallatk.evaluation import evaluate_scores
from recallatk.metrics import METRICS, parse_metric
from recallatk.ranking import Block, RankedRows, Ranking, rank, rank_scores, to_grid
from recallatk.relevance import build_relevance
from recallatk.types import ChoiceError, EvalProtocol, Qrels, SampleSet

TIES = ("expected", "pessimistic", "optimistic")
CUTOFFS = (1, 2, 3, 5, 30)
SOURCES = ("embeddings", "scores", "lists")
NAMES = [
    text
    for name, row in METRICS.items()
    for text in (
        *([name] if row.cutoff != "always" else []),
        *([f"{name}@{k}" for k in CUTOFFS] if row.cutoff != "never" else []),
    )
]
"""Every metric of the table, at every cutoff that it takes."""

DIRECTIONS = np.array([[1, 0], [0, 1], [-1, 0], [3, 4], [4, -3], [-4, 3]], dtype=np.float32)
"""Angles that meet again: most similarities of a small set are shared by several items, and half are negative."""


@dataclasses.dataclass(frozen=True)
class World:
    """A few queries: the similarity of every gallery item (None: not in the list), who is positive, with what grade."""

    similarities: list[list[int | None]]
    grades: list[dict[int, int]]
    ignored: list[set[int]]
    graded: bool
    queries: np.ndarray | None = None
    gallery: np.ndarray | None = None
    ranked: dict[tuple[object, ...], list[Ranking]] = dataclasses.field(default_factory=dict, repr=False)

    def relevance(self):
        """Positives by qrels, or by a label that says whose positive an item is; what is ignored is junk."""
        n, m = len(self.similarities), len(self.similarities[0])
        pairs = [(q, g, grade, "easy") for q, row in enumerate(self.grades) for g, grade in row.items()]
        pairs += [(q, g, 1, "junk") for q, row in enumerate(self.ignored) for g in row]
        query_ids, item_ids, grades, levels = zip(*pairs, strict=True) if pairs else ((), (), (), ())
        mine = [tuple(f"of {q}" for q in range(n) if g in self.grades[q]) for g in range(m)]
        return build_relevance(
            SampleSet([(f"of {q}",) for q in range(n)], ids=[f"q{q}" for q in range(n)]),
            SampleSet(mine, ids=[f"g{g}" for g in range(m)]),
            EvalProtocol(relevance="qrels" if self.graded else "labels", exclude_self="none"),
            qrels=Qrels(
                tuple(f"q{q}" for q in query_ids),
                tuple(f"g{g}" for g in item_ids),
                np.array(grades, dtype=np.int64),
                tuple(levels),
            ),
        )

    def blocks(self, *, depth, block=None):
        """The engine's counts."""
        if self.queries is not None:
            grids = to_grid(self.queries, self.gallery)
            return rank(*grids, self.relevance(), depth=depth, block=block)
        if all(s is not None for row in self.similarities for s in row):
            matrix = np.array(self.similarities, dtype=np.float64)
            return rank_scores(matrix, self.relevance(), depth=depth, block=block)
        rng = np.random.default_rng(len(self.similarities))
        listed = [[(g, s) for g, s in enumerate(row) if s is not None] for row in self.similarities]
        listed = [[row[i] for i in rng.permutation(len(row))] for row in listed]  # a list may come in any order
        entries = [entry for row in listed for entry in row]
        return rank_scores(
            RankedRows(
                np.cumsum([0, *map(len, listed)]),
                np.array([g for g, _ in entries], dtype=np.int64),
                np.array([s for _, s in entries], dtype=np.float64),
            ),
            self.relevance(),
            depth=depth,
            block=block,
        )

    def values(self, text, ties, *, depth="all", block=None):
        """The engine's value of every query."""
        if (depth, block) not in self.ranked:
            self.ranked[depth, block] = list(self.blocks(depth=depth, block=block))
        metric = parse_metric(text)
        return np.concatenate([metric.values(ranking, ties=ties) for ranking in self.ranked[depth, block]]).tolist()

    def expected(self, text, ties):
        """The oracle's value of every query; 0 for a query without a positive, as METRICS says."""
        name = parse_metric(text)
        return [
            float(oracle.value(name.name, sims, set(grades), ignored, k=name.k, ties=ties, grades=grades) or 0)
            for sims, grades, ignored in zip(self.similarities, self.grades, self.ignored, strict=True)
        ]


def draw(seed: int, source: str) -> World:
    rng = np.random.default_rng([seed, SOURCES.index(source)])
    n, m = int(rng.integers(1, 5)), int(rng.integers(1, 9))
    queries = gallery = None
    if source == "embeddings":
        some = DIRECTIONS[rng.choice(len(DIRECTIONS), size=rng.integers(1, 5), replace=False)]
        queries, gallery = (some[rng.integers(len(some), size=size)] for size in (n, m))
        sims = oracle.similarities(queries, gallery)
    else:
        sims = rng.integers(-2, rng.integers(-1, 3), size=(n, m)).tolist()
    if source == "lists":
        sims = [[s if rng.random() < 0.7 else None for s in row] for row in sims]
        sims[0][0] = None  # a list, whatever the dice say
    kinds = rng.choice(3, p=[0.4, 0.45, 0.15], size=(n, m))
    graded = bool(seed % 2)
    return World(
        sims,
        [{g: int(rng.integers(1, 4)) if graded else 1 for g in range(m) if row[g] == 1} for row in kinds],
        [{g for g in range(m) if row[g] == 2} for row in kinds],
        graded,
        queries,
        gallery,
    )


WORLDS = {source: [draw(seed, source) for seed in range(60)] for source in SOURCES}


def test_every_metric_has_an_oracle():
    assert set(METRICS) == set(oracle.METRICS)


def test_the_worlds_hold_what_goes_wrong():
    worlds = [world for some in WORLDS.values() for world in some]
    rows = [row for world in worlds for row in zip(world.similarities, world.grades, world.ignored, strict=True)]
    assert any(not grades for _, grades, _ in rows)
    assert any(s is not None and s < 0 for sims, _, _ in rows for s in sims)
    assert any(all(s is None for s in sims) for sims, _, _ in rows)
    assert any(grades and all(sims[g] is None for g in grades) for sims, grades, _ in rows)
    moved = [w for w in worlds if w.graded and w.expected("ndcg", "pessimistic") != w.expected("ndcg", "optimistic")]
    assert len(moved) > 10


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("text", NAMES)
def test_a_metric_is_what_its_definition_says(text, source):
    for world, ties in itertools.product(WORLDS[source], TIES):
        assert world.values(text, ties) == pytest.approx(world.expected(text, ties), abs=1e-12), (world, ties)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("text", [text for text in NAMES if parse_metric(text).metric.depth == "first"])
def test_metrics_of_the_first_positive_need_no_more_than_that(text, source):
    for world, ties in itertools.product(WORLDS[source], TIES):
        assert world.values(text, ties, depth="first") == world.values(text, ties)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("block", [Block(1, 1, 1), Block(2, 3, 2), Block(3, 100, 3), Block(100, 2, 100)])
def test_no_block_size_moves_a_value(source, block):
    for world, text, ties in itertools.product(WORLDS[source][:12], NAMES[::2], TIES):
        assert world.values(text, ties, block=block) == world.values(text, ties)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("text", NAMES)
def test_the_expected_value_lies_between_the_worst_and_the_best_and_all_within_0_and_1(text, source):
    for world in WORLDS[source]:
        low, middle, high = (np.array(world.values(text, ties)) for ties in ("pessimistic", "expected", "optimistic"))
        assert (low >= 0).all()
        assert (low <= middle + 1e-12).all()
        assert (middle <= high + 1e-12).all()
        assert (high <= 1).all()


# Everything tied: no order is tried, the chance of every outcome is counted


@dataclasses.dataclass(frozen=True)
class Tied:
    """N tied items, R of them positives, and a cutoff k (at most N)."""

    n: int
    r: int
    k: int

    def total(self, part, cut=None) -> Fraction:
        """The mean of the sum of part(i, j) over the ranks i up to the cut that hold a positive, with j before it."""
        ways = math.comb(self.n, self.r)
        return sum(
            (
                Fraction(math.comb(i - 1, j) * math.comb(self.n - i, self.r - 1 - j), ways) * part(i, j)
                for i in range(1, (cut or self.n) + 1)
                for j in range(max(0, self.r - 1 - (self.n - i)), min(i, self.r))
            ),
            Fraction(0),
        )

    def found(self, part) -> Fraction:
        """The mean of part(f), with f positives among the first k."""
        ways = math.comb(self.n, self.r)
        return sum(
            (
                Fraction(math.comb(self.k, f) * math.comb(self.n - self.k, self.r - f), ways) * part(f)
                for f in range(max(0, self.k - self.n + self.r), min(self.k, self.r) + 1)
            ),
            Fraction(0),
        )


def precision(i: int, j: int) -> Fraction:
    return Fraction(j + 1, i)


def precision_before(i: int, j: int) -> Fraction:
    return Fraction(j, i - 1) if i > 1 else Fraction(1)


def discount(i: int, j: int = 0) -> Fraction:
    return Fraction(1 / math.log2(i + 1))


COLLAPSED = {
    "recall": lambda tied, k: tied.found(lambda f: f > 0),
    "cmc": lambda tied, k: tied.total(lambda i, j: j == 0, tied.k),
    "mrr": lambda tied, k: tied.total(lambda i, j: Fraction(j == 0, i)),
    "set_recall": lambda tied, k: tied.found(lambda f: Fraction(f, tied.r)),
    "capped_recall": lambda tied, k: tied.found(lambda f: Fraction(f, min(tied.r, k))),
    "precision": lambda tied, k: tied.found(lambda f: Fraction(f, k)),
    "r_precision": lambda tied, k: tied.total(lambda i, j: Fraction(1, tied.r), tied.r),
    "map": lambda tied, k: tied.total(precision, tied.k) / tied.r,
    "map_capped": lambda tied, k: tied.total(precision, tied.k) / min(tied.r, k),
    "map_r": lambda tied, k: tied.total(precision, tied.r) / tied.r,
    "map_trapezoid": lambda tied, k: (
        (tied.total(precision, tied.k) + tied.total(precision_before, tied.k)) / 2 / tied.r
    ),
    "minp": lambda tied, k: tied.total(lambda i, j: Fraction(tied.r * (j == tied.r - 1), i)),
    "mp": lambda tied, k: (
        tied.total(lambda i, j: Fraction(tied.r * (j == tied.r - 1), i), tied.k)
        + tied.found(lambda f: Fraction(f * (f < tied.r), k))
    ),
    "ndcg": lambda tied, k: tied.total(discount, tied.k) / sum(discount(i) for i in range(1, min(tied.k, tied.r) + 1)),
}
"""The mean over all orders of a collapsed world, from the chances of its outcomes; k is the cutoff as it was given."""


def collapsed(text: str, n: int, n_positives: int) -> float:
    name = parse_metric(text)
    return float(COLLAPSED[name.name](Tied(n, n_positives, min(name.k or n, n)), name.k))


@pytest.mark.parametrize("text", NAMES)
def test_the_chances_of_a_collapsed_world_are_those_of_all_its_orders(text):
    name = parse_metric(text)
    for n, n_positives in ((1, 1), (4, 1), (6, 3), (7, 6)):
        tried = oracle.value(name.name, [5] * n, set(range(n_positives)), k=name.k)
        assert collapsed(text, n, n_positives) == pytest.approx(float(tried), abs=1e-15)


@pytest.mark.parametrize("n_positives", [1, 8, 150])
@pytest.mark.parametrize("text", [*NAMES, "map@150", "mp@170", "ndcg@199", "capped_recall@100"])
def test_an_encoder_that_maps_200_items_to_one_point_scores_the_mean_over_all_orders(text, n_positives):
    rng = np.random.default_rng(n_positives)
    rows = rng.permutation(203)
    world = World(
        [[0] * 203],
        [dict.fromkeys(rows[:n_positives].tolist(), 1)],
        [set(rows[200:].tolist())],
        graded=False,
        queries=np.array([[3, 4]], dtype=np.float32),
        gallery=np.tile(np.array([[3, 4]], dtype=np.float32), (203, 1)),
    )
    assert world.values(text, "expected") == pytest.approx([collapsed(text, 200, n_positives)], rel=1e-11)


def test_a_large_tied_group_keeps_its_digits():
    # One positive among many tied items stands at every rank alike.
    n = 200_000
    world = World([[0] * n], [{7: 1}], [set()], graded=False)
    harmonic = math.fsum(1 / i for i in range(1, n + 1))
    for text, total in (
        ("recall@10", 10),
        ("mrr", harmonic),
        ("map", harmonic),
        ("minp", harmonic),
        ("map@1000", math.fsum(1 / i for i in range(1, 1001))),
        ("ndcg", math.fsum(1 / math.log2(i + 1) for i in range(1, n + 1))),
        ("set_recall@500", 500),
        ("precision@500", 1),
        ("r_precision", 1),
        ("map_r", 1),
    ):
        assert world.values(text, "expected") == pytest.approx([total / n], rel=1e-12)


# What is exact stays exact


BELOW_1 = ("set_recall", "precision", "map", "map_trapezoid")
"""At a cutoff other than R these stay below 1 even at their best."""


@pytest.mark.parametrize(
    "text",
    [t for t in (*NAMES, "ndcg@37", "mp@60") if parse_metric(t).k is None or parse_metric(t).name not in BELOW_1],
)
def test_a_perfect_ranking_scores_exactly_1(text):
    for n_positives in range(1, 60):
        grades = {g: 1 + (n_positives - g) // 2 for g in range(n_positives)}
        world = World([[-g for g in range(60)]], [grades], [set()], graded=True)
        assert world.values(text, "expected") == [1.0], n_positives


def test_gains_are_linear_in_the_grade_and_the_best_order_counts_what_was_never_returned():
    # Grades 3, 1 at ranks 2, 1; the item of grade 2 was not returned. Ideal: 3, 2, 1.
    world = World([[1, 2, None]], [{0: 3, 1: 1, 2: 2}], [set()], graded=True)
    best = 3 + 2 / math.log2(3) + 1 / 2
    assert world.values("ndcg", "expected") == pytest.approx([(1 + 3 / math.log2(3)) / best], abs=1e-15)
    assert world.values("ndcg@1", "expected") == pytest.approx([1 / 3], abs=1e-15)
    assert world.values("set_recall@5", "expected") == pytest.approx([2 / 3], abs=1e-15)
    assert world.values("minp", "expected") == [0.0]


def test_tied_grades_fall_under_the_tie_rule():
    # Grades 3 and 1 share one level with a negative: 3, 1, 0 at best; 0, 1, 3 at worst; 4/3 each in the mean.
    world = World([[1, 1, 1]], [{0: 3, 1: 1}], [set()], graded=True)
    second, third = 1 / math.log2(3), 1 / 2
    best = 3 + second
    assert world.values("ndcg", "optimistic") == [1.0]
    assert world.values("ndcg", "pessimistic") == pytest.approx([(second + 3 * third) / best], abs=1e-15)
    assert world.values("ndcg", "expected") == pytest.approx([4 / 3 * (1 + second + third) / best], abs=1e-15)


def test_average_precision_in_its_conventions_on_one_ranking():
    # Positives at ranks 2 and 4 of 5, R = 2: precisions 1/2 and 2/4; before them 0/1 and 1/3.
    world = World([[5, 4, 3, 2, 1]], [{1: 1, 3: 1}], [set()], graded=False)
    for text, value in (
        ("map", Fraction(1, 2)),
        ("map@3", Fraction(1, 4)),
        ("map_capped@3", Fraction(1, 4)),
        ("map_capped@1", Fraction(0)),
        ("map_r", Fraction(1, 4)),
        ("map_trapezoid", (Fraction(1, 4) + (Fraction(1, 3) + Fraction(1, 2)) / 2) / 2),
        ("map_trapezoid@3", Fraction(1, 4) / 2),
        ("r_precision", Fraction(1, 2)),
        ("minp", Fraction(2, 4)),
        ("mp@3", Fraction(1, 3)),
        ("mp@4", Fraction(1, 2)),
        ("mp@5", Fraction(2, 4)),  # the last positive comes at 4
        ("precision@5", Fraction(2, 5)),
        ("capped_recall@1", Fraction(0)),
        ("capped_recall@3", Fraction(1, 2)),
    ):
        assert world.values(text, "expected") == pytest.approx([float(value)], abs=1e-15), text


def test_the_divisor_of_average_precision_at_k_is_in_the_name():
    # Three positives first; at k = 2 two precisions of 1 add up, divided by R = 3 or by min(k, R) = 2.
    world = World([[5, 4, 3, 2]], [{0: 1, 1: 1, 2: 1}], [set()], graded=False)
    assert world.values("map@2", "expected") == pytest.approx([2 / 3], abs=1e-15)
    assert world.values("map_capped@2", "expected") == [1.0]
    assert world.values("set_recall@2", "expected") == pytest.approx([2 / 3], abs=1e-15)
    assert world.values("capped_recall@2", "expected") == [1.0]


# Names


@pytest.mark.parametrize("text", NAMES)
def test_the_text_of_a_metric_round_trips(text):
    assert str(parse_metric(text)) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mapp", "did you mean 'map'"),
        ("nDCG@10", "did you mean 'ndcg@10'"),
        ("recall", "needs a cutoff"),
        ("map_capped", "needs a cutoff"),
        ("mrr@10", "takes no cutoff"),
        ("map_r@10", "takes no cutoff"),
        ("map@", "needs a cutoff"),
        ("map@0", "at least 1"),
        ("ndcg@-1", "at least 1"),
        ("recall@1.5", "at least 1"),
        ("precision@\u0661", "at least 1"),  # an Arabic one
        ("MRR", "did you mean 'mrr'"),
        ("MRR@10", "did you mean 'mrr'"),  # not 'mrr@10', which is refused in turn
        ("MAP@R", "the metric is called 'map_r' here"),
        ("hit_rate@5", "did you mean 'recall@5'"),
    ],
)
def test_a_wrong_name_is_refused_in_words(text, words):
    with pytest.raises(ChoiceError, match=words):
        parse_metric(text)


def test_a_cutoff_beyond_the_gallery_is_said_for_every_metric():
    # "K larger than what is left of the gallery means all of it; the report says so"
    protocol = EvalProtocol(ks=(1,))
    report = evaluate_scores(np.diag([1.0, 2.0, 3.0]), SampleSet(["a", "a", "b"]), protocol=protocol)
    assert not any("fewer than" in warning for warning in report.warnings)
    for text in ("recall@100", "precision@100", "set_recall@100"):
        report = evaluate_scores(
            np.diag([1.0, 2.0, 3.0]), SampleSet(["a", "a", "b"]), protocol=protocol, metrics=[text]
        )
        assert any("100" in warning and "fewer" in warning for warning in report.warnings), text


@pytest.mark.parametrize("name", [name for name, row in METRICS.items() if row.cutoff != "never"])
def test_a_cutoff_is_large_or_refused_and_never_an_overflow(name):
    world = World([[3, 2, 1]], [{1: 1}], [set()], graded=False)
    text = f"{name}@{2**62}"
    assert world.values(text, "expected") == pytest.approx(world.expected(text, "expected"), abs=1e-15)
    with pytest.raises(ChoiceError, match="large"):
        parse_metric(f"{name}@{10**20}")


def test_every_metric_says_what_it_is_and_what_ties_do():
    for name, row in METRICS.items():
        described = row.compute.__doc__ or ""
        if name != "cmc":
            assert described.startswith(name), name
        assert "ties" in described.lower(), name
        assert row.summary
