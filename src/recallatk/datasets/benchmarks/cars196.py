"""Cars-196 (Krause et al. 2013) in the split of metric learning: classes 99 on, in any of its distributions."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from recallatk.datasets.benchmarks.description import Benchmark, Needed, Part, PublishedRow
from recallatk.datasets.benchmarks.files import Item, first_there, image_set, read_fields, read_lines, search_root
from recallatk.datasets.benchmarks.matlab import read_structs
from recallatk.types import Dataset, OnError, RecallatkError
from recallatk.wording import counted

FOLDER = "stanford_cars"
CLASSES = 196
FIRST_TEST_CLASS = 99
KAGGLE_COLUMNS = ("fname", "x1", "y1", "x2", "y2", "class")


@dataclasses.dataclass(frozen=True)
class _Car:
    """One image: its path below the root, its class, and whether it is an official test image."""

    path: str
    number: int
    test: bool


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read Cars-196 in the distribution that is there; the label is the class id, the same in all of them."""
    roots = {name: search_root(data, FOLDER, *needed) for name, (needed, _) in DISTRIBUTIONS.items()}
    found = {name: root for name, root in roots.items() if root is not None}
    if not found:
        raise RecallatkError(
            f"{data}: no Cars-196 in this folder; DATA is the folder that holds {', or '.join(DISTRIBUTIONS)}"
        )
    name, root = next(iter(found.items()))
    cars = DISTRIBUTIONS[name][1](root)
    items = [Item(car.path, str(car.number)) for car in cars if _is_wanted(car, part)]
    aside = counted(len(cars) - len(items), "image")
    where = f"of the classes 1 to {FIRST_TEST_CLASS - 1}" if part == "dml" else "of the official training part"
    others = ", ".join(other for other in found if other != name)
    images, skipped = image_set(root, items, on_error=on_error)
    return Dataset(
        query=images,
        gallery=None,
        root=root,
        skipped=skipped,
        notes=(
            f"{aside} {where} left aside",
            *([f"read as {name}; what is there too is left aside: {others}"] if others else []),
        ),
    )


def _is_wanted(car: _Car, part: str) -> bool:
    return car.number >= FIRST_TEST_CLASS if part == "dml" else car.test


def _read_single_folder(root: Path) -> list[_Car]:
    """All images in car_ims/, with one list."""
    file, folder = root / "cars_annos.mat", _unpacked(root, "car_ims")
    rows = read_structs(file, "annotations", {"relative_im_path": str, "class": int, "test": int})
    for where, (_, _, test) in rows:
        if test not in (0, 1):
            raise RecallatkError(f"{where}: test is {test}, not 0 or 1; take the official file")
    return [
        _Car(f"{folder}/{path.rpartition('/')[2]}", _class(where, number), bool(test))
        for where, (path, number, test) in rows
    ]


def _read_two_folders(root: Path) -> list[_Car]:
    """The official parts in cars_train/ and cars_test/, whose file names are the same, with a list each."""
    cars = []
    for folder, name in (("cars_train", "cars_train_annos.mat"), ("cars_test", "cars_test_annos_withlabels.mat")):
        file = first_there(root, *(f"{place}{name}" for place in ("devkit/", "", "car_devkit/devkit/", "car_devkit/")))
        if file is None:
            bare = " (cars_test_annos.mat has no classes)" if folder == "cars_test" else ""
            raise RecallatkError(f"{root}: no {name} in devkit/ or beside {folder}/{bare}; add the official file")
        below = _unpacked(root, folder)
        for where, (picture, number) in read_structs(file, "annotations", {"fname": str, "class": int}):
            cars.append(_Car(f"{below}/{picture.rpartition('/')[2]}", _class(where, number), folder == "cars_test"))
    return cars


def _read_class_folders(root: Path) -> list[_Car]:
    """Class folders in car_data/train/ and car_data/test/, with a table each."""
    names = [line.strip().strip('"') for _, line in read_lines(root / "names.csv")]
    cars = []
    for side in ("train", "test"):
        likely = [f"{outer}{side}" for outer in ("car_data/car_data/", "car_data/", "")]
        folder = next((one for one in likely if (root / one).is_dir()), likely[0])
        places = _class_folders(root / folder)
        for where, fields in read_fields(root / f"anno_{side}.csv", *KAGGLE_COLUMNS, separator=","):
            picture, *_, class_id = (field.strip('"') for field in fields)
            if class_id == "class":  # a header, which the usual copy does not have
                continue
            number = _class(where, int(class_id) if class_id.isdecimal() else class_id)
            name = names[number - 1] if number <= len(names) else f"class {number}"
            there = places.get(picture, [])
            # The folder of a name with a slash (Ram C/V Cargo Van) is called otherwise, so letters and digits decide.
            alike = [one for one in there if _letters(one) == _letters(name)]
            if len(there) > 1 and len(alike) != 1:
                raise RecallatkError(
                    f"{where}: {picture} lies in {' and '.join(there)} of {root / folder}, and names.csv says {name!r} "
                    f"for class {number}; take the official folders"
                )
            place = (alike or there or [name.replace("/", "-")])[0]
            cars.append(_Car(f"{folder}/{place}/{picture}", number, side == "test"))
    return cars


