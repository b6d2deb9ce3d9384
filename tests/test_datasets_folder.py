"""Folders of images: which files are found, how they are named, and what is left aside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from recallatk.datasets import LAYOUTS, Layout, load_dataset, load_two_folders
from recallatk.types import ChoiceError, Dataset, ImageSet, RecallatkError


def put(root: Path, *names: str) -> Path:
    """Small images below root."""
    for number, name in enumerate(names):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2), (number, 0, 0)).save(file, format="PNG")
    return root


def failure(*args: object, **options: object) -> str:
    with pytest.raises(RecallatkError) as error:
        load_dataset(*args, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_query_and_gallery_folders_are_two_sides_and_equal_names_are_different_images(tmp_path: Path) -> None:
    put(tmp_path, "query/red/1.png", "gallery/red/1.png", "gallery/blue/1.png")
    data = load_dataset(tmp_path)
    assert data.gallery is not None
    assert data.query.ids == ("query/red/1.png",)
    assert data.query.labels == ("red",)
    assert data.gallery.ids == ("gallery/blue/1.png", "gallery/red/1.png")
    assert data.gallery.labels == ("blue", "red")
    assert data.gallery.same == data.gallery.ids
    assert not {*data.query.same} & {*data.gallery.same}
    assert data.gallery.elements == (tmp_path / "gallery/blue/1.png", tmp_path / "gallery/red/1.png")
    assert (data.root, data.notes, data.warnings, data.skipped) == (tmp_path, (), (), ())


@pytest.mark.parametrize("names", [("queries", "database"), ("Query", "index")])
def test_other_names_of_the_sides_are_known_and_stay_in_the_ids(tmp_path: Path, names: tuple[str, str]) -> None:
    query, gallery = names
    data = load_dataset(put(tmp_path, f"{query}/a/1.png", f"{gallery}/a/2.png"))
    assert data.gallery is not None
    assert (data.query.ids, data.gallery.ids) == ((f"{query}/a/1.png",), (f"{gallery}/a/2.png",))


def test_two_names_for_one_side_are_an_error(tmp_path: Path) -> None:
    message = failure(put(tmp_path, "query/a/1.png", "gallery/a/1.png", "index/a/1.png"))
    assert "gallery and index" in message


def test_what_lies_beside_the_two_sides_is_left_aside_with_a_note(tmp_path: Path) -> None:
    put(tmp_path, "query/a/1.png", "gallery/a/2.png", "train/a/3.png")
    (tmp_path / ".git").mkdir()
    data = load_dataset(tmp_path)
    assert data.notes == ("1 item beside the two sides left aside: 'train/'",)


def test_class_folders_are_leave_one_out_and_labels_stay_as_they_are(tmp_path: Path) -> None:
    data = load_dataset(put(tmp_path, "007/a.png", " cat/b.png", "Über/deep/er/c.png", "007/d.JPG"))
    assert data.gallery is None
    assert data.query.ids == (" cat/b.png", "007/a.png", "007/d.JPG", "Über/deep/er/c.png")
    assert data.query.labels == (" cat", "007", "007", "er")
    assert data.warnings == ()


def test_one_side_alone_is_read_as_classes_with_a_warning(tmp_path: Path) -> None:
    put(tmp_path, "gallery/a/1.png", "gallery/b/1.png")
    data = load_dataset(tmp_path)
    assert data.gallery is None
    assert "gallery/ is there but no query/ or queries/" in data.warnings[0]
    assert load_dataset(tmp_path, layout="classes").warnings == ()
    assert "query or queries" in failure(tmp_path, layout="folder")


def test_branches_that_share_a_class_name_are_one_label_with_a_warning(tmp_path: Path) -> None:
    data = load_dataset(put(tmp_path, "a/bat/1.png", "b/bat/1.png", "b/cat/1.png"))
    assert data.query.labels == ("bat", "bat", "cat")
    assert len(data.warnings) == 1
    assert "1 label from folders" in data.warnings[0]
    assert "'bat' from 'a/bat' and 'b/bat'" in data.warnings[0]
    assert load_dataset(tmp_path, label_from=r"regex:^(\w/\w+)/").query.labels == ("a/bat", "b/bat", "b/cat")


def test_one_name_in_two_unicode_forms_is_one_label_with_a_warning_that_tells_them_apart(tmp_path: Path) -> None:
    put(tmp_path, "query/caf\u00e9/1.png", "gallery/cafe\u0301/1.png")
    (warning,) = load_dataset(tmp_path).warnings
    assert "1 folder is one name in two Unicode forms, such as 'cafe\\u0301' and 'caf\\xe9'" in warning
    assert "branches" not in warning
    put(tmp_path, "gallery/x/caf\u00e9/1.png")
    branches, forms = load_dataset(tmp_path).warnings
    assert "1 label from folders in different branches, such as 'caf\u00e9' from 'caf\u00e9' and 'x/caf" in branches
    assert "two Unicode forms" in forms


def test_an_image_outside_every_class_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    assert "'loose.png' lies in no class folder" in failure(put(tmp_path / "one", "a/1.png", "loose.png"))
    message = failure(put(tmp_path / "two", "query/1.png", "gallery/a/1.png"))
    assert "'query/1.png' lies in no class folder" in message
    assert "label_from='regex:" in message


def test_the_label_can_be_searched_in_the_path_below_data(tmp_path: Path) -> None:
    put(tmp_path, "query/0002_c1.png", "gallery/0002_c2.png", "gallery/0003_c1.png")
    for pattern in (r"/(?P<label>\d+)_(c\d)", r"/(\d+)_", r"(?<=/)\d+"):
        data = load_dataset(tmp_path, label_from=f"regex:{pattern}")
        assert data.gallery is not None
        assert (data.query.labels, data.gallery.labels) == (("0002",), ("0002", "0003"))
    assert load_dataset(tmp_path, label_from="regex:^query|^gallery").query.labels == ("query",)


def test_a_pattern_that_is_wrong_or_finds_nothing_is_an_error(tmp_path: Path) -> None:
    put(tmp_path, "a1/1.png", "b/1.png")
    assert "no regular expression" in failure(tmp_path, label_from="regex:(")
    assert "'b/1.png'" in failure(tmp_path, label_from=r"regex:^a(\d)")
    assert "use parent" in failure(tmp_path, label_from="folder")


def test_a_separator_gives_an_image_several_labels(tmp_path: Path) -> None:
    data = load_dataset(put(tmp_path, "cat+pet/1.png", "cat/1.png"), label_separator="+")
    assert data.query.ids == ("cat+pet/1.png", "cat/1.png")
    assert data.query.labels == (("cat", "pet"), ("cat",))
    assert "separates nothing" in failure(tmp_path, label_separator="")


def test_hidden_and_system_files_are_no_images_and_no_classes(tmp_path: Path) -> None:
    left = ("._1.png", ".ipynb_checkpoints/1.png", "@eaDir/1.png")
    put(tmp_path, "cat/1.png", *(f"cat/{name}" for name in left), "$RECYCLE.BIN/x/1.png", "__MACOSX/cat/1.png")
    (tmp_path / "cat" / ".DS_Store").write_bytes(b"\0")
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"\0")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "readme.txt").write_text("notes")
    data = load_dataset(tmp_path)
    assert data.query.ids == ("cat/1.png",)
    assert data.notes == (
        "1 other file left aside (such as 'readme.txt')",
        "8 hidden or system items left aside (such as '$RECYCLE.BIN')",
    )


def test_a_folder_without_an_image_is_noted(tmp_path: Path) -> None:
    (put(tmp_path, "a/1.png") / "empty").mkdir()
    assert load_dataset(tmp_path).notes == ("1 folder without an image (such as 'empty')",)


def test_a_folder_without_any_image_says_what_was_found_instead(tmp_path: Path) -> None:
    assert "found: nothing" in failure(tmp_path)
    (tmp_path / "list.csv").write_text("path,label\n")
    (tmp_path / "a").mkdir()
    message = failure(tmp_path)
    assert str(tmp_path) in message
    assert "1 other file left aside (such as 'list.csv'), 1 folder without an image" in message
    assert "if 'list.csv' is a manifest, give its path" in message
    put(tmp_path, "query/a/1.png")
    (tmp_path / "gallery").mkdir()
    assert failure(tmp_path).startswith(f"{tmp_path / 'gallery'}: no image")


def test_data_that_is_not_there_or_of_another_kind_is_an_error(tmp_path: Path) -> None:
    put(tmp_path, "a/1.png")
    assert "no such file or folder" in failure(tmp_path / "nowhere")
    assert "did you mean classes?" in failure(tmp_path, layout="class")
    assert "choose one of: folder" in failure(tmp_path, layout="zzz")
    assert "a folder; the layout manifest reads a file: a table (.csv" in failure(tmp_path, layout="manifest")
    assert "reads a folder" in failure(tmp_path / "a/1.png", layout="folder")
    assert "manifests end in .csv" in failure(tmp_path / "a/1.png")
    assert "does not take it" in failure(tmp_path, root=tmp_path)
    with pytest.raises(RecallatkError, match="no such folder"):
        load_two_folders(tmp_path, tmp_path / "nowhere")
    with pytest.raises(RecallatkError, match="not a folder"):
        load_two_folders(tmp_path / "a/1.png", tmp_path)


def test_a_link_to_nothing_is_an_error_or_skipped(tmp_path: Path) -> None:
    put(tmp_path, "a/1.png")
    (tmp_path / "a" / "gone.png").symlink_to("nowhere.png")
    (tmp_path / "a" / "self.png").symlink_to("self.png")
    (tmp_path / "a" / "gone.txt").symlink_to("nowhere.txt")
    message = failure(tmp_path)
    assert "'a/gone.png'" in message
    assert "(and 1 more item)" in message
    data = load_dataset(tmp_path, on_error="skip")
    assert data.query.ids == ("a/1.png",)
    assert [(skipped.item, skipped.reason) for skipped in data.skipped] == [
        ("a/gone.png", "a link to a file that is not there"),
        ("a/self.png", "a link to a file that is not there"),
    ]


def test_what_is_no_regular_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(put(tmp_path, "a/1.png") / "a/pipe.png")
    assert "'a/pipe.png' below" in failure(tmp_path)


def test_linked_files_and_folders_are_followed_and_keep_their_identity(tmp_path: Path) -> None:
    put(tmp_path / "store", "x/1.png", "x/2.png")
    data = put(tmp_path / "data", "query/x/own.png")
    (data / "query" / "x" / "link.png").symlink_to(tmp_path / "store/x/1.png")
    (data / "query" / "x" / "twin.png").symlink_to("own.png")
    (data / "gallery").symlink_to(tmp_path / "store")
    read = load_dataset(data)
    assert read.gallery is not None
    outside = str((tmp_path / "store/x").resolve())
    assert read.query.ids == ("query/x/link.png", "query/x/own.png", "query/x/twin.png")
    assert read.query.same == (f"{outside}/1.png", "query/x/own.png", "query/x/own.png")
    assert read.gallery.ids == ("gallery/x/1.png", "gallery/x/2.png")
    assert read.gallery.same == (f"{outside}/1.png", f"{outside}/2.png")


def test_loops_of_links_are_noted_and_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "data", "a/1.png", "b/2.png")
    (tmp_path / "data" / "a" / "up").symlink_to("..")
    (tmp_path / "data" / "b" / "out").symlink_to(tmp_path)
    data = load_dataset(tmp_path / "data")
    assert data.query.ids == ("a/1.png", "b/2.png")
    assert data.notes == ("2 linked folders not followed: a loop (such as 'a/up')",)


def test_two_folders_that_are_one_folder_are_leave_one_out(tmp_path: Path) -> None:
    put(tmp_path / "images", "a/1.png", "a/2.png")
    (tmp_path / "link").symlink_to("images")
    data = load_two_folders(tmp_path / "images", tmp_path / "link")
    assert data.gallery is None
    assert data.query.ids == ("a/1.png", "a/2.png")


def test_two_folders_that_overlap_keep_their_self_exclusion(tmp_path: Path) -> None:
    put(tmp_path / "all", "val/a/1.png", "train/a/1.png")
    put(tmp_path / "more", "a/1.png")
    (tmp_path / "more" / "a" / "link.png").symlink_to(tmp_path / "all/train/a/1.png")
    nested = load_two_folders(tmp_path / "all/val", tmp_path / "all")
    assert nested.gallery is not None
    assert (nested.query.ids, nested.query.same) == (("query/a/1.png",), ("query/a/1.png",))
    assert nested.gallery.ids == ("gallery/train/a/1.png", "gallery/val/a/1.png")
    assert nested.gallery.same == ("gallery/train/a/1.png", "query/a/1.png")
    linked = load_two_folders(tmp_path / "more", tmp_path / "all/train")
    assert linked.gallery is not None
    assert linked.query.same == ("query/a/1.png", "gallery/a/1.png")
    assert linked.gallery.same == ("gallery/a/1.png",)


def test_equal_relative_paths_in_two_folders_are_different_images(tmp_path: Path) -> None:
    data = load_two_folders(put(tmp_path / "one", "a/1.png"), put(tmp_path / "two", "a/1.png"))
    assert data.gallery is not None
    assert data.query.same != data.gallery.same


def test_names_that_are_not_utf8_are_shown_and_can_be_opened(tmp_path: Path) -> None:
    folder = os.fsencode(put(tmp_path, "a/1.png") / "a")
    try:
        (Path(os.fsdecode(folder)) / "1.png").rename(os.fsdecode(folder + b"/caf\xe9.png"))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    data = load_dataset(tmp_path)
    assert data.query.ids == ("a/caf\\xe9.png",)
    assert data.query.same == data.query.ids
    with Image.open(data.query.elements[0]) as image:
        assert image.size == (2, 2)


def test_every_layout_has_a_summary_of_one_line() -> None:
    assert set(LAYOUTS) >= {"folder", "classes", "manifest"}
    for layout in LAYOUTS.values():
        assert layout.summary
        assert "\n" not in layout.summary


def test_a_new_layout_is_a_function_and_a_row_with_its_own_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def load(data: Path, **options: Any) -> Dataset:
        given.update(options)
        return Dataset(query=ImageSet(elements=(data,), ids=("one",), labels=("a",)), gallery=None, root=data.parent)

    options = {"between": ":", "label_from": "regex:x"}
    monkeypatch.setitem(LAYOUTS, "listed", Layout(load, "a list", reads="file", options=options))
    (tmp_path / "list.txt").touch()
    assert load_dataset(tmp_path / "list.txt", layout="listed").query.labels == ("a",)
    assert given == {**options, "on_error": "error"}
    load_dataset(tmp_path / "list.txt", layout="listed", between="|", label_from="parent", on_error="skip")
    assert given == {"between": "|", "label_from": "parent", "on_error": "skip"}
    assert "a folder; the layout listed reads a file: a list" in failure(tmp_path, layout="listed")
    put(tmp_path, "a/1.png")
    for option in ("between", "surprise"):
        with pytest.raises(ChoiceError, match=f"{option}='|'.*does not take it; it takes label_from, label_separator"):
            load_dataset(tmp_path, layout="classes", **{option: "|"})


def test_a_table_of_metadata_further_down_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    put(tmp_path, "train/1.png", "train/2.png", "other/3.png")
    (tmp_path / "train" / "metadata.csv").write_text("file_name,label\n1.png,a\n2.png,b\n", encoding="utf-8")
    assert load_dataset(tmp_path).warnings == (
        "train/metadata.csv was not read, and labels come from folders: if it describes the images, give its own "
        "folder as DATA",
    )
    assert load_dataset(tmp_path / "train").query.labels == ("a", "b")
    (tmp_path / "train" / "metadata.csv").rename(tmp_path / "train" / "notes.csv")
    assert load_dataset(tmp_path).warnings == ()


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="this system has no links")
def test_a_link_from_one_side_to_the_folder_of_both_is_a_loop(tmp_path: Path) -> None:
    put(tmp_path, "query/a/1.png", "gallery/a/2.png")
    (tmp_path / "gallery" / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
    data = load_dataset(tmp_path)
    assert data.gallery is not None
    assert data.gallery.ids == ("gallery/a/2.png",)
    assert data.notes == ("1 linked folder not followed: a loop (such as 'gallery/a/up')",)
