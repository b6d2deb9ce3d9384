import contextlib
import io
import json
import os
import pickle
import shutil
import struct
import sys
import unicodedata
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from recallatk.embeddings import FORMATS, RUNS_CODE, load_embeddings, load_samples, read_matrix, save_embeddings
from recallatk.types import EmbeddingSet, RecallatkError

every_format = pytest.mark.parametrize("suffix", FORMATS)
ROWS = np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32)


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


def assert_same(first, second):
    assert first.embeddings.dtype == second.embeddings.dtype
    np.testing.assert_array_equal(first.embeddings, second.embeddings)
    for field in ("ids", "labels", "same", "groups", "content", "label_kind"):
        assert getattr(first, field) == getattr(second, field), field
    assert (first.positions is None) == (second.positions is None)
    if first.positions is not None:
        assert first.positions.dtype == second.positions.dtype == np.float64
        np.testing.assert_array_equal(first.positions, second.positions)


def same_after_a_round_trip(embeddings, path, metadata):
    written = save_embeddings(embeddings, path, metadata=metadata)
    assert written[0] == path
    assert sorted(path.parent.iterdir()) == sorted(written)
    loaded = load_embeddings(path)
    assert_same(loaded.embeddings, embeddings)
    assert loaded.metadata == metadata
    assert loaded.skipped == ()
    assert len(loaded.notes) == (embeddings.embeddings.dtype == np.float16)
    assert all("float16" in note for note in loaded.notes)
    assert loaded.embeddings.name == path.name


# Any code point, the ones that files like to damage more often than others.
texts = st.text(st.characters(categories=None) | st.sampled_from("\n\r\t,\0\"';é🙂\ud800"), max_size=6)
labels = texts.filter(lambda text: unicodedata.normalize("NFC", text) != "")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
# Names that mean something in a file, or that a library may trip over.
NAMES = ["id", "ids", "label", "labels", "embedding", "vector", "positions", "easting", "northing", "same", "recallatk"]
column_names = texts | st.sampled_from([*NAMES, "meta", "a", "a.b", "file", "", "role"])


@st.composite
def embedding_sets(draw):
    n, width = draw(st.integers(0, 5)), draw(st.integers(1, 4))
    dtype = np.dtype(draw(st.sampled_from(["float16", "float32", "float64", "int8", "uint8", "int64"])))
    rows = np.array(draw(st.lists(st.integers(1, 100), min_size=n * width, max_size=n * width)), dtype=dtype)

    def column(values, **options):
        return tuple(draw(st.lists(values, min_size=n, max_size=n, **options)))

    single, several = labels, st.lists(labels, max_size=3).map(tuple)
    label_column = column(draw(st.sampled_from([single, several, single | several, st.integers(-3, 9)])))
    names = draw(st.lists(column_names, max_size=3, unique=True))
    coordinates = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2 * n, max_size=2 * n)
    return EmbeddingSet(
        rows.reshape(n, width) / (dtype.type(7) if dtype.kind == "f" else dtype.type(1)).astype(dtype)
        if dtype.kind == "f"
        else rows.reshape(n, width),
        labels=label_column,
        ids=column(texts, unique=True) if draw(st.booleans()) else None,
        same=column(texts) if draw(st.booleans()) else None,
        content=column(st.text("0123456789abcdef", min_size=64, max_size=64)) if draw(st.booleans()) else None,
        groups={name: column(texts) for name in names},
        positions=np.array(draw(coordinates)).reshape(n, 2) if draw(st.booleans()) else None,
    )


@every_format
@settings(max_examples=60, deadline=None)
@given(embeddings=embedding_sets(), metadata=st.dictionaries(st.text(max_size=3), json_values, max_size=3))
def test_a_round_trip_is_exact(suffix, embeddings, metadata, tmp_path_factory):
    same_after_a_round_trip(embeddings, tmp_path_factory.mktemp("set") / f"set{suffix}", metadata)


@every_format
@pytest.mark.parametrize(
    "label_column",
    [("a", "b"), (3, 4), (("a", "b"), ()), ((), ()), ("a", ("a", "b")), ((1, 2), 3), ("a\0", "\ud800")],
)
def test_labels_of_every_kind_come_back(suffix, label_column, tmp_path):
    ids = ("a\nb,\t🙂.jpg", "bytes-\udcff.jpg")
    embeddings = EmbeddingSet(ROWS, label_column, ids, groups={"label": ("x", "y"), "cam": ("1", "1"), "a.b": ("", "")})
    same_after_a_round_trip(embeddings, tmp_path / f"set{suffix}", {"encoder": {"name": "x", "size": [224, 224]}})


UTM = np.array([[548123.4567890123, 4190000.000000001], [-0.1, 1e7 + 1 / 3]])


@every_format
@pytest.mark.parametrize("label_column", [("a", "b"), ((), ())])
def test_positions_come_back_to_the_last_bit_with_labels_or_without(suffix, label_column, tmp_path):
    groups = {"easting": ("x", "y"), "northing": ("1", "2"), "positions": ("", "")}
    embeddings = EmbeddingSet(ROWS, label_column, ("p", "q"), positions=UTM, groups=groups)
    same_after_a_round_trip(embeddings, tmp_path / f"set{suffix}", {})
    same_after_a_round_trip(EmbeddingSet(ROWS, label_column, groups=groups), tmp_path / f"set{suffix}", {})


@every_format
@pytest.mark.parametrize("rows", [np.asfortranarray(ROWS), np.arange(1, 13, dtype=np.float32).reshape(4, 3)[::2]])
def test_the_order_of_memory_does_not_matter(suffix, rows, tmp_path):
    same_after_a_round_trip(EmbeddingSet(rows, ("a", "b")), tmp_path / f"set{suffix}", {})


