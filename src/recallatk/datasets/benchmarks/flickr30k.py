"""Flickr30k (Young et al. 2014): images and their five captions, in Karpathy's split."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from recallatk.datasets.benchmarks.captions import (
    DIRECTIONS,
    IMAGE_TO_TEXT,
    TEXT_TO_IMAGE,
    Reader,
    load_captions,
    read_annotated_rows,
    read_caption_lists,
    read_karpathy,
    read_rows,
)
from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.types import Dataset, OnError

READERS: Mapping[str, Reader] = {
    "dataset_flickr30k.json": functools.partial(read_karpathy, label="filename"),
    "flickr30k_test_karpathy.txt": read_rows,
    "flickr30k_test.json": functools.partial(read_caption_lists, label=str),
    "flickr_annotations_30k.csv": read_annotated_rows,
}
OPEN_CLIP = "open_clip, table of retrieval results"


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read the test images and their captions; the label is the file's name."""
    return load_captions(data, READERS, view=DIRECTIONS.get(part), on_error=on_error)


BENCHMARK = Benchmark(
    title="Flickr30k",
    summary="Flickr30k: 1,000 test images of Karpathy's split and their captions, from text to image and back",
    load=load,
    files={
        "dataset_flickr30k.json": "Karpathy's list of images, splits and captions",
        "flickr30k_test_karpathy.txt": "in its place: a header, then file.jpg,caption, as CLIP_benchmark has it",
        "flickr30k_test.json": "in its place: a list of image and caption, as ALBEF, BLIP and LAVIS have it",
        "flickr_annotations_30k.csv": "in its place: a table with raw, split, filename, as on Hugging Face",
        "flickr30k-images/": "the pictures, in a folder of any name",
    },
    marks=("dataset_flickr30k.json",),
    parts={
        "both": Part(
            summary="both directions from one encoding, side by side",
            counts={"queries": 5_000, "gallery": 1_000, "labels": 1_000},
            protocol={"ks": (1, 5, 10)},
            other_counts={5_070: "the captions of the 1,014 images of the validation split"},
            views=DIRECTIONS,
        ),
        TEXT_TO_IMAGE: Part(
            summary="each caption searches its one image among 1,000",
            counts={"queries": 5_000, "gallery": 1_000, "labels": 1_000},
            protocol={"ks": (1, 5, 10)},
            published=(
                PublishedRow(
                    "CLIP ViT-B/32 of OpenAI",
                    {"recall@1": "0.5878", "recall@5": "0.8356", "recall@10": "0.9002"},
                    OPEN_CLIP,
                ),
                PublishedRow(
                    "CLIP ViT-L/14 of OpenAI",
                    {"recall@1": "0.6496", "recall@5": "0.8724", "recall@10": "0.9204"},
                    OPEN_CLIP,
                ),
                PublishedRow(
                    "CLIP ViT-B/32 of OpenAI, by MTEB",
                    {"recall@1": "0.5822", "recall@5": "0.829", "recall@10": "0.8926"},
                    "MTEB",
                ),
                PublishedRow(
                    "CLIP ViT-L/14 of OpenAI, by MTEB",
                    {"recall@1": "0.6578", "recall@5": "0.8756", "recall@10": "0.925"},
                    "MTEB",
                ),
            ),
            other_counts={5_070: "the captions of the 1,014 images of the validation split"},
        ),
        IMAGE_TO_TEXT: Part(
            summary="each image searches among 5,000 captions; any of its five is right",
            counts={"queries": 1_000, "gallery": 5_000, "labels": 1_000},
            gallery="text",
            protocol={"ks": (1, 5, 10)},
            published=(
                PublishedRow(
                    "CLIP ViT-B/32 of OpenAI",
                    {"recall@1": "0.7890", "recall@5": "0.9490", "recall@10": "0.9820"},
                    OPEN_CLIP,
                ),
                PublishedRow(
                    "CLIP ViT-L/14 of OpenAI",
                    {"recall@1": "0.8520", "recall@5": "0.9740", "recall@10": "0.9920"},
                    OPEN_CLIP,
                ),
                PublishedRow(
                    "CLIP ViT-B/32 of OpenAI, by MTEB",
                    {"recall@1": "0.781", "recall@5": "0.951", "recall@10": "0.979"},
                    "MTEB",
                ),
                PublishedRow(
                    "CLIP ViT-L/14 of OpenAI, by MTEB",
                    {"recall@1": "0.859", "recall@5": "0.979", "recall@10": "0.99"},
                    "MTEB",
                ),
            ),
            other_counts={1_014: "the validation split"},
        ),
    },
    traps=(
        "Recall as the share of the five captions that were found (`set_recall@k`) is at most 1/5 at k = 1; published "
        "numbers are hits: one caption is enough.",
        "open_clip and MTEB differ by 0.6 to 0.8 points at 1 on the same weights: how texts and images are prepared is "
        "part of the number.",
        "With one caption an image, in place of all five, image to text is another and harder task: one caption is "
        "right, not any of five. Text to image stays as hard, with a fifth of the queries.",
        "In flickr30k_test_karpathy.txt captions hold commas; split at every comma they lose their ends. Where such a "
        "caption stands in the quotes of CSV, CLIP_benchmark leaves them in; here they are taken off, and a note says "
        "of how many.",
        "ALBEF, BLIP and LAVIS lower the case of captions and take punctuation out before they encode them; here an "
        "encoder is given them as the list has them, and cleans them itself.",
    ),
)
