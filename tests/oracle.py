"""What the number means, a second time: loops, whole numbers and fractions only.

The engine is tested against this file by value. It is written from the definitions, not from the engine, and it is
slow on purpose: every row is rounded by exact arithmetic, every similarity is a whole number, and the mean over the
orders of tied items is taken over those orders, one after the other.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

GRID_BITS = 26
"""Coordinates are whole multiples of 2^-26, so similarities are whole multiples of 2^-52."""

NEAR = math.floor(Fraction(1, 10**6) * 2 ** (2 * GRID_BITS))
"""The widest gap, in steps of 2^-52, that still lies within 1e-6."""

MOST_ORDERS = 200_000

RAW_BITS = {"dot": 26, "euclidean": 25}
"""Raw rows share one scale, a power of two: the longest is less than 2^26 (2^25) steps long, before it is rounded."""

LEVELS = {"easy": ({"easy"}, {"hard"}), "medium": ({"easy", "hard"}, set()), "hard": ({"hard"}, {"easy"})}
"""The revisited protocols: which judged images are positive, and which are ignored beside junk."""

Labels = str | Sequence[str]


@dataclasses.dataclass(frozen=True)
class Judged:
    """A row of the qrels, with row numbers in place of names."""

    query: int
    item: int
    grade: int = 1
    level: str | None = None


@dataclasses.dataclass(frozen=True)
class Side:
    """The columns of queries or of a gallery; an `EmbeddingSet` has the same names and fits as well."""

    labels: Sequence[Labels]
    identity: Sequence[str] | None = None
    content: Sequence[str] | None = None
    groups: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    positions: Sequence[Sequence[float]] | None = None


# The grid


def grid_row(row: Iterable[Any]) -> list[int]:
    """One row as float32, at unit length, each coordinate rounded half to even to a multiple of 2^-26."""
    return [value for value, _ in _on_grid(row)]


def near_border(row: Iterable[Any]) -> list[bool]:
    """Whether each coordinate lies so near a rounding border that a float64 computation may differ by one step."""
    return [near for _, near in _on_grid(row)]


def _on_grid(row: Iterable[Any]) -> list[tuple[int, bool]]:
    exact = [Fraction(float(np.float32(value))) for value in row]
    squared_length = sum((x * x for x in exact), Fraction(0))
    if squared_length == 0:
        raise ValueError("an all-zero row has no direction")
    # In float64 the sum of d squares, the root and the division err by less than d/2 + 3 roundings, relatively.
    roundings = Fraction(len(exact) + 8, 2**53)
    coordinates = []
    for x in exact:
        # t = |x| / length * 2^26 may be irrational, t squared is not: floor(t) is the whole root of floor(t squared).
        t_squared = x * x * 2 ** (2 * GRID_BITS) / squared_length
        below = math.isqrt(math.floor(t_squared))
        border = below + Fraction(1, 2)
        up = t_squared > border**2 or (t_squared == border**2 and below % 2 == 1)
        slack = (below + 1) * roundings
        near = (border - slack) ** 2 <= t_squared <= (border + slack) ** 2
        coordinates.append(((below + up) * (-1 if x < 0 else 1), near))
    return coordinates


def similarity(a: Sequence[int], b: Sequence[int]) -> int:
    """The exact inner product of two grid rows, in steps of 2^-52."""
    return sum(int(x) * int(y) for x, y in zip(a, b, strict=True))


def similarities(
    query: Iterable[Iterable[Any]], gallery: Iterable[Iterable[Any]], kind: str = "cosine"
) -> list[list[int]]:
    """One row of exact similarities for each query, one column for each gallery item; raw rows go in.

    Args:
        query: the rows of the queries.
        gallery: the rows of the gallery.
        kind: `cosine`; `dot` or `euclidean` (minus the squared distance) on the rows as they are.
    """
    if kind == "cosine":
        rows, columns = [grid_row(row) for row in query], [grid_row(row) for row in gallery]
    else:
        rows, columns = raw_rows(query, gallery, kind=kind)
    compare = squared_distance if kind == "euclidean" else similarity
    return [[compare(a, b) for b in columns] for a in rows]


def squared_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Minus the squared distance, so that higher is nearer."""
    return -sum((int(x) - int(y)) ** 2 for x, y in zip(a, b, strict=True))


