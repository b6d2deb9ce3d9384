"""The rows of a data set as they lie on disk now, without an encoder."""

from __future__ import annotations

from typing import Any

from recallatk.images import content_of, stored_bytes
from recallatk.types import Box, Dataset, ImageSet, SampleSet


def samples_of(dataset: Dataset) -> dict[str, SampleSet]:
    """The images and texts as they lie there, by role."""
    roles = ("both",) if dataset.gallery is None else ("query", "gallery")
    sides = dict(zip(roles, (dataset.query, dataset.gallery), strict=False))
    return {role: columns(side, _contents(side)) for role, side in sides.items() if side is not None}


def roles_of_texts(dataset: Dataset | None) -> frozenset[str]:
    """The roles that hold texts; none of a data set that is not there."""
    if dataset is None or dataset.gallery is None:
        return frozenset()
    return frozenset(role for role in ("query", "gallery") if getattr(dataset, role).kind == "text")


def columns(side: Any, content: tuple[str, ...] | None = None) -> SampleSet:
    """What is known of each row of a side: images, texts or embeddings."""
    return SampleSet(
        side.labels,
        ids=side.ids,
        same=side.same,
        groups=side.groups,
        content=content or getattr(side, "content", None),
        positions=side.positions,
        label_kind=side.label_kind,
    )


def _contents(side: ImageSet) -> tuple[str, ...]:
    if side.kind == "text":
        return tuple(content_of(text.encode("utf-8", "surrogatepass")) for text in side.elements)
    return tuple(map(_content, side.elements, side.boxes or [None] * len(side)))


def _content(element: Any, box: Box | None) -> str:
    try:
        return content_of(stored_bytes(element), box)
    except OSError:
        return "cannot be read"
