"""How much memory there is, what the process holds of it, and arrays on disk where they would take too much."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.types import RecallatkError

FRACTION_OF_FREE = 4
UNKNOWN = 2**30
LEAST = 2**25

_IN_MEMORY = re.compile(r"/dev/(shm/|zero )")


def default_memory() -> int:
    """A quarter of the free memory, in bytes (of a container's limit when that is lower)."""
    return min(_free_memory(), _container_limit()) // FRACTION_OF_FREE


def resident_memory() -> int:
    """What the process holds in memory now, in bytes, with what it has mapped and read; 0 where that is not known."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def release_shared_pages() -> None:
    """Give back what the process has read of memory that it shares with others, such as an object store.

    It stays where it is, and is read again when it is needed. Until then such memory counts as the process' own, in
    each process that has read it. Linux only; elsewhere nothing happens.
    """
    maps = Path("/proc/self/maps")
    if not maps.exists() or not hasattr(mmap, "MADV_DONTNEED"):
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
        span, kind, *_, path = [*line.split(maxsplit=5), ""][:6]
        # A private mapping would lose what was written to it, and that of a device is not memory.
        if kind.endswith("s") and path.startswith("/") and (not path.startswith("/dev/") or _IN_MEMORY.match(path)):
            start, stop = (int(end, 16) for end in span.split("-"))
            advise(start, stop - start, mmap.MADV_DONTNEED)


def working_memory(limit: int | None, least: int) -> tuple[int, tuple[str, ...]]:
    """What is left for work below a limit for the whole process, and what is to be said about it.

    Args:
        limit: bytes; None for what the process holds and a quarter of what is free.
        least: what the work takes in any case. Below LEAST it would take too long.
    """
    least = max(least, LEAST)
    if limit is None:
        return max(default_memory(), least), ()
    held = resident_memory()
    if limit - held >= least:
        return limit - held, ()
    return least, (
        f"memory: {megabytes(limit)} is too little, as the process holds {megabytes(held)} before it ranks; "
        f"the ranking was given {megabytes(least)} more",
    )


def megabytes(size: int) -> str:
    """A number of bytes for a reader.

    >>> megabytes(3_210_000_000)
    '3,210 MB'
    """
    return f"{math.ceil(size / 1e6):,} MB"


def new_array(shape: tuple[int, ...], dtype: Any, *, most: int | None = None) -> tuple[npt.NDArray[Any], str | None]:
    """An array to be filled: in memory, or mapped from a temporary file where it would take too much.

    Args:
        shape: of the array.
        dtype: of the array.
        most: bytes that it may take in memory; default a quarter of what is free.

    Returns:
        The array, and where it lies if not in memory. The file has no name and goes with the array.

    Raises:
        RecallatkError: the disk is full.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= (default_memory() if most is None else most) or not size:
        return np.empty(shape, dtype), None
    folder = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile(prefix="recallatk-") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)  # writing to a map of a full disk would end the process
            else:
                file.truncate(size)
            return np.memmap(file, dtype, "r+", shape=shape), folder
    except OSError as error:
        raise RecallatkError(
            f"{megabytes(size)} of embeddings do not fit into memory, and not into {folder} ({error.strerror}); "
            "set TMPDIR to a folder with more room, or allow more memory"
        ) from error


def _free_memory() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError, AttributeError):  # not known on this system
        return UNKNOWN


def _container_limit() -> int:
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text(encoding="ascii").strip() if limit.exists() else "max"
    return int(text) if text.isdigit() else 2**63