def raw_rows(*sets: Iterable[Iterable[Any]], kind: str) -> list[list[list[int]]]:
    """Rows as float32, times the power of two that makes the longest of all sets 2^25 to 2^26 steps long (euclidean:
    2^24 to 2^25), each coordinate rounded half to even.
    """
    exact = [[[Fraction(float(np.float32(value))) for value in row] for row in rows] for rows in sets]
    longest = max(sum((x * x for x in row), Fraction(0)) for rows in exact for row in rows)
    bits = 0  # 2^bits times the length is at least 2^(b - 1) and less than 2^b
    while longest and longest * Fraction(4) ** bits >= 4 ** RAW_BITS[kind]:
        bits -= 1
    while longest and longest * Fraction(4) ** (bits + 1) < 4 ** RAW_BITS[kind]:
        bits += 1
    return [[[round(x * Fraction(2) ** bits) for x in row] for row in rows] for rows in exact]


# Who is positive, who is ignored


def judge(
    query: Side,
    gallery: Side,
    *,
    exclude_self: str = "id",
    ignore_same: Sequence[str] = (),
    relevance: str = "label",
    radius: float = 25.0,
    qrels: Sequence[Judged] = (),
    min_grade: int = 1,
    level: str = "none",
    junk_labels: Sequence[str] = (),
    distractor_labels: Sequence[str] = (),
) -> list[tuple[set[int], set[int]]]:
    """For each query the gallery rows that are positive, and those that do not exist for it.

    Args:
        query: the columns of the queries.
        gallery: the columns of the gallery; the same object as `query` for leave-one-out.
        exclude_self: `id` (equal identity), `content` (equal image bytes) or `none`; alone, a row is itself also where
            its cell is empty.
        ignore_same: an item equal to the query in all of these columns is ignored; the column `label` means that
            at least one label is shared. An empty text says "unknown" and equals nothing, here and for itself.
        relevance: `label` and `labels` (at least one is shared), `radius`, or `qrels`.
        radius: the greatest distance of a positive, in metres, the border included.
        qrels: judged pairs; those that the level makes junk are ignored whatever the relevance.
        min_grade: the least grade of a positive.
        level: `easy`, `medium` or `hard`: the positives are also of this level; `none`: levels are not looked at.
        junk_labels: gallery items with one of these labels are ignored.
        distractor_labels: gallery items with one of these labels are never positive.
    """
    pairs = {(pair.query, pair.item): pair for pair in qrels}
    judged = []
    for q in range(len(query.labels)):
        positives, ignored = set(), set()
        for g in range(len(gallery.labels)):
            labels = label_set(gallery.labels[g])
            shared = bool(label_set(query.labels[q]) & labels)
            pair = pairs.get((q, g))
            same = [shared if c == "label" else _equal(query.groups[c][q], gallery.groups[c][g]) for c in ignore_same]
            if (
                _is_itself(query, q, gallery, g, exclude_self)
                or (same and all(same))
                or labels & set(junk_labels)
                or (pair is not None and _is_junk(pair, level))
            ):
                ignored.add(g)
            elif not labels & set(distractor_labels) and (
                shared
                if relevance in ("label", "labels")
                else _is_near(query, q, gallery, g, radius)
                if relevance == "radius"
                else pair is not None and _is_positive(pair, level, min_grade)
            ):
                positives.add(g)
        judged.append((positives, ignored))
    return judged


def _is_junk(pair: Judged, level: str) -> bool:
    return pair.level == "junk" or (level != "none" and pair.level in LEVELS[level][1])


def _is_positive(pair: Judged, level: str, min_grade: int) -> bool:
    return pair.grade >= min_grade and (level == "none" or pair.level in LEVELS[level][0])


def _is_near(query: Side, q: int, gallery: Side, g: int, radius: float) -> bool:
    """Whether two points, as the double precision numbers they are, lie within the radius; nothing is rounded."""
    if query.positions is None or gallery.positions is None:
        raise ValueError("a radius needs positions")
    offsets = [
        Fraction(float(a)) - Fraction(float(b)) for a, b in zip(query.positions[q], gallery.positions[g], strict=True)
    ]
    return sum((offset * offset for offset in offsets), Fraction(0)) <= Fraction(radius) ** 2


def label_set(label: Labels) -> set[str]:
    """One text is one label; a sequence holds several, or none."""
    return {label} if isinstance(label, str) else set(label)


def _equal(a: str, b: str) -> bool:
    return a == b != ""


def _is_itself(query: Side, q: int, gallery: Side, g: int, exclude_self: str) -> bool:
    if exclude_self == "none":
        return False
    if exclude_self == "content":
        if query.content is None or gallery.content is None:
            raise ValueError("exclude_self='content' needs the content of both sides")
        return _equal(query.content[q], gallery.content[g]) or (query is gallery and q == g)
    if query is gallery and q == g:
        return True  # alone, a row is itself, whatever is known of it
    if query.identity is None or gallery.identity is None:
        return False  # row numbers are no names: they never match across sets
    return _equal(query.identity[q], gallery.identity[g])


# One query


