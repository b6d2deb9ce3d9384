"""Columns that are worked out where they are asked for, and equal values that are one object in memory."""

from __future__ import annotations

import enum
import hashlib
import pickle
import tracemalloc

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recallatk import EmbeddingSet, SampleSet, evaluate_embeddings, load_embeddings, save_run
from recallatk.embeddings.labels import read_csv, read_text
from recallatk.report import Provenance
from recallatk.run import EncodedDataset
from recallatk.signature import Side, label_hash, relevance_hash
from recallatk.types import HexDigests, RecallatkError, RowNumbers, Texts

SHA256 = [hashlib.sha256(str(row).encode()).hexdigest() for row in range(9000)]


@pytest.mark.parametrize(
    ("column", "texts"),
    [(RowNumbers(9000), tuple(map(str, range(9000)))), (HexDigests.of(SHA256), tuple(SHA256)), (RowNumbers(0), ())],
)
def test_a_column_behaves_like_the_tuple_of_its_texts(column: Texts, texts: tuple[str, ...]) -> None:
    assert column == texts
    assert texts == column
    assert column != (*texts, "more")
    assert column != list(texts)
    assert hash(column) == hash(texts)
    assert len(column) == len(texts)
    assert tuple(reversed(column)) == texts[::-1]
    assert pickle.loads(pickle.dumps(column)) == column
    for some in (slice(3, 5), slice(5, 3), slice(-3, None), slice(None, None, -7), slice(2, 8, 3)):
        assert column[some] == texts[some]
    for row in (0, -1, 4096, len(texts)):
        if -len(texts) <= row < len(texts):
            assert column[row] == texts[row]
        else:
            with pytest.raises(IndexError):
                column[row]


@given(
    st.integers(0, 3), st.sampled_from(["", "A" * 64, "a" * 63, "a" * 65, "g" * 64, " " + "a" * 63, "a" * 63 + "\n"])
)
def test_only_whole_columns_of_hashes_are_held_as_bytes(place: int, odd: str) -> None:
    texts = [*SHA256[:place], odd, *SHA256[place:3]]
    rows = SampleSet(["a"] * len(texts), content=texts)
    assert HexDigests.of(texts) is None
    assert rows.content == tuple(texts)


def test_content_is_held_as_bytes_and_says_the_same() -> None:
    rows = EmbeddingSet(np.eye(3), ["a", "b", "c"], content=SHA256[:3])
    assert isinstance(rows.content, HexDigests)
    assert rows.content == tuple(SHA256[:3])
    assert rows.take([2, 0]).content == (SHA256[2], SHA256[0])


def test_sets_made_of_each_other_share_their_columns() -> None:
    rows = EmbeddingSet(np.eye(3), ["ä", "b", "ä"], ids=["x", "y", "z"], groups={"camera": ["1", "2", "1"]})
    copy = SampleSet(rows.labels, ids=rows.ids, same=rows.ids, groups=rows.groups)
    assert copy.labels is rows.labels
    assert copy.ids is rows.ids
    assert copy.same is rows.ids
    assert copy.groups["camera"] is rows.groups["camera"]


def test_labels_that_an_array_or_an_enumeration_gave_are_plain_texts() -> None:
    label = enum.StrEnum("Label", ["CAT"]).CAT
    rows = EmbeddingSet(np.eye(3), [np.str_("a dog"), label, (np.str_("a cow"), label)])
    assert [type(text) for text in (*rows.labels[:2], *rows.labels[2])] == [str] * 4
    assert repr(rows.labels) == "('a dog', 'cat', ('a cow', 'cat'))"


