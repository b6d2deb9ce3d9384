"""Files of judged pairs -> Qrels: TREC, BEIR, and tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from recallatk.datasets.pairs import GALLERY, QUERY, as_id, as_whole, decoded, find_column, read_trec
from recallatk.datasets.tables import READERS, Table, read_table
from recallatk.types import Qrels, RecallatkError

GRADE = ("grade", "score", "relevance", "rel")
LEVELS = ("easy", "hard", "junk")
"""The levels that the protocol knows; an empty cell is no level."""

_TREC = ("query id", "iteration", "gallery id", "grade")
_Row = tuple[str, str, str, int, str]  # place, query id, gallery id, grade, level


def load_qrels(path: str | os.PathLike[str]) -> Qrels:
    """Read judged pairs; the suffix names the format.

    - .csv, .tsv, .jsonl, .ndjson, .parquet: a table with the columns `query_id` (or query-id, qid, query) and
      `gallery_id` (or corpus-id, doc_id, docno, docid, gallery); optional `grade` (or score, relevance, rel; a whole
      number, 1 where there is no such column) and `level` (easy, hard, junk, or empty). BEIR's tsv is such a table.
      Where a table has several of these columns, the first one named here counts.
    - everything else (.txt, .qrels, .trec), and a .tsv whose first line is such a line: TREC, lines of
      `query-id iteration gallery-id grade`; the iteration is not used. Empty lines, and lines that begin with #, are
      passed over.

    Ids are the text that the file says, nothing decoded. A grade below the protocol's `min_grade`, such as TREC's -1,
    is a judged negative.

    Raises:
        RecallatkError: a column, field or cell is missing or not understood, or a pair is judged twice; the message
            names the file and the line.
    """
    path = Path(path)
    table = read_table(path) if path.suffix.lower() in READERS and not _is_bare(path) else None
    with_levels = table is not None and "level" in table.columns
    rows = _read_trec(path) if table is None else _read_columns(path, table)
    places: dict[tuple[str, str], str] = {}
    grades: list[int] = []
    levels: list[str] = []
    for place, query, item, grade, level in rows:
        if (query, item) in places:
            raise RecallatkError(
                f"{place}: the pair {query!r}, {item!r} is judged twice, here and at "
                f"{places[query, item].removeprefix(f'{path}: ')}; keep one"
            )
        places[query, item] = place
        grades.append(grade)
        levels.append(level)
    if not places:
        raise RecallatkError(f"{path}: there are no judged pairs in it; write one a line")
    return Qrels(
        query_ids=tuple(query for query, _ in places),
        gallery_ids=tuple(item for _, item in places),
        grades=np.array(grades, dtype=np.int64),
        levels=tuple(levels) if with_levels else None,
    )


def _is_bare(path: Path) -> bool:
    """Whether a .tsv is TREC without a header, as MS MARCO's are: four fields, of which the last is a number."""
    if path.suffix.lower() != ".tsv" or not path.is_file():
        return False
    with path.open("rb") as stream:
        first = stream.readline().split()
    return len(first) == len(_TREC) and first[-1].removeprefix(b"-").isdigit()


def _read_trec(path: Path) -> Iterator[_Row]:
    as_text = decoded()
    for where, (query, _, item, grade) in read_trec(path, _TREC):
        yield where, as_text(query, where), as_text(item, where), as_whole(grade, where, "the grade"), ""


def _read_columns(path: Path, table: Table) -> Iterator[_Row]:
    hint = "; a TREC file without a header ends in .qrels or .txt"
    query, item = find_column(path, table, QUERY, hint=hint), find_column(path, table, GALLERY, hint=hint)
    grade = next((name for name in GRADE if name in table.columns), None)
    for row, place in enumerate(table.places):
        where = f"{path}: {place}"
        yield (
            where,
            as_id(table.columns[query][row], where, query),
            as_id(table.columns[item][row], where, item),
            1 if grade is None else as_whole(table.columns[grade][row], where, grade),
            _level(table.columns["level"][row], where) if "level" in table.columns else "",
        )


def _level(value: Any, where: str) -> str:
    level = "" if value is None else value
    if level not in ("", *LEVELS):
        raise RecallatkError(f"{where}: the level is {value!r}; write {', '.join(LEVELS)}, or leave the cell empty")
    return str(level)