@every_format
def test_numbers_of_the_other_byte_order_keep_their_value(suffix, tmp_path):
    save_embeddings(EmbeddingSet(ROWS.astype(">f4"), ("a", "b")), tmp_path / f"set{suffix}")
    loaded = load_embeddings(tmp_path / f"set{suffix}").embeddings.embeddings
    assert loaded.dtype in (np.dtype("<f4"), np.dtype(">f4"))
    np.testing.assert_array_equal(loaded, ROWS)


def test_parquet_of_many_blocks_comes_back_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("recallatk.embeddings.parquet.BLOCK_BYTES", 1000)
    monkeypatch.setattr("recallatk.embeddings.parquet.BLOCK_ROWS", 7)
    rows = np.random.default_rng(0).normal(size=(203, 9)).astype(np.float16)
    labels = tuple(f"label {row}" for row in range(203))
    same_after_a_round_trip(EmbeddingSet(rows, labels, ids=labels), tmp_path / "set.parquet", {})
    assert pq.ParquetFile(tmp_path / "set.parquet").num_row_groups > 3


@every_format
def test_a_file_can_be_replaced_while_it_is_mapped(suffix, tmp_path):
    path = tmp_path / f"set{suffix}"
    save_embeddings(EmbeddingSet(ROWS, ("a", "b")), path)
    first = load_embeddings(path).embeddings
    save_embeddings(EmbeddingSet(first.embeddings[::-1], ("b", "a")), path)
    np.testing.assert_array_equal(first.embeddings, ROWS)
    np.testing.assert_array_equal(load_embeddings(path).embeddings.embeddings, ROWS[::-1])


@every_format
def test_a_failed_save_leaves_the_old_file_and_nothing_else(suffix, tmp_path):
    path = tmp_path / f"set{suffix}"
    embeddings = EmbeddingSet(ROWS, ("a", "b"))
    written = save_embeddings(embeddings, path)
    with pytest.raises(RecallatkError, match="JSON"):
        save_embeddings(EmbeddingSet(ROWS * 2, ("c", "d")), path, metadata={"when": object()})
    assert_same(load_embeddings(path).embeddings, embeddings)
    assert sorted(tmp_path.iterdir()) == sorted(written)


@every_format
def test_files_get_the_usual_permissions(suffix, tmp_path):
    (tmp_path / "usual").touch()
    for path in save_embeddings(EmbeddingSet(ROWS, ("a", "b")), tmp_path / f"set{suffix}"):
        assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_bare_array_is_mapped_and_never_copied(tmp_path):
    save_embeddings(EmbeddingSet(ROWS, ("a", "b")), tmp_path / "set.npy")
    rows = load_embeddings(tmp_path / "set.npy").embeddings.embeddings
    assert isinstance(rows, np.memmap)
    assert rows.filename == tmp_path / "set.npy"


# Labels and side files


def bare(tmp_path, rows=5):
    path = tmp_path / "g.npy"
    np.save(path, np.arange(1, 1 + rows * 3, dtype=np.float32).reshape(rows, 3))
    return path


def test_a_bare_array_without_labels_says_how_to_give_them(tmp_path):
    with pytest.raises(RecallatkError, match=r"gallery \(g\.npy\).*--gallery-labels.*g\.samples\.parquet"):
        load_embeddings(bare(tmp_path), name="gallery")


@pytest.mark.parametrize("suffix", [suffix for suffix in FORMATS if suffix != ".npy"])
def test_a_file_without_labels_says_how_to_give_them(suffix, tmp_path):
    path = foreign(tmp_path, suffix, {"embeddings": ROWS})
    with pytest.raises(RecallatkError, match=rf"set\{suffix}: there are no labels.*--query-labels"):
        load_embeddings(path)


def foreign(tmp_path, suffix, arrays):
    """A file as other tools write it."""
    path = tmp_path / f"set{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    elif suffix == ".safetensors":
        safetensors.numpy.save_file(arrays, path)
    elif suffix in (".h5", ".hdf5"):
        with h5py.File(path, "w") as file:
            for key, values in arrays.items():
                file[key] = values
    else:
        pq.write_table(pa.table({key: list(values) for key, values in arrays.items()}), path)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".parquet", ".h5"])
def test_integer_labels_and_groups_of_other_tools_are_read(suffix, tmp_path):
    arrays = {"embeddings": ROWS, "labels": np.array([7, 8]), "ids": np.array([10, 11]), "camera": np.array([1, 2])}
    loaded = load_embeddings(foreign(tmp_path, suffix, arrays))
    assert loaded.embeddings.labels == ("7", "8")
    assert loaded.embeddings.label_kind == "integer"
    assert loaded.embeddings.ids == ("10", "11")
    assert loaded.embeddings.groups == {"camera": ("1", "2")}
    assert loaded.notes == ()


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".hdf5"])
def test_the_only_matrix_is_the_embeddings_and_two_are_listed(suffix, tmp_path):
    arrays = {"features": ROWS, "labels": np.array([7, 8]), "weight": np.ones(2, dtype=np.float32)}
    loaded = load_embeddings(foreign(tmp_path, suffix, arrays))
    np.testing.assert_array_equal(loaded.embeddings.embeddings, ROWS)
    assert loaded.notes == ("columns left aside: 'weight'",)
    with pytest.raises(RecallatkError, match=r"2 numeric .*'features' \(2, 3\).*'other' \(2, 3\)"):
        load_embeddings(foreign(tmp_path, suffix, arrays | {"other": ROWS}))
    with pytest.raises(RecallatkError, match="0 numeric"):
        load_embeddings(foreign(tmp_path, suffix, {"labels": np.array([7, 8])}))


def test_bfloat16_tensors_become_float32_exactly(tmp_path):
    values = np.array([[1.0, -2.5], [0.15625, 3e38]], dtype=np.float32)
    halves = (values.view(np.uint32) >> 16).astype("<u2")
    header = {
        "labels": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]},
        "x": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [16, 24]},
    }
    text = json.dumps(header).encode()
    data = struct.pack("<Q", len(text)) + text + np.array([1, 2], dtype="<i8").tobytes() + halves.tobytes()
    (tmp_path / "set.safetensors").write_bytes(data)
    rows = load_embeddings(tmp_path / "set.safetensors").embeddings.embeddings
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, (halves.astype(np.uint32) << 16).view(np.float32))


