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

Labels = str | Sequence[str]


@dataclasses.dataclass(frozen=True)
class Side:
    """The columns of queries or of a gallery; an `EmbeddingSet` has the same names and fits as well."""

    labels: Sequence[Labels]
    identity: Sequence[str] | None = None
    content: Sequence[str] | None = None
    groups: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)


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


def similarities(query: Iterable[Iterable[Any]], gallery: Iterable[Iterable[Any]]) -> list[list[int]]:
    """One row of exact similarities for each query, one column for each gallery item; raw rows go in."""
    columns = [grid_row(row) for row in gallery]
    return [[similarity(a, b) for b in columns] for a in (grid_row(row) for row in query)]


# Who is positive, who is ignored


def judge(
    query: Side, gallery: Side, *, exclude_self: str = "id", ignore_same: Sequence[str] = ()
) -> list[tuple[set[int], set[int]]]:
    """For each query the gallery rows that are positive, and those that do not exist for it.

    Args:
        query: the columns of the queries.
        gallery: the columns of the gallery; the same object as `query` for leave-one-out.
        exclude_self: `id` (equal identity), `content` (equal image bytes) or `none`.
        ignore_same: an item equal to the query in all of these columns is ignored; the column `label` means that
            at least one label is shared. An empty text says "unknown" and equals nothing, here and for itself.
    """
    judged = []
    for q in range(len(query.labels)):
        positives, ignored = set(), set()
        for g in range(len(gallery.labels)):
            related = bool(label_set(query.labels[q]) & label_set(gallery.labels[g]))
            same = [related if c == "label" else _equal(query.groups[c][q], gallery.groups[c][g]) for c in ignore_same]
            if _is_itself(query, q, gallery, g, exclude_self) or (same and all(same)):
                ignored.add(g)
            elif related:
                positives.add(g)
        judged.append((positives, ignored))
    return judged


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
        return _equal(query.content[q], gallery.content[g])
    if query is gallery and query.identity is None:
        return q == g
    if query.identity is None or gallery.identity is None:
        return False  # row numbers are no names: they never match across sets
    return _equal(query.identity[q], gallery.identity[g])


# One query


def levels(sims: Sequence[int], positives: set[int], ignored: set[int]) -> list[tuple[int, int, int, int]]:
    """(similarity, negatives ahead, negatives tied, positives tied) at each level of the positives, best first."""
    negatives = [s for g, s in enumerate(sims) if g not in positives and g not in ignored]
    found = [sims[g] for g in positives]
    return [
        (level, sum(s > level for s in negatives), sum(s == level for s in negatives), sum(s == level for s in found))
        for level in sorted(set(found), reverse=True)
    ]


def near_negatives(sims: Sequence[int], positives: set[int], ignored: set[int]) -> tuple[int, int]:
    """The negatives strictly above and strictly below the best positive, but within 1e-6 of it."""
    best = max(sims[g] for g in positives)
    gaps = [s - best for g, s in enumerate(sims) if g not in positives and g not in ignored]
    return sum(0 < gap <= NEAR for gap in gaps), sum(-NEAR <= gap < 0 for gap in gaps)


def value(
    metric: str,
    sims: Sequence[int],
    positives: set[int],
    ignored: set[int] = frozenset(),  # type: ignore[assignment]  # only read
    k: int | None = None,
    ties: str = "expected",
) -> Fraction | None:
    """One query's value, or None where nothing is positive: the caller excludes it, or counts a miss.

    Args:
        metric: `recall` (hit rate), `set_recall`, `precision` (all at k) or `mrr` (over the whole ranking).
        sims: the similarity of every gallery item.
        positives: the rows of the positives; none of them may be ignored.
        ignored: the rows that do not exist for this query.
        k: the cutoff; beyond what is left of the gallery it means all of it.
        ties: `expected` is the plain mean over every order inside every group of equal similarities.
    """
    if positives & ignored:
        raise ValueError("a row is positive and ignored")
    if metric != "mrr" and (k is None or k < 1):
        raise ValueError(f"{metric} needs a cutoff k of at least 1")
    if not positives:
        return None
    left = [(sims[g], g in positives) for g in range(len(sims)) if g not in ignored]
    groups = [[hit for s, hit in left if s == level] for level in sorted({s for s, _ in left}, reverse=True)]
    if metric == "mrr":  # the order after the first group with a positive cannot matter
        groups = groups[: 1 + next(i for i, group in enumerate(groups) if any(group))]
    else:  # nor can the order of groups that begin beyond the cutoff
        starts = itertools.accumulate((len(group) for group in groups), initial=0)
        groups = [group for group, start in zip(groups, starts, strict=False) if start < (k or 0)]
    total, n = Fraction(0), 0
    for order in _orders(groups, ties):
        total += _METRICS[metric](order, len(positives), k or 0)
        n += 1
    return total / n


def _orders(groups: Sequence[Sequence[bool]], ties: str) -> Iterator[list[bool]]:
    """Rankings as hit or miss at each rank: negatives first, positives first, or every way to mix each group."""
    choices: list[list[list[bool]]] = []
    for group in groups:
        n, hits = len(group), sum(group)
        if ties == "expected":
            if math.comb(n, hits) > MOST_ORDERS:
                raise ValueError(f"{hits} positives among {n} tied items have too many orders to try them all")
            ways: list[Sequence[int]] = list(itertools.combinations(range(n), hits))
        else:
            ways = [{"pessimistic": range(n - hits, n), "optimistic": range(hits)}[ties]]
        choices.append([[rank in places for rank in range(n)] for places in ways])
    if math.prod(len(choice) for choice in choices) > MOST_ORDERS:
        raise ValueError("the tied groups have too many orders to try them all")
    for mixed in itertools.product(*choices):
        yield [hit for group in mixed for hit in group]


_METRICS: dict[str, Callable[[list[bool], int, int], Fraction]] = {
    "recall": lambda order, n_positives, k: Fraction(any(order[:k])),
    "set_recall": lambda order, n_positives, k: Fraction(sum(order[:k]), n_positives),
    "precision": lambda order, n_positives, k: Fraction(sum(order[:k]), k),
    "mrr": lambda order, n_positives, k: Fraction(1, 1 + order.index(True)),
}


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
