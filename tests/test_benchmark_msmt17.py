"""MSMT17 on a look-alike: two lists, the camera in the name, and the two versions of the pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import recallatk
from lookalikes import on_the_circle, write_lines, write_picture
from recallatk import EmbeddingSet, evaluate_embeddings
from recallatk.datasets import detect_layout, load_dataset
from recallatk.types import RecallatkError

# Person 2 was seen by camera 7 alone; the second and third of the gallery are one file twice.
QUERIES = [("0000/0000_000_01_0303morning_0015_0.jpg", 0), ("0002/0002_004_07_0303noon_0100_1.jpg", 2)]
GALLERY = [
    ("0000/0000_001_01_0303morning_0016_0.jpg", 0),
    ("0000/0000_002_14_0303morning_0020_0_ex.jpg", 0),
    ("0000/0000_003_14_0303morning_0020_1_ex.jpg", 0),
    ("0001/0001_000_05_0303afternoon_0500_0.jpg", 1),
    ("0002/0002_005_07_0303noon_0101_1.jpg", 2),
]


def write_copy(root: Path, folder: str) -> Path:
    for number, (name, _) in enumerate([*QUERIES, *GALLERY]):
        write_picture(root / folder / name, 30 * (number - (number == 4)), grey=number == 5)
    write_lines(root / "list_query.txt", (f"{name} {person}" for name, person in QUERIES))
    write_lines(root / "list_gallery.txt", (f"{name} {person}" for name, person in GALLERY))
    write_lines(root / "list_train.txt", ["0000/0000_000_01_0303morning_0001_0.jpg 0"])
    write_picture(root / folder / "0000" / "._0000_000_01_0303morning_0015_0.jpg", 9)
    return root


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return write_copy(tmp_path / "MSMT17_V1", "test")


def test_the_lists_name_people_and_the_names_cameras(copy: Path) -> None:
    dataset = load_dataset(copy.parent, layout="msmt17", counts="any")
    assert dataset.gallery is not None
    assert dataset.query.ids[0] == "test/0000/0000_000_01_0303morning_0015_0.jpg"
    assert dataset.query.labels == ("0", "2")
    assert dataset.gallery.labels == ("0", "0", "0", "1", "2")
    assert dataset.gallery.groups["camera"] == ("1", "14", "14", "5", "7")
    assert dataset.notes == ("the images of test/: V1, faces as they are",)


def test_the_second_version_has_another_folder(tmp_path: Path) -> None:
    write_copy(tmp_path / "msmt17" / "MSMT17_V2", "mask_test_v2")
    dataset = load_dataset(tmp_path / "msmt17", layout="msmt17", counts="any")
    assert dataset.query.ids[0] == "mask_test_v2/0000/0000_000_01_0303morning_0015_0.jpg"
    assert dataset.notes == ("the images of mask_test_v2/: V2, faces made unrecognisable",)


def test_an_empty_folder_of_the_first_version_is_no_copy_of_it(tmp_path: Path) -> None:
    (write_copy(tmp_path / "MSMT17", "mask_test_v2") / "test").mkdir()
    assert load_dataset(tmp_path, layout="msmt17", counts="any").query.ids[0].startswith("mask_test_v2/")


def test_zeros_before_a_number_make_no_other_person_or_camera(copy: Path) -> None:
    expected = load_dataset(copy, layout="msmt17", counts="any")
    write_lines(copy / "list_query.txt", (f"{name} {person:04d}" for name, person in QUERIES))
    short = [(name.replace("_01_", "_1_"), person) for name, person in GALLERY]
    for (name, _), (new, _) in zip(GALLERY, short, strict=True):
        (copy / "test" / name).rename(copy / "test" / new)
    write_lines(copy / "list_gallery.txt", (f"{name} {person}" for name, person in short))
    dataset = load_dataset(copy, layout="msmt17", counts="any")
    assert dataset.query.labels == expected.query.labels
    assert dataset.gallery is not None
    assert expected.gallery is not None
    assert dataset.gallery.groups == expected.gallery.groups


def test_recall_by_hand(copy: Path) -> None:
    """Person 0 is a person; its images by camera 1 take no rank for the query by camera 1."""
    dataset = load_dataset(copy, layout="msmt17", counts="any")
    assert dataset.gallery is not None
    report = evaluate_embeddings(
        EmbeddingSet(on_the_circle([0, 80]), dataset.query.labels, groups=dict(dataset.query.groups)),
        EmbeddingSet(on_the_circle([1, 20, 30, 5, 81]), dataset.gallery.labels, groups=dict(dataset.gallery.groups)),
        protocol=dataset.protocol,
        metrics=dataset.metrics,
    )
    assert (report.num_evaluated, report.num_excluded) == (1, 1)
    assert report["recall@1"] == 0.0
    assert report["map"] == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_the_official_counts(copy: Path) -> None:
    with pytest.raises(RecallatkError, match=r"2 queries where .* 11,659; 5 gallery images where .* 82,161"):
        load_dataset(copy, layout="msmt17")


@pytest.mark.parametrize("separator", [" ", "\t", "  "])
def test_lists_as_windows_leaves_them(copy: Path, separator: str) -> None:
    lines = "".join(f"{name}{separator}{person}\r\n" for name, person in QUERIES)
    (copy / "list_query.txt").write_bytes(b"\xef\xbb\xbf" + lines.encode() + b"\r\n")
    assert load_dataset(copy, layout="msmt17", counts="any").query.labels == ("0", "2")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0000/0000_000_01_0303morning_0015_0.jpg", "list_query.txt: line 2 has 1 field, not 2"),
        ("0000_c1_0001.jpg 0", "list_query.txt: line 2: '0000_c1_0001.jpg' and '0' are no path and person"),
        ("0000/0000_000_01_a_0015_0.jpg x", "list_query.txt: line 2: .* take the official file"),
        ("0000/0000_009_01_0303morning_0015_0.jpg 0", "no such file: of the 2 that the lists name .query."),
    ],
)
def test_a_damaged_list_is_told(copy: Path, line: str, message: str) -> None:
    write_lines(copy / "list_query.txt", [f"{QUERIES[1][0]} 2", line])
    with pytest.raises(RecallatkError, match=message):
        load_dataset(copy, layout="msmt17", counts="any")


def test_missing_files_are_named(copy: Path) -> None:
    (copy / "list_gallery.txt").unlink()
    with pytest.raises(
        RecallatkError, match=r"no list_gallery.txt in this folder.*list_query.txt, list_gallery.txt, test"
    ):
        load_dataset(copy, layout="msmt17")


def test_it_is_recognised_and_evaluated(copy: Path) -> None:
    assert "--layout msmt17" in " ".join(detect_layout(copy)[1])
    found = recallatk("eval", copy, "--layout", "msmt17", "--counts", "any", "--encoder", "color-histogram")
    assert found.code == 0, found.err
    assert "num queries: 2\nnum gallery: 5\n" in found.out
    assert "excluded (no positive): 1" in found.out
