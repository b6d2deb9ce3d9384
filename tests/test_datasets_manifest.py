"""Manifests: what the columns mean, that cells survive, and that every fault names its line."""

from __future__ import annotations

import csv
import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from recallatk.datasets import load_dataset
from recallatk.encoding import encode
from recallatk.types import Dataset, RecallatkError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (2, 2)).save(tmp_path / name)
    return tmp_path


def read(folder: Path, text: str, name: str = "list.csv", **options: Any) -> Dataset:
    (folder / name).write_text(text, encoding="utf-8", newline="")
    return load_dataset(folder / name, **options)


def failure(folder: Path, text: str, name: str = "list.csv", **options: Any) -> str:
    with pytest.raises(RecallatkError) as error:
        read(folder, text, name, **options)
    message = str(error.value)
    assert "\n" not in message
    return message.removeprefix(f"{folder / name}: ")


def json_lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def parquet(root: Path, columns: dict[str, Any]) -> Dataset:
    pq.write_table(pa.table(columns), root / "list.parquet")
    return load_dataset(root / "list.parquet")


PATHS = ["a/1.png", "a/2.png", "b/1.png"]


def test_without_roles_every_row_is_query_and_gallery(root: Path) -> None:
    data = read(root, "path,label,camera\na/1.png,a,c1\na/2.png,a,c2\nb/1.png,b,c1\n")
    assert data.gallery is None
    assert data.query.ids == data.query.same == tuple(PATHS)
    assert data.query.labels == ("a", "a", "b")
    assert data.query.groups == {"camera": ("c1", "c2", "c1")}
    assert data.query.elements == tuple(root / path for path in PATHS)
    assert (data.root, data.notes, data.warnings) == (root, (), ())


def test_roles_make_two_sides_and_both_is_in_each_with_one_identity(root: Path) -> None:
    data = read(root, "path,label,role\na/1.png,a,query\na/2.png,a,both\nb/1.png,b,gallery\n")
    assert data.gallery is not None
    assert (data.query.ids, data.gallery.ids) == (("a/1.png", "a/2.png"), ("a/2.png", "b/1.png"))
    assert data.query.same is not None
    assert data.gallery.same is not None
    assert data.query.same[1] == data.gallery.same[0]
    assert data.query.groups == {}
    assert read(root, "path,label,role\na/1.png,a,both\na/2.png,a,both\n").gallery is None


def test_split_is_the_role_where_it_names_the_sides_and_a_group_column_elsewhere(root: Path) -> None:
    data = read(root, "path,label,split\na/1.png,a,query\na/2.png,a,gallery\ngone.png,,train\ngone.png,b,val\n")
    assert data.gallery is not None
    assert (data.query.ids, data.gallery.ids, data.query.groups) == (("a/1.png",), ("a/2.png",), {})
    assert data.notes == ("2 rows left aside, whose split is none of query, gallery, both ('train': 1, 'val': 1)",)
    plain = read(root, "path,label,split\na/1.png,a,test\na/2.png,a,val\n")
    assert plain.gallery is None
    assert plain.query.groups == {"split": ("test", "val")}
    beside = read(root, "path,label,role,split\na/1.png,a,query,gallery\na/2.png,a,gallery,x\n")
    assert beside.query.groups == {"split": ("gallery",)}


@pytest.mark.parametrize("pair", [("easting", "northing"), ("utm_east", "utm_north"), ("x", "y")])
@pytest.mark.parametrize("label", [",label", ""])
def test_two_columns_of_coordinates_are_positions_and_then_labels_are_optional(
    root: Path, pair: tuple[str, str], label: str
) -> None:
    cells = ",a" if label else ""
    text = f"{pair[1]},path{label},{pair[0]},role\n4190000.000000001,a/1.png{cells},548123.4567890123,query\n"
    data = read(root, text + f"-0.5,b/1.png{cells},1e5,gallery\n")
    assert data.gallery is not None
    assert data.query.positions is not None
    assert data.gallery.positions is not None
    assert data.query.positions.dtype == float
    assert data.query.positions.tolist() == [[548123.4567890123, 4190000.000000001]]
    assert data.gallery.positions.tolist() == [[100000.0, -0.5]]
    assert data.query.groups == {}
    assert data.query.labels == (("a",) if label else ((),))
    assert data.notes == (() if label else ("there is no column 'label', so no row has a label",))