def test_eight_bit_floats_are_named(tmp_path):
    text = json.dumps({"embeddings": {"dtype": "F8_E4M3", "shape": [1, 2], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "set.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"\1\1")
    with pytest.raises(RecallatkError, match="F8_E4M3; save it as float32"):
        load_embeddings(tmp_path / "set.safetensors")


LABEL_FILES = {
    "labels.txt": (b"\xef\xbb\xbfa \nb\r\n c\nd\ne\n", ("a ", "b", " c", "d", "e")),
    "last-line-open.txt": (b"a\nb\nc\nd\ne", ("a", "b", "c", "d", "e")),
    "labels.csv": (b'\xef\xbb\xbflabel,id\n"a,1",p\nb,q\nc,r\nd,s\ne,t\n\n', ("a,1", "b", "c", "d", "e")),
    "labels.tsv": (b"id\tlabel\np\ta\nq\tb\nr\tc\ns\td\nt\te\n", ("a", "b", "c", "d", "e")),
    "labels.json": (b'["a", "b", "c", "d", "e"]', ("a", "b", "c", "d", "e")),
    "integers.json": (b"[1, 2, 3, 4, 5]", ("1", "2", "3", "4", "5")),
    "lists.json": (b'[["b", "a"], [], ["c"], [], []]', (("a", "b"), (), ("c",), (), ())),
}


@pytest.mark.parametrize("file", LABEL_FILES)
def test_label_files_are_read(file, tmp_path):
    data, expected = LABEL_FILES[file]
    (tmp_path / file).write_bytes(data)
    loaded = load_embeddings(bare(tmp_path), labels=tmp_path / file).embeddings
    assert loaded.labels == expected
    assert loaded.label_kind == ("integer" if file.startswith("integers") else "text")
    assert loaded.ids == (("p", "q", "r", "s", "t") if file[-4:] in (".csv", ".tsv") else None)


@pytest.mark.parametrize(("array", "kind"), [(np.arange(5), "integer"), (np.array(list("abcde")), "text")])
def test_label_arrays_are_read(array, kind, tmp_path):
    np.save(tmp_path / "y.npy", array)
    loaded = load_embeddings(bare(tmp_path), labels=tmp_path / "y.npy").embeddings
    assert loaded.labels == tuple(map(str, array))
    assert loaded.label_kind == kind


BAD_LABEL_FILES = {
    "gap.txt": (b"a\n\nc\nd\ne\n", "line 2 is empty"),
    "latin.txt": (b"\xe9\nb\nc\nd\ne\n", "utf-8"),
    "names.csv": (b"class,id\na,b\n", "no column is called label; the columns are class, id"),
    "short.csv": (b"label,id\na,b\nc\n", "line 3 has 1 cells, the header has 2"),
    "gap.csv": (b"label\na\n\nc\n", "line 3 has 0 cells"),
    "cell.csv": (b"label,id\na,p\n,q\nc,r\nd,s\ne,t\n", "row 1 has an empty label"),
    "twice.csv": (b"label,label\na,b\n", "two columns"),
    "quote.csv": (b'label\n"a\n', "damaged"),
    "map.json": (b'{"a": 1}', "holds a dict"),
    "half.json": (b"[1, 2", "damaged"),
    "floats.json": (b"[1.5, 2, 3, 4, 5]", "1.5"),
    "mixed.json": (b'[1, "b", 3, 4, 5]', "mix integers"),
    "labels.yaml": (b"", r"\.yaml is no kind of labels file"),
    "labels.pkl": (pickle.dumps([1]), "refused"),
}


@pytest.mark.parametrize("file", BAD_LABEL_FILES)
def test_bad_label_files_are_named(file, tmp_path):
    data, message = BAD_LABEL_FILES[file]
    (tmp_path / file).write_bytes(data)
    with pytest.raises(RecallatkError, match=message) as caught:
        load_embeddings(bare(tmp_path), labels=tmp_path / file, name="gallery")
    assert file in str(caught.value)
    assert "gallery" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_number_of_labels_gives_both_numbers_the_side_and_the_file(tmp_path):
    (tmp_path / "y.txt").write_text("a\nb\nc\nd\n")
    with pytest.raises(RecallatkError, match=r"gallery \(g\.npy\), labels from y\.txt: 4 labels for 5 embedding rows"):
        load_embeddings(bare(tmp_path), labels=tmp_path / "y.txt", name="gallery")


def test_a_separator_splits_labels_and_only_then(tmp_path):
    (tmp_path / "y.txt").write_text("b;a\n\nc\nc;c\n\n")
    loaded = load_embeddings(bare(tmp_path), labels=tmp_path / "y.txt", label_separator=";")
    assert loaded.embeddings.labels == (("a", "b"), (), ("c",), ("c",), ())
    (tmp_path / "y.txt").write_text("b;a\nb\nc\nc;c\nd")
    assert load_embeddings(bare(tmp_path), labels=tmp_path / "y.txt").embeddings.labels[0] == "b;a"
    with pytest.raises(RecallatkError, match="label_separator is empty"):
        load_embeddings(bare(tmp_path), labels=tmp_path / "y.txt", label_separator="")


def test_given_labels_replace_those_of_the_file_and_keep_its_ids(tmp_path):
    path = tmp_path / "set.npz"
    save_embeddings(EmbeddingSet(ROWS, (1, 2), ids=("p", "q"), groups={"camera": ("1", "2")}), path)
    (tmp_path / "y.csv").write_text("id,label,place\np,x,here\nq,y,there\n")
    loaded = load_embeddings(path, labels=tmp_path / "y.csv").embeddings
    assert (loaded.labels, loaded.label_kind, loaded.ids) == (("x", "y"), "text", ("p", "q"))
    assert loaded.groups == {"camera": ("1", "2"), "place": ("here", "there")}
    (tmp_path / "y.csv").write_text("id,label\nq,y\np,x\n")
    with pytest.raises(RecallatkError, match="row 0 is 'p' among the embeddings and 'q' there"):
        load_embeddings(path, labels=tmp_path / "y.csv")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".h5"])
def test_positions_of_other_tools_are_not_taken_for_embeddings(suffix, tmp_path):
    arrays = {"features": ROWS, "positions": UTM.astype(np.float32)}
    loaded = load_embeddings(foreign(tmp_path, suffix, arrays))
    np.testing.assert_array_equal(loaded.embeddings.embeddings, ROWS)
    np.testing.assert_array_equal(loaded.embeddings.positions, UTM.astype(np.float32).astype(np.float64))
    assert loaded.embeddings.labels == ((), ())
    with pytest.raises(RecallatkError, match=r"positions have the shape \(2, 3\)|3 positions for 2"):
        load_embeddings(foreign(tmp_path, suffix, arrays | {"positions": ROWS}))
    with pytest.raises(RecallatkError, match="the position of row 1 is not finite"):
        load_embeddings(foreign(tmp_path, suffix, arrays | {"positions": np.array([[0, 1], [np.nan, 0]])}))


def test_parquet_columns_easting_and_northing_are_positions_if_both_are_numbers(tmp_path):
    columns = {"embedding": ROWS.tolist(), "easting": [1, 2], "northing": [0.5, 1.5]}
    path = tmp_path / "set.parquet"
    pq.write_table(pa.table(columns), path)
    loaded = load_embeddings(path).embeddings
    np.testing.assert_array_equal(loaded.positions, [[1, 0.5], [2, 1.5]])
    assert loaded.groups == {}
    pq.write_table(pa.table({**columns, "northing": ["n1", "n2"], "label": ["a", "b"]}), path)
    loaded = load_embeddings(path).embeddings
    assert loaded.positions is None
    assert loaded.groups == {"easting": ("1", "2"), "northing": ("n1", "n2")}
    pq.write_table(pa.table({**columns, "northing": [0.5, None]}), path)
    with pytest.raises(RecallatkError, match=r"row 1 is empty \(null\) in the column 'northing'"):
        load_embeddings(path)


def test_a_table_beside_a_bare_array_may_hold_positions_and_no_labels(tmp_path):
    np.save(tmp_path / "g.npy", ROWS)
    table = tmp_path / "xy.csv"
    table.write_text("id,easting,northing,camera\np,548123.4567890123,4190000.000000001,1\nq,-0.1,10000000,2\n")
    loaded = load_embeddings(tmp_path / "g.npy", labels=table).embeddings
    np.testing.assert_array_equal(loaded.positions, [UTM[0], [-0.1, 1e7]])
    assert (loaded.ids, loaded.labels, loaded.groups) == (("p", "q"), ((), ()), {"camera": ("1", "2")})
    table.write_text("easting,northing\n1,2\n3,\n")
    with pytest.raises(RecallatkError, match=r"xy\.csv: line 3: easting and northing are .* write numbers"):
        load_embeddings(tmp_path / "g.npy", labels=table)


def test_without_positions_labels_are_optional_only_where_that_is_said(tmp_path):
    path = foreign(tmp_path, ".npz", {"embeddings": ROWS, "ids": np.array(["p", "q"])})
    with pytest.raises(RecallatkError, match="there are no labels"):
        load_embeddings(path)
    assert load_embeddings(path, labels_required=False).embeddings.labels == ((), ())
    (tmp_path / "ids.csv").write_text("id,camera\np,1\nq,2\n")
    with pytest.raises(RecallatkError, match="no column is called label; the columns are camera, id"):
        load_embeddings(path, labels=tmp_path / "ids.csv")
    loaded = load_embeddings(path, labels=tmp_path / "ids.csv", labels_required=False).embeddings
    assert (loaded.labels, loaded.groups) == (((), ()), {"camera": ("1", "2")})


def test_samples_without_embeddings_are_read_from_labels_and_ids(tmp_path):
    (tmp_path / "y.csv").write_text("label,camera\na,1\nb,2\n")
    (tmp_path / "ids.txt").write_text("p\nq q\n")
    samples = load_samples(tmp_path / "y.csv", ids=tmp_path / "ids.txt", name="query")
    assert (samples.labels, samples.ids, samples.groups) == (("a", "b"), ("p", "q q"), {"camera": ("1", "2")})
    assert load_samples(ids=tmp_path / "ids.txt", labels_required=False).labels == ((), ())
    with pytest.raises(RecallatkError, match=r"query: there are no labels; give a file of them \(--query-labels"):
        load_samples(ids=tmp_path / "ids.txt", name="query")
    (tmp_path / "y.csv").write_text("label,id\na,p\nb,x\n")
    with pytest.raises(RecallatkError, match=r"labels from y\.csv: row 1 is 'q q' among the ids and 'x' there"):
        load_samples(tmp_path / "y.csv", ids=tmp_path / "ids.txt")
    (tmp_path / "y.csv").write_text("label\na\n")
    with pytest.raises(RecallatkError, match="1 labels for 2 rows"):
        load_samples(tmp_path / "y.csv", ids=tmp_path / "ids.txt")
    with pytest.raises(RecallatkError, match="there is no file"):
        load_samples(ids=tmp_path / "absent.txt", labels_required=False)


def test_a_matrix_of_scores_is_mapped_and_never_unpickled(tmp_path):
    np.save(tmp_path / "s.npy", ROWS)
    assert isinstance(read_matrix(tmp_path / "s.npy"), np.memmap)
    np.save(tmp_path / "s.npy", np.array([Bomb(tmp_path / "x")], dtype=object), allow_pickle=True)
    with pytest.raises(RecallatkError, match="refused"):
        read_matrix(tmp_path / "s.npy")
    with pytest.raises(RecallatkError, match=r"\.pt file can run code"):
        read_matrix(tmp_path / "s.pt")
    with pytest.raises(RecallatkError, match="there is no file"):
        read_matrix(tmp_path / "absent.npy")


def test_the_side_file_is_not_read_when_labels_are_given_and_can_itself_be_given(tmp_path):
    embeddings = EmbeddingSet(ROWS, ("a", ("a", "b")), ids=("p", "q"), same=("1", "1"))
    save_embeddings(embeddings, tmp_path / "set.npy")
    np.save(tmp_path / "whitened.npy", ROWS * 2)
    loaded = load_embeddings(tmp_path / "whitened.npy", labels=tmp_path / "set.samples.parquet").embeddings
    assert (loaded.labels, loaded.ids, loaded.same) == (embeddings.labels, ("p", "q"), ("1", "1"))
    (tmp_path / "y.txt").write_text("x\ny\n")
    other = load_embeddings(tmp_path / "set.npy", labels=tmp_path / "y.txt")
    assert other.embeddings.labels == ("x", "y")
    assert other.embeddings.ids is None
    assert "set.samples.parquet was not read" in other.notes[0]


def test_a_side_file_of_another_length_is_an_error(tmp_path):
    save_embeddings(EmbeddingSet(ROWS, ("a", "b")), tmp_path / "g.npy")
    with pytest.raises(RecallatkError, match=r"g\.npy: 2 labels for 5 embedding rows"):
        load_embeddings(bare(tmp_path))


# Rows without a direction


@every_format
def test_unusable_rows_are_left_out_of_every_column_and_listed(suffix, tmp_path):
    good = EmbeddingSet(
        np.arange(1, 13, dtype=np.float32).reshape(4, 3),
        ("a", ("b", "c"), "d", "e"),
        ids=("p", "q", "r", "s"),
        same=("1", "2", "3", "4"),
        content=("w", "x", "y", "z"),
        groups={"camera": ("1", "2", "3", "4")},
        positions=np.arange(8.0).reshape(4, 2),
    )
    good.embeddings[1] = 0
    good.embeddings[3, 1] = np.nan
    path = tmp_path / f"set{suffix}"
    save_embeddings(good, path)
    with pytest.raises(RecallatkError, match=rf"set\{suffix}.*row 1 \('q'\) is all zero.*1 more"):
        load_embeddings(path)
    loaded = load_embeddings(path, on_error="skip")
    assert_same(loaded.embeddings, good.take([0, 2]))
    assert [(skipped.item, skipped.reason.split(" (")[0]) for skipped in loaded.skipped] == [
        ("q", "is all zero"),
        ("s", "is not finite"),
    ]


def test_skipped_rows_without_ids_are_named_by_number(tmp_path):
    np.savez(tmp_path / "set.npz", embeddings=np.array([[0.0, 0], [1, 1]]), labels=[1, 2])
    loaded = load_embeddings(tmp_path / "set.npz", on_error="skip")
    assert [skipped.item for skipped in loaded.skipped] == ["row 0"]
    assert loaded.embeddings.labels == ("2",)


# Parquet of other tools


@pytest.mark.parametrize("column", ["embedding", "vector", "embeddings"])
@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.list_(pa.float64(), 3),
        pa.list_(pa.float16(), 3),
        pa.large_list(pa.float32()),
        pa.list_(pa.int64()),
        pa.list_(pa.uint8(), 3),
    ],
    ids=str,
)
def test_parquet_lists_of_every_kind_are_read(column, kind, tmp_path):
    table = pa.table(
        {
            column: pa.array([[np.float16(value) for value in row] for row in ROWS]).cast(kind)
            if pa.types.is_float16(kind.value_type)
            else pa.array(ROWS.astype(int).tolist(), kind),
            "label": pa.array(["x", "y"]).dictionary_encode(),
            "role": ["query", "gallery"],
            "split": pa.array([1, 2], pa.int8()),
            "score": [0.5, 0.5],
            "camera": pa.array([None, 3]),
        }
    )
    pq.write_table(table, tmp_path / "set.parquet")
    loaded = load_embeddings(tmp_path / "set.parquet")
    rows = loaded.embeddings.embeddings
    assert rows.dtype == kind.value_type.to_pandas_dtype()
    np.testing.assert_array_equal(rows, ROWS)
    assert loaded.embeddings.labels == ("x", "y")
    assert loaded.embeddings.groups == {"role": ("query", "gallery"), "split": ("1", "2"), "camera": ("", "3")}
    assert loaded.notes[:1] == ("columns left aside: 'score'",)
    assert len(loaded.notes) == 1 + (rows.dtype == np.float16)


