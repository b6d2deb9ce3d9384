"""Revisited Oxford 5k on a look-alike: boxes, levels, both forms of the ground truth, and what goes wrong with it."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from command_line import recallatk
from lookalikes import on_the_circle, write_picture
from recallatk import EmbeddingSet, evaluate_embeddings
from recallatk.datasets import detect_layout, load_dataset
from recallatk.datasets.benchmarks import BENCHMARKS, identify
from recallatk.types import RecallatkError

QUERIES = ["all_souls_000013", "ashmolean_000058"]
# 000026 is there twice, byte for byte; the last is greyscale.
GALLERY = [
    "all_souls_000026",
    "all_souls_000051",
    "ashmolean_000000",
    "ashmolean_000305",
    "balliol_000051",
    "christ_church_000179",
]
SHADES = [40, 80, 120, 160, 40, 240]
# The second query has no easy image. Halves of pixels are rounded to the even one.
TRUTH = [
    {"bbx": [0.5, 1.5, 6.49, 7.6], "easy": [0], "hard": [1], "junk": [4]},
    {"bbx": [0.0, 0.0, 8.0, 8.0], "easy": [], "hard": [2, 3], "junk": []},
]


def write_pickle(path: Path, truth: Any = TRUTH, **more: Any) -> None:
    found = {"gnd": truth, "imlist": GALLERY, "qimlist": QUERIES, **more}
    path.write_bytes(pickle.dumps(found, protocol=2))


def write_matlab(path: Path) -> None:
    """As MATLAB has it: cells of names, rows of numbers from 1, boxes from 0."""
    kinds = [(name, object) for name in ("bbx", "easy", "hard", "junk")]
    gnd = np.zeros((1, len(TRUTH)), dtype=kinds)
    for number, entry in enumerate(TRUTH):
        gnd[0, number]["bbx"] = np.array([entry["bbx"]])
        for level in ("easy", "hard", "junk"):
            gnd[0, number][level] = np.array([entry[level]], dtype=np.float64) + 1
    cells = {name: np.array([names], dtype=object).T for name, names in (("imlist", GALLERY), ("qimlist", QUERIES))}
    savemat(path, {"gnd": gnd, **cells})


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "roxford5k"
    for number, name in enumerate(QUERIES):
        write_picture(root / "jpg" / f"{name}.jpg", 44 + 80 * number)
    for shade, name in zip(SHADES, GALLERY, strict=True):
        write_picture(root / "jpg" / f"{name}.jpg", shade, grey=name == GALLERY[-1])
    write_picture(root / "jpg" / "._all_souls_000026.jpg", 1)
    write_picture(root / "jpg" / "oxford_003410.jpg", 7)  # the lists do not name it
    write_pickle(root / "gnd_roxford5k.pkl")
    return root


def test_queries_are_boxes_and_judgements_have_levels(copy: Path) -> None:
    dataset = load_dataset(copy, layout="roxford5k", counts="any")
    assert dataset.gallery is not None
    assert dataset.qrels is not None
    assert dataset.query.ids == ("jpg/all_souls_000013.jpg@0,2,6,8", "jpg/ashmolean_000058.jpg@0,0,8,8")
    assert dataset.query.boxes == ((0, 2, 6, 8), (0, 0, 8, 8))
    assert dataset.gallery.ids == tuple(f"jpg/{name}.jpg" for name in GALLERY)
    assert list(zip(dataset.qrels.query_ids, dataset.qrels.gallery_ids, dataset.qrels.levels or (), strict=True)) == [
        ("jpg/all_souls_000013.jpg@0,2,6,8", "jpg/all_souls_000026.jpg", "easy"),
        ("jpg/all_souls_000013.jpg@0,2,6,8", "jpg/all_souls_000051.jpg", "hard"),
        ("jpg/all_souls_000013.jpg@0,2,6,8", "jpg/balliol_000051.jpg", "junk"),
        ("jpg/ashmolean_000058.jpg@0,0,8,8", "jpg/ashmolean_000000.jpg", "hard"),
        ("jpg/ashmolean_000058.jpg@0,0,8,8", "jpg/ashmolean_000305.jpg", "hard"),
    ]


@pytest.mark.parametrize("edges", [(0.5, 1.5, 6.49, 7.6), (2.5, 0.49, 7.5, 3.51), (np.float64(1.5), 0, 5, 8)])
def test_boxes_are_rounded_as_pillow_crops(copy: Path, edges: tuple[float, ...]) -> None:
    picture = Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3))
    write_pickle(copy / "gnd_roxford5k.pkl", [{**TRUTH[0], "bbx": list(edges)}, TRUTH[1]])
    dataset = load_dataset(copy, layout="roxford5k", counts="any")
    assert dataset.query.boxes is not None
    assert dataset.query.boxes[0] is not None
    assert picture.crop(edges).tobytes() == picture.crop(dataset.query.boxes[0]).tobytes()  # type: ignore[arg-type]


def test_both_forms_of_the_ground_truth_say_the_same(copy: Path) -> None:
    pickled = load_dataset(copy, layout="roxford5k", counts="any")
    (copy / "gnd_roxford5k.pkl").unlink()
    write_matlab(copy / "gnd_roxford5k.mat")
    matlab = load_dataset(copy, layout="roxford5k", counts="any")
    assert matlab.qrels is not None
    assert pickled.qrels is not None
    assert matlab.query.ids == pickled.query.ids
    for field in ("query_ids", "gallery_ids", "levels"):
        assert getattr(matlab.qrels, field) == getattr(pickled.qrels, field)


def test_matlab_may_hold_one_query_and_small_numbers(copy: Path) -> None:
    """What stands alone comes out of such a file as no list."""
    gnd = np.zeros((1, 1), dtype=[(name, object) for name in TRUTH[0]])
    for name, values in {"bbx": [0, 0, 8, 8], "easy": [1], "hard": [2, 3], "junk": []}.items():
        gnd[0, 0][name] = np.array([values], dtype=np.uint16)
    names = {"imlist": np.array([GALLERY], dtype=object), "qimlist": np.array([QUERIES[:1]], dtype=object)}
    savemat(copy / "gnd_roxford5k.mat", {"gnd": gnd, **names})
    dataset = load_dataset(copy, layout="roxford5k", counts="any")
    assert dataset.qrels is not None
    assert dataset.query.ids == ("jpg/all_souls_000013.jpg@0,0,8,8",)
    assert dataset.qrels.gallery_ids == tuple(f"jpg/{name}.jpg" for name in GALLERY[:3])


def test_the_ground_truth_as_arrays(copy: Path) -> None:
    expected = load_dataset(copy, layout="roxford5k", counts="any")
    arrays = [{name: np.array(values) for name, values in entry.items()} for entry in TRUTH]
    arrays[1]["easy"] = np.array([], dtype=np.int64)
    write_pickle(copy / "gnd_roxford5k.pkl", arrays, imlist=np.array([f"{name}.jpg" for name in GALLERY]))
    assert load_dataset(copy, layout="roxford5k", counts="any").query.ids == expected.query.ids


ROWS = {  # the first query's ranking: junk at 1, hard at 2, another at 3, easy at 4 degrees
    "balliol_000051": 1,
    "all_souls_000051": 2,
    "christ_church_000179": 3,
    "all_souls_000026": 4,
    "ashmolean_000000": 84,
    "ashmolean_000305": 85,
}


@pytest.mark.parametrize(
    ("part", "evaluated", "recall", "average"),
    [
        # Easy: without junk and the hard one the easy image is second; by the trapezoid (0 + 1/2) / 2.
        ("easy", 1, 0.0, 1 / 4),
        # Medium: hard first and easy third: (1 + (1/2 + 2/3) / 2) / 2; the second query finds both.
        ("medium", 2, 1.0, ((1 + (1 / 2 + 2 / 3) / 2) / 2 + 1) / 2),
        ("hard", 2, 1.0, 1.0),
    ],
)
def test_values_by_hand(copy: Path, part: str, evaluated: int, recall: float, average: float) -> None:
    dataset = load_dataset(copy, layout="roxford5k", part=part, counts="any")
    assert dataset.gallery is not None
    report = evaluate_embeddings(
        EmbeddingSet(on_the_circle([0, 83]), None, ids=dataset.query.ids),
        EmbeddingSet(on_the_circle(ROWS[name] for name in GALLERY), None, ids=dataset.gallery.ids),
        protocol=dataset.protocol,
        metrics=dataset.metrics,
        qrels=dataset.qrels,
    )
    assert (report.num_evaluated, report.num_excluded) == (evaluated, 2 - evaluated)
    assert report["recall@1"] == recall
    assert report["map_trapezoid"] == pytest.approx(average)
    assert {"mp@1", "mp@5", "mp@10"} <= set(report)


def test_medium_is_what_is_meant_where_nothing_is_said(copy: Path) -> None:
    dataset = load_dataset(copy, layout="roxford5k", counts="any")
    assert dataset.protocol is not None
    assert dataset.protocol.level == "medium"


@pytest.mark.parametrize("folder", ["images", "oxbuild_images-v1", "jpg/tmp/all_souls", ""])
def test_images_may_lie_in_other_folders(copy: Path, folder: str) -> None:
    (copy / "jpg").rename(copy / "moved")
    (copy / folder).mkdir(parents=True, exist_ok=True)
    for image in (copy / "moved").iterdir():
        image.rename(copy / folder / image.name.replace("000026.jpg", "000026.JPG"))
    (copy / "moved").rmdir()
    dataset = load_dataset(copy, layout="roxford5k", counts="any")
    assert dataset.gallery is not None
    assert dataset.gallery.ids[0] == f"{folder}/all_souls_000026.JPG".lstrip("/")


def test_the_least_deep_of_several_files_is_meant(copy: Path) -> None:
    write_picture(copy / "jpg" / "thumbs" / f"{GALLERY[0]}.jpg", 3)
    dataset = load_dataset(copy, layout="roxford5k", counts="any")
    assert dataset.gallery is not None
    assert dataset.gallery.ids[0] == f"jpg/{GALLERY[0]}.jpg"
    write_picture(copy / "jpg" / f"{GALLERY[0]}.png", 3)
    with pytest.raises(RecallatkError, match=r"are both called all_souls_000026; keep one"):
        load_dataset(copy, layout="roxford5k", counts="any")


def test_the_official_counts(copy: Path) -> None:
    with pytest.raises(RecallatkError, match=r"medium: 2 queries where .* is 70; 6 gallery images where .* is 4,993"):
        load_dataset(copy, layout="roxford5k")


def test_missing_files_are_named(copy: Path) -> None:
    (copy / "jpg" / "ashmolean_000305.jpg").unlink()
    with pytest.raises(RecallatkError, match=r"jpg/ashmolean_000305.jpg: no such file: of the 6 .*gallery image"):
        load_dataset(copy, layout="roxford5k", counts="any")
    dataset = load_dataset(copy, layout="roxford5k", counts="any", on_error="skip")
    assert dataset.gallery is not None
    assert len(dataset.gallery) == 5
    (copy / "gnd_roxford5k.pkl").unlink()
    with pytest.raises(RecallatkError, match=r"no gnd_roxford5k.mat or gnd_roxford5k.pkl in this folder"):
        load_dataset(copy, layout="roxford5k", counts="any")


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (TRUTH[:1], {}, "1 entries in gnd for 2 queries"),
    ([{**TRUTH[0], "easy": [6]}, TRUTH[1]], {}, "its easy of all_souls_000013 names place 6 of the 6 in imlist"),
    ([{**TRUTH[0], "hard": ["x"]}, TRUTH[1]], {}, "its hard of all_souls_000013 is no list of places"),
    ([{**TRUTH[0], "hard": [1.5]}, TRUTH[1]], {}, "its hard of all_souls_000013 is no list of places"),
    ([{**TRUTH[0], "hard": None}, TRUTH[1]], {}, "its hard of all_souls_000013 is no list of places"),
    (5, {}, "1 entries in gnd for 2 queries"),
    (TRUTH, {"imlist": None}, "its imlist is no list of names"),
    ([{**TRUTH[0], "hard": [0]}, TRUTH[1]], {}, "an image is judged twice for all_souls_000013"),
    ([{**TRUTH[0], "bbx": [1, 2, 3]}, TRUTH[1]], {}, "the bbx of all_souls_000013 is not four numbers"),
    ([{**TRUTH[0], "bbx": [1, 2, float("nan"), 4]}, TRUTH[1]], {}, "the bbx of all_souls_000013 is not four numbers"),
    ([{**TRUTH[0], "bbx": [3, 2, 3.4, 4]}, TRUTH[1]], {}, "the bbx of all_souls_000013 holds no pixel"),
    ([{"bbx": [0, 0, 2, 2], "ok": [1], "junk": []}, TRUTH[1]], {}, "has no easy and no hard; ok instead is the ground"),
    (["x", TRUTH[1]], {}, "its entry for all_souls_000013 is no set of lists"),
    (TRUTH, {"imlist": [*GALLERY[:5], GALLERY[0]]}, "its imlist names all_souls_000026 twice"),
    (TRUTH, {"imlist": [1, 2]}, "its imlist is no list of names"),
]


@pytest.mark.parametrize(("truth", "more", "message"), WRONG)
def test_a_ground_truth_that_does_not_hold_together(copy: Path, truth: Any, more: dict[str, Any], message: str) -> None:
    write_pickle(copy / "gnd_roxford5k.pkl", truth, **more)
    with pytest.raises(RecallatkError, match=rf"gnd_roxford5k.pkl: .*{message}.*take the official file of revisitop"):
        load_dataset(copy, layout="roxford5k", counts="any")


def test_other_bytes_are_no_ground_truth(copy: Path) -> None:
    (copy / "gnd_roxford5k.pkl").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(RecallatkError, match="there is no imlist and no qimlist and no gnd in it"):
        load_dataset(copy, layout="roxford5k", counts="any")
    (copy / "gnd_roxford5k.mat").write_bytes(b"no MATLAB")
    with pytest.raises(RecallatkError, match=r"gnd_roxford5k.mat: this is no MATLAB file, or not a whole one"):
        load_dataset(copy, layout="roxford5k", counts="any")


class Runs:
    """Pickled as a call."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def test_a_ground_truth_runs_nothing(copy: Path) -> None:
    write_pickle(copy / "gnd_roxford5k.pkl", more=Runs(f"touch {copy / 'touched'}"))
    with pytest.raises(RecallatkError, match=r"gnd_roxford5k.pkl: this pickle asks for (posix|nt).system"):
        load_dataset(copy, layout="roxford5k", counts="any")
    assert not (copy / "touched").exists()


