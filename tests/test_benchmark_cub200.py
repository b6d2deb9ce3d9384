"""CUB-200-2011 on a look-alike: the split of metric learning and not the official one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command_line import recallatk
from lookalikes import write_lines, write_picture
from recallatk import EmbeddingSet, evaluate_embeddings
from recallatk.datasets import load_dataset
from recallatk.types import RecallatkError

# Class, file, whether it is an official training image. 101 and 102 are test classes; 102 has one image alone.
IMAGES = [
    (1, "001.Black_footed_Albatross/Black_Footed_Albatross_0001_796111.jpg", 1),
    (100, "100.Brown_Pelican/Brown_Pelican_0002_94256.jpg", 0),
    (101, "101.White_Pelican/White_Pelican_0001_95810.jpg", 1),
    (101, "101.White_Pelican/White_Pelican_0002_95811.jpg", 0),
    (101, "101.White_Pelican/White_Pelican_0003_95811.jpg", 0),
    (102, "102.Western_Wood_Pewee/Western_Wood_Pewee_0004_795038.jpg", 1),
    (200, "200.Common_Yellowthroat/Common_Yellowthroat_0003_190521.jpg", 1),
    (200, "200.Common_Yellowthroat/Common_Yellowthroat_0007_190522.jpg", 0),
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "CUB_200_2011"
    for number, (_, name, _) in enumerate(IMAGES):
        # 95811 twice: an exact duplicate pair in one class; the last is a greyscale image.
        shade = 30 * (number - (number == 4))
        write_picture(root / "images" / name, shade, grey=number == len(IMAGES) - 1)
    write_picture(root / "images" / "101.White_Pelican" / "._White_Pelican_0001_95810.jpg", 3)
    write_lines(root / "images.txt", (f"{n + 1} {name}" for n, (_, name, _) in enumerate(IMAGES)))
    write_lines(root / "image_class_labels.txt", (f"{n + 1} {label}" for n, (label, _, _) in enumerate(IMAGES)))
    write_lines(root / "train_test_split.txt", (f"{n + 1} {train}" for n, (_, _, train) in enumerate(IMAGES)))
    return root


def test_the_classes_from_101_on_are_both_sides(copy: Path) -> None:
    dataset = load_dataset(copy, layout="cub200", counts="any")
    assert dataset.gallery is None
    assert dataset.query.labels == ("101", "101", "101", "102", "200", "200")
    assert dataset.query.ids[0] == "images/101.White_Pelican/White_Pelican_0001_95810.jpg"
    assert dataset.protocol is not None
    assert dataset.protocol.ks == (1, 2, 4, 8)
    assert len(dataset.warnings) == 1
    assert "6 queries where the official count is 5,924" in dataset.warnings[0]


def test_the_archive_s_parent_will_do(copy: Path) -> None:
    assert load_dataset(copy.parent, layout="cub200", counts="any").query.ids == (
        load_dataset(copy, layout="cub200", counts="any").query.ids
    )


def test_the_official_test_images_are_another_part(copy: Path) -> None:
    dataset = load_dataset(copy, layout="cub200", part="official-test", counts="any")
    assert dataset.query.labels == ("100", "101", "101", "200")


def test_a_copy_of_other_counts_is_refused_before_anything_is_encoded(copy: Path) -> None:
    with pytest.raises(RecallatkError, match=r"dml: 6 queries where the official count is 5,924.*--counts any"):
        load_dataset(copy, layout="cub200")


def test_a_missing_picture_is_named(copy: Path) -> None:
    (copy / "images" / IMAGES[2][1]).unlink()
    with pytest.raises(
        RecallatkError, match=r"White_Pelican_0001_95810.jpg: no such file: of the 6 that the lists name"
    ):
        load_dataset(copy, layout="cub200", counts="any")
    skipping = load_dataset(copy, layout="cub200", counts="any", on_error="skip")
    assert len(skipping.query) == 5
    assert len(skipping.skipped) == 1


def test_recall_by_hand(copy: Path) -> None:
    """101: one image is far from its two twins; 102 has no positive and is excluded; 200: each finds the other."""
    dataset = load_dataset(copy, layout="cub200", counts="any")
    angles = np.radians([0, 40, 40, 5, 80, 85])
    rows = EmbeddingSet(
        np.stack([np.cos(angles), np.sin(angles)], axis=1),
        dataset.query.labels,
        ids=dataset.query.ids,
    )
    report = evaluate_embeddings(rows, protocol=dataset.protocol)
    assert (report.num_evaluated, report.num_excluded, report.num_queries) == (5, 1, 6)
    assert report["recall@1"] == 4 / 5  # the first White Pelican finds the Wood Pewee at 5 degrees
    assert report["recall@2"] == 1.0


@pytest.mark.parametrize(
    ("file", "line", "wrong", "said"),
    [
        ("image_class_labels.txt", "3 101", "3 abc", r"class abc of image id 3 is no number from 1 to 200"),
        ("image_class_labels.txt", "1 1", "1 0", r"class 0 of image id 1 is no number from 1 to 200"),
        ("train_test_split.txt", "2 0", "2 2", r"is_training 2 of image id 2 is no number from 0 to 1"),
    ],
)
def test_a_number_that_cannot_be_is_no_class_and_no_side(
    copy: Path, file: str, line: str, wrong: str, said: str
) -> None:
    lines = (copy / file).read_text().splitlines()
    write_lines(copy / file, (wrong if one == line else one for one in lines))
    with pytest.raises(RecallatkError, match=said):
        load_dataset(copy, layout="cub200", part="official-test", counts="any")


def test_an_empty_official_split_is_not_the_other_part(copy: Path) -> None:
    (copy / "train_test_split.txt").write_text("")
    with pytest.raises(RecallatkError, match=r"train_test_split.txt: nothing about image id 1"):
        load_dataset(copy, layout="cub200", part="official-test", counts="any")


def test_the_older_set_of_2010_is_called_so(tmp_path: Path) -> None:
    name = "001.Black_footed_Albatross/Black_footed_Albatross_0001_2950163169.jpg"
    write_lines(tmp_path / "CUB_200" / "lists" / "files.txt", [name])
    write_picture(tmp_path / "CUB_200" / "images" / name, 9)
    for data in (tmp_path, tmp_path / "CUB_200"):
        with pytest.raises(RecallatkError, match=r"this is the older CUB-200 of 2010"):
            load_dataset(data, layout="cub200")


def test_published_rows_beside_a_copy_of_other_images_are_told_apart(copy: Path) -> None:
    found = recallatk("eval", copy, "--layout", "cub200", "--counts", "any", "--published", "--encoder", "pixels")
    assert "\n[published]\nours is of other images: 6 queries, officially 5,924\n" in found.out
