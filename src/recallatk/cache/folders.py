"""What was written on clusters, beside the file of the cache: rows in parts, and blocks of rankings.

Rows have a folder for each data set and encoder, blocks one for each ranking that did not come to its end.
"""

from __future__ import annotations

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
    used = {other: other.stat().st_mtime for other in sizes}
    for other in sorted(sizes, key=lambda one: used[one]):
        if sum(sizes.values()) <= limit or time.time() - used[other] < IN_USE:
            break
        shutil.rmtree(other, ignore_errors=True)
        del sizes[other]
    return folder


def folder_sizes(place: Path) -> dict[Path, int]:
    """The folders that are there, and the bytes that each of them takes."""
    there = (folder for kind in (ENCODED, RANKINGS) for folder in (place / kind).glob("*") if folder.is_dir())
    return {folder: sum(map(_size, folder.rglob("*"))) for folder in there}


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:  # a temporary file, which has its final name by now
        return 0


def remove_folders(place: Path) -> None:
    """Remove all of them.

    Raises:
        OSError: one cannot be removed.
    """
    for kind in (ENCODED, RANKINGS):
        if (place / kind).exists():
            shutil.rmtree(place / kind)
