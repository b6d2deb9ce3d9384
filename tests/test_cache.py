"""The cache of embeddings: never an old row for a new image, and never in the way."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from command_line import Result, recallatk
from recallatk import RecallatkError, encode_dataset, load_dataset
from recallatk.cache import Cache, CachedRow, cache_folder, cache_info, clear_cache
from recallatk.cache import folders as cache_folders
from recallatk.images import DecodePolicy
from recallatk.run import Elsewhere

FILE = "embeddings-1.sqlite"
COUNTS = re.compile(r"^encoded ([\d,]+) of ([\d,]+) (?:distinct )?images; ([\d,]+) came from the cache$")


@dataclasses.dataclass
class MeanColour:
    """An encoder with all that a cache wants to know; it counts the images that it is asked for."""

    name: str = "mean-colour"
    fingerprint: str | None = "weights 1"
    preprocessing: dict[str, Any] = dataclasses.field(default_factory=lambda: {"size": None})
    images: int = 0

    def __call__(self, batch: list[Any]) -> np.ndarray:
        self.images += len(batch)
        return np.stack([np.asarray(image, dtype=np.float32).mean((0, 1)) for image in batch])


def save(path: Path, number: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (10 + number, 250 - number, 7)).save(path)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of five images."""
    for number in range(10):
        save(tmp_path / "photos" / f"class{number % 2}" / f"{number}.png", number)
    return tmp_path / "photos"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "kept")


def encoded(photos: Path, cache: Cache | None, encoder: Any = None, **options: Any) -> tuple[int, int, Any]:
    """How many images were encoded, how many came from the cache, and what came out."""
    found = encode_dataset(load_dataset(photos), encoder or MeanColour(), cache=cache, **options)
    counts = [match for note in found.provenance.notes if (match := COUNTS.match(note))]
    every = len(found.query) + len(found.gallery or ()) + len(found.provenance.skipped)
    numbers = [int(number.replace(",", "")) for number in counts[0].groups()] if counts else [every, every, 0]
    assert bool(counts) == bool(numbers[2]), "said if, and only if, something came from the cache"
    assert numbers[0] + numbers[2] == numbers[1]
    return numbers[0], numbers[2], found


def rows_of(found: Any) -> list[list[float]]:
    return found.query.embeddings.tolist()


# --- What hits and what misses ---------------------------------------------------------------------------------------


def test_a_second_run_encodes_nothing_and_gives_the_same(photos: Path, cache: Cache) -> None:
    plain = encode_dataset(load_dataset(photos), MeanColour())
    first = encoded(photos, cache)
    encoder = MeanColour()
    second = encoded(photos, cache, encoder)
    assert (first[:2], second[:2], encoder.images) == ((10, 0), (0, 10), 0)
    for found in (first[2], second[2]):
        assert np.array_equal(found.query.embeddings, plain.query.embeddings)
        assert found.query.embeddings.dtype == plain.query.embeddings.dtype
        assert (found.query.content, found.query.row_ids) == (plain.query.content, plain.query.row_ids)


def test_the_same_bytes_hit_under_another_name_and_time(photos: Path, cache: Cache) -> None:
    encoded(photos, cache)
    moved = photos.with_name("moved")
    photos.rename(moved)
    for path in list(moved.rglob("*.png")):
        os.utime(path, (0, 0))
        path.rename(path.with_name(f"other-{path.name}"))
    assert encoded(moved, cache)[:2] == (0, 10)


def test_one_changed_byte_misses_that_image_only(photos: Path, cache: Cache) -> None:
    encoded(photos, cache)
    path = photos / "class0" / "4.png"
    stat = path.stat()
    data = bytearray(path.read_bytes())
    tail = data.index(b"IEND") + 8
    path.write_bytes(bytes(data[:tail]) + b"x")  # the pixels are the same
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert encoded(photos, cache)[:2] == (1, 9)


