"""Cars-196 on look-alikes of its three distributions: the same images, labels and split in each."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from command_line import recallatk
from lookalikes import write_lines, write_picture
from recallatk import EmbeddingSet, evaluate_embeddings
from recallatk.datasets import BENCHMARKS, load_dataset
from recallatk.datasets.benchmarks import looks_like
from recallatk.types import RecallatkError

# Class, whether it is an official test image, shade. 174 has two equal images in the two official parts, 196 one alone.
CARS = [
    (1, False, 10),
    (98, True, 14),
    (99, False, 200),
    (99, True, 180),
    (99, True, 120),
    (174, False, 60),
    (174, True, 60),
    (196, True, 185),
]
NAMES = {1: "AM General Hummer SUV 2000", 98: "Dodge Caliber Wagon 2012", 99: "Dodge Caliber Wagon 2007"}
NAMES |= {174: "Ram C/V Cargo Van Minivan 2012", 196: "smart fortwo Convertible 2012"}
TEST = [car for car in CARS if car[0] >= 99]


def numbered(side: bool | None = None) -> list[tuple[int, int, bool, int]]:
    """Number within the part, class, test, shade."""
    return [(n, *car) for n, car in enumerate((car for car in CARS if side in (None, car[1])), start=1)]


def structs(**columns: list) -> np.ndarray:
    """A struct array as MATLAB saves it, with the fields in this order."""
    array = np.zeros((1, len(next(iter(columns.values())))), dtype=[(name, object) for name in columns])
    for name, values in columns.items():
        for at, value in enumerate(values):
            array[name][0, at] = value
    return array


def boxes(rows: list) -> dict[str, list]:
    return {
        f"bbox_{name}": [np.uint16(value)] * len(rows) for name, value in (("x1", 1), ("y1", 1), ("x2", 7), ("y2", 8))
    }


def class_names() -> np.ndarray:
    names = np.empty((1, 196), dtype=object)
    names[0, :] = [NAMES.get(number, f"Maker Model {number}") for number in range(1, 197)]
    return names


def annotations(rows: list, **last: list) -> np.ndarray:
    return structs(**boxes(rows), **{"class": [np.uint8(number) for _, number, _, _ in rows], **last})


def single_folder(root: Path) -> Path:
    rows = numbered()
    for n, _, _, shade in rows:
        write_picture(root / "car_ims" / f"{n:06}.jpg", shade, grey=n == 4)
    columns = {
        "class": [np.uint8(number) for _, number, _, _ in rows],
        "test": [np.uint8(test) for *_, test, _ in rows],
    }
    paths = [f"car_ims/{n:06}.jpg" for n, *_ in rows]
    content = structs(relative_im_path=paths, **boxes(rows), **columns)
    savemat(root / "cars_annos.mat", {"annotations": content, "class_names": class_names()})
    return root


def two_folders(root: Path) -> Path:
    (root / "devkit").mkdir(parents=True)
    for folder, test, name in (
        ("cars_train", False, "cars_train_annos.mat"),
        ("cars_test", True, "cars_test_annos_withlabels.mat"),
    ):
        rows = numbered(test)
        for n, _, _, shade in rows:
            write_picture(root / folder / f"{n:05}.jpg", shade, grey=test and n == 2)
        content = annotations(rows, fname=[f"{n:05}.jpg" for n, *_ in rows])
        savemat(root / "devkit" / name, {"annotations": content})
    bare = structs(**boxes(numbered(True)), fname=[f"{n:05}.jpg" for n, *_ in numbered(True)])
    savemat(root / "devkit" / "cars_test_annos.mat", {"annotations": bare})
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": class_names()})
    return root


def class_folders(root: Path) -> Path:
    for side, test in (("train", False), ("test", True)):
        rows = numbered(test)
        for n, number, _, shade in rows:
            folder = root / "car_data" / "car_data" / side / NAMES[number].replace("/", "-")
            write_picture(folder / f"{n:05}.jpg", shade, grey=test and n == 2)
        (root / "car_data" / "car_data" / side / ".DS_Store").write_bytes(b"\0")
        write_lines(root / f"anno_{side}.csv", (f"{n:05}.jpg,1,1,7,8,{number}" for n, number, _, _ in rows))
    write_lines(root / "names.csv", class_names()[0])
    return root


DISTRIBUTIONS = {"car_ims": single_folder, "devkit": two_folders, "kaggle": class_folders}


@pytest.fixture(params=DISTRIBUTIONS)
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return DISTRIBUTIONS[request.param](tmp_path / "cars")


def load(copy: Path, **options) -> object:
    return load_dataset(copy, layout="cars196", counts="any", **options)


def pictures(dataset: object) -> list[tuple[bytes, str]]:
    """Each image by its bytes, with its label."""
    images = dataset.query
    return sorted((file.read_bytes(), label) for file, label in zip(images.elements, images.labels, strict=True))


def test_the_classes_from_99_on_are_both_sides(copy: Path) -> None:
    dataset = load(copy)
    assert dataset.gallery is None
    assert sorted(dataset.query.labels) == ["174", "174", "196", "99", "99", "99"]
    assert dataset.protocol.ks == (1, 2, 4, 8)
    assert dataset.notes == ("2 images of the classes 1 to 98 left aside",)
    assert "6 queries where the official count is 8,131" in dataset.warnings[0]
    assert "3 labels among the queries where the official count is 98" in dataset.warnings[0]


def test_the_official_test_images_are_another_part(copy: Path) -> None:
    dataset = load(copy, part="official-test")
    assert sorted(dataset.query.labels) == ["174", "196", "98", "99", "99"]
    assert dataset.notes == ("3 images of the official training part left aside",)


@pytest.mark.parametrize("part", ["dml", "official-test"])
def test_all_distributions_are_the_same_images_labels_and_split(tmp_path: Path, part: str) -> None:
    read = [load(write(tmp_path / name), part=part) for name, write in DISTRIBUTIONS.items()]
    assert pictures(read[0]) == pictures(read[1]) == pictures(read[2])


def test_equal_file_names_of_the_two_parts_are_two_images(tmp_path: Path) -> None:
    ids = load(two_folders(tmp_path)).query.ids
    assert {"cars_train/00002.jpg", "cars_test/00002.jpg"} <= set(ids)


def test_a_copy_of_other_counts_is_refused(copy: Path) -> None:
    with pytest.raises(RecallatkError, match=r"dml: 6 queries where the official count is 8,131.*--counts any"):
        load_dataset(copy, layout="cars196")


def test_a_folder_that_looks_like_it_is_said(copy: Path) -> None:
    assert any("--layout cars196" in warning for warning in load_dataset(copy).warnings)
    assert looks_like(copy, BENCHMARKS) == ["cars196"]
    assert looks_like(copy.parent, BENCHMARKS) == []


def test_the_archive_s_parent_will_do(copy: Path) -> None:
    assert load(copy.parent).query.ids == load(copy).query.ids


def test_folders_that_were_unpacked_into_folders_of_their_name(copy: Path) -> None:
    expected = pictures(load(copy))
    for name in ("car_ims", "cars_train", "cars_test"):
        if (copy / name).exists():
            (copy / name).rename(copy / "inner")
            (copy / name).mkdir()
            (copy / "inner").rename(copy / name / name)
    if (copy / "car_data").exists():
        (copy / "car_data" / "car_data").rename(copy / "inner")
        shutil.rmtree(copy / "car_data")
        (copy / "inner").rename(copy / "car_data")
    assert pictures(load(copy)) == expected


def test_the_labels_of_the_test_part_may_lie_at_the_top(tmp_path: Path) -> None:
    copy = two_folders(tmp_path / "stanford_cars")
    expected = load(copy).query.ids
    (copy / "devkit" / "cars_test_annos_withlabels.mat").rename(copy / "cars_test_annos_withlabels.mat")
    assert load(copy).query.ids == expected
    (copy / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(RecallatkError, match=r"no cars_test_annos_withlabels.mat .*cars_test_annos.mat has no classes"):
        load(copy)


def test_a_missing_picture_is_named(copy: Path) -> None:
    lost = Path(load(copy).query.elements[0])
    lost.unlink()
    with pytest.raises(RecallatkError, match=rf"{lost.name}: no such file: of the 6 that the lists name"):
        load(copy)
    skipping = load(copy, on_error="skip")
    assert (len(skipping.query), len(skipping.skipped)) == (5, 1)


def test_nothing_of_it_names_all_three(tmp_path: Path) -> None:
    (tmp_path / "car_ims").mkdir()
    with pytest.raises(RecallatkError, match=r"no Cars-196 in this folder.*cars_annos.mat, or cars_train.*names.csv"):
        load(tmp_path)


def test_two_distributions_in_one_folder_are_said(tmp_path: Path) -> None:
    single_folder(tmp_path)
    dataset = load(two_folders(tmp_path))
    assert len(dataset.query) == 6
    assert dataset.notes[1] == (
        "read as car_ims/ with cars_annos.mat; what is there too is left aside: "
        "cars_train/ and cars_test/ with the devkit"
    )


def rewritten(copy: Path, file: str, content: object) -> Path:
    savemat(copy / file, {"annotations": content})
    return copy


def of_version_7_3(file: Path) -> None:
    file.write_bytes(
        b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM" + b"\0" * 384 + b"\x89HDF\r\n\x1a\n"
    )


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda file: file.write_bytes(file.read_bytes()[:300]),
            r"no MATLAB file, or not a whole one; take the official file",
        ),
        (lambda file: file.write_bytes(b"<html>404 Not Found</html>" * 20), r"no MATLAB file, or not a whole one"),
        (lambda file: file.write_bytes(b""), r"no MATLAB file, or not a whole one"),
        (of_version_7_3, r"a .mat file of version 7.3 \(HDF5\)"),
        (lambda file: file.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 99), r"a .mat file of version 7.3 \(HDF5\)"),
        (lambda file: savemat(file, {"class_names": class_names()}), r"no variable annotations"),
        (lambda file: savemat(file, {"annotations": np.eye(3)}), r"no field relative_im_path .*\(it has no fields\)"),
        (
            lambda file: savemat(file, {"annotations": annotations(numbered(), fname=["1.jpg"] * len(CARS))}),
            r"annotations has no field relative_im_path and no test \(it has bbox_x1, .*, class, fname\)",
        ),
    ],
)
def test_a_damaged_mat_file_is_told_in_one_line(tmp_path: Path, damage: Callable[[Path], object], said: str) -> None:
    copy = single_folder(tmp_path / "cars")
    damage(copy / "cars_annos.mat")
    with pytest.raises(RecallatkError, match=rf"cars_annos.mat: .*{said}|cars_annos.mat: {said}") as error:
        load(copy)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("class", np.uint8(0), r"annotations\(3\): class 0 is none of 1 to 196"),
        ("class", np.zeros((0, 0)), r"annotations\(3\): class is not a whole number"),
        ("class", 99.5, r"annotations\(3\): class is not a whole number"),
        ("test", 2, r"annotations\(3\): test is 2, not 0 or 1"),
        ("relative_im_path", "", r"annotations\(3\): relative_im_path is not text"),
    ],
)
def test_a_damaged_row_is_told_in_one_line(tmp_path: Path, column: str, value: object, said: str) -> None:
    copy = single_folder(tmp_path / "cars")
    rows = numbered()
    columns = {"relative_im_path": [f"car_ims/{n:06}.jpg" for n, *_ in rows], **boxes(rows)}
    columns |= {"class": [float(number) for _, number, _, _ in rows], "test": [float(test) for *_, test, _ in rows]}
    assert len(load(rewritten(copy, "cars_annos.mat", structs(**columns))).query) == 6  # doubles, as other tools write
    columns[column][2] = value
    with pytest.raises(RecallatkError, match=said) as error:
        load(rewritten(copy, "cars_annos.mat", structs(**columns)))
    assert "\n" not in str(error.value)


def test_a_list_of_one_image(tmp_path: Path) -> None:
    copy = single_folder(tmp_path / "cars")
    one = structs(relative_im_path=["car_ims/000003.jpg"], **boxes([0]), **{"class": [99], "test": [1]})
    assert load(rewritten(copy, "cars_annos.mat", one)).query.ids == ("car_ims/000003.jpg",)


def test_tables_as_other_tools_write_them(tmp_path: Path) -> None:
    copy = class_folders(tmp_path / "cars")
    expected = load(copy).query.ids
    for name in ("anno_train.csv", "anno_test.csv"):
        lines = [f'"{line.split(",")[0]}", {line.split(",", 1)[1]}' for line in (copy / name).read_text().splitlines()]
        (copy / name).write_bytes("\r\n".join(["\ufefffname,x1,y1,x2,y2,class", *lines, ""]).encode())
    (copy / "names.csv").write_bytes("\r\n".join(class_names()[0]).encode())
    assert load(copy).query.ids == expected
    assert "car_data/car_data/test/Ram C-V Cargo Van Minivan 2012/00004.jpg" in expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("00009.jpg,1,1,7", r"anno_test.csv: line 6 has 4 fields, not 6 \(fname, x1, y1, x2, y2, class\)"),
        ("00009.jpg,1,1,7,8,0", r"anno_test.csv: line 6: class 0 is none of 1 to 196"),
        ("00009.jpg,1,1,7,8,Dodge", r"anno_test.csv: line 6: class Dodge is none of 1 to 196"),
        ("00009.jpg,1,1,7,8,174", r"test/Ram C-V Cargo Van Minivan 2012/00009.jpg: no such file: of the 7"),
        ("00002.jpg,1,1,7,8,99", r"the lists name car_data/.*/00002.jpg twice"),
    ],
)
def test_a_damaged_table_is_told_in_one_line(tmp_path: Path, line: str, said: str) -> None:
    copy = class_folders(tmp_path / "cars")
    with (copy / "anno_test.csv").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(RecallatkError, match=said) as error:
        load(copy)
    assert "\n" not in str(error.value)


def test_a_file_name_in_two_class_folders(tmp_path: Path) -> None:
    """names.csv says which is meant; where it does not, nothing is guessed."""
    copy = class_folders(tmp_path / "cars")
    expected = load(copy).query.ids
    folder = copy / "car_data" / "car_data" / "test"
    write_picture(folder / NAMES[98] / "00002.jpg", 77)
    assert load(copy).query.ids == expected
    write_lines(copy / "names.csv", ["unknown"] * 196)
    with pytest.raises(RecallatkError, match=r"anno_test.csv: line 2: 00002.jpg lies in Dodge .*2007 and Dodge .*2012"):
        load(copy)


def test_recall_by_hand(tmp_path: Path) -> None:
    """99: the third is nearest to the lone 196; the two of 174 are one picture; 196 has no positive."""
    dataset = load(single_folder(tmp_path))
    angles = np.radians([0, 5, 40, 80, 80, 42])
    rows = EmbeddingSet(np.stack([np.cos(angles), np.sin(angles)], axis=1), dataset.query.labels, ids=dataset.query.ids)
    report = evaluate_embeddings(rows, protocol=dataset.protocol)
    assert (report.num_queries, report.num_evaluated, report.num_excluded) == (6, 5, 1)
    assert report["recall@1"] == 4 / 5
    assert report["recall@2"] == 1.0


def test_from_the_command_line(copy: Path) -> None:
    result = recallatk("eval", copy, "--layout", "cars196", "--counts", "any", "--encoder", "color-histogram")
    assert result.code == 0, result.err
    assert "num queries: 6\nnum gallery: 6\n" in result.out
    assert "recall@8: 1.000000\n" in result.out
    assert "excluded (no positive): 1\n" in result.out
