"""The cached embeddings of one setting; a cache that fails is left out and never stops the work."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from recallatk.cache.storage import connect, is_damaged, set_aside, size_in_use
from recallatk.wording import counted

TOUCH_EVERY = 1000
_T = TypeVar("_T")


class CachedRow(NamedTuple):
    """What is kept of one image.

    Attributes:
        row: the embedding, (d,).
        conversions: what was done while decoding, in the words of `Decoded`.
    """

    row: npt.NDArray[Any]
    conversions: tuple[str, ...]


class RowStore(Protocol):
    """What `encode` asks of a cache; a dict has it."""

    def get(self, content: str, /) -> CachedRow | None:
        """What is known of an image, by its content."""

    def update(self, rows: Mapping[str, CachedRow], /) -> None:
        """Keep the rows of a batch, all or none of them."""


class Rows:
    """A `RowStore` on disk, for one setting; use it in a `with` statement, in one thread.

    Nothing here raises: what goes wrong is told by `notes`, and the images are encoded as if there were no cache.
    """

    def __init__(self, file: Path, setting: str, *, limit: int) -> None:
        self._file, self._setting, self._limit = file, setting, limit
        self._database: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._key = hashlib.blake2b(setting.encode(), digest_size=16).digest()
        self._now = time.time_ns()
        self._hits: list[str] = []
        self._damaged = self._removed = 0
        self._mended = False
        self._problems: list[str] = []
        self._open()

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *_: object) -> None:
        if self._hits:
            self._attempt(self._touch, None)
        self._close()

    def get(self, content: str, /) -> CachedRow | None:
        """The row of an image; None if there is none, or a damaged one."""
        found = self._attempt(lambda database: database.execute(_FIND, (self._key, content)).fetchone(), None)
        if found is None:
            return None
        row = self._checked(content, *found)
        if row is None:
            self._damaged += 1
            return None
        self._hits.append(content)
        if len(self._hits) >= TOUCH_EVERY:
            self._attempt(self._touch, None)
        return row

    def update(self, rows: Mapping[str, CachedRow], /) -> None:
        """Keep these rows, in one transaction."""
        records = []
        for content, (row, conversions) in rows.items():
            data, dtype, phrases = row.tobytes(), row.dtype.str.encode(), json.dumps(conversions).encode()
            records.append((content, dtype, phrases, self._checksum(content, dtype, phrases, data), data))

        def write(database: sqlite3.Connection) -> None:
            database.executemany(_KEEP, [(self._key, self._now, *record) for record in records])
            self._touch_hits(database)
            self._removed += _remove_oldest(database, self._limit)

        if records:
            self._attempt(lambda database: _in_transaction(database, write), None)

    def notes(self) -> tuple[str, ...]:
        """What happened to the cache that its user should know, a line each."""
        notes = list(self._problems)
        if self._damaged:
            are = counted(self._damaged, "row was", "rows were")
            notes.append(f"cache: {are} damaged; the images were encoded again")
        if self._removed:
            limit = f"{self._limit / 1e6:,.1f} MB"
            notes.append(f"cache: {counted(self._removed, 'row')} used longest ago left it, to stay below {limit}")
        return tuple(notes)

    def _open(self) -> None:
        self._inode = _inode(self._file)
        try:
            self._database = connect(self._file)
            self._inode = _inode(self._file)
        except (OSError, sqlite3.Error) as error:
            self._fail(error)

    def _close(self) -> None:
        if self._database is not None:
            try:
                self._database.close()
            except sqlite3.Error as error:
                self._problems.append(f"cache: {self._file} could not be closed ({error})")
        self._database = None

    def _touch(self, database: sqlite3.Connection) -> None:
        _in_transaction(database, self._touch_hits)

    def _touch_hits(self, database: sqlite3.Connection) -> None:
        database.executemany(_TOUCH, [(self._now, self._key, content) for content in self._hits])
        self._hits.clear()

    def _checked(self, content: str, *found: Any) -> CachedRow | None:
        """The row, if it is as it was written."""
        dtype, conversions, checksum, data = found
        if not all(isinstance(part, bytes) for part in found):
            return None
        if checksum != self._checksum(content, dtype, conversions, data):
            return None
        return CachedRow(np.frombuffer(data, dtype=dtype.decode()), tuple(json.loads(conversions)))

    def _checksum(self, content: str, *parts: bytes) -> bytes:
        """Over the key as well, so that a row in the place of another is seen too."""
        sums = hashlib.blake2b(self._setting.encode(), digest_size=16)
        for part in (content.encode(), *parts):
            sums.update(b"%d:" % len(part) + part)
        return sums.digest()

    def _attempt(self, work: Callable[[sqlite3.Connection], _T], otherwise: _T) -> _T:
        """Do something with the database, where there is one."""
        if self._database is None:
            return otherwise
        try:
            return work(self._database)
        except (OSError, sqlite3.Error) as error:
            self._fail(error)
        return self._attempt(work, otherwise)  # there is a database again if a damaged one was replaced

    def _fail(self, error: OSError | sqlite3.Error) -> None:
        """End the use of the database; a damaged one is replaced, once."""
        self._close()
        if is_damaged(error) and not self._mended:
            self._mended = True
            self._replace(error)
        else:
            self._problems.append(
                f"cache: {self._file.parent} cannot be used ({getattr(error, 'strerror', None) or error}), so nothing "
                "is kept from here on; choose another folder with --cache-dir or RECALLATK_CACHE"
            )

    def _replace(self, error: BaseException) -> None:
        """Set a damaged file aside and begin a new one; not if another process has done so since it was opened."""
        try:
            if self._inode == _inode(self._file):
                aside = set_aside(self._file)
                self._problems.append(
                    f"cache: {self._file} was damaged ({error}); it is now {aside.name}, and a new one was begun"
                )
        except OSError as problem:
            self._problems.append(f"cache: {self._file} is damaged ({error}) and cannot be replaced ({problem})")
            return
        self._open()


_FIND = "SELECT dtype, conversions, checksum, row FROM rows WHERE setting = ? AND content = ?"
_KEEP = (
    "INSERT OR REPLACE INTO rows (setting, used, content, dtype, conversions, checksum, row) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_TOUCH = "UPDATE rows SET used = ? WHERE setting = ? AND content = ?"
_OLDEST = "DELETE FROM rows WHERE rowid IN (SELECT rowid FROM rows ORDER BY used, rowid LIMIT ?)"
_LEFT = 0.9
"""The share of the limit that is kept when it is passed, so that not every batch has to remove rows."""


def _inode(file: Path) -> tuple[int, int] | None:
    """Which file that is, whatever its name; None if there is none."""
    return (file.stat().st_dev, file.stat().st_ino) if file.exists() else None


def _in_transaction(database: sqlite3.Connection, work: Callable[[sqlite3.Connection], None]) -> None:
    """All of it or nothing, also when the process is killed."""
    database.execute("BEGIN IMMEDIATE")  # waits for another process; a read that becomes a write would not
    try:
        work(database)
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _remove_oldest(database: sqlite3.Connection, limit: int) -> int:
    """Bring the database below its limit; gives the number of rows removed."""
    removed = 0
    while (size := size_in_use(database)) > limit:
        (rows,) = database.execute("SELECT COUNT(*) FROM rows").fetchone()
        if rows == 0:
            break
        some = math.ceil(rows * (1 - _LEFT * limit / size))
        removed += database.execute(_OLDEST, (some,)).rowcount
    if removed:
        database.execute("PRAGMA incremental_vacuum").fetchall()
    return removed