def _class_folders(folder: Path) -> dict[str, list[str]]:
    """File name -> the class folders that have such a file."""
    places = defaultdict(list)
    for one in sorted(folder.iterdir()) if folder.is_dir() else ():
        if one.is_dir():
            for picture in one.iterdir():
                places[picture.name].append(one.name)
    return places


def _letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _unpacked(root: Path, folder: str) -> str:
    """The folder of images, which some tools unpack into a folder of the same name."""
    return f"{folder}/{folder}" if (root / folder / folder).is_dir() else folder


def _class(where: str, number: int | str) -> int:
    if not isinstance(number, int) or not 1 <= number <= CLASSES:
        raise RecallatkError(f"{where}: class {number} is none of 1 to {CLASSES}; take the official file")
    return number


DISTRIBUTIONS: dict[str, tuple[tuple[Needed, ...], Callable[[Path], list[_Car]]]] = {
    "car_ims/ with cars_annos.mat": (("cars_annos.mat", "car_ims"), _read_single_folder),
    "cars_train/ and cars_test/ with the devkit": (("cars_train", "cars_test"), _read_two_folders),
    "car_data/ with anno_train.csv, anno_test.csv and names.csv": (
        ("anno_train.csv", "anno_test.csv", "names.csv"),
        _read_class_folders,
    ),
}
"""What the benchmark was distributed as -> what tells it, and how it is read."""

BENCHMARK = Benchmark(
    title="Cars-196",
    summary="Cars-196: car models, the classes 99 to 196, leave-one-out",
    load=load,
    files={
        "car_ims/ and cars_annos.mat": "one distribution: all images, and path, box, class and test of each",
        "cars_train/, cars_test/, devkit/cars_train_annos.mat and cars_test_annos_withlabels.mat": "or another: the "
        "official parts, and box, class and file name of each image (the last file in devkit/ or at the top)",
        "car_data/car_data/train/ and test/, anno_train.csv, anno_test.csv and names.csv": "or that of Kaggle: a "
        "folder for every class; file name, box and class of each image; the names of the classes",
    },
    archives={
        "d5c8f0aa497503f355e17dc7886c3f14": "car_ims.tgz",
        "065e5b463ae28d29e77c1b4b166cfe61": "cars_train.tgz",
        "4ce7ebf6a94d07f1952d94dd34c4d501": "cars_test.tgz",
        "c3b158d763b6e2245038c8ad08e45376": "car_devkit.tgz",
    },
    marks=(("cars_annos.mat", "cars_test", "anno_test.csv"), ("car_ims", "cars_train", "names.csv")),
    parts={
        "dml": Part(
            summary="classes 99 to 196, official training and test images together",
            counts={"queries": 8_131, "labels": 98},
            protocol={"ks": (1, 2, 4, 8)},
            published=(
                PublishedRow(
                    "Proxy-Anchor, Inception-BN, 512 columns",
                    {"recall@1": "86.4%", "recall@2": "91.9%", "recall@4": "95.0%", "recall@8": "97.0%"},
                    "README of the Proxy-Anchor repository (CVPR 2020)",
                ),
                PublishedRow(
                    "Proxy-Anchor, ResNet-50, 512 columns",
                    {"recall@1": "87.7%", "recall@2": "92.7%", "recall@4": "95.5%", "recall@8": "97.3%"},
                    "README of the Proxy-Anchor repository (CVPR 2020)",
                ),
                PublishedRow("Unicom, ViT-B/32, zero-shot", {"recall@1": "95.9%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-B/16, zero-shot", {"recall@1": "96.8%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-L/14, zero-shot", {"recall@1": "96.9%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow(
                    "Unicom, ViT-L/14 at 336, zero-shot", {"recall@1": "97.3%"}, "README of Unicom (ICLR 2023)"
                ),
            ),
            other_counts={
                8_041: "the official test part of all 196 classes, which is not the split of metric "
                "learning: --part official-test",
                8_054: "the classes 1 to 98, which are for training",
                16_185: "all 196 classes",
            },
        ),
        "official-test": Part(
            summary="the official test images of all 196 classes, as OML and MTEB take them",
            counts={"queries": 8_041, "labels": 196},
            protocol={"ks": (1, 2, 4, 8)},
            other_counts={
                8_144: "the official training part",
                8_131: "the classes 99 to 196: --part dml",
            },
        ),
    },
    traps=(
        "The split into cars_train and cars_test is the one for classification, of all 196 classes. Metric learning "
        "pools both and cuts by class; numbers on the one and on the other cannot be compared.",
        "cars_train/00001.jpg and cars_test/00001.jpg are two images; in one folder one overwrites the other.",
        "cars_test_annos.mat has no classes; they are in cars_test_annos_withlabels.mat, a download of its own.",
        "Classes count from 1. Where a copy counts from 0, the cut at 99 is off by one class; such a copy is refused.",
        "The official host has been gone since 2023, and mirrors rename and sort the files anew.",
    ),
)
