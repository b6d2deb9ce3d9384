"""The signature: the recipe of the number in one line, and the hash rules behind its parts.

Hashes are sha256 over UTF-8 lines that end in a line feed, sorted by role (g before q) and id, so they depend neither
on the order of the rows nor on where the data lie. Ids are in Unicode's composed form (NFC) with "/" between folders;
a tab, a line break or a backslash in a name is written as a backslash escape.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import operator
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from recallatk.types import (
    EmbeddingSet,
    EvalProtocol,
    Label,
    Memo,
    Qrels,
    RankedLists,
    RecallatkError,
    Samples,
    each_label,
    float32_blocks,
    release_pages,
)

Rows = npt.NDArray[np.int64]
Value = TypeVar("Value")
Cell = tuple[str, ...]
"""The values that a row has in a column."""

UNKNOWN = "na"
SHORT = 12

DIGEST_BYTES = hashlib.sha256().digest_size
ROW_DIGEST = f"V{DIGEST_BYTES}"
ROWS_A_BLOCK = 16
"""Rows fetched together in the order of their names: of a mapped file each may bring two megabytes into memory."""

STORED_BYTES = 2**26

LINES_A_BLOCK = 2**16

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
    """Queries ("q") or gallery ("g"), with what each row is called in hashed lines.

    A row is called by its id. Without ids it is called by the sha256 of its float32 values, so that order is free.

    Attributes:
        role: "q" or "g".
        samples: the rows.
        twin: the side of the other role where it holds the same samples: nothing is worked out twice.
    """

    role: str
    samples: Samples
    twin: Side | None = None

    @functools.cached_property
    def row_digests(self) -> npt.NDArray[np.uint8]:
        """(n, 32) the sha256 of the little-endian float32 values of each row; (0, 32) where there are no embeddings."""
        if self.twin is not None:
            return self.twin.row_digests
        embeddings = self.samples.embeddings if isinstance(self.samples, EmbeddingSet) else np.empty((0, 1))
        digests = bytearray()
        for _, block in float32_blocks(embeddings):
            rows = _little_endian(block).view(f"V{block.shape[1] * 4}").ravel().tolist()  # one bytes object a row
            digests += b"".join([hashlib.sha256(row).digest() for row in rows])
        return np.frombuffer(digests, np.uint8).reshape(-1, DIGEST_BYTES)

    @functools.cached_property
    def order(self) -> Rows:
        """The rows in the order of their names; rows of one name as they come."""
        if self.twin is not None:
            return self.twin.order
        if self._named_by_digest:
            words = self.row_digests.view(">u8").astype(np.uint64)
            return np.lexsort(words.T[::-1]).astype(np.int64, copy=False)
        names = self._names
        return np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)

    @functools.cached_property
    def ties(self) -> list[slice]:
        """Where in the order several rows have one name: without ids, rows of equal values."""
        if self.twin is not None:
            return self.twin.ties
        if self._named_by_digest:
            ordered = self.row_digests[self.order]
            again = (ordered[1:] == ordered[:-1]).all(axis=1)
        else:
            again = np.fromiter(itertools.starmap(operator.eq, itertools.pairwise(self.names())), np.bool_)
        edges = np.flatnonzero(np.diff(again, prepend=False, append=False))
        return [slice(start, stop + 1) for start, stop in edges.reshape(-1, 2).tolist()]

    def names(self, places: slice = slice(None)) -> list[str]:
        """The names at these places of the order."""
        if not self._named_by_digest:
            return self.in_order(self._names, places)
        digests = self.row_digests[self.order[places]]
        return digests.tobytes().hex(" ", DIGEST_BYTES).split()

    def in_order(self, column: Sequence[Value], places: slice = slice(None)) -> list[Value]:
        """What a column holds at these places of the order."""
        return [column[row] for row in self.order[places].tolist()]

    @property
    def _named_by_digest(self) -> bool:
        return self.samples.ids is None and isinstance(self.samples, EmbeddingSet)

    @functools.cached_property
    def _names(self) -> Sequence[str]:
        if self.twin is not None:
            return self.twin._names
        return self.samples.row_ids if self.samples.ids is None else _escape_names(self.samples.ids)


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
    parts = []
    for side in sides:
        contents = side.samples.content
        if contents is None or not all(contents):
            return None
        parts.append((side, side.in_order(_escape_names(contents))))
    return _hash_lines(parts)


def label_hash(sides: Sequence[Side]) -> str:
    """`labels` of the record: lines `role TAB id TAB label` (several labels joined by a tab)."""
    shown: Memo[Label, str] = Memo(lambda label: "\t".join(map(_escape_name, each_label(label))))
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
            digest.update(_little_endian(rows[side.order[start : start + height]]).data)
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
        return _sha256("".join("\t".join(line) + "\n" for line in lines))
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


def _escape_names(names: Sequence[str]) -> list[str]:
    together = "".join(names)
    if together.isascii() and not any(character in together for character in "\\\t\n\r"):
        return list(names)
    return list(map(_escape_name, names))


def _escape_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return unicodedata.normalize("NFC", escaped)


def _numbers() -> Callable[[Cell], str]:
    """Cells as the numbers of their values, counted from their first appearance on."""
    codes: dict[str, int] = {}

    def number(value: str) -> str:
        return str(codes.setdefault(value, len(codes)))

    return lambda cell: number(cell[0]) if len(cell) == 1 else ",".join(map(number, cell))


def _literal(cell: Cell) -> str:
    return _escape_name(_json(list(cell)))


def _little_endian(rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(rows, dtype="<f4")
