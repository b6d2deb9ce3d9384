"""samples.parquet of a run: every row that was evaluated, so that what moved since can be named."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recallatk.run.encoded import EncodedDataset
from recallatk.signature import Side
from recallatk.types import EmbeddingSet, HexDigests, RecallatkError, SampleSet, Texts, each_label

ROLES = ("query", "gallery", "both")
DIGEST_DIGITS = 16
ROWS_A_GROUP = 2**15
"""Rows that are written together: what is made of them on the way takes hundreds of bytes each."""

_GROUP = "group."
_POSITION = ("easting", "northing")


class SavedSamples(Mapping[str, SampleSet]):
    """The samples of a saved run, read when they are first looked at; empty for a run that has none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __getitem__(self, role: str) -> SampleSet:
        return self._sets[role][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    @property
    def digests(self) -> dict[str, Sequence[str]]:
        """The hash of each row's embedding, by role; a role is absent where none were kept."""
        return {role: digests for role, (_, digests) in self._sets.items() if digests is not None}

    @functools.cached_property
    def _sets(self) -> dict[str, tuple[SampleSet, tuple[str, ...] | None]]:
        return _read(self.path) if self.path.is_file() else {}


def row_digests(rows: EmbeddingSet) -> Texts:
    """The first 16 hex digits of the sha256 of each row as little-endian float32."""
    return HexDigests(Side("q", rows).row_digests[:, : DIGEST_DIGITS // 2])


def digests_of(encoded: EncodedDataset, roles: Iterable[str]) -> dict[str, Texts]:
    """The hash of each row of what was evaluated, by the role it has in a report."""
    sets = {"query": encoded.query, "gallery": encoded.gallery, "both": encoded.query}
    return {role: row_digests(rows) for role in roles if (rows := sets[role]) is not None}


def write_samples(path: Path, samples: Mapping[str, SampleSet], digests: Mapping[str, Sequence[str]]) -> None:
    """Write a row for each query and gallery item.

    It is a file of its own, because queries.parquet has a row a query only, and sixty thousand hashes in JSON would
    leave a record that nobody can read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups = sorted({name for side in samples.values() for name in side.groups})
    text, number = pa.string(), pa.float64()
    kinds = {"role": text, "id": text, "label": pa.list_(text), "same": text, "content": text, "embedding": text}
    kinds |= {**dict.fromkeys(_POSITION, number), **{_GROUP + name: text for name in groups}}
    # Arrow would take some names for addresses.
    with path.open("wb") as stream, pq.ParquetWriter(stream, pa.schema(kinds)) as writer:
        for role, side in samples.items():
            columns = _columns(side, groups) | {"embedding": digests.get(role)}
            for start in range(0, len(side), ROWS_A_GROUP):
                some = slice(start, min(start + ROWS_A_GROUP, len(side)))
                empty = [None] * (some.stop - start)
                cells = {name: empty if column is None else column[some] for name, column in columns.items()}
                cells["role"] = [role] * (some.stop - start)
                cells["label"] = [each_label(label) for label in side.labels[some]]
                writer.write_table(pa.table({name: pa.array(cells[name], kind) for name, kind in kinds.items()}))


def _columns(side: SampleSet, groups: Sequence[str]) -> dict[str, Any]:
    """All but role, label and hash; None where nothing is known."""
    positions = (None, None) if side.positions is None else side.positions.T
    return {
        "id": side.ids,
        "same": None if side.identity == side.ids else side.identity,
        "content": side.content,
        **dict(zip(_POSITION, positions, strict=True)),
        **{_GROUP + name: side.groups.get(name) for name in groups},
    }


def _read(path: Path) -> dict[str, tuple[SampleSet, tuple[str, ...] | None]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as stream, pq.ParquetFile(stream) as file:
            columns: dict[str, list[Any]] = file.read(use_threads=False).to_pydict()
        roles = columns.pop("role")
        found = {}
        for role in dict.fromkeys(roles):
            if role not in ROLES:
                raise ValueError(f"the role {role!r} is unknown")
            rows = [row for row, name in enumerate(roles) if name == role]
            own = {name: _known([values[row] for row in rows]) for name, values in columns.items()}
            found[role] = (_sample_set(role, own), own["embedding"])
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise RecallatkError(f"{path}: this is not what a run keeps of its samples ({why})") from error
    return found


def _sample_set(role: str, columns: dict[str, tuple[Any, ...] | None]) -> SampleSet:
    labels = columns["label"] or ()
    several = any(len(label) != 1 for label in labels)
    positions = [columns[name] for name in _POSITION]
    return SampleSet(
        tuple(tuple(label) if several else label[0] for label in labels),
        ids=columns["id"],
        same=columns["same"] or columns["id"],
        groups={name.removeprefix(_GROUP): v for name, v in columns.items() if name.startswith(_GROUP) and v},
        content=columns["content"],
        positions=None if None in positions else np.array(positions, dtype=np.float64).T,
        name=role,
    )


def _known(values: list[Any]) -> tuple[Any, ...] | None:
    """A column; None where it says nothing."""
    return None if all(value is None for value in values) else tuple(values)
