"""The torch backend: half-precision products and exact rechecks on a GPU; docs/exactness.md derives the bound."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from recallatk.ranking import native, screen
from recallatk.ranking.blocks import Block, slices
from recallatk.ranking.counts import Counts, Depth, Ranking, Similarities
from recallatk.ranking.grid import Grid, GridRows
from recallatk.ranking.passes import LevelCounts, rank_first
from recallatk.ranking.products import PairProducts, exact_products
from recallatk.ranking.torch_arithmetic import (
    Tensor,
    check_arithmetic,
    import_torch,
    pair_products,
    plain_arithmetic,
    sum_error,
    to_device,
)
from recallatk.relevance import Relevance
from recallatk.types import Similarity

UNIT = 2.0**19
"""Grid steps in the unit of the screen: coordinates are up to 2**7 and products up to 2**14, where half precision has
room on both sides."""

MOST_COLUMNS = 2**16
"""Wider rows are left to the CPU; the bound is derived for (d + 1) 2**-22 up to a half."""

ALIGNED = 8
"""Tensor cores want rows of whole 16 bytes; they are filled up with zeros, which change no sum."""

MOST_TILE = 2**14
"""More rows in a tile gain nothing, and torch lists the places in a tile only below 2**31 of them."""

MOST_PAIRS = 2**18
MOST_OPEN = 1 / 16
"""If a larger share of a tile is open, one float64 product is cheaper than its pairs, whose rows are fetched anew."""

BYTES_A_PLACE = 24
"""A product, two comparisons, and the place of every product of a tile, should all of them be open."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Where the screen runs and how much it looks at together; no count depends on any of it.

    Attributes:
        device: "cuda" or "cpu".
        dtype: of the rows that are screened.
        panel: at most so many rows of one side are on the device at once.
        tile: at most so many rows of either side are multiplied at once.
        pairs: at most so many pairs are rechecked at once.
    """

    device: Literal["cuda", "cpu"]
    dtype: Literal["float16", "float32"]
    panel: int
    tile: int
    pairs: int

    @classmethod
    def of(cls, d: int, *, memory: int) -> Plan:
        """Half precision on a GPU, within half of what is free on it; float32 without one, within `memory` bytes."""
        torch = import_torch()
        if torch.cuda.is_available():
            return cls._within(torch.cuda.mem_get_info()[0] // 2, d, "cuda", "float16")
        return cls._within(memory, d, "cpu", "float32")

    @classmethod
    def _within(cls, memory: int, d: int, device: Literal["cuda", "cpu"], dtype: Literal["float16", "float32"]) -> Plan:
        """Half of the memory for two panels, a quarter for a tile, a quarter for rows of a tile or pairs in float64."""
        row, quarter = d * (4 + np.dtype(dtype).itemsize), memory // 4
        return cls(
            device,
            dtype,
            panel=max(1, memory // 2 // (2 * row)),
            tile=max(1, min(MOST_TILE, math.isqrt(quarter // BYTES_A_PLACE), quarter // (16 * d))),
            pairs=max(1, min(MOST_PAIRS, quarter // (24 * d))),
        )


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
    plan: Plan | None = None,
) -> Iterator[Ranking]:
    """Rank on a GPU if torch sees one, else on the CPU; see `recallatk.ranking.rank`.

    Depth "all", euclidean similarities and very wide rows are left to the CPU: to native where it works, else to numpy.
    `memory` is that of the host; on the GPU half of what is free is used. `plan` replaces what is chosen from both.
    """
    import_torch()
    if depth == "all" or gallery.similarity == "euclidean" or query.dim > MOST_COLUMNS:
        on_cpu = native if native.why_not() is None else screen
        yield from on_cpu.rank_blocks(
            query, gallery, relevance, depth=depth, memory=memory, limit=limit, block=block, threads=threads
        )
        return
    plan = plan or Plan.of(query.dim, memory=memory)
    if block is not None:
        plan = dataclasses.replace(plan, tile=block.gallery, pairs=block.pairs)
    size = block or Block.within(memory, query.dim)
    with plain_arithmetic(threads):
        check_arithmetic(plan.device, plan.dtype)
        device = Device(plan)
        blocks = list(
            rank_first(query, gallery, relevance, device.count_levels, device.products, size=size, threads=threads)
        )
    yield from blocks


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
    """Count a pair of parts on the device; see `recallatk.ranking.passes.CountLevels`."""
    plan = Plan.of(query.shape[1], memory=size.bytes(query.shape[1]))
    with plain_arithmetic(threads):
        check_arithmetic(plan.device, plan.dtype)
        return Device(plan).count_levels(query, gallery, best, other_best, near=near, threads=threads, size=size)


@dataclasses.dataclass(frozen=True, eq=False)
class Device:
    """Where rows go. The last two arrays of grid rows that fit into a panel stay there.

    Attributes:
        plan: which device, and how much it takes.
        held: arrays of the host and what they are on the device, the last one used at the end.
    """

    plan: Plan
    held: list[tuple[GridRows, Tensor]] = dataclasses.field(default_factory=list)

    def count_levels(
        self,
        query: GridRows,
        gallery: GridRows,
        best: Similarities,
        other_best: Similarities | None,
        *,
        near: int,
        threads: int,  # those of torch are set for all that is done here
        size: Block,  # the plan holds the sizes of a device
    ) -> tuple[LevelCounts, LevelCounts | None]:
        """Count panel by panel; see `recallatk.ranking.passes.CountLevels`."""
        alone = query is gallery
        here = LevelCounts.zeros(len(query))
        there = here if alone else LevelCounts.zeros(len(gallery))
        columns_best = best if alone else other_best
        for rows in slices(len(query), self.plan.panel):
            own = self.panel(query, rows)
            for columns in slices(len(gallery), self.plan.panel, first=rows.start if alone else 0):
                other = own if alone and columns == rows else self.panel(gallery, columns)
                forward = Against.of(own, other, best[rows], near, self.plan)
                if own is other or columns_best is None:
                    forward.count_tiles(forward if own is other else None)
                else:
                    back = Against.of(other, own, columns_best[columns], near, self.plan)
                    forward.count_tiles(back)
                    there.part(columns).plus(back.total())
                here.part(rows).plus(forward.total())
        return here, None if other_best is None else there

    def products(self, query: GridRows, gallery: GridRows, similarity: Similarity) -> PairProducts:
        """Exact inner products of pairs: here if both sides fit, else in numpy."""
        if max(len(query), len(gallery)) > self.plan.panel:
            return exact_products(query, gallery, similarity)

        def products(owners: Counts, rows: Counts) -> Similarities:
            left, right = self.exact(query), self.exact(gallery)
            found = np.empty(len(owners))
            for part in slices(len(owners), self.plan.pairs):
                mine, others = (to_device(places[part], self.plan.device) for places in (owners, rows))
                found[part] = pair_products(left, mine, right, others).cpu().numpy()
            return found

        return products

    def exact(self, rows: GridRows) -> Tensor:
        """An array of grid rows on the device."""
        for place, (array, _) in enumerate(self.held):
            if array is rows:
                self.held.append(self.held.pop(place))
                return self.held[-1][1]
        del self.held[:-1]
        self.held.append((rows, to_device(rows, self.plan.device)))
        return self.held[-1][1]

    def panel(self, array: GridRows, rows: slice) -> Panel:
        """Some rows of an array as a panel."""
        fits = len(array) <= self.plan.panel
        return Panel.of(self.exact(array)[rows] if fits else to_device(array[rows], self.plan.device), self.plan)


@dataclasses.dataclass(frozen=True)
class Panel:
    """Rows on the device, and what their rounding lost: a row is `cheap` and a rest.

    Attributes:
        exact: (n, d) int32 grid rows.
        cheap: (n, d or a little more) what the screen multiplies, in the unit of the screen; zeros beyond d.
        head: (n,) at least the length of each cheap row.
        tail: (n,) at least the length of each rest.
        length: (n,) at least the length of each row.
    """

    exact: Tensor
    cheap: Tensor
    head: Similarities
    tail: Similarities
    length: Similarities

    @classmethod
    def of(cls, exact: Tensor, plan: Plan) -> Panel:
        """Round grid rows on the device."""
        torch = import_torch()
        n, d = exact.shape
        cheap = torch.zeros((n, -(-d // ALIGNED) * ALIGNED), dtype=getattr(torch, plan.dtype), device=plan.device)
        lengths = np.empty((3, n))
        for part in slices(n, plan.pairs):
            real = exact[part].double().div_(UNIT)
            cheap[part, :d] = real
            near = cheap[part, :d].double()
            for place, vectors in enumerate((near, real - near, real)):
                lengths[place, part] = vectors.square_().sum(dim=1).sqrt_().cpu().numpy()
        lengths *= 1 + 2.0**-30  # a float64 sum of at most 2**16 squares, and a root
        return cls(exact, cheap, *lengths)


@dataclasses.dataclass(frozen=True)
class Against:
    """The rows of one panel as queries, against the rows of another; counts are kept on the device.

    Attributes:
        own: the panel of the queries.
        other: that of the gallery; the same object for self-retrieval within a panel.
        best: (n,) the best positive of each query, exact, in grid steps.
        low: (n,) below it a product is surely further than a near-tie below the best positive.
        high: (n,) above it a product is surely further than a near-tie above.
        near: the width of a near-tie in grid steps.
        counts: (4, n) in the order of `LevelCounts`.
        plan: sizes of tiles and rechecks.
    """

    own: Panel
    other: Panel
    best: Tensor
    low: Tensor
    high: Tensor
    near: int
    counts: Tensor
    plan: Plan

    @classmethod
    def of(cls, own: Panel, other: Panel, best: Similarities, near: int, plan: Plan) -> Against:
        """Nothing counted yet."""
        torch = import_torch()
        low, high = (to_device(values, plan.device) for values in thresholds(own, other, best, near, dtype=plan.dtype))
        counts = torch.zeros((4, len(best)), dtype=torch.int64, device=plan.device)
        return cls(own, other, to_device(best, plan.device), low, high, near, counts, plan)

    def count_tiles(self, back: Against | None) -> None:
        """Count every pair of the two panels; with `back`, the other panel's rows as queries too.

        Within one panel only tiles on and above the diagonal are multiplied, and `back` is this object.
        """
        for rows in slices(len(self.own.cheap), self.plan.tile):
            for columns in slices(len(self.other.cheap), self.plan.tile):
                if back is self and columns.start < rows.start:
                    continue
                product = self.own.cheap[rows] @ self.other.cheap[columns].T
                self._count(product, rows, columns)
                if back is not None and not (back is self and rows == columns):
                    back._count(product.T, columns, rows)

    def _count(self, product: Tensor, rows: slice, columns: slice) -> None:
        above = product > self.high[rows, None]
        open_ = product >= self.low[rows, None]
        open_ ^= above  # what is above `high` is above `low`
        places = open_.nonzero()
        if len(places) > open_.numel() * MOST_OPEN:
            del places
            self._count_exactly(rows, columns)
            return
        self.counts[:2, rows] += above.sum(dim=1)
        for part in places.split(self.plan.pairs):
            owners, others = part[:, 0] + rows.start, part[:, 1] + columns.start
            gap = pair_products(self.own.exact, owners, self.other.exact, others) - self.best[owners]
            for column, hit in zip(self.counts, self._hits(gap), strict=True):
                column.index_add_(0, owners, hit.long())

    def _count_exactly(self, rows: slice, columns: slice) -> None:
        """The whole tile in float64, where the screen leaves too much open: no sum of grid rows is rounded."""
        gap = self.own.exact[rows].double() @ self.other.exact[columns].double().T
        gap -= self.best[rows, None]
        for column, hit in zip(self.counts, self._hits(gap), strict=True):
            column[rows] += hit.sum(dim=1)

    def _hits(self, gap: Tensor) -> Iterator[Tensor]:
        """In the order of the counts, one after the other: a tile of them is large."""
        yield gap > self.near
        yield gap > 0
        yield gap == 0
        yield (gap < 0) & (gap >= -self.near)

    def total(self) -> LevelCounts:
        """What was counted, on the host."""
        return LevelCounts(*self.counts.cpu().numpy())


def thresholds(
    own: Panel, other: Panel, best: Similarities, near: int, *, dtype: str
) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
    """Between which products of cheap rows (n,) nothing is decided for each query; docs/exactness.md has the slacks."""
    most_tail, longest, most_head = (values.max(initial=0.0) for values in (other.tail, other.length, other.head))
    bound = own.head * most_tail + own.tail * longest + sum_error(own.exact.shape[1]) * own.head * most_head
    target, margin = best / UNIT**2, near / UNIT**2 + bound * (1 + 2.0**-40) + 2.0**-36
    low, high = (target - margin).astype(dtype), (target + margin).astype(dtype)
    return np.nextafter(low, low.dtype.type(-np.inf)), np.nextafter(high, high.dtype.type(np.inf))