def test_one_coordinate_alone_or_a_second_pair_stays_a_group(root: Path) -> None:
    data = read(root, "path,label,easting,y\na/1.png,a,1,2\na/2.png,a,,4\n")
    assert data.query.positions is None
    assert data.query.groups == {"easting": ("1", ""), "y": ("2", "4")}
    data = read(root, "path,label,x,y,easting,northing\na/1.png,a,1,left,3,4\na/2.png,a,2,right,5,6\n")
    assert data.query.groups == {"x": ("1", "2"), "y": ("left", "right")}
    assert data.query.positions is not None
    assert data.query.positions.tolist() == [[3, 4], [5, 6]]


@pytest.mark.parametrize("cell", ["", "north", "nan", "inf", "1_0", "4,5"])
def test_a_cell_that_is_no_coordinate_names_the_line(root: Path, cell: str) -> None:
    message = failure(root, f'path,x,y\na/1.png,1,2\na/2.png,3,"{cell}"\n')
    assert message.startswith(f"line 3: y is {cell!r}; write the position of every row as numbers, in metres")


def test_positions_of_json_lines_and_parquet_may_be_numbers(root: Path) -> None:
    rows = [{"path": "a/1.png", "x": 1, "y": 2.5}, {"path": "a/2.png", "x": "3", "y": 4}]
    data = read(root, json_lines(*rows), "list.jsonl")
    assert data.query.positions is not None
    assert data.query.positions.tolist() == [[1, 2.5], [3, 4]]
    assert "line 2: y is None" in failure(root, json_lines(rows[0], {"path": "a/2.png", "x": 1}), "list.jsonl")
    assert "line 1: x is True" in failure(root, json_lines({"path": "a/2.png", "x": True, "y": 1}), "list.jsonl")
    data = parquet(root, {"path": PATHS, "easting": [1, 2, 3], "northing": [0.5, 1.5, 2.5]})
    assert data.query.positions is not None
    assert data.query.positions.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]


def test_one_id_at_two_places_is_an_error(root: Path) -> None:
    text = "path,x,y,role\na/1.png,1,2,query\na/1.png,1,3,gallery\n"
    assert "but the positions (1.0, 2.0) and (1.0, 3.0)" in failure(root, text)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    ("path", "label", "advice"),
    [
        ("Path", "label", "rename 'Path' to 'path'"),
        ("File_Name", "label", "rename 'File_Name' to 'path'"),
        ("image", "label", "rename 'image' to 'path'"),
        ("path", "LABEL", "rename 'LABEL' to 'label'"),
        ("path", "identity", "rename 'identity' to 'label'"),
        ("path", "camera", "Rename one, or add it"),
    ],
)
def test_a_column_under_another_name_is_named_in_the_error(
    root: Path, suffix: str, path: str, label: str, advice: str
) -> None:
    if suffix == "parquet":
        with pytest.raises(RecallatkError) as error:
            parquet(root, {path: PATHS, label: ["a", "a", "b"]})
        assert advice in str(error.value)
    else:
        text = f"{path},{label}\na/1.png,a\n" if suffix == "csv" else json_lines({path: "a/1.png", label: "a"})
        assert advice in failure(root, text, f"list.{suffix}")


def test_a_difference_in_case_is_named_before_an_alias(root: Path) -> None:
    assert "rename 'Label' to 'label'" in failure(root, "path,class,Label\na/1.png,x,a\n")


