"""What Revisited Oxford and Paris share: the ground truth, the boxes of the queries and the three levels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recallatk.datasets.benchmarks.files import Item, find_root, image_set
from recallatk.datasets.benchmarks.matlab import read_matlab
from recallatk.datasets.benchmarks.pickles import read_plain_pickle
from recallatk.datasets.walk import walk_images
from recallatk.images import box_suffix, is_image_name
from recallatk.types import Box, Dataset, OnError, Qrels, RecallatkError

LEVELS = ("easy", "hard", "junk")
FOLDERS = ("jpg", "images")
"""Where the images lie; without such a folder they are looked for everywhere below the root."""

METRICS = ("map_trapezoid", "mp@1", "mp@5", "mp@10")

PARTS = {
    "medium": "easy and hard images are right, junk is ignored; the usual one, as nothing that is right is ignored",
    "easy": "easy images are right, hard ones and junk are ignored",
    "hard": "hard images are right, easy ones and junk are ignored",
}
"""The evaluations, and what they are."""

TRAPS = (
    "The queries are cropped to their boxes first. Box edges are rounded to whole pixels as Pillow's crop does it, and "
    "so revisitop in Python: to the nearest, a half to the even one (136.5 is 136, 34.5 is 34, 35.5 is 36); revisitop "
    "in MATLAB takes a row and a column more. A box that leaves its picture is an error here; Pillow would fill it up "
    "with black.",
    "What the level does not ask for is ignored: it leaves the ranking, and those behind move up.",
    "A query without a right image of the level is left out. Where MTEB keeps it as a miss, its values are lower.",
    "mAP is by the trapezoid (map_trapezoid), and mP@k stops at the last right image (mp@k). Easy, Medium and Hard are "
    "three numbers; a mean of them is none of this protocol.",
    "Since June 2022 the archives (v1) show blurred faces; older numbers are of the pictures without.",
    "revisitop does not turn pictures by their EXIF orientation: --exif ignore does as it does.",
    "The million distractors (R1M) are not read.",
)


def protocol(level: str) -> dict[str, Any]:
    """The fields of the protocol for a level."""
    return {"ks": (1, 5, 10), "relevance": "qrels", "level": level}


@dataclasses.dataclass(frozen=True)
class Truth:
    """The ground truth.

    Attributes:
        gallery: names of images, without suffix.
        queries: the same for the queries.
        boxes: the box of each query.
        judged: for each query, level -> places in `gallery`.
    """

    gallery: tuple[str, ...]
    queries: tuple[str, ...]
    boxes: tuple[Box, ...]
    judged: tuple[Mapping[str, Sequence[int]], ...]


def load_revisited(data: Path, folder: str, name: str, *, on_error: OnError) -> Dataset:
    """Read a revisited set.

    Args:
        data: DATA.
        folder: what its folder is called.
        name: what its ground truth is called, without suffix.
        on_error: as for every layout.
    """
    forms = (f"{name}.mat", f"{name}.pkl")
    root = find_root(data, folder, forms)
    path = next(root / form for form in forms if (root / form).exists())
    truth = read_truth(path)
    paths = _find_images(root, {*truth.gallery, *truth.queries})
    items = [Item(paths[query], box=box) for query, box in zip(truth.queries, truth.boxes, strict=True)]
    queries, query_skipped = image_set(root, items, on_error=on_error, side="query")
    gallery, gallery_skipped = image_set(
        root, [Item(paths[image]) for image in truth.gallery], on_error=on_error, side="gallery image"
    )
    pairs = [
        (f"{item.path}{box_suffix(box)}", paths[truth.gallery[place]], level)
        for item, box, judged in zip(items, truth.boxes, truth.judged, strict=True)
        for level in LEVELS
        for place in judged[level]
    ]
    return Dataset(
        query=queries,
        gallery=gallery,
        root=root,
        skipped=(*query_skipped, *gallery_skipped),
        qrels=Qrels(
            query_ids=tuple(query for query, _, _ in pairs),
            gallery_ids=tuple(image for _, image, _ in pairs),
            grades=np.ones(len(pairs), dtype=np.int64),
            levels=tuple(level for _, _, level in pairs),
        ),
    )


def read_truth(path: Path) -> Truth:
    """Read a ground truth, of MATLAB (.mat) or pickled (.pkl); the former counts from 1, boxes count from 0 in both.

    Raises:
        RecallatkError: the file is none, or what it says does not hold together.
    """
    is_matlab = path.suffix == ".mat"
    found = read_matlab(path, simplify_cells=True) if is_matlab else read_plain_pickle(path)
    absent = [key for key in ("imlist", "qimlist", "gnd") if not isinstance(found, Mapping) or key not in found]
    if absent:
        raise _wrong(path, f"there is no {' and no '.join(absent)} in it")
    gallery, queries = _names(path, found["imlist"], "imlist"), _names(path, found["qimlist"], "qimlist")
    entries = [found["gnd"]] if isinstance(found["gnd"], Mapping) else _flat(found["gnd"])
    if len(entries) != len(queries):
        raise _wrong(path, f"it has {len(entries)} entries in gnd for {len(queries)} queries")
    boxes, judged = [], []
    for query, entry in zip(queries, entries, strict=True):
        if not isinstance(entry, Mapping):
            raise _wrong(path, f"its entry for {query} is no set of lists")
        boxes.append(_box(path, query, entry.get("bbx", ())))
        judged.append(_places(path, query, entry, first=1 if is_matlab else 0, n=len(gallery)))
    return Truth(gallery, queries, tuple(boxes), tuple(judged))


def _wrong(path: Path, what: str) -> RecallatkError:
    return RecallatkError(f"{path}: {what}; take the official file of revisitop")


def _flat(values: Any) -> list[Any]:
    """Values that MATLAB, numpy or Python hold, as a list; one alone is a list of one."""
    if isinstance(values, np.ndarray):
        return list(values.ravel())
    return list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]


def _names(path: Path, values: Any, what: str) -> tuple[str, ...]:
    names = [name.decode("latin1") if isinstance(name, bytes) else name for name in _flat(values)]
    if not names or not all(isinstance(name, str) for name in names):
        raise _wrong(path, f"its {what} is no list of names")
    names = [name.strip().rpartition(".")[0] if is_image_name(name.strip()) else name.strip() for name in names]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None and what == "imlist":
        raise _wrong(path, f"its imlist names {twice} twice")
    return tuple(names)


def _box(path: Path, query: str, values: Any) -> Box:
    try:
        left, top, right, bottom = (round(float(value)) for value in _flat(values))
    except (TypeError, ValueError, OverflowError) as error:
        raise _wrong(path, f"the bbx of {query} is not four numbers") from error
    if left >= right or top >= bottom:
        raise _wrong(path, f"the bbx of {query} holds no pixel ({left}, {top}, {right}, {bottom})")
    return left, top, right, bottom


def _as_place(value: Any) -> int:
    if int(value) != value:
        raise ValueError(f"{value!r} is no whole number")
    return int(value)


def _places(path: Path, query: str, entry: Mapping[str, Any], *, first: int, n: int) -> dict[str, list[int]]:
    absent = [level for level in LEVELS if level not in entry]
    if absent:
        original = "; ok instead is the ground truth of the original set" if "ok" in entry else ""
        raise _wrong(path, f"its entry for {query} has no {' and no '.join(absent)}{original}")
    judged: dict[str, list[int]] = {}
    for level in LEVELS:
        try:
            judged[level] = [_as_place(place) - first for place in _flat(entry[level])]
        except (TypeError, ValueError) as error:
            raise _wrong(path, f"its {level} of {query} is no list of places in imlist") from error
        outside = [place + first for place in judged[level] if not 0 <= place < n]
        if outside:
            raise _wrong(path, f"its {level} of {query} names place {outside[0]} of the {n:,} in imlist")
    places = [place for level in LEVELS for place in judged[level]]
    if len(set(places)) < len(places):
        raise _wrong(path, f"an image is judged twice for {query}")
    return judged


def _find_images(root: Path, names: set[str]) -> dict[str, str]:
    """Name -> path below the root; of a name that several folders have, the least deep one."""
    folder = next((folder for folder in FOLDERS if (root / folder).is_dir()), "")
    found: dict[str, list[str]] = {}
    for image in walk_images(root / folder).images:
        name = image.below.rpartition("/")[2].rpartition(".")[0]
        if name in names:
            found.setdefault(name, []).append(f"{folder}/{image.below}" if folder else image.below)
    paths = {}
    for name in names:
        places = sorted(found.get(name, [f"{FOLDERS[0]}/{name}.jpg"]), key=lambda path: path.count("/"))
        if len(places) > 1 and places[0].count("/") == places[1].count("/"):
            raise RecallatkError(f"{root}: {places[0]} and {places[1]} are both called {name}; keep one")
        paths[name] = places[0]
    return paths
