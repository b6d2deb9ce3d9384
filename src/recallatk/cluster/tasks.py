"""What runs in a worker: functions of their arguments alone, as they may run more than once, and nothing of Ray.

Rows come as a `MappedFile` or the like, which is opened here, or as an array. Whole numbers leave in as few bytes as
they need (`compact`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from recallatk.cluster.sources import Array, MappedFile, Scale
from recallatk.memory import release_shared_pages, working_memory
from recallatk.ranking import Block, Depth, Ranking, rank, rank_scores
from recallatk.ranking.counting import LevelSet
from recallatk.ranking.counts import Counts
from recallatk.ranking.grid import Grid, LoadedGrid
from recallatk.ranking.shards import (
    AllCounts,
    BestPositives,
    Positives,
    Shard,
    ShardCounts,
    best_in_shard,
    count_all_both,
    count_all_in_shard,
    count_both,
    count_in_shard,
    deep_ranking_of_shards,
    merge_all_counts,
    merge_positives,
    positives_in_shard,
    ranking_of_shards,
)
from recallatk.relevance import Relevance

Found = TypeVar("Found", Positives, LevelSet, AllCounts, Ranking)


def best(own: Any, where: Any, part: Relevance, first: int, scale: Scale, memory: int) -> BestPositives:
    """The first pass of a block of queries in a shard."""
    query = scale.grid(own).load()
    return best_in_shard(query, Shard(scale.grid(where), part, first), memory=memory_left(memory, query.dim))


def count(
    own: Any, where: Any, part: Relevance, bests: BestPositives,
    scale: Scale, memory: int, backend: str, threads: int,
) -> ShardCounts:  # fmt: skip
    """The second pass."""
    query, shard = scale.grid(own).load(), Shard(scale.grid(where).load(), part, 0)
    memory = memory_left(memory, query.dim)
    with _blas(threads):
        return count_in_shard(query, shard, bests, backend=backend, memory=memory, threads=threads)


def count_alone(
    own: Any, part: Relevance, bests: BestPositives, scale: Scale, memory: int, backend: str, threads: int
) -> ShardCounts:
    """The second pass of a part of a set against itself."""
    grid = scale.grid(own).load()
    memory = memory_left(memory, grid.dim)
    with _blas(threads):
        return count_in_shard(grid, Shard(grid, part, 0), bests, backend=backend, memory=memory, threads=threads)


def count_each_other(
    own: Any, where: Any, parts: tuple[Relevance, Relevance], bests: BestPositives, other_bests: BestPositives,
    scale: Scale, memory: int, backend: str, threads: int,
) -> tuple[ShardCounts, ShardCounts]:  # fmt: skip
    """The second pass of two parts of a set against each other."""
    one, other = scale.grid(own).load(), scale.grid(where).load()
    memory = memory_left(memory, one.dim)
    with _blas(threads):
        return count_both(one, other, parts, (bests, other_bests), backend=backend, memory=memory, threads=threads)


def ranking(bests: BestPositives, counts: ShardCounts, unit: float, _: Counts | None) -> list[Ranking]:
    """The ranking that both passes give; it is called as `deep_ranking` is, but only levels have a limit."""
    return [compact(ranking_of_shards(bests, counts, unit=unit))]


def positives(own: Any, where: Any, part: Relevance, first: int, scale: Scale, memory: int) -> Positives:
    """The first pass at depth "all"."""
    query = scale.grid(own).load()
    shard = Shard(scale.grid(where), part, first)
    return compact(positives_in_shard(query, shard, memory=memory_left(memory, query.dim)))


def together(parts: Sequence[Positives]) -> Positives:
    """`merge_positives`, in few bytes."""
    return compact(merge_positives(parts))


@dataclasses.dataclass(frozen=True)
class Known:
    """All that the second pass at depth "all" must know of a block of queries."""

    levels: LevelSet
    limit: Counts | None


def know(found: Positives, limit: Counts | None) -> Known:
    """What the second pass needs of the first at depth "all": all but the gains."""
    return Known(compact(dataclasses.replace(wide(found).levels, gains=None, ideal_gains=None)), limit)


def count_all(
    own: Any, where: Any, part: Relevance, known: Known, scale: Scale, memory: int, backend: str, threads: int
) -> AllCounts:
    """The second pass at depth "all", over any number of rows, of which only some are in memory at a time."""
    query = scale.grid(own).load()
    return _count_all(query, scale.grid(where), part, known, memory, backend, threads)


def count_all_alone(
    own: Any, part: Relevance, known: Known, scale: Scale, memory: int, backend: str, threads: int
) -> AllCounts:
    """The second pass at depth "all" of a part of a set against itself."""
    grid = scale.grid(own).load()
    return _count_all(grid, grid, part, known, memory, backend, threads)


def _count_all(
    query: LoadedGrid, grid: Grid, part: Relevance, known: Known, memory: int, backend: str, threads: int
) -> AllCounts:
    shard, levels, memory = Shard(grid, part, 0), wide(known.levels), memory_left(memory, query.dim)
    with _blas(threads):
        found = count_all_in_shard(
            query, shard, levels, limit=known.limit, backend=backend, memory=memory, threads=threads
        )
    return compact(found)


def count_all_each_other(
    own: Any, where: Any, parts: tuple[Relevance, Relevance], one: Known, other: Known,
    scale: Scale, memory: int, backend: str, threads: int,
) -> tuple[AllCounts, AllCounts]:  # fmt: skip
    """The second pass at depth "all" of two parts of a set against each other."""
    sides = scale.grid(own).load(), scale.grid(where).load()
    levels, limits = (wide(one.levels), wide(other.levels)), (one.limit, other.limit)
    memory = memory_left(memory, sides[0].dim)
    with _blas(threads):
        here, there = count_all_both(sides, parts, levels, limits, backend=backend, memory=memory, threads=threads)
    return compact(here), compact(there)


def added(parts: Sequence[AllCounts]) -> AllCounts:
    """`merge_all_counts`, in few bytes."""
    return compact(merge_all_counts(parts))


def deep_ranking(found: Positives, counts: AllCounts, unit: float, limit: Counts | None) -> list[Ranking]:
    """The ranking at depth "all" that both passes give."""
    return [compact(deep_ranking_of_shards(wide(found), wide(counts), unit=unit, limit=limit))]


def rank_deep(
    own: Any, where: Any, part: Relevance, limit: Counts | None,
    scale: Scale, memory: int, backend: str, threads: int,
) -> list[Ranking]:  # fmt: skip
    """Both passes at depth "all" of a block of queries over the whole gallery, so that no level leaves the worker."""
    query: LoadedGrid = scale.grid(own).load()
    memory = memory_left(memory, query.dim)
    blocks = rank(
        query, scale.grid(where), part, depth="all", limit=limit, backend=backend, memory=memory, threads=threads
    )
    return [compact(block) for block in blocks]


def scored(own: Any, part: Relevance, first: int, depth: Depth, memory: int) -> list[Ranking]:
    """The ranking of some rows of a matrix of scores, or of some lists."""
    scores = own.open() if isinstance(own, MappedFile) else own
    blocks = []
    for block in rank_scores(scores, part, depth=depth, memory=memory_left(memory, 1), first=first):
        blocks.append(compact(block))
        release_shared_pages()
    return blocks


def memory_left(memory: int, dim: int) -> int:
    """What is left of a worker's memory for its work, once it has given back the pages that it need not hold."""
    release_shared_pages()
    return working_memory(memory, Block.least().bytes(dim))[0]


def compact(found: Found) -> Found:
    """The same with every whole number in as few bytes as the largest of its column needs."""
    return _each(found, lambda values: values.astype(_smallest(values) if values.dtype.kind == "i" else values.dtype))


def wide(found: Found) -> Found:
    """The same with whole numbers of eight bytes again; a copy, so that nothing of the object store is kept."""
    return _each(found, lambda values: values.astype(np.int64 if values.dtype.kind == "i" else values.dtype))


def _each(found: Found, change: Callable[[Array], Array]) -> Found:
    columns = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    arrays: dict[str, Any] = {name: change(value) for name, value in columns.items() if isinstance(value, np.ndarray)}
    return dataclasses.replace(found, **arrays)


def _smallest(values: Counts) -> np.dtype[Any]:
    """The smallest signed integers that hold these; numpy adds signed ones of different sizes without loss."""
    return np.min_scalar_type(min(int(values.min(initial=0)), -1 - int(values.max(initial=0))))


def _blas(threads: int) -> Any:
    from threadpoolctl import threadpool_limits

    return threadpool_limits(threads, user_api="blas")
