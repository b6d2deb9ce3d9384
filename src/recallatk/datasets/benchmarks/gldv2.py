"""Google Landmarks v2 (Weyand et al. 2020), retrieval: a list of index images for each query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.files import Item, find_root, image_set, read_fields, read_lines
from recallatk.types import Dataset, OnError, Qrels, RecallatkError
from recallatk.wording import counted

FOLDER = "google-landmark"
SOLUTION = "retrieval_solution_v2.1.csv"
INDEX = ("index.csv", "index_image_to_landmark.csv")
LISTS = ("", "metadata", "ground_truth", "index", "test")
"""Where below the root the lists lie in one copy or another."""

USAGES = {"private": ("Private",), "public": ("Public",), "both": ("Private", "Public")}
IGNORED = "Ignored"
PROTOCOL: dict[str, Any] = {"ks": (1, 10, 100), "relevance": "qrels", "no_positive": "miss"}
METRICS = ("map_capped@100",)


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the solution and the list of the index; images are named after their ids."""
    root = find_root(data, FOLDER, "index", "test")
    solution, notes = _read_solution(_find_list(root, SOLUTION), USAGES[part])
    index = _read_index(_find_list(root, *INDEX))
    queries, query_skipped = image_set(
        root, [Item(_path_of("test", query)) for query in solution], on_error=on_error, side="query"
    )
    gallery, gallery_skipped = image_set(
        root, [Item(_path_of("index", image)) for image in index], on_error=on_error, side="index image"
    )
    pairs = [(query, image) for query, images in solution.items() for image in images]
    return Dataset(
        query=queries,
        gallery=gallery,
        root=root,
        skipped=(*query_skipped, *gallery_skipped),
        qrels=Qrels(
            query_ids=tuple(_path_of("test", query) for query, _ in pairs),
            gallery_ids=tuple(_path_of("index", image) for _, image in pairs),
            grades=np.ones(len(pairs), dtype=np.int64),
        ),
        notes=tuple(notes),
        warnings=_of_another_index(solution, set(index)),
    )


def _path_of(folder: str, image: str) -> str:
    return f"{folder}/{image[0]}/{image[1]}/{image[2]}/{image}.jpg"


def _find_list(root: Path, *names: str) -> Path:
    places = [root / folder / name for name in names for folder in LISTS]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise RecallatkError(
            f"{root}: no {' and no '.join(names)} in it, nor in its folders metadata, index and test; put the official "
            "file there"
        )
    return found


def _as_id(image: str, where: str) -> str:
    if len(image) < 3 or not image.isalnum():  # the folders are its first three characters
        raise RecallatkError(f"{where}: {image!r} is no id of an image (16 letters and digits); take the official file")
    return image


def _read_solution(path: Path, usages: tuple[str, ...]) -> tuple[dict[str, list[str]], list[str]]:
    """Query id -> its relevant ids, and notes on the rows that are left aside."""
    rows = read_fields(path, "id", "images", "Usage", separator=",")
    where, header = next(rows, (f"{path}: line 1", []))
    if header != ["id", "images", "Usage"]:
        raise RecallatkError(f"{where}: the header is not id,images,Usage; take the official {SOLUTION}")
    solution: dict[str, list[str]] = {}
    ignored, others, seen = 0, 0, set()
    for where, (name, images, usage) in rows:
        query = _as_id(name, where)
        if query in seen:
            raise RecallatkError(f"{where}: the query {query} stands there twice; take the official file")
        seen.add(query)
        if usage == IGNORED:
            ignored += 1
        elif usage not in USAGES["both"]:
            raise RecallatkError(f"{where}: the Usage is {usage!r}, not Public, Private or {IGNORED}; take {SOLUTION}")
        elif images in ("", "None"):
            ignored += 1
        else:
            relevant = [_as_id(image, where) for image in dict.fromkeys(images.split())]
            if usage in usages:
                solution[query] = relevant
            others += usage not in usages
    if not solution:
        raise RecallatkError(f"{path}: no row whose Usage is {' or '.join(usages)}; take the official {SOLUTION}")
    notes = [f"{path.name}: {counted(ignored, 'row')} marked {IGNORED} left aside"] if ignored else []
    notes += [f"{path.name}: {counted(others, 'query', 'queries')} of the other part left aside"] if others else []
    return solution, notes


def _read_index(path: Path) -> list[str]:
    lines = read_lines(path)
    where, header = next(lines, (f"{path}: line 1", ""))
    if header.split(",")[0].strip() != "id":
        raise RecallatkError(f"{where}: the header does not begin with id; take the official {path.name}")
    return [_as_id(line.split(",")[0].strip(), where) for where, line in lines]


def _of_another_index(solution: dict[str, list[str]], index: set[str]) -> tuple[str, ...]:
    """A warning where the solution names images that the list of the index does not."""
    absent = {query: [image for image in images if image not in index] for query, images in solution.items()}
    absent = {query: images for query, images in absent.items() if images}
    if not absent:
        return ()
    query, images = next(iter(absent.items()))
    return (
        f"{counted(len(absent), 'query has', 'queries have')} relevant images that the list of the index does not name "
        f"(such as {query}: {images[0]}): the official divisor counts them, this one cannot; take both files from one "
        "version",
    )


_SMLYAKA = ("smlyaka, first in the 2019 challenge, scored anew on v2.1", "README of cvdfoundation/google-landmark")
_UNICOM = ("Unicom, ViT-L/14 at 512", "README of Unicom (ICLR 2023)")


def _part(summary: str, queries: int, smlyaka: str | None = None, unicom: str | None = None) -> Part:
    rows = ((_SMLYAKA, smlyaka), (_UNICOM, unicom))
    return Part(
        summary=summary,
        counts={"queries": queries, "gallery": 761_757},
        protocol=PROTOCOL,
        metrics=METRICS,
        published=[PublishedRow(system, {METRICS[0]: digits}, source) for (system, source), digits in rows if digits],
        other_counts={
            117_577: "test/, of which the most are Ignored by the solution",
            4_132_914: "the training set",
        },
    )


BENCHMARK = Benchmark(
    title="Google Landmarks v2, retrieval",
    summary="Google Landmarks v2: the queries of the solution v2.1 against the 761,757 images of the index",
    load=load,
    files={
        SOLUTION: "id, images (the relevant ids, parted by blanks), Usage; here or in metadata/ or test/",
        "index.csv": "the ids of the index; index_image_to_landmark.csv will do",
        "index/": "a/b/c/<id>.jpg, the folders being the first three characters of the id",
        "test/": "the same for the queries",
    },
    marks=("index/?/?/?", "test/?/?/?"),
    parts={
        "private": _part("the Private queries of the 2019 challenge", 750, "37.14%", "36.4%"),
        "public": _part("the Public queries of the 2019 challenge", 379, "35.63%", "33.1%"),
        "both": _part("Private and Public queries together", 1_129),
    },
    traps=(
        "Landmark ids of the training set and of the index are different numbers, and queries have none: what is "
        "relevant is the solution's list alone.",
        "The solution that Kaggle scored by in 2019 is another ground truth than v2.1; its values cannot be compared.",
        "mAP@100 divides by the smaller of 100 and the number of relevant images (map_capped@100); map@100 does not.",
        "Rows marked Ignored are no queries: of the 117,577 test images 1,129 are left, usually parted as 750 and 379.",
    ),
)
