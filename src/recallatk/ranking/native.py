"""The native backend: an 8-bit screen in C with exact rechecks; docs/exactness.md derives its bound."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.ranking.all_levels import rank_all
from recallatk.ranking.bins import add_tiles_in_c, add_tiles_in_numpy, bins_in_c
from recallatk.ranking.blocks import Block
from recallatk.ranking.counts import Counts, Depth, Ranking, Similarities
from recallatk.ranking.finding import PairFinder
from recallatk.ranking.grid import Grid, GridRows
from recallatk.ranking.packing import (
    LEFT,
    MOST_COLUMNS,
    RIGHT,
    SUPERBLOCK,
    Packed,
    aligned,
    choose_frame,
    extension,
    in_parallel,
    pack,
)
from recallatk.ranking.passes import LevelCounts, rank_first
from recallatk.ranking.products import PairProducts
from recallatk.ranking.screen import rank_blocks as rank_by_numpy
from recallatk.relevance import Relevance
from recallatk.types import RecallatkError, Similarity

AT_ONCE = 8
"""Superblocks of queries that pass by a panel of the gallery while it is in the cache."""


@functools.cache
def why_not() -> str | None:
    """Why this backend cannot be used here; None if it can."""
    try:
        native = extension()
    except ImportError:
        return "the C extension was not built (there was no compiler when recallatk was installed)"
    if not native.supported():
        return "this processor has no AVX-512 VNNI"
    return None if _self_test(native) else "the kernel failed its self-test on this machine"


def _self_test(native: Any) -> bool:
    """The kernel against numpy on values that would saturate or overflow on a processor that does it wrong."""
    words = 5
    patterns = np.array([127, -127, 127, -127, 1, 0, 126, -126, 64, -64], dtype=np.int64)
    left = np.resize(patterns, (LEFT, 4 * words))
    left[0], left[1] = 127, -127
    right = np.resize(patterns[::-1], (RIGHT, 4 * words)).copy()
    right[0], right[1], right[2] = 127, -127, np.tile([127, -127], 2 * words)
    packed_left = left.astype(np.int8).reshape(LEFT, words, 4).transpose(1, 0, 2).copy()
    packed_right = aligned(words * 4 * RIGHT, np.uint8).reshape(words, RIGHT, 4)
    packed_right[:] = (right + 128).astype(np.uint8).reshape(RIGHT, words, 4).transpose(1, 0, 2)
    offset = (-128 * left.sum(axis=1)).astype(np.int32)
    columns = aligned(4 * RIGHT, np.int32)
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

    Depth "all" is screened in float32 unless few pairs are asked for, with bins and exact products in C. What is not
    screened here (euclidean similarities, very wide rows) is left to the numpy backend.
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
        add_tiles = add_tiles_in_c if bins_in_c() else add_tiles_in_numpy
        yield from rank_all(
            query, gallery, relevance, pair_products, add_tiles, PairFinder, size=size, limit=limit, threads=threads
        )
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
    frame = choose_frame(gallery)
    triangle = query is gallery
    own = pack(query, best, frame, right=triangle, threads=threads)
    other = own if triangle else pack(gallery, other_best, frame, left=False, threads=threads)
    both = triangle or other_best is not None
    native = extension()
    free = [[np.zeros((4, side.superblocks * SUPERBLOCK), np.int64) for side in (own, other)] for _ in range(threads)]
    counts = list(free)

    def work(start: int) -> None:
        here, there = mine = free.pop()
        stop = min(start + AT_ONCE, own.superblocks)
        buffers = (own.buffers, own.n, other.buffers, other.n, here, here if triangle else there)
        native.count(*buffers, own.d, near, frame.square, start, stop, triangle, both)
        free.append(mine)

    in_parallel(threads, work, range(0, own.superblocks, AT_ONCE))
    here, there = (np.sum(parts, axis=0) for parts in zip(*counts, strict=True))
    return _of_rows(here, own), None if other_best is None else _of_rows(here if triangle else there, other)


def _of_rows(counts: npt.NDArray[np.int64], packed: Packed) -> LevelCounts:
    """From places in the order of packing to all rows, equal ones included."""
    of_group = np.empty((4, packed.n), np.int64)
    of_group[:, packed.order] = counts[:, : packed.n]
    return LevelCounts(*of_group[:, packed.equal.group])


def pair_products(query: GridRows, gallery: GridRows, similarity: Similarity) -> PairProducts:
    """Exact inner products of pairs, in C."""
    left, right = np.ascontiguousarray(query), np.ascontiguousarray(gallery)

    def products(owners: Counts, rows: Counts) -> Similarities:
        found = np.empty(len(owners))
        if len(owners):
            extension().pair_products(left, right, owners, rows, left.shape[1], found)
        return found

    return products
