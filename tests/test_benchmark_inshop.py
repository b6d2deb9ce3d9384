"""DeepFashion In-Shop on a look-alike: queries against a gallery of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from command_line import recallatk
from lookalikes import write_picture
from recallatk import EmbeddingSet, evaluate_embeddings
from recallatk.datasets import load_dataset
from recallatk.types import RecallatkError

# id_00000008 is among the queries alone; the query of id_00000004 is byte for byte in the gallery under another name.
ROWS = [
    ("img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "query", 200),
    ("img/WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "gallery", 190),
    ("img/WOMEN/Dresses/id_00000002/02_3_back.jpg", "id_00000002", "gallery", 120),
    ("img/MEN/Tees_Tanks/id_00000004/01_1_front.jpg", "id_00000004", "query", 60),
    ("img/MEN/Tees_Tanks/id_00000004/01_4_full.jpg", "id_00000004", "gallery", 60),
    ("img/MEN/Tees_Tanks/id_00000008/01_1_front.jpg", "id_00000008", "query", 90),
    ("img/MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", "train", 10),
    ("img/MEN/Denim/id_00000080/01_2_side.jpg", "id_00000080", "train", 14),
]


def partition(rows=ROWS, *, count: int | None = None, separator: str | None = None) -> str:
    lines = [str(len(rows) if count is None else count)]
    if separator is None:
        lines += [f"{'image_name':<69} {'item_id':<12} evaluation_status"]
        lines += [f"{name:<69} {item:<12} {status}" for name, item, status, *_ in rows]
    else:
        lines += [separator.join(("image_name", "item_id", "evaluation_status"))]
        lines += [separator.join(row[:3]) for row in rows]
    return "".join(f"{line}\n" for line in lines)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "In-shop Clothes Retrieval Benchmark"
    for name, _, _, shade in ROWS:
        write_picture(root / "Img" / name, shade, grey="full" in name)
    write_picture(root / "Img" / "img_highres" / "MEN" / "Denim" / "id_00000080" / "01_1_front.jpg", 10)
    (root / "Img" / "img" / "Thumbs.db").write_bytes(b"\0")
    (root / "Eval").mkdir()
    (root / "Eval" / "list_eval_partition.txt").write_text(partition())
    (root / "Anno").mkdir()
    (root / "Anno" / "list_bbox_inshop.txt").write_text("0\nimage_name clothes_type pose_type x_1 y_1 x_2 y_2\n")
    return root


def load(copy: Path, **options) -> object:
    return load_dataset(copy, layout="inshop", counts="any", **options)


def test_queries_gallery_and_what_is_left_aside(copy: Path) -> None:
    dataset = load(copy)
    assert dataset.query.ids == tuple(name for name, _, status, _ in ROWS if status == "query")
    assert dataset.query.labels == ("id_00000002", "id_00000004", "id_00000008")
    assert dataset.gallery.labels == ("id_00000002", "id_00000002", "id_00000004")
    assert dataset.protocol.ks == (1, 10, 20, 30, 40)
    assert dataset.notes == ("2 training images of the list left aside",)
    (said,) = dataset.warnings
    assert "3 queries where the official count is 14,218" in said
    assert "3 gallery images where the official count is 12,612" in said
    assert "3 labels among the queries where the official count is 3,985" in said


def test_a_copy_of_other_counts_is_refused(copy: Path) -> None:
    with pytest.raises(RecallatkError, match=r"test: 3 queries where the official count is 14,218.*--counts any"):
        load_dataset(copy, layout="inshop")


@pytest.mark.parametrize("place", ["", "Anno"])
def test_both_layouts_of_the_archive_give_the_same_ids(copy: Path, place: str) -> None:
    expected = load(copy)
    (copy / "Eval" / "list_eval_partition.txt").rename(copy / place / "list_eval_partition.txt")
    (copy / "Img" / "img").rename(copy / "img")
    shutil.rmtree(copy / "Img")
    found = load(copy)
    for side in ("query", "gallery"):
        assert getattr(found, side).ids == getattr(expected, side).ids
        assert getattr(found, side).labels == getattr(expected, side).labels
    copy.rename(copy.parent / "Inshop_Clothes")
    assert load(copy.parent).query.ids == expected.query.ids


@pytest.mark.parametrize("text", [partition(separator="\t"), "\ufeff" + partition().replace("\n", " \r\n") + "\r\n"])
def test_the_list_as_other_tools_write_it(copy: Path, text: str) -> None:
    expected = load(copy)
    (copy / "Eval" / "list_eval_partition.txt").write_bytes(text.encode())
    found = load(copy)
    assert (found.query.ids, found.query.labels) == (expected.query.ids, expected.query.labels)
    assert (found.gallery.ids, found.gallery.labels) == (expected.gallery.ids, expected.gallery.labels)


def test_a_name_with_blanks_and_an_upper_case_suffix(copy: Path) -> None:
    name = "img/WOMEN/Blouses Shirts/id_00000002/02 7 additional.JPG"
    write_picture(copy / "Img" / name, 70)
    rows = [*ROWS, (name, "id_00000002", "gallery", 70)]
    (copy / "Eval" / "list_eval_partition.txt").write_text(partition(rows))
    assert load(copy).gallery.ids[-1] == name


def test_a_list_that_was_cut_is_warned_of(copy: Path) -> None:
    (copy / "Eval" / "list_eval_partition.txt").write_text(partition(count=52_712))
    assert "line 1 says 52,712 images, and 8 rows follow" in " ".join(load(copy).warnings)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("img/MEN/Denim/x.jpg", "", "query"), r"list_eval_partition.txt: line 11 is not image_name, item_id, evalu"),
        (("img/MEN/Denim/x.jpg", "id_1", "val"), r"line 11 is not .*\(one of train, query, gallery\)"),
        (ROWS[0], r"line 11: img/WOMEN/Dresses/id_00000002/02_1_front.jpg stands there twice"),
        (("img/MEN/x.jpg", "id_1", "gallery"), r"x.jpg: no such file: of the 4 that the lists name \(gallery\)"),
    ],
)
def test_a_damaged_list_is_told_in_one_line(copy: Path, row: tuple[str, ...], said: str) -> None:
    (copy / "Eval" / "list_eval_partition.txt").write_text(partition([*ROWS, row]))
    with pytest.raises(RecallatkError, match=said) as error:
        load(copy)
    assert "\n" not in str(error.value)


def test_the_large_images_alone_are_not_the_retrieval_set(copy: Path) -> None:
    shutil.rmtree(copy / "Img" / "img")
    with pytest.raises(RecallatkError, match=r"no img or Img/img in this folder"):
        load(copy)


def test_missing_images_can_be_skipped(copy: Path) -> None:
    (copy / "Img" / ROWS[2][0]).unlink()
    dataset = load(copy, on_error="skip")
    assert (len(dataset.query), len(dataset.gallery), len(dataset.skipped)) == (3, 2, 1)


def test_recall_by_hand(copy: Path) -> None:
    """The first query is nearer to another item; the second has its own at 0 degrees; the third has none."""
    dataset = load(copy)

    def rows(side, degrees) -> EmbeddingSet:
        angles = np.radians(degrees)
        return EmbeddingSet(np.stack([np.cos(angles), np.sin(angles)], axis=1), side.labels, ids=side.ids)

    query, gallery = rows(dataset.query, [10, 0, 40]), rows(dataset.gallery, [30, 60, 0])
    report = evaluate_embeddings(query, gallery, protocol=dataset.protocol)
    assert (report.num_queries, report.num_evaluated, report.num_excluded) == (3, 2, 1)
    assert report["recall@1"] == 1 / 2
    assert report["recall@10"] == 1.0


def test_from_the_command_line(copy: Path) -> None:
    result = recallatk("eval", copy, "--layout", "inshop", "--counts", "any", "--encoder", "color-histogram")
    assert result.code == 0, result.err
    assert "num queries: 3\nnum gallery: 3\n" in result.out
    assert "recall@40: 1.000000\n" in result.out
    assert "excluded (no positive): 1\n" in result.out


@pytest.mark.parametrize("place", ["Img/img", "img"])
def test_images_that_were_unpacked_into_a_folder_of_their_name(copy: Path, place: str) -> None:
    expected = load(copy).query.ids
    (copy / "Img" / "img").rename(copy / "inner")
    (copy / place).mkdir()
    (copy / "inner").rename(copy / place / "img")
    assert load(copy).query.ids == expected


def test_an_empty_folder_beside_the_images_is_passed_over(copy: Path) -> None:
    expected = load(copy).query.ids
    (copy / "img").mkdir()
    assert load(copy).query.ids == expected
