"""verify: a run that was left alone is identical, and whatever moved is named."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import recallatk as package
from command_line import MEAN, Result, data, recallatk, save
from recallatk import (
    EmbeddingSet,
    EvalProtocol,
    RecallatkError,
    evaluate_embeddings,
    load_report,
    save_embeddings,
    save_run,
    verify_run,
)
from recallatk.embeddings import parts
from recallatk.run import evaluate_encoded, load_encoded
from recallatk.signature import Signature

__all__ = ["data"]  # a fixture is used by its name

PHOTOS = Path(package.__file__).parent / "assets" / "photos"
MANIFEST = """\
path,label,role,camera,easting,northing
query/red/a.png,red|warm,query,1,0,0
query/green/a.png,green,query,2,100,0
query/blue/a.png,blue,query,1,200,0
gallery/red/a.png,red,gallery,2,5,0
gallery/green/a.png,green,gallery,1,110,0
gallery/blue/a.png,blue,gallery,1,190,5
gallery/blue/b.png,blue|warm,gallery,2,205,5
"""
QRELS = """\
query/red/a.png 0 gallery/red/a.png 1
query/green/a.png 0 gallery/green/a.png 2
query/blue/a.png 0 gallery/blue/b.png 1
"""
RUN = """\
query/red/a.png Q0 gallery/blue/b.png 1 0.9 x
query/red/a.png Q0 gallery/red/a.png 2 0.8 x
query/green/a.png Q0 gallery/green/a.png 1 0.7 x
"""


def made(*argv: object) -> None:
    """A run in `run`, made anew."""
    done = recallatk(*argv, "-k", "1,2", "--output", "run", "--overwrite", "--quiet")
    assert done.code == 0, done.err


def verified(*argv: object) -> Result:
    return recallatk("verify", "run", *argv)


def moved(*argv: object) -> dict[str, list[str]]:
    """What moved: each line's text with its items, and that it is what the exit code says."""
    done = verified("--json", *argv)
    outcome = json.loads(done.out)
    assert done.code == (0 if outcome["identical"] else 1)
    assert outcome["identical"] == (not outcome["moved"])
    return {f"{one['part']}: {one['text']}": one["items"] for one in outcome["moved"]}


@pytest.fixture
def world(data: Path) -> Path:
    """The folder `data`, with everything that can be read of it in other forms."""
    (data / "all.csv").write_text(MANIFEST, encoding="utf-8")
    Path("qrels.txt").write_text(QRELS, encoding="utf-8")
    Path("run.trec").write_text(RUN, encoding="utf-8")
    Path("labels.txt").write_text("a\na\nb\nb\n", encoding="utf-8")
    np.save("rows.npy", np.array([[1.0, 0.1], [0.9, 0.2], [0.1, 1.0], [0.8, 0.3]]))
    np.save("scores.npy", np.array([[9.0, 2, 1, 3], [2, 9, 1, 0], [1, 2, 9, 3], [4, 2, 3, 9]]))
    assert recallatk("embed", data, *MEAN, "-o", "kept.npz", "--quiet").code == 0
    return data


