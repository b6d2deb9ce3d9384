"""A file that several machines read under one path, and what tells another version of it on one of them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import socket
from pathlib import Path

from recallatk.types import RecallatkError

PAGES, PAGE = 16, 4096
"""So many pages of so many bytes are looked at, the first and the last of a file among them."""


@dataclasses.dataclass(frozen=True)
class KnownFile:
    """A file as it was when its rows were asked for.

    Times of change say nothing, as copies on the disks of several nodes differ in them. Some pages are enough, as every
    row of embeddings by another model differs.

    Attributes:
        path: of the file.
        size: its bytes.
        pages: the hash of pages that are spread over it.
    """

    path: str
    size: int
    pages: str

    @classmethod
    def of(cls, path: Path) -> KnownFile:
        """The file as it is now."""
        path = path.resolve()
        stat = path.stat()
        return cls(str(path), stat.st_size, _pages(str(path), stat.st_size, stat.st_mtime_ns))

    def check(self) -> None:
        """Refuse another version of the file, or none, on the machine that this runs on.

        Raises:
            RecallatkError: names the machine and the file.
        """
        try:
            here = KnownFile.of(Path(self.path))
            if here == self:
                return
            why = f"it has {here.size:,} bytes there, not {self.size:,}"
            why = why if here.size != self.size else "another version of it lies there"
        except OSError as error:
            why = str(error.strerror)
        raise RecallatkError(
            f"the node {socket.gethostname()} cannot read {self.path} ({why}); put it on a path that every node reads"
        )


@functools.lru_cache(maxsize=64)
def _pages(path: str, size: int, changed: int) -> str:
    """The hash of some pages of a file that has this size and was changed then."""
    digest = hashlib.blake2b(digest_size=16)
    with Path(path).open("rb") as stream:
        for place in range(PAGES):
            stream.seek(max(size - PAGE, 0) * place // (PAGES - 1), os.SEEK_SET)
            digest.update(stream.read(PAGE))
    return digest.hexdigest()
