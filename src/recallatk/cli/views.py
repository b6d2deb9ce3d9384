"""Several evaluations of one encoding on the command line: what they are called, and how they stand side by side."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallatk.cli.datasets import part_of
from recallatk.cli.delivery import place_of
from recallatk.cli.flags import Embeddings, Output, Reading
from recallatk.cli.printing import print_table, tell, with_interval
from recallatk.types import ChoiceError, RecallatkError, View
from recallatk.wording import one_line

if TYPE_CHECKING:
    from recallatk.run import FoldMean


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """One run that `recallatk eval` makes.

    Attributes:
        encoder: the encoder's name.
        view: which evaluation of its embeddings; empty where there is one.
        parts: what tells it from the others, from the outside in; empty for one that is alone.
    """

    encoder: str
    view: str
    parts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class PlannedRuns:
    """All of them.

    Attributes:
        runs: by the name that messages call them by.
        views: the evaluations of each encoding; empty where there is one.
        encoders: how many encodings there are.
    """

    runs: Mapping[str, PlannedRun]
    views: Mapping[str, View]
    encoders: int

    @property
    def folders(self) -> dict[str, tuple[str, ...]]:
        """The parts of the path of each run, below the folder of all."""
        return {name: run.parts for name, run in self.runs.items()}

    def parts_of(self, encoder: str, view: str) -> tuple[str, ...]:
        """What tells a run, or a mean of runs, from the others."""
        return tuple(part for part in (encoder if self.encoders > 1 else "", view) if part)


def plan_runs(specs: Sequence[str], views: Mapping[str, View]) -> PlannedRuns:
    """The runs of these encoders."""
    planned = PlannedRuns({}, views, len(specs))
    found = [PlannedRun(spec, view, planned.parts_of(spec, view)) for spec in specs for view in views or [""]]
    return dataclasses.replace(planned, runs={" ".join(run.parts) or run.encoder: run for run in found})


def views_asked(reading: Reading, embeddings: Embeddings) -> Mapping[str, View]:
    """The views of the part of a benchmark, or both directions of embeddings; empty for one evaluation.

    Raises:
        ChoiceError: both directions of what has none, or has them anyway.
    """
    part = part_of(reading.layout, reading.part)
    if not embeddings.both_directions:
        found: Mapping[str, View] = {} if part is None else part.views
        if reading.limit is not None and any(view.fold for view in found.values()):
            raise ChoiceError("--limit draws from all folds together; leave it out, or take a part without folds")
        return found
    if embeddings.query is None or embeddings.gallery is None:
        raise ChoiceError("--both-directions is for embeddings of two sides: --query and --gallery")
    if part is not None:
        raise ChoiceError(f"--both-directions: with --layout {reading.layout} the part says it (--part)")
    if reading.qrels is not None:
        raise ChoiceError("--both-directions goes by labels; judged pairs (--qrels) have one direction")
    from recallatk.run import BOTH_DIRECTIONS

    return BOTH_DIRECTIONS


def each_view(jobs: Iterator[tuple[str, Any]], planned: PlannedRuns) -> Iterator[tuple[str, Any]]:
    """What is to be evaluated under the name of each run; an error of the encoding is one of all its views."""
    from recallatk.run import view_of

    for spec, encoded in jobs:
        for name, run in planned.runs.items():
            if run.encoder != spec:
                continue
            if isinstance(encoded, RecallatkError) or not planned.views:
                yield name, encoded
                continue
            try:
                yield name, view_of(dataclasses.replace(encoded, views=planned.views), run.view)
            except RecallatkError as error:
                yield name, error


@dataclasses.dataclass(frozen=True)
class Views:
    """Shows the views of each encoding side by side, with the means over folds."""

    planned: PlannedRuns
    output: Output

    def prefix(self, name: str) -> str:
        """What lines on standard error begin with that are of this run's encoding."""
        return f"{self.planned.runs[name].encoder}: " if self.planned.encoders > 1 else ""

    def print(self, reports: Mapping[str, Any]) -> None:
        """A row for each run, or the records; a mean over folds also becomes a file beside its runs."""
        means = self._means(reports)
        if self.output.output is not None:
            for mean in means:
                folder = place_of(self.output.output, mean.folder)
                _write(folder / f"{mean.found.name}.json", mean.found.record())
        if self.output.json:
            records = [report.to_json() for report in reports.values()]
            records += [json.dumps(mean.found.record(), indent=2, ensure_ascii=False) for mean in means]
            print("[" + ",\n".join(records) + "]")
        else:
            self._print_table(reports, means)

    def _means(self, reports: Mapping[str, Any]) -> list[_Mean]:
        from recallatk.run import average_folds

        means = []
        runs = self.planned.runs
        for spec in dict.fromkeys(run.encoder for run in runs.values()):
            own = {run.view: reports[name] for name, run in runs.items() if run.encoder == spec and name in reports}
            means += [
                _Mean(spec, self.planned.parts_of(spec, ""), found) for found in average_folds(self.planned.views, own)
            ]
        return means

    def _print_table(self, reports: Mapping[str, Any], means: Sequence[_Mean]) -> None:
        from recallatk.run import describe_intervals

        percent = self.output.percent
        rows = []
        for name, report in reports.items():
            values = [with_interval(value, percent=percent) for value in report.values_by_metric.values()]
            counts = (report.num_evaluated, report.num_excluded, report.num_gallery, report.embedding_dim)
            rows.append((*self.planned.runs[name].parts, *values, *map(str, counts), report.signature.run_id))
        for mean in means:
            parts = self.planned.parts_of(mean.encoder, mean.title)
            values = [with_interval(value, percent=percent) for value in mean.found.values.values()]
            rows.append((*parts, *values, str(next(iter(mean.found.values.values())).n), "", "", "", ""))
        heads = ("encoder", "direction") if self.planned.encoders > 1 else ("direction",)
        metrics = next(iter(reports.values()))
        print_table((*heads, *metrics, "evaluated", "excluded", "gallery", "dim", "run id"), rows, keys=len(heads))
        rules = {
            name: describe_intervals(
                report.intervals, report.values_by_metric, several=report.protocol.relevance == "labels"
            )
            for name, report in reports.items()
        }
        rules |= {" ".join(self.planned.parts_of(mean.encoder, mean.title)): mean.found.rule for mean in means}
        _print_section("interval", _by_text(rules))
        _print_section("signature", {name: str(report.signature) for name, report in reports.items()})
        warnings: dict[str, list[str]] = {}
        for name, report in reports.items():
            for warning in dict.fromkeys(report.warnings):
                warnings.setdefault(warning, []).append(name)
        tell([f"{'all' if len(of) == len(reports) else ', '.join(of)}: {warning}" for warning, of in warnings.items()])


@dataclasses.dataclass(frozen=True)
class _Mean:
    encoder: str
    folder: tuple[str, ...]
    found: FoldMean

    @property
    def title(self) -> str:
        return f"{self.found.name}, mean of {len(self.found.runs)}"


def _write(file: Path, record: Mapping[str, Any]) -> None:
    """A mean over folds beside the runs of the folds."""
    try:
        file.write_text(json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise RecallatkError(f"{file}: cannot be written ({error.strerror or error})") from error


def _print_section(title: str, lines: Mapping[str, str]) -> None:
    if lines:
        print(f"[{title}]")
        print("\n".join(one_line(f"{name}: {line}") for name, line in lines.items()))


def _by_text(lines: Mapping[str, str]) -> dict[str, str]:
    """Lines that say the same as one, under all of their names."""
    names: dict[str, list[str]] = {}
    for name, line in lines.items():
        names.setdefault(line, []).append(name)
    return {", ".join(of): line for line, of in names.items() if line}