COMMANDS = {
    "query and gallery": ("eval", "data", *MEAN),
    "class folders": ("eval", "data/gallery", *MEAN),
    "two folders": ("eval", "--queries-folder", "data/query", "--gallery-folder", "data/gallery", *MEAN),
    "one folder twice": ("eval", "--queries-folder", "data/gallery", "--gallery-folder", "data/gallery", *MEAN),
    "label from": ("eval", "data", "--label-from", "regex:/(.)", *MEAN),
    "manifest": ("eval", "data/all.csv", *MEAN),
    "root": ("eval", "elsewhere/all.csv", "--root", "data", *MEAN),
    "several labels": ("eval", "data/all.csv", "--label-separator", "|", "--relevance", "labels", *MEAN),
    "radius": ("eval", "data/all.csv", "--relevance", "radius", "--radius", "12", *MEAN),
    "groups": ("eval", "data/all.csv", "--ignore-same", "camera+label", "--no-positive", "miss", *MEAN),
    "qrels": ("eval", "data", "--qrels", "qrels.txt", "--min-grade", "1", *MEAN),
    "content": ("eval", "data", "--exclude-self", "content", *MEAN),
    "metrics": ("eval", "data", "-m", "map", "-m", "set_recall@2", "--average", "macro", *MEAN),
    "ties": ("eval", "data", "--ties", "optimistic", *MEAN),
    "sample": ("eval", "data/gallery", "--limit", "3", "--seed", "4", *MEAN),
    "a skipped image": ("eval", "data", "--on-error", "skip", *MEAN),
    "paths handed over": ("eval", "data", "--hand-over", "paths", "--encoder", "tiny:of_paths"),
    "exif and batch": ("eval", "data", "--exif", "ignore", "--batch-size", "2", *MEAN),
    "kept embeddings": ("eval", "data", "--save-embeddings", *MEAN),
    "embeddings": ("eval", "--query", "kept-query.npz", "--gallery", "kept-gallery.npz"),
    "bare embeddings": ("eval", "--query", "rows.npy", "--query-labels", "labels.txt"),
    "lists and qrels": ("score", "--run", "run.trec", "--qrels", "qrels.txt"),
    "a matrix": ("score", "--scores", "scores.npy", "--query-labels", "labels.txt"),
    "intervals": ("eval", "data", "--ci", "wilson", *MEAN),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_what_was_left_alone_is_identical_from_anywhere(command, world, monkeypatch, tmp_path):
    shutil.copytree("data", "elsewhere")
    (world / "gallery/red/torn.png").write_bytes(b"torn" if command == COMMANDS["a skipped image"] else b"")
    if command != COMMANDS["a skipped image"]:
        (world / "gallery/red/torn.png").unlink()
    made(*command)
    before = {path: path.read_bytes() for path in Path("run").iterdir()}
    done = verified()
    assert (done.code, done.out.split(":")[0].split(",")[0]) == (0, "identical"), done.out
    assert "[moved]" not in done.out
    assert {path: path.read_bytes() for path in Path("run").iterdir()} == before
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert recallatk("verify", "../run").code == 0


# --- images, labels and sides


def test_the_image_whose_bytes_changed_is_named(world):
    made(*COMMANDS["query and gallery"])
    save(world / "gallery/blue/b.png", (20, 60, 200))
    found = moved()
    assert found["images: 1 image (gallery) has other bytes"] == ["gallery/blue/b.png"]
    assert found["queries: the first rank of 1 query moved"] == ["query/red/a.png: 2 then, 1 now"]
    assert "values: recall@1: 0.666667 then, 1.000000 now" in found
    assert not any(text.startswith("embeddings") for text in found)  # the bytes say it


def test_bytes_that_change_no_pixel_move_no_number(world):
    made(*COMMANDS["query and gallery"])
    path = world / "gallery/blue/b.png"
    path.write_bytes(path.read_bytes() + b"\0")
    assert list(moved()) == ["images: 1 image (gallery) has other bytes"]
    assert "every number is the same" in verified().out.splitlines()[0]


def test_gone_new_renamed_relabelled_and_torn_images_are_told_apart(world):
    save(world / "gallery/red/c.png", (240, 30, 30))
    save(world / "gallery/red/d.png", (230, 30, 30))
    made(*COMMANDS["query and gallery"])
    (world / "gallery/red/c.png").unlink()
    (world / "gallery/red/d.png").write_bytes(b"torn")
    save(world / "gallery/red/e.png", (220, 30, 30))
    shutil.move(world / "gallery/blue/b.png", world / "gallery/green/b.png")
    found = moved()
    assert found["images: 1 image (gallery) is gone"] == ["gallery/red/c.png"]
    assert found["images: 1 image (gallery) is new"] == ["gallery/red/e.png"]
    assert found["images: 1 image (gallery) was renamed (same bytes)"] == [
        "gallery/blue/b.png is now gallery/green/b.png"
    ]
    assert found["labels: 1 image (gallery) has another label"] == ["gallery/blue/b.png: 'blue' then, 'green' now"]
    (torn,) = found["skipped: 1 image (gallery) cannot be used any more"]
    assert torn.startswith("gallery/red/d.png: cannot be read as an image")


def test_a_label_in_a_manifest_a_camera_and_a_position_are_named_and_order_is_not(world):
    made(*COMMANDS["groups"])
    lines = (world / "all.csv").read_text("utf-8").splitlines()
    lines[5] = "gallery/green/a.png,blue,gallery,3,111,0"
    lines[1:] = lines[:0:-1]
    (world / "all.csv").write_text("\n".join(lines), encoding="utf-8")
    found = moved()
    assert found["labels: 1 image (gallery) has another label"] == ["gallery/green/a.png: 'green' then, 'blue' now"]
    assert found["columns: 1 image (gallery) has another camera"] == ["gallery/green/a.png: 1 then, 3 now"]
    assert found["columns: 1 image (gallery) has another position"] == [
        "gallery/green/a.png: (110.0, 0.0) then, (111.0, 0.0) now"
    ]
    assert "come in another order; it does not matter" in verified().out


def test_another_order_alone_is_identical(world):
    made(*COMMANDS["manifest"])
    lines = (world / "all.csv").read_text("utf-8").splitlines()
    (world / "all.csv").write_text("\n".join([lines[0], *lines[:0:-1]]), encoding="utf-8")
    done = verified()
    assert done.code == 0
    assert "another order; it does not matter" in done.out


def test_judged_pairs_that_moved_are_seen(world):
    made(*COMMANDS["qrels"])
    Path("qrels.txt").write_text(QRELS + "query/red/a.png 0 gallery/blue/b.png 1\n", encoding="utf-8")
    found = moved()
    assert any(text.startswith("relevance: what relevance looked at beside labels") for text in found)
    assert found["queries: positives: other for 1 query"] == ["query/red/a.png: 1 then, 2 now"]


def test_nothing_left_to_evaluate_is_told_and_not_an_error(world):
    made(*COMMANDS["query and gallery"])
    shutil.rmtree(world / "gallery")
    for colour in ("red", "green", "blue"):
        save(world / f"gallery/not-{colour}/a.png", (1, 2, 3))
    assert any(text.startswith("values: it cannot be evaluated any more: none of the 3") for text in moved())


# --- encoders


def test_a_callable_whose_code_changed_moves_embeddings_and_says_what_is_unknown(world, monkeypatch):
    made(*COMMANDS["query and gallery"])
    code = Path("tiny.py").read_text("utf-8").replace(".mean((0, 1))", ".max((0, 1))[..., ::-1] + 1")
    Path("tiny.py").write_text(code, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "tiny")
    done = verified()
    assert done.code == 1
    assert "embeddings: 3 images (query) have another embedding" in done.out
    assert re.search(r"\[likely cause\]\nthe code of the encoder has changed: .*tiny.py has other bytes", done.out)
    assert "carries no fingerprint" in done.out


def test_code_that_changed_and_moved_nothing_is_a_note(world, monkeypatch):
    made(*COMMANDS["query and gallery"])
    with Path("tiny.py").open("a") as file:
        file.write("# a comment\n")
    monkeypatch.delitem(sys.modules, "tiny")
    done = verified()
    assert done.code == 0
    assert re.search(r"\[notes\]\nthe code of the encoder has changed", done.out)


def test_embeddings_that_move_by_chance_have_no_cause_in_sight(world, monkeypatch):
    monkeypatch.delitem(sys.modules, "tiny")
    code = (
        "\n\ndef chance(batch):\n    return mean_rgb(batch) + np.random.default_rng().random((len(batch), 3)) / 100\n"
    )
    with Path("tiny.py").open("a") as file:
        file.write(code)
    made("eval", world, "--encoder", "tiny:chance")
    assert re.search(r"\[likely cause\]\nnone found in data, encoder or versions: ", verified().out)


@pytest.mark.parametrize(
    "change",
    [
        lambda given: given.update(read={"data": 5}),
        lambda given: given.update(read=[1]),
        lambda given: given["encode"].update(spec=3),
        lambda given: given["encode"].update(batch="x"),
        lambda given: given["read"].update(limit=2),
        lambda given: given["read"].update(limit="many", seed=0),
        lambda given: given["read"].update(layout="nope"),
        lambda given: given["read"].update(colour="red"),
    ],
)
def test_a_record_that_no_version_wrote_is_one_line(change, world):
    made(*COMMANDS["query and gallery"])
    edit_record(lambda record: change(record["provenance"]["data"]))
    done = verified()
    assert (done.code, done.out) == (3, "")
    assert len(done.err.splitlines()) == 1
    assert "record" in done.err


def test_another_encoder_names_weights_and_keys_of_the_preprocessing(world):
    made("eval", world, "--encoder", "pixels")
    found = moved("--encoder", "hog")
    assert found["encoder: pixels then, hog now"] == []
    assert "weights: another fingerprint: pixels-1 then, hog-1 now" in found
    (keys,) = [items for text, items in found.items() if text.startswith("preprocessing")]
    assert any(re.fullmatch(r"size: \[16, 16\] then, \[64, 64\] now", key) for key in keys), keys


def test_other_versions_are_the_likely_cause_where_only_numbers_moved(world):
    made("eval", world, "--encoder", "pixels")
    edit_record(lambda record: record["provenance"]["environment"]["packages"].update(numpy="1.0"))
    done = verified()
    assert done.code == 0
    assert re.search(r"\[notes\]\nnumpy: 1.0 then, \S+ now", done.out)
    edit_samples("embedding", lambda digests: ["0" * 16, *digests[1:]])
    done = verified()
    assert done.code == 1
    assert re.search(r"\[likely cause\]\nnumpy: 1.0 then, \S+ now", done.out)


def test_a_run_of_another_version_is_identical_with_a_note(world):
    made(*COMMANDS["query and gallery"])

    def older(record):
        record["signature"] = re.sub(r"v:[^|]*$", "v:0.0.9", record["signature"])
        record["provenance"]["environment"]["recallatk"] = "0.0.9"
        record["run_id"] = Signature.parse(record["signature"]).run_id

    edit_record(older)
    done = verified()
    assert done.code == 0, done.out
    assert "recallatk: 0.0.9 then" in done.out


# --- the run itself


def test_edited_records_and_kept_embeddings_are_found(world):
    made(*COMMANDS["kept embeddings"])
    edit_record(lambda record: record["metrics"]["recall@1"].update(value=0.99))
    assert "values: recall@1: 0.990000 then, 0.666667 now" in moved()
    edit_record(lambda record: record.update(run_id="0" * 12))
    assert any(text.startswith("record: run_id is 000000000000") for text in moved())
    rows = np.load("run/embeddings-gallery.npy").copy()
    rows[1, 0] += 1
    np.save("run/embeddings-gallery.npy", rows)
    found = moved()
    text = "record: of the embeddings that the run keeps, 1 row is not what was evaluated"
    assert len(found[text]) == 1
    assert found[text][0].startswith("gallery/")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda record: record["counts"].update(num_excluded=3),
            "record: num_excluded is 3, but the rest of it gives 0",
        ),
        (lambda record: record["counts"].update(num_labels=99), "values: num_labels: 99 then, 3 now"),
        (lambda record: record["counts"].update(embedding_dim=9), "values: embedding_dim: 9 then, 3 now"),
        (lambda record: record["hashes"].update(img="0" * 64), "record: the hash img is not the one of its signature"),
        (lambda record: record["metrics"].pop("recall@2"), "values: recall@2: not there then, 1.000000 now"),
    ],
)
def test_whatever_was_edited_in_a_record_is_found(change, said, world):
    made("eval", "data", *MEAN)
    file = Path("run/record.json")
    record = json.loads(file.read_text("utf-8"))
    change(record)
    file.write_text(json.dumps(record), encoding="utf-8")
    (found,) = moved()
    assert found.startswith(said)


