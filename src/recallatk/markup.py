"""Tables as Markdown, LaTeX, HTML and CSV in which text from outside is never markup."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from recallatk.wording import one_line


def escape_markdown(text: str) -> str:
    r"""Text in which nothing is markup, also where it begins a line or the item of a list.

    >>> escape_markdown("a|b*"), escape_markdown("1. a-b"), escape_markdown("- a")
    ('a\\|b\\*', '1\\. a-b', '\\- a')
    """
    escaped = re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", one_line(text).lstrip())
    return re.sub(r"^(\d*)([-+.)])(?=[-\s]|$)", r"\1\\\2", escaped)


def escape_latex(text: str) -> str:
    """Text in which nothing is a command, and no two letters become one, such as a dash of two hyphens.

    A bracket or star at the start of a row would belong to the row before.
    """
    from tabulate import LATEX_ESCAPE_RULES

    rules = {**LATEX_ESCAPE_RULES, "|": r"\textbar{}"}  # in LaTeX's first encoding of fonts | is a dash
    escaped = "".join(rules.get(character, character) for character in one_line(text))
    escaped = re.sub(r"(?<=[-`',!?])(?=[-`',])", "{}", escaped)
    return "{}" + escaped if escaped.startswith(("[", "*")) else escaped


def make_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], form: str, escape: Callable[[str], str] = one_line
) -> str:
    """A table in one of tabulate's forms; nothing is taken for a number, as a label may be 007 or 1e5."""
    from tabulate import tabulate

    cells = [[escape(cell) for cell in row] for row in rows]
    shown: str = tabulate(cells, [escape(head) for head in heads], form, disable_numparse=True)
    return shown


def make_csv(rows: Iterable[Sequence[Any]]) -> str:
    r"""Rows as CSV, a line each, in which also a carriage return stays inside its cell.

    >>> make_csv([["id", "n"], ["a\rb", 1], ["c", None]])
    'id,n\n"a\rb",1\nc,\n'
    """
    lines = []
    for row in rows:
        line = io.StringIO()
        # csv quotes the letters that end a row, and in some versions of Python no other that breaks a line.
        csv.writer(line, lineterminator="\r\n").writerow(row)
        lines.append(line.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def count_formulas(text: str) -> int:
    r"""How many cells of CSV a spreadsheet would take for formulas. Numbers are none.

    They are left as they are, as ids and labels are what other programs find a row by.

    >>> count_formulas("id,change\n=1+1,-0.5\n@a,-x\n")
    3
    """
    # Not csv.reader, which refuses long cells.
    cells = (match[1].removeprefix('"') for match in re.finditer(r'("(?:[^"]|"")*"|[^,\n]*)(?:,|\n|$)', text))
    return sum(cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not _is_number(cell) for cell in cells)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def html_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """A small table for a notebook: escaped, without colours of its own, so that it is right in light and dark."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "<tr>" + "".join(f'<{tag} style="text-align:left">{_escape(cell)}</{tag}>' for cell in row) + "</tr>"

    body = "".join(cells("td", row) for row in rows)
    below = "".join(f'<div style="overflow-wrap:anywhere"><small>{_escape(note)}</small></div>' for note in notes)
    caption = f'<caption style="text-align:left">{_escape(title)}</caption>'
    return f"<div><table>{caption}<thead>{cells('th', heads)}</thead><tbody>{body}</tbody></table>{below}</div>"


def _escape(text: str) -> str:
    return html.escape(one_line(text))
