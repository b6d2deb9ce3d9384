"""Place recognition on look-alikes: positions in file names, in MATLAB files and in the tables of MSLS."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from command_line import recallatk
from lookalikes import write_lines, write_picture
from recallatk import EmbeddingSet, Report, evaluate_embeddings
from recallatk.cli import main
from recallatk.datasets import BENCHMARKS, LAYOUTS, load_dataset
from recallatk.types import Dataset, RecallatkError

EAST, NORTH = 551_100.0, 4_190_200.0


def formatted(east: float, north: float, note: str = "") -> str:
    return f"@{EAST + east:010.2f}@{NORTH + north:010.2f}@17@T@040.44000@-080.00000@pano@@@@@@20140101@{note}@.jpg"


def evaluated(dataset: Dataset, query: list[float], gallery: list[float]) -> Report:
    """A report of rows on the unit circle, whose angles are given in degrees."""
    assert dataset.gallery is not None
    sides = []
    for images, angles in ((dataset.query, query), (dataset.gallery, gallery)):
        rows = np.stack([np.cos(np.radians(angles)), np.sin(np.radians(angles))], axis=1)
        sides.append(EmbeddingSet(rows, images.labels, ids=images.ids, same=images.same, positions=images.positions))
    return evaluate_embeddings(*sides, protocol=dataset.protocol, metrics=dataset.metrics)


@pytest.fixture
def vpr(tmp_path: Path) -> Path:
    """Queries at (0, 0) and far away; the gallery at 24.9, 25.0 and 25.1 m. The folder's own name has an @."""
    root = tmp_path / "places@home" / "pitts toy"
    test = root / "images" / "test"
    write_picture(test / "queries" / formatted(0, 0), 10)
    write_picture(test / "queries" / formatted(5000, 0), 90, grey=True)
    write_picture(test / "database" / formatted(24.9, 0), 40)
    write_picture(test / "database" / formatted(0, 25.0), 70)
    write_picture(test / "database" / "tile" / formatted(0, -25.1).replace(".jpg", ".JPG"), 70)  # the same bytes
    write_lines(test / "database" / "._@0551100.00@4190200.00@.jpg", ["a file of a Mac"])
    write_lines(test / "database_images_paths.txt", ["not a folder"])
    write_lines(test / "database" / "README.md", ["words"])
    (test / "database" / ".DS_Store").write_bytes(b"\0")
    write_picture(root / "images" / "val" / "queries" / formatted(0, 0), 10)
    write_picture(root / "images" / "val" / "database" / formatted(1, 0), 10)
    return root


def test_positions_are_read_from_the_name_alone(vpr: Path) -> None:
    dataset = load_dataset(vpr, layout="vpr")
    assert dataset.gallery is not None
    assert dataset.query.positions is not None
    assert dataset.query.positions.dtype == np.float64
    assert dataset.query.positions.tolist() == [[EAST, NORTH], [EAST + 5000, NORTH]]
    assert len(dataset.gallery) == 3
    assert set(dataset.query.labels) == {()}
    assert dataset.gallery.ids[0].startswith("database/@0551100.00@4190225.00@")
    assert dataset.notes == ("1 file left aside that is no image",)
    assert dataset.warnings == ()


def test_the_border_is_inside_and_no_positive_is_a_miss(vpr: Path) -> None:
    dataset = load_dataset(vpr, layout="vpr")
    assert dataset.gallery is not None
    assert [round(float(north - NORTH), 1) for _, north in np.asarray(dataset.gallery.positions)] == [25.0, 0.0, -25.1]
    report = evaluated(dataset, [0, 90], [10, 50, 5])  # nearest is the image at 25.1 m, then that at 25.0 m
    assert (report.num_evaluated, report.num_queries) == (2, 2)
    assert report["recall@1"] == 0.0
    assert report["recall@5"] == 0.5


@pytest.mark.parametrize("below", ["", "images", "images/test"])
def test_any_folder_on_the_way_will_do(vpr: Path, below: str) -> None:
    assert load_dataset(vpr / below, layout="vpr").query.ids == load_dataset(vpr, layout="vpr").query.ids