def test_labels_can_be_left_out_where_relevance_does_not_look_at_them(root: Path) -> None:
    text = "path,camera\na/1.png,c1\na/2.png,c2\n"
    assert "no column 'label'" in failure(root, text)
    data = read(root, text, labels_required=False)
    assert data.query.labels == ((), ())
    assert data.notes == ("there is no column 'label', so no row has a label",)
    assert load_dataset(root, labels_required=False).query.labels == ("a", "a", "b", "b")


def test_positions_stay_with_their_images_through_encoding(root: Path) -> None:
    (root / "b/1.png").write_bytes(b"no image")
    data = read(root, "path,x,y\na/1.png,1,2\nb/1.png,3,4\na/2.png,5,6\n")
    encoded = encode([data.query], lambda batch: np.ones((len(batch), 2)), on_error="skip").sets[0]
    assert encoded.ids == ("a/1.png", "a/2.png")
    assert encoded.positions is not None
    assert encoded.positions.tolist() == [[1, 2], [5, 6]]


def test_a_role_that_is_unknown_or_a_side_without_rows_is_an_error(root: Path) -> None:
    message = failure(root, "path,label,role\na/1.png,a,query\na/2.png,a,Gallery\n")
    assert message == "line 3: the role is 'Gallery'; write query, gallery, both"
    assert "no row is in the gallery side" in failure(root, "path,label,role\na/1.png,a,query\n")


def test_cells_stay_the_text_they_are(root: Path) -> None:
    names = ["tabby, grey.png", 'say "hi".png', "two\nlines.png", " blanks .png", "ünï 中文 😀 #1 100%25.png", "-d.png"]
    labels = ["cat, tabby", "007", "NA", "1e5", " dog ", "two\nlines"]
    for name in names:
        Image.new("RGB", (2, 2)).save(root / name)
    with (root / "list.csv").open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, lineterminator="\r\n").writerows([["path", "label"], *zip(names, labels, strict=True)])
    data = load_dataset(root / "list.csv")
    assert list(data.query.ids) == names
    assert list(data.query.labels) == labels
    assert data.query.label_kind == "text"
    with Image.open(data.query.elements[2]) as image:
        assert image.size == (2, 2)


def test_lines_are_counted_where_a_row_begins(root: Path) -> None:
    message = failure(root, 'path,label,note\na/1.png,a,"one\ntwo\nthree"\n\na/2.png,,"x\ny"\n')
    assert message.startswith("line 6 ('a/2.png'): the label is empty")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("path,label\n", "no rows below the header"),
        ("path;label\na/1.png;a\n", "'path;label': the separator is ';'"),
        ("path\tlabel\na/1.png\ta\n", "name it .tsv"),
        ("path,split\na/1.png,query\n", "no column 'label'; columns found: 'path', 'split'"),
        ("path,label,label\na/1.png,a,a\n", "the column 'label' occurs more than once"),
        ("path,label\na/1.png,a\na/2.png,a,b\n", "line 3 has 3 fields, the header has 2"),
        ('path,label\na/1.png,a\n"a/2.png,a\n', "the row that begins on line 3 is not valid"),
        ("path,label\n,a\n", "line 2: the path is ''"),
        ("path,label,id\na/1.png,a,\n", "line 2: the id is empty"),
        ("path,label\na/1.png,a\nb/1.png,b\na/1.png,a\n", "line 2 and line 4 have the same path 'a/1.png'"),
        ("path,label,id\na/1.png,a,x\na/2.png,a,x\n", "line 2 and line 3 have the same id 'x'"),
        ("path,label,role\na/1.png,a,query\na/1.png,b,gallery\n", "but the labels 'a' and 'b'"),
        ("path,label,role,id\na/1.png,a,query,x\na/2.png,a,gallery,x\n", "but the files 'a/1.png' and 'a/2.png'"),
        ("path,label,role\na/1.png,a,both\na/1.png,a,gallery\n", "(role gallery)"),
        ("path,label\na,a\n", "no such file 'a'"),
    ],
)
def test_a_fault_in_a_table_is_one_line_that_names_the_place(root: Path, text: str, words: str) -> None:
    assert words in failure(root, text)


