"""Blocks of a ranking that are kept while it runs, so that the same command goes on behind them.

A block is a small file in a folder that is named after everything the counts depend on. It is written when the block
is finished: all of it, or nothing. The folder goes when what the ranking was for has been delivered.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np

from recallatk.embeddings import parts
from recallatk.embeddings.empty_folders import not_there, tidied
from recallatk.ranking import Keep, Ranking
from recallatk.report import Report
from recallatk.types import Ended, RecallatkError

_BLOCK = re.compile(r"block-(\d{12,})-(\d{12,})-([0-9a-f]{16})\.npz")
"""The first query, the one behind the last, and the checksum."""

RankFrom: TypeAlias = Callable[..., Iterator[Ranking]]
"""Ranks the queries from `start` on."""


@dataclasses.dataclass(frozen=True, eq=False)
class Kept:
    """Where blocks of rankings are kept.

    Attributes:
        folder: a path, or an address that pyarrow's file systems know; each ranking has a folder in it.
        finished: the folders of rankings that are finished.
    """

    folder: str
    finished: list[str] = dataclasses.field(default_factory=list)


@contextlib.contextmanager
def kept_in(folder: str) -> Iterator[Kept]:
    """Keep blocks of rankings in a folder; at the end of the `with` block those of finished rankings are removed.

    They stay if it ends by an error or a signal: what the rankings were for may not have been delivered. A condition
    that is not met (SystemExit) and a broken pipe come after that. Nothing is left of folders that hold nothing.
    """
    kept = Kept(folder)
    with tidied((folder, *not_there(folder))):
        try:
            yield kept
        except Ended:  # by a signal, which may come before all is delivered
            raise
        except (SystemExit, BrokenPipeError):  # all is delivered: a condition is not met, the reader has seen enough
            _remove(kept)
            raise
        _remove(kept)


def keeping(kept: Kept | None, notes: list[str]) -> Keep | None:
    """What keeps the blocks of one ranking, and adds notes of those that were there and of what went wrong."""
    return None if kept is None else functools.partial(_blocks, kept, notes)


def with_notes(report: Report, notes: Sequence[str]) -> Report:
    """The report with these notes beside its own."""
    known = report.provenance
    return dataclasses.replace(report, provenance=dataclasses.replace(known, notes=(*known.notes, *notes)))


def _blocks(kept: Kept, notes: list[str], depends: object, n: int, rank_from: RankFrom) -> Iterator[Ranking]:
    """All blocks of a ranking: those that are kept, and then the others, each of which is kept when it is there."""
    folder = parts.inside(kept.folder, _key(depends))
    before = 0
    for block in _found(folder, notes):
        before = block.queries.stop
        yield block
    if before and folder not in kept.finished:  # else it is the ranking of another encoder, whose rows are the same
        notes.append(f"ranked {n - before:,} of {n:,} queries; {before:,} were ranked before")
    keeps = True
    for block in rank_from(start=before) if before < n else ():
        if keeps:
            try:
                data = _packed(block)
                parts.write_bytes(folder, _name(block.queries, data), data)
            except (RecallatkError, OSError) as error:
                notes.append(f"blocks of the ranking are not kept: {error}")
                keeps = False
        yield block
    kept.finished.append(folder)


def _found(folder: str, notes: list[str]) -> Iterator[Ranking]:
    """The blocks that are kept, from the first query on, up to the first that is not there or not whole."""
    try:
        names = parts.list_files(folder)
    except (RecallatkError, OSError) as error:
        notes.append(f"{folder}: no block of a ranking can be read ({error})")
        return
    spans = [(int(match[1]), int(match[2]), name) for name in names if (match := _BLOCK.fullmatch(name))]
    place = 0
    while beginning := [(stop, name) for start, stop, name in spans if start == place < stop]:
        stop, name = max(beginning)
        queries = slice(place, stop)
        try:
            data = parts.read_bytes(folder, name)
        except (RecallatkError, OSError) as error:
            notes.append(f"{name} of {folder}: cannot be read ({error}); it is ranked again, and all behind it")
            return
        if data is None:  # another run of the same command has finished, and removed it
            return
        if _name(queries, data) != name:
            notes.append(f"{name} of {folder}: damaged; it is ranked again, and all behind it")
            return
        yield _unpacked(data, queries)
        place = stop


def _name(queries: slice, data: bytes) -> str:
    span = f"{queries.start:012}-{queries.stop:012}"
    return f"block-{span}-{hashlib.sha256(span.encode() + data).hexdigest()[:16]}.npz"


def _packed(block: Ranking) -> bytes:
    columns = {field.name: getattr(block, field.name) for field in dataclasses.fields(block)}
    del columns["queries"]
    data = io.BytesIO()
    np.savez_compressed(data, **{name: values for name, values in columns.items() if values is not None})
    return data.getvalue()


def _unpacked(data: bytes, queries: slice) -> Ranking:
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return Ranking(queries=queries, **{name: file[name] for name in file.files})


def _remove(kept: Kept) -> None:
    for folder in kept.finished:
        with contextlib.suppress(RecallatkError, OSError):  # another run of the same command may write there
            parts.remove_folder(folder)


def _key(depends: object) -> str:
    """A hash of everything that the counts depend on, and of the version that counts."""
    digest = hashlib.sha256(f"ranking-1 {version('recallatk')}\n".encode())
    _feed(digest, depends)
    return digest.hexdigest()[:32]


def _feed(digest: Any, value: Any) -> None:
    """Hash a value: arrays by their contents, what is made of other values by these."""
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}\n".encode())
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    elif dataclasses.is_dataclass(value):
        _feed(digest, {field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    elif isinstance(value, Mapping):
        _feed(digest, list(value.items()))
    elif isinstance(value, tuple | list):
        digest.update(f"{len(value)} values\n".encode())
        for one in value:
            _feed(digest, one)
    else:
        digest.update(f"{type(value).__name__} {value!r}\n".encode())
