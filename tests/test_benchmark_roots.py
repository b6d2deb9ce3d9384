"""Where a copy lies: in DATA, or in a folder of whatever name in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lookalikes import write_lines
from recallatk.datasets.benchmarks.files import Item, find_root, image_set
from recallatk.types import RecallatkError

NEEDED = ("list.txt", ("img", "Img/img"))


def write_copy(root: Path, pictures: str = "img") -> Path:
    write_lines(root / "list.txt", ["a line"])
    (root / pictures).mkdir(parents=True)
    return root


@pytest.mark.parametrize("where", [".", "Official", "Official/Official", "archive (1)"])
@pytest.mark.parametrize("pictures", ["img", "Img/img"])
def test_a_copy_is_found_under_any_name(tmp_path: Path, where: str, pictures: str) -> None:
    root = write_copy(tmp_path / where, pictures)
    (tmp_path / "__MACOSX").mkdir()
    write_copy(tmp_path / "__MACOSX" / "Official")
    write_copy(tmp_path / ".Trash")
    assert find_root(tmp_path, "Official", *NEEDED) == root


def test_the_official_name_comes_first(tmp_path: Path) -> None:
    write_copy(tmp_path / "backup")
    official = write_copy(tmp_path / "Official")
    assert find_root(tmp_path, "Official", *NEEDED) == official


def test_of_two_copies_none_is_guessed(tmp_path: Path) -> None:
    write_copy(tmp_path / "old")
    write_copy(tmp_path / "new")
    with pytest.raises(RecallatkError, match=r"several folders in it are such a copy \(new, old\)"):
        find_root(tmp_path, "Official", *NEEDED)


def test_what_is_not_there_is_named_with_its_other_names(tmp_path: Path) -> None:
    write_lines(tmp_path / "Official" / "list.txt", ["a line"])
    with pytest.raises(
        RecallatkError, match=r"Official: no img or Img/img in this folder; .* holds list.txt, img \(oft"
    ):
        find_root(tmp_path, "Official", *NEEDED)


def test_a_path_that_is_listed_twice_is_named(tmp_path: Path) -> None:
    items = [Item("a.jpg", "1"), Item("b.jpg", "2"), Item("a.jpg", "2")]
    with pytest.raises(RecallatkError, match=r"the lists name a.jpg twice \(query\); take the official files"):
        image_set(tmp_path, items, on_error="error", side="query")
    boxes = [Item("a.jpg", "1", box=(0, 0, 4, 4)), Item("a.jpg", "1", box=(4, 0, 8, 4))]
    write_lines(tmp_path / "a.jpg", ["a picture"])
    assert len(image_set(tmp_path, boxes, on_error="error")[0]) == 2
