"""Folders of images -> Dataset: query/ and gallery/, or class folders where every image is both."""

from __future__ import annotations

import dataclasses
import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any

from recallatk.datasets.manifest import METADATA
from recallatk.datasets.naming import as_source, same_file, shown, split_labels
from recallatk.datasets.tables import READERS
from recallatk.datasets.walk import ImageFile, Listing, is_hidden, walk_images
from recallatk.images import IMAGE_SUFFIXES
from recallatk.types import ChoiceError, Dataset, ImageSet, OnError, RecallatkError, Skipped
from recallatk.wording import and_more, counted

SIDE_NAMES: dict[str, tuple[str, ...]] = {
    "query": ("query", "queries"),
    "gallery": ("gallery", "database", "index"),
}
"""The folder names of each side, in any case; a folder with one of each is the layout `folder`."""


def find_sides(data: Path) -> dict[str, list[str]]:
    """The folders directly below DATA that can be each side."""
    names = [entry.name for entry in _entries(data) if entry.is_dir()]
    return {side: [name for name in names if name.lower() in known] for side, known in SIDE_NAMES.items()}


def _entries(data: Path) -> list[Path]:
    try:
        return sorted(data.iterdir())
    except OSError as error:
        raise RecallatkError(f"{data}: the folder cannot be read ({error.strerror}); check its permissions") from error


def load_folder(
    data: Path, *, label_from: str = "parent", label_separator: str | None = None, on_error: OnError = "error"
) -> Dataset:
    """Read a folder that holds query/ and gallery/.

    Args:
        data: the folder.
        label_from: "parent", the folder that holds the image, or "regex:..." searched in the path below DATA; the
            label is the group named `label`, else the first group, else the whole match.
        label_separator: splits the label into several.
        on_error: whether links to nothing stop the run or are skipped.

    Raises:
        RecallatkError: a side is absent or given twice, holds no image, or an image has no label.
    """
    sides = find_sides(data)
    for side, names in sides.items():
        if not names:
            raise RecallatkError(
                f"{data}: no folder for the {side} side; name one {' or '.join(SIDE_NAMES[side])}, "
                "or read class folders with layout='classes' (--layout classes)"
            )
        if len(names) > 1:
            raise RecallatkError(f"{data}: {' and '.join(names)} are both the {side} side; keep one, or rename one")
    parts = [(data / names[0], f"{shown(names[0])}/") for names in sides.values()]
    used = {names[0] for names in sides.values()}
    beside = sorted(
        shown(entry.name) + "/" * entry.is_dir()
        for entry in _entries(data)
        if entry.name not in used and not is_hidden(entry.name)
    )
    notes = []
    if beside:
        listed = ", ".join(repr(name) for name in beside[:3]) + ("" if len(beside) <= 3 else ", ...")
        notes.append(f"{counted(len(beside), 'item')} beside the two sides left aside: {listed}")
    return _load(
        data,
        parts,
        bases=[(os.path.realpath(data), "")],
        label_from=label_from,
        label_separator=label_separator,
        on_error=on_error,
        notes=notes,
    )


def load_classes(
    data: Path, *, label_from: str = "parent", label_separator: str | None = None, on_error: OnError = "error"
) -> Dataset:
    """Read class folders for leave-one-out: every image is a query, and all the others are its gallery.

    The arguments and errors are those of `load_folder`.
    """
    return _load(
        data,
        [(data, "")],
        bases=[(os.path.realpath(data), "")],
        label_from=label_from,
        label_separator=label_separator,
        on_error=on_error,
    )


def load_two_folders(
    queries: str | os.PathLike[str],
    gallery: str | os.PathLike[str],
    *,
    label_from: str = "parent",
    label_separator: str | None = None,
    on_error: OnError = "error",
) -> Dataset:
    """Read two folders that need not lie together; their ids begin with query/ and gallery/.

    An image that both folders hold, by nesting or by links, is never its own hit. One folder given for both sides is
    leave-one-out. The other arguments and errors are those of `load_folder`.
    """
    queries, gallery = Path(queries), Path(gallery)
    for folder in (queries, gallery):
        if not folder.is_dir():
            raise RecallatkError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}")
    options: dict[str, Any] = {"label_from": label_from, "label_separator": label_separator, "on_error": on_error}
    real = [os.path.realpath(queries), os.path.realpath(gallery)]
    if real[0] == real[1]:
        dataset = load_classes(queries, **options)
    else:
        bases = [(real[0], "query/"), (real[1], "gallery/")]
        dataset = _load(queries.parent, [(queries, "query/"), (gallery, "gallery/")], bases=bases, **options)
    source = {"queries_folder": queries, "gallery_folder": gallery, **options}
    return dataclasses.replace(dataset, source=as_source(source))


def _load(
    root: Path,
    parts: Sequence[tuple[Path, str]],
    *,
    bases: Sequence[tuple[str, str]],
    label_from: str,
    label_separator: str | None,
    on_error: OnError,
    notes: Sequence[str] = (),
) -> Dataset:
    """One or two folders, each with the prefix of its ids, as a data set."""
    label_of = _labeller(label_from)
    listings = [(prefix, walk_images(folder)) for folder, prefix in parts]
    skipped = [Skipped(prefix + bad.item, bad.reason) for prefix, listing in listings for bad in listing.unusable]
    if skipped and on_error == "error":
        first, more = skipped[0], and_more(len(skipped), "item")
        raise RecallatkError(
            f"{first.item!r} below {root}: {first.reason}{more}; remove it, or leave such files out with "
            "on_error='skip' (--on-error skip)"
        )
    for (folder, _), (_, listing) in zip(parts, listings, strict=True):
        if not listing.images:
            raise RecallatkError(_nothing_found(folder, listing))
    sets = []
    for prefix, listing in listings:
        labels = [label_of(prefix, image) for image in listing.images]
        sets.append(
            ImageSet(
                elements=tuple(image.path for image in listing.images),
                ids=tuple(prefix + image.below for image in listing.images),
                labels=tuple(labels if label_separator is None else (split_labels(x, label_separator) for x in labels)),
                same=tuple(same_file(image.real, bases) for image in listing.images),
            )
        )
    return Dataset(
        query=sets[0],
        gallery=sets[1] if len(sets) > 1 else None,
        root=root,
        skipped=tuple(skipped),
        notes=(*notes, *_notes(listings)),
        warnings=(*(_shared_names(listings) if label_from == "parent" else ()), *_unread_tables(listings)),
    )


