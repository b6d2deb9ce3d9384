"""The signature: the recipe of the number in one line, and the hash rules behind its parts.

Hashes are sha256 over UTF-8 lines that end in a line feed, sorted by role (g before q) and id, so they depend neither
on the order of the rows nor on where the data lie. Ids are in Unicode's composed form (NFC) with "/" between folders;
a tab, a line break or a backslash in a name is written as a backslash escape.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.types import (
    EmbeddingSet,
    EvalProtocol,
    Label,
    Qrels,
    RankedLists,
    RecallatkError,
    Samples,
    float32_blocks,
)

UNKNOWN = "na"
SHORT = 12

PROTOCOL_KEYS = tuple(field.metadata["part"] for field in dataclasses.fields(EvalProtocol) if "part" in field.metadata)
DATA_KEYS = ("n", "g", "c", "img", "lab")
SYSTEM_KEYS = ("pre", "w", "emb")
KEYS = (*PROTOCOL_KEYS, *DATA_KEYS, *SYSTEM_KEYS, "ci", "v")
"""Every key of a signature, in order; none is ever left out."""

REPORT_KEYS = frozenset({"k", "ci", "v"})
"""Parts that say how the number is reported; they never make two runs incomparable."""

Side = tuple[str, Samples]


@dataclasses.dataclass(frozen=True)
class Signature:
    """The parts of a signature by key, every key in its place.

    >>> Signature.of({"k": "1,5", "v": "0.1.0"}).parts["sim"]
    'na'
    """

    parts: Mapping[str, str]

    @classmethod
    def of(cls, values: Mapping[str, str | None]) -> Signature:
        """A signature from what is known; everything else is `na`."""
        known = {key: values.get(key) for key in KEYS}
        return cls({key: UNKNOWN if value is None else escape_part(value) for key, value in known.items()})

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Read a printed signature.

        Raises:
            RecallatkError: a part is no KEY:VALUE, or keys are missing, unknown or out of order.
        """
        parts = [part.partition(":") for part in text.strip().split("|")]
        if tuple(key for key, _, _ in parts) != KEYS:
            raise RecallatkError(f"this is no signature: {text!r}; its keys must be {', '.join(KEYS)}, in this order")
        return cls({key: value for key, _, value in parts})

    def __str__(self) -> str:
        return "|".join(f"{key}:{value}" for key, value in self.parts.items())

    @property
    def protocol_id(self) -> str:
        """Twelve hex digits over the protocol and data parts: equal ids mean comparable numbers."""
        keys = [key for key in (*PROTOCOL_KEYS, *DATA_KEYS) if key not in REPORT_KEYS]
        return _sha256("|".join(f"{key}:{self.parts[key]}" for key in keys))[:SHORT]

    @property
    def run_id(self) -> str:
        """Twelve hex digits over the whole line."""
        return _sha256(str(self))[:SHORT]


def escape_part(value: str) -> str:
    """A value with every byte outside `A-Za-z0-9._,+/@=-` written as %XX.

    >>> escape_part("camera type+label")
    'camera%20type+label'
    """
    return re.sub(rb"[^A-Za-z0-9._,+/@=-]", lambda byte: b"%%%02X" % byte[0][0], value.encode()).decode()


def content_hash(sides: Sequence[Side]) -> str | None:
    """`img`: lines `role TAB id TAB sha256 of the bytes`; None where some bytes are not known."""
    if any(side.content is None for _, side in sides):
        return None
    return _hash_lines((role, name, (content,)) for role, side in sides for name, content in _named(side, side.content))


def label_hash(sides: Sequence[Side]) -> str:
    """`lab` as in the record: lines `role TAB id TAB label` (several labels joined by a tab)."""
    return _hash_lines(
        (role, name, (label,) if isinstance(label, str) else label)
        for role, side in sides
        for name, label in _named(side, side.labels)
    )


def relevance_hash(sides: Sequence[Side], columns: Sequence[Sequence[Iterable[str]]]) -> str:
    """A hash of how columns part the rows, whatever the parts are called.

    Each value is replaced by the number of its first appearance in the order of the lines, so renaming labels changes
    nothing and moving one row to another label does.

    Args:
        sides: (role, set) pairs.
        columns: for each column, one cell a row over the sides one after the other; a cell holds any number of values.
    """
    names = [(role, name) for role, side in sides for name in _names(side)]
    # Cells break the tie between rows without ids whose embeddings are equal.
    rows = sorted(
        zip(names, zip(*[map(tuple, column) for column in columns], strict=True), strict=True),
        key=lambda row: (row[0][0], row[0][1].encode(), row[1]),
    )
    codes: list[dict[str, int]] = [{} for _ in columns]
    return _hash_lines(
        (role, name, [",".join(_numbers(known, cell)) for known, cell in zip(codes, cells, strict=True)])
        for (role, name), cells in rows
    )