def test_swapped_files_with_their_time_stamps_swap_their_rows(photos: Path, cache: Cache) -> None:
    before = rows_of(encoded(photos, cache)[2])
    names = [str(path) for path in load_dataset(photos).query.elements]
    one, other = Path(names[0]), Path(names[7])
    stat, data = one.stat(), one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    for path in (one, other):
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    encoded_now, _, found = encoded(photos, cache)
    assert encoded_now == 0
    before[0], before[7] = before[7], before[0]
    assert rows_of(found) == before


@pytest.mark.parametrize(
    "change",
    [
        {"fingerprint": "weights 2"},
        {"preprocessing": {"size": 8}},
        {"preprocessing": {"size": None, "mean": [1, 2, 3]}},
        {"name": "mean-color"},
    ],
    ids=str,
)
def test_changed_weights_or_transforms_miss_all(photos: Path, cache: Cache, change: dict[str, Any]) -> None:
    encoded(photos, cache)
    assert encoded(photos, cache, MeanColour(**change))[:2] == (10, 0)
    assert encoded(photos, cache)[:2] == (0, 10), "both are kept"


def test_another_decode_policy_dtype_or_library_misses_all(
    photos: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded(photos, cache)
    assert encoded(photos, cache, policy=DecodePolicy(exif="ignore"))[:2] == (10, 0)
    half = MeanColour()
    half.dtype = "float16"  # type: ignore[attr-defined]
    assert encoded(photos, cache, half)[:2] == (10, 0)
    monkeypatch.setattr("recallatk.run.cached.version", lambda package: "0.0")
    assert encoded(photos, cache)[:2] == (10, 0)


def test_an_encoder_without_a_fingerprint_is_not_cached(photos: Path, cache: Cache) -> None:
    for _ in range(2):
        encoder = MeanColour(fingerprint=None)
        found = encode_dataset(load_dataset(photos), encoder, cache=cache)
        assert encoder.images == 10
        assert found.provenance.notes == ()
    assert not cache_folder(cache.folder).exists()


def test_what_was_converted_is_told_again_and_bad_files_are_found_again(photos: Path, cache: Cache) -> None:
    Image.new("L", (8, 8), 9).save(photos / "class0" / "grey.png")
    (photos / "class0" / "bad.png").write_bytes(b"no image")
    told = []
    for hits in (0, 11):
        _, cached, found = encoded(photos, cache, on_error="skip")
        assert cached == hits
        told.append((found.provenance.notes[-1:], found.provenance.skipped))
    assert told[0] == told[1]
    assert told[0][0] == ("1 image: greyscale converted",)
    with pytest.raises(RecallatkError, match=r"bad\.png"):
        encoded(photos, cache)


def test_rows_without_a_direction_are_not_kept(photos: Path, cache: Cache) -> None:
    class Spoilt(MeanColour):
        def __call__(self, batch: list[Any]) -> np.ndarray:
            output = super().__call__(batch)
            output[0] = np.nan
            return output

    assert encoded(photos, cache, Spoilt(), batch=5, on_error="skip")[0] == 10
    assert encoded(photos, cache, Spoilt(), batch=5, on_error="skip")[:2] == (2, 8)


@pytest.mark.parametrize("batch", [1, 3, 4, 32])
def test_a_part_of_the_images_may_be_cached(photos: Path, cache: Cache, batch: int) -> None:
    plain = rows_of(encode_dataset(load_dataset(photos), MeanColour()))
    aside = photos.with_name("some")
    for number in (1, 2, 5, 8):
        save(aside / "class" / f"{number}.png", number)
    encoded(aside, cache)
    new, cached, found = encoded(photos, cache, batch=batch)
    assert (new, cached, rows_of(found)) == (6, 4, plain)


# --- Killed, in two processes, damaged -------------------------------------------------------------------------------

SLOW = """\
import sys, time
import recallatk.cache.rows, platformdirs
sys.path.insert(0, sys.argv[4])
from test_cache import MeanColour
from recallatk import encode_dataset, load_dataset
from recallatk.cache import Cache
from pathlib import Path

class Slow(MeanColour):
    batches = 0

    def __call__(self, batch):
        self.batches += 1
        time.sleep(float(sys.argv[3]) if self.batches <= float(sys.argv[5]) else 100)
        return super().__call__(batch)

found = encode_dataset(load_dataset(Path(sys.argv[1])), Slow(), batch=4, cache=Cache(Path(sys.argv[2])),
                       on_progress=lambda done, total: print(done, flush=True))
print("notes", *found.provenance.notes, sep="|")
"""


def in_a_process(photos: Path, cache: Cache, pause: float, most: float = math.inf) -> subprocess.Popen[str]:
    """Encode, and after the most batches wait for the end of it."""
    words = [sys.executable, "-c", SLOW, photos, cache.folder, str(pause), Path(__file__).parent, str(most)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def many(tmp_path: Path) -> Path:
    for number in range(120):
        save(tmp_path / "many" / f"class{number % 2}" / f"{number}.png", number)
    return tmp_path / "many"


def check_database(cache: Cache) -> None:
    database = sqlite3.connect(cache_folder(cache.folder) / FILE)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


def test_a_killed_process_loses_one_batch_at_most_and_corrupts_nothing(many: Path, cache: Cache) -> None:
    plain = rows_of(encode_dataset(load_dataset(many), MeanColour()))
    rng = random.Random(5)
    known = 0
    for _ in range(5):
        with in_a_process(many, cache, 0.02, most=5) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it has begun
            time.sleep(rng.uniform(0, 0.12))
            process.kill()
            told = [int(line) for line in process.stdout.read().split() if line.isdigit()]
        check_database(cache)
        kept = cache_info(cache.folder).rows
        assert kept >= known
        assert kept >= max(told, default=0) - 4, "all but the batch that was being made"
        known = kept
    assert 0 < known < 120, "it was killed in the middle"
    new, cached, found = encoded(many, cache)
    assert (new, cached) == (120 - known, known)
    assert rows_of(found) == plain


def test_an_interrupted_process_keeps_what_is_done(many: Path, cache: Cache) -> None:
    process = in_a_process(many, cache, 0.05, most=10)
    assert process.stdout is not None
    for _ in range(8):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    check_database(cache)
    kept = cache_info(cache.folder).rows
    assert kept >= 4
    assert encoded(many, cache)[:2] == (120 - kept, kept)


def test_two_processes_share_one_cache(many: Path, cache: Cache) -> None:
    plain = rows_of(encode_dataset(load_dataset(many), MeanColour()))
    processes = [in_a_process(many, cache, 0.01) for _ in range(3)]
    for process in processes:
        out, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
        assert "cache:" not in out.rpartition("notes")[2], "nothing went wrong with it"
    check_database(cache)
    new, cached, found = encoded(many, cache)
    assert (new, cached) == (0, 120)
    assert rows_of(found) == plain


def test_a_cache_may_be_cleared_while_a_process_uses_it(many: Path, cache: Cache) -> None:
    process = in_a_process(many, cache, 0.02)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    clear_cache(cache.folder)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert "came from the cache" not in out
    check_database(cache)


def edited(cache: Cache, statement: str, *values: object) -> None:
    database = sqlite3.connect(cache_folder(cache.folder) / FILE)
    database.execute(statement, values)
    database.commit()
    database.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE rows SET row = zeroblob(length(row)) WHERE rowid = 3",
        "UPDATE rows SET row = substr(row, 1, 8) WHERE rowid = 3",
        "UPDATE rows SET dtype = CAST('<f8' AS BLOB) WHERE rowid = 3",
        "UPDATE rows SET dtype = NULL WHERE rowid = 3",
        "UPDATE rows SET conversions = CAST('[\"x\"]' AS BLOB) WHERE rowid = 3",
        "UPDATE rows SET row = (SELECT row FROM rows WHERE rowid = 4), "
        "checksum = (SELECT checksum FROM rows WHERE rowid = 4) WHERE rowid = 3",
    ],
    ids=["zeroed", "cut", "other dtype", "no dtype", "conversions", "the row of another image"],
)
def test_a_damaged_row_is_encoded_again_and_counted(photos: Path, cache: Cache, damage: str) -> None:
    before = rows_of(encoded(photos, cache)[2])
    try:
        edited(cache, damage)
    except sqlite3.IntegrityError:
        pytest.skip("the database itself refuses that")
    new, _, found = encoded(photos, cache)
    assert new == 1
    assert "cache: 1 row was damaged; the images were encoded again" in found.provenance.notes
    assert rows_of(found) == before
    assert encoded(photos, cache)[:2] == (0, 10)


