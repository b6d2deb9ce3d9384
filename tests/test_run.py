"""evaluate() of the recipe, and runs on disk: what is written can be read, repeated and trusted."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import recallatk
from recallatk import EmbeddingSet, EvalProtocol, RecallatkError, Report, evaluate, load_report, save_run
from recallatk.report import Provenance
from recallatk.run import (
    EncodedDataset,
    check_run_folder,
    describe_environment,
    encode_dataset,
    evaluate_encoded,
    load_encoded,
    read_protocol,
    read_record,
    save_encoded,
)
from recallatk.types import Skipped

# The second gallery image of "b" is nearly the query of "a": at 1 that query misses, at 2 it hits.
QUERY = {"a": (210, 55, 20), "b": (20, 230, 30)}
GALLERY = {"a0": (250, 20, 20), "b0": (20, 240, 20), "b1": (200, 60, 20)}
Q_LABELS, G_LABELS = ["a", "b"], ["a", "b", "b"]


def mean_rgb(batch: list[Any]) -> np.ndarray:
    return np.stack([np.asarray(image, dtype=np.float64).reshape(-1, 3).mean(0) for image in batch])


def of_files(batch: list[Any]) -> np.ndarray:
    return mean_rgb([Image.open(path).convert("RGB") for path in batch])


@pytest.fixture
def files(tmp_path: Path) -> tuple[list[Path], list[Path]]:
    sides = []
    for side, colours in (("query", QUERY), ("gallery", GALLERY)):
        (tmp_path / side).mkdir()
        for name, colour in colours.items():
            Image.new("RGB", (4, 4), colour).save(tmp_path / side / f"{name}.png")
        sides.append([tmp_path / side / f"{name}.png" for name in colours])
    return sides[0], sides[1]


# --- evaluate() ------------------------------------------------------------------------------------------------------


def as_strings(paths: list[Path]) -> list[Any]:
    return [str(path) for path in paths]


def as_images(paths: list[Path]) -> list[Any]:
    return [Image.open(path).convert("RGB") for path in paths]


def as_arrays(paths: list[Path]) -> list[Any]:
    return [np.asarray(Image.open(path).convert("RGB")) for path in paths]


def as_one_array(paths: list[Path]) -> Any:
    return np.stack(as_arrays(paths))


def as_objects(paths: list[Path]) -> list[Any]:
    return [{"pixels": pixels} for pixels in as_arrays(paths)]


@pytest.mark.parametrize(
    ("form", "encoder", "decode"),
    [
        (list, of_files, False),
        (as_strings, of_files, False),
        (list, mean_rgb, True),
        (as_strings, mean_rgb, True),
        (as_images, mean_rgb, False),
        (as_arrays, mean_rgb, False),
        (as_one_array, mean_rgb, False),
        (as_objects, lambda batch: mean_rgb([item["pixels"] for item in batch]), False),
    ],
    ids=["paths", "strings", "decoded paths", "decoded strings", "images", "arrays", "one array", "objects"],
)
@pytest.mark.parametrize("batch", [1, 2, 32])
def test_every_form_of_images_gives_the_same_number(
    files: tuple[list[Path], list[Path]], form: Callable[[list[Path]], Any], encoder: Any, decode: bool, batch: int
) -> None:
    query, gallery = map(form, files)
    report = evaluate(query, Q_LABELS, gallery, G_LABELS, encoder, (1, 2), batch=batch, decode=decode)
    assert dict(report) == {"recall@1": 0.5, "recall@2": 1.0}
    assert (report.num_queries, report.num_gallery, report.embedding_dim) == (2, 3, 3)
    assert str(report).startswith(
        "[evaluation]\nnum queries: 2\nnum gallery: 3\nembedding_dim: 3\n"
        "[recall]\nrecall@1: 0.500000\nrecall@2: 1.000000\n"
    )


def test_elements_reach_the_callable_as_they_were_given(files: tuple[list[Path], list[Path]]) -> None:
    seen: list[Any] = []
    evaluate(files[0], Q_LABELS, as_strings(files[1]), G_LABELS, lambda batch: seen.extend(batch) or of_files(batch))
    assert [type(element) for element in seen] == [type(files[0][0])] * 2 + [str] * 3


def test_decoding_is_recorded_and_its_absence_is_unknown(files: tuple[list[Path], list[Path]]) -> None:
    decoded = evaluate(files[0], Q_LABELS, files[1], G_LABELS, mean_rgb, decode=True)
    assert decoded.provenance.decode is not None
    assert decoded.provenance.decode["exif"] == "apply"
    assert evaluate(files[0], Q_LABELS, files[1], G_LABELS, of_files).provenance.decode is None


def test_conversions_are_noted(tmp_path: Path) -> None:
    for name, shade in (("a", 10), ("b", 200)):
        Image.new("L", (4, 4), shade).save(tmp_path / f"{name}.png")
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    report = evaluate(paths, ["x", "x"], paths, ["x", "x"], lambda batch: 1 + mean_rgb(batch), decode=True)
    assert any("2" in note and "greyscale converted" in note for note in report.provenance.notes)


def test_labels_may_be_integers_of_any_width(files: tuple[list[Path], list[Path]]) -> None:
    text = evaluate(files[0], Q_LABELS, files[1], G_LABELS, of_files)
    for labels in ([1, 2], np.array([1, 2], dtype=np.uint8)):
        report = evaluate(files[0], labels, files[1], np.array([1, 2, 2]), of_files)
        assert dict(report) == dict(text)
    assert report.queries["label"] == ("1", "2")


def test_several_labels_a_sample_need_one_in_common(files: tuple[list[Path], list[Path]]) -> None:
    report = evaluate(files[0], [["a", "c"], ["b"]], files[1], [["x"], ["b"], ["b", "c"]], of_files, ks=(1,))
    assert dict(report) == {"recall@1": 1.0}
    assert report.protocol.relevance == "labels"


@pytest.mark.parametrize(
    ("q_labels", "g_labels", "words"),
    [
        ([1, 2], G_LABELS, ["query", "integers", "gallery", "text"]),
        ([1.0, 2.0], G_LABELS, ["query", "1.0", "float"]),
        (["a", ""], G_LABELS, ["query", "row 1", "empty label"]),
        (["a"], G_LABELS, ["query", "1 label for 2 images"]),
        (Q_LABELS, ["a", "b"], ["gallery", "2 labels", "3 images"]),
        (["a", None], G_LABELS, ["query", "row 1", "None"]),
        (["x", "y"], G_LABELS, ["none of the 2 queries", "no gallery item shares its label"]),
    ],
)
def test_labels_that_do_not_fit_are_an_error_in_words(
    files: tuple[list[Path], list[Path]], q_labels: Any, g_labels: Any, words: list[str]
) -> None:
    with pytest.raises(RecallatkError) as caught:
        evaluate(files[0], q_labels, files[1], g_labels, of_files)
    assert [word for word in words if word not in str(caught.value)] == []


def test_an_image_that_is_not_there_is_named(files: tuple[list[Path], list[Path]]) -> None:
    for decode in (True, False):
        with pytest.raises(RecallatkError, match=r"nowhere\.png: cannot be read"):
            evaluate([Path("nowhere.png")], ["a"], files[1], G_LABELS, mean_rgb, decode=decode)


@pytest.mark.parametrize(
    "encoder",
    [
        lambda image: np.asarray(image, dtype=float).mean((0, 1)),
        lambda image: np.asarray(image, dtype=float).ravel(),
        lambda image: np.asarray(image, dtype=float).sum(),
    ],
    ids=["mean", "ravel", "sum"],
)
def test_a_callable_on_one_image_gets_the_error_that_says_so(
    files: tuple[list[Path], list[Path]], encoder: Any
) -> None:
    with pytest.raises(RecallatkError, match=r"np\.stack\(\[f\(image\) for image in batch\]\)"):
        evaluate(as_arrays(files[0]), Q_LABELS, as_arrays(files[1]), G_LABELS, encoder)


def test_a_callable_on_one_image_that_breaks_is_told_that_it_got_a_list(
    files: tuple[list[Path], list[Path]],
) -> None:
    with pytest.raises(AttributeError, match="'list' object") as caught:
        evaluate(as_images(files[0]), Q_LABELS, as_images(files[1]), G_LABELS, lambda image: image.resize((2, 2)))
    assert caught.value.__notes__ == ["recallatk called the encoder with a list of 5 images, the first of them query 0"]


def test_one_cutoff_may_be_a_number_as_in_recall_at_k(files: tuple[list[Path], list[Path]]) -> None:
    assert recallatk.recall_at_k(np.eye(2) + 0.1, np.eye(2), Q_LABELS, Q_LABELS, ks=1) == {"recall@1": 1.0}  # type: ignore[arg-type]
    report = evaluate(files[0], Q_LABELS, files[1], G_LABELS, of_files, ks=2)  # type: ignore[arg-type]
    assert dict(report) == {"recall@2": 1.0}


def test_a_protocol_given_decides_everything(files: tuple[list[Path], list[Path]]) -> None:
    protocol = EvalProtocol(ks=(2,), ties="pessimistic", no_positive="miss")
    report = evaluate(files[0], ["a", "x"], files[1], G_LABELS, of_files, ks=(7,), protocol=protocol)
    assert report.protocol == protocol
    assert dict(report) == {"recall@2": 0.5}


# --- Which images are the same ---------------------------------------------------------------------------------------

LOO = [0.0, 0.1, 1.0, 1.1, 5.0]  # angles of images a, a, b, b, c
LOO_LABELS = ["a", "a", "b", "b", "c"]


def at_angles(batch: list[Any]) -> np.ndarray:
    angles = np.array([element["angle"] for element in batch])
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def assert_left_one_out(report: Report) -> None:
    assert dict(report) == {"recall@1": 1.0}
    assert (report.num_queries, report.num_evaluated, report.num_gallery) == (5, 4, 5)
    assert list(report.queries["n_candidates"]) == [4] * 5


def test_one_list_on_both_sides_is_leave_one_out() -> None:
    images = [{"angle": angle} for angle in LOO]
    assert_left_one_out(evaluate(images, LOO_LABELS, images, LOO_LABELS, at_angles, (1,)))


def test_one_array_on_both_sides_is_leave_one_out() -> None:
    images = np.array([[[np.cos(angle), np.sin(angle)]] for angle in LOO])
    report = evaluate(images, LOO_LABELS, images, LOO_LABELS, lambda batch: np.stack(batch)[:, 0], (1,))
    assert_left_one_out(report)


def test_objects_that_are_on_both_sides_are_the_same_image_in_any_order() -> None:
    images = [{"angle": angle} for angle in LOO]
    report = evaluate(images, LOO_LABELS, images[::-1], LOO_LABELS[::-1], at_angles, (1,))
    assert_left_one_out(report)


def test_objects_that_are_only_equal_are_two_images() -> None:
    one, other = ([{"angle": angle} for angle in LOO] for _ in range(2))
    report = evaluate(one, LOO_LABELS, other, LOO_LABELS, at_angles, (1,))
    assert list(report.queries["n_candidates"]) == [5] * 5
    assert report.num_evaluated == 5


def test_row_numbers_of_a_data_set_are_the_same_image_whatever_their_size() -> None:
    # CPython keeps one object for each small integer; the number must not depend on that.
    n = 600
    query, gallery = [int(str(row)) for row in range(n)], [int(str(row)) for row in range(n)]
    labels = [str(row // 2) for row in range(n)]
    report = evaluate(
        query, labels, gallery, labels, lambda batch: np.array([[np.cos(row / n), np.sin(row / n)] for row in batch])
    )
    assert len(set(report.queries["n_candidates"])) == 1


def test_an_image_on_both_sides_with_two_labels_is_an_error() -> None:
    images = [{"angle": angle} for angle in LOO]
    with pytest.raises(RecallatkError, match="has the label 'a' as a query and 'c' in the gallery"):
        evaluate(images, LOO_LABELS, images, LOO_LABELS[::-1], at_angles)


@pytest.mark.parametrize("way", ["same", "string", "relative", "dotted", "link", "linked folder"])
def test_paths_that_lead_to_one_file_are_the_same_image(
    files: tuple[list[Path], list[Path]], way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = files[0][0]
    (tmp_path / "link.png").symlink_to(own)
    (tmp_path / "folder").symlink_to(own.parent)
    other = {
        "same": own,
        "string": str(own),
        "relative": Path("query/a.png"),
        "dotted": tmp_path / "gallery" / ".." / "query" / "a.png",
        "link": tmp_path / "link.png",
        "linked folder": "folder/a.png",
    }[way]
    report = evaluate(files[0], Q_LABELS, [*files[1], other], [*G_LABELS, "a"], of_files, ks=(1,))
    assert list(report.queries["n_candidates"]) == [3, 4]
    assert dict(report) == {"recall@1": 0.5}


def test_copies_of_a_file_are_two_images_and_warned_of(files: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    copy = tmp_path / "copy.png"
    copy.write_bytes(files[0][0].read_bytes())
    report = evaluate(files[0], Q_LABELS, [*files[1], copy], [*G_LABELS, "a"], of_files, ks=(1,))
    assert dict(report) == {"recall@1": 1.0}
    assert any("duplicate" in warning and "copy.png" in warning for warning in report.warnings)
    protocol = EvalProtocol(ks=(1,), exclude_self="content")
    report = evaluate(files[0], Q_LABELS, [*files[1], copy], [*G_LABELS, "a"], of_files, protocol=protocol)
    assert dict(report) == {"recall@1": 0.5}


def test_a_path_may_be_in_a_list_more_than_once(files: tuple[list[Path], list[Path]]) -> None:
    query = [files[0][0], files[0][1], files[0][0]]
    seen: list[Any] = []

    def encoder(batch: list[Any]) -> Any:
        seen.extend(batch)
        return of_files(batch)

    report = evaluate(query, ["a", "b", "a"], files[1], G_LABELS, encoder, (1,))
    assert report["recall@1"] == pytest.approx(1 / 3)
    assert len(seen) == 5
    assert report.queries["id"] == tuple(
        f"query/{path.name}{end}" for path, end in zip(query, ("", "", " (row 2)"), strict=True)
    )


def test_texts_longer_than_a_file_name_are_elements_like_any_other() -> None:
    def encoder(batch: list[str]) -> np.ndarray:
        return np.array([[text.count("red"), text.count("blue")] for text in batch])

    report = evaluate(["red " * 300, "blue " * 300], ["r", "b"], ["red", "blue"], ["r", "b"], encoder, (1,))
    assert report["recall@1"] == 1.0


def test_a_path_that_is_no_utf8_can_be_evaluated(files: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9.png")
    try:
        odd.write_bytes(files[0][0].read_bytes())
    except OSError:
        pytest.skip("this file system has no such names")
    report = evaluate([odd, files[0][1]], Q_LABELS, files[1], G_LABELS, mean_rgb, (1,), decode=True)
    assert dict(report) == {"recall@1": 0.5}


# --- What an encoder says of itself ----------------------------------------------------------------------------------


class Described:
    """An encoder with attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__ |= attributes

    def __call__(self, batch: list[Any]) -> np.ndarray:
        return of_files(batch)