def test_parquet_written_here_has_the_plain_columns_other_tools_expect(tmp_path):
    embeddings = EmbeddingSet(ROWS.astype(np.float16), (("a", "b"), ()), ids=("p", "q"), groups={"camera": ("1", "2")})
    save_embeddings(embeddings, tmp_path / "set.parquet")
    table = pq.read_table(tmp_path / "set.parquet")
    assert table.schema.field("embedding").type == pa.list_(pa.float16(), 3)
    assert table.select(["id", "labels", "camera"]).to_pydict() == {
        "id": ["p", "q"],
        "labels": [["a", "b"], []],
        "camera": ["1", "2"],
    }
    assert pq.ParquetFile(tmp_path / "set.parquet").metadata.row_group(0).column(0).compression == "ZSTD"


def test_npz_written_here_has_the_plain_arrays_other_tools_expect(tmp_path):
    save_embeddings(EmbeddingSet(ROWS, (1, 2), ids=("p", "q")), tmp_path / "set.npz")
    with np.load(tmp_path / "set.npz", allow_pickle=False) as arrays:
        assert sorted(arrays.files) == ["embeddings", "ids", "labels", "meta"]
        assert arrays["labels"].tolist() == ["1", "2"]
        assert json.loads(str(arrays["meta"]))["label_kind"] == "integer"