def test_a_path_may_stand_once_on_each_side_and_twice_with_ids(root: Path) -> None:
    data = read(root, "path,label,role\na/1.png,a,query\na/1.png,a,gallery\na/2.png,a,gallery\n")
    assert data.gallery is not None
    assert data.query.same == data.gallery.same[:1]
    twice = read(root, "path,label,id\na/1.png,a,x\na/1.png,b,y\n")
    assert (twice.query.ids, twice.query.same) == (("x", "y"), ("a/1.png", "a/1.png"))


def test_a_file_that_is_not_utf8_is_an_error_that_says_so(root: Path) -> None:
    (root / "list.csv").write_bytes("path,label\na/1.png,a\na/2.png,caf\xe9\n".encode("latin-1"))
    with pytest.raises(RecallatkError, match="line 3 is not UTF-8"):
        load_dataset(root / "list.csv")


def test_missing_files_are_one_error_or_skipped(root: Path) -> None:
    text = "path,label\na/1.png,a\ngone.png,a\na/2.png,a\nlost.png,b\n"
    message = failure(root, text)
    assert message.startswith("line 3: no such file 'gone.png' (and 1 more row)")
    data = read(root, text, on_error="skip")
    assert data.query.ids == ("a/1.png", "a/2.png")
    assert [skipped.item for skipped in data.skipped] == ["gone.png", "lost.png"]
    assert data.skipped[0].reason == "no such file (list.csv, line 3)"
    message = failure(root, "path,label\ngone.png,a\n", on_error="skip")
    assert "the file of every such row is missing" in message


def test_backslashes_are_converted_only_where_the_file_is_there_so(root: Path) -> None:
    Image.new("RGB", (2, 2)).save(root / "b\\3.png")
    data = read(root, "path,label\na\\1.png,a\nb\\3.png,b\n")
    assert data.query.ids == ("a/1.png", "b\\3.png")
    assert data.query.elements[0] == root / "a/1.png"
    assert data.notes == ("1 path written with a backslash read with /, as the files are only there so",)
    assert "'c\\\\9.png'" in failure(root, "path,label\nc\\9.png,a\n")


def test_paths_start_from_the_manifest_or_root_or_are_absolute(root: Path, tmp_path: Path) -> None:
    lists = root / "lists"
    lists.mkdir()
    text = f"path,label\na/1.png,a\n{root}/a/2.png,a\n"
    data = read(lists, text, root=root)
    assert data.root == root
    assert data.query.ids == ("a/1.png", f"{root}/a/2.png")
    assert data.query.same == ("a/1.png", "a/2.png")
    assert "no such file 'a/1.png'" in failure(lists, text)
    assert "no such folder" in failure(lists, text, root=tmp_path / "nowhere")


def test_links_and_dotted_paths_are_the_same_image(root: Path) -> None:
    (root / "link.png").symlink_to("a/1.png")
    (root / "c").symlink_to("a")
    data = read(root, "path,label\na/1.png,a\nlink.png,a\nc/1.png,a\nb/../a/1.png,a\n")
    assert data.query.same == ("a/1.png",) * 4


def test_a_separator_splits_cells_into_labels_and_an_empty_cell_is_none(root: Path) -> None:
    data = read(root, "path,label\na/1.png,cat|pet\na/2.png,\nb/1.png,cat\n", label_separator="|")
    assert data.query.labels == (("cat", "pet"), (), ("cat",))


def test_tab_separated_files_keep_commas(root: Path) -> None:
    assert read(root, "path\tlabel\na/1.png\tcat, tabby\n", "list.tsv").query.labels == ("cat, tabby",)
    assert "name it .csv" in failure(root, "path,label\na/1.png,a\n", "list.tsv")


def test_columns_without_a_name_or_a_value_are_noted(root: Path) -> None:
    data = read(root, ",path,label,camera\n0,a/1.png,a,\n1,a/2.png,a,c2\n")
    assert data.query.groups == {"camera": ("", "c2")}
    assert data.notes == ("a column without a name left aside", "the column 'camera' is empty in 1 row")


