"""Market-1501 on a look-alike: the camera rule, junk and distractors, and what else lies in its folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from command_line import recallatk
from lookalikes import on_the_circle, write_picture
from recallatk import EmbeddingSet, evaluate_embeddings
from recallatk.datasets import detect_layout, load_dataset
from recallatk.datasets.benchmarks import BENCHMARKS, identify
from recallatk.types import RecallatkError

# Person 3 was seen by camera 1 alone; both pictures of person 2 by camera 2 are one file twice; the last is grey.
QUERIES = ["0001_c1s1_000151_01.jpg", "0002_c2s1_000301_01.jpg", "0003_c1s1_000451_00.jpg"]
GALLERY = [
    "-1_c3s1_000426_03.jpg",
    "0000_c2s1_000500_02.jpg",
    "0001_c1s1_000176_02.jpg",
    "0001_c3s1_000826_01.jpg",
    "0002_c2s1_000326_04.jpg",
    "0002_c2s1_000351_04.jpg",
    "0002_c6s4_001876_03.jpg",
    "0003_c1s1_000476_01.JPG",
]
SHADES = [40, 80, 20, 60, 120, 120, 160, 200]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "Market-1501-v15.09.15"
    for number, name in enumerate(QUERIES):
        write_picture(root / "query" / name, 22 + 90 * number)
    for shade, name in zip(SHADES, GALLERY, strict=True):
        write_picture(root / "bounding_box_test" / name, shade, grey=name == GALLERY[-1])
    write_picture(root / "bounding_box_train" / "0007_c1s1_000001_00.jpg", 1)
    write_picture(root / "query" / "._0001_c1s1_000151_01.jpg", 1)
    for folder in ("query", "bounding_box_test"):
        (root / folder / "Thumbs.db").write_bytes(b"\0")
    (root / "readme.txt").write_text("Market-1501")
    return root


def test_the_names_say_person_and_camera(copy: Path) -> None:
    dataset = load_dataset(copy, layout="market1501", counts="any")
    assert dataset.gallery is not None
    assert dataset.query.ids == tuple(f"query/{name}" for name in QUERIES)
    assert dataset.query.labels == ("0001", "0002", "0003")
    assert dataset.query.groups["camera"] == ("1", "2", "1")
    assert dataset.gallery.labels == ("-1", "0000", "0001", "0001", "0002", "0002", "0002", "0003")
    assert dataset.gallery.groups["camera"] == ("3", "2", "1", "3", "2", "2", "6", "1")
    assert dataset.notes == (
        "query/: 2 other items left aside (such as '._0001_c1s1_000151_01.jpg')",
        "bounding_box_test/: 1 other item left aside (such as 'Thumbs.db')",
        "bounding_box_test/: 1 image of nobody (-1), which take no rank, and 1 distractor (0000), which are never "
        "right; 7 are left without the former",
    )


@pytest.mark.parametrize("nested", ["", "Market-1501-v15.09.15", "Market-1501-v15.09.15/Market-1501-v15.09.15"])
def test_the_folder_may_lie_in_its_archive_s(copy: Path, tmp_path: Path, nested: str) -> None:
    root = tmp_path / "a copy with blanks"
    shutil.copytree(copy, root / nested)
    dataset = load_dataset(root, layout="market1501", counts="any")
    assert len(dataset.query) == 3
    assert dataset.root == root / nested


def test_images_in_folders_of_the_two_sides_count(copy: Path) -> None:
    inside = copy / "bounding_box_test" / "bounding_box_test"
    inside.mkdir()
    for name in GALLERY:
        (copy / "bounding_box_test" / name).rename(inside / name)
    dataset = load_dataset(copy, layout="market1501", counts="any")
    assert dataset.gallery is not None
    assert dataset.gallery.ids[2] == f"bounding_box_test/bounding_box_test/{GALLERY[2]}"


def test_recall_by_hand(copy: Path) -> None:
    """The ranks of the rule book: own camera and junk take none, a distractor takes one."""
    dataset = load_dataset(copy, layout="market1501", counts="any")
    assert dataset.gallery is not None
    degrees = {  # from the query of the same person, which lies at 0, 60 and 120
        "-1_c3s1_000426_03.jpg": 2,
        "0000_c2s1_000500_02.jpg": 3,
        "0001_c1s1_000176_02.jpg": 1,
        "0001_c3s1_000826_01.jpg": 8,
        "0002_c2s1_000326_04.jpg": 61,
        "0002_c2s1_000351_04.jpg": 62,
        "0002_c6s4_001876_03.jpg": 63,
        "0003_c1s1_000476_01.JPG": 121,
    }
    report = evaluate_embeddings(
        EmbeddingSet(
            on_the_circle([0, 60, 120]), dataset.query.labels, ids=dataset.query.ids, groups=dict(dataset.query.groups)
        ),
        EmbeddingSet(
            on_the_circle([degrees[name] for name in GALLERY]),
            dataset.gallery.labels,
            ids=dataset.gallery.ids,
            groups=dict(dataset.gallery.groups),
        ),
        protocol=dataset.protocol,
        metrics=dataset.metrics,
    )
    assert (report.num_queries, report.num_evaluated, report.num_excluded) == (3, 2, 1)
    # Query 1: its own camera's at 1 degree and junk at 2 are gone, the distractor at 3 stands before the one at 8.
    assert report["recall@1"] == 1 / 2
    assert report["recall@5"] == 1.0
    assert report["map"] == (1 / 2 + 1) / 2


def test_the_official_counts(copy: Path) -> None:
    with pytest.raises(
        RecallatkError, match=r"3 queries where .* 3,368; 8 gallery images where .* 19,732.*--counts any"
    ):
        load_dataset(copy, layout="market1501")


def test_a_copy_without_junk_is_told(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = BENCHMARKS["market1501"].parts["test"]
    monkeypatch.setitem(part.counts, "queries", 3)  # type: ignore[arg-type]
    monkeypatch.setitem(part.other_counts, 8, part.other_counts[15_913])  # type: ignore[arg-type]
    with pytest.raises(RecallatkError, match="without the junk named -1"):
        load_dataset(copy, layout="market1501")


def test_what_is_missing_is_named(copy: Path) -> None:
    shutil.rmtree(copy / "query")
    with pytest.raises(RecallatkError, match="no query in this folder; DATA is the folder that holds query, bounding"):
        load_dataset(copy, layout="market1501")
    (copy / "query").mkdir()
    with pytest.raises(RecallatkError, match="query: no image in it; complete the copy"):
        load_dataset(copy, layout="market1501")


def test_a_link_to_nothing_stops_or_is_left_out(copy: Path) -> None:
    (copy / "query" / "0009_c1s1_000151_01.jpg").symlink_to("gone.jpg")
    with pytest.raises(RecallatkError, match=r"0009_c1s1_000151_01.jpg: a link to a file that is not there"):
        load_dataset(copy, layout="market1501", counts="any")
    dataset = load_dataset(copy, layout="market1501", counts="any", on_error="skip")
    assert len(dataset.query) == 3
    assert [skipped.item for skipped in dataset.skipped] == ["query/0009_c1s1_000151_01.jpg"]


def test_an_image_of_another_name_is_an_error(copy: Path) -> None:
    write_picture(copy / "query" / "0005_c2_f0046985.jpg", 5)
    with pytest.raises(
        RecallatkError, match=r"0005_c2_f0046985.jpg: no name of this benchmark.*0002_c1s1_000451_03.jpg"
    ):
        load_dataset(copy, layout="market1501", counts="any")


def test_it_is_recognised(copy: Path) -> None:
    assert "--layout market1501" in " ".join(detect_layout(copy)[1])
    assert {one.name for one in identify(copy, BENCHMARKS)} == {"market1501"}


def test_check_does_not_take_junk_for_negatives(copy: Path) -> None:
    found = recallatk("check", copy, "--layout", "market1501", "--counts", "any")
    assert "1 label is in the gallery only: negatives for every query (such as '0000')" in found.out + found.err


def test_the_command_line(copy: Path) -> None:
    found = recallatk("eval", copy, "--layout", "market1501", "--counts", "any", "--encoder", "color-histogram")
    assert found.code == 0, found.err
    assert "num queries: 3\nnum gallery: 8\n" in found.out
    assert "every positive is of the query's camera and label (ignore_same=camera+label): 1" in found.out
    assert "map" in found.values()
    assert "3 queries where the official count is 3,368" in found.out
