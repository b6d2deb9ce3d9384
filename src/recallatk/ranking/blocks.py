"""How much is looked at together: blocks of queries and tiles of the gallery within a budget of memory."""

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
    """At most so many queries, judged pairs, and gallery rows in a tile; sizes never change a count."""

    queries: int = 512
    pairs: int = 2**21
    gallery: int = 4096

    @classmethod
    def within(cls, memory: int, dim: int) -> Block:
        """The largest block, up to the default size, whose working memory stays within `memory` bytes.

        Pairs get at most half of it, the tile the rest.

        Raises:
            RecallatkError: not even the smallest block does.
        """
        least = cls(1, 1024, 32)
        if least.bytes(dim) > memory:
            raise RecallatkError(f"memory={memory} bytes is too little to rank with; give at least {least.bytes(dim)}")
        block = cls(pairs=max(least.pairs, min(cls.pairs, memory // 2 // BYTES_A_PAIR)))
        while block.bytes(dim) > memory:
            queries, gallery = max(block.queries // 2, least.queries), max(block.gallery // 2, least.gallery)
            block = cls(queries, block.pairs, gallery)
        return block

    def bytes(self, dim: int) -> int:
        """The working memory of ranking with this block, in bytes."""
        tile = 8 * (self.queries + self.gallery) * dim + 12 * self.queries * self.gallery
        return tile + BYTES_A_PAIR * self.pairs


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
