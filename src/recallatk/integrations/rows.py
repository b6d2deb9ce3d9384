"""The rows that a loop hands over batch by batch, checked while the batch is at hand."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from recallatk.types import (
    Float32Rows,
    RecallatkError,
    as_ids,
    as_labels,
    as_numbers,
    as_positions,
)
from recallatk.wording import counted

Role = Literal["both", "query", "gallery"]
"""What rows are for; "both": leave-one-out, every row is query and gallery."""

BLOCK_BYTES = 2**25
"""What of the embeddings is copied, or sent, at a time."""


@dataclasses.dataclass(frozen=True)
class Notes:
    """What is known of rows beside their embeddings, one entry a row.

    Attributes:
        roles: what each row is for.
        labels: the labels as text.
        label_kinds: what labels were before that, by batch.
        ids: the ids, None where a row came without one.
        groups: the named columns, None where there are none.
        positions: metres, None where a row came without one.
    """

    roles: list[str] = dataclasses.field(default_factory=list)
    labels: list[Any] = dataclasses.field(default_factory=list)
    label_kinds: list[str] = dataclasses.field(default_factory=list)
    ids: list[str | None] = dataclasses.field(default_factory=list)
    groups: list[dict[str, str] | None] = dataclasses.field(default_factory=list)
    positions: list[list[float] | None] = dataclasses.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.roles)

    def to_line(self) -> bytes:
        """One line of JSON; lines of several batches, one after the other, are the notes of all their rows."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_lines(cls, lines: bytes) -> Notes:
        """What `to_line` wrote, any number of times."""
        notes = cls()
        for line in lines.splitlines():
            notes.extend(cls(**json.loads(line)))
        return notes

    def extend(self, more: Notes) -> None:
        """The notes of more rows."""
        for column in dataclasses.fields(self):
            getattr(self, column.name).extend(getattr(more, column.name))


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows that one process saw, in the order in which they came; repeated ones are still there.

    Attributes:
        batches: (n, d) arrays or tensors, of any dtype and on any device.
        notes: what is known of each row.
    """

    batches: list[Any] = dataclasses.field(default_factory=list)
    notes: Notes = dataclasses.field(default_factory=Notes)

    def add(
        self,
        embeddings: Any,
        labels: Iterable[Any] | None,
        ids: Iterable[Any] | None = None,
        role: Role | Sequence[Role] = "both",
        *,
        groups: Mapping[str, Iterable[Any]] | None = None,
        positions: Any = None,
    ) -> None:
        """Add a batch; the arguments are those of `note_batch`."""
        self.notes.extend(note_batch(embeddings, labels, ids, role, groups=groups, positions=positions))
        # A copy: the loop may write its next batch into the same memory.
        tensor = hasattr(embeddings, "detach")
        self.batches.append(embeddings.detach().clone() if tensor else np.array(as_numbers(embeddings, "embeddings")))

    @property
    def dim(self) -> int | None:
        """Columns of the embeddings; None where there are no rows.

        Raises:
            RecallatkError: embeddings of several widths, or not as many as notes: others count on that many.
        """
        n = sum(map(len, self.batches))
        if n != len(self.notes):
            raise RecallatkError(
                f"the state holds {counted(n, 'row')} of embeddings and labels for {len(self.notes):,}; it was changed "
                "outside update(), so reset() the metric"
            )
        dims = sorted({batch.shape[1] for batch in self.batches})
        if len(dims) > 1:
            raise RecallatkError(
                f"the embeddings have {dims[0]} columns in one batch and {dims[1]} in another; the dimension must be "
                "the same, so encode all with one model"
            )
        return dims[0] if dims else None

    def blocks(self, size: int) -> Iterator[Float32Rows]:
        """The rows as float32, always `size` at a time but for the last; each block is overwritten by the next."""
        if self.dim is None:
            return
        block = np.empty((min(size, len(self.notes)), self.dim), np.float32)
        filled = 0
        for batch in self.batches:
            start = 0
            while start < len(batch):
                part = as_numbers(batch[start : start + len(block) - filled], "embeddings")
                with np.errstate(over="ignore", invalid="ignore"):  # infinity, which is told of later
                    block[filled : filled + len(part)] = part
                start, filled = start + len(part), filled + len(part)
                if filled == len(block):
                    yield block
                    filled = 0
        if filled:
            yield block[:filled]


def note_batch(
    embeddings: Any,
    labels: Iterable[Any] | None,
    ids: Iterable[Any] | None = None,
    role: Role | Sequence[Role] = "both",
    *,
    groups: Mapping[str, Iterable[Any]] | None = None,
    positions: Any = None,
) -> Notes:
    """Check what came with a batch of embeddings, and bring it to text.

    Args:
        embeddings: (n, d).
        labels: one a row, text or integers; lists for several labels; None where relevance needs none.
        ids: one a row, text or integers: what is left out when it comes again, and what makes a query and a gallery
            item the same image.
        role: what the rows are for, one for all or one a row; "both" is leave-one-out.
        groups: named columns, such as `camera`, for `ignore_same`.
        positions: (n, 2), in metres.

    Raises:
        RecallatkError: something does not fit the rows, or is no label, id or role.
    """
    shape = tuple(getattr(embeddings, "shape", ()))
    if len(shape) != 2 or not shape[1]:
        raise RecallatkError(f"embeddings have the shape {shape}; they must be two-dimensional, (rows, columns)")
    as_numbers(embeddings[:1], "embeddings")  # what is no number is told of here, where the batch is at hand
    n = shape[0]
    roles = [role] * n if isinstance(role, str) else list(role)
    wrong = [one for one in ([role] if isinstance(role, str) else roles) if one not in get_args(Role)]
    if wrong:
        raise RecallatkError(
            f"role={wrong[0]!r} is not a choice; choose one of: query, gallery, or both (leave-one-out)"
        )
    texts, kind = as_labels([()] * n if labels is None else labels, "labels")
    cells = {name: as_ids(values, name) for name, values in (groups or {}).items()}
    names: Sequence[str | None] = [None] * n if ids is None else as_ids(ids, "ids")
    for name, values in {"labels": texts, "ids": names, "role": roles, **cells}.items():
        if len(values) != n:
            raise RecallatkError(
                f"{name}: {counted(len(values), 'entry', 'entries')} for {counted(n, 'row')} of embeddings; "
                "there must be one for each"
            )
    if ids is not None and not all(names):
        raise RecallatkError(f"ids: row {names.index('')} of the batch has an empty id; give every row one, or none")
    return Notes(
        roles=[str(one) for one in roles],
        labels=list(texts),
        label_kinds=[kind] if any(texts) else [],
        ids=list(names),
        groups=[{name: values[row] for name, values in cells.items()} or None for row in range(n)],
        positions=[None] * n if positions is None else as_positions(positions, n, "rows").tolist(),
    )


def block_rows(dim: int) -> int:
    """Rows that are copied, or sent, at a time."""
    return max(1, BLOCK_BYTES // (4 * dim))
