"""The grid: unit rows rounded once, so that every inner product is an exact integer in any order of summation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recallatk.types import float32_blocks

GridRows = npt.NDArray[np.int32]

GRID_BITS = 26
"""A coordinate is a multiple of 2**-26, held as an integer of at most 2**26 in size."""

SIMILARITY_SCALE = 2 ** (2 * GRID_BITS)
"""An inner product of two grid rows is `cosine * 2**52`, an integer below 2**53, so float64 holds it exactly."""


def to_grid(embeddings: npt.NDArray[np.generic]) -> GridRows:
    """Unit rows on the grid.

    A row becomes float32, is scaled to unit length in float64 and is rounded once (half to even) to multiples of
    2**-26. The squares of float32 numbers are exact in float64; they are summed in one fixed order, so the result is
    the same on every machine. Scaling a row by a power of two (inside float32's normal range) changes nothing.

    Every product of coordinates, and every partial sum of an inner product, is at most |x| |y| < 2**53 in size
    (|x| exceeds 2**26 by less than sqrt(d) / 2): a float64 product of grid rows is exact on any BLAS, with any number
    of threads and any block size.

    Args:
        embeddings: (n, d), every row finite and non-zero as float32.

    Returns:
        (n, d) int32, in units of 2**-26.

    >>> to_grid(np.array([[3.0, 4.0]]))
    array([[40265318, 53687091]], dtype=int32)
    """
    grid = np.empty(embeddings.shape, dtype=np.int32)
    for start, block in float32_blocks(embeddings, rows_a_block=max(1, 2**21 // embeddings.shape[1])):
        rows = block.astype(np.float64)
        lengths = np.sqrt(_sums(rows * rows))
        grid[start : start + len(rows)] = np.rint(rows / lengths[:, None] * 2.0**GRID_BITS)
    return grid


def _sums(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sum each row by halving: one fixed tree of additions, whatever numpy's own sum does on this machine."""
    while values.shape[1] > 1:
        half = (values.shape[1] + 1) // 2
        folded = values[:, :half].copy()
        folded[:, : values.shape[1] - half] += values[:, half:]
        values = folded
    return values[:, 0]
