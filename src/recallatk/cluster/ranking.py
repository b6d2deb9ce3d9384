"""Ranking over shards of a gallery: the two passes of the engine as tasks, whose results are merged in trees.

`rank` takes the place of `recallatk.ranking.rank`. A task has one block of queries and one shard, and neither holds
more rows than fit into the memory of a worker. Here are the queries' numbers and the samples, never a gallery.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.cluster.engine import IN_FLIGHT, Engine, Merge, Ref
from recallatk.cluster.plan import RankingPlan, gpus_of, plan_ranking, plan_scores, task_memory
from recallatk.cluster.sources import MappedFile, Scale
from recallatk.memory import shared_memory, working_memory
from recallatk.ranking import Block, Depth, Grid, RankedRows, Ranking, rank_scores
from recallatk.ranking.blocks import query_blocks, slices
from recallatk.ranking.counting import LevelSet
from recallatk.ranking.counts import Counts
from recallatk.ranking.grid import StreamedRows
from recallatk.ranking.shards import (
    AllCounts,
    BestPositives,
    Positives,
    Shard,
    ShardCounts,
    best_in_shard,
    count_all_in_shard,
    count_both,
    count_in_shard,
    deep_ranking_of_shards,
    merge_all_counts,
    merge_best_positives,
    merge_counts,
    merge_positives,
    positives_in_shard,
    ranking_of_shards,
)
from recallatk.relevance import Relevance
from recallatk.types import release_pages

PAIRS_A_TASK = 2**22
"""Queries and positives that a task of the first pass compares."""

HELD = 3
"""Blocks of queries whose results are still being computed while the tasks of the next are handed over."""


def rank(
    query: Grid,
    gallery: Grid,
    relevance: Relevance,
    *,
    engine: Engine,
    depth: Depth = "first",
    limit: Counts | None = None,
    backend: str = "auto",
    memory: int | None = None,
    threads: int | None = None,
    plan: RankingPlan | None = None,
) -> Iterator[Ranking]:
    """Count what stands ahead of the positives of each query, on a cluster; see `recallatk.ranking.rank`.

    Args:
        query: the rows of the queries, from `stream_grid`.
        gallery: those of the gallery, from the same call; for leave-one-out the same object.
        relevance: who is positive and who is ignored.
        engine: the cluster.
        depth: as for `recallatk.ranking.rank`.
        limit: as for `recallatk.ranking.rank`.
        backend: auto, native, numpy or torch.
        memory: bytes that the process of a worker may hold; default half of its node's memory, shared by its cores.
        threads: cores of each task; default one.
        plan: how many rows a block and a shard have; default what fits.

    Yields:
        Blocks that cover the queries in order.
    """
    threads = threads or 1
    task_memory(engine.nodes, memory, threads, backend)
    if not len(query) or not len(gallery):
        return
    plan = plan or plan_ranking(
        len(query), len(gallery), query.dim, engine.nodes,
        alone=query is gallery, memory=memory, threads=threads, backend=backend,
    )  # fmt: skip
    work = _Work(engine, Scale.of(gallery), relevance, query, gallery, plan, backend, threads)
    if depth == "all":
        yield from _rank_all(work, limit)
    elif query is gallery:
        yield from _rank_self(work)
    else:
        yield from _rank_first(work)
    engine.finish()


def rank_blocks_of_scores(
    scores: npt.NDArray[np.number] | RankedRows,
    relevance: Relevance,
    *,
    engine: Engine,
    depth: Depth = "first",
    memory: int | None = None,
    queries: int | None = None,
) -> Iterator[Ranking]:
    """The same counts from similarities that somebody else computed; see `recallatk.ranking.rank_scores`.

    Args:
        scores: a matrix, of which each task reads its rows; or ranked lists, which are sent.
        relevance: who is positive and who is ignored.
        engine: the cluster.
        depth: as for `rank`.
        memory: as for `rank`.
        queries: how many a task has; default four tasks a core.

    Yields:
        Blocks that cover the queries in order.
    """
    plan = plan_scores(relevance.n_queries, engine.nodes, memory=memory, queries=queries)
    memory = plan.memory
    engine.expect(plan.tasks)
    everything = slice(0, relevance.n_gallery)
    waiting: deque[Ref] = deque()
    for some in slices(relevance.n_queries, plan.queries):
        own = scores.part(some) if isinstance(scores, RankedRows) else MappedFile.of(scores, some)
        own = engine.share(np.ascontiguousarray(scores[some])) if own is None else own  # type: ignore[index]
        part = relevance.part(some, everything)
        waiting.append(engine.run(_rank_scores, own, part, some.start, depth, memory, memory=memory, step=True))
        while len(waiting) > IN_FLIGHT * engine.cores:
            yield from engine.fetch(waiting.popleft())
    for ref in waiting:
        yield from engine.fetch(ref)
    engine.finish()


@dataclasses.dataclass(frozen=True, eq=False)
class _Work:
    """What all tasks of a ranking have in common."""

    engine: Engine
    scale: Scale
    relevance: Relevance
    query: Grid
    gallery: Grid
    plan: RankingPlan
    backend: str
    threads: int

    @property
    def shards(self) -> list[slice]:
        return list(slices(len(self.gallery), self.plan.shard))

    def rows(self, grid: Grid, rows: slice) -> Any:
        """Rows for tasks: where a worker finds them itself, or shared."""
        assert isinstance(grid.rows, StreamedRows)
        embeddings = grid.rows.embeddings
        if not isinstance(embeddings, np.ndarray):
            return embeddings.part(rows)
        found = MappedFile.of(embeddings, rows)
        return self.engine.share(np.ascontiguousarray(embeddings[rows])) if found is None else found

    def broadcast(self, queries: slice) -> Ref:
        """A block of queries, shared: read here, and fetched once by each node."""
        assert isinstance(self.query.rows, StreamedRows)
        shared = self.engine.share(np.ascontiguousarray(self.query.rows.embeddings[queries]))
        release_pages(self.query.rows.embeddings)
        return shared

    def run(self, function: Any, *arguments: Any, returns: int = 1, step: bool = False) -> Any:
        needs = {"cores": self.threads, "gpus": gpus_of(self.backend), "memory": self.plan.memory}
        return self.engine.run(function, *arguments, returns=returns, step=step, **needs)

    @property
    def choices(self) -> tuple[Scale, int, str, int]:
        return self.scale, self.plan.memory, self.backend, self.threads

    def first_pass(self, function: Any, merge: Any, own: Any, queries: slice, shards: list[tuple[slice, Any]]) -> Ref:
        """What is positive for a block of queries, in all shards; a shard that holds no positive is not asked.

        Only positives are read of a mapped file, so that a task looks at as many shards as hold enough of them.
        """
        if isinstance(shards[0][1], MappedFile):
            pairs = int(self.relevance.pairs[queries].sum())
            blocks = math.ceil(len(self.query) / self.plan.block)
            wanted = max(math.ceil(pairs / PAIRS_A_TASK), math.ceil(self.engine.cores / self.threads / blocks))
            height = math.ceil(len(self.gallery) / min(wanted, len(shards)))
            shards = [(rows, self.rows(self.gallery, rows)) for rows in slices(len(self.gallery), height)]
        tree = Merge(self.engine, merge)
        for rows, where in shards:
            part = self.relevance.part(queries, rows)
            if part.positive.pairs.any():
                tree.add(self.run(function, own, where, part, rows.start, *self.choices[:2]))
        root = tree.root()
        if root is None:
            rows, where = shards[0]
            root = self.run(function, own, where, self.relevance.part(queries, rows), rows.start, *self.choices[:2])
        return root


def _rank_first(work: _Work) -> Iterator[Ranking]:
    """Queries that are not the gallery: every shard against every block of queries."""
    shards = [(rows, work.rows(work.gallery, rows)) for rows in work.shards]
    waiting: deque[tuple[slice, Ref, Ref]] = deque()
    blocks = list(slices(len(work.query), work.plan.block))
    work.engine.expect(len(blocks) * len(shards))
    for queries in blocks:
        own = work.broadcast(queries)
        best = work.first_pass(_best, merge_best_positives, own, queries, shards)
        counts = Merge(work.engine, merge_counts)
        for rows, where in shards:
            part = work.relevance.part(queries, rows)
            counts.add(work.run(_count, own, where, part, rows.start, best, *work.choices, step=True))
        waiting.append((queries, best, counts.root()))
        while len(waiting) > HELD:
            yield _ranking(work, *waiting.popleft())
    for one in waiting:
        yield _ranking(work, *one)


def _rank_self(work: _Work) -> Iterator[Ranking]:
    """A set ranked against itself: each pair of its parts once, for both."""
    parts = [(rows, work.rows(work.gallery, rows)) for rows in work.shards]
    work.engine.expect(len(parts) * (len(parts) + 1) // 2)
    bests = [work.first_pass(_best, merge_best_positives, where, rows, parts) for rows, where in parts]
    counts = [Merge(work.engine, merge_counts) for _ in parts]
    for i, (queries, own) in enumerate(parts):
        for j, (rows, other) in enumerate(parts[i:], start=i):
            if i == j:
                part = work.relevance.part(queries, queries)
                counts[i].add(work.run(_count_alone, own, part, bests[i], *work.choices, step=True))
                continue
            both = work.relevance.part(queries, rows), work.relevance.part(rows, queries)
            here, there = work.run(
                _count_both, own, other, both, bests[i], bests[j], *work.choices, returns=2, step=True
            )
            counts[i].add(here)
            counts[j].add(there)
        counts[i].root()  # nothing more comes for these queries
    for (queries, _), best, found in zip(parts, bests, counts, strict=True):
        yield _ranking(work, queries, best, found.root())


def _rank_all(work: _Work, limit: Counts | None) -> Iterator[Ranking]:
    """All levels: blocks of queries have no more positives than a worker may judge."""
    shards = [(rows, work.rows(work.gallery, rows)) for rows in work.shards]
    pairs = Block.within(work.plan.memory, work.query.dim).pairs
    waiting: deque[tuple[slice, Ref, Ref]] = deque()

    def ranking(queries: slice, found: Ref, counts: Ref) -> Ranking:
        positives, counted = work.engine.fetch(found), work.engine.fetch(counts)
        within = None if limit is None else limit[queries]
        block = deep_ranking_of_shards(positives, counted, unit=work.scale.unit, limit=within)
        return dataclasses.replace(block, queries=queries)

    blocks = list(query_blocks(work.relevance.pairs + 1, Block(work.plan.block, max(pairs // 2, 1))))
    work.engine.expect(len(blocks) * len(shards))
    for queries in blocks:
        own = work.broadcast(queries)
        found = work.first_pass(_positives, merge_positives, own, queries, shards)
        levels = work.run(_levels, found)
        within = None if limit is None else limit[queries]
        counts = Merge(work.engine, merge_all_counts)
        for rows, where in shards:
            part = work.relevance.part(queries, rows)
            counts.add(work.run(_count_all, own, where, part, rows.start, levels, within, *work.choices, step=True))
        waiting.append((queries, found, counts.root()))
        while len(waiting) > HELD:
            yield ranking(*waiting.popleft())
    for one in waiting:
        yield ranking(*one)


def _ranking(work: _Work, queries: slice, best: Ref, counts: Ref) -> Ranking:
    found = ranking_of_shards(work.engine.fetch(best), work.engine.fetch(counts), unit=work.scale.unit)
    return dataclasses.replace(found, queries=queries)


# The tasks. They run in a worker, perhaps more than once, and depend on their arguments alone.


def _best(own: Any, where: Any, part: Relevance, first: int, scale: Scale, memory: int) -> BestPositives:
    query = scale.grid(own).load()
    return best_in_shard(query, Shard(scale.grid(where), part, first), memory=_left(memory, query.dim))


def _count(
    own: Any, where: Any, part: Relevance, first: int, best: BestPositives,
    scale: Scale, memory: int, backend: str, threads: int,
) -> ShardCounts:  # fmt: skip
    query, shard = scale.grid(own).load(), Shard(scale.grid(where), part, first)
    memory = _left(memory, query.dim)
    with _blas(threads):
        return count_in_shard(query, shard, best, backend=backend, memory=memory, threads=threads)


def _count_alone(
    own: Any, part: Relevance, best: BestPositives, scale: Scale, memory: int, backend: str, threads: int
) -> ShardCounts:
    grid = scale.grid(own).load()
    memory = _left(memory, grid.dim)
    with _blas(threads):
        return count_in_shard(grid, Shard(grid, part, 0), best, backend=backend, memory=memory, threads=threads)


def _count_both(
    own: Any, where: Any, parts: tuple[Relevance, Relevance], best: BestPositives, other_best: BestPositives,
    scale: Scale, memory: int, backend: str, threads: int,
) -> tuple[ShardCounts, ShardCounts]:  # fmt: skip
    one, other = scale.grid(own).load(), scale.grid(where).load()
    memory = _left(memory, one.dim)
    with _blas(threads):
        return count_both(one, other, parts, (best, other_best), backend=backend, memory=memory, threads=threads)


def _positives(own: Any, where: Any, part: Relevance, first: int, scale: Scale, memory: int) -> Positives:
    query = scale.grid(own).load()
    return positives_in_shard(query, Shard(scale.grid(where), part, first), memory=_left(memory, query.dim))


def _levels(positives: Positives) -> LevelSet:
    return positives.levels


def _count_all(
    own: Any, where: Any, part: Relevance, first: int, levels: LevelSet, limit: Counts | None,
    scale: Scale, memory: int, backend: str, threads: int,
) -> AllCounts:  # fmt: skip
    query, shard = scale.grid(own).load(), Shard(scale.grid(where), part, first)
    memory = _left(memory, query.dim)
    with _blas(threads):
        return count_all_in_shard(query, shard, levels, limit=limit, backend=backend, memory=memory, threads=threads)


def _rank_scores(own: Any, part: Relevance, first: int, depth: Depth, memory: int) -> list[Ranking]:
    scores = own.open() if isinstance(own, MappedFile) else own
    blocks = rank_scores(scores, part, depth=depth, memory=_left(memory, 1), first=first)
    return [
        dataclasses.replace(block, queries=slice(block.queries.start + first, block.queries.stop + first))
        for block in blocks
    ]


def _left(memory: int, dim: int) -> int:
    """What is left of a worker's memory for the work; pages of the object store that it has seen are not its own."""
    return working_memory(memory + shared_memory(), Block.least().bytes(dim))[0]


def _blas(threads: int) -> Any:
    from threadpoolctl import threadpool_limits

    return threadpool_limits(threads, user_api="blas")