@pytest.mark.parametrize(
    ("column", "value"),
    [("id", "other"), ("label", "other"), ("near_above", 7), ("similarity", 0.5), ("best_positive", "other")],
)
def test_whatever_was_edited_in_the_queries_is_found(column, value, world):
    """Ids and labels are what runs are compared by, so a run that is called identical must have them."""
    made("eval", "data", *MEAN)
    table = pq.read_table("run/queries.parquet")
    place, values = table.column_names.index(column), table.column(column).to_pylist()
    changed = pa.array([value, *values[1:]], table.schema.field(column).type)
    pq.write_table(table.set_column(place, column, changed), "run/queries.parquet")
    ((text, items),) = moved().items()
    assert text == f"queries: {column}: other for 1 query"
    assert items == [f"query/blue/a.png: {value} then, {values[0]} now"]
    pq.write_table(table.drop_columns([column]), "run/queries.parquet")
    if column in ("id", "label"):
        assert recallatk("verify", "run").code == 3
    else:
        assert list(moved()) == [f"queries: {column}: queries.parquet has no such column"]


@pytest.mark.parametrize(
    ("metrics", "said"),
    [({}, "no metric"), ({"recall@1": {"value": None, "n": 3, "low": 0, "high": 0}}, "value is None")],
)
def test_a_record_without_a_number_is_damaged(metrics, said, world):
    made("eval", "data", *MEAN)
    file = Path("run/record.json")
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), "metrics": metrics}), encoding="utf-8")
    for command in (("verify",), ("gate", "--min", "recall@1=0"), ("plan",), ("verify", "--published", "1")):
        done = recallatk(command[0], "run", *command[1:])
        assert done.code == 3
        assert said in done.err


