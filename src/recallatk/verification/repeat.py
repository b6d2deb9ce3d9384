"""A saved run once more, from what is on disk now."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from recallatk.datasets import load_dataset, load_qrels, load_two_folders, sample_dataset
from recallatk.encoders import ENCODERS, load_encoder
from recallatk.encoding import BATCH, Progress
from recallatk.evaluation.signing import hash_qrels
from recallatk.images import DecodePolicy
from recallatk.report import Provenance, Report
from recallatk.run import (
    EncodedDataset,
    digests_of,
    embedding_files,
    encode_dataset,
    evaluate_encoded,
    load_encoded,
    score_files,
)
from recallatk.types import ChoiceError, Dataset, Encoder, Qrels, RecallatkError, Samples, SampleSet
from recallatk.verification.on_disk import columns, roles_of_texts, samples_of
from recallatk.wording import counted

KEPT = "embeddings.npy"


@dataclasses.dataclass(frozen=True, eq=False)
class Repeated:
    """A run repeated.

    Attributes:
        provenance: what is known of the encoder now; None where it was not asked.
        samples: the rows of each role now; for images that could not be encoded, as they lie on disk.
        digests: the hash of each row's embedding, by role.
        report: the report; None where nothing could be evaluated any more.
        failure: why not.
        unchecked: what could not be repeated, a line each.
        how: what was done, in words.
        texts: the roles that hold texts.
    """

    samples: Mapping[str, SampleSet]
    digests: Mapping[str, tuple[str, ...]]
    how: str
    report: Report | None = None
    provenance: Provenance | None = None
    failure: str = ""
    unchecked: tuple[str, ...] = ()
    texts: frozenset[str] = frozenset()


def repeat_run(
    report: Report,
    folder: Path,
    *,
    data: Path | None = None,
    encoder: str | Encoder | None = None,
    device: str | None = None,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> Repeated:
    """Do again what gave a report, as its record says.

    Raises:
        RecallatkError: what it takes is not there, and the run keeps no embeddings; or the record does not say.
    """
    given, read = _recorded(report, folder)
    if data is not None or "data" in read or "queries_folder" in read:
        return _from_images(report, folder, read, data, encoder, device, workers, on_progress)
    if "query" in read:
        paths = {name: _found(read[name], report) for name in _FILES if name in read}
        options = {name: value for name, value in read.items() if name not in _FILES}
        encoded = load_encoded(**{"on_error": "skip", **options, **paths})
        again = _evaluated(report, encoded, "the embeddings read again")
        return dataclasses.replace(again, provenance=encoded.provenance)
    if "run" in given or "scores" in given:
        files = {name: value if name == "label_separator" else _found(value, report) for name, value in given.items()}
        qrels = None if "qrels" not in files else load_qrels(files["qrels"])
        return _attempt(report, functools.partial(score_files, files, qrels=qrels), "the scores read again")
    if not _kept_files(folder):
        raise RecallatkError(
            f"{folder}: the run does not say where its images or embeddings lie; name them with data=... and "
            "encoder=... (--data DIR --encoder SPEC)"
        )
    unchecked = ("images and encoder: the run does not say where they are (--data DIR --encoder SPEC)",)
    return dataclasses.replace(
        _evaluated(report, _kept(folder), "the embeddings that it keeps ranked again"), unchecked=unchecked
    )


_FILES = ("query", "gallery", "query_labels", "gallery_labels")


# Argument -> what it is in a record; every other one is a text, a number, true or false.
_KINDS: dict[str, type] = {
    **dict.fromkeys(("data", "queries_folder", "gallery_folder", "root", "qrels", "run", "scores", *_FILES), str),
    **dict.fromkeys(("spec", "device", "dtype", "layout", "label_from", "label_separator"), str),
    **dict.fromkeys(("part", "counts", "fold"), str),
    **dict.fromkeys(("batch", "limit", "seed"), int),
    "decode": bool,
}


def _recorded(report: Report, folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Where the record says the data lie, and how they were read.

    Raises:
        RecallatkError: it holds what no version writes.
    """
    given: Any = report.provenance.data
    parts: list[Any] = [given]
    if isinstance(given, Mapping):
        parts += [given.get("read", {}), given.get("encode", {})]
    odd = ["data is no mapping"] if not all(isinstance(part, Mapping) for part in parts) else []
    for part in () if odd else parts:
        odd += [
            f"{name}={part[name]!r}" for name, kind in _KINDS.items() if name in part and type(part[name]) is not kind
        ]
    if not odd and ("limit" in parts[1]) != ("seed" in parts[1]):
        odd = ["limit and seed belong together"]
    if odd:
        raise RecallatkError(f"{folder}: the record is damaged (provenance: {odd[0]}); repeat the run")
    return given, given.get("read") or _read_before(given)


