"""Finding the pairs that are similar enough for a few levels, by the 8-bit products of the native backend."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np

from recallatk.ranking.counts import Counts, Similarities
from recallatk.ranking.grid import GridRows
from recallatk.ranking.packing import RIGHT, SUPERBLOCK, Frame, Packed, choose_frame, extension, in_parallel, pack
from recallatk.ranking.products import Float32

AT_ONCE = 4
"""Superblocks of queries that pass by a panel of the gallery while it is in the cache."""

ROOM = 2**18
"""Pairs that are handed over together, at the least."""


class FindPairs(Protocol):
    """What finds the pairs that some queries ask for."""

    def __call__(
        self,
        queries: slice,
        low: Float32,
        put: Callable[[Counts, Counts, Similarities], None],
        look_again: Callable[[], None],
        *,
        threads: int,
    ) -> None:
        """Find every gallery row at least as similar as its query asks for, positives and ignored rows included.

        Args:
            queries: whose rows.
            low: (all queries,) what each asks for, in units of 2**52 grid steps; +inf for nothing.
            put: is given pairs: their queries, gallery rows, and exact similarities in grid steps.
            look_again: called now and then; it may raise `low`.
            threads: how many.
        """


MakeFindPairs: TypeAlias = Callable[[GridRows, GridRows], FindPairs]
"""Grid rows of queries and gallery -> what finds their pairs."""


@dataclasses.dataclass(frozen=True, eq=False)
class PairFinder:
    """Finds pairs by 8-bit products. Every row has a place of its own, for equal rows may ask for unlike pairs.

    Attributes:
        query: (n, d) grid rows.
        gallery: (m, d) grid rows; the same object where every query is in the gallery.
    """

    query: GridRows
    gallery: GridRows

    @functools.cached_property
    def _frame(self) -> Frame:
        return choose_frame(self.gallery)

    @functools.cached_property
    def _packed_gallery(self) -> Packed:
        return pack(self.gallery, np.arange(len(self.gallery), dtype=np.float64), self._frame, left=False)

    def __call__(
        self,
        queries: slice,
        low: Float32,
        put: Callable[[Counts, Counts, Similarities], None],
        look_again: Callable[[], None],
        *,
        threads: int,
    ) -> None:
        """See `FindPairs`."""
        rows = self.query[queries]
        triangle = self.query is self.gallery and len(rows) == len(self.gallery)
        apart = np.arange(len(rows), dtype=np.float64)
        own = pack(rows, apart, self._frame, right=triangle, threads=threads)
        other = own if triangle else self._packed_gallery
        find, lock = extension().find, threading.Lock()
        own.ask(low[queries])

        def work(start: int) -> None:
            stop, panel = min(start + AT_ONCE, own.superblocks), 0
            room = ROOM + 2 * RIGHT * SUPERBLOCK * AT_ONCE
            owners, others, similarity = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
            while panel * RIGHT < other.n:
                sides = (own.buffers, own.n, other.buffers, other.n, own.d, self._frame.square)
                n, panel = find(*sides, start, stop, panel, triangle, owners, others, similarity)
                with lock:
                    put(owners[:n] + queries.start, others[:n], similarity[:n])
            with lock:
                look_again()
                own.ask(low[queries])

        in_parallel(threads, work, range(0, own.superblocks, AT_ONCE))
