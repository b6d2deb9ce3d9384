"""Depth "all": the negatives ahead of every positive, from float32 products sorted into bins between the positives.

The levels of many queries are held together, so that for self-retrieval one product serves both of its rows as queries.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import numpy as np
import numpy.typing as npt

from recallatk.ranking.bins import MOST_QUERIES, AddTile, Bins, MakeAddTile, Tile
from recallatk.ranking.blocks import Block, query_blocks, slices
from recallatk.ranking.counting import LevelSet, find_levels, levels_within, make_ranking, pairs_by_row
from recallatk.ranking.counts import Counts, Ranking, Similarities
from recallatk.ranking.finding import FindPairs, MakeFindPairs
from recallatk.ranking.grid import Grid, GridRows, LoadedGrid
from recallatk.ranking.products import (
    Float32,
    MakeProducts,
    PairProducts,
    fetched_products,
    float32_error,
    longest_possible,
    round_down,
    to_float32,
)
from recallatk.relevance import Judgements, Relevance

ASKED_OF = 1000
"""Where a query asks for one of so many gallery rows, it is faster to find them than to multiply all in float32."""

FAR = 2**62
"""Negatives ahead of a level of which no more is known than that it is beyond the limit."""

WIDEST_TILE = 1024
"""Gallery rows in a tile: a wider one is no faster to multiply and leaves the cache before it is binned."""


def rank_all(
    query: Grid,
    gallery: Grid,
    relevance: Relevance,
    make_products: MakeProducts,
    make_add_tile: MakeAddTile,
    make_find_pairs: MakeFindPairs | None = None,
    *,
    size: Block,
    limit: Counts | None,
    threads: int,
) -> Iterator[Ranking]:
    """Depth "all" block by block.

    Args:
        query: the rows of the queries.
        gallery: the rows of the gallery; the same object where every query is in it: then a product serves both sides.
        relevance: who is positive and who is ignored.
        make_products: what gives the exact similarities of pairs.
        make_add_tile: what bins a tile of products.
        make_find_pairs: what finds few pairs faster than all are multiplied; None: there is nothing.
        size: bounds the tiles of all threads together, the pairs whose levels are held at a time, and the parts of both
            sets that are in memory. In parts, a product serves one side only.
        limit: as for `recallatk.ranking.rank`.
        threads: how many share the tiles; BLAS gets one in each.
    """
    from threadpoolctl import ThreadpoolController

    fits = max(len(query), len(gallery)) <= size.part
    symmetric = fits and query is gallery
    whole = _Part.both(query, gallery) if fits else None
    longest = [longest_possible(query.dim)] * 2 if whole is None else [part.longest for part in whole]
    error = float32_error(query.dim, *longest)
    find_pairs = None
    few = limit is not None and len(gallery) > 0 and ASKED_OF * float(limit.mean()) <= len(gallery)
    if whole is not None and make_find_pairs is not None and few:
        find_pairs = make_find_pairs(whole[0].rows, whole[1].rows)
    area = size.queries * size.gallery // threads
    height = max(1, min(size.queries, MOST_QUERIES, math.isqrt(area) if symmetric else area))
    width = max(1, min(WIDEST_TILE, area // height))
    # Half of the budget of pairs: the others are what the block that is being judged may take. A query costs as a pair.
    for span in query_blocks(relevance.pairs + 1, Block(size.part, max(size.pairs // 2, 1))):
        own = _Part.of(query, span) if whole is None else whole[0]
        other_grid = gallery if whole is None else whole[1].grid
        fetched = fetched_products(own.rows, other_grid, make_products, at_once=size.part)
        products = _numbered_from(own.first, fetched)
        blocks = [
            _QueryBlock.of(queries, relevance, products, gallery.near, error, limit)
            for queries in slices(span.stop, height, first=span.start)
        ]
        with ThreadpoolController().limit(limits=1, user_api="blas"):  # the threads are ours
            if find_pairs is not None and whole is not None:
                for block in blocks:
                    rows = block.queries if symmetric else slice(0, min(height, len(gallery)))
                    product = own[block.queries] @ whole[1][rows].T
                    block.raise_low_by(product, rows, error, _add_tile(make_add_tile, own, whole[1]))
                    block.take_off(products)
                _find(blocks, find_pairs, error, threads)
            else:
                for others in slices(len(gallery), size.part):
                    other = _Part.of(gallery, others) if whole is None else whole[1]
                    tasks = _tasks(blocks, span if symmetric else slice(others.start, others.start), others, width)
                    _share(tasks, own, other, error, _add_tile(make_add_tile, own, other), threads)
        for block in blocks:
            yield make_ranking(
                block.queries,
                block.levels,
                block.totals(),
                block.judged,
                n_gallery=len(gallery),
                unit=gallery.unit,
                limit=block.limit,
            )


@dataclasses.dataclass(frozen=True)
class _Part:
    """Some rows of a set, in memory: on the grid and in float32. Slices of it are those of the whole set.

    Attributes:
        grid: the rows.
        real: (n, d) float32, in units of 2**26 steps.
        longest: the length of the longest row, in the same units.
        first: the number of the first row in the whole set.
    """

    grid: LoadedGrid
    real: Float32
    longest: float
    first: int

    @classmethod
    def of(cls, grid: Grid, rows: slice) -> _Part:
        part = grid.part(rows)
        return cls(part, *to_float32(part.rows), rows.start)

    @classmethod
    def both(cls, query: Grid, gallery: Grid) -> tuple[_Part, _Part]:
        own = cls.of(query, slice(0, len(query)))
        return own, own if query is gallery else cls.of(gallery, slice(0, len(gallery)))

    @property
    def rows(self) -> GridRows:
        return self.grid.rows

    def __getitem__(self, rows: slice) -> Float32:
        return self.real[rows.start - self.first : rows.stop - self.first]


def _numbered_from(first: int, products: PairProducts) -> PairProducts:
    """Products of queries that are numbered in the whole set."""
    return lambda owners, rows: products(owners - first, rows)


def _add_tile(make_add_tile: MakeAddTile, query: _Part, gallery: _Part) -> AddTile:
    """What counts tiles whose rows are numbered in the whole sets; a tile by column has the sides exchanged."""
    add_tile = make_add_tile(query.rows, gallery.rows)

    def add(bins: Bins, tile: Tile) -> None:
        first_query, first_row = tile.first_query - query.first, tile.first_row - gallery.first
        add_tile(bins, dataclasses.replace(tile, first_query=first_query, first_row=first_row))

    return add


@dataclasses.dataclass(frozen=True)
class _QueryBlock:
    """Some queries, their levels, and what was counted against them so far.

    Attributes:
        queries: their rows.
        judged: their positives and ignored rows.
        levels: the distinct similarities of their positives.
        bins: what was counted.
        limit: (b,) the rank from which on levels are left out; None: none are.
        low: (b,) the product below which nothing counts; it rises as levels turn out to begin beyond the limit.
        no_negatives: (gallery rows, places in the block) of positives and ignored rows, sorted by row.
        near: the width of a near-tie in grid steps.
        n_gallery: how many gallery rows there are.
        lock: held by who counts.
    """

    queries: slice
    judged: Judgements
    levels: LevelSet
    bins: Bins
    limit: Counts | None
    low: Float32
    no_negatives: tuple[Counts, Counts]
    near: int
    n_gallery: int
    lock: threading.Lock

    def __len__(self) -> int:
        return int(self.queries.stop - self.queries.start)

    @classmethod
    def of(
        cls,
        queries: slice,
        relevance: Relevance,
        products: PairProducts,
        near: int,
        error: float,
        limit: Counts | None,
    ) -> _QueryBlock:
        """Judge queries and compare them with their positives."""
        judged = relevance.judge(queries)
        similarity = products(judged.positive_queries + queries.start, judged.positive_rows)
        levels = find_levels(queries.stop - queries.start, judged, similarity, depth="all")
        return cls(
            queries=queries,
            judged=judged,
            levels=levels,
            bins=Bins.of(levels.starts, levels.similarity, near, error),
            limit=None if limit is None else limit[queries],
            low=_lowest(levels, np.ones(len(levels.similarity), np.bool_), near, error),
            no_negatives=pairs_by_row(judged),
            near=near,
            n_gallery=relevance.n_gallery,
            lock=threading.Lock(),
        )

    def add(self, product: Float32, rows: slice, error: float, add_tile: AddTile, *, by_column: bool) -> None:
        """Count products of these queries with these gallery rows; the products are left as they were."""
        begin, end = np.searchsorted(self.no_negatives[0], [rows.start, rows.stop])
        row, owner = self.no_negatives[0][begin:end] - rows.start, self.no_negatives[1][begin:end]
        places = (row, owner) if by_column else (owner, row)
        kept = product[places]
        product[places] = np.nan  # no comparison holds
        with self.lock:
            add_tile(self.bins, Tile(product, by_column, self.low, error, self.queries.start, rows.start))
        product[places] = kept

    def raise_low_by(self, product: Float32, rows: slice, error: float, add_tile: AddTile) -> None:
        """Look at some gallery rows beforehand, only to know which levels are beyond the limit; nothing is counted."""
        self.add(product, rows, error, add_tile, by_column=False)
        self.raise_low(error)
        self.bins.above[:] = 0
        self.bins.level[:] = 0

    def take_off(self, products: PairProducts) -> None:
        """Count ignored rows less than not at all, where they will be found like everybody else."""
        owners, rows = self.judged.ignored_queries, self.judged.ignored_rows
        self.bins.add(owners, products(owners + self.queries.start, rows), -1)

    def put(self, owners: Counts, rows: Counts, similarity: Similarities) -> None:
        """Count pairs that were found; positives among them are exactly at a level, and not counted after all."""
        at_level = self.bins.add(owners, similarity)
        if len(at_level):
            keys = owners[at_level] * self.n_gallery + rows[at_level]
            place = np.searchsorted(self._positives, keys)
            again = at_level[np.append(self._positives, -1)[place] == keys]
            self.bins.add(owners[again], similarity[again], -1)

    @functools.cached_property
    def _positives(self) -> Counts:
        """The pairs of queries and positives as single numbers, rising."""
        keys: Counts = self.judged.positive_queries * self.n_gallery + self.judged.positive_rows
        return keys

    def totals(self) -> tuple[Counts, Counts, Counts, Counts]:
        """What was counted, see `Bins.totals`. Levels of which not everything was counted are far beyond the limit."""
        ahead, tied, near_above, near_below = self.bins.totals()
        owners = np.repeat(np.arange(len(self)), np.diff(self.levels.starts))
        return (
            np.where(self.bins.lower[self.bins.level_at] >= self.low[owners], ahead, FAR),
            tied,
            near_above,
            near_below,
        )

    def raise_low(self, error: float) -> None:
        """Look no more for what only levels beyond the limit would ask for: counts only grow, so they stay beyond."""
        if self.limit is None:
            return
        with self.lock:
            ahead = self.bins.ahead()[self.bins.level_at]
            kept = levels_within(self.limit, self.levels.starts, ahead, self.levels.positives_tied)
            np.maximum(self.low, _lowest(self.levels, kept, self.near, error), out=self.low)


def _find(blocks: list[_QueryBlock], find_pairs: FindPairs, error: float, threads: int) -> None:
    """Count the pairs that are found, block by block of their queries."""
    span = slice(blocks[0].queries.start, blocks[-1].queries.stop)
    low = np.full(span.stop, np.inf, np.float32)
    height, parts = len(blocks[0]), itertools.count(1)

    def fill_low() -> None:
        for block in blocks:
            low[block.queries] = block.low

    def put(owners: Counts, rows: Counts, similarity: Similarities) -> None:
        which = ((owners - span.start) // height).astype(np.min_scalar_type(len(blocks)))  # sorts fast
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(len(blocks) + 1))
        for block, start, stop in zip(blocks, ends[:-1], ends[1:], strict=True):
            some = order[start:stop]
            block.put(owners[some] - block.queries.start, rows[some], similarity[some])

    def look_again() -> None:
        if next(parts).bit_count() == 1:
            for block in blocks:
                block.raise_low(error)
            fill_low()

    fill_low()
    find_pairs(span, low, put, look_again, threads=threads)


def _lowest(levels: LevelSet, kept: npt.NDArray[np.bool_], near: int, error: float) -> Float32:
    """For each query the product below which nothing counts: its lowest kept level, or a near-tie below its best."""
    ranked = np.diff(levels.starts) > 0
    low = np.full(len(ranked), np.inf)
    firsts = levels.starts[:-1][ranked]
    if len(firsts):
        low[ranked] = np.minimum.reduceat(np.where(kept, levels.similarity, np.inf), firsts)
    low[ranked] = np.minimum(low[ranked], levels.similarity[firsts] - near)
    return round_down(low * 2.0**-52 - error)


@dataclasses.dataclass(frozen=True)
class _Task:
    """One tile: queries of a block against gallery rows, which are the queries of `mirror` too.

    Attributes:
        block: the queries.
        rows: the gallery rows.
        mirror: the block whose queries these gallery rows are, where the product serves it too.
        then: the blocks that should look at their limits afterwards.
    """

    block: _QueryBlock
    rows: slice
    mirror: _QueryBlock | None
    then: tuple[_QueryBlock, ...]


def _tasks(blocks: list[_QueryBlock], mirrored: slice, gallery: slice, width: int) -> list[_Task]:
    """Every tile once; those of gallery rows that are queries of these blocks (`mirrored`) on and above the diagonal.

    A block looks at its limits after 1, 2, 4, 8, ... tiles. The diagonal comes first: every block soon has seen some.
    """
    n = len(blocks) if mirrored.stop > mirrored.start else 0
    tiles = [(i, blocks[i + gap].queries, i + gap) for gap in range(n) for i in range(n - gap)]
    rest = [*slices(mirrored.start, width, first=gallery.start), *slices(gallery.stop, width, first=mirrored.stop)]
    tiles += [(i, rows, i) for i in range(len(blocks)) for rows in rest]
    seen: Counter[int] = Counter()
    tasks = []
    for i, rows, other in tiles:
        sides = (i,) if other == i else (i, other)
        seen.update(sides)
        then = tuple(blocks[side] for side in sides if seen[side].bit_count() == 1)
        tasks.append(_Task(blocks[i], rows, None if other == i else blocks[other], then))
    return tasks


def _share(tasks: list[_Task], left: _Part, right: _Part, error: float, add_tile: AddTile, threads: int) -> None:
    """Threads take one tile after the other."""
    waiting, one_at_a_time = iter(tasks), threading.Lock()
    most = max((len(task.block) * (task.rows.stop - task.rows.start) for task in tasks), default=0)

    def work() -> None:
        buffer = np.empty(most, np.float32)  # memory that is new for every tile would have to be cleared for each
        while True:
            with one_at_a_time:
                task = next(waiting, None)
            if task is None:
                return
            shape = len(task.block), task.rows.stop - task.rows.start
            product = buffer[: math.prod(shape)].reshape(shape)
            np.matmul(left[task.block.queries], right[task.rows].T, out=product)
            task.block.add(product, task.rows, error, add_tile, by_column=False)
            if task.mirror is not None:
                task.mirror.add(product, task.block.queries, error, add_tile, by_column=True)
            for block in task.then:
                block.raise_low(error)

    if threads == 1:
        work()
        return
    with ThreadPoolExecutor(threads) as pool:
        workers = [pool.submit(work) for _ in range(threads)]
        try:
            wait(workers, return_when=FIRST_EXCEPTION)
        finally:
            with one_at_a_time:
                waiting = iter(())  # after an error, or Ctrl-C, nothing more is begun
    for worker in workers:
        worker.result()
