"""Folders in which a command leaves nothing, on a disk or in an object store: it takes them away again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from recallatk.embeddings import parts
from recallatk.types import RecallatkError


def not_there(folder: str) -> tuple[str, ...]:
    """A folder and those above it that are not there, the innermost first: what writing into it makes."""
    from pyarrow import fs

    found, folder = [], parts.found_anywhere(folder)
    with contextlib.suppress(RecallatkError, OSError):  # who writes there says what is wrong with it
        while folder:
            system, path = parts.file_system(folder)
            if system.get_file_info(path).type != fs.FileType.NotFound:
                break
            found.append(folder)
            folder = _above(folder)
    return tuple(found)


def _above(folder: str) -> str:
    """The folder around a folder; of an address with its options, and nothing where there is none.

    >>> _above("s3://bucket/run/rows?region=eu-west-1"), _above("s3://bucket"), _above("/rows")
    ('s3://bucket/run?region=eu-west-1', '', '/')
    """
    if "://" not in folder:
        return str(Path(folder).parent)
    address, mark, options = folder.partition("?")
    outer = address.rstrip("/").rpartition("/")[0]
    return f"{outer}{mark}{options}" if "://" in outer else ""


def remove_empty(folders: Iterable[str]) -> None:
    """Remove those of these folders that hold nothing, in this order; whatever cannot be removed stays."""
    from pyarrow import fs

    for folder in folders:
        with contextlib.suppress(RecallatkError, OSError):
            system, path = parts.file_system(folder)
            if isinstance(system, fs.LocalFileSystem):
                Path(path).rmdir()  # refused where another run writes at this moment
            elif not system.get_file_info(fs.FileSelector(path)):
                system.delete_dir(path)


@contextlib.contextmanager
def tidied(folders: Iterable[str]) -> Iterator[None]:
    """At the end of the `with` block, however it ends, remove those of these folders that hold nothing."""
    try:
        yield
    finally:
        remove_empty(folders)