def test_several_labels_come_before_one_and_this_is_noted(tmp_path):
    columns = {"embedding": ROWS.tolist(), "label": ["x", "y"], "labels": [["x", "z"], ["y"]]}
    pq.write_table(pa.table(columns), tmp_path / "set.parquet")
    loaded = load_embeddings(tmp_path / "set.parquet")
    assert loaded.embeddings.labels == (("x", "z"), ("y",))
    assert loaded.notes == ("columns left aside: 'label'",)


BAD_TABLES = {
    "lengths": ({"embedding": [[1.0, 2.0], [1.0]], "label": ["a", "b"]}, "row 1 has 1 numbers.* have 2"),
    "null row": ({"embedding": [[1.0], None], "label": ["a", "b"]}, "row 1 is empty .null. in the column 'embedding'"),
    "null number": ({"embedding": [[1.0, 2.0], [1.0, None]], "label": ["a", "b"]}, "row 1 is empty"),
    "null label": ({"embedding": [[1.0], [2.0]], "label": ["a", None]}, "row 1 is empty .null. in the column 'label'"),
    "null id": ({"embedding": [[1.0], [2.0]], "label": ["a", "b"], "id": [None, "q"]}, "row 0 is empty"),
    "float label": ({"embedding": [[1.0], [2.0]], "label": [1.5, 2.0]}, "labels are text or integers"),
    "float id": ({"embedding": [[1.0], [2.0]], "label": [1, 2], "id": [1.5, 2.5]}, "'ids' holds 1.5"),
    "no embeddings": ({"label": ["a", "b"]}, "no column is called embedding .*the columns are label"),
    "text": ({"embedding": ["a", "b"], "label": ["a", "b"]}, "'embedding' is string"),
    "list of text": ({"embedding": [["a"], ["b"]], "label": ["a", "b"]}, "lists of numbers"),
    "twice": (pa.table([[[1.0]], ["a"], ["b"]], names=["embedding", "label", "label"]), "called 'label'"),
    "no numbers": ({"embedding": pa.array([[], []], pa.list_(pa.float32())), "label": [1, 2]}, r"shape is \(2, 0\)"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables_are_errors_that_name_the_file_and_the_row(case, tmp_path):
    columns, message = BAD_TABLES[case]
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), tmp_path / "set.parquet")
    with pytest.raises(RecallatkError, match=rf"^set\.parquet: .*{message}"):
        load_embeddings(tmp_path / "set.parquet")


