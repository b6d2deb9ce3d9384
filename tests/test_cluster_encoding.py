"""A real Ray that encodes: the rows of one machine, parts that are kept, and images that cannot be used."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

import two_towers
from cluster_processes import ray_processes
from command_line import COMMAND, recallatk
from recallatk.cache import Cache
from recallatk.cluster import encoding as cluster_encoding
from recallatk.cluster import pipeline
from recallatk.datasets import load_dataset
from recallatk.datasets.packed import list_packed
from recallatk.encoders import load_encoder
from recallatk.run import BOTH_DIRECTIONS, Elsewhere, encode_dataset, evaluate_encoded, evaluate_views, load_encoded
from recallatk.types import Dataset, ImageSet, RecallatkError
from test_benchmark_flickr30k import CAPTIONS, ENCODER, LIKE, entry, write_pictures
from test_benchmark_mteb import write_images

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]  # Ray warns of itself
pytest.importorskip("ray", reason="make test-integrations installs it")

from recallatk.cluster import dtype_and_device, joined  # noqa: E402

PHOTOS = Path(__file__).parents[1] / "src" / "recallatk" / "assets" / "photos"
REQUEST = {"device": "auto", "dtype": "float32"}


@pytest.fixture(scope="module", autouse=True)
def engine():
    """A Ray of two cores on this machine, which everything here uses."""
    with joined("ray", cores=2) as started:
        yield started


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(cluster_encoding, "PART_ROWS", 8)
    monkeypatch.setattr(cluster_encoding, "LISTED", 24)
    monkeypatch.setattr(pipeline, "TOLD_EVERY", 5)


@pytest.fixture
def photos(tmp_path):
    """Photos with a copy under another label, and a file that is no image."""
    for folder in sorted(PHOTOS.iterdir())[:12]:
        shutil.copytree(folder, tmp_path / "photos" / folder.name)
    (tmp_path / "photos" / "zz").mkdir()
    shutil.copy(PHOTOS / "fish" / "fish1.webp", tmp_path / "photos" / "zz" / "copy.webp")
    (tmp_path / "photos" / "bucket" / "broken.jpg").write_bytes(b"no image")
    return tmp_path / "photos"


def both(dataset, spec, elsewhere, **choices):
    encoder = load_encoder(spec)
    request = {"spec": spec, **REQUEST}
    here = encode_dataset(dataset, encoder, request=request, **choices)
    there = encode_dataset(dataset, encoder, request=request, elsewhere=elsewhere, **choices)
    return here, there


@pytest.mark.parametrize("spec", ["hog", "lite0"])
def test_the_rows_and_the_report_are_those_of_one_machine(spec, photos, tmp_path, small_parts):
    dataset = load_dataset(photos)
    here, there = both(dataset, spec, Elsewhere("ray", str(tmp_path / "parts")), on_error="skip")
    np.testing.assert_array_equal(np.asarray(there.query.embeddings), here.query.embeddings)
    assert (there.query.ids, there.query.labels, there.query.content) == (
        here.query.ids, here.query.labels, here.query.content,
    )  # fmt: skip
    assert there.provenance.skipped == here.provenance.skipped != ()
    assert there.provenance.notes == here.provenance.notes
    one, other = evaluate_encoded(here), evaluate_encoded(there, cluster="ray")
    assert str(other) == str(one)
    assert other.hashes == one.hashes
    saved = load_encoded(tmp_path / "parts" / "query")
    assert str(evaluate_encoded(saved)).split("[signature]")[0] == str(one).split("[signature]")[0]
    assert saved.provenance.fingerprint == here.provenance.fingerprint


def test_a_file_that_is_no_image_is_the_same_line(photos, tmp_path):
    dataset = load_dataset(photos)
    said = []
    for elsewhere in (None, Elsewhere("ray", str(tmp_path / "parts"))):
        with pytest.raises(RecallatkError, match=r"broken[.]jpg") as caught:
            encode_dataset(dataset, load_encoder("hog"), request={"spec": "hog", **REQUEST}, elsewhere=elsewhere)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_an_interrupted_run_goes_on_behind_what_is_finished(photos, tmp_path, small_parts):
    dataset = load_dataset(photos)
    encoder, elsewhere = load_encoder("hog"), Elsewhere("ray", str(tmp_path / "parts"))
    choices = {"request": {"spec": "hog", **REQUEST}, "on_error": "skip"}
    told = []

    def stop(done, total):
        told.append(done)
        if done >= 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_dataset(dataset, encoder, elsewhere=elsewhere, on_progress=stop, **choices)
    parts = tmp_path / "parts" / "query"
    finished = {file.name: file.stat().st_mtime_ns for file in parts.iterdir()}
    assert 1 <= len(finished) < len(dataset.query) / 8
    there = encode_dataset(dataset, encoder, elsewhere=elsewhere, **choices)
    here = encode_dataset(dataset, encoder, **choices)
    np.testing.assert_array_equal(np.asarray(there.query.embeddings), here.query.embeddings)
    assert there.provenance.skipped == here.provenance.skipped
    assert {name: (parts / name).stat().st_mtime_ns for name in finished} == finished
    # An image that was changed since is encoded again, with its part only.
    changed = dataset.query.elements[10]
    shutil.copy(PHOTOS / "windmill" / "windmill.webp", changed)
    every = {file.name: file.stat().st_mtime_ns for file in parts.iterdir()}
    (parts / "part-000002.parquet").write_bytes(b"PAR1 and no more")  # and so is a part that is damaged
    there = encode_dataset(dataset, encoder, elsewhere=elsewhere, **choices)
    assert [name for name, when in sorted(every.items()) if (parts / name).stat().st_mtime_ns != when] == [
        "part-000001.parquet", "part-000002.parquet",
    ]  # fmt: skip
    here = encode_dataset(dataset, encoder, **choices)
    np.testing.assert_array_equal(np.asarray(there.query.embeddings), here.query.embeddings)


def test_parts_of_something_else_are_refused(photos, tmp_path):
    dataset = load_dataset(photos)
    elsewhere = Elsewhere("ray", str(tmp_path / "parts"))
    encode_dataset(
        dataset, load_encoder("hog"), request={"spec": "hog", **REQUEST}, elsewhere=elsewhere, on_error="skip"
    )
    other = {"request": {"spec": "color-histogram", **REQUEST}, "on_error": "skip"}
    with pytest.raises(RecallatkError, match="rows of another data set, encoder"):
        encode_dataset(dataset, load_encoder("color-histogram"), elsewhere=elsewhere, **other)
    anew = dataclasses.replace(elsewhere, overwrite=True)
    encode_dataset(dataset, load_encoder("color-histogram"), elsewhere=anew, **other)
    assert json.loads((tmp_path / "parts" / "manifest.json").read_text())["encoder"] == "color-histogram"
    (tmp_path / "parts" / "manifest.json").write_bytes(b"")  # damaged: nobody knows whose they are
    with pytest.raises(RecallatkError, match="rows of another data set, encoder"):
        encode_dataset(dataset, load_encoder("color-histogram"), elsewhere=elsewhere, **other)


def test_the_cache_of_a_node_is_used(photos, tmp_path):
    dataset = load_dataset(photos)
    cache = Cache(tmp_path / "cache")
    for turn, where in enumerate(("one", "two")):
        there = encode_dataset(
            dataset,
            load_encoder("hog"),
            request={"spec": "hog", **REQUEST},
            elsewhere=Elsewhere("ray", str(tmp_path / where)),
            cache=cache,
            on_error="skip",
        )
        assert any("came from the cache" in note for note in there.provenance.notes) == bool(turn)


def test_equal_images_have_one_row_though_the_encoder_depends_on_the_batch(photos, tmp_path, small_parts, monkeypatch):
    for place in range(40):
        shutil.copy(PHOTOS / "fish" / "fish1.webp", photos / "zz" / f"copy{place}.webp")
    dataset = load_dataset(photos)
    elsewhere = Elsewhere("ray", str(tmp_path / "parts"))

    def noisy(batch):
        return np.array([[place, 2, image.width] for place, image in enumerate(batch)], np.float32)

    read, plain = [], cluster_encoding.parts.read_rows
    monkeypatch.setattr(cluster_encoding.parts, "read_rows", lambda *part: (read.append(part), plain(*part))[1])
    there = encode_dataset(dataset, noisy, batch=7, elsewhere=elsewhere, on_error="skip")
    assert len(set(read)) == len(read) > 0  # and not once for each copy
    rows = np.asarray(there.query.embeddings)
    copies = [row for row, content in zip(rows, there.query.content, strict=True)
              if content == there.query.content[-1]]  # fmt: skip
    assert len(copies) > 40
    assert np.ptp(np.stack(copies), axis=0).max() == 0


def of_this_module(batch):
    return np.ones((len(batch), 3))


RAISED = (
    r"^the encoder raised ValueError: upside down \(.*test_cluster_encoding.py, line \d+\); recallatk called the "
    r"encoder with a list of \d+ images, the first of them baseball/baseball.webp$"
)


def test_what_an_encoder_does_wrong_is_its_own_line(photos, tmp_path, engine):
    def raises(batch):
        raise ValueError("upside down\nand so on")

    def factory():
        raise ValueError("of the factory")

    (photos / "bucket" / "broken.jpg").unlink()
    dataset, elsewhere = load_dataset(photos), Elsewhere("ray", str(tmp_path / "parts"))
    with pytest.raises(RecallatkError, match=r"images \(baseball/.*must return one embedding row an image"):
        encode_dataset(dataset, lambda batch: np.ones((len(batch) + 1, 3)), elsewhere=elsewhere)
    with pytest.raises(RecallatkError, match=RAISED) as caught:
        encode_dataset(dataset, raises, elsewhere=elsewhere)
    assert "\n" not in str(caught.value)
    with pytest.raises(RecallatkError, match=r"cannot load the encoder \(ValueError: of the factory\)"):
        dtype_and_device(engine, factory, None)
    with pytest.raises(RecallatkError, match="No module named 'test_cluster_encoding'"):
        encode_dataset(dataset, of_this_module, elsewhere=elsewhere)


def test_rows_of_several_widths_are_the_line_that_names_the_image(photos, tmp_path, small_parts):
    (photos / "bucket" / "broken.jpg").unlink()
    dataset, elsewhere = load_dataset(photos), Elsewhere("ray", str(tmp_path / "parts"))

    def wide(batch):  # a part of 8 has batches of one width; the last batch is wider
        return np.ones((len(batch), 3 if len(batch) == 8 else 4), np.float32)

    assert len(dataset.query) % 8
    with pytest.raises(RecallatkError, match=r"returned 4 columns for \w+/.* and 3 before; all .* one dimension"):
        encode_dataset(dataset, wide, batch=8, elsewhere=elsewhere)


@pytest.fixture
def captions(photos):
    """Twenty photos, and two texts of each, some of which are equal."""
    (photos / "bucket" / "broken.jpg").unlink()
    images = load_dataset(photos).query.take(range(20))
    texts = [f"0.{1 + row % 7} 0.{1 + row % 5}" for row in range(40)]
    ids = [f"{name}#{turn}" for name in images.ids for turn in (0, 1)]
    labels = [name for name in images.ids for _ in (0, 1)]
    query = ImageSet(tuple(texts), tuple(ids), tuple(labels), kind="text")
    return Dataset(query, dataclasses.replace(images, labels=images.ids), photos, views=BOTH_DIRECTIONS)


@pytest.fixture
def towers():
    """An encoder of images and texts that workers get by value."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(two_towers)
    yield two_towers.TwoTowers()
    cloudpickle.unregister_pickle_by_value(two_towers)