def test_json_lines_keep_integers_and_lists(root: Path) -> None:
    rows = [{"path": "a/1.png", "label": 7, "shot": 3}, {"path": "a/2.png", "label": 8, "box": [1, 2]}]
    data = read(root, "\n" + json_lines(*rows), "list.jsonl")
    assert (data.query.labels, data.query.label_kind) == (("7", "8"), "integer")
    assert data.query.groups == {"shot": ("3", "")}
    assert data.notes == (
        "the column 'box' holds lists, objects or bytes and is left aside",
        "the column 'shot' is empty in 1 row",
    )
    several = [{"path": "a/1.png", "label": ["x", "y"]}, {"path": "a/2.png", "label": []}]
    assert read(root, json_lines(*several), "list.ndjson").query.labels == (("x", "y"), ())
    line_separator = [{"path": "a/1.png", "label": "x\u2028y"}]
    text = json.dumps(line_separator[0], ensure_ascii=False)
    assert read(root, text, "list.jsonl").query.labels == ("x\u2028y",)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"path": "a/2.png", "label": 1.5}', "line 2 ('a/2.png'): the label is 1.5 (float)"),
        ('{"path": "a/2.png", "label": null}', "line 2 ('a/2.png'): there is no label"),
        ('{"path": "a/2.png"}', "line 2 ('a/2.png'): there is no label"),
        ('{"path": "a/2.png", "label": true}', "the label is True (bool)"),
        ('{"path": "a/2.png", "label": ["x", 1.5]}', "the label is 1.5 (float)"),
        ('{"path": 3, "label": "a"}', "line 2: the path is 3"),
        ('["a/2.png", "a"]', "line 2 is no object"),
        ('{"path": "a/2.png"', "line 2 is not JSON"),
    ],
)
def test_a_fault_in_json_lines_names_the_line(root: Path, line: str, words: str) -> None:
    assert words in failure(root, json_lines({"path": "a/1.png", "label": "a"}) + line + "\n", "list.jsonl")


def test_parquet_labels_may_be_text_a_dictionary_integers_or_lists(root: Path) -> None:
    assert parquet(root, {"path": PATHS, "label": ["a", "a", "007"]}).query.labels == ("a", "a", "007")
    coded = pa.array(["a", "b", "a"]).dictionary_encode()
    data = parquet(root, {"path": PATHS, "label": coded, "camera": [1, 1, 2], "vector": [[0.5], [1.5], [2.5]]})
    assert (data.query.labels, data.query.label_kind) == (("a", "b", "a"), "text")
    assert data.query.groups == {"camera": ("1", "1", "2")}
    assert data.notes == ("the column 'vector' holds lists, objects or bytes and is left aside",)
    whole = parquet(root, {"path": PATHS, "label": pa.array([1, 2, 1], pa.int16())})
    assert (whole.query.labels, whole.query.label_kind) == (("1", "2", "1"), "integer")
    assert parquet(root, {"path": PATHS, "label": [["x", "y"], [], ["y"]]}).query.labels == (("x", "y"), (), ("y",))


@pytest.mark.parametrize("labels", [[1.0, 2.0, 3.0], [None, "a", "b"], pa.array([None, 1, 2])])
def test_parquet_labels_that_are_no_labels_name_the_row(root: Path, labels: Any) -> None:
    with pytest.raises(RecallatkError, match=r"row 0 \(counted from 0\)"):
        parquet(root, {"path": PATHS, "label": labels})


def test_a_file_that_is_no_parquet_is_an_error(root: Path) -> None:
    assert "cannot be read as Parquet" in failure(root, "path,label\n" * 5, "list.parquet")


def test_an_option_for_folders_is_refused(root: Path) -> None:
    assert "the layout manifest does not take it" in failure(root, "path,label\na/1.png,a\n", label_from="regex:x")


