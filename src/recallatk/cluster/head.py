"""The head of a cluster, without which nothing goes on: a process that loses it is ended by Ray, without a word."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator

from recallatk.cluster.engine import ClusterError
from recallatk.cluster.ray_engine import PATIENCE

LOOK_EVERY = 5.0
"""Seconds between two looks at the head."""

SILENT = 40.0
"""Seconds for which the head may not answer, as one that is started again may come back; Ray itself waits for 60."""

REACTS = 8.0
"""Seconds in which the process should have heard of it."""


def knock(address: str) -> None:
    """Raise OSError at once where nothing listens; Ray would wait for minutes."""
    host, port = address.removeprefix("ray://").rsplit(":", 1)
    socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()


def answers(address: str) -> bool:
    """Whether something listens there."""
    try:
        knock(address)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def watched(address: str) -> Iterator[None]:
    """End the `with` block in one line when the head is lost, or else the process; not outside of the main thread.

    Args:
        address: HOST:PORT of the head.

    Raises:
        ClusterError: it is lost.
    """
    over, lost = threading.Event(), threading.Event()
    main = threading.main_thread().ident or 0

    def watch() -> None:
        answered = time.monotonic()
        while not over.wait(LOOK_EVERY):
            if answers(address):
                answered = time.monotonic()
            if time.monotonic() - answered > SILENT and not over.is_set():
                lost.set()
                # A real signal: `interrupt_main` would wait for the end of what the main thread sleeps in.
                signal.pthread_kill(main, signal.SIGINT)
                if not over.wait(REACTS):  # it waits for Ray where nothing reaches it, and Ray is about to end it
                    sys.stderr.write(f"recallatk: {_words(address)}\n")
                    sys.stderr.flush()
                    os._exit(3)
                return

    if threading.current_thread() is threading.main_thread():
        threading.Thread(target=watch, name="watches the head", daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        if not lost.is_set():
            raise
        raise ClusterError(_words(address)) from None
    finally:
        over.set()


def _words(address: str) -> str:
    return (
        f"the cluster lost its head: {address} has not answered for {SILENT:.0f} s; start it, and run the command "
        "again: parts of encoding and blocks of a ranking that are finished are kept (these not with --no-cache)"
    )