def _labeller(label_from: str) -> Callable[[str, ImageFile], str]:
    """The function from an image (and the prefix of its id) to its label."""
    if label_from == "parent":
        return _parent
    if not label_from.startswith("regex:"):
        raise ChoiceError(f"label_from={label_from!r} is not a choice; use parent, or regex: and a pattern")
    try:
        pattern = re.compile(label_from.removeprefix("regex:"))
    except re.error as error:
        raise ChoiceError(f"label_from={label_from!r} is no regular expression ({error}); mend it") from error
    group: str | int = "label" if "label" in pattern.groupindex else min(pattern.groups, 1)

    def search(prefix: str, image: ImageFile) -> str:
        match = pattern.search(prefix + image.below)
        if match is None or not match.group(group):
            raise RecallatkError(
                f"{prefix + image.below!r}: label_from={label_from!r} finds no label in this path; "
                "widen the pattern, or move the file away"
            )
        return match.group(group)

    return search


def _parent(prefix: str, image: ImageFile) -> str:
    folder, _, _ = image.below.rpartition("/")
    if not folder:
        raise RecallatkError(
            f"{prefix + image.below!r} lies in no class folder, so it has no label; move it into a folder named after "
            "its label, or take labels from the path with label_from='regex:...' (--label-from), or use a manifest"
        )
    return folder.rpartition("/")[2]


def _shared_names(listings: Sequence[tuple[str, Listing]]) -> tuple[str, ...]:
    """Warnings where one label comes from folders in different branches, or from one name in two Unicode forms."""
    folders = {image.below.rpartition("/")[0] for _, listing in listings for image in listing.images}
    forms: dict[str, list[str]] = {}
    for folder in sorted(folders):
        forms.setdefault(unicodedata.normalize("NFC", folder), []).append(folder)
    branches: dict[str, list[str]] = {}
    for folder in forms:
        branches.setdefault(folder.rpartition("/")[2], []).append(folder)
    shared = {label: found for label, found in branches.items() if len(found) > 1}
    spelled = [found for found in forms.values() if len(found) > 1]
    warnings = []
    if shared:
        label, found = next(iter(shared.items()))
        warnings.append(
            f"{counted(len(shared), 'label')} from folders in different branches, such as {label!r} from {found[0]!r} "
            f"and {found[1]!r}{and_more(len(found) - 1, 'folder')}: one name is one label; if these are different "
            "classes, rename the folders or use label_from='regex:...' (--label-from)"
        )
    if spelled:
        one, other = spelled[0][:2]  # in ASCII, as they look alike otherwise
        warnings.append(
            f"{counted(len(spelled), 'folder is', 'folders are')} one name in two Unicode forms, such as {one!a} and "
            f"{other!a}: they are one label; rename one of them if that is not meant"
        )
    return tuple(warnings)


def _unread_tables(listings: Sequence[tuple[str, Listing]]) -> list[str]:
    """Tables of Hugging Face's `imagefolder` further down: they may hold the labels that are meant."""
    others = [prefix + name for prefix, listing in listings for name in listing.others]
    found = [name for name in others if PurePath(name).stem == METADATA and PurePath(name).suffix in READERS]
    return [
        f"{name} was not read, and labels come from folders: if it describes the images, give its own folder as DATA"
        for name in found[:1]
    ]


def _notes(listings: Sequence[tuple[str, Listing]]) -> list[str]:
    """One line for each kind of thing that was left aside."""

    def names(kind: str) -> list[str]:
        return [prefix + name for prefix, listing in listings for name in getattr(listing, kind)]

    notes = []
    if others := names("others"):
        notes.append(f"{counted(len(others), 'other file')} left aside (such as {others[0]!r})")
    if hidden := names("hidden"):
        notes.append(f"{counted(len(hidden), 'hidden or system item')} left aside (such as {hidden[0]!r})")
    if barren := names("barren"):
        notes.append(f"{counted(len(barren), 'folder')} without an image (such as {barren[0]!r})")
    if loops := names("loops"):
        notes.append(f"{counted(len(loops), 'linked folder')} not followed: a loop (such as {loops[0]!r})")
    return notes


def _nothing_found(folder: Path, listing: Listing) -> str:
    found = _notes([("", listing)])
    if listing.unusable:
        found.append(f"{counted(len(listing.unusable), 'unusable item')} (such as {listing.unusable[0].item!r})")
    tables = [name for name in listing.others if "/" not in name and Path(name).suffix.lower() in READERS]
    advice = f"if {tables[0]!r} is a manifest, give its path" if tables else "name the folder that holds the images"
    return (
        f"{folder}: no image below this folder; found: {', '.join(found) or 'nothing'}. "
        f"Images end in {', '.join(sorted(IMAGE_SUFFIXES))}; {advice}"
    )