def test_parts(vpr: Path) -> None:
    assert len(load_dataset(vpr, layout="vpr", part="val").query) == 1
    with pytest.raises(RecallatkError, match=r"no images/train/database .*the parts that are there: test, val"):
        load_dataset(vpr, layout="vpr", part="train")
    with pytest.raises(RecallatkError, match="part='all' is no part of Place recognition, formatted"):
        load_dataset(vpr, layout="vpr", part="all")
    other = load_dataset(vpr / "images" / "val", layout="vpr")
    assert other.notes == ("DATA is the folder of the part val itself, which is what was read",)


@pytest.mark.parametrize(
    "name", ["0001.jpg", "x@0551100.00@4190200.00@.jpg", "@0551100.00.jpg", "@nan@4190200.00@.jpg"]
)
def test_a_name_without_a_position_is_named(vpr: Path, name: str) -> None:
    write_picture(vpr / "images" / "test" / "queries" / name, 5)
    with pytest.raises(RecallatkError, match=r"the name does not begin with a position"):
        load_dataset(vpr, layout="vpr")
    dataset = load_dataset(vpr, layout="vpr", on_error="skip")
    assert len(dataset.query) == 2
    assert [(bad.item, bad.reason) for bad in dataset.skipped] == [
        (f"queries/{name}", "its name does not begin with a position")
    ]


