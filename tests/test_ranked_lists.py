"""Ranked lists: every format says the same, every fault names its line, and the values are those of trec_eval."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recallatk.datasets import load_qrels, load_ranked_lists
from recallatk.evaluation import evaluate_scores
from recallatk.run import score_lists
from recallatk.types import EvalProtocol, Qrels, RankedLists, RecallatkError, SampleSet

ENTRIES = [("q1", "b.jpg", 0.25), ("q1", "a.jpg", 1e-3), ("2", "é", -7.0)]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def entries(lists: RankedLists) -> list[tuple[str, str, float]]:
    return list(zip(lists.query_ids, lists.gallery_ids, lists.scores.tolist(), strict=True))


def failure(path: Path) -> str:
    with pytest.raises(RecallatkError) as error:
        load_ranked_lists(path)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", ["r.txt", "r.run", "r.trec", "run"])
def test_in_a_trec_run_the_score_decides_and_not_the_rank(tmp_path: Path, name: str) -> None:
    text = "# mine\n\nq1 Q0 b.jpg 2 0.25 tag\nq1\tQ0\ta.jpg\t1\t1e-3\ttag\r\n2 0 é 1 -7 t\n"
    assert entries(load_ranked_lists(write(tmp_path / name, text))) == ENTRIES


def test_tables_have_scores_or_ranks(tmp_path: Path) -> None:
    rows = "".join(f"{query},{item},{score},9\n" for query, item, score in ENTRIES)
    lists = load_ranked_lists(write(tmp_path / "r.csv", "qid,docid,score,rank\n" + rows))
    assert entries(lists) == ENTRIES
    lists = load_ranked_lists(write(tmp_path / "r.tsv", "query-id\tcorpus-id\trank\nq\ta\t1\nq\tb\t12\n"))
    assert entries(lists) == [("q", "a", -1.0), ("q", "b", -12.0)]
    text = "".join(json.dumps({"query_id": q, "gallery_id": g, "score": s}) + "\n" for q, g, s in ENTRIES)
    assert entries(load_ranked_lists(write(tmp_path / "r.jsonl", text))) == ENTRIES
    names = ("query", "gallery", "score")
    columns = dict(zip(names, map(list, zip(*ENTRIES, strict=True)), strict=True))
    pq.write_table(pa.table(columns), tmp_path / "r.parquet")
    assert entries(load_ranked_lists(tmp_path / "r.parquet")) == ENTRIES


def test_a_list_a_line_has_scores_or_is_in_order(tmp_path: Path) -> None:
    rows = [
        {"query_id": 1, "gallery_ids": ["b", "a", 3], "scores": [2, 0.5, 0.5]},
        {"query_id": "2", "gallery_ids": ["a", "b"]},
        {"query_id": "3", "gallery_ids": []},
    ]
    text = "\n".join(map(json.dumps, rows))
    for name in ("r.jsonl", "r.ndjson"):
        lists = load_ranked_lists(write(tmp_path / name, text))
        assert entries(lists) == [("1", "b", 2), ("1", "a", 0.5), ("1", "3", 0.5), ("2", "a", 0), ("2", "b", -1)]


NESTED = '{"query_id": "q", "gallery_ids": ["a", "b"]}\n'


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "r.txt",
            "q Q0 a 1 0.5 t\nq 0 a 1\n",
            "line 2 has 4 fields, not 6 (query id, Q0, gallery id, rank, score, tag)",
        ),
        ("r.txt", "q Q0 a 1 nan t\n", "line 1: the score is 'nan'; write a finite number"),
        ("r.txt", "q Q0 a 1 -inf t\n", "line 1: the score is '-inf'"),
        ("r.txt", "q Q0 a 1 1_0 t\n", "line 1: the score is '1_0'"),
        ("r.txt", "q Q0 a 1 0,5 t\n", "line 1: the score is '0,5'"),
        ("r.txt", "", "there are no ranked items in it"),
        ("r.jsonl", "\n", "there are no ranked items in it"),
        ("r.csv", "qid,docid\nq,a\n", "no column 'score' (or rank); columns found: 'qid', 'docid'"),
        ("r.csv", "qid,docid,rank\nq,a,1.5\n", "line 2: rank is '1.5'; write a whole number"),
        ("r.csv", "qid,docid,score\nq,a,1\nq,b,\n", "line 3: score is ''"),
        ("r.csv", "qid,docid,score\nq,,1\n", "line 2: docid is empty"),
        ("r.jsonl", '{"qid": "q", "docid": "a", "score": NaN}\n', "line 1: score is nan"),
        ("r.jsonl", NESTED + NESTED, "line 2: query 'q' has a list at line 1 already"),
        ("r.jsonl", NESTED + '{"query_id": "p", "gallery_ids": "a"}\n', "line 2: gallery_ids is 'a'; write a list"),
        ("r.jsonl", NESTED + '{"query_id": "p"}\n', "line 2: gallery_ids is None; write a list"),
        ("r.jsonl", NESTED + '{"gallery_ids": ["a"]}\n', "line 2: query_id is empty"),
        ("r.jsonl", NESTED[:-2] + ', "scores": [1]}\n', "line 1: 1 scores for 2 gallery_ids"),
        ("r.jsonl", NESTED[:-2] + ', "scores": [1, null]}\n', "line 1: a score is None"),
        ("r.jsonl", '{"query_id": "q", "gallery_ids": ["a", ""]}\n', "line 1: an id in gallery_ids is empty"),
    ],
)
def test_a_fault_names_the_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    assert words in failure(write(tmp_path / name, text))


# trec_eval

OURS = {
    "success_1": "recall@1",
    "success_5": "recall@5",
    "success_10": "recall@10",
    "recall_5": "set_recall@5",
    "recall_30": "set_recall@30",
    "P_5": "precision@5",
    "P_100": "precision@100",
    "map": "map",
    "map_cut_10": "map@10",
    "ndcg": "ndcg",
    "ndcg_cut_5": "ndcg@5",
    "ndcg_cut_20": "ndcg@20",
    "recip_rank": "mrr",
    "Rprec": "r_precision",
}


def trec_files(folder: Path, seed: int) -> tuple[Path, Path]:
    """A random run without ties, with lists of any length and none, and qrels with grades from -1 to 3."""
    rng = np.random.default_rng(seed)
    items = [f"d{number}" for number in rng.permutation(60)]
    judged, returned = [], []
    for query in range(25):
        chosen = rng.choice(items, size=int(rng.integers(1, 30)), replace=False)
        judged += [f"q{query} 0 {item} {rng.integers(-1, 4)}" for item in chosen]
        if query % 6 == 5:
            continue  # a query that the run does not know
        listed = rng.choice(items, size=int(rng.integers(1, 61)), replace=False)
        scores = rng.permutation(len(listed)) - 20.5
        returned += [f"q{query} Q0 {d} {rng.integers(99)} {s / 8} x" for d, s in zip(listed, scores, strict=True)]
    returned.append("stranger Q0 d1 1 1.0 x")
    return (
        write(folder / "run.trec", "\n".join(np.random.default_rng(seed).permutation(returned)) + "\n"),
        write(folder / "qrels.txt", "\n".join(judged) + "\n"),
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("min_grade", [1, 2])
def test_every_query_has_the_values_of_trec_eval(tmp_path: Path, seed: int, min_grade: int) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    run_file, qrels_file = trec_files(tmp_path, seed)
    wanted = {name.rsplit("_", 1)[0] if name[-1].isdigit() else name for name in OURS}
    if min_grade > 1:
        wanted -= {"ndcg", "ndcg_cut"}  # trec_eval takes its gains from every grade above 0, whatever the level
    with qrels_file.open() as judged, run_file.open() as returned:
        evaluator = pytrec_eval.RelevanceEvaluator(
            pytrec_eval.parse_qrel(judged),
            {f"{name}.{cuts_of(name)}" if cuts_of(name) else name for name in wanted},
            relevance_level=min_grade,
        )
        theirs = evaluator.evaluate(pytrec_eval.parse_run(returned))
    metrics = [ours for name, ours in OURS.items() if min_grade == 1 or not name.startswith("ndcg")]
    report = score_lists(
        load_ranked_lists(run_file),
        load_qrels(qrels_file),
        metrics=metrics,
        protocol=EvalProtocol(min_grade=min_grade),
    )
    columns = report.queries
    assert list(columns["id"]) == sorted(columns["id"])
    compared = missing = 0
    for row, query in enumerate(columns["id"]):
        for name, ours in OURS.items():
            if ours not in metrics:
                continue
            if not columns["has_positive"][row]:
                assert np.isnan(columns[ours][row])
                assert theirs.get(query, {}).get(name, 0) == 0
            elif query not in theirs:
                missing += 1
                assert columns[ours][row] == 0
            else:
                compared += 1
                assert columns[ours][row] == pytest.approx(theirs[query][name], abs=1e-9), (query, ours)
    assert compared > 200
    assert missing > 20
    assert any(warning.startswith("recall@10: ") and "truncated" in warning for warning in report.warnings)
    assert any("4 queries without a list (such as 'q11')" in warning for warning in report.warnings)
    assert any("there are lists of 1 query not evaluated (such as 'stranger')" in w for w in report.warnings)


def cuts_of(name: str) -> str:
    cuts = [known.rsplit("_", 1)[1] for known in OURS if known.rsplit("_", 1)[0] == name and known[-1].isdigit()]
    return ",".join(cuts)


def test_queries_without_a_list_are_in_the_mean(tmp_path: Path) -> None:
    qrels = Qrels(("p", "q"), ("a", "a"), np.array([1, 1]))
    report = score_lists(RankedLists(("q",), ("a",), np.array([1.0])), qrels)
    assert report["recall@1"] == 0.5
    assert (report.num_queries, report.num_evaluated, report.num_gallery) == (2, 2, 1)


def test_where_the_gallery_is_not_known_there_is_no_chance() -> None:
    lists, qrels = RankedLists(("q",), ("a",), np.array([1.0])), Qrels(("q",), ("a",), np.array([1]))
    report = score_lists(lists, qrels)
    assert "[chance]" not in str(report)
    assert "chance" not in report.record()["metrics"]["recall@1"]
    assert "the gallery itself is not known" in report.provenance.notes[0]
    sides = SampleSet(((),), ids=("q",), name="query"), SampleSet(((), ()), ids=("a", "b"), name="gallery")
    known = evaluate_scores(lists, *sides, qrels=qrels, protocol=EvalProtocol(relevance="qrels", ks=(1,)))
    assert "[chance]\nrecall@1: 0.500000" in str(known)
    again = score_lists(lists, qrels, query=sides[0], gallery=sides[1], protocol=known.protocol)
    assert again.signature == known.signature
    assert "[chance]" in str(again)


def test_an_item_of_the_querys_own_id_leaves_its_list_with_a_warning() -> None:
    lists = RankedLists(("1", "1"), ("1", "2"), np.array([2.0, 1.0]))
    qrels = Qrels(("1",), ("2",), np.array([1]))
    report = score_lists(lists, qrels)
    assert report["recall@1"] == 1.0
    assert any("1 query has an item of the same id (such as '1')" in warning for warning in report.warnings)
    kept = score_lists(lists, qrels, protocol=EvalProtocol(exclude_self="none"))
    assert kept["recall@1"] == 0.0
    assert not any("same id" in warning for warning in kept.warnings)


def test_lists_need_qrels_or_samples_and_samples_need_ids() -> None:
    lists = RankedLists(("0",), ("1",), np.array([1.0]))
    with pytest.raises(RecallatkError, match="nothing says who is relevant"):
        score_lists(lists)
    with pytest.raises(RecallatkError, match="query: ranked lists name rows by id, and these have no ids"):
        score_lists(lists, query=SampleSet(("a", "a"), name="query"))
