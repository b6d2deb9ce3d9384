"""What the caller can fix."""

from __future__ import annotations


class RecallatkError(Exception):
    """What the caller can fix, in one line: what is wrong, which item, what to do."""


class ChoiceError(RecallatkError):
    """A choice that does not exist: a flag's value, a name; the command line exits with 2 instead of 3."""


class Ended(SystemExit):
    """A signal asked this process to end, as SIGTERM does; `code` is what a shell calls such an end, 128 + signal."""


def first_line(error: BaseException) -> str:
    """What an error says, in one line: its first, or its name where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
