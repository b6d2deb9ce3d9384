"""What a file says of each embedding besides the numbers, and the one JSON text that says it exactly."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from recallatk.types import EmbeddingSet, LabelKind, RecallatkError

EMBEDDING_COLUMNS = ("embedding", "embeddings", "vector")
# Field of an EmbeddingSet -> the names of its column in a file, the first one that is there counts.
COLUMNS = {"labels": ("labels", "label"), "ids": ("ids", "id"), "same": ("same",), "content": ("content",)}
NAMED = frozenset(name for names in COLUMNS.values() for name in names)
# A position in metres: one array of two columns where a file holds arrays, two columns where it is a table.
POSITIONS = "positions"
POSITION_COLUMNS = ("easting", "northing")
APART = frozenset({*POSITION_COLUMNS, *(name for field in ("ids", "same", "content") for name in COLUMNS[field])})
"""Columns whose cells seldom repeat themselves; of all others equal cells are one text in memory."""

DOCUMENT_KEY = "recallatk"
DOCUMENT_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Samples:
    """The columns of a file as they were found, not yet checked against the embeddings."""

    labels: Any = None
    ids: Sequence[Any] | None = None
    same: Sequence[Any] | None = None
    content: Sequence[Any] | None = None
    positions: npt.NDArray[np.float64] | None = None
    groups: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    label_kind: LabelKind = "text"
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


def from_columns(
    columns: Mapping[str, Any],
    left_aside: Iterable[str] = (),
    document: Mapping[str, Any] | None = None,
    positions: Any = None,
) -> Samples:
    """Sort named columns into labels, ids, same, content and (everything else) groups.

    Args:
        columns: name -> one value a row.
        left_aside: names of columns that the reader could not use.
        document: our own JSON text, parsed; what it says comes before the columns.
        positions: (n, 2) coordinates.
    """
    groups = dict(columns)
    aside = list(left_aside)
    fields: dict[str, Any] = {}
    for field, names in COLUMNS.items():
        found = [name for name in names if name in groups]
        for name in found:
            values = groups.pop(name)
            if name == found[0]:
                fields[field] = values
            else:
                aside.append(name)
    document = document or {}
    fields |= document.get("columns", {})
    groups |= document.get("groups", {})
    notes = (f"columns left aside: {', '.join(map(repr, aside))}",) if aside else ()
    extra = {key: document[key] for key in ("label_kind", "metadata") if key in document}
    return Samples(groups=groups, positions=positions, notes=notes, **fields, **extra)


def as_document(
    embeddings: EmbeddingSet,
    metadata: Mapping[str, Any],
    *,
    written: Collection[str] = (),
    groups: Collection[str] = (),
) -> str:
    """Our JSON text: all that is not `written` (fields) or in `groups` (columns) elsewhere in the file.

    Positions are never in it: every format holds them as numbers.
    """
    columns = {field: getattr(embeddings, field) for field in COLUMNS if field not in written}
    document = {
        DOCUMENT_KEY: DOCUMENT_FORMAT,
        "label_kind": embeddings.label_kind,
        "metadata": dict(metadata),
        "columns": {field: tuple(values) for field, values in columns.items() if values is not None},
        "groups": {column: values for column, values in embeddings.groups.items() if column not in groups},
    }
    try:
        return json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RecallatkError(f"the metadata cannot be written as JSON: {error}") from error


def parse_document(text: str | bytes, name: str) -> dict[str, Any]:
    """Read what `as_document` wrote.

    Raises:
        RecallatkError: it comes from a later version, or is damaged.
    """
    with readable(name, RecursionError):
        document: Any = json.loads(text)
        if isinstance(document, dict) and document.get(DOCUMENT_KEY, DOCUMENT_FORMAT) != DOCUMENT_FORMAT:
            raise RecallatkError(
                f"{name}: written in format {document[DOCUMENT_KEY]!r}, but this version reads {DOCUMENT_FORMAT}; "
                "update recallatk"
            )
        sound = (
            isinstance(document, dict)
            and document.get("label_kind") in get_args(LabelKind)
            and all(isinstance(document.get(key), dict) for key in ("metadata", "columns", "groups"))
            and all(isinstance(values, list) for key in ("columns", "groups") for values in document[key].values())
            and document["columns"].keys() <= COLUMNS.keys()
        )
        if not sound:
            raise ValueError(f"the text under {DOCUMENT_KEY!r} is not what this version writes")
    return dict(document)


def is_document(text: str) -> bool:
    """Whether a text is ours, and not some other tool's."""
    return text.startswith(f'{{"{DOCUMENT_KEY}":')


def is_plain(values: Iterable[Any]) -> bool:
    """Whether text arrays and Arrow columns hold these values exactly: no tuples, final NULs or lone surrogates."""
    texts = list(values)
    if not all(isinstance(text, str) and not text.endswith("\0") for text in texts):
        return False
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def half_precision(dtype: str) -> str:
    """What is said of embeddings in half precision."""
    return f"the embeddings are {dtype}: their values are ranked exactly as they are, already rounded to {dtype}"


def pick_embeddings(candidates: Mapping[str, tuple[int, ...]], noun: str, name: str) -> str:
    """The key of the embeddings among the numeric arrays of a file (key -> shape).

    Raises:
        RecallatkError: no array is called `embeddings`, and not exactly one is two-dimensional.
    """
    if "embeddings" in candidates:
        return "embeddings"
    matrices = [key for key, shape in candidates.items() if len(shape) == 2]
    if len(matrices) == 1:
        return matrices[0]
    listed = ", ".join(f"{key!r} {shape}" for key, shape in candidates.items()) or "none"
    raise RecallatkError(
        f"{name}: {len(matrices)} numeric {noun} are two-dimensional; call the right one 'embeddings' "
        f"(numeric {noun} found: {listed})"
    )


@contextlib.contextmanager
def readable(name: str, *errors: type[Exception]) -> Iterator[None]:
    """Say in one line that a file is damaged, whatever its library calls it."""
    try:
        yield
    except (OSError, ValueError, EOFError, *errors) as error:  # type: ignore[misc]  # mypy sees no class in errors
        why = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
        raise RecallatkError(f"{name}: cannot be read, the file is damaged or of another kind ({why})") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new, empty file beside `path` that takes its place once it is written in full."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # a library may have put a private file in its place
        temporary.replace(path)
    except OSError as error:
        raise RecallatkError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        temporary.unlink(missing_ok=True)
