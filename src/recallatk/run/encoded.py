"""Data sets after encoding: made from images, kept in files, evaluated."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from recallatk.cache import Cache
from recallatk.cluster import memory_notes, ranking_on
from recallatk.datasets.naming import as_source, shown
from recallatk.embeddings import LoadedEmbeddings, load_embeddings, save_embeddings
from recallatk.encoding import BATCH, Encoded, Progress, encode
from recallatk.evaluation import evaluate_embeddings
from recallatk.images import DEFAULT_POLICY, DecodePolicy
from recallatk.report import Provenance, Report
from recallatk.run.cached import BEFORE, FROM_CACHE, cache_notes, encoded_notes, is_about_this_run, open_rows
from recallatk.run.description import conversion_notes, conversions_in, describe_code, describe_encoder, with_texts
from recallatk.run.elsewhere import Elsewhere, encode_elsewhere
from recallatk.run.environment import describe_environment
from recallatk.run.kept import Kept, keeping, with_notes
from recallatk.types import (
    Dataset,
    EmbeddingSet,
    Encoder,
    EvalProtocol,
    ImageSet,
    IntervalRule,
    OnError,
    Qrels,
    RecallatkError,
    Skipped,
    View,
)


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedDataset:
    """A data set after encoding: what `encode_dataset` and `load_encoded` give and `evaluate_encoded` evaluates.

    Attributes:
        query: the embeddings of the queries.
        gallery: those of the gallery; None for leave-one-out.
        provenance: the encoder, and everything that was skipped, converted or noticed.
        qrels: judged pairs, where there are some.
        protocol: what the data set is evaluated by where nothing else is said; None: the defaults.
        metrics: what is evaluated beside recall@k where nothing else is said.
        views: the evaluations that are made of it, by name; see `evaluate_views`. Empty: this one alone.
    """

    query: EmbeddingSet
    gallery: EmbeddingSet | None
    provenance: Provenance
    qrels: Qrels | None = None
    protocol: EvalProtocol | None = None
    metrics: tuple[str, ...] = ()
    views: Mapping[str, View] = dataclasses.field(default_factory=dict)


def encode_dataset(
    dataset: Dataset,
    encoder: Encoder,
    *,
    batch: int = BATCH,
    decode: bool = True,
    policy: DecodePolicy = DEFAULT_POLICY,
    on_error: OnError = "error",
    cache: Cache | None = None,
    workers: int | None = None,
    on_progress: Progress | None = None,
    request: Mapping[str, Any] | None = None,
    elsewhere: Elsewhere | None = None,
) -> EncodedDataset:
    """Encode both sides of a data set; see `recallatk.encoding.encode`.

    Args:
        dataset: the images.
        encoder: a callable from a list of n images to an array (n, d).
        batch: as for `encode`.
        decode: as for `encode`.
        policy: as for `encode`.
        on_error: as for `encode`.
        cache: where embeddings are kept from run to run, for an encoder that has a fingerprint; None: nowhere.
        workers: as for `encode`.
        on_progress: as for `encode`.
        request: the arguments of `load_encoder` that gave the encoder, for the record: what `verify_run` loads again.
        elsewhere: the cluster that encodes; None: this process. `workers` then says nothing.

    Raises:
        RecallatkError: as for `encode`; or what the encoder says of itself cannot be recorded.
    """
    sides = [dataset.query] if dataset.gallery is None else [dataset.query, dataset.gallery]
    encoded = encode_sides(
        sides,
        encoder,
        batch=batch,
        decode=decode,
        policy=policy,
        on_error=on_error,
        cache=cache,
        workers=workers,
        on_progress=on_progress,
        request=request,
        elsewhere=elsewhere,
        noticed={name: getattr(dataset, name) for name in ("skipped", "notes", "warnings")},
    )
    provenance = dataclasses.replace(
        encoded.provenance,
        data={
            "root": shown(str(dataset.root)),
            "read": dict(dataset.source),
            "encode": {**(request or {}), "batch": batch, "decode": decode, "on_error": on_error, **_code(encoder)},
        },
        skipped=(*dataset.skipped, *encoded.provenance.skipped),
        notes=(*dataset.notes, *encoded.provenance.notes),
        warnings=dataset.warnings,
    )
    return dataclasses.replace(
        encoded,
        provenance=provenance,
        qrels=dataset.qrels,
        protocol=dataset.protocol,
        metrics=dataset.metrics,
        views=dataset.views,
    )


def encode_sides(
    sides: Sequence[ImageSet],
    encoder: Encoder,
    *,
    batch: int = BATCH,
    decode: bool = True,
    policy: DecodePolicy = DEFAULT_POLICY,
    on_error: OnError = "error",
    cache: Cache | None = None,
    workers: int | None = None,
    on_progress: Progress | None = None,
    request: Mapping[str, Any] | None = None,
    elsewhere: Elsewhere | None = None,
    noticed: Mapping[str, Any] | None = None,
) -> EncodedDataset:
    """Encode the queries alone, or both sides; as `encode_dataset`. Parts of a cluster say too what was `noticed`."""
    provenance = describe_encoder(encoder, policy if decode else None)
    kinds = {side.kind for side in sides}
    has_texts = "text" in kinds
    of_texts = with_texts(provenance, encoder) if has_texts else provenance
    # Texts are kept under a setting of their own: without them, that of the images is what it always was.
    text_setting = dataclasses.replace(of_texts, decode={"elements": "text"})
    if elsewhere is not None:
        where = BEFORE if elsewhere.begun else FROM_CACHE
        encoded = encode_elsewhere(
            sides,
            encoder,
            elsewhere,
            batch=batch,
            policy=policy,
            decode=decode,
            on_error=on_error,
            cache=cache,
            settings={"image": provenance, **({"text": text_setting} if has_texts else {})},
            provenance=dataclasses.replace(of_texts, **(noticed or {})),
            request=request,
            on_progress=on_progress,
        )
        return _described(encoded, encoder, of_texts, encoded_notes(encoded, kinds, where))
    with (
        open_rows(cache, encoder, provenance) as rows,
        open_rows(cache if has_texts else None, encoder, text_setting) as text_rows,
    ):
        encoded = encode(
            sides,
            encoder,
            batch=batch,
            decode=decode,
            policy=policy,
            on_error=on_error,
            cache=rows,
            text_cache=text_rows,
            workers=workers,
            on_progress=on_progress,
        )
        notes = cache_notes(encoded, kinds, rows, text_rows)
    return _described(encoded, encoder, of_texts, notes)


def _described(encoded: Encoded, encoder: Encoder, provenance: Provenance, notes: list[str]) -> EncodedDataset:
    """What encoding gave, with what is known of the encoder and of the images."""
    notes = [*notes, *conversion_notes(encoded.conversions), *getattr(encoder, "notes", ())]
    provenance = dataclasses.replace(provenance, skipped=encoded.skipped, notes=tuple(notes))
    return EncodedDataset(encoded.sets[0], encoded.sets[1] if len(encoded.sets) > 1 else None, provenance)


def evaluate_encoded(
    encoded: EncodedDataset,
    *,
    protocol: EvalProtocol | None = None,
    metrics: Sequence[str] | None = None,
    intervals: IntervalRule | None = None,
    backend: str = "auto",
    memory: int | None = None,
    threads: int | None = None,
    started: datetime | None = None,
    cluster: str | None = None,
    on_progress: Progress | None = None,
    kept: Kept | None = None,
) -> Report:
    """Evaluate an encoded data set and note where and when that was done.

    Args:
        encoded: the embeddings and where they came from.
        protocol: as for `evaluate_embeddings`; None: the data set's own, where it has one.
        metrics: as for `evaluate_embeddings`; None: the data set's own.
        intervals: as for `evaluate_embeddings`.
        backend: as for `evaluate_embeddings`.
        memory: as for `evaluate_embeddings`.
        threads: as for `evaluate_embeddings`.
        started: when the work began, for the record.
        cluster: where to rank, as for `recallatk.cluster.joined`: "ray", "auto" or an address; None: in this process.
            `memory` and `threads` are then those of each worker.
        on_progress: told of the tasks of a cluster that are done and known of.
        kept: where a cluster's ranking is kept while it runs, from `kept_in`; None: nowhere.

    Raises:
        RecallatkError: as for `evaluate_embeddings`, or the cluster cannot do it.
    """
    provenance = dataclasses.replace(encoded.provenance, environment=describe_environment(started))
    choices: dict[str, Any] = {
        "protocol": encoded.protocol if protocol is None else protocol,
        "qrels": encoded.qrels,
        "metrics": encoded.metrics if metrics is None else metrics,
        "intervals": intervals,
        "backend": backend,
        "threads": threads,
        "provenance": provenance,
    }
    if cluster is None:
        return evaluate_embeddings(encoded.query, encoded.gallery, memory=memory, **choices)
    notes = memory_notes(memory)
    choices["keep"] = keeping(kept, notes)
    with ranking_on(cluster, memory=memory, on_progress=on_progress) as rank:
        return with_notes(evaluate_embeddings(encoded.query, encoded.gallery, rank=rank, **choices), notes)


def embedding_files(path: str | os.PathLike[str], *, alone: bool) -> tuple[Path, ...]:
    """The files of embeddings that `save_encoded` writes: one, or NAME-query and NAME-gallery for two sides."""
    path = Path(path)
    return (path,) if alone else tuple(path.with_name(f"{path.stem}-{side}{path.suffix}") for side in _SIDES)


def save_encoded(encoded: EncodedDataset, path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write the embeddings with all that is known of encoder and data, so that `load_encoded` gives both back.

    Returns:
        The files of embeddings, queries first; see `embedding_files`.
    """
    files = embedding_files(path, alone=encoded.gallery is None)
    provenance = encoded.provenance
    metadata = {
        **{field: getattr(provenance, field) for field in _OF_ENCODER},
        "recallatk": version("recallatk"),
        "skipped": [dataclasses.asdict(skipped) for skipped in provenance.skipped],
        "notes": [note for note in provenance.notes if not is_about_this_run(note)],
        "warnings": provenance.warnings,
    }
    for file, embeddings in zip(files, (encoded.query, encoded.gallery), strict=False):
        if embeddings is not None:
            save_embeddings(embeddings, file, metadata=metadata)
    return files


