"""What a system returned -> RankedLists: TREC runs, tables, and a list a line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recallatk.datasets.pairs import GALLERY, QUERY, as_id, as_score, as_whole, decoded, find_column, read_trec
from recallatk.datasets.tables import READERS, Table, as_table, read_json_rows, read_table
from recallatk.types import RankedLists, RecallatkError

LISTS = "gallery_ids"

_TREC = ("query id", "Q0", "gallery id", "rank", "score", "tag")
_Entry = tuple[str, str, float]  # query id, gallery id, score


def load_ranked_lists(path: str | os.PathLike[str]) -> RankedLists:
    """Read ranked lists; the suffix names the format.

    - .csv, .tsv, .jsonl, .ndjson, .parquet: a table with a row for each returned item, the columns `query_id` (or
      query-id, qid, query), `gallery_id` (or corpus-id, doc_id, docno, docid, gallery) and `score`; or `rank` where
      there is no score (a whole number, the lowest is nearest).
    - .jsonl, .ndjson: or a list a line, `{"query_id": ..., "gallery_ids": [...], "scores": [...]}`; without scores the
      order is the ranking.
    - everything else (.txt, .run, .trec): a TREC run, lines of `query-id Q0 gallery-id rank score tag`. As in
      trec_eval the score decides and the rank is not used. Equal scores are ties here; trec_eval orders them by id,
      and calls scores equal that are so in single precision. Empty lines, and lines that begin with #, are passed over.

    Lines of `query item item ...` are not read, because one with five items cannot be told from a TREC run.

    Raises:
        RecallatkError: a column, field or cell is missing or not understood, or a score is NaN or infinite; the
            message names the file and the line.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        rows = read_json_rows(path)
        flat = rows and not any(LISTS in row for _, row in rows)
        entries = list(_read_columns(path, as_table(rows)) if flat else _read_nested(path, rows))
    elif suffix in READERS:
        entries = list(_read_columns(path, read_table(path)))
    else:
        entries = list(_read_run(path))
    if not entries:
        raise RecallatkError(f"{path}: there are no ranked items in it; write one a line")
    queries, items, scores = zip(*entries, strict=True)
    return RankedLists(queries, items, np.array(scores, dtype=np.float64))


def _read_run(path: Path) -> Iterator[_Entry]:
    as_text = decoded()
    for where, (query, _, item, _, score, _) in read_trec(path, _TREC):
        yield as_text(query, where), as_text(item, where), as_score(score, where, "the score")


def _read_columns(path: Path, table: Table) -> Iterator[_Entry]:
    hint = "; a TREC run without a header ends in .run or .txt"
    query, item = find_column(path, table, QUERY, hint=hint), find_column(path, table, GALLERY, hint=hint)
    value = find_column(path, table, ("score", "rank"), hint=hint)
    for row, place in enumerate(table.places):
        where = f"{path}: {place}"
        cell = table.columns[value][row]
        score = as_score(cell, where, value) if value == "score" else -as_whole(cell, where, value)
        yield (
            as_id(table.columns[query][row], where, query),
            as_id(table.columns[item][row], where, item),
            float(score),
        )


def _read_nested(path: Path, rows: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[_Entry]:
    seen: dict[str, str] = {}
    for place, row in rows:
        where = f"{path}: {place}"
        query = as_id(next((row[name] for name in QUERY if name in row), None), where, QUERY[0])
        if query in seen:
            raise RecallatkError(f"{where}: query {query!r} has a list at {seen[query]} already; keep one")
        seen[query] = place
        items = row.get(LISTS)
        if not isinstance(items, list):
            raise RecallatkError(f"{where}: {LISTS} is {items!r}; write a list of ids, nearest first")
        scores = _scores(row, len(items), where)
        for item, score in zip(items, scores, strict=True):
            yield query, as_id(item, where, f"an id in {LISTS}"), score


def _scores(row: dict[str, Any], n: int, where: str) -> list[float]:
    scores = row.get("scores")
    if scores is None:
        return [-float(place) for place in range(n)]
    if not isinstance(scores, list) or len(scores) != n:
        found = f"{len(scores)} scores" if isinstance(scores, list) else f"the scores {scores!r}"
        raise RecallatkError(f"{where}: {found} for {n} {LISTS}; there must be one for each")
    return [as_score(score, where, "a score") for score in scores]