def test_kept_embeddings_that_cannot_be_read_are_found_where_images_are_there(world):
    made(*COMMANDS["kept embeddings"])
    Path("run/embeddings-query.npy").write_bytes(b"torn")
    (text,) = moved()
    assert text.startswith("record: the embeddings that the run keeps cannot be read: ")
    shutil.rmtree("data")
    done = verified()
    assert (done.code, len(done.err.splitlines())) == (3, 1)


def test_embeddings_made_again_with_another_flag_name_its_key(world):
    photo = Image.new("RGB", (8, 8), (200, 20, 20))
    photo.paste((20, 20, 200), (0, 0, 8, 4))
    exif = Image.Exif()
    exif[0x0112] = 6
    photo.save(world / "gallery/red/c.png", exif=exif)
    embed = ("embed", world, "--encoder", "pixels", "-o", "kept.npz", "--overwrite", "--quiet")
    assert recallatk(*embed).code == 0
    made(*COMMANDS["embeddings"])
    assert recallatk(*embed, "--exif", "ignore").code == 0
    found = moved()
    assert found["decoding: 1 key moved"] == ["exif: apply then, ignore now"]
    assert found["embeddings: 1 image (gallery) has another embedding"] == ["gallery/red/c.png"]


def test_what_stands_beside_an_interval_is_shown_where_its_ends_are_the_same(world):
    made(*COMMANDS["intervals"])
    edit_record(lambda record: record["metrics"]["recall@1"]["interval"].update(clusters=99, caveat="so so"))
    (moved,) = verify_run("run").moved
    assert moved.part == "intervals"
    assert [item.split(":")[0] for item in moved.items] == ["clusters", "caveat"]