def test_texts_are_encoded_as_on_one_machine(captions, towers, tmp_path, small_parts):
    cache = Cache(tmp_path / "cache")
    elsewhere = Elsewhere("ray", str(tmp_path / "parts"))
    here = encode_dataset(captions, towers)
    there = encode_dataset(captions, towers, elsewhere=elsewhere, cache=cache)
    for one, other in ((here.query, there.query), (here.gallery, there.gallery)):
        np.testing.assert_array_equal(np.asarray(other.embeddings), one.embeddings)
        assert (other.ids, other.content, other.embeddings.dtype) == (one.ids, one.content, one.embeddings.dtype)
    assert there.provenance.preprocessing == here.provenance.preprocessing != towers.preprocessing
    reports = [evaluate_views(encoded, **where) for encoded, where in ((here, {}), (there, {"cluster": "ray"}))]
    assert {name: str(report) for name, report in reports[0].items()} == {
        name: str(report) for name, report in reports[1].items()
    }
    n = len({*here.query.content, *here.gallery.content})
    again = encode_dataset(captions, towers, elsewhere=Elsewhere("ray", str(tmp_path / "more")), cache=cache)
    assert f"encoded 0 of {n} distinct images and texts; {n} came from the cache" in again.provenance.notes
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "parts" / "query").iterdir()}
    encode_dataset(captions, towers, elsewhere=elsewhere)
    assert {file: file.stat().st_mtime_ns for file in kept} == kept
    other = dataclasses.replace(captions.query, elements=("0.2 0.2", *captions.query.elements[1:]))
    with pytest.raises(RecallatkError, match="holds rows of another data set"):
        encode_dataset(dataclasses.replace(captions, query=other), towers, elsewhere=elsewhere)


