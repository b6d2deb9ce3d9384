"""iNaturalist 2018 on a look-alike: the test images of Smooth-AP's list."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command_line import recallatk
from lookalikes import write_lines, write_picture
from recallatk import EmbeddingSet, evaluate_embeddings
from recallatk.datasets import load_dataset
from recallatk.types import RecallatkError

# 5691 twice the same picture, 7477 greyscale, 8000 alone.
TEST = [
    "train_val2018/Plantae/5691/3b60c9486db1d2ee875f11a669fbde4a.jpg",
    "train_val2018/Plantae/5691/0ff5a6a1d7fba8e5b3f0dd3ec7c5dc49.jpg",
    "train_val2018/Plantae/7477/1e8b2a1f6f2d2fbd4d1c3d3db5f1c0aa.jpg",
    "train_val2018/Plantae/7477/2f8b2a1f6f2d2fbd4d1c3d3db5f1c0ab.jpg",
    "train_val2018/Aves/8000/9d8b2a1f6f2d2fbd4d1c3d3db5f1c0ac.jpg",
]
TRAIN = ["train_val2018/Aves/2761/ad8b2a1f6f2d2fbd4d1c3d3db5f1c0ad.jpg"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "Inaturalist"
    for path, shade in zip(TEST + TRAIN, [200, 200, 90, 60, 94, 10], strict=True):
        write_picture(root / path, shade, grey="7477/1e" in path)
    write_lines(root / "Inat_dataset_splits" / "Inaturalist_test_set1.txt", TEST)
    write_lines(root / "Inat_dataset_splits" / "Inaturalist_train_set1.txt", TRAIN)
    write_lines(root / "train_val2018" / "README.txt", ["not an image"])
    return root


def load(copy: Path) -> object:
    return load_dataset(copy, layout="inat2018", counts="any")


def test_the_test_list_is_both_sides(copy: Path) -> None:
    dataset = load(copy)
    assert dataset.gallery is None
    assert dataset.query.labels == ("5691", "5691", "7477", "7477", "8000")
    assert dataset.query.ids == tuple(TEST)
    assert dataset.protocol.ks == (1, 4, 16, 32)
    assert dataset.notes == ()
    assert "5 queries where the official count is 136,093" in dataset.warnings[0]
    assert "3 labels among the queries where the official count is 2,452" in dataset.warnings[0]


def test_the_lists_may_lie_at_the_top(copy: Path) -> None:
    expected = load(copy).query.ids
    (copy / "Inat_dataset_splits" / "Inaturalist_test_set1.txt").rename(copy / "Inaturalist_test_set1.txt")
    assert load(copy).query.ids == expected
    assert load(copy.parent).query.ids == expected


def test_a_category_name_in_two_super_categories_is_two_labels(copy: Path) -> None:
    more = "train_val2018/Aves/7477/bd8b2a1f6f2d2fbd4d1c3d3db5f1c0ae.jpg"
    write_picture(copy / more, 40)
    write_lines(copy / "Inat_dataset_splits" / "Inaturalist_test_set1.txt", [*TEST, more])
    dataset = load(copy)
    assert dataset.query.labels == ("5691", "5691", "Plantae/7477", "Plantae/7477", "8000", "Aves/7477")
    assert dataset.notes == (
        "1 category name is in several super-categories (such as '7477'): the label is super-category/category",
    )


def test_the_list_as_other_tools_write_it(copy: Path) -> None:
    file = copy / "Inat_dataset_splits" / "Inaturalist_test_set1.txt"
    file.write_bytes(b"\xef\xbb\xbf" + b"".join(f"./{path} \r\n".encode() for path in TEST) + b"\r\n")
    assert load(copy).query.ids == tuple(TEST)


def test_a_copy_of_other_counts_is_refused(copy: Path) -> None:
    with pytest.raises(RecallatkError, match=r"dml: 5 queries where the official count is 136,093.*--counts any"):
        load_dataset(copy, layout="inat2018")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "train_val2018/Aves/9d8b.jpg",
            r"Inaturalist_test_set1.txt: line 6 is not train_val2018/SUPER-CATEGORY/CATEGO",
        ),
        ("train_val2018/Aves/8000/9d8b.jpg", r"9d8b.jpg: no such file: of the 6 that the lists name"),
        (TEST[0], r"the lists name train_val2018/Plantae/5691/3b60\w+.jpg twice"),
    ],
)
def test_a_damaged_list_is_told_in_one_line(copy: Path, line: str, said: str) -> None:
    write_lines(copy / "Inat_dataset_splits" / "Inaturalist_test_set1.txt", [*TEST, line])
    with pytest.raises(RecallatkError, match=said) as error:
        load(copy)
    assert "\n" not in str(error.value)


def test_what_is_missing_is_named(copy: Path) -> None:
    (copy / "Inat_dataset_splits" / "Inaturalist_test_set1.txt").unlink()
    with pytest.raises(RecallatkError, match=r"no Inat_dataset_splits/Inaturalist_test_set1.txt or Inaturalist_test_"):
        load(copy)


def test_recall_by_hand(copy: Path) -> None:
    """The twins of 5691 find each other; of 7477 one finds the lone 8000 first; 8000 has no positive."""
    dataset = load(copy)
    angles = np.radians([0, 0, 40, 50, 45.5])
    rows = EmbeddingSet(np.stack([np.cos(angles), np.sin(angles)], axis=1), dataset.query.labels, ids=dataset.query.ids)
    report = evaluate_embeddings(rows, protocol=dataset.protocol)
    assert (report.num_queries, report.num_evaluated, report.num_excluded) == (5, 4, 1)
    assert report["recall@1"] == 2 / 4
    assert report["recall@4"] == 1.0


def test_from_the_command_line(copy: Path) -> None:
    result = recallatk("eval", copy, "--layout", "inat2018", "--counts", "any", "--encoder", "color-histogram")
    assert result.code == 0, result.err
    assert "num queries: 5\nnum gallery: 5\n" in result.out
    assert "recall@32: 1.000000\n" in result.out
    assert "excluded (no positive): 1\n" in result.out


def test_images_that_were_unpacked_into_a_folder_of_their_name(copy: Path) -> None:
    (copy / "train_val2018").rename(copy / "inner")
    (copy / "train_val2018").mkdir()
    (copy / "inner").rename(copy / "train_val2018" / "train_val2018")
    assert load(copy).query.ids == tuple(TEST)