def test_fixed_size_nulls_are_found_in_later_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("recallatk.embeddings.parquet.BLOCK_ROWS", 4)
    rows = [[1.0, 2.0]] * 10
    for broken in (None, [1.0, None]):
        table = pa.table({"embedding": pa.array([*rows[:9], broken], pa.list_(pa.float32(), 2)), "label": ["a"] * 10})
        pq.write_table(table, tmp_path / "set.parquet")
        with pytest.raises(RecallatkError, match="row 9 is empty"):
            load_embeddings(tmp_path / "set.parquet")


# Files that are not what they should be


@every_format
def test_a_truncated_file_is_one_clear_error(suffix, tmp_path):
    path = tmp_path / f"set{suffix}"
    save_embeddings(EmbeddingSet(np.ones((50, 8)), tuple("ab" * 25)), path)
    whole = path.read_bytes()
    for length in (0, 1, 7, 60, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(RecallatkError, match=rf"^set\{suffix}: cannot be read") as caught:
            load_embeddings(path)
        assert "\n" not in str(caught.value)


@every_format
def test_damage_of_one_byte_is_never_worse_than_one_clear_error(suffix, tmp_path):
    path = tmp_path / f"set{suffix}"
    save_embeddings(EmbeddingSet(np.ones((20, 4)), tuple("ab" * 10), ids=tuple("abcdefghijklmnopqrst")), path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = []
    for place in rng.choice(len(whole), size=250, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        with contextlib.suppress(RecallatkError):  # harmless damage exists (a number, padding); other errors do not
            load_embeddings(path)
            continue
        refused.append(place)
    assert refused


@every_format
@pytest.mark.parametrize("data", [b"", b"hello\n" * 100, b"PK\3\4" + b"\0" * 100, b"\x93NUMPY\1\0\xff\xff{"])
def test_another_kind_of_file_is_one_clear_error(suffix, data, tmp_path):
    (tmp_path / f"set{suffix}").write_bytes(data)
    with pytest.raises(RecallatkError, match=rf"^set\{suffix}: cannot be read"):
        load_embeddings(tmp_path / f"set{suffix}")


def test_an_archive_that_claims_more_than_it_holds_takes_no_memory(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**4)})
    with zipfile.ZipFile(tmp_path / "set.npz", "w") as archive:
        archive.writestr("embeddings.npy", header.getvalue() + b"\0" * 64)
    with pytest.raises(RecallatkError, match="shorter than its shape"):
        load_embeddings(tmp_path / "set.npz")


def test_nothing_is_ever_unpickled(tmp_path):
    target = tmp_path / "made-by-unpickling"
    bomb = np.array([Bomb(target), Bomb(target)], dtype=object)
    np.save(tmp_path / "set.npy", bomb, allow_pickle=True)
    np.savez(tmp_path / "rows.npz", embeddings=bomb)
    np.savez(tmp_path / "labels.npz", embeddings=ROWS, labels=bomb)
    np.savez(tmp_path / "only.npz", features=bomb)
    np.savez(tmp_path / "meta.npz", embeddings=ROWS, labels=[1, 2], meta=bomb[0], other=bomb)
    with zipfile.ZipFile(tmp_path / "member.npz", "w") as archive:
        archive.writestr("embeddings.npy", pickle.dumps(Bomb(target)))
    for suffix in (".npy", ".npz", *RUNS_CODE):
        (tmp_path / f"pickle{suffix}").write_bytes(pickle.dumps(Bomb(target)))
    np.save(tmp_path / "g.npy", ROWS)
    for name in ("set.npy", "rows.npz", "labels.npz", "only.npz"):
        with pytest.raises(RecallatkError, match=rf"{name}: .*unpickling.*refused.*dtype=np\.float32"):
            load_embeddings(tmp_path / name)
    for name in ("member.npz", "pickle.npy", "pickle.npz"):
        with pytest.raises(RecallatkError, match=f"{name}: cannot be read"):
            load_embeddings(tmp_path / name)
    for suffix in RUNS_CODE:
        with pytest.raises(RecallatkError, match=r"can run code when it is opened.*np\.save\('pickle\.npy'"):
            load_embeddings(tmp_path / f"pickle{suffix}")
        with pytest.raises(RecallatkError, match="can run code"):
            save_embeddings(EmbeddingSet(ROWS, ("a", "b")), tmp_path / f"new{suffix}")
    with pytest.raises(RecallatkError, match="unpickling"):
        load_embeddings(tmp_path / "g.npy", labels=tmp_path / "set.npy")
    aside = load_embeddings(tmp_path / "meta.npz")
    assert aside.notes == ("columns left aside: 'meta', 'other'",)
    assert not target.exists()
    pickle.loads((tmp_path / "pickle.pkl").read_bytes())
    assert target.exists()  # the bomb does work


@every_format
def test_a_missing_file_and_a_folder_are_errors(suffix, tmp_path):
    with pytest.raises(RecallatkError, match=rf"query \(set\{suffix}\): there is no file"):
        load_embeddings(tmp_path / f"set{suffix}", name="query")
    (tmp_path / f"set{suffix}").mkdir()
    with pytest.raises(RecallatkError, match="is a folder"):
        load_embeddings(tmp_path / f"set{suffix}")
    with pytest.raises(RecallatkError, match="this is a folder"):
        save_embeddings(EmbeddingSet(ROWS, ("a", "b")), tmp_path / f"set{suffix}")
    with pytest.raises(RecallatkError, match="there is no folder"):
        save_embeddings(EmbeddingSet(ROWS, ("a", "b")), tmp_path / f"absent/set{suffix}")


def test_an_unknown_suffix_lists_what_is_read_and_the_nearest(tmp_path):
    with pytest.raises(
        RecallatkError, match=r"\.csv is no kind.*\.npy, \.npz, \.parquet, \.safetensors, \.h5, \.hdf5 are$"
    ):
        load_embeddings(tmp_path / "set.csv")
    with pytest.raises(RecallatkError, match=r"did you mean \.parquet\?"):
        load_embeddings(tmp_path / "set.parqet")
    with pytest.raises(RecallatkError, match="no suffix"):
        load_embeddings(tmp_path / "set")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones(15, dtype=np.float32), r"shape is \(15,\)"),
        (np.float32(1), r"shape is \(\)"),
        (np.array([["a", "b"]]), "not numeric"),
        (np.ones((3, 5), dtype=np.float32), "5 labels for 3 embedding rows"),
        (np.ones((5, 2, 2)), r"shape is \(5, 2, 2\)"),
        (np.ones((5, 2), dtype=complex), "not numeric"),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_arrays_of_the_wrong_shape_or_kind_name_the_side_and_the_file(rows, message, suffix, tmp_path):
    path = tmp_path / f"bad{suffix}"
    np.save(path, rows) if suffix == ".npy" else np.savez(path, embeddings=rows)
    (tmp_path / "y.txt").write_text("a\nb\nc\nd\ne\n")
    with pytest.raises(RecallatkError, match=rf"^gallery \(bad\{suffix}\).*{message}"):
        load_embeddings(path, labels=tmp_path / "y.txt", name="gallery")


