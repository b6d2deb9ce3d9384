"""Images with captions: what lists them, where the pictures lie, and the two sides between which one searches."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recallatk.datasets.benchmarks.files import Item, image_set, read_lines
from recallatk.datasets.tables import read_table
from recallatk.types import Dataset, ImageSet, OnError, RecallatkError, Skipped, View
from recallatk.wording import and_more, counted

FOLDS = 5
TEXT_TO_IMAGE, IMAGE_TO_TEXT = "text-to-image", "image-to-text"
DIRECTIONS: Mapping[str, View] = {TEXT_TO_IMAGE: View(), IMAGE_TO_TEXT: View(swapped=True)}
"""Both directions, with the texts as queries of the first."""

_DEPTH = 3
_TRIED = 20
_ROW = re.compile(r"(?P<image>.+?\.(?:jpe?g|png))[,\t](?P<caption>.*)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Captioned:
    """An image with its captions, as a list has it.

    Attributes:
        image: the file's name, behind the folder where the list says one.
        label: the id of the image, which its captions have too.
        captions: texts, in the order of the list.
    """

    image: str
    label: str
    captions: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Listing:
    """What one file lists.

    Attributes:
        images: in the order of the file.
        notes: what was left aside.
    """

    images: tuple[Captioned, ...]
    notes: tuple[str, ...] = ()


Reader = Callable[[Path], Listing]


def load_captions(
    data: Path, readers: Mapping[str, Reader], *, view: View | None, folds: str = "", on_error: OnError
) -> Dataset:
    """Both sides between images and their captions; a caption's label is its image's.

    Args:
        data: DATA.
        readers: the name of a file that lists images with captions -> what reads it; the first that is there counts.
        view: the direction and the fold; None: with the texts as queries, and all of them.
        folds: where the images are parted into FOLDS of equal size, the file whose order is the official one.
        on_error: as for `load_dataset`.

    Raises:
        RecallatkError: no list below DATA, a damaged one, or pictures that are missing.
    """
    listed = _find_list(data, list(readers))
    status = listed.stat()
    listing = _read_once(readers[listed.name], listed, status.st_mtime_ns, status.st_size)
    images = listing.images
    if not images:
        raise RecallatkError(f"{listed}: it names no test image; take the official file")
    base, names = _find_pictures(data, images)
    root = Path(os.path.commonpath([listed.parent.absolute(), base.absolute()]))
    root = data / os.path.relpath(root, data.absolute())
    if folds and len(images) < FOLDS:
        raise RecallatkError(f"{listed}: {counted(len(images), 'test image')}; {FOLDS} folds need one each at least")
    of_image = [str(place * FOLDS // len(images) + 1) for place in range(len(images))]
    wanted = [place for place, fold in enumerate(of_image) if view is None or view.fold in (None, fold)]
    groups = [{"fold": fold} if folds else {} for fold in of_image]
    below = os.path.relpath(base, root)
    paths = [names(one) if below == os.curdir else f"{Path(below).as_posix()}/{names(one)}" for one in images]
    pictures, skipped = image_set(
        root, [Item(paths[place], images[place].label, groups[place]) for place in wanted], on_error=on_error
    )
    texts, blank = _texts([(images[place], paths[place], groups[place]) for place in wanted], listed, on_error)
    swapped = view is not None and view.swapped
    order = f"the folds follow the order of {listed.name}; the official one is that of {folds}"
    return Dataset(
        query=pictures if swapped else texts,
        gallery=texts if swapped else pictures,
        root=root,
        skipped=(*skipped, *blank),
        notes=listing.notes,
        warnings=(order,) if folds and listed.name != folds else (),
    )


@functools.lru_cache(maxsize=4)
def _read_once(reader: Reader, path: Path, _changed: int, _size: int) -> Listing:
    """The list of dataset_coco.json has 123,287 images, and every part is made of it."""
    return reader(path)


def _texts(
    rows: Sequence[tuple[Captioned, str, Mapping[str, str]]], listed: Path, on_error: OnError
) -> tuple[ImageSet, tuple[Skipped, ...]]:
    """The captions as a side, each with the id of its image and its number there."""
    items = [
        (f"{path}#{number}", text, image.label, groups)
        for image, path, groups in rows
        for number, text in enumerate(image.captions)
    ]
    blank = [name for name, text, *_ in items if not text.strip()]
    if blank and on_error == "error":
        raise RecallatkError(
            f"{listed}: the caption {blank[0]}{and_more(len(blank), 'caption')} is empty; take the official file, or "
            "leave such captions out with --on-error skip"
        )
    kept = [item for item in items if item[1].strip()]
    if not kept:
        raise RecallatkError(f"{listed}: it has no caption of a test image; take the official file")
    columns = list(kept[0][3])
    texts = ImageSet(
        elements=tuple(text for _, text, _, _ in kept),
        ids=tuple(name for name, *_ in kept),
        labels=tuple(label for _, _, label, _ in kept),
        groups={column: tuple(groups[column] for *_, groups in kept) for column in columns},
        kind="text",
    )
    return texts, tuple(Skipped(name, "the caption is empty") for name in blank)


def _folders(data: Path) -> Iterator[Path]:
    """DATA and the folders below it, the nearest first; not hidden ones, nor what a Mac's archive adds."""
    level = [data]
    for _ in range(_DEPTH + 1):
        yield from level
        level = [below for folder in level for below in _folders_in(folder)]


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
    except OSError:  # one that is closed to us holds nothing for us
        return []
    return [folder / name for name in sorted(names) if not name.startswith((".", "__MACOSX"))]


