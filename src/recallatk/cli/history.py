"""`recallatk history`: one metric over epochs or commits."""

# No `from __future__ import annotations`: the command line is made from these annotations.

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from recallatk.cli.compare import AS_IN_THE_FIRST_RUN, DifferenceIntervals, Form, check_file, write_result
from recallatk.cli.flags import NO_PAGE, OUTPUT_GROUP, PAGE_GROUP
from recallatk.cli.page import check_page_file, write
from recallatk.cli.printing import progress, tell
from recallatk.types import ChoiceError


def history(
    *runs: Path,
    metric: str | None = None,
    by: str | None = None,
    force: bool = False,
    intervals: DifferenceIntervals = AS_IN_THE_FIRST_RUN,
    format: Annotated[Form, Parameter(group=OUTPUT_GROUP)] = "text",  # noqa: A002 - the flag is --format
    output: Annotated[Path | None, Parameter(group=OUTPUT_GROUP)] = None,
    plot: Annotated[Path | None, Parameter(group=OUTPUT_GROUP)] = None,
    overwrite: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
    percent: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
    report: Annotated[Path | None, Parameter(group=PAGE_GROUP)] = None,
) -> None:
    """The curve of a metric over runs: epochs or commits, each against the first, the one before and the best.

    Runs come in the order of the number that tells their names apart (2 before 10), else of the one that tells their
    encoders apart, else of the time when they were finished. Failed runs and missing steps are named.

    Args:
        runs: folders that hold runs, or runs, as `--output` of `recallatk eval` writes them.
        metric: such as recall@5; by default recall at the smallest k that all runs have.
        by: a regular expression that finds the step in the run's name, else in its encoder; a group, if it has one.
        force: put runs in one curve that differ in protocol or data, on the queries that all of them have.
        format: text, markdown, latex, csv or json.
        output: write to this file what would be printed.
        plot: draw the curve into this .png or .svg file (needs the extra plot).
        overwrite: write over files that are there already.
        percent: values in 0..100 (csv and json have 0..1 always).
        report: write an HTML page with the curves, the runs, and the labels over the steps.
    """
    from recallatk.comparison import choose_rule
    from recallatk.history import AGAINST, track
    from recallatk.history.plot import check_plot, plot_history
    from recallatk.history.tables import missing_lines, without_blocks
    from recallatk.report import Report
    from recallatk.run import load_runs

    if not runs:
        raise ChoiceError("name a folder of runs, or runs: recallatk history DIR")
    for file in (output, plot):
        check_file(file, overwrite=overwrite and file is not None)
    check_page_file(report, NO_PAGE, overwrite=overwrite)
    if plot is not None:
        check_plot(plot)
    loaded = load_runs(runs)
    first = next((run for run in loaded.values() if isinstance(run, Report)), None)
    given = intervals.given()
    rule = dataclasses.replace(choose_rule(first), **given) if first is not None and given else None
    tests = len(AGAINST) * max(len(loaded) - 1, 1)
    with progress("history", tests, quiet=len(loaded) < 2) as on_progress:
        found = track(loaded, metric=metric, by=by, force=force, intervals=rule, on_progress=on_progress)
    if format == "json":
        written = found.to_json()
    elif format == "csv":
        written = found.csv()
    else:
        written = getattr(found, format)(percent=percent)
        if output is None and not _has_blocks():
            written = without_blocks(written)
    write_result(written, output, format)
    if plot is not None:
        plot_history(found, plot)
        tell([f"wrote {plot}"])
    if report is not None:
        from recallatk.page import history_page

        write(history_page(found, loaded), report, overwrite=overwrite)
    if format not in ("text", "json", "csv"):
        tell([f"{step.name}: {step.error}" for step in found.failed])
        tell(missing_lines(found))


def _has_blocks() -> bool:
    """Whether standard output can show the characters of the curve."""
    try:
        "▁█".encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
