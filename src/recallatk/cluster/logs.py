"""The folder of a Ray that this process started: it goes with that Ray, unless what Ray logged is of use."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from recallatk.cluster.engine import ClusterError
from recallatk.types import RecallatkError

LONGEST = 28
"""Letters that the folder around it may have: Ray makes sockets deep in it, whose paths the system bounds."""

# A process has one Ray, so it has one such folder: where it is, and whether it stays.
_ours: dict[Path, bool] = {}


@contextlib.contextmanager
def own_folder() -> Iterator[None]:
    """A temporary folder for all that Ray writes, which is removed unless `keeping_logs` met an error of Ray."""
    around = os.environ.get("RAY_TMPDIR") or ("/tmp" if sys.platform == "darwin" else tempfile.gettempdir())
    around = around if len(around) <= LONGEST else "/tmp"
    try:
        Path(around).mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="ray-", dir=around))
    except OSError as error:
        raise RecallatkError(
            f"{around}: Ray's own files cannot be written there ({error.strerror}); set TMPDIR"
        ) from error
    _ours[folder] = False
    try:
        yield
    finally:
        if not _ours.pop(folder):
            shutil.rmtree(folder, ignore_errors=True)


def folder_of_ours() -> str:
    """Where the folder is that `own_folder` made."""
    return str(next(iter(_ours)))


@contextlib.contextmanager
def keeping_logs(faults: type[Exception]) -> Iterator[None]:
    """Keep the folder when Ray itself goes wrong, and say where it is.

    Args:
        faults: what Ray raises.
    """
    try:
        yield
    except ClusterError as error:
        if where := _keep():
            raise ClusterError(f"{error}; {where}") from error
        raise
    except faults as error:
        if where := _keep():
            error.add_note(where)
        raise


def _keep() -> str:
    """Where the logs are of a folder that stays from now on; nothing where there is none, or it was said already."""
    for folder, kept in _ours.items():
        if not kept:
            _ours[folder] = True
            return f"what Ray logged is in {folder}/session_latest/logs"
    return ""