def test_name_fingerprint_and_preprocessing_reach_record_and_signature(
    files: tuple[list[Path], list[Path]],
) -> None:
    encoder = Described(name="mine", fingerprint="0123456789abcdef", preprocessing={"size": (224, 224)})
    report = evaluate(files[0], Q_LABELS, files[1], G_LABELS, encoder)
    assert report.provenance.encoder == "mine"
    assert "|w:0123456789ab|" in str(report.signature)
    assert "|pre:na|" not in str(report.signature)
    assert json.loads(report.to_json())["provenance"]["preprocessing"] == {"size": [224, 224]}
    assert evaluate(files[0], Q_LABELS, files[1], G_LABELS, of_files).provenance.encoder == "of_files"


@pytest.mark.parametrize(
    "attributes",
    [
        {"fingerprint": 17},
        {"preprocessing": {"size": np.int64(224)}},
        {"preprocessing": {"mean": float("nan")}},
        {"preprocessing": object()},
    ],
    ids=["fingerprint a number", "NumPy number", "NaN", "an object"],
)
def test_what_an_encoder_says_of_itself_is_written_or_refused_in_words(
    files: tuple[list[Path], list[Path]], attributes: dict[str, Any]
) -> None:
    (name,) = attributes
    refusal = ""
    try:
        evaluate(files[0], Q_LABELS, files[1], G_LABELS, Described(**attributes)).to_json()
    except RecallatkError as error:
        refusal = str(error)
    assert not refusal or name in refusal


