"""The query and the gallery set, put together from the rows of all processes; repeated rows are left out.

Samplers of several processes pad: they repeat rows so that every process has as many. A row with an id that was seen
before is left out, and has to be the same row: the same label, and an embedding that differs by no more than noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.integrations.rows import Notes, block_rows
from recallatk.memory import new_array
from recallatk.types import EmbeddingSet, Float32Rows, RecallatkError, release_pages
from recallatk.wording import counted

NOISE = 0.1
"""Two embeddings of one image differ by at most this share of their length: half precision and other batches move a row
by a few hundredths; a model in training mode, or another epoch, by far more."""


@dataclasses.dataclass(frozen=True)
class Places:
    """Where the rows of one process go.

    Attributes:
        side: 0 query, 1 gallery.
        row: the row in the set of that side.
        repeated: whether that row was filled by an earlier one with the same id.
    """

    side: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    repeated: npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Sides:
    """The query and the gallery set as they are filled, from the rows of one process after the other.

    Attributes:
        arrays: the embeddings of each side; one side for leave-one-out.
        columns: everything else of each side, as `EmbeddingSet` takes it.
        places: where the rows of each process go.
        notes: what is to be said of it, a line each.
    """

    arrays: tuple[npt.NDArray[Any], ...]
    columns: tuple[dict[str, Any], ...]
    places: tuple[Places, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, parts: Sequence[Notes], dim: int) -> Sides:
        """Find the place of every row.

        Raises:
            RecallatkError: roles, ids, labels or groups of the processes do not fit each other.
        """
        roles = {role for part in parts for role in part.roles}
        if "both" in roles and len(roles) > 1:
            other = sorted(roles - {"both"})[0]
            raise RecallatkError(
                f"some rows came with role={other!r} and some without a role; give every row one (query or gallery), "
                "or none for leave-one-out"
            )
        has_id = {name is not None for part in parts for name in part.ids}
        if len(has_id) > 1:
            raise RecallatkError("some batches came with ids and some without; give ids with every batch, or with none")
        kept: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]] = ([], [])
        seen: tuple[dict[str, int], dict[str, int]] = ({}, {})
        places = tuple(_find_places(part, kept, seen) for part in parts)
        kinds = {kind for part in parts for kind in part.label_kinds}
        if len(kinds) > 1:
            raise RecallatkError(
                "labels are integers in some batches and text in others; make them one kind, so that equal labels "
                "can be found"
            )
        sides = kept if "both" not in roles else kept[:1]
        kind = kinds.pop() if kinds else "text"
        columns = tuple(
            _columns(side, kind, name) for side, name in zip(sides, _NAMES if len(sides) > 1 else ["rows"], strict=True)
        )
        arrays = [new_array((len(side), dim), np.float32) for side in sides]
        repeated = sum(int(place.repeated.sum()) for place in places)
        notes = [f"embeddings do not fit into memory and lie in {folder}" for _, folder in arrays if folder]
        if repeated:
            notes.append(
                f"{counted(repeated, 'row')} left out: the id came before, as samplers of several processes repeat "
                "rows to give each process as many"
            )
        return cls(tuple(array for array, _ in arrays), columns, places, tuple(notes))

    def fill(self, process: int, start: int, block: Float32Rows) -> None:
        """Put rows where they belong.

        Raises:
            RecallatkError: a repeated row differs from the one that was kept by more than noise.
        """
        place = self.places[process]
        here = slice(start, start + len(block))
        for side, array in enumerate(self.arrays):
            on_side = place.side[here] == side
            new = on_side & ~place.repeated[here]
            array[place.row[here][new]] = block[new]
            again = on_side & place.repeated[here]
            if again.any():
                rows = place.row[here][again]
                _check_repeated(array[rows], block[again], [self.columns[side]["ids"][row] for row in rows])
            release_pages(array)

    def sets(self) -> tuple[EmbeddingSet, EmbeddingSet | None]:
        """The filled sets; no gallery for leave-one-out."""
        made = [EmbeddingSet(array, **columns) for array, columns in zip(self.arrays, self.columns, strict=True)]
        return made[0], made[1] if len(made) == 2 else None

    def doubts(self) -> tuple[str, ...]:
        """A line when queries share ids with gallery items that look like other images.

        Numbers of rows in two data sets, given as ids, would take the query's own positive for the query itself.
        """
        if len(self.columns) < 2 or None in (self.columns[0]["ids"], self.columns[1]["ids"]):
            return ()
        query, gallery = (dict(zip(side["ids"], range(len(side["ids"])), strict=True)) for side in self.columns)
        shared = [name for name in query if name in gallery]
        other = []
        for start in range(0, len(shared), size := block_rows(self.arrays[0].shape[1])):
            names = shared[start : start + size]
            pair = (self.arrays[0][[query[n] for n in names]], self.arrays[1][[gallery[n] for n in names]])
            other += [name for name, apart in zip(names, _apart(*pair), strict=True) if not apart <= NOISE]
        if not other:
            return ()
        return (
            f"{counted(len(other), 'query has', 'queries have')} the id of a gallery item with another embedding (e.g. "
            f"{other[0]!r}); equal ids are the same image, which leaves the query's ranking, so give other images "
            "other ids, such as paths",
        )


_NAMES = ["query", "gallery"]

_Kept = list[tuple[Any, ...]]  # (id, label, groups, position) of each row of a side


def _find_places(part: Notes, kept: tuple[_Kept, _Kept], seen: tuple[dict[str, int], dict[str, int]]) -> Places:
    """Where the rows of a process go; extends what is kept and seen."""
    side = np.array([int(role == "gallery") for role in part.roles], np.int64)
    row = np.zeros(len(part), np.int64)
    repeated = np.zeros(len(part), np.bool_)
    entries = zip(part.ids, part.labels, part.groups, part.positions, strict=True)
    for number, (to, entry) in enumerate(zip(side.tolist(), entries, strict=True)):
        name = entry[0]
        row[number] = len(kept[to]) if name is None else seen[to].setdefault(name, len(kept[to]))
        if row[number] == len(kept[to]):
            kept[to].append(entry)
            continue
        repeated[number] = True
        first = kept[to][row[number]]
        for what, before, now in zip(("label", "groups", "position"), first[1:], entry[1:], strict=True):
            if before != now:
                raise RecallatkError(
                    f"the id {name!r} came twice, with the {what} {before!r} and {now!r}; one id is one image, so give "
                    "other images other ids"
                )
    return Places(side, row, repeated)


def _columns(rows: _Kept, kind: str, name: str) -> dict[str, Any]:
    """The columns of a side as `EmbeddingSet` takes them."""
    ids, labels, groups, positions = zip(*rows, strict=True) if rows else ((), (), (), ())
    names = {tuple(cells or ()) for cells in groups}
    if len(names) > 1:
        raise RecallatkError(
            f"some {name} batches came with the groups {sorted(names)[-1]} and some with {sorted(names)[0]}; "
            "give the same with every batch"
        )
    if len({position is None for position in positions}) > 1:
        raise RecallatkError(f"some {name} batches came with positions and some without; give them with every batch")
    known = bool(rows)
    return {
        "labels": [tuple(label) if isinstance(label, list) else label for label in labels],
        "ids": list(ids) if known and ids[0] is not None else None,
        "groups": {column: [cells[column] for cells in groups] for column in next(iter(names), ())},
        "positions": np.array(positions) if known and positions[0] is not None else None,
        "label_kind": kind,
        "name": name,
    }


def _check_repeated(kept: Float32Rows, again: Float32Rows, ids: Sequence[str]) -> None:
    apart = _apart(kept, again)
    wrong = ~(apart <= NOISE) & np.isfinite(kept).all(axis=1)  # rows that are not finite: `EmbeddingSet` tells of them
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise RecallatkError(
            f"the id {ids[first]!r} came twice, with embeddings that differ by {apart[first]:.0%} of their length; "
            "reset() between epochs, put the model into eval(), and give other images other ids"
        )


def _apart(one: Float32Rows, other: Float32Rows) -> npt.NDArray[np.float64]:
    """How far rows lie apart, as a share of the longer of both."""
    first, second = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):
        length = np.maximum(np.linalg.norm(first, axis=1), np.linalg.norm(second, axis=1))
        apart: npt.NDArray[np.float64] = np.linalg.norm(first - second, axis=1) / np.where(length > 0, length, 1)
    return apart
