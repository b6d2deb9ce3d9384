"""Scalars and the printed report for TensorBoard, and the folders of the runs beside its event file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recallatk.extras import import_extra
from recallatk.integrations.loggers.interface import PREFIX, Logger, known_numbers, save_step
from recallatk.report import Report
from recallatk.run import check_run_folder
from recallatk.types import RecallatkError

RUNS = "recallatk-runs"


def tensorboard_logger(log_dir: Any, *, prefix: str = PREFIX, keep_run: bool = True) -> Logger:
    """Log scalars under `retrieval/recall@1`, and the whole printed report as the text `retrieval/report`.

    TensorBoard holds float32; the report and the record have all digits.

    Args:
        log_dir: a folder, for an event file of our own; or the SummaryWriter of the loop (of torch or tensorboardX;
            in Lightning `trainer.logger.experiment`), which stays open.
        prefix: before each name.
        keep_run: save each run below the folder: `recallatk-runs/step-000003-RUNID`.

    Raises:
        RecallatkError: tensorboard is not installed, this is neither a folder nor a writer, or a folder elsewhere with
            `keep_run`.
    """
    if log_dir == "":
        raise RecallatkError("tensorboard_logger needs the name of a folder, such as events")
    write, close, folder = _own_writer(log_dir) if isinstance(log_dir, str | os.PathLike) else _given_writer(log_dir)
    if keep_run and "://" in folder:
        raise RecallatkError(f"{folder}: a run can only be kept in a local folder; pass keep_run=False")
    if keep_run:
        check_run_folder(Path(folder) / RUNS)  # before hours of training, not after

    def log(report: Report, step: int) -> None:
        if keep_run:
            save_step(report, step, Path(folder) / RUNS)
        numbers = {f"{prefix}{name}": float(number) for name, number in known_numbers(report).items()}
        # Indented by four, Markdown shows text as it is.
        write(numbers, f"{prefix}report", "\n".join(f"    {line}" for line in report.text().splitlines()), step)

    return Logger(log, close)


Write = Callable[[dict[str, float], str, str, int], None]
"""Numbers by tag, the tag of the text, the text, the step."""


def _given_writer(writer: Any) -> tuple[Write, Callable[[], None], str]:
    folder = getattr(writer, "log_dir", None) or getattr(writer, "logdir", None)
    if folder is None or not (hasattr(writer, "add_scalar") and hasattr(writer, "add_text")):
        raise RecallatkError(
            f"tensorboard_logger takes a folder or a SummaryWriter, not {type(writer).__name__}; in Lightning it is "
            "trainer.logger.experiment"
        )

    # tensorboardX would make recall_1 of recall@1.
    at = "_at_" if type(writer).__module__.startswith("tensorboardX") else "@"

    def write(numbers: dict[str, float], tag: str, text: str, step: int) -> None:
        for name, number in numbers.items():
            writer.add_scalar(name.replace("@", at), number, step)
        writer.add_text(tag, text, step)
        writer.flush()

    return write, lambda: None, str(folder)


def _own_writer(log_dir: str | os.PathLike[str]) -> tuple[Write, Callable[[], None], str]:
    """An event file as torch's SummaryWriter writes it, without torch; made with the first report."""
    folder = os.fspath(log_dir)
    purpose = "tensorboard_logger"
    import_extra("tensorboard", "tensorboard", purpose)
    files = import_extra("tensorboard.summary.writer.event_file_writer", "tensorboard", purpose)
    event_pb2 = import_extra("tensorboard.compat.proto.event_pb2", "tensorboard", purpose)
    summary_pb2 = import_extra("tensorboard.compat.proto.summary_pb2", "tensorboard", purpose)
    texts = import_extra("tensorboard.plugins.text.summary_v2", "tensorboard", purpose)
    opened: list[Any] = []

    def write(numbers: dict[str, float], tag: str, text: str, step: int) -> None:
        if not opened:
            try:
                opened.append(files.EventFileWriter(folder))
            except OSError as error:
                raise RecallatkError(f"{folder}: cannot be written ({error.strerror or error})") from error
        scalars = [summary_pb2.Summary.Value(tag=name, simple_value=number) for name, number in numbers.items()]
        for summary in (summary_pb2.Summary(value=scalars), texts.text_pb(tag, text)):
            opened[0].add_event(event_pb2.Event(wall_time=time.time(), step=step, summary=summary))
        opened[0].flush()

    def close() -> None:
        for writer in opened:
            writer.close()

    return write, close, folder
