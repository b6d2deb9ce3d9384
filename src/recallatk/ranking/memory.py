"""How much working memory the ranking may take when nobody says."""

from __future__ import annotations

import os
from pathlib import Path

FRACTION_OF_FREE = 4
UNKNOWN = 2**30


def default_memory() -> int:
    """A quarter of the free memory, in bytes (of a container's limit when that is lower)."""
    return min(_free_memory(), _container_limit()) // FRACTION_OF_FREE


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
