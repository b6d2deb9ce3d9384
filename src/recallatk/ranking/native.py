"""The native backend: an 8-bit screen in C with exact rechecks; docs/exactness.md derives its bound."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.ranking.blocks import Block
from recallatk.ranking.counts import Counts, Depth, Ranking, Similarities
from recallatk.ranking.grid import Grid, GridRows
from recallatk.ranking.passes import LevelCounts, rank_first
from recallatk.ranking.products import PairProducts
from recallatk.ranking.screen import rank_all
from recallatk.ranking.screen import rank_blocks as rank_by_numpy
from recallatk.relevance import Relevance
from recallatk.types import RecallatkError, Similarity

SUPERBLOCK = 192
LEFT, RIGHT = 6, 64
AT_ONCE = 4
"""Superblocks of queries that pass by a panel of the gallery while it is in the cache."""

MOST_COLUMNS = 2**15
"""So many products of two 8-bit numbers, 255 * 127 + 128 * 127 for each, and two biases of 2**28 stay below 2**31."""

STEPS = 2.0**52
"""Grid steps of similarity in the unit that thresholds are computed in."""


@functools.cache
def why_not() -> str | None:
    """Why this backend cannot be used here; None if it can."""
    try:
        native = _extension()
    except ImportError:
        return "the C extension was not built (there was no compiler when recallatk was installed)"
    if not native.supported():
        return "this processor has no AVX-512 VNNI"
    return None if _self_test(native) else "the kernel failed its self-test on this machine"


def _extension() -> Any:
    return importlib.import_module("recallatk.ranking._native")


def _self_test(native: Any) -> bool:
    """The kernel against numpy on values that would saturate or overflow on a processor that does it wrong."""
    words = 5
    patterns = np.array([127, -127, 127, -127, 1, 0, 126, -126, 64, -64], dtype=np.int64)
    left = np.resize(patterns, (LEFT, 4 * words))
    left[0], left[1] = 127, -127
    right = np.resize(patterns[::-1], (RIGHT, 4 * words)).copy()
    right[0], right[1], right[2] = 127, -127, np.tile([127, -127], 2 * words)
    packed_left = left.astype(np.int8).reshape(LEFT, words, 4).transpose(1, 0, 2).copy()
    packed_right = _aligned(words * 4 * RIGHT, np.uint8).reshape(words, RIGHT, 4)
    packed_right[:] = (right + 128).astype(np.uint8).reshape(RIGHT, words, 4).transpose(1, 0, 2)
    offset = (-128 * left.sum(axis=1)).astype(np.int32)
    columns = _aligned(4 * RIGHT, np.int32)
    found = np.frombuffer(native.products(packed_left, packed_right, offset, columns, words), dtype=np.int32)
    return bool(np.array_equal(found.reshape(LEFT, RIGHT), left @ right.T))


def rank_blocks(
    query: Grid,
    gallery: Grid,
    relevance: Relevance,
    *,
    depth: Depth,
    memory: int,
    limit: Counts | None = None,
    block: Block | None = None,
    threads: int = 1,
) -> Iterator[Ranking]:
    """Rank with the 8-bit screen; see `recallatk.ranking.rank`.

    Depth "all" is screened in float32, with exact products in C; what is not screened here (euclidean similarities,
    very wide rows) is left to the numpy backend.
    """
    d = query.dim
    if reason := why_not():
        raise RecallatkError(f"the backend native cannot be used: {reason}; choose auto or numpy")
    if gallery.similarity == "euclidean" or d > MOST_COLUMNS:
        yield from rank_by_numpy(
            query, gallery, relevance, depth=depth, memory=memory, limit=limit, block=block, threads=threads
        )
        return
    size = block or Block.within(memory, d)
    if depth == "all":
        yield from rank_all(query, gallery, relevance, pair_products, size=size, limit=limit)
    else:
        yield from rank_first(query, gallery, relevance, count_levels, pair_products, size=size, threads=threads)


def count_levels(
    query: GridRows,
    gallery: GridRows,
    best: Similarities,
    other_best: Similarities | None,
    *,
    near: int,
    threads: int,
    size: Block,
) -> tuple[LevelCounts, LevelCounts | None]:
    """Count with the 8-bit screen; see `recallatk.ranking.passes.CountLevels`."""
    if not len(query) or not len(gallery):
        return LevelCounts.zeros(len(query)), None if other_best is None else LevelCounts.zeros(len(gallery))
    centre = choose_centre(gallery)
    own, other = _pack_both(query, gallery, best, centre)
    if not _biases_fit(own, other):
        centre = np.zeros_like(centre)
        own, other = _pack_both(query, gallery, best, centre)
    counted = _count(own, other, centre, near, threads)
    if other_best is None:
        return counted, None
    there, _ = count_levels(gallery, query, other_best, None, near=near, threads=threads, size=size)
    return counted, there


def pair_products(query: GridRows, gallery: GridRows, similarity: Similarity) -> PairProducts:
    """Exact inner products of pairs, in C."""
    left, right = np.ascontiguousarray(query), np.ascontiguousarray(gallery)

    def products(owners: Counts, rows: Counts) -> Similarities:
        found = np.empty(len(owners))
        if len(owners):
            _extension().pair_products(left, right, owners, rows, left.shape[1], found)
        return found

    return products


@dataclasses.dataclass(frozen=True)
class Packed:
    """Rows as 8-bit integers in the order of the kernel.

    Attributes:
        rows: the exact grid rows, in their own order.
        scale: of each superblock.
        bias: of each place: the product of the centre with what is left of the row.
        buffers: what the C code reads: packed rows for the left and the right side, and what bounds their error.
    """

    rows: GridRows
    scale: Similarities
    bias: Similarities
    buffers: tuple[Any, ...]

    @property
    def superblocks(self) -> int:
        """How many blocks of rows share a scale."""
        return -(-len(self.rows) // SUPERBLOCK)


def _pack_both(query: GridRows, gallery: GridRows, best: Similarities, centre: GridRows) -> tuple[Packed, Packed]:
    own = pack(query, best, centre)
    return own, own if query is gallery else pack(gallery, None, centre)


def _biases_fit(own: Packed, other: Packed) -> bool:
    """Whether every bias, in steps of any product, stays below 2**28: two of them and a product then fit 32 bits."""
    unit = float(own.scale.min(initial=1.0) * other.scale.min(initial=1.0))
    return max(float(np.abs(side.bias).max(initial=0.0)) for side in (own, other)) < unit * 2**28


def choose_centre(rows: GridRows) -> GridRows:
    """The mean of a sample of rows if taking it off makes 8-bit rows more exact; else zero. Any centre is right.

    Rows with a common part (a collapsed encoder, features that are never negative) are small without it, and the
    error of 8 bits is a share of what is left. Rows of a few distinct values lose by it.
    """
    sample = rows[:: max(1, len(rows) // 1024)].astype(np.float64)
    mean = np.rint(sample.mean(axis=0))
    plain, centred = (_rounding_error(part) for part in (sample, sample - mean))
    return mean.astype(np.int32) if centred < plain / 2 else np.zeros(rows.shape[1], np.int32)


def _rounding_error(rows: Similarities) -> float:
    """The mean error of a pair of rows in 8 bits, up to a factor."""
    scale = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1.0) / 127
    rest = rows - np.rint(rows / scale) * scale
    return float(np.mean(np.linalg.norm(rest, axis=1)) * np.mean(np.linalg.norm(rows, axis=1)))


def pack(rows: GridRows, best: Similarities | None, centre: GridRows) -> Packed:
    """Sort rows by their largest coordinate, so that neighbours share a scale, and quantise them.

    Args:
        rows: (n, d) grid rows.
        best: (n,) the best positive of each row as a query, in grid steps; None for a gallery.
        centre: (d,) what is taken off every row first; the kernel adds its products with the rows again.
    """
    n, d = rows.shape
    rows = np.ascontiguousarray(rows)
    words = -(-d // 4)
    blocks = -(-n // SUPERBLOCK)
    places = blocks * SUPERBLOCK
    largest = np.empty(n)
    for start in range(0, n, 16 * SUPERBLOCK):
        part = rows[start : start + 16 * SUPERBLOCK] - centre
        largest[start : start + len(part)] = np.maximum(part.max(axis=1, initial=0), -part.min(axis=1, initial=0))
    order = np.argsort(largest, kind="stable")
    top = largest[order][np.minimum(np.arange(blocks) * SUPERBLOCK + SUPERBLOCK - 1, n - 1)]
    scale = np.maximum(top, 1) / 2.0**26 / 127
    left, right = _aligned(places * words * 4, np.int8), _aligned(places * words * 4, np.uint8)
    offset = np.zeros(places, np.int32)
    head, tail = np.zeros(places), np.zeros(places)
    lengths, bias = np.zeros(places), np.zeros(places)
    for start in range(0, n, 16 * SUPERBLOCK):
        part = rows[order[start : start + 16 * SUPERBLOCK]] - centre
        bias[start : start + len(part)] = part @ centre.astype(np.float64) / STEPS
        real = (part * 2.0**-26).astype(np.float32)
        exact = np.sqrt(np.einsum("ij,ij->i", part, part, dtype=np.float64)) * 2.0**-26 * (1 + 2.0**-30)
        lengths[start : start + len(part)] = exact
        # Rounding to float32 moves a row by at most 2**-24 of its length.
        slack = float(exact.max()) * 2.0**-24
        _extension().pack(real, d, words, start, scale, slack, left, right, offset, head, tail)
    by_block = (blocks, SUPERBLOCK)
    most_tail, longest = tail.reshape(by_block).max(axis=1), lengths.reshape(by_block).max(axis=1)
    sorted_best = np.full(places, np.inf)
    if best is not None:
        sorted_best[:n] = best[order] / STEPS
    buffers = (n, left, right, offset, rows, order, head, tail, scale, most_tail, longest, sorted_best, bias)
    return Packed(rows, scale, bias, buffers)


def _count(query: Packed, gallery: Packed, centre: GridRows, near: int, threads: int) -> LevelCounts:
    native = _extension()
    symmetric = query is gallery
    d = query.rows.shape[1]
    words = -(-d // 4)
    square = float(centre.astype(np.float64) @ centre.astype(np.float64)) / STEPS
    starts = list(range(0, query.superblocks, AT_ONCE))
    partial = [LevelCounts.zeros(len(query.rows)) for _ in range(threads)]

    def work(mine: int) -> None:
        counts = partial[mine]
        arrays = (counts.far_above, counts.above, counts.level, counts.near_below)
        while starts:
            try:
                start = starts.pop(0)
            except IndexError:  # another thread took the last
                return
            stop = min(start + AT_ONCE, query.superblocks)
            span = (start, stop, 0, gallery.superblocks)
            native.count(query.buffers, gallery.buffers, words, d, near, STEPS, square, *span, symmetric, *arrays)

    if threads == 1:
        work(0)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
    total = LevelCounts.zeros(len(query.rows))
    for counts in partial:
        total.plus(counts)
    return total


def _aligned(size: int, dtype: Any) -> npt.NDArray[Any]:
    """Zeros whose first byte is at a multiple of 64, as the kernel's loads want."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype)
