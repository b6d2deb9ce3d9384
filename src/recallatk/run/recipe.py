"""evaluate(): images, labels and a callable to a report."""

from __future__ import annotations

import numbers
import os
from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from recallatk.datasets.naming import same_file, shown
from recallatk.encoding import BATCH
from recallatk.relevance import check_labels_agree
from recallatk.report import Report
from recallatk.run.encoded import encode_sides, evaluate_encoded
from recallatk.types import Encoder, EvalProtocol, ImageSet, IntervalRule, RecallatkError, as_labels
from recallatk.wording import counted


def evaluate(
    query_images: Sequence[Any],
    query_labels: Iterable[Any],
    gallery_images: Sequence[Any],
    gallery_labels: Iterable[Any],
    encoder_fn: Encoder,
    ks: Sequence[int] | int = (1, 5, 10),
    *,
    protocol: EvalProtocol | None = None,
    intervals: IntervalRule | None = None,
    batch: int = BATCH,
    decode: bool = False,
) -> Report:
    """Encode query and gallery images with a callable and evaluate them.

    A query is never in its own ranking: paths are the same image if they lead to the same file, texts and numbers if
    they are equal, other elements if they are the same object (hand over the same list twice for leave-one-out). Each
    distinct image is encoded once.

    Paths become ids below the deepest folder that holds all of them, as they would below DATA on the command line.

    Args:
        query_images: paths, or whatever `encoder_fn` takes.
        query_labels: one label each, text or integers; lists for several.
        gallery_images: as `query_images`.
        gallery_labels: as `query_labels`.
        encoder_fn: a callable from a list of n elements to an array (n, d).
        ks: the cutoffs; not used when `protocol` is given.
        protocol: everything that can change the number.
        intervals: as for `evaluate_embeddings`.
        batch: how many elements go into the encoder at once.
        decode: elements are paths and the encoder wants RGB images; by default elements are handed over as they are.

    Returns:
        The report; it prints the template and reads like a dict: `report["recall@1"]`.

    Raises:
        RecallatkError: images and labels do not fit each other, an image is on both sides under two labels, or as for
            `encode` and `evaluate_embeddings`.
    """
    started = datetime.now(UTC)
    protocol = protocol or EvalProtocol(ks=ks)  # type: ignore[arg-type]  # brought to a tuple there
    query = tuple(query_images)
    gallery = query if gallery_images is query_images else tuple(gallery_images)
    known: dict[Hashable, str] = {}
    root = _common_folder((*query, *gallery))
    sides = [
        _image_set("query", query, query_labels, known, root),
        _image_set("gallery", gallery, gallery_labels, known, root),
    ]
    (queries, items) = (side.same or () for side in sides)
    check_labels_agree(queries, sides[0].labels, items, sides[1].labels)
    encoded = encode_sides(sides, encoder_fn, batch=batch, decode=decode)
    return evaluate_encoded(encoded, protocol=protocol, intervals=intervals, started=started)


def _common_folder(elements: Sequence[Any]) -> str:
    """The deepest folder that holds every file among the elements: where the data lie never enters an id."""
    folders = {os.path.dirname(os.path.abspath(os.fsdecode(element))) for element in elements if _is_file(element)}  # noqa: PTH100, PTH120
    try:
        return os.path.commonpath(folders) if folders else os.curdir
    except ValueError:  # on several drives
        return os.curdir


def _is_file(element: Any) -> bool:
    # os.path: Path.exists raises on a text that is too long for a name.
    return isinstance(element, str | os.PathLike) and os.path.exists(os.fsdecode(element))  # noqa: PTH110


def _image_set(
    name: str, elements: tuple[Any, ...], labels: Iterable[Any], known: dict[Hashable, str], root: str
) -> ImageSet:
    """Ids and identities of elements: those of the file for a path, those of the object for most other things."""
    texts, kind = as_labels(labels, name)
    if len(elements) != len(texts):
        raise RecallatkError(
            f"{name}: {counted(len(texts), 'label')} for {counted(len(elements), 'image')}; there must be one for each"
        )
    ids, same, taken = [], [], set()
    for row, element in enumerate(elements):
        if _is_file(element):
            path = os.fsdecode(element)
            identifier = shown(os.path.relpath(path, root)).replace(os.sep, "/")
            same.append(same_file(os.path.realpath(path), [(os.path.realpath(root), "")]))
        elif isinstance(element, str | os.PathLike):
            identifier = shown(os.fsdecode(element))
            same.append(identifier)
        else:
            identifier = f"{name} {row}"
            is_number = isinstance(element, numbers.Number | np.number | np.bool_)
            same.append(known.setdefault(("number", element) if is_number else id(element), identifier))
        if identifier in taken:
            identifier = f"{identifier} (row {row})"
        taken.add(identifier)
        ids.append(identifier)
    return ImageSet(elements, tuple(ids), texts, same=tuple(same), label_kind=kind)