def levels(
    sims: Sequence[int | float | None], positives: set[int], ignored: set[int]
) -> list[tuple[int | float, int, int, int]]:
    """(similarity, negatives ahead, negatives tied, positives tied) at each level of the positives, best first."""
    negatives = [s for g, s in enumerate(sims) if g not in positives and g not in ignored and s is not None]
    found = [s for g, s in enumerate(sims) if g in positives and s is not None]
    return [
        (level, sum(s > level for s in negatives), sum(s == level for s in negatives), sum(s == level for s in found))
        for level in sorted(set(found), reverse=True)
    ]


def near_negatives(sims: Sequence[int], positives: set[int], ignored: set[int], near: int = NEAR) -> tuple[int, int]:
    """The negatives strictly above and strictly below the best positive, but within 1e-6 of it."""
    best = max(sims[g] for g in positives)
    gaps = [s - best for g, s in enumerate(sims) if g not in positives and g not in ignored]
    return sum(0 < gap <= near for gap in gaps), sum(-near <= gap < 0 for gap in gaps)


def value(
    metric: str,
    sims: Sequence[int | float | None],
    positives: set[int],
    ignored: set[int] = frozenset(),  # type: ignore[assignment]  # only read
    k: int | None = None,
    ties: str = "expected",
    grades: Mapping[int, int] | None = None,
) -> Fraction | None:
    """One query's value, or None where nothing is positive: the caller excludes it, or counts a miss.

    Args:
        metric: a name in METRICS.
        sims: the similarity of every gallery item; None where a ranked list does not hold it: it has no rank, and a
            positive among such items still counts in the number of positives.
        positives: the rows of the positives; none of them may be ignored.
        ignored: the rows that do not exist for this query.
        k: the cutoff; beyond what is left of the gallery it means all of it.
        ties: `expected` is the plain mean over every order inside every group of equal similarities.
        grades: the gain of each positive, for ndcg; 1 where nothing is said.
    """
    if positives & ignored:
        raise ValueError("a row is positive and ignored")
    if metric in NEED_K and (k is None or k < 1):
        raise ValueError(f"{metric} needs a cutoff k of at least 1")
    if not positives:
        return None
    gains = {g: grades[g] if grades and metric == "ndcg" else 1 for g in positives}
    left = [(s, gains.get(g, 0)) for g, s in enumerate(sims) if g not in ignored and s is not None]
    groups = [[gain for s, gain in left if s == level] for level in sorted({s for s, _ in left}, reverse=True)]
    groups = groups[: 1 + max((i for i, group in enumerate(groups) if any(group)), default=-1)]
    # The order of what cannot matter is not tried: groups behind the first positive, or that begin beyond a cutoff.
    if metric == "mrr":
        groups = groups[: 1 + next((i for i, group in enumerate(groups) if any(group)), -1)]
    cut = len(positives) if metric in CUT_AT_R else k if metric in (*NEED_K, *MAY_HAVE_K) else None
    if cut is not None:
        starts = itertools.accumulate((len(group) for group in groups), initial=0)
        groups = [group for group, start in zip(groups, starts, strict=False) if start < cut]
    total, n = Fraction(0), 0
    for order in _orders(groups, ties):
        total += METRICS[metric](order, sorted(gains.values(), reverse=True), k)
        n += 1
    return total / n


def _orders(groups: Sequence[Sequence[int]], ties: str) -> Iterator[list[int]]:
    """Rankings as the gain at each rank, 0 for a negative: least gains first, greatest first, or every way to mix.

    Orders that look the same are given once; each stands for equally many orders of the items themselves.
    """
    choices: list[list[list[int]]] = []
    for group in groups:
        if ties == "expected":
            orders = math.factorial(len(group))
            for gain in set(group):
                orders //= math.factorial(group.count(gain))
            if orders > MOST_ORDERS:
                raise ValueError(f"{len(group)} tied items have too many orders to try them all")
            choices.append(list(_mixed(group)))
        else:
            choices.append([sorted(group, reverse={"pessimistic": False, "optimistic": True}[ties])])
    if math.prod(len(choice) for choice in choices) > MOST_ORDERS:
        raise ValueError("the tied groups have too many orders to try them all")
    for mixed in itertools.product(*choices):
        yield [gain for group in mixed for gain in group]


def _mixed(group: Sequence[int]) -> Iterator[list[int]]:
    if not group:
        yield []
    for first in sorted(set(group)):
        rest = list(group)
        rest.remove(first)
        for behind in _mixed(rest):
            yield [first, *behind]


# The metrics: from the gain at each rank (the first is rank 1), the gains of all positives (the greatest first; their
# number is R), and k


