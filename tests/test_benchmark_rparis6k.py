"""Revisited Paris 6k on a look-alike: the folders of its archives; all else is as in Revisited Oxford."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from command_line import recallatk
from lookalikes import on_the_circle, write_picture
from recallatk import EmbeddingSet, evaluate_embeddings
from recallatk.datasets import load_dataset
from recallatk.datasets.benchmarks import BENCHMARKS, identify
from recallatk.types import RecallatkError

QUERIES = ["paris_defense_000605", "paris_louvre_000053"]
# Two images of the Louvre are one file twice; the last is greyscale. The second query has junk alone.
GALLERY = [
    "paris_defense_000000",
    "paris_louvre_000002",
    "paris_louvre_000003",
    "paris_pantheon_000014",
]
TRUTH = [
    {"bbx": [0.9, 1.2, 7.9, 6.6], "easy": [0], "hard": [3], "junk": [2]},
    {"bbx": [0.0, 2.0, 8.0, 8.0], "easy": [], "hard": [], "junk": [1]},
]


def folder_of(name: str) -> str:
    return f"paris/{name.split('_')[1]}"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "a copy" / "rparis6k"
    for shade, name in zip([30, 90, 60, 130, 130, 210], [*QUERIES, *GALLERY], strict=True):
        write_picture(root / "jpg" / folder_of(name) / f"{name}.jpg", shade, grey=name == GALLERY[-1])
    write_picture(root / "jpg" / "paris" / "general" / "paris_general_000144.jpg", 1)
    (root / "jpg" / ".DS_Store").write_bytes(b"\0")
    (root / "gnd_rparis6k.pkl").write_bytes(pickle.dumps({"gnd": TRUTH, "imlist": GALLERY, "qimlist": QUERIES}))
    return root


def test_images_lie_in_the_folders_of_the_archives(copy: Path) -> None:
    dataset = load_dataset(copy.parent, layout="rparis6k", counts="any")
    assert dataset.gallery is not None
    assert dataset.root == copy
    assert dataset.query.ids == (
        "jpg/paris/defense/paris_defense_000605.jpg@1,1,8,7",
        "jpg/paris/louvre/paris_louvre_000053.jpg@0,2,8,8",
    )
    assert dataset.gallery.ids == tuple(f"jpg/{folder_of(name)}/{name}.jpg" for name in GALLERY)


def test_or_flat(copy: Path) -> None:
    for image in sorted((copy / "jpg").rglob("*.jpg")):
        image.rename(copy / "jpg" / image.name)
    assert load_dataset(copy, layout="rparis6k", counts="any").query.ids[0] == "jpg/paris_defense_000605.jpg@1,1,8,7"


# By the trapezoid. Medium: at places 1 and 2, counted from 0. Hard: the easy one is gone, so at place 1.
@pytest.mark.parametrize(
    ("part", "average"), [("medium", ((0 + 1 / 2) / 2 + (1 / 2 + 2 / 3) / 2) / 2), ("hard", (0 + 1 / 2) / 2)]
)
def test_values_by_hand(copy: Path, part: str, average: float) -> None:
    """The order: junk, another, easy, hard; the query with junk alone is left out."""
    dataset = load_dataset(copy, layout="rparis6k", part=part, counts="any")
    assert dataset.gallery is not None
    report = evaluate_embeddings(
        EmbeddingSet(on_the_circle([0, 45]), None, ids=dataset.query.ids),
        EmbeddingSet(on_the_circle([3, 2, 1, 4]), None, ids=dataset.gallery.ids),
        protocol=dataset.protocol,
        metrics=dataset.metrics,
        qrels=dataset.qrels,
    )
    assert (report.num_evaluated, report.num_excluded) == (1, 1)
    assert report["map_trapezoid"] == pytest.approx(average)
    assert report["recall@1"] == 0.0


def test_the_official_counts(copy: Path) -> None:
    with pytest.raises(RecallatkError, match=r"2 queries where .* is 70; 4 gallery images where .* is 6,322"):
        load_dataset(copy, layout="rparis6k", part="easy")


def test_it_is_recognised_and_evaluated(copy: Path) -> None:
    assert {one.name for one in identify(copy, BENCHMARKS)} == {"rparis6k"}
    found = recallatk("eval", copy, "--layout", "rparis6k", "--counts", "any", "--encoder", "color-histogram")
    assert found.code == 0, found.err
    assert "num queries: 2\nnum gallery: 4\n" in found.out
    assert "excluded (no positive): 1" in found.out
    assert "map_trapezoid" in found.values()