def test_published_rows_are_held_against_as_many_queries_only(vpr: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout is of many data sets, and a number of another one says nothing of this one."""
    done = recallatk("eval", vpr, "--layout", "vpr", "--encoder", "pixels", "--published")
    assert "of other data than these 2 queries: CosPlace, ResNet-18, 512 columns, on St Lucia" in done.out
    assert done.out.splitlines()[-1] == "nothing to compare: no row is known of these data"
    part = BENCHMARKS["vpr"].parts["test"]
    rows = [dataclasses.replace(row, queries=2 if "Tokyo" in row.system else row.queries) for row in part.published]
    monkeypatch.setitem(BENCHMARKS["vpr"].parts, "test", dataclasses.replace(part, published=rows))
    done = recallatk("eval", vpr, "--layout", "vpr", "--encoder", "pixels", "--published")
    assert "88.6%" in done.out
    assert "98.8%" not in done.out
    assert "91.6%" not in done.out  # Pitts30k


def test_queries_without_labels_are_no_labels(vpr: Path) -> None:
    done = recallatk("eval", vpr, "--layout", "vpr", "--encoder", "pixels")
    assert "95 % cluster-robust t over 2 queries" in done.out.splitlines()


def test_degrees_are_no_metres(tmp_path: Path) -> None:
    for folder in ("queries", "database"):
        write_picture(tmp_path / "images" / "test" / folder / "@40.44@-80.00@.jpg", 5)
    dataset = load_dataset(tmp_path, layout="vpr")
    assert len(dataset.warnings) == 1
    assert "look like degrees" in dataset.warnings[0]


def test_a_side_is_missing(tmp_path: Path) -> None:
    write_picture(tmp_path / "images" / "test" / "database" / formatted(0, 0), 5)
    with pytest.raises(RecallatkError, match="no folder query or queries for the query side"):
        load_dataset(tmp_path, layout="vpr")


def cells(names: list[str]) -> Any:
    array = np.empty((len(names), 1), dtype=object)
    array[:, 0] = names
    return array


def write_dbstruct(path: Path, gallery: dict[str, tuple[float, float]], query: dict[str, tuple[float, float]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {
        "whichSet": "test",
        "dbImage": cells(list(gallery)),
        "utmDb": np.array(list(gallery.values())).reshape(-1, 2).T,
        "qImage": cells(list(query)),
        "utmQ": np.array(list(query.values())).reshape(-1, 2).T,
        "numDb": len(gallery),
        "numQ": len(query),
        "posDistThr": 25,
        "posDistSqThr": 625,
        "nonTrivPosDistSqThr": 100,
    }
    savemat(path, {"dbStruct": fields})


PITTS_GALLERY = {
    "000/000829_pitch1_yaw1.jpg": (EAST, NORTH),
    "000/000829_pitch1_yaw2.jpg": (EAST, NORTH),
    "006/006100_pitch2_yaw3.jpg": (EAST + 25, NORTH),
}
PITTS_QUERY = {"000/000829_pitch1_yaw1.jpg": (EAST, NORTH), "001/001000_pitch1_yaw9.jpg": (EAST + 9000, NORTH)}


@pytest.fixture
def pitts(tmp_path: Path) -> Path:
    root = tmp_path / "pitts250k"
    for number, name in enumerate(PITTS_GALLERY):
        write_picture(root / name, 20 * max(number, 1))  # the first two are equal
    for number, name in enumerate(PITTS_QUERY):
        write_picture(root / "queries_real" / name, 20 + 60 * number, grey=number == 1)
    write_picture(root / "003" / "003000_pitch1_yaw1.jpg", 3)  # of the training part
    write_dbstruct(root / "datasets" / "pitts30k_test.mat", PITTS_GALLERY, PITTS_QUERY)
    write_dbstruct(root / "datasets" / "pitts250k_val.mat", PITTS_GALLERY, dict([*PITTS_QUERY.items()][:1]))
    return root


def test_pitts_reads_the_matlab_file(pitts: Path) -> None:
    dataset = load_dataset(pitts, layout="pitts30k", counts="any")
    assert dataset.gallery is not None
    assert dataset.query.ids == tuple(f"queries_real/{name}" for name in PITTS_QUERY)
    assert dataset.gallery.ids == tuple(PITTS_GALLERY)
    assert dataset.gallery.positions is not None
    assert dataset.gallery.positions.tolist() == [list(position) for position in PITTS_GALLERY.values()]
    assert "2 queries where the official count is 6,816" in dataset.warnings[0]
    report = evaluated(dataset, [0, 90], [60, 50, 10])
    assert report["recall@1"] == 0.5  # at 25 m exactly; the second query has no positive, which is a miss
    assert report.num_evaluated == 2


def test_pitts_of_another_form(pitts: Path) -> None:
    """The file beside the images, which lie in folders of both sides; DATA is the folder above."""
    root = pitts.rename(pitts.parent / "pitts30k")
    (root / "datasets" / "pitts30k_test.mat").rename(root / "pitts30k_test.mat")
    (root / "queries_real").rename(root / "queries")
    (root / "database").mkdir()
    for folder in ("000", "006"):
        (root / folder).rename(root / "database" / folder)
    dataset = load_dataset(root.parent, layout="pitts30k", counts="any")
    assert dataset.gallery is not None
    assert dataset.query.ids[0] == "queries/000/000829_pitch1_yaw1.jpg"
    assert dataset.gallery.ids[0] == "database/000/000829_pitch1_yaw1.jpg"


def test_the_fields_of_a_dbstruct_are_known_by_their_order(pitts: Path) -> None:
    path = pitts / "datasets" / "pitts30k_test.mat"
    named = load_dataset(pitts, layout="pitts30k", counts="any")
    struct = loadmat(path)["dbStruct"]
    values = [struct[0, 0][name] for name in struct.dtype.names]
    savemat(path, {"dbStruct": {f"field{place}": value for place, value in enumerate(values)}})
    again = load_dataset(pitts, layout="pitts30k", counts="any")
    assert again.query.ids == named.query.ids
    assert np.array_equal(np.asarray(again.query.positions), np.asarray(named.query.positions))


def test_pitts_counts_and_parts(pitts: Path) -> None:
    with pytest.raises(RecallatkError, match=r"Pitts30k, test: 2 queries where the official count is 6,816; 3 gallery"):
        load_dataset(pitts, layout="pitts30k")
    assert len(load_dataset(pitts, layout="pitts250k", part="val").query) == 1
    with pytest.raises(RecallatkError, match=r"no pitts30k_val.mat in this folder nor in its datasets/"):
        load_dataset(pitts, layout="pitts30k", part="val")


def test_pitts_missing_image(pitts: Path) -> None:
    (pitts / "006" / "006100_pitch2_yaw3.jpg").unlink()
    with pytest.raises(RecallatkError, match=r"yaw3.jpg: no such file: of the 3 that the lists name \(gallery image\)"):
        load_dataset(pitts, layout="pitts30k", counts="any")
    skipping = load_dataset(pitts, layout="pitts30k", counts="any", on_error="skip")
    assert [skipped.item for skipped in skipping.skipped] == ["006/006100_pitch2_yaw3.jpg"]


def _no_struct(path: Path) -> None:
    savemat(path, {"other": np.eye(2)})


def _other_lengths(path: Path) -> None:
    fields = {"whichSet": "test", "dbImage": cells(["x.jpg"]), "utmDb": np.ones((2, 3))}
    savemat(path, {"dbStruct": {**fields, "qImage": cells([]), "utmQ": np.ones((2, 0))}})


def _text(path: Path) -> None:
    path.write_text("not found\n" * 40)


def _cut(path: Path) -> None:
    content = loadmat(path)
    savemat(path, {"dbStruct": content["dbStruct"]}, do_compression=True)
    path.write_bytes(path.read_bytes()[:-60])


def _of_version_7_3(path: Path) -> None:
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 99)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_no_struct, "it holds other, and no struct dbStruct"),
        (_other_lengths, "dbImage of dbStruct lists 1 image, and utmDb has the shape"),
        (_text, "this is no MATLAB file, or not a whole one"),
        (_cut, "this is no MATLAB file, or not a whole one"),
        (_of_version_7_3, r"of version 7.3 \(HDF5\)"),
    ],
)
def test_a_damaged_matlab_file(pitts: Path, damage: Callable[[Path], None], said: str) -> None:
    damage(pitts / "datasets" / "pitts30k_test.mat")
    with pytest.raises(RecallatkError, match=said):
        load_dataset(pitts, layout="pitts30k", counts="any")


# Key, metres east, panorama, subtask all, and the shade of its picture.
MSLS: dict[tuple[str, str], list[tuple[str, float, bool, bool, int]]] = {
    ("cph", "query"): [("qa", 0, False, True, 10), ("qb", 0, True, True, 20), ("qc", 0, False, False, 30)],
    ("cph", "database"): [("da", 25, False, True, 10), ("db", 25.5, False, True, 50), ("dp", 0, True, True, 60)],
    ("sf", "query"): [("qd", 90_000, False, True, 70), ("qe", 50_000, False, True, 80)],
    ("sf", "database"): [("dd", 90_001, False, True, 90)],
}


def write_msls(root: Path, *, end: str = "\n", mark: str = "", keyed: bool = True) -> None:
    for (city, side), rows in MSLS.items():
        folder = root / "train_val" / city / side
        tables: dict[str, list[str]] = {
            "postprocessed": [",key,easting,northing,unique_cluster,night,control_panel,view_direction"],
            "raw": [",key,lon,lat,ca,captured_at,pano"],
            "subtask_index": [",key,all,s2w,w2s" if keyed else ",all,s2w,w2s"],
            "seq_info": [",key,sequence_key,frame_number"],
        }
        for row, (key, east, pano, listed, shade) in enumerate(rows):
            write_picture(folder / "images" / f"{key}.jpg", shade, grey=key == "dd")
            tables["postprocessed"].append(f"{row},{key},{EAST + east},{NORTH},7,False,False,Forward")
            tables["raw"].append(f"{row},{key},12.5,55.6,90.0,2017-01-01,{pano}")
            tables["subtask_index"].append(f"{row},{f'{key},' if keyed else ''}{listed},False,False")
            tables["seq_info"].append(f"{row},{key},s,{row}")
        for name, lines in tables.items():
            (folder / f"{name}.csv").write_bytes((mark + "".join(line + end for line in lines)).encode())
    write_lines(root / "train_val" / "cph" / ".DS_Store", ["x"])


@pytest.mark.parametrize(("end", "mark", "keyed"), [("\n", "", True), ("\r\n", "\ufeff", False)])
def test_msls_by_the_official_rule(tmp_path: Path, end: str, mark: str, *, keyed: bool) -> None:
    write_msls(tmp_path, end=end, mark=mark, keyed=keyed)
    dataset = load_dataset(tmp_path, layout="msls", counts="any")
    assert dataset.gallery is not None
    assert [Path(name).stem for name in dataset.query.ids] == ["qa", "qd", "qe"]
    assert dataset.gallery.ids == (
        "cph/database/images/da.jpg",
        "cph/database/images/db.jpg",
        "sf/database/images/dd.jpg",
    )
    assert dataset.query.groups["city"] == ("cph", "sf", "sf")
    assert dataset.notes == (
        "1 query panorama left aside",
        "1 query image left aside, which the subtask all does not name",
        "1 gallery panorama left aside",
    )
    report = evaluated(dataset, [0, 90, 180], [20, 10, 91])
    assert (report.num_queries, report.num_evaluated, report.num_excluded) == (3, 2, 1)  # nothing is near qe
    assert report["recall@1"] == 0.5  # db, at 25.5 m, is nearer to qa
    assert report["recall@5"] == 1.0


def test_msls_with_every_query(tmp_path: Path) -> None:
    write_msls(tmp_path)
    for file in tmp_path.rglob("subtask_index.csv"):
        file.unlink()
    dataset = load_dataset(tmp_path / "train_val", layout="msls", part="val-all")
    assert [Path(name).stem for name in dataset.query.ids] == ["qa", "qc", "qd", "qe"]
    report = evaluated(dataset, [0, 10, 90, 180], [20, 10, 91])
    assert (report.num_evaluated, report["recall@1"]) == (4, 0.25)  # qc is nearest to db, and nothing is near qe


def test_msls_counts(tmp_path: Path) -> None:
    write_msls(tmp_path)
    with pytest.raises(RecallatkError, match=r"val-official: 3 queries where the official count is 747; 3 gallery"):
        load_dataset(tmp_path, layout="msls")


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("raw.csv", "qa", "qz", r"raw.csv: nothing about the key 'qa' of postprocessed.csv"),
        ("raw.csv", "True", "maybe", r"raw.csv: line 3: pano is 'maybe', not True or False"),
        ("postprocessed.csv", "easting", "lat", r"postprocessed.csv: no column 'easting'; columns found"),
        ("postprocessed.csv", f"{NORTH}", "north", r"postprocessed.csv: line 2: northing is 'north', no number"),
        ("subtask_index.csv", ",all", ",most", r"subtask_index.csv: no column 'all'"),
    ],
)
def test_msls_damaged(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    write_msls(tmp_path)
    path = tmp_path / "train_val" / "cph" / "query" / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RecallatkError, match=said):
        load_dataset(tmp_path, layout="msls", counts="any")


def test_msls_missing(tmp_path: Path) -> None:
    with pytest.raises(RecallatkError, match=r"no train_val/cph and no train_val/sf in this folder"):
        load_dataset(tmp_path, layout="msls")
    write_msls(tmp_path)
    (tmp_path / "train_val" / "sf").rename(tmp_path / "train_val" / "boston")
    assert "of the two cities sf is not there" in load_dataset(tmp_path, layout="msls", counts="any").notes
    (tmp_path / "train_val" / "cph" / "query" / "raw.csv").unlink()
    with pytest.raises(RecallatkError, match=r"raw.csv: cannot be read"):
        load_dataset(tmp_path, layout="msls", counts="any")


TOKYO = (35.6586, 139.7454)
TOKYO_IN_METRES = (386437.6028, 3946808.1552)  # in zone 54, by pyproj


@pytest.fixture
def tokyo(tmp_path: Path) -> Path:
    """One query with two views of a panorama and one of another near it, and one query far away."""
    root = tmp_path / "tokyo247"
    east, north = TOKYO_IN_METRES
    gallery = {
        "03814/381488/aaaaaaaaaaaaaaaaaaaaaa_012_0.jpg": (east + 400, north),
        "03814/381488/aaaaaaaaaaaaaaaaaaaaaa_012_30.jpg": (east + 400, north),
        "03829/382999/bbbbbbbbbbbbbbbbbbbbbb_012_60.jpg": (east + 24.9, north),
    }
    for number, name in enumerate(gallery):
        write_picture((root / name).with_suffix(".png"), 40 * max(number, 1), grey=number == 2)
    write_dbstruct(root / "datasets" / "tokyo247.mat", gallery, {"00001.jpg": (east, north), "00002.jpg": (0.0, 0.0)})
    for number, latitude in ((1, TOKYO[0]), (2, 35.0)):
        photo = root / "247query_subset_v2" / f"0000{number}.jpg"
        write_picture(photo, 100 * number)
        write_lines(photo.with_suffix(".csv"), [f"0000{number}.jpg,{latitude},{TOKYO[1]},0,Sony,x,y"])
    write_lines(root / "247query_subset_v2" / "readme.txt", ["x"])
    return root


def test_tokyo(tokyo: Path) -> None:
    dataset = load_dataset(tokyo, layout="tokyo247", counts="any")
    assert dataset.gallery is not None
    assert dataset.query.ids == ("247query_subset_v2/00001.jpg", "247query_subset_v2/00002.jpg")
    assert dataset.gallery.ids[2] == "03829/382999/bbbbbbbbbbbbbbbbbbbbbb_012_60.png"
    report = evaluated(dataset, [0, 180], [1, 2, 3])
    assert report["recall@1"] == 0.0
    assert report["recall@5"] == 0.5  # at 2 it would be a hit if the views of a panorama counted once
    assert load_dataset(tokyo.parent, layout="tokyo247", counts="any").query.ids == dataset.query.ids


def test_tokyo_without_tables_or_with_wrong_ones(tokyo: Path) -> None:
    first = tokyo / "247query_subset_v2" / "00001.csv"
    first.write_text("00001.jpg\r\n")
    with pytest.raises(
        RecallatkError, match=r"00001.csv: line 1 is '00001.jpg', which should begin with name,latitude"
    ):
        load_dataset(tokyo, layout="tokyo247", counts="any")
    first.write_text("00001.jpg,139.7454,35.6586\n")
    with pytest.raises(RecallatkError, match=r"latitude 139.745 and longitude 35.6586 are not in Tokyo"):
        load_dataset(tokyo, layout="tokyo247", counts="any")
    first.unlink()
    with pytest.raises(RecallatkError, match=r"00001.csv: no such file; it says where 00001.jpg was taken"):
        load_dataset(tokyo, layout="tokyo247", counts="any")
    (tokyo / "247query_subset_v2" / "00002.csv").unlink()
    dataset = load_dataset(tokyo, layout="tokyo247", counts="any")
    assert dataset.query.positions is not None
    assert dataset.query.positions[0].tolist() == pytest.approx(TOKYO_IN_METRES, abs=2e-4)
    assert "those of tokyo247.mat" in dataset.notes[0]


@pytest.mark.parametrize(
    ("layout", "make"),
    [("vpr", "vpr"), ("pitts30k", "pitts"), ("tokyo247", "tokyo")],
)
def test_the_command(
    layout: str, make: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    data = request.getfixturevalue(make)
    main(["eval", str(data), "--layout", layout, "--counts", "any", "--encoder", "color-histogram", "--no-cache"])
    text = capsys.readouterr().out
    assert text.startswith("[evaluation]\nnum queries: 2\nnum gallery: 3\n")
    assert "counted as a miss (no positive): 1" in text
    assert "rel:radius@25-" in text


def test_the_command_for_msls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_msls(tmp_path)
    command = [
        "eval",
        str(tmp_path),
        "--layout",
        "msls",
        "--counts",
        "any",
        "--encoder",
        "color-histogram",
        "--no-cache",
    ]
    main(command)
    text = capsys.readouterr().out
    assert text.startswith("[evaluation]\nnum queries: 3\nnum gallery: 3\n")
    assert "excluded (no positive): 1" in text
    assert "map_capped@5:" in text


@pytest.mark.parametrize("name", ["vpr", "pitts30k", "pitts250k", "msls", "tokyo247"])
def test_every_part_is_place_recognition(name: str) -> None:
    benchmark = LAYOUTS[name].benchmark
    assert benchmark is not None
    for part in benchmark.parts.values():
        protocol = part.eval_protocol
        assert (protocol.relevance, protocol.radius, protocol.ks) == ("radius", 25.0, (1, 5, 10, 20))