def label_cells(labels: Iterable[Label]) -> list[tuple[str, ...]]:
    """Labels as a column of `relevance_hash`."""
    return [(label,) if isinstance(label, str) else label for label in labels]


def embedding_hash(sides: Sequence[tuple[str, EmbeddingSet]]) -> str:
    """`emb`: a header `f4;ROWSxCOLUMNS;C;LE`, then the rows as little-endian float32, in the order of the lines."""
    rows = sum(len(side) for _, side in sides)
    digest = hashlib.sha256(f"f4;{rows}x{sides[0][1].embeddings.shape[1]};C;LE\n".encode())
    for _, side in sorted(sides, key=lambda side: side[0]):
        names = _names(side)
        order = sorted(range(len(side)), key=lambda row: names[row].encode())
        for start in range(0, len(order), 4096):
            digest.update(side.embeddings[order[start : start + 4096]].astype("<f4").tobytes())
    return digest.hexdigest()


def score_hash(scores: npt.NDArray[np.number] | RankedLists, query: Samples, gallery: Samples) -> str:
    """`emb` of a system that is known by its scores only.

    A matrix: a header `f8;ROWSxCOLUMNS;C;LE`, then little-endian float64, rows and columns in the order of ids. Lists:
    lines `query TAB gallery TAB score`, the score in its shortest decimal form.
    """
    if isinstance(scores, RankedLists):
        entries = zip(scores.query_ids, scores.gallery_ids, scores.scores.tolist(), strict=True)
        return _hash_lines((query, item, (repr(score),)) for query, item, score in entries)
    digest = hashlib.sha256(f"f8;{len(query)}x{len(gallery)};C;LE\n".encode())
    rows, columns = (
        sorted(range(len(names)), key=lambda row: names[row].encode()) for names in (_names(query), _names(gallery))
    )
    for row in rows:
        digest.update(np.asarray(scores[row], dtype="<f8")[columns].tobytes())
    return digest.hexdigest()


def qrels_cells(qrels: Qrels, query_ids: Sequence[str]) -> list[tuple[str, ...]]:
    """Judged pairs as a column of `relevance_hash`: the pairs of each query, in the order of gallery ids."""
    cells: dict[str, list[str]] = {name: [] for name in query_ids}
    levels = qrels.levels or ("",) * len(qrels)
    for query, item, grade, level in sorted(
        zip(qrels.query_ids, qrels.gallery_ids, qrels.grades.tolist(), levels, strict=True)
    ):
        if query in cells:
            cells[query].append(f"{item} {grade} {level}")
    return [tuple(cells[name]) for name in query_ids]


def first_ranks_hash(ranks: npt.NDArray[np.int64]) -> str:
    """`res`: a header `i4;N`, then the rank of each query's best positive (0: none) as little-endian int32."""
    return hashlib.sha256(f"i4;{len(ranks)}\n".encode() + ranks.astype("<i4").tobytes()).hexdigest()


def json_hash(value: Any) -> str:
    """The hash of a JSON value in canonical form: sorted keys, no spaces, UTF-8 (RFC 8785 for what we put in)."""
    return _sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _hash_lines(lines: Iterable[tuple[str, str, Iterable[str]]]) -> str:
    ordered = sorted(
        (role.encode(), name.encode(), "\t".join(map(_escape_name, cells)).encode()) for role, name, cells in lines
    )
    digest = hashlib.sha256()
    for line in ordered:
        digest.update(b"\t".join(line) + b"\n")
    return digest.hexdigest()


def _named(side: Samples, values: Sequence[Any] | None) -> Iterable[tuple[str, Any]]:
    return zip(_names(side), values or (), strict=True)


def _names(side: Samples) -> list[str]:
    """What a row is called in hashed lines: its id; without ids the hash of its float32 values, so order is free."""
    if side.ids is not None:
        return [_escape_name(name) for name in side.ids]
    if not isinstance(side, EmbeddingSet):
        return list(side.row_ids)
    return [
        hashlib.sha256(row.astype("<f4").tobytes()).hexdigest()
        for _, block in float32_blocks(side.embeddings)
        for row in block
    ]


def _escape_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return unicodedata.normalize("NFC", escaped)


def _numbers(codes: dict[str, int], cell: Iterable[str]) -> list[str]:
    return [str(codes.setdefault(value, len(codes))) for value in cell]