def test_an_edited_protocol_is_found(world):
    made(*COMMANDS["query and gallery"])
    edit_record(lambda record: record["protocol"].update(ties="optimistic"))
    assert "protocol: ties: expected then, optimistic now" in moved()


def test_a_run_that_keeps_no_samples_is_verified_and_says_what_it_cannot_tell(world):
    made(*COMMANDS["query and gallery"])
    Path("run/samples.parquet").unlink()

    def as_before(record):
        record["provenance"]["data"] = {"root": "data"}
        del record["provenance"]["environment"]["directory"]

    edit_record(as_before)
    done = verified()
    assert done.code == 0, done.out
    assert "the run keeps no samples.parquet" in done.out
    save(world / "gallery/blue/b.png", (20, 60, 200))
    found = moved()
    assert any(text.startswith("images: the bytes or names of images: ") for text in found)
    assert found["queries: the first rank of 1 query moved"] == ["query/red/a.png: 2 then, 1 now"]


# --- what is not there


def test_images_that_are_gone_are_replaced_by_kept_embeddings_and_that_is_said(world):
    made(*COMMANDS["kept embeddings"])
    shutil.move("data", "moved")
    done = verified()
    assert done.code == 0
    assert done.out.startswith("identical, as far as could be checked: 3 queries and 4 gallery items")
    assert re.search(r"\[not checked\]\nimages: .*data: no such file or folder any more", done.out)
    assert verified("--data", "moved").out.startswith("identical: ")
    assert verified("--data", "nowhere").code == 3


