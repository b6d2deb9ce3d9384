"""Depth "all": the negatives ahead of every positive, from float32 products sorted into bins between the positives.

The levels of many queries are held together, so that for self-retrieval one product serves both of its rows as queries.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import numpy as np

from recallatk.ranking.bins import MOST_QUERIES, AddTile, Bins, MakeAddTile, Tile
from recallatk.ranking.blocks import Block, query_blocks, slices
from recallatk.ranking.counting import LevelSet, make_ranking
from recallatk.ranking.counts import Counts, Ranking, Similarities
from recallatk.ranking.finding import FindPairs, MakeFindPairs
from recallatk.ranking.grid import Grid, LoadedGrid
from recallatk.ranking.level_blocks import Part, QueryBlock
from recallatk.ranking.products import (
    MakeProducts,
    PairProducts,
    fetched_products,
    float32_error,
    longest_possible,
)
from recallatk.relevance import Relevance

ASKED_OF = 1000
"""Where a query asks for one of so many gallery rows, it is faster to find them than to multiply all in float32."""

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
    whole = Part.both(query, gallery) if fits else None
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
        own = Part.of(query, span) if whole is None else whole[0]
        other_grid = gallery if whole is None else whole[1].grid
        fetched = fetched_products(own.rows, other_grid, make_products, at_once=size.part)
        products = _numbered_from(own.first, fetched)
        blocks = [
            QueryBlock.of(queries, relevance, products, gallery.near, error, limit)
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
                    other = Part.of(gallery, others) if whole is None else whole[1]
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


def count_against_levels(
    query: LoadedGrid,
    gallery: Grid,
    relevance: Relevance,
    levels: LevelSet,
    make_add_tile: MakeAddTile,
    *,
    size: Block,
    limit: Counts | None,
    threads: int,
) -> tuple[Counts, Counts, Counts, Counts]:
    """Count a part of a gallery against levels that are those of the whole gallery.

    Args:
        query: the rows of the queries.
        gallery: the rows of the part, of which those that are not in memory are made in parts.
        relevance: who is positive and who is ignored in the part.
        levels: the levels of these queries.
        make_add_tile: as for `rank_all`.
        size: bounds the tiles of all threads together, and the gallery rows that are in memory.
        limit: as for `rank_all`; a level that this part alone shows to be beyond it has FAR ahead.
        threads: as for `rank_all`.

    Returns:
        As `QueryBlock.totals`, for all queries one after the other.
    """
    from threadpoolctl import ThreadpoolController

    own, alone = Part.of(query, slice(0, len(query))), gallery is query
    error = float32_error(query.dim, own.longest, own.longest if alone else longest_possible(query.dim))
    area = size.queries * size.gallery // threads
    height = max(1, min(size.queries, MOST_QUERIES, math.isqrt(area) if alone else area))
    blocks = _with_levels(query, relevance, levels, error, limit, height)
    width = max(1, min(WIDEST_TILE, area // height))
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        for others in slices(len(gallery), max(len(gallery), 1) if alone else size.part):
            other = own if alone else Part.of(gallery, others)
            tasks = _tasks(blocks, others if alone else slice(others.start, others.start), others, width)
            _share(tasks, own, other, error, _add_tile(make_add_tile, own, other), threads)
    return _totals(blocks)


def count_each_other(
    sides: tuple[LoadedGrid, LoadedGrid],
    relevance: tuple[Relevance, Relevance],
    levels: tuple[LevelSet, LevelSet],
    limits: tuple[Counts | None, Counts | None],
    make_add_tile: MakeAddTile,
    *,
    size: Block,
    threads: int,
) -> list[tuple[Counts, Counts, Counts, Counts]]:
    """`count_against_levels` of two parts of a set in each other: one product serves both of its rows as queries."""
    from threadpoolctl import ThreadpoolController

    one, other = (Part.of(side, slice(0, len(side))) for side in sides)
    error = float32_error(one.grid.dim, one.longest, other.longest)
    height = max(1, min(size.queries, MOST_QUERIES, math.isqrt(size.queries * size.gallery // threads)))
    own, others = (
        _with_levels(*side, height) for side in zip(sides, relevance, levels, (error, error), limits, strict=True)
    )
    tasks = []
    for i, block in enumerate(own, start=1):
        for j, mirror in enumerate(others, start=1):  # each has seen so many tiles then, of the other side
            then = [side for side, seen in ((block, j), (mirror, i)) if seen.bit_count() == 1]
            tasks.append(_Task(block, mirror.queries, mirror, tuple(then)))
    add_tiles = _add_tile(make_add_tile, one, other), _add_tile(make_add_tile, other, one)
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        _share(tasks, one, other, error, add_tiles[0], threads, add_mirrored=add_tiles[1])
    return [_totals(own), _totals(others)]


def _with_levels(
    query: LoadedGrid, relevance: Relevance, levels: LevelSet, error: float, limit: Counts | None, height: int
) -> list[QueryBlock]:
    return [
        QueryBlock.of(queries, relevance, None, query.near, error, limit, levels.part(queries))
        for queries in slices(len(query), height)
    ]


def _totals(blocks: list[QueryBlock]) -> tuple[Counts, Counts, Counts, Counts]:
    columns = zip(*(block.totals() for block in blocks), strict=True)
    ahead, tied, above, below = (np.concatenate([np.zeros(0, np.int64), *parts]) for parts in columns)
    return ahead, tied, above, below


def _numbered_from(first: int, products: PairProducts) -> PairProducts:
    """Products of queries that are numbered in the whole set."""
    return lambda owners, rows: products(owners - first, rows)


def _add_tile(make_add_tile: MakeAddTile, query: Part, gallery: Part) -> AddTile:
    """What counts tiles whose rows are numbered in the whole sets; a tile by column has the sides exchanged."""
    add_tile = make_add_tile(query.rows, gallery.rows)

    def add(bins: Bins, tile: Tile) -> None:
        first_query, first_row = tile.first_query - query.first, tile.first_row - gallery.first
        add_tile(bins, dataclasses.replace(tile, first_query=first_query, first_row=first_row))

    return add


def _find(blocks: list[QueryBlock], find_pairs: FindPairs, error: float, threads: int) -> None:
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


@dataclasses.dataclass(frozen=True)
class _Task:
    """One tile: queries of a block against gallery rows, which are the queries of `mirror` too.

    Attributes:
        block: the queries.
        rows: the gallery rows.
        mirror: the block whose queries these gallery rows are, where the product serves it too.
        then: the blocks that should look at their limits afterwards.
    """

    block: QueryBlock
    rows: slice
    mirror: QueryBlock | None
    then: tuple[QueryBlock, ...]


def _tasks(blocks: list[QueryBlock], mirrored: slice, gallery: slice, width: int) -> list[_Task]:
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


def _share(
    tasks: list[_Task], left: Part, right: Part, error: float, add_tile: AddTile, threads: int,
    *, add_mirrored: AddTile | None = None,
) -> None:  # fmt: skip
    """Threads take one tile after the other; where the sides are not one set, another function adds the mirrored."""
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
                task.mirror.add(product, task.block.queries, error, add_mirrored or add_tile, by_column=True)
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
