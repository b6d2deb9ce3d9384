"""What people see: tables on standard output; progress, notes and errors on standard error."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from recallatk.types import Ended
from recallatk.wording import one_line

A_LINE_EVERY = 60.0
"""Seconds between two lines of progress where there is no terminal."""

NOT_PASSED, USAGE, DATA, INTERRUPTED = 1, 2, 3, 130
"""Exit codes beside 0: a gate that failed or a run that verify finds changed; usage; data and files; Ctrl-C."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""A disk that is full, or broken: no fault of ours, wherever it shows."""


def print_comparison(reports: dict[str, Any], *, percent: bool) -> None:
    """One row an encoder; what each report warns of goes to standard error."""
    first = next(iter(reports.values()))
    rows = []
    for spec, report in reports.items():
        values = [with_interval(value, percent=percent) for value in report.values_by_metric.values()]
        counts = (report.num_evaluated, report.num_excluded, len(report.provenance.skipped), report.embedding_dim)
        rows.append((spec, *values, *map(str, counts), report.signature.run_id))
    print_table(("encoder", *first, "evaluated", "excluded", "skipped", "dim", "run id"), rows, keys=1)
    tell([f"{spec}: {warning}" for spec, report in reports.items() for warning in report.warnings])


def with_interval(value: Any, *, percent: bool) -> str:
    """A value, and the ends of its interval in brackets."""
    text = f"{100 * value.value:.4f}" if percent else f"{value.value:.6f}"
    if value.interval is None:
        return text
    low, high = (f"{100 * end:.1f}" if percent else f"{end:.3f}" for end in (value.interval.low, value.interval.high))
    return f"{text} [{low}, {high}]"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, keys: int = 0) -> None:
    """A table on standard output; nothing in it is ever cut.

    Args:
        header: the names of the columns.
        rows: the cells.
        keys: so many first columns name a row. With them a table too wide for the terminal becomes several, each with
            these columns and some of the others; without, long cells are folded.
    """
    from rich import box
    from rich.table import Table

    # Without a terminal nothing is folded: another program reads it.
    console = make_console(width=None if sys.stdout.isatty() else 10_000, highlight=False, markup=False)
    cells = [list(map(one_line, row)) for row in rows]
    for number, columns in enumerate(_parts(header, cells, keys, console.width) if keys else [range(len(header))]):
        if number:
            console.print()
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in columns:
            table.add_column(header[column], overflow="fold")
        for row in cells:
            table.add_row(*(row[column] for column in columns))
        console.print(table)


def _parts(header: Sequence[str], rows: Sequence[Sequence[str]], keys: int, width: int) -> list[list[int]]:
    """The columns of each part of a table, so that a part fits into the width if its columns do at all."""
    from rich.cells import cell_len

    gap = 3
    widths = [max(map(cell_len, column)) + gap for column in zip(header, *rows, strict=True)]
    parts = [list(range(keys))]
    for column in range(keys, len(header)):
        if len(parts[-1]) > keys and sum(widths[one] for one in (*parts[-1], column)) - gap > width:
            parts.append(list(range(keys)))
        parts[-1].append(column)
    return parts


def make_console(**options: Any) -> Any:
    """A console on standard output that raises BrokenPipeError when its reader has gone; rich's own exits with 1."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Piped(**options)


@contextlib.contextmanager
def progress(title: str, total: int | None, *, quiet: bool, logged: bool = False) -> Iterator[Any]:
    """A progress bar on standard error, if a person is looking at it; what it yields is called with done and total.

    Args:
        title: what is done.
        total: of the steps; None: not known yet.
        quiet: nothing is shown.
        logged: it may take hours, so without a terminal there is a line now and then.
    """
    if quiet or not (sys.stderr.isatty() or logged):
        yield None
        return
    if not sys.stderr.isatty():
        yield _now_and_then(title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done, all_: bar.update(task, completed=done, total=all_)


def _now_and_then(title: str) -> Callable[[int, int], None]:
    """What writes a line of progress every minute: how much is done, and when the rest will be at this pace."""
    begun: list[float] = []  # when and with how much: an interrupted run begins with what was done before
    told = time.monotonic()

    def write(done: int, total: int) -> None:
        nonlocal told
        now = time.monotonic()
        begun[:] = begun or [now, done]
        if now - told < A_LINE_EVERY or done >= total:
            return
        told = now
        new = done - begun[1]
        left = f", {(total - done) * (now - begun[0]) / new / 60:,.0f} min left" if new else ""
        tell([f"{title}: {done:,} of {total:,}{left}"])

    return write


def tell(lines: Sequence[str], *, quiet: bool = False) -> None:
    """Notes and warnings on standard error, a line each."""
    if not quiet:
        for line in lines:
            print(one_line(line), file=sys.stderr)


def tell_notes(provenance: Any, *, quiet: bool, prefix: str = "") -> None:
    """What was left aside, converted or skipped, on standard error."""
    tell(note_lines(provenance, prefix=prefix), quiet=quiet)


def note_lines(provenance: Any, *, prefix: str = "") -> list[str]:
    """What was left aside, converted or skipped, a line each."""
    skipped = [f"skipped {item.item}: {item.reason}" for item in provenance.skipped]
    return [prefix + line for line in (*provenance.notes, *skipped)]


@contextlib.contextmanager
def written_out() -> Iterator[None]:
    """At the end of the `with` block, also where it exits, write out what it printed: else nobody sees a full disk."""
    try:
        yield
    except Ended:
        raise
    except SystemExit:
        with contextlib.suppress(BrokenPipeError):  # the reader has seen enough; the exit code still says what it says
            sys.stdout.flush()
        raise
    sys.stdout.flush()


def forget_output() -> None:
    """What is left in the buffer goes nowhere; else Python would complain of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def prepare_streams() -> None:
    """Make both streams such that anything can be written: one that was closed leads nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for good
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):  # a terminal may not know every letter
            stream.reconfigure(errors="backslashreplace")


def fail_for_room(error: OSError) -> None:
    """Say that a disk is full, or broken, and exit; any other error is raised again.

    Raises:
        OSError: it is another one.
    """
    if error.errno not in NO_ROOM:
        raise error
    forget_output()
    where = error.filename or "standard output, or a file,"
    what, mend = "written", "make room"
    if error.errno == errno.EIO:
        what, mend = "read or written", "look after that disk"
    fail(f"{where} cannot be {what} ({error.strerror}); {mend}, and run the command again", DATA)


def fail(message: str, code: int) -> None:
    """Say in one line what is wrong, and exit."""
    print(f"recallatk: {one_line(message)}", file=sys.stderr)
    sys.exit(code)
