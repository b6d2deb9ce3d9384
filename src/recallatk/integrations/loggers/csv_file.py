"""A CSV file with a row a step, and the folders of the runs beside it."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

from recallatk.integrations.loggers.interface import Logger, all_numbers, identity, save_step, warning_text
from recallatk.report import Report
from recallatk.run import check_run_folder
from recallatk.types import RecallatkError
from recallatk.wording import one_line


def csv_logger(path: str | os.PathLike[str], *, keep_run: bool = True) -> Logger:
    """Append a row to a CSV file for each report: UTF-8, one line a row, numbers with all their digits.

    The columns are `step`, the numbers, `run_id`, `protocol_id`, `signature`, `warnings` and `run_folder`; a cell is
    empty where nothing is known. A row is written at once and reaches the disk before `log` returns.

    Args:
        path: the file; made with its folder if it is not there, else appended to.
        keep_run: save each run beside the file: `recall.csv` has `recall-runs/step-000003-RUNID`.

    Raises:
        RecallatkError: the file is not one of ours or its last row is torn; on `log`, the columns are others.
    """
    path = Path(path)
    if not path.name:
        raise RecallatkError("csv_logger needs the name of a file, such as recall.csv")
    runs = path.with_name(f"{path.stem}-runs")
    check_run_folder(runs)  # before hours of training, not after
    _read_columns(path)

    def write(report: Report, step: int) -> None:
        run = save_step(report, step, runs) if keep_run else None
        row = {
            "step": step,
            **all_numbers(report),
            **identity(report),
            "warnings": warning_text(report),
            "run_folder": "" if run is None else run.relative_to(path.parent).as_posix(),
        }
        columns = _read_columns(path)
        if columns and columns != list(row):
            raise RecallatkError(
                f"{path}: {_difference(columns, list(row))}; log into another file"
                + ("" if run is None else f" (this run is kept: {run})")
            )
        _append(path, _as_csv(row.values()) if columns else _as_csv(row) + _as_csv(row.values()))

    return Logger(write)


def _read_columns(path: Path) -> list[str]:
    """The columns of the file; none where there is no file or nothing in it."""
    try:
        if not path.exists() or path.stat().st_size == 0:
            return []
        with path.open("rb") as file:
            first = file.readline()
            file.seek(-1, os.SEEK_END)
            torn = file.read() != b"\n"
        columns = next(csv.reader([first.decode("utf-8")]), [])
    except (OSError, ValueError, csv.Error) as error:
        raise RecallatkError(f"{path}: cannot be read as CSV ({_reason(error)}); log into another file") from error
    if columns[:1] != ["step"] or columns[-1] != "run_folder":
        raise RecallatkError(f"{path}: this file is not one that csv_logger wrote; log into another file")
    if torn:
        raise RecallatkError(f"{path}: its last row is torn; delete that row, or log into another file")
    return columns


def _difference(there: list[str], ours: list[str]) -> str:
    for what, names in (
        ("it has no column", [name for name in ours if name not in there]),
        ("nothing is known for its column", [name for name in there if name not in ours]),
    ):
        if names:
            return one_line(f"{what} {names[0]!r}" + (f" (and {len(names) - 1} more)" if len(names) > 1 else ""))
    return "its columns are in another order"


def _as_csv(cells: object) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)  # type: ignore[arg-type]
    return text.getvalue().encode()


def _append(path: Path, data: bytes) -> None:
    """One unbuffered write, so that a process which is killed leaves the whole row or none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            start = file.tell()
            if file.write(data) != len(data):
                file.truncate(start)
                raise OSError("the disk is full")
            os.fsync(file.fileno())
    except OSError as error:
        raise RecallatkError(f"{path}: cannot be written ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    return one_line(str(getattr(error, "strerror", None) or error))
