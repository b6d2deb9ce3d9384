"""What every command that evaluates does with its runs: check first, then write and print."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from recallatk.cli.flags import Output
from recallatk.cli.gate import Conditions
from recallatk.cli.page import MakePage
from recallatk.cli.printing import DATA, NOT_PASSED, note_lines, print_comparison, tell, written_out
from recallatk.types import ChoiceError, RecallatkError


class SideBySide(Protocol):
    """What shows several views of one encoding."""

    def prefix(self, name: str) -> str:
        """What lines on standard error begin with that are of this run's encoding."""

    def print(self, reports: dict[str, Any]) -> None:
        """Print the runs that came to something."""


def check_metrics(metrics: Sequence[str]) -> tuple[str, ...]:
    """The metrics as a report names them; one that does not exist is refused before any work is done."""
    from recallatk.metrics import parse_metric

    return tuple(str(parse_metric(text)) for text in metrics)


def check_output(output: Output, runs: Mapping[str, Sequence[str]], *, report: Path | None = None) -> dict[str, Path]:
    """The folder of each run, where there is one; what could not be written is refused before any work is done.

    Args:
        output: what is written.
        runs: the parts of each run's path below the folder of --output.
        report: the page, if there is one.
    """
    from recallatk.run import check_run_folder

    if output.output is None:
        if output.save_embeddings or (output.overwrite and report is None):
            raise ChoiceError("--save-embeddings and --overwrite need the folder of the run: --output DIR")
        return {}
    folders = {name: place_of(output.output, parts) for name, parts in runs.items()}
    if len(set(folders.values())) < len(folders):
        raise ChoiceError(f"{' and '.join(folders)} would be written to one folder; evaluate them one at a time")
    for folder in folders.values():
        check_run_folder(folder, overwrite=output.overwrite)
    return folders


def place_of(folder: Path, parts: Sequence[str]) -> Path:
    """A folder below another, by names that any file system takes."""
    return folder.joinpath(*(re.sub(r"[^\w.-]", "_", part) for part in parts))


@written_out()
def deliver(
    runs: Iterator[tuple[str, Any, Any]],
    output: Output,
    folders: Mapping[str, Path],
    *,
    several: bool,
    conditions: Conditions | None = None,
    make_page: MakePage | None = None,
    more_lines: Callable[[str, Any], list[str]] | None = None,
    side_by_side: SideBySide | None = None,
) -> None:
    """Write each run as it comes, then print: one report, or one table for several.

    What is finished is printed also when another encoder fails. One that fails leaves a note in its folder; the exit
    code is then that of an error in the data, after everything else was done.

    Args:
        runs: name, report (or the error that it came to) and embeddings (None: there are none).
        output: what is printed and written.
        folders: the folder of each run that is to be written.
        several: whether there are several encoders.
        conditions: what every run has to reach.
        make_page: what writes the HTML page of each run, where one is wanted.
        more_lines: what follows each report; beside JSON or a table it goes to standard error.
        side_by_side: what prints several views of one encoding in the place of the table of encoders.
    """
    from recallatk.run import save_failure, save_run

    reports: dict[str, Any] = {}
    failed = False
    told: set[str] = set()  # views of one encoding share what was noticed on the way
    try:
        for spec, report, embeddings in runs:
            if isinstance(report, RecallatkError):
                failed = True
                tell(_once([f"recallatk: {report}"], told))
                if spec in folders:
                    save_failure(report, folders[spec], encoder=spec, overwrite=output.overwrite)
                continue
            reports[spec] = report
            if not several:  # one report alone says itself what was skipped
                tell(report.provenance.notes, quiet=output.quiet)
            else:
                prefix = f"{spec}: " if side_by_side is None else side_by_side.prefix(spec)
                tell(_once(note_lines(report.provenance, prefix=prefix), told), quiet=output.quiet)
            if spec in folders:
                kept = embeddings if output.save_embeddings else None
                save_run(report, folders[spec], embeddings=kept, evaluated=embeddings, overwrite=output.overwrite)
            if make_page is not None:
                make_page(spec, report, embeddings)
    finally:
        if reports:
            _print(reports, output, side_by_side, several=several)
            beside = output.json or (several and side_by_side is None)
            _print_more(reports, more_lines, beside=beside, several=several)
    if not _pass(reports, conditions, several=several) and not failed:
        sys.exit(NOT_PASSED)
    if failed:
        sys.exit(DATA)


def _once(lines: Sequence[str], told: set[str]) -> list[str]:
    """The lines that were not told yet."""
    new = [line for line in lines if line not in told]
    told.update(new)
    return new


def _pass(reports: Mapping[str, Any], conditions: Conditions | None, *, several: bool) -> bool:
    """Whether every run meets every condition; standard output is the report's, so the lines go beside it."""
    passed = True
    for spec, report in reports.items():
        found = () if conditions is None else conditions.check(report)
        tell([f"{spec}: {condition.line}" if several else condition.line for condition in found])
        passed = passed and all(condition.passed for condition in found)
    return passed


def _print_more(
    reports: dict[str, Any], more_lines: Callable[[str, Any], list[str]] | None, *, beside: bool, several: bool
) -> None:
    for spec, report in reports.items():
        lines = [] if more_lines is None else more_lines(spec, report)
        if beside:
            tell([f"{spec}: {line}" if several else line for line in lines])
        elif lines:
            heading, *others = lines
            print("\n".join([f"{heading} {spec}" if several else heading, *others]))


def _print(reports: dict[str, Any], output: Output, side_by_side: SideBySide | None, *, several: bool) -> None:
    if side_by_side is not None:
        side_by_side.print(reports)
    elif output.json:
        records = [report.to_json() for report in reports.values()]
        print("[" + ",\n".join(records) + "]" if several else records[0])
    elif several:
        print_comparison(reports, percent=output.percent)
    else:
        print(next(iter(reports.values())).text(percent=output.percent))
