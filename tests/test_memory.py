"""Memory: what the process holds, the limit for all of it, and arrays that lie on disk."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from recallatk.embeddings import load_embeddings, save_embeddings
from recallatk.evaluation import evaluate_embeddings
from recallatk.memory import new_array, resident_memory, working_memory
from recallatk.types import EmbeddingSet, RecallatkError

LINUX = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell resident memory")


@LINUX
def test_resident_memory_grows_by_what_is_written():
    before = resident_memory()
    held = np.ones(2**26, np.uint8)
    assert 0.9 * held.nbytes < resident_memory() - before < 2 * held.nbytes


@LINUX
def test_a_limit_is_for_the_whole_process():
    held = resident_memory()
    left, notes = working_memory(held + 10**9, 10**6)
    assert abs(left - 10**9) < 10**8
    assert notes == ()
    left, notes = working_memory(held // 2, 123_456_789)
    assert left == 123_456_789
    assert len(notes) == 1
    assert "given 124 MB more" in notes[0]


def test_a_small_limit_changes_no_number_and_is_noted():
    rng = np.random.default_rng(0)
    rows = EmbeddingSet(rng.normal(size=(300, 30)), [str(i) for i in rng.integers(0, 60, 300)])
    plain, squeezed = (evaluate_embeddings(rows, metrics=["mrr", "map"], memory=memory) for memory in (None, 1))
    assert dict(plain) == dict(squeezed)
    assert str(plain.signature) == str(squeezed.signature)
    assert not plain.provenance.notes
    assert squeezed.provenance.notes[0].startswith("memory: 1 MB is too little, as the process holds ")


def test_a_large_array_lies_on_disk():
    small, place = new_array((3, 4), np.float32, most=48)
    assert place is None
    assert not isinstance(small, np.memmap)
    large, place = new_array((3, 4), np.float32, most=47)
    assert place is not None
    assert isinstance(large, np.memmap)
    large[:] = 5
    assert (np.asarray(large) == 5).all()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system reserves no room on a disk")
def test_a_full_disk_is_told_before_anything_is_written(monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RecallatkError, match=r"1 MB of embeddings .* \(No space left on device\); set TMPDIR"):
        new_array((100, 100), np.float32, most=1)


def test_a_parquet_file_beyond_the_limit_is_unpacked_to_disk(tmp_path):
    rng = np.random.default_rng(1)
    rows = EmbeddingSet(rng.normal(size=(5000, 8)).astype(np.float32), [str(i % 700) for i in range(5000)])
    save_embeddings(rows, tmp_path / "rows.parquet")
    loaded, squeezed = (load_embeddings(tmp_path / "rows.parquet", memory=memory) for memory in (None, 400_000))
    assert not isinstance(loaded.embeddings.embeddings, np.memmap)
    assert isinstance(squeezed.embeddings.embeddings, np.memmap)
    assert "unpacked to a temporary file" in squeezed.notes[0]
    np.testing.assert_array_equal(squeezed.embeddings.embeddings, rows.embeddings)
    assert dict(evaluate_embeddings(squeezed.embeddings)) == dict(evaluate_embeddings(rows))


def test_rows_left_out_of_a_large_file_leave_the_rest_on_disk(tmp_path):
    rows = np.random.default_rng(2).normal(size=(9000, 8)).astype(np.float32)
    rows[[5, 8999]] = 0
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "labels.txt").write_text("\n".join(str(i % 900) for i in range(9000)), encoding="utf-8")
    loaded = load_embeddings(tmp_path / "rows.npy", labels=tmp_path / "labels.txt", on_error="skip", memory=10**5)
    assert isinstance(loaded.embeddings.embeddings, np.memmap)
    np.testing.assert_array_equal(loaded.embeddings.embeddings, np.delete(rows, [5, 8999], axis=0))


def test_a_file_in_column_order_is_read_once_and_kept_in_row_order(tmp_path):
    rows = np.random.default_rng(5).normal(size=(9000, 8)).astype(np.float32)
    np.save(tmp_path / "rows.npy", np.asfortranarray(rows))
    (tmp_path / "labels.txt").write_text("\n".join(str(i % 900) for i in range(9000)), encoding="utf-8")
    for memory in (10**5, 10**9):
        loaded = load_embeddings(tmp_path / "rows.npy", labels=tmp_path / "labels.txt", memory=memory)
        assert loaded.embeddings.embeddings.flags.c_contiguous
        np.testing.assert_array_equal(loaded.embeddings.embeddings, rows)


@pytest.mark.parametrize("mapping", ["anonymous", "copy on write"])
def test_what_was_written_to_a_private_mapping_stays(mapping, tmp_path):
    plain = np.random.default_rng(6).normal(size=(100, 8)).astype(np.float32)
    if mapping == "anonymous":
        buffer = mmap.mmap(-1, plain.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        (tmp_path / "zeros").write_bytes(bytes(plain.nbytes))
        with (tmp_path / "zeros").open("rb") as file:
            buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    rows = np.ndarray(plain.shape, np.float32, buffer=buffer)
    rows[:] = plain
    evaluate_embeddings(EmbeddingSet(rows, [str(i % 10) for i in range(100)]))
    np.testing.assert_array_equal(rows, plain)


PEAK = """
import sys
from pathlib import Path
from recallatk.embeddings import load_embeddings
from recallatk.evaluation import evaluate_embeddings

limit = int(sys.argv[2])
gallery = load_embeddings(sys.argv[1], memory=limit).embeddings
query = gallery.take(range(0, len(gallery), 100))
report = evaluate_embeddings(query, gallery, memory=limit, metrics=sys.argv[3:])
status = Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")), report["recall@1"])
"""


@LINUX
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("metrics", [[], ["map"]])
def test_the_peak_of_a_process_stays_below_its_limit(tmp_path, suffix, metrics):
    rng = np.random.default_rng(3)
    n, d = 60_000, 512
    labels = rng.integers(0, n // 10, n)
    rows = rng.normal(size=(n // 10, d)).astype(np.float32)[labels]
    rows += 2 * rng.normal(size=(n, d)).astype(np.float32)
    ids = tuple(f"row {i}" for i in range(n))
    save_embeddings(EmbeddingSet(rows, [str(label) for label in labels], ids=ids), tmp_path / f"rows{suffix}")
    # Python, Arrow, ids and labels take some 110 MB; Arrow's buffers 70 more while they unpack, not always the same.
    limit = (200 if suffix == ".npy" else 250) * 10**6
    found = subprocess.run(
        [sys.executable, "-c", PEAK, tmp_path / f"rows{suffix}", str(limit), *metrics],
        capture_output=True,
        text=True,
        check=True,
    )
    peak, value = found.stdout.split()
    assert rows.nbytes > 120 * 10**6
    assert int(peak) * 1024 < limit
    assert 0 < float(value) < 1