def test_images_are_checked_where_only_the_encoder_is_gone(world, monkeypatch):
    made(*COMMANDS["kept embeddings"])
    Path("tiny.py").unlink()
    monkeypatch.delitem(sys.modules, "tiny")
    done = verified()
    assert done.code == 0, done.out
    assert re.search(r"\[not checked\]\nencoder: .*--encoder SPEC", done.out)
    save(world / "gallery/blue/b.png", (20, 60, 200))
    assert moved()["images: 1 image (gallery) has other bytes"] == ["gallery/blue/b.png"]


@pytest.mark.parametrize("command", ["manifest", "root"])
def test_a_manifest_and_its_images_may_have_moved_together_or_apart(command, world):
    shutil.copytree("data", "elsewhere")
    made(*COMMANDS[command])
    shutil.copytree("data", "together")
    shutil.copytree("data", "apart", ignore=shutil.ignore_patterns("*.csv"))
    for place in ("together", "apart", "together/all.csv"):
        done = verified("--data", place)
        assert (done.code, done.out.split(":")[0]) == (0, "identical"), done.err
    save(Path("apart/gallery/blue/b.png"), (20, 60, 200))
    assert moved("--data", "apart")["images: 1 image (gallery) has other bytes"] == ["gallery/blue/b.png"]


def test_a_device_that_is_not_here_is_replaced(world):
    made("eval", world, "--encoder", "pixels", "--device", "cpu")
    edit_record(lambda record: record["provenance"]["data"]["encode"].update(device="cuda:9"))
    done = verified()
    assert done.code == 3
    assert "with --device where it runs" in done.err
    assert verified("--device", "cpu").code == 0


@pytest.mark.parametrize(
    ("command", "gone", "said"),
    [
        ("query and gallery", "data", "data: no such file or folder any more; say where it lies now with --data DIR"),
        ("embeddings", "kept-gallery.npz", "kept-gallery.npz: no such file or folder any more"),
        ("lists and qrels", "run.trec", "run.trec: no such file or folder any more"),
        ("qrels", "qrels.txt", "qrels.txt: no such file or folder any more"),
        ("root", "elsewhere", "elsewhere/all.csv: no such file or folder any more"),
    ],
)
def test_what_is_not_there_is_named_in_one_line(command, gone, said, world):
    shutil.copytree("data", "elsewhere")
    made(*COMMANDS[command])
    shutil.move(gone, "away")
    done = verified()
    assert (done.code, done.out) == (3, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_a_run_made_in_python_is_verified_from_what_it_keeps(world, tmp_path):
    rows = EmbeddingSet(np.eye(3)[[0, 0, 1, 1, 2]], labels=["a", "a", "b", "b", "c"])
    save_run(evaluate_embeddings(rows), "run")
    with pytest.raises(RecallatkError, match=r"does not say where its images or embeddings lie"):
        verify_run("run")
    save_embeddings(rows, "rows.npz")
    encoded = load_encoded("rows.npz")
    save_run(evaluate_encoded(encoded), "run", embeddings=encoded, overwrite=True)
    assert verify_run("run").identical


def test_a_data_set_read_in_python_is_verified_too(world):
    dataset = package.load_dataset("data/all.csv", label_separator="|")
    encoded = package.encode_dataset(dataset, package.load_encoder("pixels"))
    save_run(evaluate_encoded(encoded, protocol=EvalProtocol(relevance="labels")), "run")
    outcome = verify_run("run")
    assert outcome.identical, outcome.text()
    assert outcome.checked.endswith("every image encoded again")


def test_an_encoder_without_a_name_that_can_be_loaded_is_handed_over(world):
    from tiny import mean_rgb

    encoded = package.encode_dataset(package.load_dataset("data"), mean_rgb)
    save_run(evaluate_encoded(encoded), "run")
    with pytest.raises(RecallatkError, match=r"does not say how its encoder is loaded \(it was mean_rgb\)"):
        verify_run("run")
    assert verify_run("run", encoder=mean_rgb).identical
    assert (
        verified("--encoder", "tiny:mean_rgb").code == 1
    )  # another name, and no fingerprint to tell that it is the same


def test_rows_without_ids_may_come_in_another_order(world):
    made(*COMMANDS["bare embeddings"])
    rows, labels = np.load("rows.npy"), Path("labels.txt").read_text("utf-8").split()
    order = [2, 0, 3, 1]
    np.save("rows.npy", rows[order])
    Path("labels.txt").write_text("\n".join(labels[row] for row in order) + "\n", encoding="utf-8")
    done = verified()
    assert done.code == 0, done.out
    rows[3, 0] += 1
    np.save("rows.npy", rows)
    Path("labels.txt").write_text("\n".join(labels) + "\n", encoding="utf-8")
    assert moved()["embeddings: 1 row has another embedding"] == ["row 3"]


def test_a_loaded_run_that_is_saved_again_keeps_its_samples(world):
    made(*COMMANDS["query and gallery"])
    samples = Path("run/samples.parquet").read_bytes()
    save_run(load_report("run"), "run", overwrite=True)
    assert Path("run/samples.parquet").read_bytes() == samples


@pytest.mark.parametrize("content", [b"", b"torn", b"PAR1"])
def test_damaged_samples_are_told_in_one_line(content, world):
    made(*COMMANDS["query and gallery"])
    Path("run/samples.parquet").write_bytes(content)
    done = verified()
    assert done.code == 3
    assert len(done.err.splitlines()) == 1
    assert "this is not what a run keeps of its samples" in done.err


# --- published numbers on the command line


def test_a_published_number_is_held_against_the_run(world):
    made(*COMMANDS["query and gallery"])
    done = verified("--published", "66.7%", "--published", "recall@2=1.000")
    assert done.code == 0
    assert "recall@1, published 66.7%: reproduced: ours prints as 66.7%" in done.out
    assert "recall@2, published 1.000: reproduced" in done.out
    done = verified("--published", "0.68")
    assert done.code == 1
    assert "identical" in done.out
    assert verified("--published", "recall@9=0.5").code == 2
    assert verified("--published", "66.7").code == 2


def test_a_published_number_needs_the_record_alone(world):
    made(*COMMANDS["query and gallery"])
    shutil.rmtree("data")
    done = verified("--published", "0.667")
    assert done.code == 3
    assert "reproduced" in done.out


# --- real photos with the encoder that comes with the package


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("byte", "images: 1 image has other bytes"),
        ("folder", "labels: 9 images have another label"),
        ("nothing", ""),
    ],
)
def test_real_photos(change, said, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PHOTOS, "photos")
    made("eval", "photos", "--encoder", "lite0")
    if change == "byte":
        path = Path("photos/hammer/hammer1.webp")
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    if change == "folder":
        shutil.move("photos/hammer", "photos/hammers")
    done = verified()
    assert done.code == (1 if said else 0), done.out
    assert said in done.out


