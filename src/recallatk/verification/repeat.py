"""A saved run once more, from what is on disk now."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recallatk.datasets import load_qrels
from recallatk.encoders import ENCODERS, load_encoder
from recallatk.encoding import BATCH, Progress
from recallatk.images import DecodePolicy
from recallatk.report import Provenance, Report
from recallatk.run import Elsewhere, EncodedDataset, digests_of, encode_dataset, evaluate_encoded, score_files
from recallatk.types import ChoiceError, Encoder, RecallatkError, SampleSet
from recallatk.verification.on_disk import columns, roles_of_texts, samples_of
from recallatk.verification.recorded import recorded
from recallatk.verification.saved import (
    find_recorded,
    kept_files,
    load_kept,
    needs_judgements,
    read_dataset,
    read_embeddings,
)
from recallatk.wording import counted


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
    digests: Mapping[str, Sequence[str]]
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
    elsewhere: Elsewhere | None = None,
) -> Repeated:
    """Do again what gave a report, as its record says.

    Raises:
        RecallatkError: what it takes is not there, and the run keeps no embeddings; or the record does not say.
    """
    given, read = recorded(report, folder)
    if data is not None or "data" in read or "queries_folder" in read:
        return _from_images(report, folder, read, data, encoder, device, workers, on_progress, elsewhere)
    where: dict[str, Any] = {}
    if elsewhere is not None:
        where = {"cluster": elsewhere.cluster, "on_progress": on_progress}
    if "query" in read:
        encoded = read_embeddings(report, given, read)
        again = _evaluated(report, encoded, "the embeddings read again", where)
        return dataclasses.replace(again, provenance=encoded.provenance)
    if "run" in given or "scores" in given:
        files = {
            name: value if name == "label_separator" else find_recorded(value, report) for name, value in given.items()
        }
        qrels = None if "qrels" not in files else load_qrels(files["qrels"])
        return _attempt(report, functools.partial(score_files, files, qrels=qrels, **where), "the scores read again")
    if not kept_files(folder):
        raise RecallatkError(
            f"{folder}: the run does not say where its images or embeddings lie; name them with data=... and "
            "encoder=... (--data DIR --encoder SPEC)"
        )
    unchecked = ("images and encoder: the run does not say where they are (--data DIR --encoder SPEC)",)
    return dataclasses.replace(
        _evaluated(report, load_kept(folder), "the embeddings that it keeps ranked again", where), unchecked=unchecked
    )


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
    elsewhere: Elsewhere | None,
) -> Repeated:
    where: dict[str, Any] = {} if elsewhere is None else {"cluster": elsewhere.cluster}
    missing: list[str] = []
    dataset, model = None, None
    try:
        dataset = read_dataset(report, read, data)
    except ChoiceError as error:  # nobody chose anything here: it is the record that does not fit
        raise RecallatkError(f"{folder}: the data cannot be read as the record says ({error})") from error
    except RecallatkError as error:
        if data is not None or not kept_files(folder):
            raise
        missing += [f"images: {error}", "encoder: without images there is nothing for it to encode"]
    try:
        model = _encoder(report, encoder, device)
    except RecallatkError as error:
        if encoder is not None or not kept_files(folder):
            raise
        missing.append(f"encoder: {error}")
    if dataset is None or model is None:
        kept = load_kept(folder)
        if dataset is not None:
            kept = dataclasses.replace(kept, qrels=dataset.qrels)
        again = _evaluated(report, kept, "the embeddings that it keeps ranked again", where)
        samples = again.samples if dataset is None else samples_of(dataset)
        texts = roles_of_texts(dataset)
        return dataclasses.replace(again, samples=samples, unchecked=(*missing, *again.unchecked), texts=texts)
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
        request=_request(report, encoder, device) if encoder is None or isinstance(encoder, str) else None,
        elsewhere=elsewhere,
    )
    what = "every image and text" if roles_of_texts(dataset) else "every image"
    again = _evaluated(report, encoded, f"{what} encoded again", where)
    unchecked = () if "read" in report.provenance.data else (_NOT_SAID,)
    texts = roles_of_texts(dataset)
    return dataclasses.replace(again, provenance=encoded.provenance, unchecked=unchecked, texts=texts)


def _encoder(report: Report, given: str | Encoder | None, device: str | None) -> Encoder:
    """The encoder that is given, or the one that the record names."""
    if given is not None and not isinstance(given, str):
        return given
    request = _request(report, given, device)
    if given is not None:
        return load_encoder(**request)
    directory = report.provenance.environment.get("directory")
    # Files and modules are named from where the run was made.
    here = contextlib.chdir(directory) if directory and os.path.isdir(directory) else contextlib.nullcontext()  # noqa: PTH112
    try:
        with here:
            return load_encoder(**request)
    except RecallatkError as error:
        raise RecallatkError(f"the encoder of the run cannot be loaded: {error}; {_OTHERWISE}") from error


def _request(report: Report, given: str | None, device: str | None) -> dict[str, Any]:
    """How the encoder is loaded: the arguments of `load_encoder`."""
    recorded = report.provenance.data.get("encode", {})
    spec = given or recorded.get("spec", report.provenance.encoder)
    if spec is None or not (given or spec in ENCODERS or ":" in spec):
        named = f" (it was {spec})" if spec else ""
        raise RecallatkError(f"the run does not say how its encoder is loaded{named}; name it with --encoder SPEC")
    return {
        "spec": spec,
        "device": device or recorded.get("device", "auto"),
        "dtype": recorded.get("dtype", "float32"),
    }


_OTHERWISE = "or say with --encoder SPEC what it is called now, with --device where it runs"


def _evaluated(report: Report, encoded: EncodedDataset, how: str, where: Mapping[str, Any]) -> Repeated:
    """Evaluate as the run was, somewhere; what it is judged by is read again."""
    path = report.provenance.data.get("qrels")
    if path is not None:
        encoded = dataclasses.replace(encoded, qrels=load_qrels(find_recorded(path, report)))
    roles = ("both",) if encoded.gallery is None else ("query", "gallery")
    again = functools.partial(evaluate_encoded, encoded, **where)
    if encoded.qrels is None and needs_judgements(report.protocol):
        repeated = Repeated({}, {}, how, unchecked=("values: the judged pairs of the run are not there any more",))
    else:
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