# --- Runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def encoded() -> EncodedDataset:
    rows = EmbeddingSet(
        np.array([[1, 0], [0.9, 0.1], [0.9, 0.1], [0, 1], [0.1, 0.9], [0.5, 0.5]]),
        labels=["a", "a", "b", "b", "b", "alone"],
        ids=["1", "2\n", "3", "4", "5", "é😀"],
        groups={"camera": ["x", "x", "y", "y", "", "z"]},
    )
    return EncodedDataset(rows, None, Provenance())


@pytest.fixture
def run(encoded: EncodedDataset) -> Report:
    return evaluate_encoded(encoded, metrics=["mrr"], started=datetime.now(UTC))


@pytest.fixture
def several() -> Report:
    rows = EmbeddingSet(np.eye(3)[[0, 0, 1, 2]] + 0.1, labels=[("a", "b"), ("b",), (), ("a",)], ids=list("wxyz"))
    return evaluate_encoded(EncodedDataset(rows, None, Provenance()))


@pytest.mark.parametrize("name", ["run", "several"])
def test_a_report_comes_back_as_it_was_saved(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    saved: Report = request.getfixturevalue(name)
    save_run(saved, tmp_path / "deep" / "run")
    loaded = load_report(tmp_path / "deep" / "run")
    assert loaded.text() == saved.text()
    assert loaded.to_json() == saved.to_json()
    assert str(loaded.signature) == str(saved.signature)
    assert loaded.protocol == saved.protocol
    assert loaded.queries.keys() == saved.queries.keys()
    for column, values in saved.queries.items():
        if isinstance(values, np.ndarray):
            np.testing.assert_array_equal(loaded.queries[column], values)
            assert np.asarray(loaded.queries[column]).dtype == values.dtype
        else:
            assert loaded.queries[column] == values, column


def test_queries_are_rows_with_nulls_where_nothing_is_known(run: Report, tmp_path: Path) -> None:
    save_run(run, tmp_path)
    table = pq.read_table(tmp_path / "queries.parquet")
    types = {field.name: field.type for field in table.schema}
    assert {name: types[name] for name in ("id", "label", "group.camera", "has_positive")} == {
        "id": pa.string(),
        "label": pa.string(),
        "group.camera": pa.string(),
        "has_positive": pa.bool_(),
    }
    assert types["n_positives"] == types["negatives_ahead"] == pa.int64()
    rows = {row["id"]: row for row in table.to_pylist()}
    assert list(rows) == list(run.queries["id"])
    assert [row["recall@1"] for row in rows.values()] == [0.5, 0.0, 0.0, 1.0, 1.0, None]
    alone = rows["é😀"]
    assert (alone["best_positive"], alone["similarity"], alone["mrr"], alone["has_positive"]) == (
        None,
        None,
        None,
        False,
    )
    assert rows["1"]["best_positive"] == "2\n"
    assert rows["1"]["n_candidates"] == 5
    assert rows["3"]["negatives_ahead"] == 3


def test_several_labels_are_lists_in_the_table(several: Report, tmp_path: Path) -> None:
    save_run(several, tmp_path)
    assert pq.read_table(tmp_path / "queries.parquet")["label"].to_pylist() == [["a", "b"], ["b"], [], ["a"]]


def test_the_record_is_strict_json_with_counts_that_add_up(run: Report, tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    save_run(run, tmp_path)
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"), parse_constant=refuse)
    counts = record["counts"]
    assert counts["num_queries"] == counts["num_evaluated"] + counts["num_excluded"] == 6
    assert sum(group["count"] for group in record["without_positive"]) == counts["num_excluded"]
    hit = record["metrics"]["recall@1"]
    assert hit["hits_min"] <= hit["hits"] <= hit["hits_max"]
    assert hit["value"] == hit["hits"] / hit["n"]
    assert (hit["hits"], hit["hits_min"], hit["hits_max"]) == (2.5, 2, 3)


def test_the_record_is_written_last_so_that_a_folder_with_one_is_complete(run: Report, tmp_path: Path) -> None:
    save_run(run, tmp_path)
    (tmp_path / "queries.parquet").unlink()
    (tmp_path / "queries.parquet" / "in the way").mkdir(parents=True)
    with pytest.raises(RecallatkError, match=r"queries\.parquet: cannot be written"):
        save_run(run, tmp_path, overwrite=True)
    assert not (tmp_path / "record.json").exists()
    with pytest.raises(RecallatkError, match=r"record\.json"):
        load_report(tmp_path)


def test_a_run_is_not_written_over_another_without_a_word(run: Report, tmp_path: Path) -> None:
    check_run_folder(tmp_path / "new")
    save_run(run, tmp_path)
    for refused in (lambda: check_run_folder(tmp_path), lambda: save_run(run, tmp_path)):
        with pytest.raises(RecallatkError, match="--overwrite"):
            refused()
    check_run_folder(tmp_path, overwrite=True)
    with pytest.raises(RecallatkError, match="this is a file"):
        check_run_folder(tmp_path / "record.json", overwrite=True)


def test_a_run_that_is_written_over_leaves_nothing_of_its_own_and_no_other_file_goes(
    run: Report, encoded: EncodedDataset, tmp_path: Path
) -> None:
    save_run(run, tmp_path, embeddings=encoded)
    (tmp_path / "embeddings-of-mine.txt").touch()
    assert load_encoded(tmp_path / "embeddings.npy").query.ids == encoded.query.ids
    save_run(run, tmp_path, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "embeddings-of-mine.txt",
        "queries.parquet",
        "record.json",
        "samples.parquet",
    ]


def test_what_evaluate_says_can_be_saved(files: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    report = evaluate(files[0], Q_LABELS, files[1], G_LABELS, of_files, (1, 2))
    save_run(report, tmp_path / "run")
    assert load_report(tmp_path / "run").to_json() == report.to_json()
    assert report.provenance.environment["seconds"] >= 0


def test_the_folder_of_a_run_may_be_given_as_text_like_every_path(run: Report, tmp_path: Path) -> None:
    save_run(run, str(tmp_path / "run"))
    assert load_report(str(tmp_path / "run")).text() == run.text()


def damaged_record(**changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        for key, value in changes.items():
            if value is None:
                del record[key]
            else:
                record[key] = value
        (folder / "record.json").write_text(json.dumps(record), encoding="utf-8")

    return damage


def shorter_table(folder: Path) -> None:
    pq.write_table(pq.read_table(folder / "queries.parquet").slice(1), folder / "queries.parquet")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "record.json").unlink(), ["record.json"]),
        (lambda folder: (folder / "queries.parquet").unlink(), ["queries.parquet", "not complete"]),
        (lambda folder: (folder / "record.json").write_text("{"), ["record.json", "JSON"]),
        (lambda folder: (folder / "record.json").write_text("[]"), ["record.json", "record"]),
        (lambda folder: (folder / "record.json").write_bytes(b"\xff"), ["record.json"]),
        (damaged_record(schema="recallatk.record/99"), ["recallatk.record/99"]),
        (damaged_record(signature="surprise"), ["surprise"]),
        (damaged_record(counts=None), ["counts"]),
        (damaged_record(protocol={"ks": [1], "surprise": 1}), ["surprise"]),
        (lambda folder: (folder / "queries.parquet").write_bytes(b"PAR1"), ["queries.parquet"]),
        (shorter_table, ["queries.parquet"]),
    ],
    ids=[
        *("no record", "no table", "half a record", "no object", "no text", "later schema", "no signature"),
        *("no counts", "unknown field", "damaged table", "table of another run"),
    ],
)
def test_a_damaged_run_is_an_error_in_words(
    run: Report, tmp_path: Path, damage: Callable[[Path], None], words: list[str]
) -> None:
    save_run(run, tmp_path)
    damage(tmp_path)
    with pytest.raises(RecallatkError) as caught:
        load_report(tmp_path)
    assert [word for word in words if word not in str(caught.value)] == []


