"""What a saved run was made from: where its record says that it lies, and what it keeps itself."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recallatk.datasets import load_dataset, load_qrels, load_two_folders, sample_dataset
from recallatk.embeddings.parts import store_address
from recallatk.evaluation.signing import hash_qrels
from recallatk.report import Report
from recallatk.run import EncodedDataset, digests_of, embedding_files, join_dataset, load_encoded
from recallatk.types import ChoiceError, Dataset, EvalProtocol, Qrels, RecallatkError, Samples
from recallatk.verification.recorded import FILES, recorded

KEPT = "embeddings.npy"


def read_dataset(report: Report, read: Mapping[str, Any], data: Path | None) -> Dataset:
    """The images of a run, read as its record says: from where they lay, or from `data`."""
    options: dict[str, Any] = {name: value for name, value in read.items() if name not in ("limit", "seed")}
    options["on_error"] = "skip"  # what cannot be read any more is named, and does not stop the others
    folders = [options.pop(name, None) for name in ("queries_folder", "gallery_folder")]
    where = options.pop("data", None)
    if folders[0] is not None:
        paths = [find_recorded(path, report) if data is None else data / Path(path).name for path in folders]
        dataset = load_two_folders(*paths, **options)
    else:
        place = find_recorded(where, report) if data is None else data
        if options.get("layout") == "manifest" and where is not None and place.is_dir():
            beside = place / Path(where).name  # a folder that the images have moved to, with their manifest or without
            place = beside if beside.is_file() else find_recorded(where, report)
        if "root" in options:
            options["root"] = data if data is not None and data.is_dir() else find_recorded(options["root"], report)
        elif data is not None and data.is_dir() and place.parent != data and options.get("layout") == "manifest":
            options["root"] = data
        dataset = load_dataset(place, **options)
    return sample_dataset(dataset, read["limit"], seed=read["seed"]) if "limit" in read else dataset


def find_recorded(path: str, report: Report, how: str = "say where it lies now with --data DIR") -> Path:
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


def read_embeddings(report: Report, given: Mapping[str, Any], read: Mapping[str, Any]) -> EncodedDataset:
    """The embeddings that a run was made from; what their rows are may stand in a data set."""
    paths = {name: _place_of(read[name], report) for name in FILES if name in read}
    options = {name: value for name, value in read.items() if name not in FILES}
    encoded = load_encoded(**{"on_error": "skip", **options, **paths})
    if "rows" not in given:
        return encoded
    return join_dataset(encoded, read_dataset(report, given["rows"], None), on_error="skip")


def _place_of(path: str, report: Report) -> Path:
    """Where a file or folder of embeddings lies; at an address nobody looks before its rows are read."""
    return Path(path) if store_address(Path(path)) is not None else find_recorded(path, report)


def kept_files(folder: Path) -> tuple[Path, ...]:
    """The files of embeddings that the run keeps; empty where it keeps none."""
    for alone in (True, False):
        files = embedding_files(folder / KEPT, alone=alone)
        if all(file.is_file() for file in files):
            return files
    return ()


def load_kept(folder: Path) -> EncodedDataset:
    """The embeddings that the run keeps."""
    return load_encoded(*kept_files(folder), on_error="skip", labels_required=False)


def kept_digests(folder: Path, roles: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """The hashes of the embeddings that the run keeps, by role; empty where it keeps none.

    Raises:
        RecallatkError: they cannot be read.
    """
    return digests_of(load_kept(folder), roles) if kept_files(folder) else {}


def dataset_of(report: Report, folder: Path, data: Path | None = None) -> Dataset:
    """The images of a saved run, as its record says they were read; none is opened.

    Args:
        report: its report.
        folder: its folder.
        data: where they lie now; by default where the record says.

    Raises:
        RecallatkError: the run was not made from images, or they are not there.
    """
    _, read = recorded(report, folder)
    if data is None and "data" not in read and "queries_folder" not in read:
        raise RecallatkError("the run does not say where its images lie; name their folder (--data DIR)")
    try:
        return read_dataset(report, read, data)
    except ChoiceError as error:
        raise RecallatkError(f"the data cannot be read as the record says ({error})") from error


def needs_judgements(protocol: EvalProtocol) -> bool:
    """Whether judged pairs say what is right under a protocol."""
    return protocol.relevance == "qrels" or protocol.level != "none"


def judgements_of(report: Report, folder: Path, data: Path | None = None) -> Qrels | None:
    """What a saved run was judged by: the file that its record names, or the lists of its benchmark; None without.

    Args:
        report: its report.
        folder: its folder.
        data: where its images lie now; by default where the record says.

    Raises:
        RecallatkError: they are not there any more.
    """
    given, read = recorded(report, folder)
    if (path := given.get("qrels")) is not None:
        return load_qrels(find_recorded(path, report, "name the qrels with --qrels FILE (of recallatk report)"))
    images = given.get("rows", read)
    if not needs_judgements(report.protocol) or "data" not in images:
        return None
    return read_dataset(report, images, data).qrels


def embeddings_of(
    report: Report, folder: Path, *, qrels: Qrels | None = None, data: Path | None = None
) -> EncodedDataset | None:
    """The embeddings that a saved run keeps, or was made from, with what it was judged by; None where there are none.

    Args:
        report: its report.
        folder: its folder.
        qrels: the judged pairs; by default they are read from where the record says.
        data: where its images lie now, where the judged pairs lie with them; by default where the record says.

    Raises:
        RecallatkError: they cannot be read, or are no longer those that were evaluated.
    """
    given, read = recorded(report, folder)
    if kept_files(folder):
        encoded = load_kept(folder)
    elif "query" in read:
        encoded = read_embeddings(report, given, read)
    else:
        return None
    if dict(getattr(report.samples, "digests", {})) not in ({}, digests_of(encoded, report.samples)):
        raise RecallatkError("the embeddings are no longer those that were evaluated; repeat the run")
    if qrels is None:
        qrels = judgements_of(report, folder, data)
    if qrels is None:
        if needs_judgements(report.protocol):
            raise RecallatkError("the run does not say where its judged pairs lie; name them with --qrels FILE")
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
