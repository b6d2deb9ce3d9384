"""The processes of Ray on this machine: which there are, and whether they end."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

# Every process that these tests start has it; Ray's own of somebody else on this machine has not.
MARK = f"RECALLATK_TESTS={os.getpid()}"
os.environ.update([MARK.split("=")])


def ray_processes():
    """The processes of Ray that these tests started, by their ids."""
    found = {}
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            ours = MARK.encode() in place.with_name("environ").read_bytes().split(b"\0")
            if ours and re.search(r"^ray::|/(raylet|gcs_server) |ray/dashboard/|ray/_private/", command):
                found[int(place.parent.name)] = command
    return found


def gone(processes, within=60.0):
    """Whether these processes end in time."""
    end = time.monotonic() + within
    while processes & ray_processes().keys():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