# --- boxes


def picture(path: Path) -> Image.Image:
    """20 x 10 pixels: the left half red, the right half blue."""
    image = Image.new("RGB", (20, 10), "red")
    image.paste("blue", (10, 0, 20, 10))
    image.save(path)
    return image


def mean(batch: list[Any]) -> Any:
    return np.stack([np.asarray(image, dtype=np.float32).mean((0, 1)) + 1 for image in batch])


@pytest.mark.parametrize("names", ["x1,y1,x2,y2", "x_1,y_1,x_2,y_2"])
def test_a_box_is_the_image_and_tells_rows_of_one_picture_apart(root: Path, names: str) -> None:
    picture(root / "scene.png")
    data = read(root, f"path,label,{names}\nscene.png,a,0,0,10,10\nscene.png,b,10,0,20,10\nscene.png,c,,,,\n")
    assert data.query.ids == data.query.same == ("scene.png@0,0,10,10", "scene.png@10,0,20,10", "scene.png")
    assert data.query.boxes == ((0, 0, 10, 10), (10, 0, 20, 10), None)
    assert data.query.groups == {}
    (rows,) = encode([data.query], mean).sets
    np.testing.assert_array_equal(rows.embeddings, [[256, 1, 1], [1, 1, 256], [128.5, 1, 128.5]])
    assert rows.content is not None
    assert len(set(rows.content)) == 3
    assert data.query.take([1]).boxes == ((10, 0, 20, 10),)


