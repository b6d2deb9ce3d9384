"""Embeddings kept by what they were made from: the image's bytes, how these became pixels, and the weights."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
from pathlib import Path

from recallatk.cache.folders import ENCODED, RANKINGS, folder_sizes, open_folder, remove_folders
from recallatk.cache.rows import CachedRow, Rows, RowStore
from recallatk.cache.storage import connect, is_damaged, set_aside
from recallatk.types import RecallatkError

__all__ = ["Cache", "CacheInfo", "CachedRow", "RowStore", "Rows", "cache_folder", "cache_info", "clear_cache"]

DEFAULT_LIMIT = 10 * 10**9
_FILE = "embeddings-1.sqlite"
"""The number is that of the tables' layout: another layout is another file."""


@dataclasses.dataclass(frozen=True)
class Cache:
    """Where embeddings are kept, and how much; nothing is opened before `rows` is called.

    Attributes:
        folder: None for `cache_folder()`.
        limit: bytes; what was used longest ago goes when there would be more.
    """

    folder: str | os.PathLike[str] | None = None
    limit: int = DEFAULT_LIMIT

    def named(self) -> Cache:
        """The same for processes of another working directory and environment; where no folder is named, their own."""
        chosen = self.folder or os.environ.get("RECALLATK_CACHE")
        return dataclasses.replace(self, folder=Path(chosen).expanduser().absolute()) if chosen else self

    def rows(self, setting: str) -> Rows:
        """The rows of one setting: a text of everything beside the image that an embedding depends on."""
        return Rows(cache_folder(self.folder) / _FILE, setting, limit=self.limit)

    def parts(self, key: str) -> Path:
        """The folder in which a cluster writes rows in parts; like the rows, all of them may take `limit` bytes.

        Args:
            key: what the rows depend on, hashed.

        Raises:
            RecallatkError: it cannot be made.
        """
        place = cache_folder(self.folder)
        try:
            return open_folder(place, key, limit=self.limit)
        except OSError as error:
            raise RecallatkError(
                f"the cache {place} cannot be written ({error.strerror}); name a folder with --parts"
            ) from error

    @property
    def encoded(self) -> Path:
        """The folder of the folders that `parts` gives."""
        return cache_folder(self.folder) / ENCODED

    @property
    def rankings(self) -> Path:
        """The folder in which finished blocks of rankings are kept while these run."""
        return cache_folder(self.folder) / RANKINGS


@dataclasses.dataclass(frozen=True)
class CacheInfo:
    """What a cache holds.

    Attributes:
        folder: where it lies.
        rows: the number of embeddings.
        settings: the number of different encoders, preprocessings and decode policies among them.
        size: bytes on disk.
        folders: the folders of rows and of rankings that clusters wrote; their bytes are part of the size.
    """

    folder: Path
    rows: int
    settings: int
    size: int
    folders: int = 0


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the cache: the one given, else the environment's RECALLATK_CACHE, else the user's cache folder."""
    chosen = folder or os.environ.get("RECALLATK_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("recallatk", appauthor=False)


def cache_info(folder: str | os.PathLike[str] | None = None) -> CacheInfo:
    """What the cache holds; one that is not there yet holds nothing.

    Raises:
        RecallatkError: it cannot be read.
    """
    place = cache_folder(folder)
    file = place / _FILE
    folders = folder_sizes(place)
    rows = settings = 0
    try:
        if _exists(file):
            rows, settings = _counts(file)
    except (OSError, sqlite3.Error) as error:
        raise RecallatkError(
            f"the cache {file} cannot be read ({error}); `recallatk cache clear` removes it"
        ) from error
    size = sum(part.stat().st_size for part in _parts(file)) + sum(folders.values())
    return CacheInfo(place, rows, settings, size, len(folders))


def clear_cache(folder: str | os.PathLike[str] | None = None) -> CacheInfo:
    """Remove everything from the cache, also while another process uses it; returns what it held.

    Raises:
        RecallatkError: it cannot be written.
    """
    place = cache_folder(folder)
    file = place / _FILE
    folders = folder_sizes(place)
    size = sum(part.stat().st_size for part in _parts(file)) + sum(folders.values())
    held = CacheInfo(place, 0, 0, size, len(folders))
    try:
        if _exists(file):
            held = _cleared(file, held)
        remove_folders(place)
    except (OSError, sqlite3.Error) as error:
        raise RecallatkError(f"the cache {file} cannot be cleared ({error}); delete the folder {place}") from error
    return held


def _counts(file: Path) -> tuple[int, int]:
    """The rows of a file, and their settings."""
    with contextlib.closing(connect(file)) as database:
        (rows,) = database.execute("SELECT COUNT(*) FROM rows").fetchone()
        (settings,) = database.execute("SELECT COUNT(DISTINCT setting) FROM rows").fetchone()
    return rows, settings


def _cleared(file: Path, held: CacheInfo) -> CacheInfo:
    """Empty the file; a damaged one goes as a whole, and nobody knows what it held."""
    try:
        rows, settings = _counts(file)
        held = dataclasses.replace(held, rows=rows, settings=settings)
        with contextlib.closing(connect(file)) as database:
            database.executescript("BEGIN IMMEDIATE; DELETE FROM rows; COMMIT; VACUUM")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        if not is_damaged(error):
            raise
        set_aside(file)
    for part in _parts(file):
        if part.name.startswith(f"{_FILE}.damaged"):
            part.unlink(missing_ok=True)
    return held


def _exists(file: Path) -> bool:
    return any(_parts(file))


def _parts(file: Path) -> list[Path]:
    """The database, its journal, and what was set aside."""
    return sorted(file.parent.glob(f"{file.name}*")) if file.parent.is_dir() else []
