"""Write the help of every command into docs/cli.md, between its markers.

    python tools/write_cli_help.py [--check]

Run it after a flag or its description changed. Exit status 1 with --check: the page is not current.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from recallatk.cli import app
from written_pages import write_or_check

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
WIDTH = 100
END = "<!-- end of help -->"


def commands() -> list[str]:
    """The names of the commands, in the order of the source."""
    return [name for name in app if not name.startswith("-")]


def help_text(command: str) -> str:
    """What `recallatk COMMAND --help` prints on a terminal of fixed width, and the same of the commands below it."""
    below = [name for name in app[command] if not name.startswith("-")]
    return "\n\n".join(_help_of(words) for words in ([command], *([command, name] for name in below)))


def _help_of(words: list[str]) -> str:
    screen = io.StringIO()
    app.help_print(words, console=Console(file=screen, width=WIDTH, color_system=None))
    return "\n".join(line.rstrip() for line in screen.getvalue().splitlines()).strip()


def render(page: str) -> str:
    """The page with the current help between its markers, `<!-- help: COMMAND -->` and `<!-- end of help -->`.

    Raises:
        ValueError: a command has no marker, or a marker has no command.
    """
    block = re.compile(rf"(<!-- help: (\S+) -->\n).*?({re.escape(END)})", re.DOTALL)
    marked = [name for _, name, _ in block.findall(page)]
    if sorted(marked) != sorted(commands()):
        raise ValueError(f"the page has markers for {sorted(marked)}, the commands are {sorted(commands())}")
    return block.sub(lambda found: f"{found[1]}```text\n{help_text(found[2])}\n```\n{found[3]}", page)


def without_help(page: str) -> str:
    """The page without what stands between the markers."""
    return re.sub(rf"<!-- help: \S+ -->\n.*?{re.escape(END)}", "", page, flags=re.DOTALL)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, render, __doc__))
