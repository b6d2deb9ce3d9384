"""COCO captions (Chen et al. 2015): images and their captions, in Karpathy's split, all at once or in five folds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path

from recallatk.datasets.benchmarks.captions import (
    DIRECTIONS,
    FOLDS,
    IMAGE_TO_TEXT,
    TEXT_TO_IMAGE,
    Reader,
    load_captions,
    read_caption_lists,
    read_coco_captions,
    read_karpathy,
)
from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.types import Dataset, OnError, View

KARPATHY = "dataset_coco.json"
OPEN_CLIP = "open_clip, table of retrieval results"
OTHER_COUNTS = {
    25_000: "five captions of each image, where a few images have more",
    25_014: "the captions of val2017, which are other images",
}
TEXTS_TO_IMAGES = {"queries": 25_010, "gallery": 5_000, "labels": 5_000}
IMAGES_TO_TEXTS = {"queries": 5_000, "gallery": 25_010, "labels": 5_000}

OF_FOLD: Mapping[str, View] = {
    f"1k-{direction}-{fold}": dataclasses.replace(view, fold=f"{fold}", mean_of=f"1k-{direction}")
    for direction, view in DIRECTIONS.items()
    for fold in range(1, FOLDS + 1)
}


def _coco_id(name: str) -> str:
    """The id that COCO gave an image, from the name of its file.

    >>> _coco_id("COCO_val2014_000000391895.jpg")
    '391895'
    """
    number = Path(name).stem.rpartition("_")[2]
    return str(int(number)) if number.isdecimal() else name


READERS: Mapping[str, Reader] = {
    KARPATHY: functools.partial(read_karpathy, label="cocoid"),
    "coco_test_karpathy.json": read_coco_captions,
    "coco_karpathy_test.json": functools.partial(read_caption_lists, label=_coco_id),
}


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the test images and their captions; the label is the id that COCO gave the image."""
    view = {**DIRECTIONS, "1k-image-to-text": View(swapped=True), **OF_FOLD}.get(part)
    folds = KARPATHY if part.startswith("1k") else ""
    return load_captions(data, READERS, view=view, folds=folds, on_error=on_error)


def _folds_of(direction: str) -> dict[str, View]:
    """The folds of one direction, for sides that are in their roles of it already."""
    views = {name: view for name, view in OF_FOLD.items() if view.mean_of == f"1k-{direction}"}
    return {name: dataclasses.replace(view, swapped=False) for name, view in views.items()}


def _of_fold(view: View) -> Part:
    found = {"gallery": 1_000} if not view.swapped else {"queries": 1_000}
    return Part(
        summary=f"fold {view.fold} of {FOLDS}: 1,000 images with their captions",
        counts={**found, "labels": 1_000},
        protocol={"ks": (1, 5, 10)},
        within=view.mean_of,
    )


BENCHMARK = Benchmark(
    title="COCO captions",
    summary="COCO: 5,000 test images of Karpathy's split and their captions, from text to image and back; 5K and 1K",
    load=load,
    files={
        KARPATHY: "Karpathy's list of images, splits and captions; its order makes the folds of 1K",
        "coco_test_karpathy.json": "in its place: images and annotations as COCO has them, by CLIP_benchmark",
        "coco_karpathy_test.json": "in its place: a list of image and caption, as ALBEF, BLIP and LAVIS have it",
        "val2014/": "the pictures, in this folder or any other",
    },
    marks=(KARPATHY,),
    parts={
        "both": Part(
            summary="5K: both directions among all 5,000 images from one encoding, side by side",
            counts=TEXTS_TO_IMAGES,
            protocol={"ks": (1, 5, 10)},
            other_counts=OTHER_COUNTS,
            views=DIRECTIONS,
        ),
        TEXT_TO_IMAGE: Part(
            summary="5K: each caption searches its one image among 5,000",
            counts=TEXTS_TO_IMAGES,
            protocol={"ks": (1, 5, 10)},
            published=(
                PublishedRow(
                    "CLIP ViT-B/32 of OpenAI",
                    {"recall@1": "0.3044", "recall@5": "0.5594", "recall@10": "0.6687"},
                    OPEN_CLIP,
                ),
                PublishedRow(
                    "CLIP ViT-L/14 of OpenAI",
                    {"recall@1": "0.3651", "recall@5": "0.6106", "recall@10": "0.7113"},
                    OPEN_CLIP,
                ),
            ),
            other_counts=OTHER_COUNTS,
        ),
        IMAGE_TO_TEXT: Part(
            summary="5K: each image searches among 25,010 captions; any of its own is right",
            counts=IMAGES_TO_TEXTS,
            gallery="text",
            protocol={"ks": (1, 5, 10)},
            published=(
                PublishedRow(
                    "CLIP ViT-B/32 of OpenAI",
                    {"recall@1": "0.5012", "recall@5": "0.7500", "recall@10": "0.8352"},
                    OPEN_CLIP,
                ),
                PublishedRow(
                    "CLIP ViT-L/14 of OpenAI",
                    {"recall@1": "0.5634", "recall@5": "0.7938", "recall@10": "0.8660"},
                    OPEN_CLIP,
                ),
            ),
        ),
        "1k": Part(
            summary="1K: five folds of 1,000 images, each evaluated alone in both directions, and their means",
            counts=TEXTS_TO_IMAGES,
            protocol={"ks": (1, 5, 10)},
            other_counts=OTHER_COUNTS,
            views=OF_FOLD,
        ),
        "1k-text-to-image": Part(
            summary="1K: five folds of 1,000 images, from text to image, and their mean",
            counts=TEXTS_TO_IMAGES,
            protocol={"ks": (1, 5, 10)},
            other_counts=OTHER_COUNTS,
            views=_folds_of(TEXT_TO_IMAGE),
        ),
        "1k-image-to-text": Part(
            summary="1K: five folds of 1,000 images, from image to text, and their mean",
            counts=IMAGES_TO_TEXTS,
            gallery="text",
            protocol={"ks": (1, 5, 10)},
            views=_folds_of(IMAGE_TO_TEXT),
        ),
        **{name: _of_fold(view) for name, view in OF_FOLD.items()},
    },
    traps=(
        "Two protocols go by this name: all 5,000 images at once (5K), or the mean of five folds of 1,000 (1K), which "
        "is far easier. Say which.",
        "25,010 captions, not 25,000: a few images have more than five. VSE++, SCAN and what follows them take five of "
        "each, for 5K and 1K; here all count, as in the numbers of CLIP. Ten captions of 25,010 move text to image by "
        "0.04 points at most.",
        "Recall as the share of the captions that were found (`set_recall@k`) is about 1/5 at best at k = 1; published "
        "numbers are hits: one caption is enough.",
        "The pictures are those of val2014; releases of 2017 have the same pictures under other names and splits.",
        "ALBEF, BLIP and LAVIS lower the case of captions and take punctuation out before they encode them; here an "
        "encoder is given them as the list has them, and cleans them itself.",
    ),
)
