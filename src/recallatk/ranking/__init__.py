"""From grid rows and relevance to the counts that every metric is computed from."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from recallatk.cores import usable_cores
from recallatk.memory import default_memory
from recallatk.ranking.blocks import Block
from recallatk.ranking.counts import Counts, Depth, Ranking
from recallatk.ranking.grid import Grid, load_both, stream_grid, to_grid
from recallatk.ranking.lists import list_rows
from recallatk.ranking.scores import RankedRows, check_sizes, rank_lists, rank_matrix
from recallatk.relevance import Relevance
from recallatk.types import ChoiceError

__all__ = [
    "BACKENDS",
    "Block",
    "Depth",
    "Grid",
    "Keep",
    "Rank",
    "RankScores",
    "RankedRows",
    "Ranking",
    "check_sizes",
    "list_rows",
    "rank",
    "rank_scores",
    "stream_grid",
    "to_grid",
]

BACKENDS: dict[str, str] = {
    "native": "recallatk.ranking.native:rank_blocks",
    "numpy": "recallatk.ranking.screen:rank_blocks",
    "torch": "recallatk.ranking.torch_screen:rank_blocks",
    "reference": "recallatk.ranking.reference:rank_blocks",
}
"""Backend name -> "module:function". All count the same; "auto" is native or numpy. To add one: CONTRIBUTING.md."""

Rank: TypeAlias = Callable[..., Iterator[Ranking]]
"""`rank`, or what takes its place on other machines."""

RankScores: TypeAlias = Callable[..., Iterator[Ranking]]
"""`rank_scores`, or what takes its place on other machines."""

Keep: TypeAlias = Callable[[object, int, Callable[..., Iterator[Ranking]]], Iterator[Ranking]]
"""What keeps blocks of a ranking while it runs, so that it need not begin anew.

Called with everything that the counts depend on, the number of queries, and what ranks from one of them on (`start`);
gives all blocks.
"""

LARGE = 16
"""A gallery of so many times the queries is large: most of its rows are nobody's positives."""

STREAMS = frozenset({"native", "numpy", "reference"})
"""Backends that may be given grids which are not in memory."""


def rank(
    query: Grid,
    gallery: Grid,
    relevance: Relevance,
    *,
    depth: Depth = "first",
    limit: Counts | None = None,
    backend: str = "auto",
    memory: int | None = None,
    threads: int | None = None,
    block: Block | None = None,
) -> Iterator[Ranking]:
    """Count what stands ahead of the positives of each query, a block of queries at a time.

    Args:
        query: the rows of the queries, from `stream_grid` or `to_grid`.
        gallery: those of the gallery, from the same call; for leave-one-out the same object.
        relevance: who is positive and who is ignored.
        depth: "first" counts against the best positive of a query only (recall, mrr); "all" against all of them.
        limit: (n_queries,) ranks from which on nothing is asked: at depth "all", levels that begin at this rank or
            later are left out (the best level never is).
        backend: a name in BACKENDS, or "auto": the fastest that works here. It never changes a count.
        memory: bytes of working memory beyond what the process holds; default a fraction of what is free. Grids that
            do not fit into it are made in parts, again and again.
        threads: how many; default as many as there are cores for this process.
        block: block sizes, in place of those chosen from `memory`; they never change a count.

    Yields:
        Blocks that cover the queries in order.

    Raises:
        RecallatkError: no such backend, or too little memory.
    """
    if backend == "auto":
        backend = fastest_backend()[0]
    if backend not in BACKENDS:
        raise ChoiceError(f"there is no backend {backend!r}; choose one of: auto, {', '.join(BACKENDS)}")
    module, function = BACKENDS[backend].split(":")
    rank_blocks = getattr(importlib.import_module(module), function)
    budget = default_memory() if memory is None else memory
    workers = usable_cores() if threads is None else threads
    if workers < 1:
        raise ChoiceError(f"threads={threads}: there must be at least one")
    if not len(query):
        return iter(())
    part = (block or Block.within(budget, query.dim)).part
    fits = max(len(query), len(gallery)) <= part
    if backend not in STREAMS or (fits and not _looks_once(query, gallery, part, depth, backend)):
        query, gallery = load_both(query, gallery)
    blocks: Iterator[Ranking] = rank_blocks(
        query, gallery, relevance, depth=depth, limit=limit, memory=budget, threads=workers, block=block
    )
    return _with_threads(blocks, workers)


def _looks_once(query: Grid, gallery: Grid, part: int, depth: Depth, backend: str) -> bool:
    """Whether a large gallery is looked at once only, so that nothing is won by keeping it."""
    in_parts = depth == "first" and backend != "reference" and len(query) <= part
    return in_parts and query is not gallery and len(gallery) > LARGE * len(query)


def _with_threads(blocks: Iterator[Ranking], threads: int) -> Iterator[Ranking]:
    """The blocks, each computed with so many threads of BLAS; the setting is the caller's own in between."""
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController()
    while True:
        with controller.limit(limits=threads, user_api="blas"):
            block = next(blocks, None)
        if block is None:
            return
        yield block


def fastest_backend() -> tuple[str, str]:
    """The backend that "auto" means on this machine, and why."""
    from recallatk.ranking.native import why_not

    reason = why_not()
    return ("native", "the C extension works here") if reason is None else ("numpy", reason)


def rank_scores(
    scores: npt.NDArray[np.number] | RankedRows,
    relevance: Relevance,
    *,
    depth: Depth = "first",
    memory: int | None = None,
    block: Block | None = None,
    first: int = 0,
) -> Iterator[Ranking]:
    """The same counts from similarities that somebody else computed; the arguments are those of `rank`.

    Args:
        scores: (n_queries, n_gallery), higher is nearer, read a block of rows at a time (a memory map will do); or
            ranked lists, which may be shorter than the gallery: what a list does not hold is never found.
        relevance: who is positive and who is ignored.
        depth: as for `rank`.
        memory: as for `rank`.
        block: as for `rank`.
        first: the number of the first of these queries among all, where they are a part; messages name rows by it.

    Raises:
        RecallatkError: the sizes do not fit, or a score is NaN.
    """
    budget = default_memory() if memory is None else memory
    check_sizes(scores, relevance.n_queries, relevance.n_gallery)
    if isinstance(scores, RankedRows):
        return rank_lists(scores, relevance, depth=depth, memory=budget, block=block)
    return rank_matrix(scores, relevance, depth=depth, memory=budget, block=block, first=first)
