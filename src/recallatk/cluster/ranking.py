"""Ranking over shards of a gallery: the two passes of a ranking as tasks, whose results are merged in trees.

`rank` takes the place of `recallatk.ranking.rank`. A task has one block of queries and one shard, and neither holds
more rows than fit into the memory of a worker. The process that hands tasks over holds the columns of the samples and
some numbers for each query, and never a gallery that workers can read where it lies.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import deque
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recallatk.cluster import tasks
from recallatk.cluster.engine import IN_FLIGHT, Engine, Ref
from recallatk.cluster.merging import Merge
from recallatk.cluster.plan import (
    RankingPlan,
    ScorePlan,
    gpus_of,
    most_pairs,
    plan_deep_ranking,
    plan_ranking,
    plan_scores,
    task_memory,
)
from recallatk.cluster.sources import MappedFile, Pieces, Scale
from recallatk.ranking import Block, Depth, Grid, RankedRows, Ranking, check_sizes
from recallatk.ranking.blocks import query_blocks, slices
from recallatk.ranking.counts import Counts, join_blocks
from recallatk.ranking.grid import StreamedRows
from recallatk.ranking.shards import merge_best_positives, merge_counts
from recallatk.relevance import Relevance
from recallatk.types import release_pages

PAIRS_A_TASK = 2**22
"""Queries and positives that a task of the first pass compares."""

PIECE = 2**24
"""Bytes of a gallery in memory here that are shared together, and that a worker sees at a time."""

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
    start: int = 0,
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
        memory: bytes that the process of a worker may hold; default as `worker_memory` says.
        threads: cores of each task; default one.
        plan: how many rows a block and a shard have; default what fits.
        start: the first query that is ranked; those before it are left out.

    Returns:
        Blocks that cover the queries in order, each as soon as it and those before it are there. Nothing is handed over
        before the first of them is asked for.

    Raises:
        ChoiceError: as for `task_memory`.
        RecallatkError: as for `task_memory`, or, while blocks are asked for, a task failed.
    """
    threads = 1 if threads is None else threads
    task_memory(engine.nodes, memory, threads, backend)  # refuses at once what cannot be
    if start >= len(query) or not len(gallery):
        return iter(())
    given = plan is not None
    if depth == "all" and backend == "torch":
        backend = "auto"  # it would have the whole gallery in memory
    alone, size = query is gallery, (len(query), len(gallery), query.dim)
    plan = plan or plan_ranking(*size, engine.nodes, alone=alone, memory=memory, threads=threads, backend=backend)
    halved = alone and (depth == "first" or _levels_fit(relevance, plan))
    if depth == "all" and not halved and not given:
        plan = plan_deep_ranking(relevance.pairs, *size[1:], engine.nodes, memory=memory, threads=threads)
    work = _Work(engine, Scale.of(gallery), relevance, query, gallery, plan, backend, threads)
    if halved:
        return _to_the_end(engine, _rank_self(work, _ALL if depth == "all" else _FIRST, limit, start))
    return _to_the_end(engine, _rank_all(work, limit, start) if depth == "all" else _rank_first(work, start))


def _to_the_end(engine: Engine, blocks: Iterator[Ranking]) -> Iterator[Ranking]:
    yield from blocks
    engine.finish()


def rank_blocks_of_scores(
    scores: npt.NDArray[np.number] | RankedRows,
    relevance: Relevance,
    *,
    engine: Engine,
    depth: Depth = "first",
    memory: int | None = None,
    queries: int | None = None,
    start: int = 0,
) -> Iterator[Ranking]:
    """The same counts from similarities that somebody else computed; see `recallatk.ranking.rank_scores`.

    Args:
        scores: a matrix, of which tasks read their rows where it is a mapped file; what is in memory here, as ranked
            lists are, is sent.
        relevance: who is positive and who is ignored.
        engine: the cluster.
        depth: as for `rank`.
        memory: as for `rank`.
        queries: how many a task has; default so many that each core gets four tasks.
        start: as for `rank`.

    Returns:
        As for `rank`.

    Raises:
        RecallatkError: as for `recallatk.ranking.rank_scores`, and as for `rank`.
    """
    check_sizes(scores, relevance.n_queries, relevance.n_gallery)  # of all queries: a task sees its own only
    plan = plan_scores(relevance.n_queries, engine.nodes, memory=memory, queries=queries)
    return _to_the_end(engine, _rank_scores(engine, scores, relevance, depth, plan, start))


