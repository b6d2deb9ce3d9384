"""A run on disk: record.json, queries.parquet, and the embeddings if they were asked for."""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from recallatk.arrow import from_arrow
from recallatk.report import Report, report_from_record
from recallatk.run.encoded import EncodedDataset, save_encoded
from recallatk.run.environment import describe_environment
from recallatk.run.kinds import check_kinds
from recallatk.run.samples import SavedSamples, digests_of, write_samples
from recallatk.types import ChoiceError, EvalProtocol, RecallatkError
from recallatk.wording import and_more, counted, one_line

RECORD = "record.json"
QUERIES = "queries.parquet"
FAILED = "failed.json"
FAILURE_SCHEMA = "recallatk.failure/1"
SAMPLES = "samples.parquet"
_COUNTS = ("negatives_ahead", "negatives_tied", "positives_tied", "n_positives", "n_candidates")

_EMBEDDINGS = tuple(
    f"embeddings{side}{suffix}" for side in ("", "-query", "-gallery") for suffix in (".npy", ".samples.parquet")
)


def check_run_folder(folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Refuse to write over an earlier run, or where nothing can be written, before any work is done.

    Raises:
        RecallatkError: the folder holds a run, is or lies below a file, or may not be written to.
    """
    folder = Path(folder)
    # os.path: Path.exists raises where a name is too long or a folder is closed to us.
    there = next(place for place in (folder, *folder.absolute().parents) if os.path.exists(place))  # noqa: PTH110
    if not there.is_dir():
        raise RecallatkError(f"{folder}: {'this' if there == folder else there} is a file; name a folder for the run")
    if not os.access(there, os.W_OK):
        raise RecallatkError(f"{folder}: {there} may not be written to; name another folder for the run")
    if (folder / RECORD).exists() and not overwrite:
        raise RecallatkError(
            f"{folder}: there is a run already; name another folder, or use overwrite=True (--overwrite)"
        )


def save_run(
    report: Report,
    folder: str | os.PathLike[str],
    *,
    embeddings: EncodedDataset | None = None,
    evaluated: EncodedDataset | None = None,
    overwrite: bool = False,
) -> None:
    """Write a run: record.json, queries.parquet (a row a query), samples.parquet and, if given, the embeddings as .npy.

    The record is written last, so a folder with a record is complete.

    Args:
        report: what an evaluation said.
        folder: where to; made if it is not there.
        embeddings: what was evaluated, to be kept beside it.
        evaluated: what was evaluated, of which only a hash of each row is kept, so that `verify_run` can name the rows
            that moved.
        overwrite: take the place of an earlier run, of which nothing is left.

    Raises:
        RecallatkError: as for `check_run_folder`, or the disk refuses.
    """
    import pyarrow.parquet as pq

    folder = Path(folder)
    check_run_folder(folder, overwrite=overwrite)
    samples, encoded = dict(report.samples), evaluated or embeddings  # a loaded report may have them in this folder
    digests = digests_of(encoded, samples) if encoded else getattr(report.samples, "digests", {})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _empty(folder)
        if embeddings is not None:
            save_encoded(embeddings, folder / "embeddings.npy")
        table = report.to_arrow()
        with (folder / QUERIES).open("wb") as stream:  # Arrow would take some names for addresses
            pq.write_table(table, stream)
        if samples:
            write_samples(folder / SAMPLES, samples, digests)
        unfinished = folder / f".{RECORD}.tmp"
        unfinished.write_text(report.to_json() + "\n", encoding="utf-8")
        unfinished.replace(folder / RECORD)
    except OSError as error:
        raise RecallatkError(f"{error.filename or folder}: cannot be written ({_reason(error)})") from error


def save_failure(
    error: RecallatkError, folder: str | os.PathLike[str], *, encoder: str, overwrite: bool = False
) -> None:
    """Write failed.json in the place of a run that came to nothing, so that a history can name it.

    Args:
        error: why there is no run.
        folder: as for `save_run`.
        encoder: what was to be evaluated.
        overwrite: as for `save_run`.

    Raises:
        RecallatkError: as for `save_run`.
    """
    folder = Path(folder)
    check_run_folder(folder, overwrite=overwrite)
    note = {"schema": FAILURE_SCHEMA, "encoder": encoder, "error": str(error), "environment": describe_environment()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _empty(folder)
        (folder / FAILED).write_text(json.dumps(note, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as fault:
        raise RecallatkError(f"{fault.filename or folder}: cannot be written ({_reason(fault)})") from fault


def read_failure(folder: Path) -> str:
    """Why there is no run in this folder, as `save_failure` wrote it."""
    try:
        return str(json.loads((folder / FAILED).read_text(encoding="utf-8"))["error"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return f"it failed, and {FAILED} cannot be read"


def _empty(folder: Path) -> None:
    """Leave nothing of an earlier run."""
    for name in (RECORD, FAILED, QUERIES, SAMPLES, *_EMBEDDINGS):
        (folder / name).unlink(missing_ok=True)


def run_folder(run: str | os.PathLike[str]) -> Path:
    """The folder of a run, which may also be named by its record."""
    run = Path(run)
    return run.parent if run.name == RECORD else run


def load_report(folder: str | os.PathLike[str]) -> Report:
    """Read the report of a saved run.

    Args:
        folder: the folder of the run, or its record.json.

    Raises:
        RecallatkError: there is no complete run in the folder, it is damaged, or it has another schema.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = run_folder(folder)
    if (folder / FAILED).is_file():
        raise RecallatkError(f"{folder}: this run failed: {read_failure(folder)}")
    record = read_record(folder)
    if not (folder / QUERIES).is_file():
        raise RecallatkError(f"{folder}: {QUERIES} is missing beside {RECORD}; the run is not complete")
    try:
        with (folder / QUERIES).open("rb") as stream, pq.ParquetFile(stream) as file:
            table = file.read(use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise RecallatkError(f"{folder / QUERIES}: cannot be read as Parquet: {_reason(error)}") from error
    queries = from_arrow(table)
    try:
        report = report_from_record(record, queries, SavedSamples(folder / SAMPLES))
        check_kinds(report)
    except ChoiceError as error:  # nobody chose anything here
        raise RecallatkError(f"{folder / RECORD}: the record is damaged ({_reason(error)}); repeat the run") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecallatkError(f"{folder / RECORD}: the record is damaged ({_reason(error)}); repeat the run") from error
    wrong = _what_is_wrong(report, table.num_rows)
    if wrong:
        raise RecallatkError(one_line(f"{folder / QUERIES}: {wrong}; these are not of one run, or damaged: repeat it"))
    return report


def _what_is_wrong(report: Report, rows: int) -> str:
    """How the rows of the queries belie the record, in words; empty if they do not."""
    if rows != report.num_queries:
        return f"{counted(rows, 'row')} for the {report.num_queries} queries of {RECORD}"
    if not all(isinstance(one, str) for one in report.queries.get("id", ())):
        return "an id is no text"
    for name in _COUNTS:
        if name in report.queries and getattr(report.queries[name], "dtype", None) != np.int64:
            return f"the column {name} holds other than whole numbers"
    for name in report.values_by_metric:
        if name in report.queries and getattr(report.queries[name], "dtype", None) != np.float64:
            return f"the column {name} holds other than numbers"
    return ""


def read_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the record of a run: its folder, or record.json itself.

    Raises:
        RecallatkError: there is none, or it is no JSON object.
    """
    path = Path(path)
    file = path / RECORD if path.is_dir() else path
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        inside = sorted(one.parent.name for one in path.glob(f"*/{RECORD}")) if path.is_dir() else []
        some = one_line(", ".join(inside[:10])) + and_more(max(len(inside) - 9, 1), "run")
        name = f"one of the runs in {path}: {some}" if inside else "the folder of a run"
        raise RecallatkError(f"{file}: cannot be read ({_reason(error)}); name {name}") from error
    except (ValueError, RecursionError) as error:
        raise RecallatkError(f"{file}: this is no JSON ({_reason(error)})") from error
    if not isinstance(record, dict):
        raise RecallatkError(f"{file}: this is no record; a record is a JSON object")
    return record


def read_protocol(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The protocol fields of a TOML file or of an earlier record: the record is the configuration.

    Raises:
        RecallatkError: not readable, a key that is no field of the protocol, or a value that its field does not take.
    """
    path = Path(path)
    if path.suffix.lower() == ".toml":
        try:
            found: Any = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise RecallatkError(f"{path}: cannot be read ({_reason(error)})") from error
        except (ValueError, RecursionError) as error:
            raise RecallatkError(f"{path}: this is no TOML ({_reason(error)})") from error
        beside = sorted(set(found) - {"protocol"}) if "protocol" in found else []
        if beside:
            raise RecallatkError(
                f"{path}: {beside[0]!r} stands outside [protocol] and would be lost; put it below, or drop that line"
            )
        found = found.get("protocol", found)
    else:
        found = read_record(path).get("protocol", {})
    fields = [field.name for field in dataclasses.fields(EvalProtocol)]
    wrong = "there is no protocol in it" if not found or not isinstance(found, dict) else ""
    for key in () if wrong else found:
        wrong = wrong or ("" if key in fields else f"{key!r} is no field of the protocol")
    if wrong:
        raise RecallatkError(f"{path}: {wrong}; the fields are: {', '.join(fields)}")
    try:
        EvalProtocol(**found)
    except RecallatkError as error:
        raise type(error)(f"{path}: {error}") from error
    except (TypeError, ValueError) as error:
        raise RecallatkError(f"{path}: a value of the protocol is of another kind than its field ({error})") from error
    return dict(found)


def _reason(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