def test_a_layout_of_captions_goes_both_ways_on_a_cluster(tmp_path):
    root, parts = tmp_path / "flickr30k", tmp_path / "parts"
    write_pictures(root / "flickr30k-images")
    images = [entry(name, texts) for name, texts in CAPTIONS.items()]
    (root / "dataset_flickr30k.json").write_text(json.dumps({"images": images}), "utf-8")
    shutil.copy(two_towers.__file__, root)  # where the command is run, workers find it
    command = ["eval", ".", *LIKE, *ENCODER, "-k", "1"]
    here, there = (
        subprocess.run([*COMMAND, *command, *more], cwd=root, capture_output=True, text=True, timeout=240)
        for more in ([], ["--cluster", "ray", "--parts", parts])
    )
    assert (there.returncode, there.stdout, there.stderr) == (0, here.stdout, here.stderr)
    files = ["--query", parts / "query", "--gallery", parts / "gallery", "--both-directions", "-k", "1"]
    assert recallatk("eval", *files, "--cluster", "ray").out == recallatk("eval", *files).out
    plan = recallatk("eval", root, *command[2:], "--cluster", "ray", "--dry-run")
    assert "images and texts: 6; 2 of them took" in plan.out


def test_texts_that_no_tower_takes_are_the_line_of_one_machine(captions, towers, tmp_path):
    towers.encode_texts = lambda batch: np.ones((len(batch), 3))
    for encoder in (load_encoder("hog"), towers):
        said = []
        for elsewhere in (None, Elsewhere("ray", str(tmp_path / encoder.name))):
            with pytest.raises(RecallatkError, match=r"takes images only|3 for texts") as caught:
                encode_dataset(captions, encoder, elsewhere=elsewhere)
            said.append(str(caught.value))
        assert said[0] == said[1]


