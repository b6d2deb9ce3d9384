"""From images or embedding files to a run: the report, the embeddings behind it, and both on disk."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
import tomllib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from recallatk.embeddings import LoadedEmbeddings, save_embeddings
from recallatk.encoding import BATCH, Encoded, Progress, encode
from recallatk.evaluation import evaluate_embeddings
from recallatk.images import DEFAULT_POLICY, DecodePolicy
from recallatk.report import Provenance, Report, report_from_record
from recallatk.types import (
    Dataset,
    EmbeddingSet,
    Encoder,
    EvalProtocol,
    ImageSet,
    Label,
    LabelKind,
    OnError,
    RecallatkError,
    as_labels,
)

RECORD = "record.json"
QUERIES = "queries.parquet"
PACKAGES = ("numpy", "pillow", "pyarrow", "onnxruntime", "torch")


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedDataset:
    """A data set after encoding: what `embed` writes and `evaluate_encoded` evaluates.

    Attributes:
        query: the embeddings of the queries.
        gallery: those of the gallery; None for leave-one-out.
        provenance: the encoder, and everything that was skipped, converted or noticed.
    """

    query: EmbeddingSet
    gallery: EmbeddingSet | None
    provenance: Provenance


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A report and the embeddings behind it."""

    report: Report
    query: EmbeddingSet
    gallery: EmbeddingSet | None


def evaluate(
    query_images: Sequence[Any],
    query_labels: Iterable[Any],
    gallery_images: Sequence[Any],
    gallery_labels: Iterable[Any],
    encoder_fn: Encoder,
    ks: Sequence[int] = (1, 5, 10),
    *,
    protocol: EvalProtocol | None = None,
    batch: int = BATCH,
    decode: bool = False,
) -> Report:
    """Encode query and gallery images with a callable and evaluate them.

    A query is never in its own ranking: paths are the same image if they lead to the same file, other elements if
    they are the same object (hand over the same list twice for leave-one-out). Each distinct image is encoded once.

    Args:
        query_images: paths, or whatever `encoder_fn` takes.
        query_labels: one label each, text or integers; lists for several.
        gallery_images: as `query_images`.
        gallery_labels: as `query_labels`.
        encoder_fn: a callable from a list of n elements to an array (n, d).
        ks: the cutoffs; not used when `protocol` is given.
        protocol: everything that can change the number.
        batch: how many elements go into the encoder at once.
        decode: elements are paths and the encoder wants RGB images; by default elements are handed over as they are.

    Returns:
        The report; it prints the template and reads like a dict: `report["recall@1"]`.
    """
    sides = _image_sets(query_images, query_labels, gallery_images, gallery_labels)
    encoded = encode(sides, encoder_fn, batch=batch, decode=decode)
    query, gallery = encoded.sets
    provenance = _provenance(encoder_fn, encoded, DEFAULT_POLICY if decode else None)
    protocol = protocol or EvalProtocol(ks=tuple(ks))
    return evaluate_embeddings(query, gallery, protocol=protocol, provenance=provenance)


def encode_dataset(
    dataset: Dataset,
    encoder: Encoder,
    *,
    batch: int = BATCH,
    decode: bool = True,
    policy: DecodePolicy = DEFAULT_POLICY,
    on_error: OnError = "error",
    on_progress: Progress | None = None,
) -> EncodedDataset:
    """Encode both sides of a data set; see `recallatk.encoding.encode`."""
    sides = [dataset.query] if dataset.gallery is None else [dataset.query, dataset.gallery]
    encoded = encode(
        sides, encoder, batch=batch, decode=decode, policy=policy, on_error=on_error, on_progress=on_progress
    )
    provenance = _provenance(encoder, encoded, policy if decode else None)
    provenance = dataclasses.replace(
        provenance,
        data={"root": str(dataset.root)},
        skipped=(*dataset.skipped, *provenance.skipped),
        notes=(*dataset.notes, *provenance.notes),
        warnings=dataset.warnings,
    )
    query, gallery = (*encoded.sets, None)[:2]
    return EncodedDataset(query, gallery, provenance)  # type: ignore[arg-type]  # the first of the sets is no None


