"""Tables as Markdown, LaTeX and HTML in which text from outside is never markup."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence

from recallatk.wording import one_line


def escape_markdown(text: str) -> str:
    r"""Text in which nothing is markup.

    >>> escape_markdown("a|b*")
    'a\\|b\\*'
    """
    return re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", one_line(text))


def escape_latex(text: str) -> str:
    """Text in which nothing is a command; a bracket or star at the start of a row would belong to the row before."""
    from tabulate import LATEX_ESCAPE_RULES

    escaped = "".join(LATEX_ESCAPE_RULES.get(character, character) for character in one_line(text))
    return "{}" + escaped if escaped.startswith(("[", "*")) else escaped


def make_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], form: str, escape: Callable[[str], str] = one_line
) -> str:
    """A table in one of tabulate's forms; nothing is taken for a number, as a label may be 007 or 1e5."""
    from tabulate import tabulate

    cells = [[escape(cell) for cell in row] for row in rows]
    shown: str = tabulate(cells, [escape(head) for head in heads], form, disable_numparse=True)
    return shown


def html_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """A small table for a notebook: escaped, without colours of its own, so that it is right in light and dark."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "<tr>" + "".join(f'<{tag} style="text-align:left">{_escape(cell)}</{tag}>' for cell in row) + "</tr>"

    body = "".join(cells("td", row) for row in rows)
    below = "".join(f"<div><small>{_escape(note)}</small></div>" for note in notes)
    caption = f'<caption style="text-align:left">{_escape(title)}</caption>'
    return f"<div><table>{caption}<thead>{cells('th', heads)}</thead><tbody>{body}</tbody></table>{below}</div>"


def _escape(text: str) -> str:
    return html.escape(one_line(text))