def edit_record(change) -> None:
    path = Path("run/record.json")
    record = json.loads(path.read_text("utf-8"))
    change(record)
    path.write_text(json.dumps(record), encoding="utf-8")


def edit_samples(column: str, change) -> None:
    path = Path("run/samples.parquet")
    table = pq.read_table(path)
    values = pa.array(change(table.column(column).to_pylist()), table.schema.field(column).type)
    pq.write_table(table.set_column(table.schema.get_field_index(column), column, values), path)


def test_a_run_of_rows_at_an_address_is_repeated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = package.EmbeddingSet(np.eye(6) + 0.1, list("aabbcc"), ids=[f"item {row}" for row in range(6)])
    for number, some in enumerate((range(4), range(4, 6))):
        parts.write(f"{tmp_path}/rows", number, rows.take(some), {})
    address = f"file://{tmp_path}/rows"  # as s3://bucket/rows
    assert recallatk("eval", "--query", address, "-o", "run").code == 0
    again = recallatk("verify", "run")
    assert (again.code, again.out[:42]) == (0, "identical: 6 rows, the embeddings read aga"), again
    parts.write(f"{tmp_path}/rows", 1, package.EmbeddingSet(np.eye(6)[:2], ["c", "c"], ids=["item 4", "item 5"]), {})
    assert recallatk("verify", "run").code == 1
    (tmp_path / "rows").rename(tmp_path / "elsewhere")
    gone = recallatk("verify", "run")
    assert (gone.code, gone.err.count("\n")) == (3, 1)
    assert f"there is no part-000000.parquet in {address}" in gone.err
