"""The file of the cache: an SQLite database with a write-ahead log."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from pathlib import Path

WAIT = 60.0
"""Seconds to wait for another process that is writing; one batch takes it milliseconds."""

_TABLES = """
CREATE TABLE IF NOT EXISTS rows (
    setting BLOB NOT NULL,
    content TEXT NOT NULL,
    used INTEGER NOT NULL,
    dtype TEXT NOT NULL,
    conversions TEXT NOT NULL,
    checksum BLOB NOT NULL,
    row BLOB NOT NULL,
    UNIQUE (setting, content)
);
CREATE INDEX IF NOT EXISTS rows_used ON rows (used);
"""


def connect(file: Path) -> sqlite3.Connection:
    """Open the database, and make it where there is none.

    With a write-ahead log a process that is killed loses what it had not committed and nothing else, and readers never
    wait for the one that writes.

    Raises:
        OSError: its folder cannot be made.
        sqlite3.Error: it cannot be opened, or is damaged.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(file, timeout=WAIT, isolation_level=None)
    database.text_factory = bytes  # damaged text may be no UTF-8
    try:
        deadline = time.monotonic() + WAIT
        while True:
            try:
                _prepare(database, file)
                return database
            except sqlite3.OperationalError as error:
                # The change to a write-ahead log does not wait for another process that does the same.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
    except BaseException:
        database.close()
        raise


def _prepare(database: sqlite3.Connection, file: Path) -> None:
    database.execute("PRAGMA auto_vacuum = INCREMENTAL")  # counts for a new file only
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    known = database.execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'rows_used'").fetchone()
    if known == (0,):
        database.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT")
    if not os.access(file, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def is_damaged(error: BaseException | None) -> bool:
    """Whether an error of SQLite says that the file is no database, or a broken one."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def set_aside(file: Path) -> Path:
    """Rename a damaged database and its log, so that a new one can begin; gives the new name."""
    aside = file.with_name(f"{file.name}.damaged")
    for ending in ("-wal", "-shm", ""):
        part = file.with_name(file.name + ending)
        if part.exists():
            part.replace(aside.with_name(aside.name + ending))
    return aside


def size_in_use(database: sqlite3.Connection) -> int:
    """The bytes of the database without those that are free for new rows."""
    (pages,), (free,), (size,) = (
        database.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)