def _found(order: Sequence[int], k: int | None) -> int:
    """The positives among the first k."""
    return sum(gain > 0 for gain in order[:k])


def _ranks(order: Sequence[int]) -> list[int]:
    """The ranks of the positives."""
    return [rank for rank, gain in enumerate(order, start=1) if gain > 0]


def _reciprocal_rank(order: Sequence[int], gains: Sequence[int], k: int | None) -> Fraction:
    return next((Fraction(1, rank) for rank in _ranks(order)), Fraction(0))


def _precisions(order: Sequence[int], k: int | None) -> Fraction:
    """The sum, over the ranks up to k that hold a positive, of the precision at that rank."""
    return sum((Fraction(_found(order, r), r) for r in _ranks(order) if k is None or r <= k), Fraction(0))


def _trapezoid(order: Sequence[int], gains: Sequence[int], k: int | None) -> Fraction:
    """The area under precision over recall: each positive moves recall by 1/R; precision is 1 before the first rank."""
    area = Fraction(0)
    for rank in _ranks(order[:k]):
        before = Fraction(_found(order, rank - 1), rank - 1) if rank > 1 else Fraction(1)
        area += (before + Fraction(_found(order, rank), rank)) / 2 * Fraction(1, len(gains))
    return area


def _discounted(order: Sequence[int], k: int | None) -> Fraction:
    """A logarithm is no fraction: the nearest double stands for it."""
    return sum((Fraction(gain) / Fraction(math.log2(rank + 1)) for rank, gain in enumerate(order[:k], 1)), Fraction(0))


def _inverse_penalty(order: Sequence[int], gains: Sequence[int], k: int | None) -> Fraction:
    """How far one looks to see all positives; for ever, if some were never returned."""
    ranks = _ranks(order)
    return Fraction(len(gains), ranks[-1]) if len(ranks) == len(gains) else Fraction(0)


def _revisited_precision(order: Sequence[int], gains: Sequence[int], k: int | None) -> Fraction:
    """Precision at k, or at the last positive if that comes first."""
    ranks = _ranks(order)
    cut = min(k or 0, ranks[-1]) if len(ranks) == len(gains) else k or 0
    return Fraction(sum(rank <= cut for rank in ranks), cut)


METRICS: dict[str, Callable[[Sequence[int], Sequence[int], int | None], Fraction]] = {
    "recall": lambda order, gains, k: Fraction(_found(order, k) > 0),
    "cmc": lambda order, gains, k: Fraction(_found(order, k) > 0),
    "set_recall": lambda order, gains, k: Fraction(_found(order, k), len(gains)),
    "capped_recall": lambda order, gains, k: Fraction(_found(order, k), min(k or 0, len(gains))),
    "precision": lambda order, gains, k: Fraction(_found(order, k), k or 0),
    "r_precision": lambda order, gains, k: Fraction(_found(order, len(gains)), len(gains)),
    "map": lambda order, gains, k: _precisions(order, k) / len(gains),
    "map_capped": lambda order, gains, k: _precisions(order, k) / min(k or 0, len(gains)),
    "map_trapezoid": _trapezoid,
    "map_r": lambda order, gains, k: _precisions(order, len(gains)) / len(gains),
    "mrr": _reciprocal_rank,
    "ndcg": lambda order, gains, k: _discounted(order, k) / _discounted(gains, k),
    "minp": _inverse_penalty,
    "mp": _revisited_precision,
}

NEED_K = ("recall", "cmc", "set_recall", "capped_recall", "precision", "map_capped", "mp")
MAY_HAVE_K = ("map", "ndcg")
CUT_AT_R = ("r_precision", "map_r")


# All queries


def mean(values: Sequence[Fraction | None], labels: Sequence[Labels], average: str = "micro") -> Fraction:
    """The mean over queries (micro), or over the labels' means (macro); None is left out.

    In macro a query counts for each of its labels.
    """
    kept = [(v, label_set(label)) for v, label in zip(values, labels, strict=True) if v is not None]
    if not kept or (average == "macro" and not any(own for _, own in kept)):
        raise ValueError("there is nothing to average")
    if average == "micro":
        return sum((v for v, _ in kept), Fraction(0)) / len(kept)
    by_label = [[v for v, own in kept if label in own] for label in sorted(set().union(*(own for _, own in kept)))]
    return sum((sum(own, Fraction(0)) / len(own) for own in by_label), Fraction(0)) / len(by_label)


def chance(n_candidates: int, n_positives: int, k: int) -> Fraction:
    """The hit rate at k of a ranking drawn by lot: 1 - C(N - P, k) / C(N, k)."""
    drawn = min(k, n_candidates)
    return 1 - Fraction(math.comb(n_candidates - n_positives, drawn), math.comb(n_candidates, drawn))