@pytest.mark.parametrize(("key", "value"), [("labels", np.eye(2, dtype=int)), ("ids", np.eye(2, dtype=int))])
def test_columns_of_two_dimensions_are_errors(key, value, tmp_path):
    np.savez(tmp_path / "set.npz", **({"embeddings": ROWS, "labels": np.array([1, 2])} | {key: value}))
    with pytest.raises(RecallatkError, match=r"set\.npz: .*shape \(2, 2\)"):
        load_embeddings(tmp_path / "set.npz")


def test_what_a_later_version_wrote_is_not_guessed_at(tmp_path):
    document = {"recallatk": 2}
    np.savez(tmp_path / "set.npz", embeddings=ROWS, labels=[1, 2], meta=np.array(json.dumps(document)))
    with pytest.raises(RecallatkError, match=r"format 2.*update recallatk"):
        load_embeddings(tmp_path / "set.npz")
    np.savez(tmp_path / "set.npz", embeddings=ROWS, labels=[1, 2], meta=np.array('{"recallatk": 1, "groups": 5}'))
    with pytest.raises(RecallatkError, match=r"set\.npz: cannot be read"):
        load_embeddings(tmp_path / "set.npz")
    np.savez(tmp_path / "set.npz", embeddings=ROWS, labels=[1, 2], meta=np.array('{"camera": "mine"}'))
    assert load_embeddings(tmp_path / "set.npz").notes == ("columns left aside: 'meta'",)


def test_a_dtype_that_no_format_shares_is_refused(tmp_path):
    if np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("long double is float64 here")
    with pytest.raises(RecallatkError, match="convert them to float32 or float64"):
        save_embeddings(EmbeddingSet(ROWS.astype(np.longdouble), ("a", "b")), tmp_path / "set.npy")


def test_more_ids_than_a_safetensors_header_may_hold_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("recallatk.embeddings.tensors.HEADER_BYTES", 4096 + 100)
    with pytest.raises(RecallatkError, match=r"2 ids and labels pass .* save as \.parquet"):
        save_embeddings(EmbeddingSet(ROWS, ("a", "b"), ids=("p", "q")), tmp_path / "set.safetensors")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_an_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RecallatkError, match="cannot be written"):
        save_embeddings(EmbeddingSet(ROWS, ("a", "b")), tmp_path / "set.npz")


# --- half precision, HDF5 and clip-retrieval


