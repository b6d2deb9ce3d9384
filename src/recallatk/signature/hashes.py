"""The hashes behind the parts: what is hashed, in which form."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.signature.grammar import sha256_of
from recallatk.signature.sides import DIGEST_BYTES, Side, escape_name, escape_names, little_endian
from recallatk.types import Label, Memo, Qrels, RankedLists, each_label, release_pages

Cell = tuple[str, ...]
"""The values that a row has in a column."""

ROW_DIGEST = f"V{DIGEST_BYTES}"
ROWS_A_BLOCK = 16
"""Rows fetched together in the order of their names: of a mapped file each may bring two megabytes into memory."""

STORED_BYTES = 2**26

LINES_A_BLOCK = 2**16


def content_hash(sides: Sequence[Side]) -> str | None:
    """`img`: lines `role TAB id TAB sha256 of the bytes`; None where some bytes are not known."""
    parts = []
    for side in sides:
        contents = side.samples.content
        if contents is None or not all(contents):
            return None
        parts.append((side, side.in_order(escape_names(contents))))
    return _hash_lines(parts)


def label_hash(sides: Sequence[Side]) -> str:
    """`labels` of the record: lines `role TAB id TAB label` (several labels joined by a tab)."""
    shown: Memo[Label, str] = Memo(lambda label: "\t".join(map(escape_name, each_label(label))))
    return _hash_lines((side, shown.each(side.in_order(side.samples.labels))) for side in sides)


def relevance_hash(
    sides: Sequence[Side], columns: Sequence[Sequence[Cell]], literal: Sequence[Sequence[Cell]] = ()
) -> str:
    """A hash of how columns part the rows, whatever the parts are called.

    Each value is replaced by the number of its first appearance in the order of the lines, so renaming labels changes
    nothing and moving one row to another label does.

    Args:
        sides: queries and gallery.
        columns: for each column, one cell a row over the sides one after the other; a cell holds any number of values.
        literal: further columns, of which the values themselves are hashed.
    """
    texts = [*(_numbers() for _ in columns), *(_literal for _ in literal)]
    starts = [0, *itertools.accumulate(len(side.samples) for side in sides)]
    cells = list(zip(*columns, *literal, strict=True)) if any(side.ties for side in sides) else []
    parts = []
    for side, start in sorted(zip(sides, starts, strict=False), key=lambda pair: pair[0].role):
        rows = (side.order + start).tolist()
        for tie in side.ties:  # the cells decide between rows of one name
            rows[tie] = sorted(rows[tie], key=cells.__getitem__)
        every = [(text, column) for text, column in zip(texts, (*columns, *literal), strict=True)]
        parts.append((side, ["\t".join([text(column[row]) for text, column in every]) for row in rows]))
    return _hash_lines(parts)


def count_equal_rows(gallery: Side, query: Side) -> int:
    """How many queries have the very float32 values of some gallery row, told by their hashes."""
    own = query.row_digests.view(ROW_DIGEST).ravel().tolist()
    theirs = gallery.row_digests.view(ROW_DIGEST).ravel()
    missing = set(own)
    for start in range(0, len(theirs), LINES_A_BLOCK):
        missing.difference_update(theirs[start : start + LINES_A_BLOCK].tolist())
    return sum(digest not in missing for digest in own)


def embedding_hash(sides: Sequence[Side], embeddings: Sequence[npt.NDArray[Any]]) -> str:
    """`emb`: a header `f4;ROWSxCOLUMNS;C;LE`, then the rows as little-endian float32, in the order of the lines.

    Args:
        sides: queries and gallery.
        embeddings: the rows of each.
    """
    digest = hashlib.sha256(f"f4;{sum(map(len, embeddings))}x{embeddings[0].shape[1]};C;LE\n".encode())
    for side, rows in sorted(zip(sides, embeddings, strict=True), key=lambda pair: pair[0].role):
        # Rows that are no array lie in files that are read as a whole: many are fetched together.
        height = ROWS_A_BLOCK if isinstance(rows, np.ndarray) else max(1, STORED_BYTES // (4 * rows.shape[1]))
        for start in range(0, len(rows), height):
            digest.update(little_endian(rows[side.order[start : start + height]]).data)
            release_pages(rows)
    return digest.hexdigest()


def score_hash(scores: npt.NDArray[np.number] | RankedLists, query: Side, gallery: Side) -> str:
    """`emb` of a system that is known by its scores only.

    A matrix: a header `f8;ROWSxCOLUMNS;C;LE`, then little-endian float64, rows and columns in the order of ids. Lists:
    lines `query TAB gallery TAB score`, the score in its shortest decimal form.
    """
    if isinstance(scores, RankedLists):
        entries = zip(scores.query_ids, scores.gallery_ids, scores.scores.tolist(), strict=True)
        lines = sorted((query, item, repr(score)) for query, item, score in entries)
        return sha256_of("".join("\t".join(line) + "\n" for line in lines))
    digest = hashlib.sha256(f"f8;{len(query.order)}x{len(gallery.order)};C;LE\n".encode())
    for row in query.order:
        digest.update(np.asarray(scores[row], dtype="<f8")[gallery.order].tobytes())
    return digest.hexdigest()


def qrels_cells(qrels: Qrels, query_ids: Sequence[str]) -> list[tuple[str, ...]]:
    """Judged pairs as a column of `relevance_hash`: the pairs of each query, in the order of gallery ids."""
    cells: dict[str, list[str]] = {name: [] for name in query_ids}
    levels = qrels.levels or ("",) * len(qrels)
    for query, item, grade, level in sorted(
        zip(qrels.query_ids, qrels.gallery_ids, qrels.grades.tolist(), levels, strict=True)
    ):
        if query in cells:
            cells[query].append(_json([item, grade, level]))
    return [tuple(cells[name]) for name in query_ids]


def first_ranks_hash(ranks: npt.NDArray[np.int64]) -> str:
    """`res`: a header `i4;N`, then the rank of each query's best positive (0: none) as little-endian int32."""
    return hashlib.sha256(f"i4;{len(ranks)}\n".encode() + ranks.astype("<i4").tobytes()).hexdigest()


def json_hash(value: Any) -> str:
    """The hash of a JSON value in canonical form: sorted keys, no spaces, UTF-8 (RFC 8785 for what we put in)."""
    return sha256_of(_json(value))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _hash_lines(parts: Iterable[tuple[Side, list[str]]]) -> str:
    """Hash the lines of sides, from what stands behind the names: texts in the order of the names."""
    digest = hashlib.sha256()
    for side, texts in sorted(parts, key=lambda part: part[0].role):
        for tie in side.ties:
            texts[tie] = sorted(texts[tie])
        for start in range(0, len(texts), LINES_A_BLOCK):
            block = slice(start, start + LINES_A_BLOCK)
            lines = zip(side.names(block), texts[block], strict=True)
            digest.update("".join([f"{side.role}\t{name}\t{text}\n" for name, text in lines]).encode())
    return digest.hexdigest()


def _numbers() -> Callable[[Cell], str]:
    """Cells as the numbers of their values, counted from their first appearance on."""
    codes: dict[str, int] = {}

    def number(value: str) -> str:
        return str(codes.setdefault(value, len(codes)))

    return lambda cell: number(cell[0]) if len(cell) == 1 else ",".join(map(number, cell))


def _literal(cell: Cell) -> str:
    return escape_name(_json(list(cell)))
