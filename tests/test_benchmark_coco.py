"""COCO captions on a look-alike: all images at once, and five folds of which each is evaluated alone."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import recallatk
from recallatk import encode_dataset, evaluate_views, load_dataset
from recallatk.run import average_folds
from recallatk.types import RecallatkError
from two_towers import TwoTowers

ENCODER = ("--encoder", "two_towers:towers", "--no-cache")
LIKE = ("--layout", "coco", "--counts", "any")
N = 10
ANGLES = np.linspace(0, 80, N)  # each image points elsewhere


def file_name(number: int) -> str:
    return f"COCO_val2014_{391895 + number:012d}.jpg"


def caption(angle: float) -> str:
    turn = math.radians(angle)
    return f"A man at {math.cos(turn):.6f} and {math.sin(turn):.6f}."


def captions(number: int) -> list[str]:
    """The first is right; the second points to the next image, which may lie in another fold; the last has six."""
    own = [caption(ANGLES[number]), caption(ANGLES[(number + 1) % N]), caption(ANGLES[number] + 1)]
    return [*own, caption(ANGLES[number]), caption(ANGLES[number])] + ([caption(ANGLES[0])] if number == N - 1 else [])


def write_pictures(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number, angle in enumerate(ANGLES):
        turn = math.radians(angle)
        colour = (round(250 * math.cos(turn)), round(250 * math.sin(turn)), 0)
        picture = Image.new("RGB", (8, 8), colour)
        picture.save(folder / file_name(number), "PNG")  # a suffix is not what a file is


@pytest.fixture
def karpathy(tmp_path: Path) -> Path:
    root = tmp_path / "coco"
    write_pictures(root / "val2014")
    images = [
        {
            "filepath": "val2014",
            "filename": file_name(number),
            "cocoid": 391895 + number,
            "imgid": number,
            "split": "test",
            "sentids": [],
            "sentences": [{"raw": raw, "tokens": [], "imgid": number, "sentid": 0} for raw in captions(number)],
        }
        for number in range(N)
    ]
    others = [{**images[0], "filename": f"COCO_train2014_{n:012d}.jpg", "split": "restval"} for n in range(3)]
    (root / "dataset_coco.json").write_text(json.dumps({"images": [*others, *images], "dataset": "coco"}), "utf-8")
    return root


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    root = tmp_path / "clip_benchmark"
    write_pictures(root / "val2014")
    found = [{"id": 391895 + n, "file_name": file_name(n)} for n in range(N)]
    texts = [(n, raw) for n in range(N) for raw in captions(n)]
    annotations = [{"id": k, "image_id": 391895 + n, "caption": raw} for k, (n, raw) in enumerate(texts)]
    (root / "coco_test_karpathy.json").write_text(json.dumps({"images": found, "annotations": annotations}), "utf-8")
    return root


def test_both_lists_give_the_same_sides(karpathy: Path, listed: Path) -> None:
    ours, theirs = (load_dataset(place, layout="coco", counts="any") for place in (karpathy, listed))
    assert ours.query.elements == theirs.query.elements
    assert ours.query.ids == theirs.query.ids
    assert ours.query.labels == theirs.query.labels
    assert len(ours.query) == 51
    assert ours.query.labels[:6] == ("391895",) * 5 + ("391896",)
    assert ours.query.ids[50] == "val2014/COCO_val2014_000000391904.jpg#5"
    assert ours.notes == ("dataset_coco.json: 3 images of other splits left aside (restval 3)",)
    assert not ours.query.groups


def test_pictures_may_lie_in_one_folder_without_the_name_of_the_list(karpathy: Path) -> None:
    (karpathy / "val2014").rename(karpathy / "images")
    dataset = load_dataset(karpathy, layout="coco", counts="any")
    assert dataset.gallery is not None
    assert dataset.gallery.ids[0] == "images/COCO_val2014_000000391895.jpg"


def test_folds_are_in_the_order_of_the_list_and_hold_images_with_their_captions(karpathy: Path) -> None:
    dataset = load_dataset(karpathy, layout="coco", part="1k", counts="any")
    assert dataset.gallery is not None
    assert dataset.gallery.groups["fold"] == ("1", "1", "2", "2", "3", "3", "4", "4", "5", "5")
    assert [dataset.query.groups["fold"].count(fold) for fold in "12345"] == [10, 10, 10, 10, 11]
    third = load_dataset(karpathy, layout="coco", part="1k-image-to-text-3", counts="any")
    assert third.query.labels == ("391899", "391900")
    assert third.gallery is not None
    assert set(third.gallery.labels) == set(third.query.labels)


def test_another_list_s_order_is_said_to_make_the_folds(listed: Path) -> None:
    dataset = load_dataset(listed, layout="coco", part="1k", counts="any")
    assert "the official one is that of dataset_coco.json" in " ".join(dataset.warnings)
    assert "official one" not in " ".join(load_dataset(listed, layout="coco", counts="any").warnings)


def test_each_fold_is_evaluated_alone_and_the_mean_is_of_them(karpathy: Path, tmp_path: Path) -> None:
    """The second caption of every other image points out of its fold: there, its own is the nearest that is left."""
    dataset = load_dataset(karpathy, layout="coco", part="1k", counts="any")
    encoded = encode_dataset(dataset, TwoTowers())
    reports = evaluate_views(encoded)
    assert {report.num_gallery for name, report in reports.items() if "text-to-image" in name} == {2}
    expected = {}
    for fold in range(5):
        right = [
            abs(float(angle) - ANGLES[number]) < abs(float(angle) - ANGLES[other])
            for number, other in ((2 * fold, 2 * fold + 1), (2 * fold + 1, 2 * fold))
            for angle in angles_of(number)
        ]
        expected[f"1k-text-to-image-{fold + 1}"] = sum(right) / len(right)
    assert {name: reports[name]["recall@1"] for name in expected} == expected
    means = {mean.name: mean for mean in average_folds(encoded.views, reports)}
    value = means["1k-text-to-image"].values["recall@1"]
    assert value.value == pytest.approx(sum(expected.values()) / 5, abs=1e-15)
    assert value.n == 51
    assert value.interval is not None
    assert value.interval.clusters == 10
    assert value.interval.low < value.value < value.interval.high
    assert "over 10 labels; the queries of all folds together" in means["1k-text-to-image"].rule
    assert list(means["1k-image-to-text"].runs) == [f"1k-image-to-text-{fold}" for fold in range(1, 6)]
    partial = average_folds(encoded.views, {name: one for name, one in reports.items() if name[-1] != "2"})
    assert partial == [], "a mean of four folds is no mean of five"


def angles_of(number: int) -> list[float]:
    found = []
    for text in captions(number):
        x, y = (float(word.rstrip(".")) for word in text.split() if word[0].isdigit())
        found.append(math.degrees(math.atan2(y, x)))
    return found


def test_the_mean_of_folds_of_equal_size_is_that_of_all_queries(karpathy: Path) -> None:
    dataset = load_dataset(karpathy, layout="coco", part="1k-image-to-text", counts="any")
    assert dataset.query.kind == "image"
    encoded = encode_dataset(dataset, TwoTowers())
    reports = evaluate_views(encoded)
    (mean,) = average_folds(encoded.views, reports)
    hits = sum(report.values_by_metric["recall@1"].hits or 0 for report in reports.values())
    assert mean.values["recall@1"].value == pytest.approx(hits / N)


def test_the_command_prints_folds_and_means_and_verify_repeats_a_fold(karpathy: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = recallatk("eval", karpathy, *LIKE, "--part", "1k", *ENCODER, "-k", "1", "-o", run)
    assert done.code == 0, done.err
    assert done.out.count("\n1k-text-to-image-") >= 5
    assert "1k-image-to-text, mean of 5" in done.out
    assert "1k-text-to-image, mean of 5: 95 % cluster-robust t over 10 labels" in done.out
    kept = json.loads((run / "1k-text-to-image.json").read_text("utf-8"))
    assert len(kept["runs"]) == 5
    assert f"{kept['metrics']['recall@1']['value']:.6f}" in done.out
    assert recallatk("verify", run / "1k-image-to-text-3").out.startswith("identical")
    printed = recallatk("eval", karpathy, *LIKE, "--part", "1k-text-to-image", *ENCODER, "--json", "--quiet")
    *records, mean = json.loads(printed.out)
    assert len(records) == 5
    assert mean["schema"] == "recallatk.folds/1"


def test_embeddings_keep_the_folds_and_give_the_same_runs(karpathy: Path, tmp_path: Path) -> None:
    file = tmp_path / "towers.parquet"
    assert recallatk("embed", karpathy, *LIKE, "--part", "1k", *ENCODER[:2], "-o", file).code == 0
    sides = ("--query", tmp_path / "towers-query.parquet", "--gallery", tmp_path / "towers-gallery.parquet")
    done = recallatk("eval", *sides, *LIKE, "--part", "1k", "-k", "1", "-o", tmp_path / "from-files")
    assert done.code == 0, done.err
    images = recallatk("eval", karpathy, *LIKE, "--part", "1k", *ENCODER, "-k", "1", "-o", tmp_path / "from-images")
    assert done.out == images.out
    assert recallatk("verify", tmp_path / "from-files" / "1k-image-to-text-5").out.startswith("identical")
    both = recallatk("eval", *sides, *LIKE, "-k", "1")
    assert "image-to-text" in both.out


def test_folds_are_no_matter_of_a_sample_or_of_four_images(karpathy: Path) -> None:
    done = recallatk("eval", karpathy, *LIKE, "--part", "1k", *ENCODER, "--limit", "5")
    assert done.code == 2
    path = karpathy / "dataset_coco.json"
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({"images": content["images"][:7]}), "utf-8")
    with pytest.raises(RecallatkError, match="4 test images; 5 folds need one each"):
        load_dataset(karpathy, layout="coco", part="1k", counts="any")


def test_a_copy_of_other_counts_is_refused_and_identified(karpathy: Path) -> None:
    with pytest.raises(RecallatkError, match="51 queries where the official count is 25,010"):
        load_dataset(karpathy, layout="coco")
    found = recallatk("datasets", "identify", karpathy)
    assert "coco        both" in found.out
    assert "1k-text-to-image-1" not in found.out
    shown = recallatk("datasets", "show", "coco")
    assert "command: recallatk eval DATA --layout coco --part 1k --encoder SPEC" in shown.out
    assert "[part 1k-text-to-image-1]" not in shown.out


@pytest.mark.parametrize(
    ("change", "into", "said"),
    [
        ('"image_id": 391896', '"image_id": 7', r"annotations\[5\]: image_id 7 is none of `images`"),
        ('"annotations"', '"annotation"', "there is no list `annotations` in it"),
        ('"id": 391896', '"id": 391895', "image"),
        ('"file_name": "COCO', '"name": "COCO', r"images\[0\]: its `file_name` is None"),
    ],
)
def test_a_damaged_list_is_named(listed: Path, change: str, into: str, said: str) -> None:
    path = listed / "coco_test_karpathy.json"
    text = path.read_text("utf-8")
    assert change in text
    path.write_text(text.replace(change, into, 1), "utf-8")
    with pytest.raises(RecallatkError, match=said):
        load_dataset(listed, layout="coco", counts="any")


def test_the_list_of_blip_is_the_same_and_says_that_its_order_makes_the_folds(karpathy: Path) -> None:
    theirs = load_dataset(karpathy, layout="coco", counts="any")
    (karpathy / "dataset_coco.json").unlink()
    entries = [{"image": f"val2014/{file_name(n)}", "caption": captions(n)} for n in range(N)]
    (karpathy / "coco_karpathy_test.json").write_text(json.dumps(entries), "utf-8")
    ours = load_dataset(karpathy, layout="coco", counts="any")
    assert (ours.query.elements, ours.query.ids, ours.query.labels) == (
        theirs.query.elements, theirs.query.ids, theirs.query.labels
    )  # fmt: skip
    assert ours.query.labels is not None
    assert ours.query.labels[0] == "391895"
    folds = load_dataset(karpathy, layout="coco", part="1k", counts="any")
    assert "the folds follow the order of coco_karpathy_test.json" in "".join(folds.warnings)
