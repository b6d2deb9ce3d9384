"""How messages are worded: things counted, and text from outside that stays in its line."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun.

    >>> counted(1, "file"), counted(1200, "file"), counted(2, "query has", "queries have")
    ('1 file', '1,200 files', '2 queries have')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def and_more(number: int, noun: str) -> str:
    """What follows the first of several things in a message; nothing when it was the only one.

    >>> and_more(1, "row"), and_more(3, "row")
    ('', ' (and 2 more rows)')
    """
    return f" (and {counted(number - 1, f'more {noun}')})" if number > 1 else ""


def one_line(text: str) -> str:
    r"""Text from outside (names of files, labels) that neither breaks a line nor talks to the terminal.

    >>> one_line("two\nlines")
    'two\\nlines'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
