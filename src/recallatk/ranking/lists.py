"""Ranked lists by id -> ranked lists by row, and what is wrong or short in them."""

from __future__ import annotations

import numpy as np

from recallatk.ranking.scores import RankedRows
from recallatk.types import RankedLists, RecallatkError, Samples
from recallatk.wording import counted


def list_rows(lists: RankedLists, query: Samples, gallery: Samples) -> tuple[RankedRows, list[str]]:
    """Bring lists to the rows of these samples.

    Returns:
        The lists, and a line for each of: queries without a list, lists of unknown queries.

    Raises:
        RecallatkError: a list holds an item twice, or one that the gallery does not have.
    """
    query_rows = {name: row for row, name in enumerate(query.row_ids)}
    gallery_rows = {name: row for row, name in enumerate(gallery.row_ids)}
    owners = np.array([query_rows.get(name, -1) for name in lists.query_ids], dtype=np.int64)
    rows = np.array([gallery_rows.get(name, -1) for name in lists.gallery_ids], dtype=np.int64)
    known = owners >= 0
    lost = np.flatnonzero(known & (rows < 0))
    if len(lost):
        query_id, item = lists.query_ids[lost[0]], lists.gallery_ids[lost[0]]
        raise RecallatkError(f"the list of query {query_id!r} holds {item!r}, which the gallery does not have")
    order = np.lexsort((rows[known], owners[known]))
    owners, rows, scores = owners[known][order], rows[known][order], lists.scores[known][order]
    twice = np.flatnonzero((np.diff(owners) == 0) & (np.diff(rows) == 0))
    if len(twice):
        query_id, item = query.row_ids[owners[twice[0]]], gallery.row_ids[rows[twice[0]]]
        raise RecallatkError(f"the list of query {query_id!r} holds {item!r} more than once; keep the best")
    lengths = np.bincount(owners, minlength=len(query))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return RankedRows(starts, rows, scores), _doubts(lists, query, lengths.tolist())


def _doubts(lists: RankedLists, query: Samples, lengths: list[int]) -> list[str]:
    doubts = []
    unknown = sorted(set(lists.query_ids) - set(query.row_ids))
    if unknown:
        queries = counted(len(unknown), "query", "queries")
        doubts.append(f"there are lists of {queries} not evaluated (such as {unknown[0]!r})")
    without = [name for name, length in zip(query.row_ids, lengths, strict=True) if not length]
    if without:
        queries = counted(len(without), "query", "queries")
        doubts.append(f"{queries} without a list (such as {min(without)!r}): nothing is found for them")
    return doubts
