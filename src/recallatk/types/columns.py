"""The columns of a set: brought to one form, checked against each other, and taken row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from recallatk.types.checks import as_content, as_ids, as_labels, as_positions, as_texts
from recallatk.types.errors import RecallatkError
from recallatk.types.texts import HexDigests

if TYPE_CHECKING:
    from recallatk.types.sets import EmbeddingSet, ImageSet, SampleSet


def normalise_columns(rows: ImageSet | EmbeddingSet | SampleSet, n: int, noun: str, name: str) -> None:
    """Bring ids, labels, same, groups and content to columns of text, and check that all are aligned."""
    given: Any = rows.labels
    labels, kind = as_labels([()] * n if given is None else given, name, kind=rows.label_kind)
    columns: dict[str, Sequence[Any]] = {"labels": labels}
    for field in ("ids", "same", "content"):
        values = getattr(rows, field, None)
        if values is not None:
            columns[field] = as_content(values) if field == "content" else as_ids(values, name)
    for column, values in rows.groups.items():
        if isinstance(values, str):
            raise RecallatkError(f"{name}: the column {column!r} is one text ({values!r}); give one a row")
    groups = {column: as_texts(values) for column, values in rows.groups.items()}
    if rows.positions is not None:
        object.__setattr__(rows, "positions", as_positions(rows.positions, n, name))
    for column, values in (*columns.items(), *groups.items()):
        if len(values) != n:
            raise RecallatkError(f"{name}: {len(values)} {column} for {n} {noun}; there must be one for each")
    for field, values in columns.items():
        object.__setattr__(rows, field, values)
    object.__setattr__(rows, "groups", groups)
    object.__setattr__(rows, "label_kind", kind)
    ids = columns.get("ids")
    twice = None if ids is None else _first_repeated(ids)
    if twice is not None:
        raise RecallatkError(f"{name}: the id {twice!r} occurs more than once; ids must be unique within a set")


def _first_repeated(ids: Sequence[str]) -> str | None:
    """The first id that occurs again. Hashes come first, as they take less memory than a set of millions of ids."""
    hashes = np.fromiter(map(hash, ids), np.int64, len(ids))
    hashes.sort()
    if not (hashes[1:] == hashes[:-1]).any():
        return None
    seen: set[str] = set()
    return next((i for i in ids if i in seen or seen.add(i)), None)  # type: ignore[func-returns-value]


def take_columns(rows: ImageSet | EmbeddingSet, index: Sequence[int]) -> dict[str, Any]:
    """The columns of these rows; content is one of embeddings only."""

    def pick(values: Sequence[Any] | None) -> Sequence[Any] | None:
        if isinstance(values, HexDigests):
            return values.take(index)
        return None if values is None else tuple(values[r] for r in index)

    return {
        "ids": pick(rows.ids),
        "labels": pick(rows.labels),
        "same": pick(rows.same),
        "groups": {column: pick(values) for column, values in rows.groups.items()},
        "positions": None if rows.positions is None else rows.positions[np.asarray(index, dtype=np.int64)],
        **({"content": pick(content)} if (content := getattr(rows, "content", None)) is not None else {}),
    }