def overwrite(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"this is no database, and it is longer than a header " * 100),
        lambda path: overwrite(path, 0, bytes(50)),
        lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        lambda path: overwrite(path, 4096, random.Random(1).randbytes(path.stat().st_size - 4096)),
        lambda path: path.write_bytes(b""),
    ],
    ids=["text", "header", "half", "noise", "empty"],
)
def test_a_damaged_database_is_set_aside_and_costs_only_time(
    many: Path, cache: Cache, damage: Callable[[Path], Any]
) -> None:
    before = rows_of(encoded(many, cache)[2])
    damage(cache_folder(cache.folder) / FILE)
    new, _, found = encoded(many, cache)
    assert new == 120
    assert rows_of(found) == before
    if (cache_folder(cache.folder) / f"{FILE}.damaged").exists():
        (note,) = (note for note in found.provenance.notes if note.startswith("cache:"))
        assert "was damaged" in note
    assert encoded(many, cache)[:2] == (0, 120)
    clear_cache(cache.folder)
    assert cache_info(cache.folder).rows == 0
    assert not (cache_folder(cache.folder) / f"{FILE}.damaged").exists()


def test_a_folder_that_cannot_be_used_is_said_once(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    encoder = MeanColour()
    new, cached, found = encoded(photos, Cache(tmp_path / "file"), encoder, batch=2)
    assert (new, cached, encoder.images) == (10, 0, 10)
    (note,) = (note for note in found.provenance.notes if note.startswith("cache:"))
    assert "cannot be used" in note
    assert "--cache-dir" in note


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("filled", [False, True])
def test_a_folder_that_cannot_be_written_is_said_once(photos: Path, cache: Cache, filled: bool) -> None:
    if filled:
        encoded(photos, cache)
    folder = cache_folder(cache.folder)
    folder.mkdir(exist_ok=True)
    folder.chmod(0o555)
    for parent in [photos, *photos.parents]:
        if parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    # Everything is imported, and used once, before the process may no longer read Python's own files.
    once = "encode_dataset(load_dataset(Path(sys.argv[1])), Slow(), cache=Cache(Path(sys.argv[2] + '-warm')))"
    become = SLOW.replace("found =", f"{once}\nimport os; os.setgid(65534); os.setuid(65534)\nfound =")
    words = [sys.executable, "-c", become, str(photos), str(folder), "0", str(Path(__file__).parent), "inf"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    notes = done.stdout.rpartition("notes|")[2].split("|")
    assert [note.partition(":")[0] for note in notes] == ["cache"]


# --- How much is kept ------------------------------------------------------------------------------------------------


def stored(cache: Cache, names: list[str], width: int = 1000) -> tuple[str, ...]:
    with cache.rows("setting") as rows:
        for name in names:
            rows.update({name: CachedRow(np.full(width, 1.0), ())})
        return rows.notes()


def found(cache: Cache, names: list[str]) -> list[str]:
    with cache.rows("setting") as rows:
        return [name for name in names if rows.get(name) is not None]


def test_what_was_used_longest_ago_leaves_when_the_limit_is_reached(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=1_000_000)
    old, used = [f"old{n}" for n in range(40)], [f"used{n}" for n in range(20)]
    assert stored(cache, [*used, *old]) == ()
    assert found(cache, used) == used
    (note,) = stored(cache, [f"new{n}" for n in range(60)])
    assert re.fullmatch(r"cache: \d+ rows used longest ago left it, to stay below 1\.0 MB", note)
    assert found(cache, used) == used
    left = found(cache, old)
    assert 0 < len(left) < 40
    assert left == old[-len(left) :]
    assert cache_info(tmp_path).size < 2_500_000, "with the log"


def test_a_limit_below_one_row_keeps_nothing_and_fails_nothing(photos: Path, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "kept", limit=1)
    assert encoded(photos, cache)[:2] == (10, 0)
    assert encoded(photos, cache)[:2] == (10, 0)


# --- On the command line ---------------------------------------------------------------------------------------------


def said(result: Result) -> list[str]:
    assert result.code == 0, result.err
    return result.err.splitlines()


def test_the_command_says_what_came_from_the_cache_and_the_record_too(photos: Path, tmp_path: Path) -> None:
    words = ("eval", photos, "--encoder", "pixels", "-k", "1")
    first = recallatk(*words, "-o", tmp_path / "a")
    second = recallatk(*words, "-o", tmp_path / "b")
    assert said(first) == []
    assert said(second) == ["encoded 0 of 10 images; 10 came from the cache"]
    assert first.out == second.out
    records = [json.loads((tmp_path / run / "record.json").read_text("utf-8")) for run in "ab"]
    assert records[1]["provenance"]["notes"] == ["encoded 0 of 10 images; 10 came from the cache"]
    assert records[0]["signature"] == records[1]["signature"]
    assert said(recallatk(*words, "--no-cache")) == []
    assert said(recallatk(*words, "--cache-dir", tmp_path / "other")) == said(first)
    assert said(recallatk(*words, "--exif", "ignore")) == said(first)


def test_embeddings_in_a_file_do_not_remember_where_they_came_from(photos: Path, tmp_path: Path) -> None:
    files = [tmp_path / "cold.npz", tmp_path / "warm.npz"]
    for file in files:
        recallatk("embed", photos, "--encoder", "pixels", "-o", file)
    assert said(recallatk("eval", "--query", files[1], "-k", "1")) == []
    with np.load(files[0]) as cold, np.load(files[1]) as warm:
        assert cold["embeddings"].tobytes() == warm["embeddings"].tobytes()


def test_the_cache_is_shown_and_cleared(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    monkeypatch.setenv("RECALLATK_CACHE", str(folder))
    assert recallatk("cache", "path").out == f"{folder}\n"
    assert "embeddings: 0\n" in recallatk("cache").out
    recallatk("eval", photos, "--encoder", "pixels", "--encoder", "hog")
    shown = recallatk("cache", "info").out
    assert "embeddings: 20\n" in shown
    assert "decode policies: 2\n" in shown
    assert recallatk("cache", "clear").out.startswith("removed 20 embeddings, ")
    assert "embeddings: 0\n" in recallatk("cache", "info").out
    assert said(recallatk("eval", photos, "--encoder", "pixels")) == []
    assert "embeddings: 10\n" in recallatk("cache", "info").out


def test_what_is_no_size_is_refused(photos: Path) -> None:
    result = recallatk("eval", photos, "--encoder", "pixels", "--cache-limit", "much")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "--cache-limit 'much'" in result.err


def test_the_folder_is_the_users_unless_somebody_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECALLATK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    if sys.platform == "linux":
        assert cache_folder() == Path("/somewhere/recallatk")
    monkeypatch.setenv("RECALLATK_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")
    assert cache_folder("/here") == Path("/here")


def parts_of(cache: Cache, key: str, *, size: int, hours_ago: float) -> Path:
    """A folder of rows as a cluster leaves it, used so many hours ago."""
    folder = cache.parts(key)
    (folder / "query").mkdir()
    (folder / "query" / "part-000000.parquet").write_bytes(bytes(size))
    os.utime(folder, (then := time.time() - 3600 * hours_ago, then))
    return folder


def test_rows_that_clusters_wrote_are_counted_and_cleared(cache: Cache) -> None:
    folder = parts_of(cache, "a" * 64, size=2_000_000, hours_ago=0)
    ranking = cache.rankings / "key"
    ranking.mkdir(parents=True)
    (ranking / "block.npz").write_bytes(bytes(1_000_000))
    info = recallatk("cache", "--cache-dir", cache.folder).out
    assert "embeddings: 0\n" in info
    assert "folders of rows and rankings from clusters: 2\nsize: 3.0 MB\n" in info
    cleared = recallatk("cache", "clear", "--cache-dir", cache.folder).out
    assert (
        cleared
        == f"removed 0 embeddings and 2 folders of rows and rankings from clusters, 3.0 MB, from {cache.folder}\n"
    )
    assert not folder.exists()
    assert not ranking.exists()
    assert cache_info(cache.folder).size == 0


def test_of_the_rows_of_clusters_what_was_used_longest_ago_goes_but_not_what_may_be_in_use(cache: Cache) -> None:
    cache = dataclasses.replace(cache, limit=250)
    ages = {"a": 50, "b": 90, "c": 70, "d": 1}
    folders = {key: parts_of(dataclasses.replace(cache, limit=10**9), 20 * key, size=100, hours_ago=ages[key])
               for key in ages}  # fmt: skip
    assert cache.parts("e" * 20).is_dir()
    assert {key for key, folder in folders.items() if folder.exists()} == {"a", "d"}
    cache = dataclasses.replace(cache, limit=10)
    assert cache.parts("a" * 20) == folders["a"]  # used now, so it stays
    assert {key for key, folder in folders.items() if folder.exists()} == {"a", "d"}


def test_a_folder_that_its_command_removes_meanwhile_is_no_error(cache: Cache, monkeypatch) -> None:
    """A command that fails takes the folder away again that it had made and left empty."""
    sizes_of = cache_folders.folder_sizes

    def then_removed(place):
        sizes = sizes_of(place)
        other.rmdir()
        return sizes

    other = cache.parts("b" * 20)
    monkeypatch.setattr(cache_folders, "folder_sizes", then_removed)
    assert dataclasses.replace(cache, limit=-1).parts("a" * 20).is_dir()


def test_what_a_cache_holds_is_counted_while_commands_begin_and_end(cache: Cache) -> None:
    ended = threading.Event()

    def begin_and_end() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                (cache.encoded / "key" / "query").mkdir(parents=True)
                (cache.encoded / "key" / "query" / "part-000000.parquet").touch()
            shutil.rmtree(cache.encoded, ignore_errors=True)

    running = threading.Thread(target=begin_and_end)
    running.start()
    try:
        assert {cache_info(cache.folder).size for _ in range(2000)} == {0}
    finally:
        ended.set()
        running.join()


def test_without_a_cache_a_cluster_is_told_where_its_rows_go(photos: Path) -> None:
    with pytest.raises(RecallatkError, match=r"no cache .*; name a folder that every node sees.*--parts"):
        encode_dataset(load_dataset(photos), MeanColour(), elsewhere=Elsewhere("10.0.0.1:6379"))


def test_a_cache_is_the_same_one_in_processes_of_another_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("RECALLATK_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert Cache().named() == Cache()
    assert Cache("rows", 5).named() == Cache(tmp_path / "rows", 5)
    monkeypatch.setenv("RECALLATK_CACHE", "other")
    assert Cache().named().folder == tmp_path / "other"
    assert Cache("rows").named().folder == tmp_path / "rows"
