"""The signature: the recipe of the number in one line, and the hash rules behind its parts.

Hashes are sha256 over UTF-8 lines that end in a line feed, sorted by role (g before q) and id, so they depend neither
on the order of the rows nor on where the data lie. Ids are in Unicode's composed form (NFC) with "/" between folders;
a tab, a line break or a backslash in a name is written as a backslash escape.
"""

from __future__ import annotations

import dataclasses
import functools
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
    Qrels,
    RankedLists,
    RecallatkError,
    Samples,
    each_label,
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

_PART = re.compile(r"[a-z]+:([A-Za-z0-9._,+/@=-]|%[0-9A-F]{2})+")
_DIGEST = re.compile(r"[0-9a-f]{16,}")
_LONGEST_FINGERPRINT = 24


@dataclasses.dataclass(frozen=True, eq=False)
class Side:
    """Queries ("q") or gallery ("g"), with what each row is called in hashed lines."""

    role: str
    samples: Samples

    @functools.cached_property
    def names(self) -> list[str]:
        """The ids; without ids the hash of each row's float32 values, so that order is free."""
        if self.samples.ids is not None:
            return [_escape_name(name) for name in self.samples.ids]
        if not isinstance(self.samples, EmbeddingSet):
            return list(self.samples.row_ids)
        return [
            hashlib.sha256(row.astype("<f4").tobytes()).hexdigest()
            for _, block in float32_blocks(self.samples.embeddings)
            for row in block
        ]

    @functools.cached_property
    def order(self) -> list[int]:
        """The rows in the order of their names."""
        return sorted(range(len(self.names)), key=lambda row: self.names[row].encode())


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
        parts = text.strip().split("|")
        odd = [part for part in parts if not _PART.fullmatch(part)]
        if odd:
            raise RecallatkError(f"this is no signature: {text!r}; {odd[0]!r} is no KEY:VALUE")
        values = {key: value for key, _, value in (part.partition(":") for part in parts)}
        if tuple(values) != KEYS or len(parts) != len(KEYS):
            raise RecallatkError(f"this is no signature: {text!r}; its keys must be {', '.join(KEYS)}, in this order")
        return cls(values)

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
    """A value with every byte outside `A-Za-z0-9._,+/@=-` written as %XX; an empty value is `na`.

    >>> escape_part("camera type+label")
    'camera%20type+label'
    """
    if not value:
        return UNKNOWN
    return re.sub(rb"[^A-Za-z0-9._,+/@=-]", lambda byte: b"%%%02X" % byte[0][0], value.encode()).decode()


def short_fingerprint(fingerprint: str) -> str:
    """`w`: twelve digits of a hex digest; another text whole if it is short, else twelve digits of its hash.

    >>> short_fingerprint("color-histogram-1")
    'color-histogram-1'
    """
    if not _DIGEST.fullmatch(fingerprint) and len(fingerprint) <= _LONGEST_FINGERPRINT:
        return fingerprint
    return (fingerprint if _DIGEST.fullmatch(fingerprint) else _sha256(fingerprint))[:SHORT]


def content_hash(sides: Sequence[Side]) -> str | None:
    """`img`: lines `role TAB id TAB sha256 of the bytes`; None where some bytes are not known."""
    lines = []
    for side in sides:
        contents = side.samples.content
        if contents is None or not all(contents):
            return None
        lines += [(side.role, name, (content,)) for name, content in zip(side.names, contents, strict=True)]
    return _hash_lines(lines)


def label_hash(sides: Sequence[Side]) -> str:
    """`labels` of the record: lines `role TAB id TAB label` (several labels joined by a tab)."""
    return _hash_lines(
        (side.role, name, each_label(label))
        for side in sides
        for name, label in zip(side.names, side.samples.labels, strict=True)
    )


def relevance_hash(
    sides: Sequence[Side], columns: Sequence[Sequence[Iterable[str]]], literal: Sequence[Sequence[Iterable[str]]] = ()
) -> str:
    """A hash of how columns part the rows, whatever the parts are called.

    Each value is replaced by the number of its first appearance in the order of the lines, so renaming labels changes
    nothing and moving one row to another label does.

    Args:
        sides: queries and gallery.
        columns: for each column, one cell a row over the sides one after the other; a cell holds any number of values.
        literal: further columns, of which the values themselves are hashed.
    """
    names = [(side.role, name) for side in sides for name in side.names]
    # Cells break the tie between rows without ids whose embeddings are equal.
    rows = sorted(
        zip(names, zip(*[map(tuple, column) for column in (*columns, *literal)], strict=True), strict=True),
        key=lambda row: (row[0][0], row[0][1].encode(), row[1]),
    )
    codes: list[dict[str, int]] = [{} for _ in columns]
    n = len(columns)
    return _hash_lines(
        (
            role,
            name,
            [
                *(",".join(_numbers(known, cell)) for known, cell in zip(codes, cells[:n], strict=True)),
                *(_json(list(cell)) for cell in cells[n:]),
            ],
        )
        for (role, name), cells in rows
    )


def embedding_hash(sides: Sequence[Side], embeddings: Sequence[npt.NDArray[Any]]) -> str:
    """`emb`: a header `f4;ROWSxCOLUMNS;C;LE`, then the rows as little-endian float32, in the order of the lines.

    Args:
        sides: queries and gallery.
        embeddings: the rows of each.
    """
    digest = hashlib.sha256(f"f4;{sum(map(len, embeddings))}x{embeddings[0].shape[1]};C;LE\n".encode())
    for side, rows in sorted(zip(sides, embeddings, strict=True), key=lambda pair: pair[0].role):
        for start in range(0, len(rows), 4096):
            digest.update(rows[side.order[start : start + 4096]].astype("<f4").tobytes())
    return digest.hexdigest()


def score_hash(scores: npt.NDArray[np.number] | RankedLists, query: Side, gallery: Side) -> str:
    """`emb` of a system that is known by its scores only.

    A matrix: a header `f8;ROWSxCOLUMNS;C;LE`, then little-endian float64, rows and columns in the order of ids. Lists:
    lines `query TAB gallery TAB score`, the score in its shortest decimal form.
    """
    if isinstance(scores, RankedLists):
        entries = zip(scores.query_ids, scores.gallery_ids, scores.scores.tolist(), strict=True)
        return _hash_lines((query, item, (repr(score),)) for query, item, score in entries)
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
    return _sha256(_json(value))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


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


def _escape_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return unicodedata.normalize("NFC", escaped)


def _numbers(codes: dict[str, int], cell: Iterable[str]) -> list[str]:
    return [str(codes.setdefault(value, len(codes))) for value in cell]
