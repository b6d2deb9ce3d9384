"""A folder tree -> the images below it, and everything else that lies there."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Literal

from recallatk.datasets.naming import shown
from recallatk.images import is_image_name
from recallatk.types import Skipped

# What file managers, storage boxes and archives leave behind, beside names that begin with a dot. In lower case.
_SYSTEM_NAMES = frozenset(
    {
        "__macosx",
        "@eadir",
        "@__thumb",
        "#recycle",
        "#snapshot",
        "$recycle.bin",
        "system volume information",
        "lost+found",
        "thumbs.db",
        "ehthumbs.db",
        "desktop.ini",
    }
)


@dataclasses.dataclass(frozen=True)
class ImageFile:
    """One image.

    Attributes:
        path: as it was reached; can be opened whatever bytes its name holds.
        below: the path below the folder that was walked, with "/", as valid text.
        real: the file with every link followed.
    """

    path: Path
    below: str
    real: str


@dataclasses.dataclass(frozen=True)
class Listing:
    """What a walk found; names are paths below the folder that was walked.

    Attributes:
        images: in the order of `below`, by code point.
        others: files that are no images by their name.
        hidden: hidden and system files and folders; they are not entered.
        barren: folders with neither an image nor a folder in them.
        loops: linked folders that lead back to a folder above them; they are not followed.
        unusable: links to nothing, and folders that cannot be read.
    """

    images: list[ImageFile]
    others: list[str]
    hidden: list[str]
    barren: list[str]
    loops: list[str]
    unusable: list[Skipped]


_Kind = Literal["hidden", "folder", "image", "unusable", "other"]


def walk_images(folder: Path) -> Listing:
    """List the images below a folder; links are followed, loops are not."""
    images: list[ImageFile] = []
    names: dict[str, list[str]] = {"other": [], "hidden": [], "barren": [], "loop": []}
    unusable: list[Skipped] = []
    # The real paths on the way down, from the root of the disk on, tell a loop; only a link needs one to be looked up.
    start = os.path.realpath(folder)
    pending = [(os.fspath(folder), "", start, frozenset(map(str, Path(start).parents)))]
    while pending:
        path, below, real, above = pending.pop()
        if real in above:
            names["loop"].append(below)
            continue
        try:
            with os.scandir(path) as listed:
                entries = list(listed)
        except OSError as error:
            unusable.append(Skipped(below or shown(path), f"the folder cannot be read ({error.strerror})"))
            continue
        kinds: set[_Kind] = set()
        for entry in entries:
            kind = _kind(entry)
            kinds.add(kind)
            name = f"{below}/{shown(entry.name)}" if below else shown(entry.name)
            if kind in ("folder", "image"):
                target = os.path.realpath(entry.path) if entry.is_symlink() else str(Path(real, entry.name))
                if kind == "image":
                    images.append(ImageFile(Path(entry.path), name, target))
                else:
                    pending.append((entry.path, name, target, above | {real}))
            elif kind == "unusable":
                link = entry.is_symlink()
                unusable.append(Skipped(name, "a link to a file that is not there" if link else "not a regular file"))
            else:
                names[kind].append(name)
        if below and not kinds & {"folder", "image"}:
            names["barren"].append(below)
    return Listing(
        images=sorted(images, key=lambda image: image.below),
        others=sorted(names["other"]),
        hidden=sorted(names["hidden"]),
        barren=sorted(names["barren"]),
        loops=sorted(names["loop"]),
        unusable=sorted(unusable, key=lambda skipped: skipped.item),
    )


def is_hidden(name: str) -> bool:
    """Whether a file or folder belongs to the system and not to the data set."""
    return name.startswith(".") or name.lower() in _SYSTEM_NAMES


def _kind(entry: os.DirEntry[str]) -> _Kind:
    if is_hidden(entry.name):
        return "hidden"
    try:
        if entry.is_dir():
            return "folder"
        usable = entry.is_file()
    except OSError:  # a link that leads to itself
        usable = False
    if not is_image_name(entry.name):
        return "other"
    return "image" if usable else "unusable"
