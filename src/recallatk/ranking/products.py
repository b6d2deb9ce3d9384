"""Exact similarities of pairs, and float32 rows with how far their products may be from the exact ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from recallatk.ranking.blocks import slices
from recallatk.ranking.counts import Counts, Similarities
from recallatk.ranking.grid import Grid, GridRows, StreamedRows
from recallatk.types import Similarity

Float32 = npt.NDArray[np.float32]
PairProducts: TypeAlias = Callable[[Counts, Counts], Similarities]
"""Exact similarities, in grid steps, of pairs (query rows, gallery rows)."""

MakeProducts: TypeAlias = Callable[[GridRows, GridRows, Similarity], PairProducts]
"""Grid rows of queries and gallery -> the products of their pairs."""

IN_CACHE = 2**17
"""Coordinates that are converted together, so that they stay in the cache."""

NUMBERS_A_CHUNK = 2**20
"""Coordinates of pairs that are multiplied together."""

UNIT_ROUNDOFF = 2.0**-24
SMALLEST = 2.0**-100
"""Covers what underflow may take from a sum of products; coordinates are below 2 in size."""


def exact_products(query: GridRows, gallery: GridRows, similarity: Similarity) -> PairProducts:
    """Exact similarities of pairs in numpy: int32 coordinates as float64, every sum below 2**53."""
    chunk = max(1, NUMBERS_A_CHUNK // query.shape[1])

    def products(owners: Counts, rows: Counts) -> Similarities:
        found = np.empty(len(rows))
        for start in range(0, len(rows), chunk):
            some = slice(start, start + chunk)
            left, right = query[owners[some]].astype(np.float64), gallery[rows[some]].astype(np.float64)
            found[some] = np.einsum("ij,ij->i", left, right)
            if similarity == "euclidean":
                found[some] *= 2
                found[some] -= np.einsum("ij,ij->i", left, left) + np.einsum("ij,ij->i", right, right)
        return found

    return products


def fetched_products(query: GridRows, gallery: Grid, of_rows: MakeProducts, *, at_once: int) -> PairProducts:
    """Exact similarities of pairs; gallery rows that are not in memory are fetched in their order, so many at once."""
    if not isinstance(gallery.rows, StreamedRows):
        return of_rows(query, gallery.rows, gallery.similarity)
    streamed = gallery.rows
    chunk = max(1, min(at_once, NUMBERS_A_CHUNK // query.shape[1]))

    def products(owners: Counts, rows: Counts) -> Similarities:
        found = np.empty(len(rows))
        by_row = np.argsort(rows, kind="stable")
        for start in range(0, len(rows), chunk):
            some = by_row[start : start + chunk]
            distinct, place = np.unique(rows[some], return_inverse=True)
            found[some] = of_rows(query, streamed[distinct], gallery.similarity)(owners[some], place)
        return found

    return products


def float32_rows(query: GridRows, gallery: GridRows) -> tuple[Float32, Float32, float]:
    """Grid rows in float32, in units of 2**26 steps, and how far their float32 products may be from the exact ones.

    With u = 2**-24, rows x and y of d coordinates, each rounded to float32, and their inner product summed in float32
    in any order: the result is within (d + 3) u (1 + 2 d u) |x| |y| of the exact one (docs/exactness.md). The error is
    in units of 2**52 grid steps of similarity.
    """
    right, longest_right = to_float32(gallery)
    left, longest_left = (right, longest_right) if query is gallery else to_float32(query)
    return left, right, float32_error(right.shape[1], longest_left, longest_right)


def float32_error(d: int, longest_left: float, longest_right: float) -> float:
    """How far products of float32 rows may be from the exact ones; see `float32_rows`."""
    # The factor 1.001 covers the roundings of this formula and of the lengths.
    factor = (d + 3) * UNIT_ROUNDOFF * (1 + 2 * d * UNIT_ROUNDOFF) * 1.001
    return float(factor * longest_left * longest_right + SMALLEST)


def longest_possible(d: int) -> float:
    """The length that no grid row passes, in units of 2**26 steps: 1, and what rounding adds to each coordinate."""
    return 1 + math.sqrt(d) * 2.0**-26


def to_float32(rows: GridRows) -> tuple[Float32, float]:
    """Rows in units of 2**26 steps, which is the most that a coordinate is, and the length of the longest."""
    real = np.empty(rows.shape, np.float32)
    longest = 0.0
    for some in slices(len(rows), max(1, IN_CACHE // rows.shape[1])):
        part = rows[some] * 2.0**-26
        real[some] = part
        longest = max(longest, float(np.einsum("ij,ij->i", part, part).max()))
    return real, math.sqrt(longest)


def round_down(values: Similarities) -> Float32:
    """The float32 number below."""
    return np.nextafter(values.astype(np.float32), np.float32(-np.inf))


def round_up(values: Similarities) -> Float32:
    """The float32 number above."""
    return np.nextafter(values.astype(np.float32), np.float32(np.inf))
