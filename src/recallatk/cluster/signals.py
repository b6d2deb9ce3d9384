"""Signals that end a process, so that what it started elsewhere ends with it."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from recallatk.types import Ended

ENDING = (signal.SIGTERM, *((signal.SIGHUP,) if sys.platform != "win32" else ()))
"""What a scheduler or a terminal that closes sends. Ctrl-C, SIGINT, raises KeyboardInterrupt in any Python."""

_came: list[int] = []  # the signal that ends this process, once one has come; handlers are one for a process as well


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP raise `Ended` in the `with` block; those that somebody handles or ignores stay as they are."""
    ours = [each for each in ENDING if _main() and signal.getsignal(each) is signal.SIG_DFL]

    def end(number: int, _: Any) -> None:
        for each in ours:  # once: what it started is being ended
            signal.signal(each, signal.SIG_IGN)
        _came.append(number)
        raise Ended(128 + number)

    for each in ours:
        signal.signal(each, end)
    try:
        with still_ended():
            yield
    finally:
        _came.clear()
        for each in ours:
            signal.signal(each, signal.SIG_DFL)


@contextlib.contextmanager
def still_ended() -> Iterator[None]:
    """`Ended` comes out of the block also where Ray, when it waits in C++, has made a SystemExit of 1 of it."""
    try:
        yield
    except SystemExit as error:
        if _came and not isinstance(error, Ended):
            raise Ended(128 + _came[0]) from error
        raise


@contextlib.contextmanager
def signals_later(before: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and what ends the process wait for the end of the block, however it ends, and of `before`.

    Then they do what they did. Handlers that the block itself installs are gone behind it.
    """
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, *ENDING)} if _main() else {}
    plain: dict[int, Any] = {each: handler for each, handler in handlers.items() if callable(handler)}
    pressed: list[tuple[int, Any]] = []

    def wait(number: int, frame: Any) -> None:
        if pressed and number == signal.SIGINT:
            pressed.clear()
            plain[signal.SIGINT](number, frame)  # the second time at once
        pressed.append((number, frame))

    for each in plain:
        signal.signal(each, wait)
    try:
        yield
    finally:
        for each, handler in plain.items():
            signal.signal(each, handler)
        if pressed:
            before()
            number, frame = pressed[0]
            plain[number](number, frame)


def _main() -> bool:
    """Whether this is the thread that signals come to."""
    return threading.current_thread() is threading.main_thread()