def test_equal_labels_of_a_file_are_one_object(tmp_path) -> None:
    np.save(tmp_path / "rows.npy", np.eye(4))
    (tmp_path / "labels.txt").write_text("a cat\na dog\na cat\na dog")
    (tmp_path / "labels.csv").write_text("id,label,camera\n1,a cat,left\n2,a dog,left\n3,a cat,left\n4,a dog,left\n")
    for name in ("labels.txt", "labels.csv"):
        rows = load_embeddings(tmp_path / "rows.npy", labels=tmp_path / name).embeddings
        assert rows.labels == ("a cat", "a dog", "a cat", "a dog")
        assert rows.labels[0] is rows.labels[2]
        assert all(value is values[0] for values in rows.groups.values() for value in values)


@given(st.lists(st.sampled_from(["", "a", "b"]), max_size=5), st.booleans())
def test_lines_are_labels_but_for_empty_ones_at_the_end(tmp_path_factory, lines: list[str], several: bool) -> None:
    path = tmp_path_factory.mktemp("lines") / "labels.txt"
    for end in ("\n", "\r\n", "\r"):
        path.write_bytes(end.join([*lines, ""]).encode() if lines else b"")
        kept = list(lines)
        while kept and not kept[-1] and not several:
            kept.pop()
        if "" in kept and not several:
            with pytest.raises(RecallatkError, match=rf"line {kept.index('') + 1} is empty"):
                read_text(path, "labels", several=several)
        else:
            assert read_text(path, "labels", several=several).labels == kept


@pytest.mark.parametrize(
    ("text", "line", "cells"),
    [("id,label\n1,a\n2\n3,b\n", 3, 1), ("id,label\n1,a\n\n3,b\n", 3, 0), ('id,label\n1,"a\nb"\n1,2,3\n\n', 4, 3)],
)
def test_a_line_with_other_cells_than_the_header_is_named(tmp_path, text: str, line: int, cells: int) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(RecallatkError, match=f"line {line} has {cells} cells, the header has 2"):
        read_csv(tmp_path / "t.csv", "t", several=False)


def test_empty_lines_at_the_end_of_a_table_are_no_rows(tmp_path) -> None:
    (tmp_path / "t.csv").write_text("id,label\n1,a\n\n\n")
    assert read_csv(tmp_path / "t.csv", "t", several=False).labels == ["a"]


def test_rows_that_are_written_some_at_a_time_are_the_same(tmp_path, monkeypatch) -> None:
    rows = EmbeddingSet(
        np.eye(5) + 1, ["a", ("b", "c"), "a", (), "b"], content=SHA256[:5], groups={"camera": list("12221")}
    )
    encoded = EncodedDataset(rows, None, Provenance())
    report = evaluate_embeddings(rows)
    save_run(report, tmp_path / "at once", evaluated=encoded)
    monkeypatch.setattr("recallatk.run.samples.ROWS_A_GROUP", 2)
    monkeypatch.setattr("recallatk.arrow.ROWS_A_BLOCK", 2)
    save_run(report, tmp_path / "in twos", evaluated=encoded)
    for file in ("samples.parquet", "queries.parquet"):
        one, other = (pq.read_table(tmp_path / name / file) for name in ("at once", "in twos"))
        assert one.schema == other.schema
        assert one.equals(other)


def test_a_row_takes_a_hundred_bytes(tmp_path, monkeypatch) -> None:
    n = 40_000
    np.save(tmp_path / "rows.npy", np.arange(1, 2 * n + 1, dtype=np.float32).reshape(n, 2))
    (tmp_path / "labels.txt").write_text("".join(f"the label number {row % 50}\n" for row in range(n)))
    monkeypatch.setattr("recallatk.signature.sides.LINES_A_BLOCK", 2**9)  # what a block takes grows with no row
    tracemalloc.start()
    try:
        rows = load_embeddings(tmp_path / "rows.npy", labels=tmp_path / "labels.txt").embeddings
        assert tracemalloc.get_traced_memory()[1] < 60 * n
        side = Side("g", rows)
        label_hash([side])
        relevance_hash([side], [[rows.labels]])
        assert tracemalloc.get_traced_memory()[1] < 100 * n
    finally:
        tracemalloc.stop()
