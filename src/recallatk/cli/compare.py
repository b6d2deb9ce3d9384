"""`recallatk compare`: saved runs against the first of them, on the same queries."""

# No `from __future__ import annotations`: the command line is made from these annotations.

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from recallatk.cli.flags import INTERVALS_GROUP, NO_PAGE, OUTPUT_GROUP, PAGE_GROUP, Many, PageContent
from recallatk.cli.page import check_page_file, write_compare_page
from recallatk.cli.printing import tell
from recallatk.markup import count_formulas
from recallatk.statistics import RESAMPLES, SEED
from recallatk.types import ChoiceError, RecallatkError
from recallatk.wording import counted

Form = Literal["text", "markdown", "latex", "csv", "json"]
SUFFIXES: dict[str, Form] = {
    ".txt": "text",
    ".md": "markdown",
    ".tex": "latex",
    ".csv": "csv",
    ".json": "json",
}


@Parameter(name="*", group=INTERVALS_GROUP)
@dataclasses.dataclass(frozen=True)
class DifferenceIntervals:
    """How the interval of a difference is made; what is not given is as in the first run.

    Attributes:
        ci: the interval of a difference: cluster-t (robust to queries of one label that are alike), cluster-bootstrap,
            or none.
        cluster: what queries that are tested together share: label, or a column of the queries; by default as in the
            first run.
        confidence: of the interval, in 0..1; 1 minus it is the level of the verdict. By default as in the first run.
    """

    ci: Literal["cluster-t", "cluster-bootstrap", "none"] | None = None
    cluster: str | None = None
    confidence: float | None = None

    def given(self) -> dict[str, Any]:
        """The fields that were given."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


AS_IN_THE_FIRST_RUN = DifferenceIntervals()


def compare(
    *runs: Path,
    metric: str | None = None,
    k: Annotated[tuple[int, ...], Parameter(name="--ks")] = (),
    force: bool = False,
    name: Many = (),
    resamples: int = RESAMPLES,
    seed: int = SEED,
    intervals: DifferenceIntervals = AS_IN_THE_FIRST_RUN,
    format: Annotated[Form | None, Parameter(group=OUTPUT_GROUP)] = None,  # noqa: A002 - the flag's name
    json: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
    all_: Annotated[bool, Parameter(name="--all", group=OUTPUT_GROUP)] = False,
    output: Annotated[Path | None, Parameter(group=OUTPUT_GROUP)] = None,
    overwrite: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
    report: Annotated[Path | None, Parameter(group=PAGE_GROUP)] = None,
    page: PageContent = NO_PAGE,
) -> None:
    """Compare saved runs with the first of them: is one better, on the same queries?

    Differences are the other run minus the first. Short forms: -k for --ks (one k: the recall to test), -m for
    --metric, -o for --output.

    Args:
        runs: the folders of two or more runs (`recallatk eval --output DIR`); the first is the baseline.
        metric: what is tested; by default recall at the smallest k that all runs have.
        k: test recall at this k.
        force: compare also runs that differ in protocol or data, on the queries that all have; says what it dropped.
        name: what the runs are called, one for each; by default the shortest distinct ends of their paths.
        resamples: how many sign flips are sampled where there are too many to count them all.
        seed: of that sample.
        format: by default what the suffix of --output says, or text.
        json: the same as --format json.
        all_: every changed query and label, not the first ten.
        output: write to this file instead of standard output.
        overwrite: write over that file.
        report: write an HTML page that shows the systems side by side, query by query.
    """
    from recallatk.comparison import choose_rule
    from recallatk.comparison import compare as compare_reports
    from recallatk.run import load_report, run_folder

    if len(runs) < 2:
        raise ChoiceError("name at least two runs: recallatk compare BASELINE OTHER")
    names = _names(runs, name)
    tested = _metric(metric, k)
    check_file(output, overwrite=overwrite and (output is not None or report is None))
    check_page_file(report, page, overwrite=overwrite)
    if json and format not in (None, "json"):
        raise ChoiceError(f"--json and --format {format} are two forms; choose one")
    form = "json" if json else format or SUFFIXES.get("" if output is None else output.suffix.lower(), "text")
    if resamples < 1:
        raise ChoiceError(f"--resamples {resamples}: at least 1 is needed; 9999 is usual")
    if seed < 0:
        raise ChoiceError(f"--seed {seed}: give a whole number from 0 on")
    reports = {one: load_report(run) for one, run in zip(names, runs, strict=True)}
    found = compare_reports(
        reports,
        metric=tested,
        force=force,
        intervals=dataclasses.replace(choose_rule(reports[names[0]]), **intervals.given()),
        resamples=resamples,
        seed=seed,
    )
    write_result(_form(found, form, everything=all_), output, form)
    if report is not None:
        folders = {one: run_folder(run) for one, run in zip(names, runs, strict=True)}
        write_compare_page(found, reports, folders, report, page, overwrite=overwrite)


def _form(found: Any, form: Form, *, everything: bool) -> str:
    if form == "text":
        return str(found.text(everything=everything))
    if form == "markdown":
        return str(found.markdown(everything=everything))
    return str({"latex": found.latex, "csv": found.csv, "json": found.to_json}[form]())


def write_result(text: str, file: Path | None, form: str) -> None:
    """Print a result, or write it to a file; of CSV, say which cells a spreadsheet would run."""
    text = text.removesuffix("\n")
    formulas = count_formulas(text) if form == "csv" else 0
    if formulas:
        begin = counted(formulas, "cell begins", "cells begin")
        tell([f"{begin} with = + - or @, which a spreadsheet takes for a formula; import the columns as text"])
    if file is None:
        print(text)
        return
    try:
        file.write_text(text + "\n", encoding="utf-8", newline="\n")
    except OSError as error:
        raise RecallatkError(f"{file}: cannot be written ({error.strerror or error})") from error


def check_file(file: Path | None, *, overwrite: bool) -> None:
    """Refuse a file that could not be written, before any work is done."""
    if file is None:
        if overwrite:
            raise ChoiceError("--overwrite needs the file: --output FILE")
        return
    # os.path: Path.exists raises where a name is too long or a folder is closed to us.
    if os.path.isdir(file):  # noqa: PTH112
        raise RecallatkError(f"{file}: this is a folder; name a file")
    if os.path.exists(file) and not overwrite:  # noqa: PTH110
        raise RecallatkError(f"{file}: there is a file already; name another, or use --overwrite")
    if not os.path.isdir(file.parent):  # noqa: PTH112
        raise RecallatkError(f"{file}: there is no folder {file.parent}; make it first")


def _metric(metric: str | None, k: Sequence[int]) -> str | None:
    from recallatk.metrics import parse_metric

    if len(k) > 1 or (k and metric is not None):
        raise ChoiceError("name one thing to test: -k 5 (recall@5), or --metric map; the others are shown beside it")
    if k:
        metric = f"recall@{k[0]}"
    return None if metric is None else str(parse_metric(metric))


def _names(runs: Sequence[Path], given: Sequence[str]) -> list[str]:
    from recallatk.run import distinct_names, run_folder

    if not given:
        return distinct_names([run_folder(run) for run in runs])
    if len(given) != len(runs):
        raise ChoiceError(f"--name stands for {len(given)} of {len(runs)} runs; give one for each, or none")
    if len(set(given)) < len(given) or not all(given):
        raise ChoiceError(f"--name {' --name '.join(given)}: every run needs a name of its own")
    return list(given)