def _rank_scores(
    engine: Engine,
    scores: npt.NDArray[np.number] | RankedRows,
    relevance: Relevance,
    depth: Depth,
    plan: ScorePlan,
    start: int,
) -> Iterator[Ranking]:
    memory = plan.memory
    everything = slice(0, relevance.n_gallery)
    waiting: Waiting = deque()
    blocks = list(
        _blocks_from(start, relevance, Block(plan.queries, most_pairs(memory, 1) if depth == "all" else 2**62))
    )
    engine.expect(len(blocks))
    for some in blocks:
        own = scores.part(some) if isinstance(scores, RankedRows) else MappedFile.of(scores, some)
        own = engine.share(np.ascontiguousarray(scores[some])) if own is None else own  # type: ignore[index]
        part = relevance.part(some, everything)
        ranking = engine.run(tasks.scored, own, part, some.start, depth, memory, memory=memory, step=True)
        waiting.append((some, ranking))
        yield from _taken(engine, waiting, held=IN_FLIGHT * engine.cores)
    yield from _taken(engine, waiting, held=0)


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

    def opened_later(self) -> Any:
        """The whole gallery, of which tasks read what they need: from its file, or of what is shared here in pieces."""
        assert isinstance(self.gallery.rows, StreamedRows)
        embeddings, n = self.gallery.rows.embeddings, len(self.gallery)
        if not isinstance(embeddings, np.ndarray):
            return embeddings
        found = MappedFile.of(embeddings, slice(0, n))
        if found is not None:
            return found
        starts = range(0, n, max(1, PIECE // (embeddings[:1].nbytes or 1)))
        shared = self.engine.share_for_later
        pieces = [shared(np.ascontiguousarray(embeddings[rows])) for rows in slices(n, starts.step)]
        return Pieces((*starts, n), tuple(pieces), slice(0, n), embeddings.dtype, embeddings.shape[1])

    def broadcast(self, queries: slice) -> Ref:
        """A block of queries, shared: read here, and fetched once by each node."""
        assert isinstance(self.query.rows, StreamedRows)
        shared = self.engine.share(np.ascontiguousarray(self.query.rows.embeddings[queries]))
        release_pages(self.query.rows.embeddings)
        return shared

    def run(self, function: Any, *arguments: Any, returns: int = 1, step: bool = False) -> Any:
        needs = {"cores": self.threads, "gpus": gpus_of(self.backend), "memory": self.plan.memory}
        return self.engine.run(function, *arguments, returns=returns, step=step, **needs)

    @functools.cached_property
    def pairs(self) -> Counts:
        """Those of `Relevance.pairs`, which is worked out from all queries each time: once, and not for each block."""
        return self.relevance.pairs

    @property
    def choices(self) -> tuple[Scale, int, str, int]:
        return self.scale, self.plan.memory, self.backend, self.threads

    def first_pass(self, function: Any, merge: Any, own: Any, queries: slice, shards: list[tuple[slice, Any]]) -> Ref:
        """What is positive for a block of queries, in all shards; a shard that holds no positive is not asked.

        Of a mapped file only the rows of positives are read. So it is cut anew, into no more shards than there are:
        each has enough pairs for a task, or all blocks together have just enough tasks for all cores.
        """
        if isinstance(shards[0][1], MappedFile):
            pairs = int(self.pairs[queries].sum())
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


Waiting: TypeAlias = deque[tuple[slice, Ref]]
"""Blocks of queries whose tasks are handed over: the queries, and their rankings to come."""


def _taken(engine: Engine, waiting: Waiting, *, held: int) -> Iterator[Ranking]:
    """The first blocks that wait, as far as they are there; of more than `held` the first is waited for."""
    while waiting and (len(waiting) > held or engine.ready(waiting[0][1])):
        queries, ref = waiting.popleft()
        whole = tasks.wide(join_blocks(engine.fetch(ref)))
        yield dataclasses.replace(whole, queries=queries)


def _blocks_from(start: int, relevance: Relevance, size: Block) -> Iterator[slice]:
    """The queries from one on in blocks of no more queries, and of these with all positives."""
    for rest in query_blocks(relevance.pairs[start:] + 1, size):
        yield slice(start + rest.start, start + rest.stop)


def _rank_first(work: _Work, start: int) -> Iterator[Ranking]:
    """Queries that are not the gallery: every shard against every block of queries."""
    shards = [(rows, work.rows(work.gallery, rows)) for rows in work.shards]
    waiting: Waiting = deque()
    blocks = list(slices(len(work.query), work.plan.block, first=start))
    work.engine.expect(len(blocks) * len(shards))
    for queries in blocks:
        own = work.broadcast(queries)
        best = work.first_pass(tasks.best, merge_best_positives, own, queries, shards)
        counts = Merge(work.engine, merge_counts)
        for rows, where in shards:
            part = work.relevance.part(queries, rows)
            counts.add(work.run(tasks.count, own, where, part, best, *work.choices, step=True))
            yield from _taken(work.engine, waiting, held=HELD)
        waiting.append((queries, work.run(tasks.ranking, best, counts.root(), work.scale.unit, None)))
    yield from _taken(work.engine, waiting, held=0)


@dataclasses.dataclass(frozen=True)
class _Passes:
    """The tasks of a set that is ranked against itself, and what merges their results."""

    find: Any
    merge_found: Any
    count: Any
    count_alone: Any
    count_each_other: Any
    merge_counts: Any
    ranking: Any


_FIRST = _Passes(
    find=tasks.best,
    merge_found=merge_best_positives,
    count=tasks.count,
    count_alone=tasks.count_alone,
    count_each_other=tasks.count_each_other,
    merge_counts=merge_counts,
    ranking=tasks.ranking,
)
_ALL = _Passes(
    find=tasks.positives,
    merge_found=tasks.together,
    count=tasks.count_all,
    count_alone=tasks.count_all_alone,
    count_each_other=tasks.count_all_each_other,
    merge_counts=tasks.added,
    ranking=tasks.deep_ranking,
)


def _levels_fit(relevance: Relevance, plan: RankingPlan) -> bool:
    """Whether a worker holds the levels of two parts of a set; otherwise moving them would cost more than it saves."""
    pairs = np.add.reduceat(relevance.pairs + 1, np.arange(0, relevance.n_queries, plan.shard))
    return bool(pairs.max() <= plan.pairs // 2)


def _rank_self(work: _Work, passes: _Passes, limit: Counts | None, start: int) -> Iterator[Ranking]:
    """A set ranked against itself: each pair of its parts once, for both; those before `start` are gallery alone."""
    rows_of_parts = [*slices(start, work.plan.shard), *slices(len(work.gallery), work.plan.shard, first=start)]
    parts = [(rows, work.rows(work.gallery, rows)) for rows in rows_of_parts]
    before = math.ceil(start / work.plan.shard)
    left = len(parts) - before
    work.engine.expect(before * left + left * (left + 1) // 2)
    found, known = {}, {}
    for place, (rows, own) in list(enumerate(parts))[before:]:
        found[place] = known[place] = work.first_pass(passes.find, passes.merge_found, own, rows, parts)
        if passes is _ALL:
            known[place] = work.run(tasks.know, found[place], None if limit is None else limit[rows])
    counts = [Merge(work.engine, passes.merge_counts) for _ in parts]
    waiting: Waiting = deque()
    for i, (queries, own) in list(enumerate(parts))[before:]:
        for j in (*range(before), *range(i, len(parts))):
            rows, other = parts[j]
            if j < before:
                part = work.relevance.part(queries, rows)
                counts[i].add(work.run(passes.count, own, other, part, known[i], *work.choices, step=True))
            elif i == j:
                part = work.relevance.part(queries, queries)
                counts[i].add(work.run(passes.count_alone, own, part, known[i], *work.choices, step=True))
            else:
                both = work.relevance.part(queries, rows), work.relevance.part(rows, queries)
                two = known[i], known[j]
                here, there = work.run(
                    passes.count_each_other, own, other, both, *two, *work.choices, returns=2, step=True
                )
                counts[i].add(here)
                counts[j].add(there)
            yield from _taken(work.engine, waiting, held=HELD)
        within = None if limit is None else limit[queries]
        # Nothing more comes for these queries.
        waiting.append((queries, work.run(passes.ranking, found[i], counts[i].root(), work.scale.unit, within)))
    yield from _taken(work.engine, waiting, held=0)


def _rank_all(work: _Work, limit: Counts | None, start: int) -> Iterator[Ranking]:
    """All levels: blocks of queries have no more positives than a worker may judge."""
    everything = slice(0, len(work.gallery))
    whole = work.opened_later()
    shards = [(rows, whole.part(rows)) for rows in work.shards]
    waiting: Waiting = deque()
    blocks = list(_blocks_from(start, work.relevance, Block(work.plan.block, work.plan.pairs)))
    work.engine.expect(len(blocks) * len(shards))
    for queries in blocks:
        own = whole.part(queries) if work.query is work.gallery else work.rows(work.query, queries)
        within = None if limit is None else limit[queries]
        if len(shards) == 1:
            part = work.relevance.part(queries, everything)
            ranking = work.run(tasks.rank_deep, own, whole, part, within, *work.choices, step=True)
        else:
            found = work.first_pass(tasks.positives, tasks.together, own, queries, shards)
            known = work.run(tasks.know, found, within)
            counts = Merge(work.engine, tasks.added)
            for rows, where in shards:
                part = work.relevance.part(queries, rows)
                counts.add(work.run(tasks.count_all, own, where, part, known, *work.choices, step=True))
                yield from _taken(work.engine, waiting, held=HELD)
            ranking = work.run(tasks.deep_ranking, found, counts.root(), work.scale.unit, within)
        waiting.append((queries, ranking))
        yield from _taken(work.engine, waiting, held=IN_FLIGHT * work.engine.cores)
    yield from _taken(work.engine, waiting, held=0)
