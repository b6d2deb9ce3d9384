"""CUB-200-2011 (Wah et al. 2011) in the split of metric learning: the classes from 101 on."""

from __future__ import annotations

from pathlib import Path

from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.files import Item, find_root, image_set, read_pairs, search_root
from recallatk.types import Dataset, OnError, RecallatkError

FOLDER = "CUB_200_2011"
NEEDED = ("images.txt", "image_class_labels.txt", "images")
OLDER = ("lists/files.txt", "images")
CLASSES = 200
FIRST_TEST_CLASS = 101


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the lists of CUB-200-2011; the label is the class id."""
    if search_root(data, FOLDER, *NEEDED) is None and search_root(data, "CUB_200", *OLDER) is not None:
        raise RecallatkError(f"{data}: this is the older CUB-200 of 2010; take {FOLDER}, whose list is images.txt")
    root = find_root(data, FOLDER, *NEEDED)
    names = read_pairs(root / "images.txt", "image id", "path")
    classes = read_pairs(root / "image_class_labels.txt", "image id", "class id")
    split = read_pairs(root / "train_test_split.txt", "image id", "is_training") if part == "official-test" else None
    items = []
    for image, name in names.items():
        if image not in classes or (split is not None and image not in split):
            file = "train_test_split.txt" if image in classes else "image_class_labels.txt"
            raise RecallatkError(f"{root / file}: nothing about image id {image} ({name}); take the official file")
        number = _number(root / "image_class_labels.txt", image, "class", classes[image], 1, CLASSES)
        if split is None:
            wanted = number >= FIRST_TEST_CLASS
        else:
            wanted = _number(root / "train_test_split.txt", image, "is_training", split[image], 0, 1) == 0
        if wanted:
            items.append(Item(f"images/{name}", str(number)))
    images, skipped = image_set(root, items, on_error=on_error)
    return Dataset(query=images, gallery=None, root=root, skipped=skipped)


def _number(file: Path, image: str, what: str, text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise RecallatkError(
            f"{file}: {what} {text} of image id {image} is no number from {least} to {most}; take the official file"
        )
    return int(text)


BENCHMARK = Benchmark(
    title="CUB-200-2011",
    summary="CUB-200-2011: birds, the classes 101 to 200, leave-one-out",
    load=load,
    files={
        "images.txt": "image id and path below images/, with a space between",
        "image_class_labels.txt": "image id and class id, likewise",
        "train_test_split.txt": "only for official-test: image id and is_training, likewise",
        "images/": "a folder for every class",
    },
    marks=NEEDED,
    archives={"97eceeb196236b17998738112f37df78": "CUB_200_2011.tgz"},
    parts={
        "dml": Part(
            summary="classes 101 to 200, official training and test images together",
            counts={"queries": 5_924, "labels": 100},
            protocol={"ks": (1, 2, 4, 8)},
            published=(
                PublishedRow(
                    "Proxy-Anchor, Inception-BN, 512 columns",
                    {"recall@1": "69.1%", "recall@2": "78.9%", "recall@4": "86.1%", "recall@8": "91.2%"},
                    "README of the Proxy-Anchor repository (CVPR 2020)",
                ),
                PublishedRow(
                    "Proxy-Anchor, ResNet-50, 512 columns",
                    {"recall@1": "69.9%", "recall@2": "79.6%", "recall@4": "86.6%", "recall@8": "91.4%"},
                    "README of the Proxy-Anchor repository (CVPR 2020)",
                ),
                PublishedRow("Unicom, ViT-B/32, zero-shot", {"recall@1": "83.7%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-B/16, zero-shot", {"recall@1": "86.5%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-L/14, zero-shot", {"recall@1": "88.5%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow(
                    "Unicom, ViT-L/14 at 336, zero-shot", {"recall@1": "89.2%"}, "README of Unicom (ICLR 2023)"
                ),
            ),
            other_counts={
                5_794: "the official test part of all 200 classes, which is not the split of metric "
                "learning: --part official-test",
                5_864: "the classes 1 to 100, which are for training",
                11_788: "all 200 classes",
                6_033: "the older CUB-200 of 2010",
            },
        ),
        "official-test": Part(
            summary="the official test images of all 200 classes, as OML and MTEB take them",
            counts={"queries": 5_794, "labels": 200},
            protocol={"ks": (1, 2, 4, 8)},
            published=(
                PublishedRow("CLIP ViT-B/32", {"recall@1": "0.52054"}, "MTEB, CUB200I2IRetrieval"),
                PublishedRow("CLIP ViT-L/14", {"recall@1": "0.7349"}, "MTEB, CUB200I2IRetrieval"),
                PublishedRow("DINOv2-base", {"recall@1": "0.85744"}, "MTEB, CUB200I2IRetrieval"),
                PublishedRow("SigLIP-B/16", {"recall@1": "0.68605"}, "MTEB, CUB200I2IRetrieval"),
            ),
        ),
    },
    traps=(
        "`train_test_split.txt` is the split for classification: 5,794 test images of all 200 classes. OML's converter "
        "and MTEB evaluate on it; their numbers and those of metric learning cannot be compared.",
        "The older CUB-200 of 2010 has the same style of folders and other images; it lists them in lists/files.txt. "
        "The download link in the README of the Proxy-Anchor repository is of that one.",
        "Some 22 test images of the official split are in ImageNet's training set too.",
        "Copies made on a Mac have `._` files beside the images; the lists do not name them, so they are not read.",
    ),
)