def load_encoded(
    query: str | os.PathLike[str],
    gallery: str | os.PathLike[str] | None = None,
    *,
    query_labels: str | os.PathLike[str] | None = None,
    gallery_labels: str | os.PathLike[str] | None = None,
    label_separator: str | None = None,
    labels_required: bool = True,
    on_error: OnError = "error",
    fold: str | None = None,
    memory: int | None = None,
    in_place: bool = False,
) -> EncodedDataset:
    """Read embedding files, and what they say together of encoder and data.

    Args:
        query: the file of the queries; see `load_embeddings`.
        gallery: the file of the gallery; None, or the same file, for leave-one-out.
        query_labels: a file of labels for the queries.
        gallery_labels: a file of labels for the gallery.
        label_separator: as for `load_embeddings`.
        labels_required: as for `load_embeddings`.
        on_error: as for `load_embeddings`.
        fold: only the rows that have this value in the column `fold`.
        memory: as for `load_embeddings`.
        in_place: as for `load_embeddings`; for files that a cluster will rank.

    Raises:
        RecallatkError: as for `load_embeddings`; or there is no such fold.
    """
    sides = [("query", query, query_labels), ("gallery", gallery, gallery_labels)]
    if gallery is None or Path(gallery).resolve() == Path(query).resolve():
        del sides[1]
    loaded = [
        load_embeddings(
            path,
            labels=labels,
            name=f"{side} ({shown(Path(path).name)})",
            label_separator=label_separator,
            labels_required=labels_required,
            on_error=on_error,
            memory=memory,
            in_place=in_place,
        )
        for side, path, labels in sides
        if path is not None
    ]
    source = {
        "query": query,
        "gallery": gallery,
        "query_labels": query_labels,
        "gallery_labels": gallery_labels,
        "label_separator": label_separator,
        "labels_required": labels_required,
        "on_error": on_error,
        "fold": fold,
    }
    paths = {name: Path(value) if isinstance(value, os.PathLike) else value for name, value in source.items()}
    data = {"files": [shown(os.fspath(path)) for _, path, _ in sides if path is not None], "read": as_source(paths)}
    provenance = _provenance_of(loaded, data)
    sets = [one.embeddings if fold is None else of_fold(one.embeddings, fold) for one in loaded]
    return EncodedDataset(sets[0], sets[1] if len(sets) > 1 else None, provenance)


