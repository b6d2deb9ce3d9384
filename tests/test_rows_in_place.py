"""Rows that stay in their file until they are asked for, and files that another machine may have another version of."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recallatk.cli import cluster
from recallatk.cluster.sources import MappedFile, are_found_there
from recallatk.embeddings import load_embeddings, parts, save_embeddings
from recallatk.embeddings.known_file import PAGE, KnownFile
from recallatk.evaluation import evaluate_embeddings
from recallatk.types import EmbeddingSet, RecallatkError


@pytest.fixture
def rows():
    rng = np.random.default_rng(5)
    return EmbeddingSet(rng.normal(size=(230, 9)), [f"label {i}" for i in rng.integers(0, 30, 230)])


def write_lists(file, lists, **options):
    pq.write_table(pa.table({"vector": lists, "label": [str(row % 9) for row in range(len(lists))]}), file, **options)


@pytest.mark.parametrize("fixed", [True, False])
def test_a_parquet_file_is_read_in_row_groups(rows, tmp_path, fixed):
    file = tmp_path / "rows.parquet"
    if fixed:
        save_embeddings(rows, file)
        pq.write_table(pq.read_table(file), file, row_group_size=50)
    else:  # as pandas writes lists
        write_lists(file, rows.embeddings.tolist(), row_group_size=50)
    here, there = load_embeddings(file), load_embeddings(file, in_place=True)
    stored = pickle.loads(pickle.dumps(there.embeddings.embeddings)).open()
    assert isinstance(stored, parts.PartedRows)
    assert len(stored.pieces) == 5
    some = np.array([229, 0, 51, 50, 51])
    for part in (slice(40, 120), some, slice(None)):
        np.testing.assert_array_equal(stored[part], here.embeddings.embeddings[part])
    np.testing.assert_array_equal(stored.part(slice(60, 130))[10:], here.embeddings.embeddings[70:130])
    assert stored.dtype == here.embeddings.embeddings.dtype
    assert there.embeddings.labels == here.embeddings.labels
    one, other = (evaluate_embeddings(found.embeddings) for found in (here, there))
    assert (str(one), one.hashes) == (str(other), other.hashes)


def test_what_is_wrong_with_a_row_is_said_with_its_number(tmp_path):
    for wrong, why in (([1.0, 2.0], "row 7 has 2 numbers, the rows before it have 3"), (None, "row 7 is empty")):
        lists = [[1.0, 2.0, 3.0]] * 7 + [wrong] + [[3.0, 2.0, 1.0]]
        write_lists(tmp_path / "rows.parquet", lists, row_group_size=3)
        for in_place in (False, True):
            with pytest.raises(RecallatkError, match=why):
                load_embeddings(tmp_path / "rows.parquet", in_place=in_place)


def test_large_row_groups_are_loaded(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "LARGEST_GROUP", 1000)
    save_embeddings(rows, tmp_path / "rows.parquet")
    found = load_embeddings(tmp_path / "rows.parquet", in_place=True)
    assert isinstance(found.embeddings.embeddings, np.ndarray)


def test_what_workers_find_themselves(rows, tmp_path):
    found = {}
    for suffix in (".npy", ".npz", ".parquet", ".safetensors", ".h5"):
        save_embeddings(rows, tmp_path / f"rows{suffix}")
        found[suffix] = are_found_there(
            load_embeddings(tmp_path / f"rows{suffix}", in_place=True).embeddings.embeddings
        )
    assert found == {".npy": True, ".npz": True, ".parquet": True, ".safetensors": True, ".h5": False}


def test_a_tensor_behind_a_header_is_mapped_where_it_begins(rows, tmp_path):
    pytest.importorskip("safetensors")
    save_embeddings(rows, tmp_path / "rows.safetensors")
    loaded = load_embeddings(tmp_path / "rows.safetensors").embeddings.embeddings
    where = pickle.loads(pickle.dumps(MappedFile.of(loaded, slice(20, 30))))
    np.testing.assert_array_equal(where.open(), rows.embeddings[20:30])


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_in_an_archive_is_mapped_where_it_begins(rows, tmp_path, order):
    values = np.asarray(rows.embeddings, order=order)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "rows.npz", labels=np.array(rows.labels), embeddings=values)
        loaded = load_embeddings(tmp_path / "rows.npz", in_place=True).embeddings.embeddings
        np.testing.assert_array_equal(loaded, rows.embeddings)
        where = MappedFile.of(loaded, slice(20, 30))
        assert (where is not None) == (save is np.savez and order == "C")
        if where is not None:
            np.testing.assert_array_equal(where.open(), rows.embeddings[20:30])
    damaged = (tmp_path / "rows.npz").read_bytes()[:-200]
    (tmp_path / "rows.npz").write_bytes(damaged)
    with pytest.raises(RecallatkError, match=r"rows[.]npz"):
        load_embeddings(tmp_path / "rows.npz", in_place=True)


@pytest.mark.parametrize("size", [0, 10, PAGE, 100 * PAGE + 7])
def test_another_version_of_a_file_is_noticed(tmp_path, size):
    file = tmp_path / "rows.npy"
    file.write_bytes(b"1" * size)
    known = KnownFile.of(file)
    file.touch()
    known.check()
    copy = KnownFile(str(tmp_path / "none"), known.size, known.pages)
    with pytest.raises(RecallatkError, match="No such file"):
        copy.check()
    file.write_bytes(b"2" * size + b"3")
    with pytest.raises(RecallatkError, match=rf"has {size + 1:,} bytes there, not {size:,}"):
        known.check()
    if size:
        file.write_bytes(b"1" * (size - 1) + b"2")
        with pytest.raises(RecallatkError, match="another version of it lies there"):
            known.check()


def test_a_store_that_does_not_answer_is_one_line(monkeypatch):
    def refuse(*_):
        raise OSError("AWS Error NETWORK_CONNECTION during HeadObject operation")

    monkeypatch.setattr(parts, "file_system", lambda folder: (SimpleNamespace(get_file_info=refuse), "bucket/rows"))
    for ask in (parts.list_parts, lambda folder: parts.read_bytes(folder, "a"), lambda to: parts.remove(to, ["a"])):
        with pytest.raises(RecallatkError, match=r"^s3://bucket/rows: cannot be reached \(AWS Error .*\)$"):
            ask("s3://bucket/rows")


def test_the_command_says_what_goes_through_its_process(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "MUCH", 100)
    told = []
    monkeypatch.setattr(cluster, "tell", lambda lines, quiet: told.extend(lines))
    save_embeddings(rows, tmp_path / "rows.npy")
    there = load_embeddings(tmp_path / "rows.npy").embeddings
    cluster.tell_what_is_sent(cluster.Cluster("auto"), SimpleNamespace(query=there, gallery=rows), quiet=False)
    cluster.tell_what_is_sent(cluster.NO_CLUSTER, SimpleNamespace(query=rows, gallery=rows), quiet=False)
    assert len(told) == 1
    assert told[0].startswith("embeddings: 1 MB of embeddings go through this process")
