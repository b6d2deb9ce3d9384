"""The items of a page: each image and each label once, by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recallatk.page.options import PageSource, Place
from recallatk.page.pictures import Thumbnail, as_written, make_thumbnails, shrink
from recallatk.types import Label, each_label


class Items:
    """Images by side and id, labels by name, pictures by the number of their item."""

    def __init__(self, source: PageSource, *, read_before: Items | None = None) -> None:
        self.images = source.images
        self.ids: list[str] = []
        self.labels: list[str] = []
        self.labels_of: list[list[int]] = []
        self.thumbnails: dict[int, Thumbnail] = {}
        self._read: dict[tuple[str, str], Thumbnail] = {} if read_before is None else read_before._read
        self._numbers: dict[tuple[str, str], int] = {}
        self._codes: dict[str, int] = {}
        self._sides: list[str] = []
        self._alone = source.alone
        self._contents = _contents(source)

    def query(self, name: str, label: Label | None) -> int:
        """The number of a query."""
        return self._number("query", name, label)

    def gallery(self, name: str, label: Label | None) -> int:
        """The number of a gallery item; for leave-one-out it is that of the query."""
        return self._number("query" if self._alone else "gallery", name, label)

    def code(self, label: str) -> int:
        """The number of a label."""
        found = self._codes.setdefault(label, len(self.labels))
        if found == len(self.labels):
            self.labels.append(label)
        return found

    def make_pictures(self, numbers: Sequence[int]) -> None:
        """The pictures of these items, and of no others; one that was read before is not read again."""
        keys = {number: (self._sides[number], self.ids[number]) for number in numbers}
        texts = {key: self.images.texts[key[1]] for key in keys.values() if key[1] in self.images.texts}
        self._read |= {key: as_written(text, self._contents.get(key)) for key, text in texts.items()}
        new = [(number, key) for number, key in keys.items() if key not in self._read]
        places: list[Place | None] = [
            (self.images.query if side == "query" else self.images.gallery).get(name) for _, (side, name) in new
        ]
        contents = [self._contents.get(key) for _, key in new]
        made = make_thumbnails(places, contents, self.images)
        self._read |= {key: one for (_, key), one in zip(new, made, strict=True)}
        self.thumbnails = {number: self._read[key] for number, key in keys.items()}

    def shrink_pictures(self, size: int) -> None:
        """Make every picture smaller."""
        self.thumbnails = {number: shrink(thumbnail, size) for number, thumbnail in self.thumbnails.items()}
        self._read |= {(self._sides[number], self.ids[number]): one for number, one in self.thumbnails.items()}

    def columns(self) -> dict[str, Any]:
        """What the page needs of every item but its picture."""
        labels = [codes[0] if len(codes) == 1 else codes for codes in self.labels_of]
        return {"labels": self.labels, "items": {"id": self.ids, "label": labels}}

    def _number(self, side: str, name: str, label: Label | None) -> int:
        found = self._numbers.setdefault((side, name), len(self.ids))
        if found == len(self.ids):
            self.ids.append(name)
            self._sides.append(side)
            self.labels_of.append([self.code(one) for one in each_label(label or "") if one])
        return found


def _contents(source: PageSource) -> dict[tuple[str, str], str]:
    """The hash of each image when it was evaluated, by side and id."""
    found: dict[tuple[str, str], str] = {}
    for role, samples in source.report.samples.items():
        side = "gallery" if role == "gallery" else "query"
        if samples.content is not None:
            found |= {(side, name): one for name, one in zip(samples.row_ids, samples.content, strict=True) if one}
    return found