def test_a_box_counts_in_the_picture_as_it_is_turned(root: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying, shown standing: 10 wide, 20 high
    picture(root / "plain.png").save(root / "turned.png", exif=exif)
    data = read(root, "path,label,x1,y1,x2,y2\nturned.png,a,0,0,10,10\n")
    (rows,) = encode([data.query], mean).sets
    np.testing.assert_array_equal(rows.embeddings, [[256, 1, 1]])


@pytest.mark.parametrize("box", ["-1,0,5,5", "5,0,5,5", "0,9,5,3", "0,0,2.5,5", "a,0,5,5", ",0,5,5", "0,0,1e400,5"])
def test_a_box_that_is_none_names_its_line(root: Path, box: str) -> None:
    message = failure(root, f"path,label,x1,y1,x2,y2\na/1.png,a,0,0,1,1\na/1.png,b,{box}\n")
    assert message.startswith("line 3: ")
    assert "x1, y1, x2, y2" in message


def test_a_box_beyond_the_picture_names_image_and_size(root: Path) -> None:
    data = read(root, "path,label,x1,y1,x2,y2\na/1.png,a,0,0,2,2\na/2.png,a,0,0,3,2\n")
    with pytest.raises(RecallatkError, match=r"a/2.png@0,0,3,2: .*the box \(0, 0, 3, 2\) is not inside its 2 x 2"):
        encode([data.query], mean)
    assert [item.item for item in encode([data.query], mean, on_error="skip").skipped] == ["a/2.png@0,0,3,2"]
    with pytest.raises(RecallatkError, match="decode=True"):
        encode([data.query], mean, decode=False)


@pytest.mark.parametrize("names", ["x1,y1,x2", "x1,x2", "x_1,y_1,x_2"])
def test_a_box_with_a_column_missing_is_no_box(root: Path, names: str) -> None:
    cells = ",".join("1" for _ in names.split(","))
    message = failure(root, f"path,label,{names}\na/1.png,a,{cells}\na/2.png,a,{cells}\n")
    assert "a crop box needs all four" in message
    assert f"there are columns {names.replace(',', ', ')} but no " in message


def test_one_id_cannot_be_two_boxes(root: Path) -> None:
    text = "path,label,role,id,x1,y1,x2,y2\na/1.png,a,query,q,0,0,1,1\na/1.png,a,gallery,q,0,0,2,2\n"
    assert "the boxes (0, 0, 1, 1) and (0, 0, 2, 2)" in failure(root, text)


# --- the tables of others


def test_the_columns_of_oml_are_understood(root: Path) -> None:
    table = "label,path,split,is_query,is_gallery,category,x_1,x_2,y_1,y_2\n"
    table += "1,a/1.png,validation,True,False,birds,0,1,0,2\n2,a/2.png,train,,,birds,,,,\n"
    table += "1,b/1.png,validation,False,True,birds,,,,\n3,b/2.png,validation,True,True,dogs,,,,\n"
    data = read(root, table)
    assert data.gallery is not None
    assert (data.query.ids, data.gallery.ids) == (("a/1.png@0,0,1,2", "b/2.png"), ("b/1.png", "b/2.png"))
    assert data.query.groups == {"split": ("validation",) * 2, "category": ("birds", "dogs")}
    assert data.notes == ("1 row left aside, where neither is_query nor is_gallery is true",)


def test_flags_and_boxes_of_a_data_frame_may_be_empty_cells(root: Path) -> None:
    flags: dict[str, Any] = {"is_query": [True, None, None], "is_gallery": [0.0, 1.0, float("nan")]}
    corners = {"x_1": 0.0, "y_1": 0.0, "x_2": 1.0, "y_2": 2.0}
    boxes = {name: [value, float("nan"), None] for name, value in corners.items()}
    data = parquet(root, {"path": PATHS, "label": [1, 1, 2], **flags, **boxes})
    assert data.gallery is not None
    assert (data.query.boxes, data.gallery.boxes) == (((0, 0, 1, 2),), (None,))
    assert (data.query.label_kind, data.gallery.ids) == ("integer", ("a/2.png",))


def test_a_flag_that_is_neither_names_its_line(root: Path) -> None:
    message = failure(root, "path,label,is_query,is_gallery\na/1.png,a,True,maybe\n")
    assert message.startswith("line 2: is_gallery is 'maybe'")


def test_the_metadata_of_an_imagefolder_makes_a_folder_a_manifest(root: Path) -> None:
    rows = [{"file_name": path, "label": path[0]} for path in PATHS]
    (root / "metadata.jsonl").write_text(json_lines(*rows), encoding="utf-8")
    for data in (load_dataset(root), load_dataset(root / "metadata.jsonl"), load_dataset(root, layout="imagefolder")):
        assert data.query.ids == tuple(PATHS)
        assert data.query.labels == ("a", "a", "b")
    assert load_dataset(root).notes == ("1 image left aside that metadata.jsonl does not use (such as 'b/2.png')",)
    assert load_dataset(root, layout="classes").query.labels == ("a", "a", "b", "b")
    (root / "metadata.csv").write_text("file_name,label\na/1.png,a\n", encoding="utf-8")
    with pytest.raises(RecallatkError, match=r"metadata.csv and metadata.jsonl are both there"):
        load_dataset(root)


def test_a_folder_with_another_metadata_table_stays_a_folder_of_classes(root: Path) -> None:
    (root / "metadata.csv").write_text("author,year\nme,2020\n", encoding="utf-8")
    assert load_dataset(root).query.ids == ("a/1.png", "a/2.png", "b/1.png", "b/2.png")
    with pytest.raises(RecallatkError, match=r"no metadata\.csv"):
        load_dataset(root / "a", layout="imagefolder")


@pytest.mark.parametrize(("written", "stored"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_a_path_in_another_unicode_form_than_the_file_is_found_with_a_note(
    root: Path, written: str, stored: str
) -> None:
    Image.new("RGB", (2, 2)).save(root / unicodedata.normalize(stored, "café.png"))
    data = read(root, f"path,label\n{unicodedata.normalize(written, 'café.png')},a\na/1.png,a\n")
    assert data.query.ids == (unicodedata.normalize(stored, "café.png"), "a/1.png")
    assert data.notes == ("1 path read in another Unicode form, as the files are only there so",)
    message = failure(root, "path,label\nthé.png,a\n")
    assert "no such file 'thé.png'" in message
