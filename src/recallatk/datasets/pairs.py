"""Files that name queries and gallery items by id: what qrels and ranked lists have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from recallatk.datasets.tables import Table, as_number
from recallatk.types import RecallatkError
from recallatk.wording import counted

QUERY = ("query_id", "query-id", "qid", "query")
GALLERY = ("gallery_id", "gallery-id", "corpus_id", "corpus-id", "doc_id", "docno", "docid", "gallery")


def read_trec(path: Path, fields: Sequence[str]) -> Iterator[tuple[str, list[bytes]]]:
    """The lines of a TREC file, each with its place in messages; empty lines and lines that begin with # are none.

    Fields are parted by blanks and tabs of ASCII only, so that every other character of an id is kept.

    Raises:
        RecallatkError: not readable, or a line with more or fewer fields.
    """
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                found = line.removeprefix(b"\xef\xbb\xbf").split()
                if not found or found[0].startswith(b"#"):
                    continue
                where = f"{path}: line {number}"
                if len(found) != len(fields):
                    raise RecallatkError(
                        f"{where} has {counted(len(found), 'field')}, not {len(fields)} ({', '.join(fields)}); ids "
                        "that hold blanks need a .csv, .tsv, .jsonl or .parquet file"
                    )
                yield where, found
    except OSError as error:
        raise RecallatkError(f"{path}: cannot be read ({error.strerror or error})") from error


def decoded() -> Callable[[bytes, str], str]:
    """A function from the bytes of an id (and its place) to text, which keeps each id once however often it occurs."""
    known: dict[bytes, str] = {}

    def decode(raw: bytes, where: str) -> str:
        if raw not in known:
            try:
                known[raw] = raw.decode()
            except UnicodeDecodeError as error:
                raise RecallatkError(f"{where}: {raw!r} is not UTF-8; save the file as UTF-8") from error
        return known[raw]

    return decode


def find_column(path: Path, table: Table, names: Sequence[str], *, hint: str = "") -> str:
    """The first of these columns that the table has.

    Raises:
        RecallatkError: it has none of them.
    """
    column = next((name for name in names if name in table.columns), None)
    if column is None:
        found = ", ".join(repr(name) for name in table.columns)
        others = f" (or {', '.join(names[1:])})"
        raise RecallatkError(f"{path}: no column {names[0]!r}{others}; columns found: {found}{hint}")
    return column


def as_id(value: Any, where: str, column: str) -> str:
    """A cell as an id: text as it is, an integer as decimal text.

    Raises:
        RecallatkError: an empty cell, or neither text nor integer.
    """
    if value in (None, ""):
        raise RecallatkError(f"{where}: {column} is empty; give the row one, or remove it")
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise RecallatkError(f"{where}: {column} is {value!r} ({type(value).__name__}); ids are text or integers")


def as_whole(value: Any, where: str, column: str) -> int:
    """A cell or field as a whole number of at most nine digits.

    Raises:
        RecallatkError: it is none.
    """
    text = _text(value)
    number = None if isinstance(text, str) and not _WHOLE.fullmatch(text) else as_number(text)
    if number is None or not number.is_integer() or abs(number) >= 10**9:
        raise RecallatkError(f"{where}: {column} is {text!r}; write a whole number of at most nine digits")
    return int(number)


def as_score(value: Any, where: str, column: str) -> float:
    """A cell or field as a finite number.

    Raises:
        RecallatkError: it is none (NaN and infinity are none).
    """
    number = as_number(_text(value))
    if number is None:
        raise RecallatkError(f"{where}: {column} is {_text(value)!r}; write a finite number")
    return number


_WHOLE = re.compile(r"[+-]?[0-9]{1,9}")


def _text(value: Any) -> Any:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
