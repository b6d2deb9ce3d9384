"""Where a cluster writes rows: a folder for each side, and a file that says whose they are."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from recallatk.embeddings import parts
from recallatk.embeddings.empty_folders import remove_empty
from recallatk.encoding import SET_NAMES
from recallatk.types import RecallatkError

MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where rows are written.

    Attributes:
        folder: a path, or an address that pyarrow's file systems know; it gets a folder for each side.
        key: what the rows depend on, hashed: data set, encoder, preprocessing, decode policy.
        metadata: what each part says of them.
    """

    folder: str
    key: str
    metadata: Mapping[str, Any]

    def side(self, name: str) -> str:
        """The folder of one side."""
        return parts.inside(self.folder, name)

    def claim(self, *, overwrite: bool = False) -> None:
        """Make it ours; with `overwrite`, without the parts that it holds.

        Raises:
            RecallatkError: it holds the rows of something else.
        """
        if overwrite:
            discard(self.folder)
        found = parts.read_bytes(self.folder, MANIFEST)
        there = None if found is None else _key_of(found)
        if there not in (None, self.key) or (there is None and any(map(parts.list_parts, map(self.side, SET_NAMES)))):
            raise RecallatkError(
                f"{self.folder}: holds rows of another data set, encoder, preprocessing or decode policy; name another "
                "folder, or empty this one (embed does with --overwrite)"
            )
        if there is None:
            self._sign()

    def _sign(self) -> None:
        text = json.dumps({"key": self.key, **self.metadata}, indent=1)
        parts.write_bytes(self.folder, MANIFEST, text.encode())

    @contextlib.contextmanager
    def claimed(self, *, overwrite: bool = False) -> Iterator[None]:
        """Claim it for the `with` block; where that fails before it wrote a part, anybody may have it again."""
        self.claim(overwrite=overwrite)
        try:
            yield
        except BaseException:
            if not any(map(parts.list_parts, map(self.side, SET_NAMES))):
                parts.remove(self.folder, (MANIFEST,))
            raise
        if parts.read_bytes(self.folder, MANIFEST) is None:  # the same command failed beside this one, as above
            self._sign()


def _key_of(manifest: bytes) -> str:
    """Whose the rows are; a damaged file is of none."""
    try:
        return str(json.loads(manifest)["key"])
    except (ValueError, TypeError, KeyError):
        return ""


def holds_rows(folder: str) -> bool:
    """Whether a place holds rows, or is somebody's."""
    sides = (parts.list_parts(parts.inside(folder, name)) for name in SET_NAMES)
    return any(sides) or parts.read_bytes(folder, MANIFEST) is not None


def discard(folder: str) -> None:
    """Remove the rows that a place holds."""
    sides = [parts.inside(folder, name) for name in SET_NAMES]
    for side in sides:
        parts.remove(side, parts.list_parts(side))
    parts.remove(folder, (MANIFEST,))
    remove_empty(sides)
