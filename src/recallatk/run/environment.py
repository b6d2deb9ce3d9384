"""Where and when a run was made; never part of a hash."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from recallatk.cores import usable_cores
from recallatk.datasets.naming import shown

PACKAGES = (
    "numpy",
    "scipy",
    "pillow",
    "pyarrow",
    "onnxruntime",
    "onnxruntime-gpu",
    "torch",
    "torchvision",
    "timm",
    "open_clip_torch",
    "transformers",
)


def describe_environment(started: datetime | None = None) -> dict[str, Any]:
    """Versions, machine, BLAS, command and time, for the record and for `recallatk info`; never part of a hash."""
    from threadpoolctl import threadpool_info

    now = datetime.now(UTC)
    described: dict[str, Any] = {
        "recallatk": version("recallatk"),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _installed(name))},
        "blas": [
            {key: pool.get(key) for key in ("internal_api", "version", "architecture", "num_threads")}
            for pool in threadpool_info()
        ],
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": usable_cores(),
        "command": [shown(word) for word in (Path(sys.argv[0]).name, *sys.argv[1:])],
        "directory": _directory(),
        "finished": now.isoformat(timespec="seconds"),
    }
    if started is not None:
        described["seconds"] = round((now - started).total_seconds(), 3)
    return described


def _directory() -> str | None:
    """The folder that relative paths of a run start from; None where it is gone."""
    try:
        return shown(str(Path.cwd()))
    except OSError:
        return None


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