# --- Data sets and embeddings ----------------------------------------------------------------------------------------


def test_what_the_layout_and_the_encoding_left_out_is_counted_together(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"")
    for name, colour in GALLERY.items():
        Image.new("RGB", (4, 4), colour).save(tmp_path / f"{name}.png")
    rows = ["path,label", "a0.png,a", "gone.png,a", "bad.png,b", "b0.png,b", "b1.png,b"]
    (tmp_path / "m.csv").write_text("\n".join(rows), encoding="utf-8")
    dataset = recallatk.load_dataset(tmp_path / "m.csv", on_error="skip")
    report = evaluate_encoded(encode_dataset(dataset, mean_rgb, on_error="skip"), protocol=EvalProtocol(ks=(1,)))
    assert [skipped.item for skipped in report.provenance.skipped] == ["gone.png", "bad.png"]
    assert (report.num_queries, report.num_evaluated) == (3, 2)
    assert "[skipped]\nskipped: 2\ngone.png: " in report.text()


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_saved_embeddings_give_the_same_identity_again(
    files: tuple[list[Path], list[Path]], tmp_path: Path, suffix: str
) -> None:
    for side, paths in zip(("query", "gallery"), files, strict=True):
        for path in paths:
            (tmp_path / "data" / side / path.stem[0]).mkdir(parents=True, exist_ok=True)
            path.rename(tmp_path / "data" / side / path.stem[0] / path.name)
    dataset = recallatk.load_dataset(tmp_path / "data")
    encoded = encode_dataset(dataset, recallatk.load_encoder("color-histogram"))
    written = save_encoded(encoded, tmp_path / f"e{suffix}")
    assert [path.name for path in written] == [f"e-query{suffix}", f"e-gallery{suffix}"]
    direct, again = evaluate_encoded(encoded), evaluate_encoded(load_encoded(*written))
    assert again.provenance.data["files"] == [str(path) for path in written]
    assert again.provenance.data["read"]["query"] == str(written[0])
    assert again.text() == direct.text()
    assert again.hashes == direct.hashes
    assert again.provenance.preprocessing == direct.provenance.preprocessing


