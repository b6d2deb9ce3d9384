"""Stanford Online Products on a look-alike: the test products, and all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command_line import recallatk
from lookalikes import write_lines, write_picture
from recallatk import EmbeddingSet, evaluate_embeddings
from recallatk.datasets import load_dataset
from recallatk.types import RecallatkError

HEADER = "image_id class_id super_class_id path"
TRAIN = [
    (1, "bicycle_final/111085122871_0.JPG"),
    (1, "bicycle_final/111085122871_1.JPG"),
]
# 11319 has an exact duplicate pair, 11321 one photo alone; two products of one folder.
TEST = [
    (11319, "bicycle_final/211085122871_0.JPG"),
    (11319, "bicycle_final/211085122871_1.JPG"),
    (11319, "bicycle_final/211085122871_2.JPG"),
    (11320, "bicycle_final/311085122871_0.JPG"),
    (11320, "bicycle_final/311085122871_1.JPG"),
    (11321, "chair_final/411085122871_0.JPG"),
]
SHADES = [200, 200, 120, 60, 66, 124]


def rows(listed: list[tuple[int, str]]) -> list[str]:
    supers = {"bicycle_final": 1, "chair_final": 3}
    lines = [f"{n} {product} {supers[path.split('/')[0]]} {path}" for n, (product, path) in enumerate(listed, start=1)]
    return [HEADER, *lines]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "Stanford_Online_Products"
    for (_, path), shade in zip(TRAIN + TEST, [30, 34, *SHADES], strict=True):
        write_picture(root / path, shade, grey=path.startswith("chair"))
    write_lines(root / "Ebay_train.txt", rows(TRAIN))
    write_lines(root / "Ebay_test.txt", rows(TEST))
    write_lines(root / "Ebay_info.txt", rows(TRAIN + TEST))
    write_lines(root / "bicycle_final.txt", ["0 211085122871_0.JPG"])
    (root / ".DS_Store").write_bytes(b"\0")
    write_picture(root / "bicycle_final" / "._211085122871_0.JPG", 9)
    return root


def load(copy: Path, part: str | None = None) -> object:
    return load_dataset(copy, layout="sop", part=part, counts="any")


def test_the_test_list_is_both_sides(copy: Path) -> None:
    dataset = load(copy)
    assert dataset.gallery is None
    assert dataset.query.labels == ("11319", "11319", "11319", "11320", "11320", "11321")
    assert dataset.query.ids == tuple(path for _, path in TEST)
    assert dataset.protocol.ks == (1, 10, 100, 1000)
    assert "6 queries where the official count is 60,502" in dataset.warnings[0]
    assert "3 labels among the queries where the official count is 11,316" in dataset.warnings[0]


def test_all_products_are_another_part(copy: Path) -> None:
    dataset = load(copy, "all")
    assert len(dataset.query) == 8
    assert dataset.query.labels[:2] == ("1", "1")
    (copy / "Ebay_train.txt").unlink()
    assert len(load(copy).query) == 6
    with pytest.raises(RecallatkError, match=r"no Ebay_train.txt or Info_Files.Ebay_train.txt in this folder"):
        load(copy, "all")


def test_a_copy_of_other_counts_is_refused(copy: Path) -> None:
    with pytest.raises(RecallatkError, match=r"test: 6 queries where the official count is 60,502.*--counts any"):
        load_dataset(copy, layout="sop")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text.replace("\n", "\r\n"),
        lambda text: text.replace(" ", "\t"),
        lambda text: text.replace(" ", "  ") + "\n\n",
        lambda text: text.partition("\n")[2],
    ],
    ids=["byte-order mark and CRLF", "tabs", "blanks", "no header"],
)
def test_the_list_as_other_tools_write_it(copy: Path, change) -> None:
    expected = load(copy).query
    file = copy / "Ebay_test.txt"
    file.write_bytes(change(file.read_text("utf-8")).encode())
    assert (load(copy).query.ids, load(copy).query.labels) == (expected.ids, expected.labels)


def test_a_path_with_blanks(copy: Path) -> None:
    write_picture(copy / "chair_final" / "5110 (copy)_1.JPG", 77)
    with (copy / "Ebay_test.txt").open("a") as file:
        file.write("7 11321 3 chair_final/5110 (copy)_1.JPG\n")
    assert load(copy).query.ids[-1] == "chair_final/5110 (copy)_1.JPG"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("7 11322", r"Ebay_test.txt: line 8 has 2 fields, not 4 \(image_id, class_id, super_class_id, path\)"),
        ("7 bicycle 1 bicycle_final/9_0.JPG", r"Ebay_test.txt: line 8: class_id 'bicycle' is not a number"),
        ("7 11319 1 bicycle_final/211085122871_0.JPG", r"the lists name bicycle_final/211085122871_0.JPG twice"),
        ("7 11319 1 bicycle_final/9_0.JPG", r"9_0.JPG: no such file: of the 7 that the lists name .* complete"),
    ],
)
def test_a_damaged_list_is_told_in_one_line(copy: Path, line: str, said: str) -> None:
    with (copy / "Ebay_test.txt").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(RecallatkError, match=said) as error:
        load(copy)
    assert "\n" not in str(error.value)


def test_recall_by_hand(copy: Path) -> None:
    """The first two are one picture and find each other; the third is nearer to the lone photo than to its own."""
    dataset = load(copy)
    angles = np.radians([0, 0, 30, 60, 70, 33])
    rows = EmbeddingSet(np.stack([np.cos(angles), np.sin(angles)], axis=1), dataset.query.labels, ids=dataset.query.ids)
    report = evaluate_embeddings(rows, protocol=dataset.protocol)
    assert (report.num_queries, report.num_evaluated, report.num_excluded) == (6, 5, 1)
    assert report["recall@1"] == 4 / 5
    assert report["recall@10"] == 1.0


def test_from_the_command_line(copy: Path) -> None:
    result = recallatk("eval", copy, "--layout", "sop", "--counts", "any", "--encoder", "color-histogram")
    assert result.code == 0, result.err
    assert "num queries: 6\nnum gallery: 6\n" in result.out
    assert "recall@1000: 1.000000\n" in result.out
    assert "excluded (no positive): 1\n" in result.out


def test_lists_and_images_in_folders_of_their_own(copy: Path) -> None:
    expected = load(copy)
    for folder, pattern in (("images", "*_final"), ("Info_Files", "Ebay_*.txt")):
        moved = list(copy.glob(pattern))
        (copy / folder).mkdir()
        for one in moved:
            one.rename(copy / folder / one.name)
    dataset = load(copy)
    assert (dataset.query.ids, dataset.query.labels) == (expected.query.ids, expected.query.labels)
    assert len(load(copy, part="all").query) == len(TRAIN + TEST)