def test_images_inside_parquet_are_read_by_the_workers(photos, tmp_path, monkeypatch, small_parts):
    files = {f"{file.parent.name}-{file.name}": file.read_bytes() for file in sorted(photos.rglob("*.*"))}
    for side, names in (("query", list(files)[:10]), ("corpus", list(files))):
        write_images(tmp_path / "CUB" / side / "test-0.parquet", {name: files[name] for name in names}, group=7)
    monkeypatch.chdir(tmp_path)  # workers have another working directory

    def side(name, count):
        elements = list_packed(Path("CUB") / name / "test-0.parquet", "image")
        ids = list(files)[:count]
        return ImageSet(tuple(elements), tuple(ids), tuple(one.split("-")[0] for one in ids))

    dataset = Dataset(side("query", 10), side("corpus", len(files)), tmp_path)
    here, there = both(dataset, "hog", Elsewhere("ray", "parts"), on_error="skip")
    np.testing.assert_array_equal(np.asarray(there.gallery.embeddings), here.gallery.embeddings)
    assert there.provenance.skipped == here.provenance.skipped != ()
    assert (there.query.content, there.gallery.content) == (here.query.content, here.gallery.content)
    assert str(evaluate_encoded(there, cluster="ray")) == str(evaluate_encoded(here))