def test_it_is_recognised(copy: Path, tmp_path: Path) -> None:
    shutil.copytree(copy, tmp_path / "another")
    assert "--layout roxford5k" in " ".join(detect_layout(copy)[1])
    assert {one.name for one in identify(copy, BENCHMARKS)} == {"roxford5k"}


def test_the_command_line(copy: Path) -> None:
    common = ["--layout", "roxford5k", "--counts", "any", "--encoder", "color-histogram"]
    found = recallatk("eval", copy, *common, "--part", "easy")
    assert found.code == 0, found.err
    assert "num queries: 2\nnum gallery: 6\n" in found.out
    assert "excluded (no positive): 1" in found.out
    assert {"recall@1", "map_trapezoid", "mp@1", "mp@5", "mp@10"} <= set(found.values())
    assert "rel:qrels/easy" in found.out
    assert "easy: 2 queries where the official count is 70" in found.out
    assert recallatk("eval", copy, *common, "--part", "pooled").code == 2


@pytest.mark.parametrize("ids", [True, False])
def test_features_made_elsewhere_are_judged_by_the_copy(copy: Path, tmp_path: Path, ids: bool) -> None:
    """Also those without ids, as feature files of this field are: in the order of the lists."""
    common = ("--layout", "roxford5k", "--counts", "any", "--quiet")
    assert recallatk("embed", copy, *common, "--encoder", "color-histogram", "-o", tmp_path / "f.npz").code == 0
    sides = [tmp_path / f"f-{side}.npz" for side in ("query", "gallery")]
    if not ids:
        for file in sides:
            with np.load(file) as stored:
                np.save(file.with_suffix(".npy"), stored["embeddings"])
        sides = [file.with_suffix(".npy") for file in sides]
    found = recallatk("eval", copy, *common, "--query", sides[0], "--gallery", sides[1])
    assert found.code == 0, found.err
    expected = recallatk("eval", copy, *common, "--encoder", "color-histogram")
    assert found.out.split("[interval]")[0] == expected.out.split("[interval]")[0]
