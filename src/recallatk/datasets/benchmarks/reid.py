"""What the benchmarks of person re-identification share: images named after person and camera, in two folders."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from recallatk.datasets.benchmarks.files import Item, find_root, image_set
from recallatk.datasets.walk import walk_images
from recallatk.types import Dataset, ImageSet, OnError, RecallatkError, Skipped
from recallatk.wording import counted

QUERY = "query"
GALLERY = "bounding_box_test"
PROTOCOL: dict[str, Any] = {"ks": (1, 5, 10), "ignore_same": "camera+label"}
"""An image of the query's person by the query's camera takes no rank."""

METRICS = ("map",)

TRAPS = (
    "torchreid's values are Euclidean, of features as they are: --similarity euclidean. The default here is cosine.",
)


def load_people(
    data: Path, folder: str, names: re.Pattern[str], example: str, *, on_error: OnError
) -> tuple[Dataset, ImageSet]:
    """Read a benchmark whose images are named after person and camera; the label is the person as it is written there.

    Args:
        data: DATA.
        folder: what its folder is called.
        names: what the name of an image begins with, with the groups `person` and `camera`.
        example: such a name, for messages.
        on_error: as for every layout.

    Returns:
        The data set, and its gallery once more.

    Raises:
        RecallatkError: an image of another name, a side without images, or a link to nothing (unless `on_error` is
            skip).
    """
    root = find_root(data, folder, QUERY, GALLERY)
    sides, skipped, notes = [], [], []
    for below, what in ((QUERY, "query"), (GALLERY, "gallery image")):
        items, unusable, aside = _list_people(root, below, names, example)
        if unusable and on_error == "error":
            raise RecallatkError(
                f"{root / unusable[0].item}: {unusable[0].reason}; complete the copy, or evaluate what is there with "
                "--on-error skip"
            )
        images, missing = image_set(root, items, on_error=on_error, side=what)
        sides.append(images)
        skipped += [*unusable, *missing]
        notes += aside
    query, gallery = sides
    return Dataset(query, gallery, root, skipped=tuple(skipped), notes=tuple(notes)), gallery


def _list_people(
    root: Path, folder: str, names: re.Pattern[str], example: str
) -> tuple[list[Item], list[Skipped], list[str]]:
    """The images below a folder, those that cannot be opened, and a note on what else lies there."""
    listing = walk_images(root / folder)
    items = []
    for image in listing.images:
        found = names.match(image.below.rpartition("/")[2])
        if found is None:
            raise RecallatkError(
                f"{root / folder / image.below}: no name of this benchmark, which are like {example} (person, camera); "
                "move the image away, or take the layout whose names these are"
            )
        items.append(Item(f"{folder}/{image.below}", found["person"], {"camera": found["camera"]}))
    aside = sorted([*listing.others, *listing.hidden])
    notes = [f"{folder}/: {counted(len(aside), 'other item')} left aside (such as {aside[0]!r})"] if aside else []
    if not items:
        raise RecallatkError(f"{root / folder}: no image in it; complete the copy")
    return items, [Skipped(f"{folder}/{bad.item}", bad.reason) for bad in listing.unusable], notes
