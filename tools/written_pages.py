"""What the tools that write parts of a page have in common: write it, or say that it is not current."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path


def write_or_check(page: Path, render: Callable[[str], str], about: str | None) -> int:
    """Write a page, or with --check say whether it is current; returns the exit status.

    Args:
        page: the file.
        render: the page as it is -> as it ought to be.
        about: the text of --help.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is not current")
    check = parser.parse_args().check
    written = page.read_text("utf-8")
    current = render(written)
    if check:
        if current != written:
            print(f"{page}: not current; run python tools/{Path(sys.argv[0]).name}", file=sys.stderr)
        return int(current != written)
    page.write_text(current, "utf-8")
    return 0
