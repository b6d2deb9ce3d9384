"""Embeddings that were made elsewhere, with what a data set on disk says of each row."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from recallatk.run.encoded import EncodedDataset
from recallatk.types import Dataset, EmbeddingSet, ImageSet, OnError, RecallatkError, Skipped
from recallatk.wording import and_more, counted


def join_dataset(encoded: EncodedDataset, dataset: Dataset, *, on_error: OnError = "error") -> EncodedDataset:
    """Give embeddings the labels, columns, positions and judged pairs of a data set, and its protocol.

    Rows are matched by id. Embeddings without ids are taken to stand in the order of the data set's images, of which
    there must then be as many. What the embeddings say of labels and columns themselves is not used.

    Args:
        encoded: the embeddings, such as `load_encoded(..., labels_required=False)` gives.
        dataset: what `load_dataset` gives; its images are not opened.
        on_error: whether images without an embedding stop the run or are skipped.

    Raises:
        RecallatkError: the sides do not fit, an image has no embedding, or the numbers of rows without ids differ.
    """
    if (encoded.gallery is None) != (dataset.gallery is None):
        wanted = (
            "one set of images, each a query and in the gallery; give its embeddings alone (--query, no --gallery)"
            if dataset.gallery is None
            else "queries and a gallery; give the embeddings of both (--query and --gallery)"
        )
        raise RecallatkError(f"{dataset.root}: the data set has {wanted}")
    notes: list[str] = []
    skipped: list[Skipped] = []
    query = _join(encoded.query, dataset.query, on_error, notes, skipped)
    gallery = (
        None
        if encoded.gallery is None or dataset.gallery is None
        else _join(encoded.gallery, dataset.gallery, on_error, notes, skipped)
    )
    provenance = dataclasses.replace(
        encoded.provenance,
        data={**encoded.provenance.data, "rows": dict(dataset.source)},
        skipped=(*dataset.skipped, *encoded.provenance.skipped, *skipped),
        notes=(*dataset.notes, *encoded.provenance.notes, *notes),
        warnings=(*dataset.warnings, *encoded.provenance.warnings),
    )
    return dataclasses.replace(
        encoded,
        query=query,
        gallery=gallery,
        provenance=provenance,
        qrels=dataset.qrels,
        protocol=dataset.protocol,
        metrics=dataset.metrics,
        views=dataset.views,
    )


def _join(
    rows: EmbeddingSet, images: ImageSet, on_error: OnError, notes: list[str], skipped: list[Skipped]
) -> EmbeddingSet:
    if rows.ids is None:
        if len(rows) != len(images):
            raise RecallatkError(
                f"{rows.name}: {counted(len(rows), 'row')} without ids for {counted(len(images), 'image')}; give the "
                "embeddings ids, or exactly the images of the data set in its order (the ids that load_dataset gives)"
            )
        notes.append(
            f"{rows.name}: rows without ids, taken in the order of the data set "
            f"({images.ids[0]} first, {images.ids[-1]} last)"
        )
        return _described(rows, images)
    place = {one: row for row, one in enumerate(images.ids)}
    known = [row for row, one in enumerate(rows.ids) if one in place]
    there = {rows.ids[row] for row in known}
    missing = [one for one in images.ids if one not in there]
    if missing and (on_error == "error" or not known):
        example = f" (its own ids are like {rows.ids[0]!r})" if not known else ""
        raise RecallatkError(
            f"{rows.name}: no embedding of {missing[0]!r}{and_more(len(missing), 'image')}{example}; embed all of the "
            "data set, or evaluate what is there with on_error='skip' (--on-error skip)"
        )
    skipped += [Skipped(one, f"no embedding in {rows.name}") for one in missing]
    if len(known) < len(rows):
        beside = next(one for one in rows.ids if one not in place)
        notes.append(
            f"{rows.name}: {counted(len(rows) - len(known), 'row')} left aside that the data set does not have, such "
            f"as {beside!r}"
        )
        rows = rows.take(known)
    return _described(rows, images.take([place[one] for one in _ids(rows)]))


def _ids(rows: EmbeddingSet) -> Sequence[str]:
    return rows.ids or ()


def _described(rows: EmbeddingSet, images: ImageSet) -> EmbeddingSet:
    columns: Mapping[str, Any] = {
        field: getattr(images, field) for field in ("ids", "labels", "same", "groups", "positions", "label_kind")
    }
    return dataclasses.replace(rows, **columns)
