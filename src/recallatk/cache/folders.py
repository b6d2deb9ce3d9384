"""What was written on clusters, beside the file of the cache: rows in parts, and blocks of rankings.

Rows have a folder for each data set and encoder, blocks one for each ranking that did not come to its end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

ENCODED, RANKINGS = "encoded", "rankings"
IN_USE = 24 * 3600.0
"""Seconds for which a folder stays after it was asked for, even above the limit: a run may still read it."""


def open_folder(place: Path, key: str, *, limit: int) -> Path:
    """The folder of these rows, noted as used now; what was used longest ago goes where all take more than the limit.

    Args:
        place: the folder of the cache.
        key: what the rows depend on, hashed.
        limit: bytes that all folders may take together.
    """
    folder = place / ENCODED / key[:16]
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    sizes = folder_sizes(place)
    used = {other: _used(other) for other in sizes}
    for other in sorted(sizes, key=lambda one: used[one]):
        if sum(sizes.values()) <= limit or time.time() - used[other] < IN_USE:
            break
        shutil.rmtree(other, ignore_errors=True)
        del sizes[other]
    return folder


def folder_sizes(place: Path) -> dict[Path, int]:
    """The folders that are there, and the bytes that each of them takes; of one that goes meanwhile, what was found."""
    there = [place / kind / name for kind in (ENCODED, RANKINGS) for name in _below(place / kind)]
    return {
        folder: sum(_size(Path(inner, name)) for inner, _, names in os.walk(folder) for name in names)
        for folder in there
    }


def _below(folder: Path) -> list[str]:
    """The folders in a folder. Unlike `glob`, `walk` passes over what another command removes."""
    return next((names for _, names, _ in os.walk(folder)), [])


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # a temporary file, which has its final name by now
        return 0


def _used(folder: Path) -> float:
    """When it was asked for last; one that its command has removed meanwhile, as it was left empty, counts as new."""
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return time.time()


def remove_folders(place: Path) -> None:
    """Remove all of them.

    Raises:
        OSError: one cannot be removed.
    """
    for kind in (ENCODED, RANKINGS):
        while (place / kind).exists():
            with contextlib.suppress(FileNotFoundError):  # a command that ends removes its own
                shutil.rmtree(place / kind)
