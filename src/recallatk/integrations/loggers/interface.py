"""What every logger is, and what of a report goes into each of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import SupportsIndex

from recallatk.integrations.processes import number_and_world
from recallatk.integrations.values import flat_values
from recallatk.report import Report
from recallatk.run import save_run
from recallatk.types import RecallatkError
from recallatk.wording import one_line

PREFIX = "retrieval/"
"""Before each name, where others log too."""


class Logger:
    """Takes a report after each evaluation; `csv_logger`, `tensorboard_logger` and the others make one.

    In several processes of torch.distributed process 0 writes, and the others do nothing. Closing (or `with`) closes
    what the logger opened itself, never what it was given.
    """

    def __init__(self, write: Callable[[Report, int], None], close: Callable[[], None] = lambda: None) -> None:
        self._write, self._close, self._closed = write, close, False

    def log(self, report: Report, step: SupportsIndex) -> None:
        """Log a report.

        Args:
            report: what an evaluation said.
            step: the epoch or the training step, a whole number from 0 on.

        Raises:
            RecallatkError: such a step does not exist, or the logger cannot write.
        """
        if not isinstance(report, Report):
            raise RecallatkError(f"log() takes a Report, not {type(report).__name__}; in a loop it is `recall.report`")
        try:
            number = operator.index(step)
        except TypeError:
            number = -1
        if not 0 <= number < 2**63 or isinstance(step, bool):
            raise RecallatkError(f"step={step!r}: a step is a whole number from 0 on, such as the epoch")
        if self._closed:
            raise RecallatkError("this logger is closed; make a new one")
        if number_and_world()[0] == 0:
            self._write(report, number)

    def close(self) -> None:
        """Close what the logger opened itself; a second time does nothing."""
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Logger:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def known_numbers(report: Report) -> dict[str, float]:
    """Metrics, ends of intervals and counts by name, but for what is not known."""
    return {name: number for name, number in all_numbers(report).items() if number is not None}


def all_numbers(report: Report) -> dict[str, float | None]:
    """Metrics, ends of intervals and counts; None for what is not known, so that the names are always the same."""
    names = [f"{name}{end}" for name in report for end in ("", "_low", "_high")]
    counts = {**report.record()["counts"], "num_warnings": len(report.warnings)}
    return {**dict.fromkeys(names), **flat_values(report), **counts}


def identity(report: Report) -> dict[str, str]:
    """What says whether two logged numbers may be compared, as text."""
    signature = report.signature
    return {"run_id": signature.run_id, "protocol_id": signature.protocol_id, "signature": str(signature)}


def warning_text(report: Report) -> str:
    """All warnings in one line; empty where there are none."""
    return " | ".join(one_line(warning) for warning in report.warnings)


def run_name(report: Report, step: int) -> str:
    """The name of the folder of a run: two runs of one step, as after a restart, have two; one logged twice has one.

    Steps are padded, so that a shell lists them in order.
    """
    return f"step-{step:06d}-{report.signature.run_id}"


def save_step(report: Report, step: int, folder: Path) -> Path:
    """Save a run below a folder; the same run may be there already."""
    run = folder / run_name(report, step)
    save_run(report, run, overwrite=True)
    return run
