"""Files of judged pairs: every format says the same, and every fault names its line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recallatk.datasets import load_qrels
from recallatk.types import Qrels, RecallatkError

PAIRS = [("q 1", "a/1.jpg", 2), ("q 1", "b.jpg", 0), ("7", "é.jpg", -1)]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def pairs(qrels: Qrels) -> list[tuple[str, str, int]]:
    return list(zip(qrels.query_ids, qrels.gallery_ids, qrels.grades.tolist(), strict=True))


def failure(path: Path) -> str:
    with pytest.raises(RecallatkError) as error:
        load_qrels(path)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", ["q.txt", "q.qrels", "q.trec", "qrels", "q.v1.2"])
def test_trec_lines_are_read_whatever_the_suffix(tmp_path: Path, name: str) -> None:
    text = "\ufeff# judged by two people\n\n301 0 FT911-3 1\r\n301\tQ0\td%20b\t0\n  302 0 é\u00a0x -1\n"
    qrels = load_qrels(write(tmp_path / name, text))
    assert pairs(qrels) == [("301", "FT911-3", 1), ("301", "d%20b", 0), ("302", "é\u00a0x", -1)]
    assert qrels.levels is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 0 a 1\n1 0 b\n", "line 2 has 3 fields, not 4 (query id, iteration, gallery id, grade)"),
        ("1 Q0 a 1 0.5 tag\n", "line 1 has 6 fields, not 4"),
        ("1 0 a 1.0\n", "line 1: the grade is '1.0'; write a whole number"),
        ("1 0 a yes\n", "line 1: the grade is 'yes'"),
        ("1 0 a 1_0\n", "line 1: the grade is '1_0'"),
        ("1 0 a 99999999999999999999\n", "the grade is '99999999999999999999'"),
        ("1 0 a 1\n\n1 0 a 0\n", "line 3: the pair '1', 'a' is judged twice, here and at line 1; keep one"),
        ("# nothing\n", "there are no judged pairs in it"),
    ],
)
def test_a_fault_in_trec_lines_names_the_line(tmp_path: Path, text: str, words: str) -> None:
    assert words in failure(write(tmp_path / "q.txt", text))


def test_bytes_that_are_no_text_and_files_that_are_not_there_are_errors(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_bytes(b"1 0 a 1\n1 0 caf\xe9 1\n")
    assert failure(tmp_path / "q.txt").startswith("line 2: b'caf\\xe9' is not UTF-8")
    assert "cannot be read" in failure(tmp_path / "absent.txt")
    assert "cannot be read" in failure(tmp_path / "absent.csv")
    assert "cannot be read" in failure(tmp_path)


def test_beir_is_read(tmp_path: Path) -> None:
    text = "query-id\tcorpus-id\tscore\n" + "".join(f"{query}\t{item}\t{grade}\n" for query, item, grade in PAIRS)
    assert pairs(load_qrels(write(tmp_path / "test.tsv", text))) == PAIRS


def test_a_tsv_without_a_header_is_trec(tmp_path: Path) -> None:
    qrels = load_qrels(write(tmp_path / "dev.tsv", "1048585\t0\t7187158\t1\n2\t0\t1048585\t0\n"))
    assert pairs(qrels) == [("1048585", "7187158", 1), ("2", "1048585", 0)]


@pytest.mark.parametrize("query", ["query_id", "query-id", "qid", "query"])
@pytest.mark.parametrize("item", ["gallery_id", "corpus-id", "doc_id", "docno", "docid", "gallery"])
@pytest.mark.parametrize("grade", ["grade", "score", "relevance", "rel"])
def test_columns_have_the_names_of_other_tools(tmp_path: Path, query: str, item: str, grade: str) -> None:
    rows = [f"{grade_},x,{name},{item_}" for name, item_, grade_ in PAIRS]
    text = "\n".join([f"{grade},note,{query},{item}", *rows]) + "\n"
    assert pairs(load_qrels(write(tmp_path / "q.csv", text))) == PAIRS


def test_the_first_of_several_names_counts(tmp_path: Path) -> None:
    text = "query,qid,docid,gallery_id,rel,score\nred shoes,1,9,a,0,3\n"
    assert pairs(load_qrels(write(tmp_path / "q.csv", text))) == [("1", "a", 3)]


def test_without_grades_every_pair_is_positive_and_levels_are_kept(tmp_path: Path) -> None:
    text = "query_id,gallery_id,level\nq,a,easy\nq,b,hard\nq,c,junk\nq,d,\n"
    qrels = load_qrels(write(tmp_path / "q.csv", text))
    assert qrels.grades.tolist() == [1, 1, 1, 1]
    assert qrels.levels == ("easy", "hard", "junk", "")


def test_json_lines_and_parquet_say_the_same(tmp_path: Path) -> None:
    rows = [{"query_id": query, "doc_id": item, "score": grade} for query, item, grade in PAIRS]
    rows[2]["query_id"] = 7  # an integer is its decimal text
    assert pairs(load_qrels(write(tmp_path / "q.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))) == PAIRS
    columns = dict(zip(("query_id", "gallery_id", "grade"), map(list, zip(*PAIRS, strict=True)), strict=True))
    pq.write_table(pa.table({**columns, "level": ["easy", None, "junk"]}), tmp_path / "q.parquet")
    qrels = load_qrels(tmp_path / "q.parquet")
    assert pairs(qrels) == PAIRS
    assert qrels.levels == ("easy", "", "junk")
    pq.write_table(pa.table({**columns, "grade": [2.0, 0.0, -1.0]}), tmp_path / "q.parquet")
    assert pairs(load_qrels(tmp_path / "q.parquet")) == PAIRS


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("q.tsv", "1\ta\t2\n3\tb\t2\n", "no column 'query_id' (or query-id, qid, query); columns found: '1', 'a', '2'"),
        ("q.csv", "qid,item\n1,a\n", "no column 'gallery_id' (or gallery-id, corpus_id, "),
        ("q.csv", "qid,docid,rel\n1,a,1\n2,b,\n", "line 3: rel is ''; write a whole number"),
        ("q.csv", "qid,docid\n1,a\n,b\n", "line 3: qid is empty"),
        ("q.csv", "qid,docid,level\n1,a,Easy\n", "line 2: the level is 'Easy'; write easy, hard, junk"),
        (
            "q.csv",
            "qid,docid,rel\n1,a,1\n1,b,1\n1,a,1\n",
            "line 4: the pair '1', 'a' is judged twice, here and at line 2",
        ),
        ("q.csv", "qid,docid\n", "no rows below the header"),
        ("q.csv", "", "the file is empty"),
        ("q.jsonl", '{"qid": 1.5, "docid": "a"}\n', "line 1: qid is 1.5 (float); ids are text or integers"),
        ("q.jsonl", '{"qid": 1, "docid": null}\n', "line 1: docid is empty"),
        ("q.jsonl", '{"qid": 1, "docid": "a", "rel": true}\n', "line 1: rel is True"),
        ("q.jsonl", '{"qid": 1, "docid": "a", "rel": 0.5}\n', "line 1: rel is 0.5"),
        ("q.jsonl", '{"qid": 1, "docid": "a", "level": 0}\n', "line 1: the level is 0"),
        ("q.jsonl", "[1]\n", "line 1 is no object"),
    ],
)
def test_a_fault_in_a_table_names_the_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    assert words in failure(write(tmp_path / name, text))
    if name == "q.tsv":
        assert failure(tmp_path / name).endswith("a TREC file without a header ends in .qrels or .txt")
