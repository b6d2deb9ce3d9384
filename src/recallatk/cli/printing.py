"""What people see: tables on standard output; progress, notes and errors on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any


def print_comparison(reports: dict[str, Any], *, percent: bool) -> None:
    """One row an encoder; what each report warns of goes to standard error."""
    first = next(iter(reports.values()))
    rows = []
    for spec, report in reports.items():
        values = [f"{100 * value:.4f}" if percent else f"{value:.6f}" for value in report.values()]
        rows.append((spec, *values, str(report.num_evaluated), str(report.embedding_dim), report.signature.run_id))
    print_table(("encoder", *first, "n", "dim", "run id"), rows)
    for spec, report in reports.items():
        for warning in report.warnings:
            print(f"{spec}: {warning}", file=sys.stderr)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    # Without a terminal nothing is folded: another program reads it.
    Console(width=None if sys.stdout.isatty() else 10_000, highlight=False, markup=False).print(table)


@contextlib.contextmanager
def progress(title: str, *, quiet: bool) -> Iterator[Any]:
    """A progress bar on standard error, if a person is looking at it; what it yields is called with done and total."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def tell(lines: Sequence[str], *, quiet: bool) -> None:
    """Notes on standard error, a line each."""
    from recallatk.report import one_line

    if not quiet:
        for line in lines:
            print(one_line(line), file=sys.stderr)


def fail(message: str, code: int) -> None:
    """Say in one line what is wrong, and exit."""
    from recallatk.report import one_line

    print(f"recallatk: {one_line(message)}", file=sys.stderr)
    sys.exit(code)