def _read_before(given: Mapping[str, Any]) -> dict[str, Any]:
    """How the data of a run was read that was made before its record said so: by default."""
    if "files" in given:
        return dict(zip(("query", "gallery"), given["files"], strict=False))
    return {"data": given["root"]} if "root" in given else {}


_NOT_SAID = (
    "how the data were read: the run does not say, so the defaults were taken (a manifest is named with --data); "
    "with other flags then, what looks moved may not be"
)


def _from_images(
    report: Report,
    folder: Path,
    read: Mapping[str, Any],
    data: Path | None,
    encoder: str | Encoder | None,
    device: str | None,
    workers: int | None,
    on_progress: Progress | None,
) -> Repeated:
    missing: list[str] = []
    dataset, model = None, None
    try:
        dataset = _dataset(report, read, data)
    except ChoiceError as error:  # nobody chose anything here: it is the record that does not fit
        raise RecallatkError(f"{folder}: the data cannot be read as the record says ({error})") from error
    except RecallatkError as error:
        if data is not None or not _kept_files(folder):
            raise
        missing += [f"images: {error}", "encoder: without images there is nothing for it to encode"]
    try:
        model = _encoder(report, encoder, device)
    except RecallatkError as error:
        if encoder is not None or not _kept_files(folder):
            raise
        missing.append(f"encoder: {error}")
    if dataset is None or model is None:
        again = _evaluated(report, _kept(folder), "the embeddings that it keeps ranked again")
        samples = again.samples if dataset is None else samples_of(dataset)
        texts = roles_of_texts(dataset)
        return dataclasses.replace(again, samples=samples, unchecked=tuple(missing), texts=texts)
    options = report.provenance.data.get("encode", {})
    exif = (report.provenance.decode or {}).get("exif", "apply")
    encoded = encode_dataset(
        dataset,
        model,
        batch=options.get("batch", BATCH),
        decode=options.get("decode", report.provenance.decode is not None),
        policy=DecodePolicy(exif=exif),
        on_error="skip",
        workers=workers,
        on_progress=on_progress,
    )
    what = "every image and text" if roles_of_texts(dataset) else "every image"
    again = _evaluated(report, encoded, f"{what} encoded again")
    unchecked = () if "read" in report.provenance.data else (_NOT_SAID,)
    texts = roles_of_texts(dataset)
    return dataclasses.replace(again, provenance=encoded.provenance, unchecked=unchecked, texts=texts)


def _dataset(report: Report, read: Mapping[str, Any], data: Path | None) -> Dataset:
    options: dict[str, Any] = {name: value for name, value in read.items() if name not in ("limit", "seed")}
    options["on_error"] = "skip"  # what cannot be read any more is named, and does not stop the others
    folders = [options.pop(name, None) for name in ("queries_folder", "gallery_folder")]
    where = options.pop("data", None)
    if folders[0] is not None:
        paths = [_found(path, report) if data is None else data / Path(path).name for path in folders]
        dataset = load_two_folders(*paths, **options)
    else:
        place = _found(where, report) if data is None else data
        if options.get("layout") == "manifest" and where is not None and place.is_dir():
            beside = place / Path(where).name  # a folder that the images have moved to, with their manifest or without
            place = beside if beside.is_file() else _found(where, report)
        if "root" in options:
            options["root"] = data if data is not None and data.is_dir() else _found(options["root"], report)
        elif data is not None and data.is_dir() and place.parent != data and options.get("layout") == "manifest":
            options["root"] = data
        dataset = load_dataset(place, **options)
    return sample_dataset(dataset, read["limit"], seed=read["seed"]) if "limit" in read else dataset


def _encoder(report: Report, given: str | Encoder | None, device: str | None) -> Encoder:
    """The encoder that is given, or the one that the record names."""
    if given is not None and not isinstance(given, str):
        return given
    request = report.provenance.data.get("encode", {})
    options = {name: request[name] for name in ("device", "dtype") if name in request}
    if device is not None:
        options["device"] = device
    if given is not None:
        return load_encoder(given, **options)
    spec = request.get("spec", report.provenance.encoder)
    if spec is None or not (spec in ENCODERS or ":" in spec):
        named = f" (it was {spec})" if spec else ""
        raise RecallatkError(f"the run does not say how its encoder is loaded{named}; name it with --encoder SPEC")
    directory = report.provenance.environment.get("directory")
    # Files and modules are named from where the run was made.
    here = contextlib.chdir(directory) if directory and os.path.isdir(directory) else contextlib.nullcontext()  # noqa: PTH112
    try:
        with here:
            return load_encoder(spec, **options)
    except RecallatkError as error:
        raise RecallatkError(f"the encoder of the run cannot be loaded: {error}; {_OTHERWISE}") from error


_OTHERWISE = "or say with --encoder SPEC what it is called now, with --device where it runs"