def combine_files(query: LoadedEmbeddings, gallery: LoadedEmbeddings | None) -> EncodedDataset:
    """What two embedding files (or one, for leave-one-out) say together of encoder and data."""
    files = [query] if gallery is None else [query, gallery]
    notes = tuple(note for file in files for note in file.notes)
    skipped = tuple(skipped for file in files for skipped in file.skipped)
    known: dict[str, Any] = {}
    warnings = []
    for field in ("encoder", "fingerprint", "preprocessing", "decode"):
        values = [file.metadata.get(field) for file in files]
        if any(value != values[0] for value in values):
            warnings.append(f"query and gallery embeddings differ in {field}: {values[0]!r} and {values[1]!r}")
        else:
            known[field] = values[0]
    data = {"files": [file.embeddings.name for file in files]}
    provenance = Provenance(**known, data=data, skipped=skipped, notes=notes, warnings=tuple(warnings))
    return EncodedDataset(query.embeddings, None if gallery is None else gallery.embeddings, provenance)


def evaluate_encoded(
    encoded: EncodedDataset,
    *,
    protocol: EvalProtocol | None = None,
    metrics: Sequence[str] = (),
    backend: str = "reference",
    memory: int | None = None,
    started: datetime | None = None,
) -> Run:
    """Evaluate an encoded data set and note where and when that was done."""
    provenance = dataclasses.replace(encoded.provenance, environment=describe_environment(started))
    report = evaluate_embeddings(
        encoded.query,
        encoded.gallery,
        protocol=protocol,
        metrics=metrics,
        backend=backend,
        memory=memory,
        provenance=provenance,
    )
    return Run(report, encoded.query, encoded.gallery)


def save_encoded(encoded: EncodedDataset, path: Path) -> tuple[Path, ...]:
    """Write the embeddings; two sides become two files, NAME-query and NAME-gallery.

    Returns:
        The files of embeddings, queries first.
    """
    provenance = encoded.provenance
    metadata = {
        "encoder": provenance.encoder,
        "fingerprint": provenance.fingerprint,
        "preprocessing": provenance.preprocessing,
        "decode": provenance.decode,
        "recallatk": version("recallatk"),
    }
    if encoded.gallery is None:
        return save_embeddings(encoded.query, path, metadata=metadata)[:1]
    files = [path.with_name(f"{path.stem}-{side}{path.suffix}") for side in ("query", "gallery")]
    for file, embeddings in zip(files, (encoded.query, encoded.gallery), strict=True):
        save_embeddings(embeddings, file, metadata=metadata)
    return tuple(files)


def check_run_folder(folder: Path, *, overwrite: bool = False) -> None:
    """Refuse to write over an earlier run, before any work is done.

    Raises:
        RecallatkError: the folder holds a run, or is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise RecallatkError(f"{folder}: this is a file; name a folder for the run")
    if (folder / RECORD).exists() and not overwrite:
        raise RecallatkError(f"{folder}: there is a run already; name another folder, or use --overwrite")


def save_run(run: Run, folder: Path, *, save_embeddings_too: bool = False) -> None:
    """Write a run: record.json, queries.parquet (a row a query) and, if asked, the embeddings as .npy.

    The record is written last, so a folder with a record is complete.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).unlink(missing_ok=True)
    if save_embeddings_too:
        provenance = run.report.provenance
        save_encoded(EncodedDataset(run.query, run.gallery, provenance), folder / "embeddings.npy")
    table = pa.table({name: _arrow(values) for name, values in run.report.queries.items()})
    pq.write_table(table, folder / QUERIES)
    unfinished = folder / f".{RECORD}.tmp"
    unfinished.write_text(run.report.to_json() + "\n", encoding="utf-8")
    unfinished.replace(folder / RECORD)


def load_report(folder: Path) -> Report:
    """Read the report of a saved run.

    Raises:
        RecallatkError: there is no complete run in the folder, or it has another schema.
    """
    import pyarrow.parquet as pq

    record = read_record(folder)
    if not (folder / QUERIES).is_file():
        raise RecallatkError(f"{folder}: {QUERIES} is missing beside {RECORD}; the run is not complete")
    table = pq.read_table(folder / QUERIES)
    columns = {name: table.column(name) for name in table.column_names}
    return report_from_record(
        record,
        {
            name: column.to_numpy() if str(column.type) in ("int64", "double", "bool") else tuple(column.to_pylist())
            for name, column in columns.items()
        },
    )


def read_record(path: Path) -> dict[str, Any]:
    """Read the record of a run: its folder, or record.json itself.

    Raises:
        RecallatkError: there is none, or it is no JSON object.
    """
    file = path / RECORD if path.is_dir() else path
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecallatkError(f"{file}: cannot be read ({error.strerror}); name the folder of a run") from error
    except ValueError as error:
        raise RecallatkError(f"{file}: this is no JSON ({error})") from error
    if not isinstance(record, dict):
        raise RecallatkError(f"{file}: this is no record; a record is a JSON object")
    return record