def of_fold(rows: EmbeddingSet, fold: str) -> EmbeddingSet:
    """The rows of one fold.

    Raises:
        RecallatkError: there is no column `fold`, or no row of this one.
    """
    if "fold" not in rows.groups:
        raise RecallatkError(
            f"{rows.name}: there is no column `fold`, which says what is evaluated together; embeddings that "
            "`recallatk embed DATA --layout NAME --part PART` writes have it where the part has folds"
        )
    kept = [row for row, value in enumerate(rows.groups["fold"]) if value == fold]
    if not kept:
        raise RecallatkError(f"{rows.name}: no row of the fold {fold!r}; there are {', '.join(_folds(rows))}")
    return rows.take(kept)


def _folds(rows: EmbeddingSet) -> list[str]:
    return sorted(set(rows.groups["fold"]))[:20]


def _code(encoder: Encoder) -> dict[str, Any]:
    code = describe_code(encoder)
    return {} if code is None else {"code": code}


_SIDES = ("query", "gallery")
_OF_ENCODER = ("encoder", "fingerprint", "preprocessing", "decode")
"""What `Provenance` says of the encoder, which both files of a data set must agree on."""


def _provenance_of(loaded: Sequence[LoadedEmbeddings], data: Mapping[str, Any]) -> Provenance:
    """What one or two embedding files say; each of them holds what was noticed in the whole data set."""
    known: dict[str, Any] = {}
    warnings, notes, skipped = [], [], []
    converted: dict[str, Sequence[str]] = {}  # of each image once, whose copies may lie on both sides
    for file in loaded:
        converted |= conversions_in(file.metadata)
        warnings += file.metadata.get("warnings", [])
        notes += [*file.metadata.get("notes", []), *file.notes]
        skipped += [*(Skipped(**item) for item in file.metadata.get("skipped", [])), *file.skipped]
    notes += conversion_notes(Counter(phrase for phrases in converted.values() for phrase in phrases))
    for field in _OF_ENCODER:
        values = [file.metadata.get(field) for file in loaded]
        if any(value != values[0] for value in values):
            warnings.append(f"query and gallery embeddings differ in {field}: {values[0]!r} and {values[1]!r}")
        else:
            known[field] = values[0]
    return Provenance(
        **known,
        data=data,
        skipped=tuple(dict.fromkeys(skipped)),
        notes=tuple(dict.fromkeys(notes)),
        warnings=tuple(dict.fromkeys(warnings)),
    )
