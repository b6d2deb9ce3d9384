"""How much is looked at together: parts of the sets, blocks of queries and tiles within a budget of memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from recallatk.ranking.counts import Counts
from recallatk.types import RecallatkError

BYTES_A_PAIR = 160
"""What judging one pair takes at the most: some twenty eight-byte columns while they are sorted and split."""


@dataclasses.dataclass(frozen=True)
class Block:
    """At most so many queries, judged pairs, and gallery rows in a tile; sizes never change a count.

    Attributes:
        queries: of a tile.
        pairs: that are judged together, unless a single query has more.
        gallery: gallery rows of a tile.
        part: rows of queries, and of the gallery, whose grid is in memory at once.
    """

    queries: int = 512
    pairs: int = 2**21
    gallery: int = 4096
    part: int = 2**40

    @classmethod
    def within(cls, memory: int, dim: int) -> Block:
        """The largest block, up to the default size, whose working memory stays within `memory` bytes.

        Judged pairs get at most half of it, parts of both sets and the tile a quarter each.

        Raises:
            RecallatkError: not even the smallest block does.
        """
        least = cls.least()
        if least.bytes(dim) > memory:
            raise RecallatkError(f"memory={memory} bytes is too little to rank with; give at least {least.bytes(dim)}")
        rest = memory - least.bytes(dim)
        pairs = min(cls.pairs, max(least.pairs, rest // 2 // BYTES_A_PAIR))
        part = least.part + rest // 4 // (2 * bytes_a_row(dim))
        block = cls(pairs=pairs, part=part)
        while block.bytes(dim) > memory and block.queries > least.queries:
            queries, gallery = max(block.queries // 2, least.queries), max(block.gallery // 2, least.gallery)
            block = dataclasses.replace(block, queries=queries, gallery=gallery)
        return block

    @classmethod
    def least(cls) -> Block:
        """The smallest block."""
        return cls(1, 1024, 32, 16)

    def bytes(self, dim: int) -> int:
        """The working memory of ranking with this block, in bytes."""
        tile = 8 * (self.queries + self.gallery) * dim + 12 * self.queries * self.gallery
        return tile + BYTES_A_PAIR * self.pairs + 2 * self.part * bytes_a_row(dim)


def bytes_a_row(dim: int) -> int:
    """What a row of a part takes: on the grid and in float32 (or packed in 8 bits, twice), and a few numbers."""
    return 8 * dim + 128


def slices(n: int, size: int, *, first: int = 0) -> Iterator[slice]:
    """The rows from `first` to n in slices of one size."""
    for start in range(first, n, size):
        yield slice(start, min(start + size, n))


def query_blocks(pairs: Counts, size: Block) -> Iterator[slice]:
    """Cut the queries so that no block judges more pairs than it may, unless a single query does."""
    ends = np.cumsum(pairs)
    start = 0
    while start < len(pairs):
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + size.pairs, side="right"))
        stop = min(max(stop, start + 1), start + size.queries, len(pairs))
        yield slice(start, stop)
        start = stop
