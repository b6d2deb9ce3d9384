"""Stanford Online Products (Oh Song et al. 2016): every photo of a product is to find the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.files import (
    Item,
    find_root,
    first_there,
    folder_of_pictures,
    image_set,
    read_fields,
)
from recallatk.types import Dataset, OnError, RecallatkError

FOLDER = "Stanford_Online_Products"
HEADER = ("image_id", "class_id", "super_class_id", "path")
TRAIN, TEST = (("Ebay_train.txt", "Info_Files/Ebay_train.txt"), ("Ebay_test.txt", "Info_Files/Ebay_test.txt"))
LISTS = {"test": (TEST,), "all": (TRAIN, TEST)}


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the lists of Stanford Online Products; the label is the class id, which is the product."""
    root = find_root(data, FOLDER, *LISTS[part])
    items = [item for names in LISTS[part] for item in _listed(first_there(root, *names) or root / names[0])]
    base = folder_of_pictures(root, (item.path for item in items), "", "images", FOLDER)
    images, skipped = image_set(base, items, on_error=on_error)
    return Dataset(query=images, gallery=None, root=base, skipped=skipped)


def _listed(file: Path) -> Iterator[Item]:
    for where, fields in read_fields(file, *HEADER):
        if tuple(fields) == HEADER:
            continue
        _, product, _, path = fields
        if not product.isdecimal():
            raise RecallatkError(f"{where}: class_id {product!r} is not a number; take the official file")
        yield Item(path, str(int(product)))


BENCHMARK = Benchmark(
    title="Stanford Online Products",
    summary="Stanford Online Products: photos of offers, the test products, leave-one-out",
    load=load,
    files={
        "Ebay_test.txt": "a header, then image id, class id, super class id and path, with spaces between; "
        "it may also lie in Info_Files/",
        "Ebay_train.txt": "only for all: likewise",
        "bicycle_final/, ...": "a folder for every super class; they may also lie in images/",
    },
    marks=(TEST, TRAIN),
    archives={"7f73d41a2f44250d4779881525aea32e": "Stanford_Online_Products.zip"},
    parts={
        "test": Part(
            summary="the products of Ebay_test.txt",
            counts={"queries": 60_502, "labels": 11_316},
            protocol={"ks": (1, 10, 100, 1000)},
            published=(
                PublishedRow(
                    "Proxy-Anchor, Inception-BN, 512 columns",
                    {"recall@1": "79.2%", "recall@10": "90.7%", "recall@100": "96.2%", "recall@1000": "98.6%"},
                    "README of the Proxy-Anchor repository (CVPR 2020)",
                ),
                PublishedRow("Unicom, ViT-B/32, zero-shot", {"recall@1": "70.0%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-B/16, zero-shot", {"recall@1": "70.4%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-L/14, zero-shot", {"recall@1": "72.7%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow(
                    "Unicom, ViT-L/14 at 336, zero-shot", {"recall@1": "74.5%"}, "README of Unicom (ICLR 2023)"
                ),
                PublishedRow("Unicom, ViT-B/32, supervised", {"recall@1": "87.1%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-B/16, supervised", {"recall@1": "88.8%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-L/14, supervised", {"recall@1": "89.9%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow(
                    "Unicom, ViT-L/14 at 336, supervised", {"recall@1": "91.2%"}, "README of Unicom (ICLR 2023)"
                ),
            ),
            other_counts={
                59_551: "Ebay_train.txt, which is for training",
                120_053: "both lists together: --part all",
            },
        ),
        "all": Part(
            summary="all products, those for training too, as MTEB takes them",
            counts={"queries": 120_053, "labels": 22_634},
            protocol={"ks": (1, 10, 100, 1000)},
            published=(
                PublishedRow("CLIP ViT-B/32", {"recall@1": "0.48561"}, "MTEB, SOPI2IRetrieval"),
                PublishedRow("DINOv2-base", {"recall@1": "0.4813"}, "MTEB, SOPI2IRetrieval"),
            ),
            other_counts={
                60_502: "Ebay_test.txt alone: --part test",
                59_551: "Ebay_train.txt alone",
            },
        ),
    },
    traps=(
        "The folder of an image is its super class, of which there are 12; the label is `class_id`. Read as class "
        "folders it is another, easier task.",
        "MTEB evaluates the training products too: 120,053 queries, of which no number fits one of metric learning.",
        "In MTEB's result files of version 1.14.15 precision_at_1 counts the query itself and is nearly 1; what it "
        "reports is cv_recall_at_1.",
    ),
)