def read_protocol(path: Path) -> dict[str, Any]:
    """The protocol fields of a TOML file or of an earlier record: the record is the configuration.

    Raises:
        RecallatkError: not readable, or a key that is no field of the protocol.
    """
    if path.suffix.lower() == ".toml":
        try:
            found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RecallatkError(f"{path}: this is no readable TOML file ({error})") from error
        found = found.get("protocol", found)
    else:
        found = read_record(path).get("protocol", {})
    fields = [field.name for field in dataclasses.fields(EvalProtocol)]
    unknown = [key for key in found if key not in fields]
    if unknown or not found:
        wrong = f"{unknown[0]!r} is no field of the protocol" if unknown else "there is no protocol in it"
        raise RecallatkError(f"{path}: {wrong}; the fields are: {', '.join(fields)}")
    return found


def describe_environment(started: datetime | None = None) -> dict[str, Any]:
    """Versions, machine, BLAS, command and time, for the record and for `recallatk info`; never part of a hash."""
    from threadpoolctl import threadpool_info

    now = datetime.now(UTC)
    described: dict[str, Any] = {
        "recallatk": version("recallatk"),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _installed(name))},
        "blas": [
            {key: pool.get(key) for key in ("internal_api", "version", "architecture", "num_threads")}
            for pool in threadpool_info()
        ],
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "finished": now.isoformat(timespec="seconds"),
    }
    if started is not None:
        described["seconds"] = round((now - started).total_seconds(), 3)
    return described


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _provenance(encoder: Encoder, encoded: Encoded, policy: DecodePolicy | None) -> Provenance:
    name = getattr(encoder, "name", None) or getattr(encoder, "__qualname__", type(encoder).__qualname__)
    notes = [f"{count} images: {conversion}" for conversion, count in sorted(encoded.conversions.items())]
    return Provenance(
        encoder=str(name),
        fingerprint=getattr(encoder, "fingerprint", None),
        preprocessing=getattr(encoder, "preprocessing", None),
        decode=None if policy is None else policy.record(),
        skipped=encoded.skipped,
        notes=tuple(notes),
    )


def _image_sets(
    query_images: Sequence[Any],
    query_labels: Iterable[Any],
    gallery_images: Sequence[Any],
    gallery_labels: Iterable[Any],
) -> tuple[ImageSet, ImageSet]:
    query = tuple(query_images)
    gallery = query if gallery_images is query_images else tuple(gallery_images)
    objects: dict[int, str] = {}
    sides = []
    for name, elements, labels in (("query", query, query_labels), ("gallery", gallery, gallery_labels)):
        texts, kind = as_labels(labels, name)
        _check_labels(name, elements, texts)
        sides.append(_image_set(name, elements, texts, kind, objects))
    return sides[0], sides[1]


def _check_labels(name: str, elements: tuple[Any, ...], labels: tuple[Label, ...]) -> None:
    if len(elements) != len(labels):
        raise RecallatkError(f"{name}: {len(labels)} labels for {len(elements)} images; there must be one for each")


def _image_set(
    name: str, elements: tuple[Any, ...], labels: tuple[Label, ...], kind: LabelKind, objects: dict[int, str]
) -> ImageSet:
    """Ids and identities of elements: those of the file for a path, those of the object for anything else."""
    ids, same, taken = [], [], set()
    for row, element in enumerate(elements):
        if isinstance(element, str | os.PathLike):
            identifier = os.fsdecode(element)
            path = Path(identifier)
            same.append(str(path.resolve()) if path.exists() else identifier)
        else:
            identifier = f"{name} {row}"
            same.append(objects.setdefault(id(element), f"object {len(objects)}"))
        if identifier in taken:
            identifier = f"{identifier} (row {row})"
        taken.add(identifier)
        ids.append(identifier)
    return ImageSet(elements, tuple(ids), labels, same=tuple(same), label_kind=kind)


def _arrow(values: Any) -> Any:
    import pyarrow as pa

    if isinstance(values, np.ndarray):
        return pa.array(values, from_pandas=True)  # NaN, the value of an excluded query, becomes null
    if any(isinstance(value, tuple) for value in values):
        return pa.array([[value] if isinstance(value, str) else list(value) for value in values], pa.list_(pa.string()))
    return pa.array(list(values), pa.string())
