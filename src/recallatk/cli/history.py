"""`recallatk history`: one metric over epochs or commits."""

# No `from __future__ import annotations`: the command line is made from these annotations.

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from recallatk.cli.flags import INTERVALS_GROUP, OUTPUT_GROUP
from recallatk.cli.printing import tell
from recallatk.types import ChoiceError, IntervalMethod, IntervalRule, RecallatkError
from recallatk.wording import counted

Format = Literal["text", "markdown", "latex", "csv", "json"]


def history(
    *runs: Path,
    metric: str | None = None,
    by: str | None = None,
    force: bool = False,
    ci: Annotated[IntervalMethod | None, Parameter(group=INTERVALS_GROUP)] = None,
    cluster: Annotated[str | None, Parameter(group=INTERVALS_GROUP)] = None,
    confidence: Annotated[float | None, Parameter(group=INTERVALS_GROUP)] = None,
    format: Annotated[Format, Parameter(group=OUTPUT_GROUP)] = "text",  # noqa: A002 - the flag is --format
    output: Annotated[Path | None, Parameter(group=OUTPUT_GROUP)] = None,
    plot: Annotated[Path | None, Parameter(group=OUTPUT_GROUP)] = None,
    overwrite: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
    percent: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
) -> None:
    """The curve of a metric over runs: epochs or commits, each against the first, the one before and the best.

    Runs come in the order of the number that tells their names apart (2 before 10), else of the one that tells their
    encoders apart, else of the time when they were finished. Failed runs and missing steps are named.

    Args:
        runs: folders that hold runs, or runs, as `--output` of `recallatk eval` writes them.
        metric: such as recall@5; by default recall at the smallest k that all runs have.
        by: a regular expression that finds the step in the run's name, else in its encoder; a group, if it has one.
        force: put runs in one curve that differ in protocol or data, on the queries that all of them have.
        ci: the interval, as for `recallatk eval`; by default as the first run has it.
        cluster: what queries of one cluster share, as for `recallatk eval`.
        confidence: as for `recallatk eval`.
        format: text, markdown, latex, csv or json.
        output: write to this file what would be printed.
        plot: draw the curve into this .png or .svg file (needs the extra plot).
        overwrite: write over files that are there already.
        percent: values in 0..100 (csv and json have 0..1 always).
    """
    from recallatk.history import track
    from recallatk.history.plot import check_plot, plot_history
    from recallatk.history.tables import without_blocks
    from recallatk.run import load_runs

    if not runs:
        raise ChoiceError("name a folder of runs, or runs: recallatk history DIR")
    for file in (output, plot):
        check_file(file, overwrite=overwrite)
    if plot is not None:
        check_plot(plot)
    loaded = load_runs(runs)
    rule = choose_intervals(loaded, ci, cluster, confidence)
    found = track(loaded, metric=metric, by=by, force=force, intervals=rule)
    if format == "json":
        written = json.dumps(found.record(), indent=2, ensure_ascii=False, allow_nan=False)
    elif format == "csv":
        written = found.csv()
    else:
        written = getattr(found, format)(percent=percent)
        if output is None and not _has_blocks():
            written = without_blocks(written)
    write_or_print(written, output)
    if plot is not None:
        plot_history(found, plot)
        tell([f"wrote {plot}"])
    if format not in ("text", "json", "csv"):
        tell([f"{step.name}: {step.error}" for step in found.failed])
        tell([f"no run for step {gap}" for gap in found.missing])


def _has_blocks() -> bool:
    """Whether standard output can show the characters of the curve."""
    try:
        "▁█".encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def choose_intervals(
    runs: Any, ci: IntervalMethod | None, cluster: str | None, confidence: float | None
) -> IntervalRule | None:
    """What the flags say of intervals, on top of what the first run was made with; None if they say nothing."""
    from recallatk.report import Report

    asked: dict[str, Any] = {"ci": ci, "cluster": cluster, "confidence": confidence}
    given = {name: value for name, value in asked.items() if value is not None}
    if not given:
        return None
    own = next((run.intervals for run in runs.values() if isinstance(run, Report)), IntervalRule())
    own = IntervalRule() if own.ci == "none" else own
    return IntervalRule(**{"ci": own.ci, "cluster": own.cluster, "confidence": own.confidence, **given})


def check_file(file: Path | None, *, overwrite: bool) -> None:
    """Refuse a file that is there already or has no folder, before any work is done."""
    if file is None:
        return
    if file.is_dir():
        raise RecallatkError(f"{file}: this is a folder; name a file")
    if file.exists() and not overwrite:
        raise RecallatkError(f"{file}: there is a file already; name another one, or use --overwrite")
    if not file.absolute().parent.is_dir():
        raise RecallatkError(f"{file}: the folder {file.parent} is not there; make it first")


def write_or_print(text: str, output: Path | None) -> None:
    """The result, on standard output or in a file."""
    text = text.removesuffix("\n")
    if output is None:
        print(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise RecallatkError(f"{output}: cannot be written ({error.strerror or error})") from error
    tell([f"wrote {output} ({counted(text.count(chr(10)) + 1, 'line')})"])