def _find_list(data: Path, names: Sequence[str]) -> Path:
    for folder in _folders(data):
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise RecallatkError(
        f"{data}: none of {', '.join(names)} in this folder or below; DATA is the folder that holds one of them and "
        "the pictures"
    )


def _find_pictures(data: Path, images: Sequence[Captioned]) -> tuple[Path, Callable[[Captioned], str]]:
    """The folder that most pictures lie in, by the names of the list, with its folders or without."""
    step = max(len(images) // _TRIED, 1)
    tried = images[::step]
    ways: tuple[Callable[[Captioned], str], ...] = (lambda one: one.image, lambda one: one.image.rpartition("/")[2])
    best, found = (data, ways[0]), 0
    for folder in _folders(data):
        for way in ways:
            there = sum(os.path.isfile(folder / way(one)) for one in tried)  # noqa: PTH113 - a name may be too long
            if there > found:
                best, found = (folder, way), there
        if found == len(tried):
            break
    return best


def read_karpathy(path: Path, label: str) -> Listing:
    """The test images of a file of Karpathy: `images`, each with split, filename, filepath and sentences.

    Args:
        path: the file.
        label: the field that is the image's id.

    Raises:
        RecallatkError: it is damaged, or something else.
    """
    return _test_images(path, _entries(path, "images"), label)


def read_annotated_rows(path: Path) -> Listing:
    """The test images of a table with the columns filename, split and raw, the last a JSON list of captions.

    Raises:
        RecallatkError: it is damaged, or something else.
    """
    table = read_table(path)
    if lacking := [name for name in ("filename", "split", "raw") if name not in table.columns]:
        raise RecallatkError(f"{path}: it has no column {lacking[0]}; take the official file")
    rows = zip(*(table.columns[name] for name in ("filename", "split", "raw")), strict=True)
    entries = (
        (f"{path}: {place}", {"filename": name, "split": split, "sentences": _json_texts(raw, f"{path}: {place}")})
        for place, (name, split, raw) in zip(table.places, rows, strict=True)
    )
    return _test_images(path, entries, "filename")


def _json_texts(raw: str, where: str) -> list[dict[str, object]]:
    try:
        texts = json.loads(raw)
    except (ValueError, RecursionError):
        texts = None
    if not isinstance(texts, list):
        raise RecallatkError(f"{where}: its `raw` is no JSON list of captions; take the official file")
    return [{"raw": text} for text in texts]


def _test_images(path: Path, entries: Iterable[tuple[str, Mapping[str, Any]]], label: str) -> Listing:
    found, splits = [], Counter[str]()
    for where, image in entries:
        split = _text(image, "split", where)
        splits[split] += 1
        if split != "test":
            continue
        folder, name = image.get("filepath"), _text(image, "filename", where)
        sentences = image.get("sentences")
        if not isinstance(sentences, list) or not all(isinstance(sentence, dict) for sentence in sentences):
            raise RecallatkError(f"{where}: it has no list `sentences`; take the official file")
        captions = tuple(_text(sentence, "raw", where) for sentence in sentences)
        listed = f"{folder}/{name}" if isinstance(folder, str) and folder else name
        found.append(Captioned(listed, _text(image, label, where), captions))
    aside = sum(splits.values()) - splits["test"]
    others = ", ".join(f"{split} {count:,}" for split, count in sorted(splits.items()) if split != "test")
    note = (f"{path.name}: {counted(aside, 'image')} of other splits left aside ({others})",) if aside else ()
    return Listing(_each_once(path, found), note)


def read_caption_lists(path: Path, label: Callable[[str], str]) -> Listing:
    """A list of images as ALBEF, BLIP and LAVIS have it, each with `image` and a list `caption`.

    Args:
        path: the file.
        label: a file's name, without its folder -> the image's id.

    Raises:
        RecallatkError: it is damaged, or something else.
    """
    found = []
    for where, image in _entries(path, None):
        name, captions = _text(image, "image", where), image.get("caption")
        if not isinstance(captions, list) or not all(isinstance(caption, str) for caption in captions):
            raise RecallatkError(f"{where}: its `caption` is no list of texts; take the official file")
        found.append(Captioned(name, label(name.rpartition("/")[2]), tuple(captions)))
    return Listing(_each_once(path, found))


def read_coco_captions(path: Path) -> Listing:
    """A file of captions as COCO writes them: `images` with id and file_name, `annotations` with image_id and caption.

    Raises:
        RecallatkError: it is damaged, or something else.
    """
    names = {_text(image, "id", where): _text(image, "file_name", where) for where, image in _entries(path, "images")}
    captions: dict[str, list[str]] = {image: [] for image in names}
    for where, annotation in _entries(path, "annotations"):
        image = _text(annotation, "image_id", where)
        if image not in captions:
            raise RecallatkError(f"{where}: image_id {image} is none of `images`; take the official file")
        captions[image].append(_text(annotation, "caption", where))
    found = [Captioned(name, image, tuple(captions[image])) for image, name in names.items()]
    return Listing(_each_once(path, found))


def read_rows(path: Path) -> Listing:
    """Lines of `file.jpg,caption` below a header; a caption may hold commas and quotes.

    Quotes around a caption are taken off where they are those of CSV, which stand there for a comma or a doubled quote.

    Raises:
        RecallatkError: a line is something else.
    """
    captions: dict[str, list[str]] = {}
    unquoted = 0
    for number, (where, line) in enumerate(read_lines(path)):
        row = _ROW.fullmatch(line.strip())
        if row is None:
            if number == 0:  # the header
                continue
            raise RecallatkError(f"{where}: this is no row of file.jpg,caption; take the official file")
        text = row["caption"].strip()
        inner = re.fullmatch(r'"((?:[^"]|"")*)"', text)
        if inner is not None and ("," in inner[1] or '""' in inner[1]):
            text, unquoted = inner[1].replace('""', '"'), unquoted + 1
        captions.setdefault(row["image"].strip(), []).append(text)
    notes = (f"{path.name}: {counted(unquoted, 'caption')} taken out of the quotes of CSV",) if unquoted else ()
    return Listing(tuple(Captioned(name, name, tuple(texts)) for name, texts in captions.items()), notes)


def _entries(path: Path, field: str | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The entries of a list in a JSON file, or of the list that it is, each with its place."""
    try:
        content = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise RecallatkError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise RecallatkError(f"{path}: this is no JSON ({error}); take the official file") from error
    entries = content if field is None else content.get(field) if isinstance(content, dict) else None
    if not isinstance(entries, list):
        what = "it is no list" if field is None else f"there is no list `{field}` in it"
        raise RecallatkError(f"{path}: {what}; take the official file")
    for number, entry in enumerate(entries):
        where = f"{path}: {field or ''}[{number}]"
        if not isinstance(entry, dict):
            raise RecallatkError(f"{where}: this is no object; take the official file")
        yield where, entry


def _text(entry: Mapping[str, Any], field: str, where: str) -> str:
    value = entry.get(field)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise RecallatkError(f"{where}: its `{field}` is {value!r}, not a text or a number; take the official file")
    return str(value)


def _each_once(path: Path, images: Sequence[Captioned]) -> tuple[Captioned, ...]:
    for of in ("image", "label"):
        twice = [name for name, times in Counter(getattr(one, of) for one in images).items() if times > 1]
        if twice:
            raise RecallatkError(f"{path}: the image {twice[0]} stands there twice; take the official file")
    return tuple(images)
