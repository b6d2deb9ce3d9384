"""A command on a real Ray beside the same command on one machine: refusals, records, and what is left on disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from command_line import recallatk

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]  # Ray warns of itself
pytest.importorskip("ray", reason="make test-integrations installs it")

from recallatk.cluster import joined  # noqa: E402

PHOTOS = Path(__file__).parents[1] / "src" / "recallatk" / "assets" / "photos"
THERE = ("--cluster", "ray")
OF_THE_TIME = {"command", "started", "finished", "seconds", "blas"}  # BLAS is listed once it is loaded


@pytest.fixture(scope="module", autouse=True)
def engine():
    """A Ray of two cores on this machine, which everything here uses."""
    with joined("ray", cores=2) as started:
        yield started


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with rows, scores, labels and photos, some of which are unlike others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECALLATK_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 8)).astype(np.float32)
    rows[::7] = rows[0]
    np.save("rows.npy", rows)
    np.save("wider.npy", rng.normal(size=(60, 9)).astype(np.float32))
    np.save("nan.npy", np.where(np.arange(60)[:, None] == 41, np.nan, rows))
    scores = np.round(rows @ rows.T, 1)
    np.save("scores.npy", scores)
    np.save("tall.npy", np.vstack([scores, scores[:1]]))
    np.save("broad.npy", np.hstack([scores, scores[:, :1]]))
    np.save("flat.npy", scores[0])
    scores[41, 3] = np.nan
    np.save("scores_nan.npy", scores)
    Path("labels.txt").write_text("".join(f"c{i % 7}\n" for i in range(60)))
    Path("alone.txt").write_text("".join(f"c{i}\n" for i in range(60)))
    for folder in sorted(PHOTOS.iterdir())[:6]:
        shutil.copytree(folder, Path("photos", folder.name))
    Path("photos/zz").mkdir()
    shutil.copy(next(Path("photos").rglob("*.webp")), "photos/zz/copy.webp")
    Image.new("L", (9, 8), 77).save("photos/zz/grey.png")
    Path("photos/zz/broken.jpg").write_bytes(b"no image")
    return tmp_path


SCORES = ("score", "--query-labels", "labels.txt", "--scores")
ROWS = ("eval", "--query-labels", "labels.txt", "--query")
TWO = (*ROWS, "rows.npy", "--gallery-labels", "labels.txt", "--gallery")


@pytest.mark.parametrize(
    "command",
    [
        *((*SCORES, name) for name in ("tall.npy", "broad.npy", "flat.npy", "scores_nan.npy", "nofile.npy")),
        ("score", "--scores", "scores.npy", "--query-labels", "alone.txt"),
        *((*ROWS, name) for name in ("nan.npy", "nofile.npy", "labels.txt")),
        (*TWO, "wider.npy"),
        (*TWO, "nan.npy"),
        (*ROWS, "rows.npy", "--threads", "0"),
        (*ROWS, "rows.npy", "--threads", "-1"),
        (*ROWS, "rows.npy", "--relevance", "radius"),
    ],
)
def test_what_is_refused_is_the_same_line(here, command):
    one, there = recallatk(*command), recallatk(*command, *THERE)
    assert (there.code, there.err) == (one.code, one.err)
    assert one.code in (2, 3)
    assert one.err.count("\n") == 1


def of_run(folder):
    """The record of a run without times and the command, and its tables."""
    record = json.loads(Path(folder, "record.json").read_text())
    record["provenance"]["environment"] = {
        name: value for name, value in record["provenance"]["environment"].items() if name not in OF_THE_TIME
    }
    return record, {file.name: pq.read_table(file) for file in Path(folder).glob("*.parquet")}


IMAGES = ("eval", "photos", "--encoder", "hog", "--on-error", "skip")


@pytest.mark.parametrize(
    "command",
    [(*ROWS, "rows.npy", "--metric", "map"), (*TWO, "rows.npy"), (*SCORES, "scores.npy"), (*IMAGES, "--no-cache")],
)
def test_the_record_is_that_of_one_machine(here, command):
    for where, run in (((), "here"), (THERE, "there")):
        assert recallatk(*command, *where, "-o", run).code == 0
    assert of_run("there") == of_run("here")


def test_embeddings_in_parts_say_what_those_in_a_file_say(here):
    embed = ("embed", *IMAGES[1:], "-o")
    assert recallatk(*embed, "rows.npz").code == recallatk(*embed, "rows", *THERE).code == 0
    records = []
    for query in ("rows.npz", "rows/query"):
        assert recallatk("eval", "--query", query, "-o", "run", "--overwrite").code == 0
        records.append(of_run("run")[0])
        del records[-1]["provenance"]["data"]
    assert records[1] == records[0]
    assert "1 image: greyscale converted" in records[0]["provenance"]["notes"]


def test_what_was_encoded_before_is_said(here):
    first = recallatk(*IMAGES, *THERE, "--parts", "rows")
    again = recallatk(*IMAGES, *THERE, "--parts", "rows")
    assert again.out == first.out, first.err
    assert not first.err.startswith("encoded"), first.err
    count = sum(1 for file in Path("photos").rglob("*.*") if file.name not in ("copy.webp", "broken.jpg"))
    assert f"encoded 0 of {count} distinct images; {count} were encoded before\n" in again.err
    assert f"encoded 0 of {count} distinct images; {count} came from the cache\n" in recallatk(*IMAGES).err
    assert f"encoded 0 of {count} distinct images; {count} came from the cache\n" in recallatk(*IMAGES, *THERE).err


def test_no_command_leaves_an_empty_folder(here):
    Path("own").mkdir()
    assert recallatk(*IMAGES, "-o", "run").code == 0
    failing = ("eval", "photos", "--encoder", "hog", *THERE)
    for code, command in (
        (0, (*ROWS, "rows.npy", *THERE)),
        (0, (*ROWS, "rows.npy", *THERE, "--parts", "a/b")),
        (0, (*ROWS, "rows.npy", *THERE, "--parts", f"file://{here}/c")),
        (3, (*SCORES, "scores_nan.npy", *THERE, "--parts", "d")),
        (3, ("eval", "--query", "rows.npy", "--query-labels", "alone.txt", *THERE, "--parts", "e")),
        (3, failing),
        (3, (*failing, "--parts", "f")),
        (3, ("embed", *failing[1:], "-o", "g")),
        (0, ("verify", "run", *THERE, "--parts", "h/i")),
        (0, ("verify", "run", *THERE, "--parts", "own")),
        (0, (*IMAGES, *THERE, "--parts", "rows")),
    ):
        assert recallatk(*command).code == code, command
        empty = [folder for folder in Path().rglob("*") if folder.is_dir() and not any(folder.iterdir())]
        assert [str(folder) for folder in empty] == ["own"], command