def _found(path: str, report: Report, how: str = "say where it lies now with --data DIR") -> Path:
    """A path of the record: from where the run was made, or from here.

    Raises:
        RecallatkError: nothing is there.
    """
    directory = report.provenance.environment.get("directory")
    places = [*([Path(directory) / path] if directory else []), Path(path)]
    for place in places:
        if os.path.exists(place):  # noqa: PTH110 - Path.exists raises where a folder is closed to us
            return place
    raise RecallatkError(f"{places[0]}: no such file or folder any more; {how}")


def _kept_files(folder: Path) -> tuple[Path, ...]:
    """The files of embeddings that the run keeps; empty where it keeps none."""
    for alone in (True, False):
        files = embedding_files(folder / KEPT, alone=alone)
        if all(file.is_file() for file in files):
            return files
    return ()


def _kept(folder: Path) -> EncodedDataset:
    return load_encoded(*_kept_files(folder), on_error="skip", labels_required=False)


def kept_digests(folder: Path, roles: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The hashes of the embeddings that the run keeps, by role; empty where it keeps none.

    Raises:
        RecallatkError: they cannot be read.
    """
    return digests_of(_kept(folder), roles) if _kept_files(folder) else {}


def _evaluated(report: Report, encoded: EncodedDataset, how: str) -> Repeated:
    """Evaluate as the run was; what it is judged by is read again."""
    path = report.provenance.data.get("qrels")
    if path is not None:
        encoded = dataclasses.replace(encoded, qrels=load_qrels(_found(path, report)))
    roles = ("both",) if encoded.gallery is None else ("query", "gallery")
    again = functools.partial(evaluate_encoded, encoded)
    repeated = _attempt(report, again, how)
    sides = dict(zip(roles, (encoded.query, encoded.gallery), strict=False))
    samples = repeated.samples or {role: columns(side) for role, side in sides.items() if side is not None}
    return dataclasses.replace(repeated, samples=samples, digests=digests_of(encoded, samples))


def _attempt(report: Report, again: Callable[..., Report], how: str) -> Repeated:
    metrics = [name for name in report.values_by_metric if not name.startswith("recall@")]
    try:
        new = again(protocol=report.protocol, metrics=metrics, intervals=report.intervals)
    except RecallatkError as error:
        return Repeated({}, {}, how, failure=str(error))
    return Repeated(new.samples, {}, how, report=new)


def size(report: Report) -> str:
    """How many rows a run has, in words."""
    if "both" in report.samples:
        return counted(report.num_queries, "image" if report.samples["both"].content else "row")
    return f"{counted(report.num_queries, 'query', 'queries')} and {counted(report.num_gallery, 'gallery item')}"


def dataset_of(report: Report, folder: Path, data: Path | None = None) -> Dataset:
    """The images of a saved run, as its record says they were read; none is opened.

    Args:
        report: its report.
        folder: its folder.
        data: where they lie now; by default where the record says.

    Raises:
        RecallatkError: the run was not made from images, or they are not there.
    """
    _, read = _recorded(report, folder)
    if data is None and "data" not in read and "queries_folder" not in read:
        raise RecallatkError("the run does not say where its images lie; name their folder (--data DIR)")
    try:
        return _dataset(report, read, data)
    except ChoiceError as error:
        raise RecallatkError(f"the data cannot be read as the record says ({error})") from error


def embeddings_of(report: Report, folder: Path, *, qrels: Qrels | None = None) -> EncodedDataset | None:
    """The embeddings that a saved run keeps, or was made from, with what it was judged by; None where there are none.

    Args:
        report: its report.
        folder: its folder.
        qrels: the judged pairs; by default they are read from where the record says.

    Raises:
        RecallatkError: they cannot be read, or are no longer those that were evaluated.
    """
    given, read = _recorded(report, folder)
    if _kept_files(folder):
        encoded = _kept(folder)
    elif "query" in read:
        paths = {name: _found(read[name], report) for name in _FILES if name in read}
        options = {name: value for name, value in read.items() if name not in _FILES}
        encoded = load_encoded(**{"on_error": "skip", **options, **paths})
    else:
        return None
    if dict(getattr(report.samples, "digests", {})) not in ({}, digests_of(encoded, report.samples)):
        raise RecallatkError("the embeddings are no longer those that were evaluated; repeat the run")
    path = given.get("qrels")
    if qrels is None and path is not None:
        qrels = load_qrels(_found(path, report, "name the qrels with --qrels FILE (of recallatk report)"))
    if qrels is None:
        return encoded
    check_qrels(report, encoded.query, encoded.gallery, qrels)
    return dataclasses.replace(encoded, qrels=qrels)


def check_qrels(report: Report, query: Samples, gallery: Samples | None, qrels: Qrels) -> None:
    """Refuse judged pairs other than those that a run was evaluated with.

    Raises:
        RecallatkError: they are not those.
    """
    if hash_qrels(query, gallery, report.protocol, qrels) != report.hashes.get("rel"):
        raise RecallatkError(
            "these qrels are not those that the run was evaluated with; name those (recallatk report --qrels FILE)"
        )
