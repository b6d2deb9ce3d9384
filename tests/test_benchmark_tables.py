"""The tables of OML and wildlife-datasets on look-alikes: sides, sequences, days, boxes and unknown animals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookalikes import write_lines, write_picture
from recallatk import EmbeddingSet, Report, evaluate_embeddings
from recallatk.cli import main
from recallatk.datasets import load_dataset
from recallatk.types import Dataset, ImageSet, RecallatkError


def evaluated(dataset: Dataset, *angles: Sequence[float]) -> Report:
    """A report of rows on the unit circle, whose angles are given in degrees for each side."""
    sides: list[ImageSet] = [side for side in (dataset.query, dataset.gallery) if side is not None]
    rows = [
        EmbeddingSet(
            np.stack([np.cos(np.radians(own)), np.sin(np.radians(own))], axis=1),
            side.labels,
            ids=side.ids,
            same=side.same,
            groups=side.groups,
        )
        for side, own in zip(sides, angles, strict=True)
    ]
    return evaluate_embeddings(*rows, protocol=dataset.protocol)


OML = [
    "label,path,split,is_query,is_gallery,sequence,category",
    "0,images/train a.jpg,train,,,s9,birds",
    "0,images/gone.jpg,train,,,s9,birds",
    "3,images/a.jpg,validation,True,True,s1,birds",
    "3,images/b.jpg,validation,True,True,s1,birds",
    "3,images/c c.JPG,validation,False,True,s2,birds",
    "4,images/d.jpg,validation,True,True,s3,cats",
    "4,images/e.jpg,validation,False,True,s3,cats",
    "5,images/f.jpg,validation,True,False,s4,cats",
]


def write_oml(folder: Path, lines: Sequence[str] = OML, *, end: str = "\n", mark: str = "") -> Path:
    for number, line in enumerate(OML[1:]):
        name = line.split(",")[1]
        if "gone" not in name:
            shade = 20 * (number - (name == "images/b.jpg"))  # a and b are equal
            write_picture(folder / name, shade, grey=name == "images/f.jpg")
    table = folder / "df.csv"
    table.write_bytes((mark + "".join(line + end for line in lines)).encode())
    return table


@pytest.mark.parametrize(("end", "mark"), [("\n", ""), ("\r\n", "\ufeff")])
def test_oml_reads_the_validation_rows(tmp_path: Path, end: str, mark: str) -> None:
    dataset = load_dataset(write_oml(tmp_path, end=end, mark=mark), layout="oml")
    assert dataset.gallery is not None
    assert dataset.query.ids == ("images/a.jpg", "images/b.jpg", "images/d.jpg", "images/f.jpg")
    assert dataset.gallery.ids == ("images/a.jpg", "images/b.jpg", "images/c c.JPG", "images/d.jpg", "images/e.jpg")
    assert dataset.query.labels == ("3", "3", "4", "5")
    assert dataset.query.groups == {
        "sequence": ("s1", "s1", "s3", "s4"),
        "category": ("birds", "birds", "cats", "cats"),
    }
    assert dataset.notes == ("2 training rows left aside",)


def test_oml_leaves_out_the_sequence(tmp_path: Path) -> None:
    """a finds b first, which is of its sequence; d has only e, of its own sequence; f has nothing."""
    report = evaluated(load_dataset(write_oml(tmp_path), layout="oml"), [0, 5, 90, 180], [0, 5, 40, 90, 30])
    assert (report.num_queries, report.num_evaluated, report.num_excluded) == (4, 2, 2)
    assert report["recall@1"] == 0.0  # e is at 30 degrees, c at 40
    assert report["recall@5"] == 1.0
    without = [",".join(line.split(",")[:5]) for line in OML]
    dataset = load_dataset(write_oml(tmp_path, without), layout="oml")
    assert "every image is a sequence of its own" in dataset.notes[1]
    report = evaluated(dataset, [0, 5, 90, 180], [0, 5, 40, 90, 30])
    assert (report.num_evaluated, report.num_excluded) == (3, 1)
    assert report["recall@1"] == 2 / 3  # a and b find each other, d finds c


def test_oml_one_against_the_rest_with_boxes(tmp_path: Path) -> None:
    lines = ["label,path,split,is_query,is_gallery,x_1,y_1,x_2,y_2"]
    lines += [f"{label},images/a.jpg,validation,1.0,1.0,{left},0,{left + 4},8" for label, left in ((1, 0), (1, 4))]
    dataset = load_dataset(write_oml(tmp_path, lines), layout="oml")
    assert dataset.gallery is None
    assert dataset.query.boxes == ((0, 0, 4, 8), (4, 0, 8, 8))
    assert dataset.query.ids == ("images/a.jpg@0,0,4,8", "images/a.jpg@4,0,8,8")


def test_oml_flags_of_training_rows_count_for_nothing(tmp_path: Path) -> None:
    lines = [line.replace("train,,", "train,True,True") for line in OML]
    assert len(load_dataset(write_oml(tmp_path, lines), layout="oml").query) == 4


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("is_query", "query", "no column 'is_query'; OML's tables have label, path, split, is_query, is_gallery"),
        ("validation", "val", "line 4: the split is 'val'; OML knows train and validation"),
        ("s1,", ",", "line 4: the sequence is empty"),
        ("images/a.jpg", "images/z.jpg", "line 4: no such file 'images/z.jpg'"),
        ("3,images/a.jpg,validation,True", "3,images/a.jpg,validation,perhaps", "line 4: is_query is 'perhaps'"),
    ],
)
def test_oml_damaged(tmp_path: Path, old: str, new: str, said: str) -> None:
    table = write_oml(tmp_path, [line.replace(old, new) for line in OML])
    with pytest.raises(RecallatkError, match=said):
        load_dataset(table, layout="oml")


def test_oml_elsewhere(tmp_path: Path) -> None:
    table = write_oml(tmp_path / "data")
    moved = table.rename(tmp_path / "df.csv")
    with pytest.raises(RecallatkError, match=r"no such file 'images/a\.jpg'"):
        load_dataset(moved, layout="oml")
    assert len(load_dataset(moved, layout="oml", root=tmp_path / "data").query) == 4
    with pytest.raises(RecallatkError, match="a folder; the layout oml reads a file"):
        load_dataset(tmp_path, layout="oml")


def test_the_command_for_oml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["eval", str(write_oml(tmp_path)), "--layout", "oml", "--encoder", "color-histogram", "--no-cache"])
    text = capsys.readouterr().out
    assert text.startswith("[evaluation]\nnum queries: 4\nnum gallery: 5\n")
    assert "(ignore_same=sequence): 1 (e.g. images/d.jpg" in text
    assert "ign:sequence" in text


# Identity, file, day, split, box.
FRAME = [
    ("turtle_04", "img/17.JPG", "2019-05-03 10:00:00", "train", None),
    ("turtle_04", "img/18.JPG", "2019-05-03 11:00:00", "test", None),
    ("turtle_04", "img/19.JPG", "2021-07-01 09:30:00", "test", [1.6, 0.0, 4.0, 8.0]),
    ("unknown", "img/20.JPG", "2021-07-01 09:30:00", "train", None),
    ("unknown", "img/21.JPG", "2021-07-02 09:30:00", "test", None),
    ("turtle 05", "img/22.JPG", "", "train", None),
    ("turtle 05", "img/23.JPG", "2022-01-01", "test", [-0.4, 0, 4, 4]),
    ("turtle_06", "img/24.JPG", "2022-01-02", "val", None),
]


def write_pictures(folder: Path) -> None:
    for number, (_, name, *_) in enumerate(FRAME):
        write_picture(folder / name, 25 * (number - (number == 1)), grey=number == 5)  # 17 and 18 are equal


def write_frame(folder: Path, *, split: str = "split") -> Path:
    write_pictures(folder)
    lines = [f",image_id,identity,path,bbox,date,orientation,keypoints,{split}"]
    for number, (identity, name, date, side, box) in enumerate(FRAME):
        cell = "" if box is None else f'"{box}"'
        lines.append(f'{number},{17 + number},{identity},{name},{cell},{date},left,"[1, 2]",{side}')
    write_lines(folder / "df.csv", lines)
    return folder / "df.csv"


def test_wildlife_by_its_split(tmp_path: Path) -> None:
    dataset = load_dataset(write_frame(tmp_path), layout="wildlife")
    assert dataset.gallery is not None
    assert dataset.query.ids == ("img/18.JPG", "img/19.JPG@2,0,6,8", "img/21.JPG", "img/23.JPG@0,0,4,4")
    assert dataset.gallery.ids == ("img/17.JPG", "img/20.JPG", "img/22.JPG")
    assert dataset.query.labels == ("turtle_04", "turtle_04", "unknown", "turtle 05")
    assert dataset.query.groups["orientation"] == ("left",) * 4
    assert dataset.query.groups["day"][1] == "2021-07-01"
    assert "keypoints" not in dataset.query.groups
    assert "1 row left aside, whose split names neither side ('val': 1)" in dataset.notes
    assert any("2 rows of the identity 'unknown': junk" in note for note in dataset.notes)


def test_unknown_animals_are_junk(tmp_path: Path) -> None:
    """The unknown animal is nearest to every query and takes no rank; it is no query either."""
    dataset = load_dataset(write_frame(tmp_path), layout="wildlife")
    report = evaluated(dataset, [0, 50, 20, 90], [10, 20, 60])
    assert (report.num_queries, report.num_evaluated, report.num_excluded) == (4, 3, 1)
    assert report["recall@1"] == 2 / 3  # the turtle at 50 degrees is nearer to turtle 05
    assert report["recall@5"] == 1.0


def test_wildlife_parts(tmp_path: Path) -> None:
    frame = write_frame(tmp_path)
    alone = load_dataset(frame, layout="wildlife", part="leave-one-out")
    assert alone.gallery is None
    assert len(alone.query) == 8
    days = load_dataset(frame, layout="wildlife", part="other-days")
    assert len(days.query) == 7  # one has no date
    assert "1 row without a date left aside" in days.notes
    report = evaluated(days, [0, 1, 30, 100, 110, 140, 170])
    assert (report.num_evaluated, report.num_excluded) == (3, 4)  # only turtle_04 was seen on two days
    assert report["recall@1"] == 1.0
    assert evaluated(alone, [0, 1, 30, 100, 110, 140, 141, 170]).num_evaluated == 5


def test_wildlife_by_another_column(tmp_path: Path) -> None:
    frame = write_frame(tmp_path, split="split_open")
    assert load_dataset(frame, layout="wildlife").gallery is None
    dataset = load_dataset(frame, layout="wildlife", split_column="split_open")
    assert len(dataset.query) == 4
    with pytest.raises(RecallatkError, match="no column 'fold' that tells queries from gallery; columns found:"):
        load_dataset(frame, layout="wildlife", split_column="fold")
    with pytest.raises(RecallatkError, match="the column 'orientation' holds 'left'; queries are test or query"):
        load_dataset(frame, layout="wildlife", split_column="orientation")
    with pytest.raises(RecallatkError, match="split_column='split_open': the part leave-one-out"):
        load_dataset(frame, layout="wildlife", part="leave-one-out", split_column="split_open")


def test_wildlife_as_parquet(tmp_path: Path) -> None:
    """Lists are lists there, integers are integers, and nothing is nothing."""
    write_pictures(tmp_path)
    identities = [None if identity == "unknown" else identity for identity, *_ in FRAME]
    columns = {
        "image_id": list(range(len(FRAME))),
        "identity": identities,
        "path": [name for _, name, *_ in FRAME],
        "bbox": [box for *_, box in FRAME],
        "keypoints": [[1.0, 2.0]] * len(FRAME),
        "split": [side for *_, side, _ in FRAME],
    }
    pq.write_table(pa.table(columns), tmp_path / "frame.parquet")
    dataset = load_dataset(tmp_path / "frame.parquet", layout="wildlife")
    csv = load_dataset(write_frame(tmp_path), layout="wildlife")
    assert (dataset.query.ids, dataset.query.labels) == (csv.query.ids, csv.query.labels)
    assert "2 empty identities read as 'unknown'" in dataset.notes


def test_a_box_of_no_numbers_is_all_of_the_picture(tmp_path: Path) -> None:
    frame = write_frame(tmp_path)
    frame.write_text(frame.read_text().replace("[1.6, 0.0, 4.0, 8.0]", "[nan, NaN, nan, nan]"))
    dataset = load_dataset(frame, layout="wildlife")
    assert "img/19.JPG" in dataset.query.ids  # with a box it is in the id


def test_two_animals_of_one_picture(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    write_lines(
        tmp_path / "df.csv",
        ["image_id,identity,path", "a1,x,img/17.JPG", "a2,y,img/17.JPG", "a3,x,img/18.JPG"],
    )
    dataset = load_dataset(tmp_path / "df.csv", layout="wildlife")
    assert dataset.query.ids == ("img/17.JPG#a1", "img/17.JPG#a2", "img/18.JPG")
    assert dataset.query.same == ("img/17.JPG", "img/17.JPG", "img/18.JPG")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("identity", "name", "no column 'identity'; a frame of wildlife-datasets has image_id, identity, path"),
        ("[1.6, 0.0, 4.0, 8.0]", "[1.6, 0.0, 4.0]", r"line 4: bbox is .* not four numbers \[x, y, width, height\]"),
        ("img/18.JPG", "img/81.JPG", "line 3: no such file 'img/81.JPG'"),
    ],
)
def test_wildlife_damaged(tmp_path: Path, old: str, new: str, said: str) -> None:
    frame = write_frame(tmp_path)
    frame.write_text(frame.read_text().replace(old, new))
    with pytest.raises(RecallatkError, match=said):
        load_dataset(frame, layout="wildlife")


def test_the_command_for_wildlife(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["eval", str(write_frame(tmp_path, split="fold")), "--layout", "wildlife", "--split-column", "fold"]
    main([*command, "--encoder", "color-histogram", "--no-cache"])
    text = capsys.readouterr().out
    assert text.startswith("[evaluation]\nnum queries: 4\nnum gallery: 3\n")
    assert "excluded (no positive): 1" in text
    assert "+junk=unknown" in text
