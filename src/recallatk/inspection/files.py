"""Files that cannot be used, that are odd, or whose names are."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from recallatk.inspection.findings import Finding, Level
from recallatk.inspection.pictures import Picture
from recallatk.types import EvalProtocol, ImageSet, OnError, Skipped
from recallatk.wording import counted

TINY = 32
"""An image with fewer pixels than this in width or height is tiny: encoders enlarge it several times."""

HUGE = 50_000_000
"""An image of more pixels than this is huge: it takes long, and hundreds of megabytes."""

# Kind -> what a fault of that kind says. The first that fits counts.
_FAULTS: dict[str, Callable[[str], bool]] = {
    "empty": lambda fault: "is empty" in fault and "box" not in fault,
    "box-outside": lambda fault: fault.startswith("the box"),
    "truncated": lambda fault: "truncated" in fault or "broken" in fault,
    "unopened": lambda fault: fault.startswith("cannot be read"),
    "unreadable": lambda fault: True,
}
_FAULT_WORDS = {
    "empty": ("file is", "files are", "empty", "copy it again, or remove it"),
    "box-outside": ("box is", "boxes are", "not inside its picture", "correct it: x1, y1, x2, y2 in pixels"),
    "truncated": ("file is", "files are", "truncated or broken", "copy it again from where it came"),
    "unopened": ("file", "files", "cannot be opened", "check its permissions"),
    "unreadable": ("file", "files", "cannot be read as an image", "replace it, or remove it"),
}
_SKIP = " (with on_error='skip', --on-error skip, such files are left out and counted)"
_ADVICE = {
    "EXIF orientation applied": "--exif ignore leaves pictures as they are stored",
    "transparency composited on white": "",
    "first of several frames used": "cut out the frame that is meant, if it is another one",
    "damaged EXIF data ignored": "look whether they stand upright",
}


def find_faults(
    sides: Sequence[ImageSet], pictures: Sequence[Sequence[Picture]], skipped: Sequence[Skipped], *, on_error: OnError
) -> Iterator[Finding]:
    """Files that are missing or cannot be decoded: errors, or warnings where they are to be skipped."""
    level: Level = "error" if on_error == "error" else "warning"
    tail = _SKIP if on_error == "error" else ""
    if skipped:
        have = counted(len(skipped), "item is missing or", "items are missing or")
        items = tuple(f"{item.item}: {item.reason}" for item in skipped)
        yield Finding("missing", level, f"{have} cannot be used", f"correct the path, or remove it{tail}", items)
    faults: dict[str, dict[str, None]] = defaultdict(dict)
    for side, own in zip(sides, pictures, strict=True):
        for name, picture in zip(side.ids, own, strict=True):
            if picture.fault:
                kind = next(kind for kind, fits in _FAULTS.items() if fits(picture.fault))
                faults[kind][f"{name}: {picture.fault}"] = None
    for kind, (one, many, what, advice) in _FAULT_WORDS.items():
        if kind in faults:
            items = tuple(faults[kind])
            yield Finding(kind, level, f"{counted(len(items), one, many)} {what}", advice + tail, items)


def find_oddities(sides: Sequence[ImageSet], pictures: Sequence[Sequence[Picture]]) -> Iterator[Finding]:
    """Sizes out of the ordinary, and what decoding converts."""
    known = _by_id(sides, pictures)  # a text has no pixels
    tiny = [
        f"{name} ({p.width} x {p.height})" for name, p in known.items() if p.pixels and min(p.width, p.height) < TINY
    ]
    if tiny:
        are = counted(len(tiny), "image is", "images are")
        yield Finding(
            "tiny",
            "warning",
            f"{are} tiny, under {TINY} pixels wide or high",
            "look whether it is a thumbnail",
            tuple(tiny),
        )
    huge = [f"{name} ({p.width} x {p.height})" for name, p in known.items() if p.width * p.height > HUGE]
    if huge:
        are = counted(len(huge), "image is", "images are")
        text = f"{are} huge, over {HUGE // 1_000_000} million pixels"
        yield Finding("huge", "note", text, "make it smaller once, to save time at every run", tuple(huge))
    conversions: dict[str, list[str]] = defaultdict(list)
    for name, picture in known.items():
        for phrase in picture.conversions:
            conversions[phrase].append(name)
    for phrase, names in sorted(conversions.items()):
        yield Finding(
            "converted", "note", f"{counted(len(names), 'image')}: {phrase}", _ADVICE.get(phrase, ""), tuple(names)
        )


def find_links(
    sides: Sequence[ImageSet], pictures: Sequence[Sequence[Picture]], protocol: EvalProtocol
) -> Iterator[Finding]:
    """Symbolic links, files outside the data set, and files that are on both sides."""
    links = [name for name, picture in _by_id(sides, pictures).items() if picture.link]
    if links:
        are = counted(len(links), "image is a symbolic link", "images are symbolic links")
        yield Finding("link", "note", f"{are}, which is followed", "", tuple(links))
    identities = [dict(zip(side.ids if side.same is None else side.same, side.ids, strict=True)) for side in sides]
    outside = {name: same for own in identities for same, name in own.items() if same.startswith("/")}
    if outside:
        lead = counted(len(outside), "image leads", "images lead")
        items = tuple(f"{name} -> {same}" for name, same in outside.items())
        yield Finding(
            "outside", "note", f"{lead} out of the data set", "copy it in before the data set is moved", items
        )
    shared = [name for same, name in identities[0].items() if same in identities[1]] if len(sides) == 2 else []
    if shared:
        are = counted(len(shared), "query is the very file of", "queries are the very files of")
        out = protocol.exclude_self == "id"
        advice = (
            "exclude_self=id leaves it out for itself"
            if out
            else "leave it out with exclude_self=id (--exclude-self id)"
        )
        level: Level = "note" if out or protocol.exclude_self == "content" else "warning"
        yield Finding("same-file", level, f"{are} a gallery image", advice, tuple(shared))


def find_name_clashes(sides: Sequence[ImageSet]) -> Iterator[Finding]:
    """Names that are one name in another Unicode form, or on a file system that knows no case."""
    names = sorted({name for side in sides for name in side.ids})
    forms = _twins(names, _composed)
    if forms:
        have = counted(len(forms), "group of images has", "groups of images have")
        what = f"{have} one name in two Unicode forms (NFC and NFD)"
        yield Finding("unicode-clash", "warning", what, "rename one before the data set is copied", _in_ascii(forms))
    cases = [group for group in _twins(names, lambda name: _composed(name).casefold()) if group not in forms]
    if cases:
        have = counted(len(cases), "group of images has", "groups of images have")
        what = f"{have} one name where case makes no difference (Windows, macOS)"
        yield Finding("case-clash", "note", what, "rename one before the data set is copied there", _in_ascii(cases))


def _twins(names: Sequence[str], plain: Callable[[str], str]) -> list[list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[plain(name)].append(name)
    return [group for group in groups.values() if len(group) > 1]


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _in_ascii(groups: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """One text a group; in ASCII, as the names may look alike."""
    return tuple(" and ".join(map(ascii, group)) for group in groups)


def measure(pictures: Sequence[Sequence[Picture]]) -> dict[str, tuple[float, float, float]]:
    """Smallest, median and largest width, height and file size of the images that can be used."""
    usable = [picture for own in pictures for picture in own if picture.pixels]
    columns = {
        "width": [picture.width for picture in usable],
        "height": [picture.height for picture in usable],
        "bytes": [picture.bytes for picture in usable],
    }
    return {
        what: (float(min(values)), float(np.median(values)), float(max(values)))
        for what, values in columns.items()
        if values
    }


def _by_id(sides: Sequence[ImageSet], pictures: Sequence[Sequence[Picture]]) -> dict[str, Picture]:
    """Each image once, also where it is on both sides."""
    return {
        name: picture
        for side, own in zip(sides, pictures, strict=True)
        for name, picture in zip(side.ids, own, strict=True)
    }
