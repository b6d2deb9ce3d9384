"""The hashes behind the parts: what is hashed, in which form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from recallatk.signature.grammar import sha256_of
from recallatk.signature.numbers import Cell, Numbers, values_of
from recallatk.signature.sides import DIGEST_BYTES, LINES_A_BLOCK, Side, escape_name, little_endian
from recallatk.types import HexDigests, Label, Memo, Qrels, RankedLists, each_label, release_pages

Value = TypeVar("Value")

Column: TypeAlias = Sequence[Sequence[Cell]]
"""The cells of the rows of each side."""

ROW_DIGEST = f"V{DIGEST_BYTES}"
ROWS_A_BLOCK = 16
"""Rows fetched together in the order of their names: of a mapped file each may bring two megabytes into memory."""

STORED_BYTES = 2**26


def content_hash(sides: Sequence[Side]) -> str | None:
    """`img`: lines `role TAB id TAB sha256 of the bytes`; None where some bytes are not known."""
    contents = []
    for side in sides:
        content = side.samples.content
        if content is None or not (isinstance(content, HexDigests) or all(content)):
            return None
        contents.append(content)

    def texts(place: int, rows: list[int], ties: list[slice]) -> list[str]:
        return list(map(escape_name, _cells(contents[place], rows)))

    return _hash_lines(sides, texts)


def label_hash(sides: Sequence[Side]) -> str:
    """`labels` of the record: lines `role TAB id TAB label` (several labels joined by a tab)."""
    shown: Memo[Label, str] = Memo(lambda label: "\t".join(map(escape_name, each_label(label))))

    def texts(place: int, rows: list[int], ties: list[slice]) -> list[str]:
        return shown.each(_cells(sides[place].samples.labels, rows))

    return _hash_lines(sides, texts)


def relevance_hash(sides: Sequence[Side], columns: Sequence[Column], literal: Sequence[Column] = ()) -> str:
    """A hash of how columns part the rows, whatever the parts are called.

    Each value is replaced by the number of its first appearance in the order of the lines, so renaming labels changes
    nothing and moving one row to another label does.

    Args:
        sides: queries and gallery.
        columns: what the rows of each side have in each column.
        literal: further columns, of which the values themselves are hashed.
    """
    numbers = [Numbers.of(sides, column) for column in columns]

    def texts(place: int, rows: list[int], ties: list[slice]) -> list[str]:
        own = [column[place] for column in (*columns, *literal)]
        for tie in ties:  # the cells decide between rows of one name
            rows[tie] = sorted(rows[tie], key=lambda row: [values_of(column[row]) for column in own])
        cells = [_cells(column, rows) for column in own]
        told = [one.texts(place, column) for one, column in zip(numbers, cells, strict=False)]
        told += [list(map(_literal, column)) for column in cells[len(numbers) :]]
        return told[0] if len(told) == 1 else list(map("\t".join, zip(*told, strict=True)))

    return _hash_lines(sides, texts)


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


def _hash_lines(sides: Sequence[Side], texts: Callable[[int, list[int], list[slice]], list[str]]) -> str:
    """Hash the lines of sides, some at a time, in the order of role and name.

    Args:
        sides: queries and gallery.
        texts: what stands behind the names: of the side at this place, of these rows in the order of their names; and
            which of these are rows of one name.
    """
    digest = hashlib.sha256()
    for place, side in sorted(enumerate(sides), key=lambda one: one[1].role):
        for places, ties in side.blocks():
            told = texts(place, side.order[places].tolist(), ties)
            for tie in ties:
                told[tie] = sorted(told[tie])
            lines = zip(side.names(places), told, strict=True)
            digest.update("".join([f"{side.role}\t{name}\t{text}\n" for name, text in lines]).encode())
    return digest.hexdigest()


def _cells(column: Sequence[Value], rows: list[int]) -> Sequence[Value]:
    taken: Any = column.take(rows) if isinstance(column, HexDigests) else [column[row] for row in rows]
    return tuple(taken)


def _literal(cell: Cell) -> str:
    return escape_name(_json(list(values_of(cell))))
