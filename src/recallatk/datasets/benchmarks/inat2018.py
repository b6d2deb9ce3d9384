"""iNaturalist 2018 (Van Horn et al. 2018) in the split of metric learning that came with Smooth-AP (2020)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path, PurePosixPath

from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.benchmarks.files import Item, find_root, first_there, folder_of_pictures, image_set, read_lines
from recallatk.types import Dataset, OnError, RecallatkError
from recallatk.wording import counted

FOLDER = "Inaturalist"
LISTS = (
    "Inat_dataset_splits/Inaturalist_test_set1.txt",
    "Inaturalist_test_set1.txt",
    "train_val2018/Inaturalist_test_set1.txt",
)
PICTURES = "train_val2018"


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read Smooth-AP's list of the test images; the label is the folder of the category."""
    root = find_root(data, FOLDER, LISTS, PICTURES)
    file = first_there(root, *LISTS) or root / LISTS[0]
    paths = [_path(where, line) for where, line in read_lines(file)]
    above: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        above[path.parts[-2]].add(path.parts[-3])
    items = []
    for path in paths:
        super_category, category, _ = path.parts[-3:]
        label = category if len(above[category]) == 1 else f"{super_category}/{category}"
        items.append(Item(str(path), label))
    repeated = [category for category, those in above.items() if len(those) > 1]
    notes = [
        f"{counted(len(repeated), 'category name is', 'category names are')} in several super-categories (such as "
        f"{category!r}): the label is super-category/category"
        for category in repeated[:1]
    ]
    base = folder_of_pictures(root, (item.path for item in items), "", PICTURES)  # some tools unpack it twice
    images, skipped = image_set(base, items, on_error=on_error)
    return Dataset(query=images, gallery=None, root=base, skipped=skipped, notes=tuple(notes))


def _path(where: str, line: str) -> PurePosixPath:
    path = PurePosixPath(line.strip())
    if len(path.parts) < 4 or path.parts[0] != PICTURES:
        raise RecallatkError(
            f"{where} is not {PICTURES}/SUPER-CATEGORY/CATEGORY/IMAGE ({line.strip()!r}); take the official file"
        )
    return path


BENCHMARK = Benchmark(
    title="iNaturalist 2018",
    summary="iNaturalist 2018: species, the test classes of Smooth-AP's split, leave-one-out",
    load=load,
    files={
        "Inat_dataset_splits/Inaturalist_test_set1.txt": "a path on each line; it may also lie at the top",
        "train_val2018/": "a folder for every super-category, in it one for every category",
    },
    marks=(LISTS, PICTURES),
    archives={
        "b1c6952ce38f31868cc50ea72d066cc3": "train_val2018.tar.gz",
        "bfa29d89d629cbf04d826a720c0a68b0": "train2018.json.tar.gz",
        "f2ed8bfe3e9901cdefceb4e53cd3775d": "val2018.json.tar.gz",
    },
    parts={
        "dml": Part(
            summary="the images of Inaturalist_test_set1.txt, from the official training and validation images",
            counts={"queries": 136_093, "labels": 2_452},
            protocol={"ks": (1, 4, 16, 32)},
            published=(
                PublishedRow("Unicom, ViT-B/32, zero-shot", {"recall@1": "64.6%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-B/16, zero-shot", {"recall@1": "73.6%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-L/14, zero-shot", {"recall@1": "77.1%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow(
                    "Unicom, ViT-L/14 at 336, zero-shot", {"recall@1": "81.0%"}, "README of Unicom (ICLR 2023)"
                ),
                PublishedRow("Unicom, ViT-B/32, supervised", {"recall@1": "72.8%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-B/16, supervised", {"recall@1": "82.5%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow("Unicom, ViT-L/14, supervised", {"recall@1": "85.4%"}, "README of Unicom (ICLR 2023)"),
                PublishedRow(
                    "Unicom, ViT-L/14 at 336, supervised", {"recall@1": "88.9%"}, "README of Unicom (ICLR 2023)"
                ),
            ),
            other_counts={
                325_846: "Inaturalist_train_set1.txt, which is for training",
                461_939: "both lists together",
            },
        ),
    },
    traps=(
        "The split of classes is Smooth-AP's own. The official validation set of 2018 has all 8,142 classes, which "
        "were trained on, and is another task.",
        "The label is the folder of the category, not the super-category above it.",
        "iNaturalist 2018 and the sets of 2017, 2019 and 2021 have other images under the same kind of folders.",
    ),
)