def test_what_was_left_out_of_a_data_set_is_known_after_loading_its_embeddings(
    encoded: EncodedDataset, tmp_path: Path
) -> None:
    noticed = Provenance(skipped=(Skipped("x.png", "empty"),), notes=("a note",), warnings=("a sample",))
    two_sides = dataclasses.replace(encoded, gallery=encoded.query, provenance=noticed)
    loaded = load_encoded(*save_encoded(two_sides, tmp_path / "e.npz")).provenance
    assert (loaded.skipped, loaded.notes, loaded.warnings) == (noticed.skipped, noticed.notes, noticed.warnings)


def test_one_side_is_saved_under_the_name_itself(encoded: EncodedDataset, tmp_path: Path) -> None:
    assert save_encoded(encoded, tmp_path / "e.npz") == (tmp_path / "e.npz",)


# --- Protocols and environment ---------------------------------------------------------------------------------------


def test_a_protocol_is_read_from_toml_and_from_records(run: Report, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('ks = [1, 3]\nties = "optimistic"\n', encoding="utf-8")
    assert read_protocol(tmp_path / "p.toml") == {"ks": [1, 3], "ties": "optimistic"}
    save_run(run, tmp_path / "run")
    for path in (tmp_path / "run", tmp_path / "run" / "record.json"):
        found = read_protocol(path)
        assert EvalProtocol(**{**found, "ks": tuple(found["ks"])}) == run.protocol


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("p.toml", "kss = 1", ["p.toml", "'kss'", "the fields are: ks, "]),
        ("p.toml", "", ["p.toml", "no protocol"]),
        ("p.toml", "=", ["p.toml", "TOML"]),
        ("p.toml", "protocol = 3", ["p.toml"]),
        ("p.json", "{", ["p.json", "JSON"]),
        ("p.json", "3", ["p.json", "record"]),
        ("p.json", "{}", ["p.json", "no protocol"]),
        ("p.json", '{"protocol": ["ks"]}', ["p.json"]),
    ],
)
def test_a_protocol_file_that_says_something_else_is_an_error(
    tmp_path: Path, name: str, text: str, words: list[str]
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(RecallatkError) as caught:
        read_protocol(tmp_path / name)
    assert [word for word in words if word not in str(caught.value)] == []


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.toml", tmp_path / "nowhere.json", tmp_path):
        with pytest.raises(RecallatkError, match=path.name):
            read_protocol(path)
    with pytest.raises(RecallatkError, match="nowhere"):
        read_record(tmp_path / "nowhere")


def test_the_environment_is_json_and_never_part_of_a_hash(run: Report, encoded: EncodedDataset) -> None:
    described = describe_environment(datetime.now(UTC))
    assert json.loads(json.dumps(described)) == described
    assert described["packages"].keys() >= {"numpy", "pillow", "pyarrow"}
    assert described["cores"] >= 1
    assert described["seconds"] >= 0
    assert "/" not in described["command"][0]
    assert "seconds" not in describe_environment()
    other = recallatk.evaluate_embeddings(
        encoded.query, metrics=["mrr"], provenance=dataclasses.replace(run.provenance, environment={"python": "9"})
    )
    assert other.signature == run.signature
    assert other.hashes == run.hashes


def test_where_the_files_lie_does_not_enter_the_signature(files: tuple[list[Path], list[Path]], tmp_path: Path) -> None:
    moved = [[tmp_path / "moved" / path.relative_to(tmp_path) for path in side] for side in files]
    for old, new in zip(files, moved, strict=True):
        new[0].parent.mkdir(parents=True)
        for source, target in zip(old, new, strict=True):
            shutil.copy(source, target)
    labels = ["a", "b", "c"][: len(files[0])]
    here, there = (evaluate(query, labels, gallery, G_LABELS, of_files, (1,)) for query, gallery in (files, moved))
    assert here.signature == there.signature
    assert here.queries["id"][0].startswith("query/")


# --- records that no version wrote


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metrics",), {}),
        (("metrics", "recall@1", "value"), float("nan")),
        (("metrics", "recall@1", "value"), "0.5"),
        (("metrics", "recall@1", "n"), 0),
        (("metrics", "recall@1", "hits"), float("inf")),
        (("metrics", "recall@1", "interval", "low"), None),
        (("protocol", "ks"), []),
        (("intervals", "confidence"), "x"),
        (("provenance", "environment"), []),
        (("hashes",), None),
        (("hashes", "emb"), 5),
    ],
)
def test_a_record_that_no_version_wrote_is_damaged(path: tuple[str, ...], value: object, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((6, 3))
    save_run(recallatk.evaluate_embeddings(EmbeddingSet(rows, list("aabbcc"))), tmp_path / "run")
    record = json.loads((tmp_path / "run" / "record.json").read_text("utf-8"))
    place = record
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    (tmp_path / "run" / "record.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(RecallatkError, match="the record is damaged") as caught:
        load_report(tmp_path / "run")
    assert type(caught.value) is RecallatkError


@pytest.mark.parametrize("own", [12, ["a"], {"a": 3}, {"a": "text"}])
def test_metadata_of_somebody_else_is_not_taken_for_conversions(tmp_path, own):
    rows = EmbeddingSet(np.eye(4), ["a", "a", "b", "b"])
    recallatk.save_embeddings(rows, tmp_path / "rows.npz", metadata={"conversions": own})
    assert load_encoded(tmp_path / "rows.npz").provenance.notes == ()