def test_half_precision_is_said_in_every_format(tmp_path):
    for suffix in FORMATS:
        save_embeddings(EmbeddingSet(ROWS.astype(np.float16), ("a", "b")), tmp_path / f"set{suffix}")
        (note,) = load_embeddings(tmp_path / f"set{suffix}").notes
        assert note.startswith("the embeddings are float16")
        save_embeddings(EmbeddingSet(ROWS, ("a", "b")), tmp_path / f"set{suffix}")
        assert load_embeddings(tmp_path / f"set{suffix}").notes == ()


def test_text_of_every_kind_is_read_from_hdf5(tmp_path):
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["embeddings"] = ROWS
        file.create_dataset("labels", data=["é", "b"], dtype=h5py.string_dtype())
        file["ids"] = np.array([b"1.jpg", b"2.jpg"])
        file["weights"] = np.ones(2, dtype=np.float32)
        file.create_group("more")["x"] = 1
    loaded = load_embeddings(tmp_path / "set.h5")
    assert loaded.embeddings.labels == ("é", "b")
    assert loaded.embeddings.ids == ("1.jpg", "2.jpg")
    assert loaded.notes == ("columns left aside: 'more', 'weights'",)


def test_chunked_and_compressed_hdf5_is_read_into_one_array_or_a_file(tmp_path):
    rows = np.random.default_rng(0).normal(size=(9000, 40)).astype(np.float32)
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file.create_dataset("embeddings", data=rows, chunks=(100, 40), compression="gzip")
        file["labels"] = np.arange(9000) % 7
    np.testing.assert_array_equal(load_embeddings(tmp_path / "set.h5").embeddings.embeddings, rows)
    small = load_embeddings(tmp_path / "set.h5", memory=2**20)
    np.testing.assert_array_equal(small.embeddings.embeddings, rows)
    assert "temporary file" in small.notes[0]


def test_hdf5_with_text_or_objects_as_embeddings_is_refused(tmp_path):
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["embeddings"] = np.array([b"a", b"b"])
    with pytest.raises(RecallatkError, match=r"'embeddings' is .*not numeric"):
        load_embeddings(tmp_path / "set.h5")


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    save_embeddings(EmbeddingSet(ROWS, ("a", "b")), tmp_path / "set.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(RecallatkError, match=r"pip install 'recallatk\[hdf5\]'"):
        load_embeddings(tmp_path / "set.h5")


def clip_folder(folder, parts, *, columns=None, pad=1):
    """What clip-retrieval inference writes."""
    for name in ("img_emb", "text_emb", "metadata"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    start = 0
    for number, rows in parts.items():
        tag = str(number).zfill(pad)
        np.save(folder / "img_emb" / f"img_emb_{tag}.npy", rows.astype(np.float16))
        names = [f"/data/{row}.jpg" for row in range(start, start + len(rows))]
        table = {"image_path": names, "caption": ["..."] * len(rows), "label": [int(row) % 2 for row in rows[:, 0]]}
        table = {key: values for key, values in table.items() if columns is None or key in columns}
        pq.write_table(pa.table(table), folder / "metadata" / f"metadata_{tag}.parquet")
        start += len(rows)
    return folder


def numbered(first, n):
    return np.column_stack([np.arange(first, first + n), np.ones(n)])


def test_a_clip_retrieval_folder_is_its_parts_in_the_order_of_their_numbers(tmp_path):
    parts = {0: numbered(0, 3), 2: numbered(3, 2), 10: numbered(5, 4)}
    loaded = load_embeddings(clip_folder(tmp_path / "out", parts))
    rows = loaded.embeddings
    np.testing.assert_array_equal(rows.embeddings[:, 0], np.arange(9))
    assert rows.embeddings.dtype == np.float16
    assert rows.ids == tuple(f"/data/{row}.jpg" for row in range(9))
    assert rows.labels == tuple(str(row % 2) for row in range(9))
    assert rows.groups == {"caption": ("...",) * 9}
    assert loaded.notes[0] == "the embeddings of texts in text_emb/ were not read"
    assert "float16" in loaded.notes[1]
    padded = load_embeddings(clip_folder(tmp_path / "padded", parts, pad=3), memory=2**10)
    np.testing.assert_array_equal(padded.embeddings.embeddings, rows.embeddings)


def test_a_clip_retrieval_folder_that_does_not_fit_together_names_the_part(tmp_path):
    parts = {0: numbered(0, 3), 1: numbered(3, 2)}
    folder = clip_folder(tmp_path / "out", parts)
    (folder / "metadata" / "metadata_1.parquet").rename(tmp_path / "kept.parquet")
    with pytest.raises(RecallatkError, match=r"part 1 is in img_emb/ and not in metadata/"):
        load_embeddings(folder)
    shutil.copy(folder / "metadata" / "metadata_0.parquet", folder / "metadata" / "metadata_1.parquet")
    with pytest.raises(RecallatkError, match=r"metadata_1.parquet has 3 rows for the 2 embeddings"):
        load_embeddings(folder)
    (tmp_path / "kept.parquet").rename(folder / "metadata" / "metadata_1.parquet")
    np.save(folder / "img_emb" / "img_emb_1.npy", np.ones((2, 3), dtype=np.float16))
    with pytest.raises(RecallatkError, match=r"img_emb_1.npy has 3 columns of float16, the first 2"):
        load_embeddings(folder)
    for file in (folder / "img_emb").iterdir():
        file.unlink()
    with pytest.raises(RecallatkError, match=r"no img_emb_0.npy"):
        load_embeddings(folder)


def test_a_clip_retrieval_folder_without_labels_takes_a_file_of_them(tmp_path):
    folder = clip_folder(tmp_path / "out", {0: numbered(0, 2)}, columns=("image_path",))
    with pytest.raises(RecallatkError, match=r"there are no labels.*a column `label` of the tables in metadata/"):
        load_embeddings(folder)
    (tmp_path / "labels.txt").write_text("a\nb\n", encoding="utf-8")
    assert load_embeddings(folder, labels=tmp_path / "labels.txt").embeddings.labels == ("a", "b")
    with pytest.raises(RecallatkError, match=r"is a folder"):
        load_embeddings(folder / "metadata")
