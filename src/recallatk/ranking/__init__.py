"""From grid rows and relevance to the counts that every metric is computed from."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from recallatk.ranking.counts import Depth, Ranking
from recallatk.ranking.grid import GridRows, to_grid
from recallatk.ranking.memory import default_memory
from recallatk.ranking.reference import Block
from recallatk.relevance import Relevance
from recallatk.types import ChoiceError

__all__ = ["BACKENDS", "Block", "Depth", "GridRows", "Ranking", "rank", "to_grid"]

BACKENDS: dict[str, str] = {
    "reference": "recallatk.ranking.reference:rank_blocks",
}
"""Backend name -> "module:function". Every backend returns the same counts; see CONTRIBUTING.md to add one."""


def rank(
    query: GridRows,
    gallery: GridRows,
    relevance: Relevance,
    *,
    depth: Depth = "first",
    backend: str = "reference",
    memory: int | None = None,
    block: Block | None = None,
) -> Iterator[Ranking]:
    """Count what stands ahead of the positives of each query, a block of queries at a time.

    Args:
        query: (n_queries, d) rows from `to_grid`.
        gallery: (n_gallery, d) rows from `to_grid`; for leave-one-out the same array.
        relevance: who is positive and who is ignored.
        depth: "first" counts against the best positive of a query only (recall, mrr); "all" against all of them.
        backend: a name in BACKENDS.
        memory: bytes of working memory beyond the arrays; default a fraction of what is free.
        block: block sizes, in place of those chosen from `memory`; they never change a count.

    Yields:
        Blocks that cover the queries in order.

    Raises:
        RecallatkError: no such backend, or too little memory.
    """
    if backend not in BACKENDS:
        raise ChoiceError(f"there is no backend {backend!r}; choose one of: {', '.join(BACKENDS)}")
    module, function = BACKENDS[backend].split(":")
    rank_blocks = getattr(importlib.import_module(module), function)
    budget = default_memory() if memory is None else memory
    blocks: Iterator[Ranking] = rank_blocks(query, gallery, relevance, depth=depth, memory=budget, block=block)
    return blocks