def test_an_object_store_holds_the_parts(photos, tmp_path):
    dataset = load_dataset(photos)
    address = f"file://{tmp_path}/store"  # the way that an address of S3 takes
    here, there = both(dataset, "hog", Elsewhere("ray", address), on_error="skip")
    np.testing.assert_array_equal(np.asarray(there.query.embeddings), here.query.embeddings)
    assert str(evaluate_encoded(there, cluster="ray")) == str(evaluate_encoded(here))
    again = recallatk("eval", "--query", f"{address}/query")  # the address is a set of embeddings, too
    assert again.out.splitlines()[:7] == str(evaluate_encoded(here)).splitlines()[:7]
    assert "there is no part-000000.parquet in" in recallatk("eval", "--query", f"{address}/nothing").err


def test_a_killed_actor_and_killed_readers_change_nothing(photos, tmp_path, small_parts):
    for place in range(300):
        shutil.copy(PHOTOS / "fish" / f"fish{1 + place % 9}.webp", photos / "zz" / f"copy{place}.webp")
    dataset = load_dataset(photos)
    killed = []

    def kill(done, total):
        running = [pid for pid, text in ray_processes().items() if re.match(r"ray::(MapWorker|MapBatches)", text)]
        if len(killed) < 3 and running:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.kill(one := running[len(killed) % len(running)], signal.SIGKILL)
                killed.append(one)

    choices = {"request": {"spec": "hog", **REQUEST}, "on_error": "skip"}
    here = encode_dataset(dataset, load_encoder("hog"), **choices)
    elsewhere = Elsewhere("ray", str(tmp_path / "parts"))
    there = encode_dataset(dataset, load_encoder("hog"), elsewhere=elsewhere, on_progress=kill, **choices)
    assert killed
    assert there.query.ids == here.query.ids
    np.testing.assert_array_equal(np.asarray(there.query.embeddings), here.query.embeddings)


def test_the_command_encodes_and_says_what_it_would_do(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["eval", photos, "--encoder", "hog", "--on-error", "skip", "--no-cache"]
    here, there = recallatk(*command), recallatk(*command, "--cluster", "ray", "--parts", tmp_path / "parts")
    assert (there.code, there.out) == (0, here.out)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "aside"))
    (tmp_path / "aside").mkdir()
    ran = subprocess.run([*COMMAND, *command, "--cluster", "ray"], capture_output=True, text=True, timeout=240)
    assert (ran.stdout, ran.stderr) == (here.out, here.err)  # Ray itself writes nothing
    assert not list((tmp_path / "aside").iterdir())  # without a cache nothing is kept
    embed = ["embed", photos, "--encoder", "hog", "--on-error", "skip", "--cluster", "ray", "-o"]
    assert recallatk(*embed, "rows").out == "rows/query\n"
    assert recallatk("eval", "--query", "rows/query").out.splitlines()[:7] == here.out.splitlines()[:7]
    assert recallatk(*embed, "rows.npz").out == "rows.npz\n"
    assert recallatk("eval", "--query", "rows.npz").out.splitlines()[:7] == here.out.splitlines()[:7]
    for planned in (["--query", "rows/query"], command[1:]):
        plan = recallatk("eval", *planned, "--cluster", "ray", "--dry-run")
        assert plan.code == 0
        assert "cluster: 1 node, 2 cores, 0 GPUs" in plan.out
        assert "time to rank (estimated): " in plan.out
    assert "time to encode" in plan.out
    assert "cluster: 1 node, 2 cores" in recallatk("info", "--cluster", "ray").out
    assert recallatk("eval", *command[1:], "--cluster", "ray", "-o", "run").code == 0
    for where in ((), ("--cluster", "ray", "--parts", tmp_path / "again")):
        again = recallatk("verify", "run", *where)
        assert (again.code, again.out.partition(",")[0]) == (0, "identical: 44 images"), again
    assert not [file for file in (tmp_path / "again").rglob("*") if file.is_file()]
    taken = recallatk("verify", "run", "--cluster", "ray", "--parts", "rows")
    assert (taken.code, taken.err) == (
        3, "recallatk: rows: holds rows already, and none may be taken; name an empty folder\n",
    )  # fmt: skip
    assert recallatk(*command, "--num-gpus", "1").code == 2
    too_many = recallatk(*command, "--num-gpus", "1", "--cluster", "ray")
    assert too_many.code == 2
    assert "the cluster has 0" in too_many.err
