"""Exports, held against the programs that read them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import sys

import numpy as np
import pyarrow as pa
import pytest
import pytrec_eval

from command_line import recallatk
from recallatk import (
    EmbeddingSet,
    EvalProtocol,
    Qrels,
    RecallatkError,
    compare,
    evaluate_embeddings,
    load_qrels,
    load_ranked_lists,
    load_report,
    nearest,
    save_run,
    score_lists,
    track,
)
from recallatk.exports import FORMATS, as_csv, as_latex, as_markdown, as_mteb, cut_ties, trec_ids, trec_qrels, trec_run
from recallatk.markup import count_formulas, escape_latex, make_csv
from recallatk.report import Provenance
from recallatk.run import EncodedDataset
from worlds import draw_world

HOSTILE = [
    "<script>alert(1)</script>",
    "a|b\"'&",
    "$x_1$ \\input{y}",
    "naïve 🙂",
    "\u202eright",
    "two\nlines",
    "=1+1",
    "a\rb",
]


def random_set(seed: int = 0, n: int = 80, *, spread: int = 0) -> EmbeddingSet:
    """Rows in general position, or few different ones (`spread`), where ties are everywhere."""
    rng = np.random.default_rng(seed)
    rows = (
        rng.integers(-spread, spread + 1, (n, 3)) + np.array([0, 0, 2 * spread]) if spread else rng.normal(size=(n, 6))
    )
    return EmbeddingSet(rows, [f"c{c}" for c in rng.integers(0, 9, n)], ids=[f"i{i}" for i in rng.permutation(n)])


def success(run_lines, qrels_lines, ks):
    """success@k of trec_eval itself."""
    run, qrels = {}, {}
    for line in run_lines:
        query, _, item, _, score, _ = line.split(" ")
        run.setdefault(query, {})[item] = float(score)
    for line in qrels_lines:
        query, _, item, grade = line.split(" ")
        qrels.setdefault(query, {})[item] = int(grade)
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {f"success.{','.join(map(str, ks))}"})
    found = evaluator.evaluate(run)
    return {k: np.mean([row[f"success_{k}"] for row in found.values()]) for k in ks}, len(found)


@pytest.mark.parametrize("alone", [True, False])
def test_trec_eval_finds_our_number_where_nothing_is_tied(alone):
    query, gallery = random_set(1), None if alone else random_set(2)
    protocol = EvalProtocol(ks=(1, 5, 10), exclude_self="id" if alone else "none")
    if gallery is not None:
        gallery = dataclasses.replace(gallery, ids=tuple(f"g{i}" for i in gallery.ids))
    report = evaluate_embeddings(query, gallery, protocol=protocol)
    assert report.tied_queries == 0
    lists = nearest(query, gallery, 10, protocol=protocol)
    found, n = success(trec_run(lists, query, gallery), trec_qrels(query, gallery, protocol=protocol), protocol.ks)
    assert n == report.num_evaluated
    assert found == pytest.approx(report.recall, abs=1e-12)


@pytest.mark.parametrize("length", [10, 13, 80])
@pytest.mark.parametrize("seed", range(6))
def test_under_ties_trec_eval_finds_the_pessimistic_number(seed, length):
    rows = random_set(seed, spread=1)
    protocol = EvalProtocol(ks=(1, 5, 10), ties="pessimistic")
    report = evaluate_embeddings(rows, protocol=protocol)
    assert report.tied_queries
    lists = nearest(rows, None, length, protocol=protocol)
    found, _ = success(trec_run(lists, rows), trec_qrels(rows, protocol=protocol), protocol.ks)
    cut = cut_ties(lists)
    for k in protocol.ks:
        assert found[k] <= report[f"recall@{k}"] + 1e-12
        if not cut.any():
            assert found[k] == pytest.approx(report[f"recall@{k}"], abs=1e-12)
    if length == 80:
        assert not cut.any()


def test_an_encoder_that_maps_everything_to_one_point_gains_nothing_in_trec():
    rows = EmbeddingSet(np.ones((40, 4)), ["a", "b"] * 20, ids=[f"i{i}" for i in range(40)])
    lists = nearest(rows, None, 10)
    found, _ = success(trec_run(lists, rows), trec_qrels(rows), (1, 10))
    assert cut_ties(lists).any()
    assert found == {1: 0, 10: 0}


def test_what_is_ignored_is_in_neither_file():
    for seed in range(10):
        world = draw_world(seed, alone=False, several=False)
        protocol = EvalProtocol(ignore_same="camera")
        ids, items = trec_ids(world.query, world.gallery)
        expected = [
            f"{ids[q]} 0 {items[g]} 1"
            for q, (positives, _) in enumerate(world.judge(protocol))
            for g in sorted(positives)
        ]
        assert list(trec_qrels(world.query, world.gallery, protocol=protocol)) == expected


def test_scores_are_whole_numbers_that_single_precision_keeps():
    rows = random_set()
    for line in trec_run(nearest(rows, None, 5), rows):
        _, q0, _, rank, score, tag = line.split(" ")
        assert (q0, tag, int(score)) == ("Q0", "recallatk", 6 - int(rank))
        assert float(np.float32(score)) == float(score)


def test_ids_with_white_space_stay_apart():
    query = EmbeddingSet(np.eye(2), ["a", "b"], ids=["two words", "two%20words"])
    gallery = EmbeddingSet(np.eye(2), ["a", "b"], ids=["#first", "tab\there"])
    ids, items = trec_ids(query, gallery)
    assert ids == ["two%20words", "two%2520words"]
    assert items == ["%23first", "tab%09here"]
    assert all(len(line.split()) == 6 for line in trec_run(nearest(query, gallery, 2), query, gallery))
    with pytest.raises(RecallatkError, match="without white space"):
        list(trec_run(nearest(query, gallery, 2), query, gallery, tag="my run"))


def test_grades_are_written():
    query, gallery = EmbeddingSet([[1.0, 0]], [()], ids=["q"]), EmbeddingSet(np.eye(2), [(), ()], ids=["x", "y"])
    qrels = Qrels(("q", "q"), ("x", "y"), np.array([3, 1]))
    protocol = EvalProtocol(relevance="qrels")
    assert list(trec_qrels(query, gallery, protocol=protocol, qrels=qrels)) == ["q 0 x 3", "q 0 y 1"]


def hostile_report():
    labels = [HOSTILE[i % len(HOSTILE)] for i in range(21)] + ["lone"]
    ids = [f"{HOSTILE[i % len(HOSTILE)]}{i}" for i in range(22)]
    return evaluate_embeddings(EmbeddingSet(np.random.default_rng(0).normal(size=(22, 4)), labels, ids=ids))


def test_csv_has_a_row_a_query_and_leaves_excluded_values_empty():
    report = hostile_report()
    rows = list(csv.DictReader(io.StringIO(as_csv(report))))
    assert [row["id"] for row in rows] == list(report.queries["id"])
    assert rows[-1]["recall@1"] == ""
    assert rows[-1]["has_positive"] == "False"
    kept = [float(row["recall@5"]) for row in rows[:-1]]
    assert np.mean(kept) == report["recall@5"]
    several = EmbeddingSet(np.eye(3)[[0, 0, 1]], [("a", "b|c"), ("a",), ()])
    cells = csv.DictReader(io.StringIO(as_csv(evaluate_embeddings(several))))
    assert [json.loads(row["label"]) for row in cells] == [["a", "b|c"], ["a"], []]


def test_a_carriage_return_stays_inside_its_cell():
    names = ["a\rb", "c\r", "\r"]
    labels = [name for name in names for _ in range(2)]
    rows = EmbeddingSet(np.eye(3)[[0, 0, 1, 1, 2, 2]], labels, ids=[*"abcdef"])
    reports = dict.fromkeys(names, evaluate_embeddings(rows))
    assert [row["label"] for row in csv.DictReader(io.StringIO(as_csv(reports["\r"]), newline=""))] == labels
    table = list(csv.DictReader(io.StringIO(compare(reports).csv(), newline="")))
    assert {row["system"] for row in table} == set(names)


def test_tables_hold_values_intervals_and_the_recipe():
    report = evaluate_embeddings(random_set())
    value = report.values_by_metric["recall@1"]
    shown = f"{value.value:.4f} [{value.interval.low:.4f}, {value.interval.high:.4f}]"
    markdown, latex = as_markdown({"a|b": report}), as_latex({"a_b": report})
    assert "a\\|b" in markdown
    assert shown.replace("[", "\\[").replace("]", "\\]") in markdown
    assert "a\\_b" in latex
    assert shown in latex
    for text in (markdown.replace("\\", ""), latex):
        assert str(report.signature) in text
        assert report.signature.protocol_id in text
        assert report.signature.run_id in text
    assert f"{100 * value.value:.2f}" in as_markdown({"a": report}, percent=True)


def test_a_table_of_runs_that_are_not_comparable_says_so():
    reports = {"a": evaluate_embeddings(random_set(1)), "b": evaluate_embeddings(random_set(2))}
    assert "protocol ids differ" in as_markdown(reports)
    assert "protocol ids differ" in as_latex(reports)
    assert "differ" not in as_markdown({"a": reports["a"], "b": reports["a"]})


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text_in_every_table(name):
    report = evaluate_embeddings(random_set())
    row, plain = (as_markdown({title: report}).splitlines()[2] for title in (name, "a"))
    assert len(re.findall(r"(?<!\\)\|", row)) == len(re.findall(r"(?<!\\)\|", plain))
    assert "<script" not in row.replace("\\<", "")
    latex = "\n".join(line for line in as_latex({name: report}).splitlines() if not line.startswith("%"))
    assert "\\input" not in latex
    assert "$x" not in latex.replace("\\$", "")
    assert sum(line.endswith(r"\\") for line in latex.splitlines()) == 2


@pytest.mark.parametrize("name", ["1. one", "2) two", "- x", "+ x", "---", "    code", "# h", "> q", "www.x.y"])
def test_a_name_in_front_of_a_note_is_no_markup(name):
    markdown = pytest.importorskip("markdown_it").MarkdownIt()
    shown = markdown.parse(as_markdown({name: evaluate_embeddings(random_set())}))
    kinds = {token.type for token in shown}
    assert kinds.isdisjoint({"ordered_list_open", "code_block", "heading_open", "blockquote_open", "hr"})
    assert sum(token.type == "list_item_open" for token in shown) == 2
    notes = [token.children for token in shown if token.type == "inline"][1:]
    assert all("".join(part.content for part in note).startswith(name.lstrip() + ": ") for note in notes)


def test_no_letters_of_a_name_become_one_in_latex():
    for text, escaped in {
        "a--b": "a-{}-b",
        "---": "-{}-{}-",
        "``x''": "`{}`x'{}'",
        "?`": "?{}`",
        "a-b": "a-b",
        "a|b": r"a\textbar{}b",
    }.items():
        assert escape_latex(text) == escaped


def test_mteb_has_a_language_as_its_means_are_over_languages():
    (scores,) = json.loads(as_mteb(evaluate_embeddings(random_set()), task="Photos"))["scores"]["test"]
    assert scores["languages"] == ["zxx-Zxxx"]


def test_mteb_names_our_recall_hit_rate():
    report = evaluate_embeddings(random_set(), metrics=["set_recall@5", "mrr", "map@10"])
    result = json.loads(as_mteb(report, task="Photos"))
    (scores,) = result["scores"]["test"]
    assert scores["hit_rate_at_5"] == report["recall@5"]
    assert scores["recall_at_5"] == report["set_recall@5"]
    assert "recall_at_1" not in scores
    assert scores["main_score"] == report["recall@1"]
    assert result["task_name"] == "Photos"
    assert "mrr" in result["recallatk"]["not_in_mteb"]
    assert result["recallatk"]["signature"] == str(report.signature)


def test_rows_are_an_arrow_table():
    report = hostile_report()
    table = report.to_arrow()
    assert isinstance(table, pa.Table)
    assert table.column_names == list(report.queries)
    assert table["recall@1"].null_count == report.num_excluded == 1
    assert table["id"].to_pylist() == list(report.queries["id"])


def test_pandas_and_polars_are_used_if_they_are_there(monkeypatch):
    report = hostile_report()
    pandas = pytest.importorskip("pandas")
    assert isinstance(report.to_pandas(), pandas.DataFrame)
    assert len(report.to_pandas()) == 22
    for module in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(RecallatkError, match=re.escape(f"pip install 'recallatk[{module}]'")):
            getattr(report, f"to_{module}")()


def test_a_notebook_shows_a_report_as_a_table_without_markup_from_outside():
    report = hostile_report()
    report = dataclasses.replace(report, warnings=(*report.warnings, *HOSTILE))
    shown = report._repr_html_()
    assert f"{report['recall@1']:.6f}" in shown
    assert str(report.signature).replace("'", "&#x27;") in shown
    assert "<script" not in shown
    assert "\u202e" not in shown
    assert "color" not in shown


def test_a_notebook_shows_comparisons_and_histories():
    rows = random_set()
    reports = {name: evaluate_embeddings(dataclasses.replace(rows, embeddings=rows.embeddings[:, :d]))
               for d, name in enumerate(HOSTILE[:3], 2)}  # fmt: skip
    for found in (compare(reports), track(reports)):
        shown = found._repr_html_()
        assert "&lt;script&gt;" in shown
        assert "<script" not in shown
        assert all(f"{report['recall@1']:.4f}" in shown for report in reports.values())


@pytest.fixture
def run(tmp_path):
    query, gallery = random_set(1), random_set(2)
    gallery = dataclasses.replace(gallery, ids=tuple(f"g/{i}" for i in gallery.ids))
    report = evaluate_embeddings(query, gallery)
    save_run(report, tmp_path / "run", embeddings=EncodedDataset(query, gallery, Provenance()))
    return tmp_path / "run"


@pytest.mark.parametrize(("suffix", "form"), [("md", "markdown"), ("tex", "latex"), ("csv", "csv"), ("json", "json")])
def test_the_suffix_names_the_form(run, tmp_path, suffix, form):
    file = tmp_path / f"out.{suffix}"
    done = recallatk("report", run, "-o", file)
    assert (done.code, done.out, done.err) == (0, "", f"wrote {file}\n")
    assert file.read_text("utf-8").rstrip("\n") == FORMATS[form]({"run": load_report(run)}, False).rstrip("\n")
    assert recallatk("report", run, "-o", file).code == 3
    assert recallatk("report", run, "-o", file, "--overwrite").code == 0


def test_lists_and_qrels_of_a_saved_run_give_its_number_again(run, tmp_path):
    lists, qrels = tmp_path / "a.run", tmp_path / "a.qrels"
    assert recallatk("report", run, "-o", lists, "--length", 160).code == 0
    assert recallatk("report", run, "-o", qrels).code == 0
    again = score_lists(load_ranked_lists(lists), qrels=load_qrels(qrels), protocol=EvalProtocol(relevance="qrels"))
    assert dict(again) == dict(load_report(run))


@pytest.fixture
def judged(tmp_path):
    """A run judged by qrels, whose file has moved since."""
    before, now = tmp_path / "before.qrels", tmp_path / "now.qrels"
    query = EmbeddingSet(np.random.default_rng(0).normal(size=(8, 4)), [()] * 8, ids=[f"q{i}" for i in range(8)])
    gallery = EmbeddingSet(np.random.default_rng(1).normal(size=(9, 4)), [()] * 9, ids=[f"g{i}" for i in range(9)])
    before.write_text("".join(f"q{i} 0 g{i} 1\n" for i in range(8)), "utf-8")
    report = evaluate_embeddings(
        query,
        gallery,
        protocol=EvalProtocol(relevance="qrels"),
        qrels=load_qrels(before),
        provenance=Provenance(data={"qrels": str(before)}),
    )
    save_run(report, tmp_path / "run", embeddings=EncodedDataset(query, gallery, Provenance()))
    before.rename(now)
    return tmp_path / "run", now


@pytest.mark.parametrize("form", ["trec-run", "trec-qrels", "html"])
def test_qrels_that_moved_are_named_and_have_to_be_those_of_the_run(judged, form, tmp_path):
    run, qrels = judged
    file = tmp_path / ("a.html" if form == "html" else "a.txt")
    done = recallatk("report", run, "--format", form, "-o", file, "--qrels", qrels)
    assert done.code == 0, done.err
    written = file.read_text("utf-8")
    assert "No neighbours" not in written
    if form == "trec-qrels":
        assert written == qrels.read_text("utf-8")
    other = tmp_path / "other.qrels"
    other.write_text(qrels.read_text("utf-8").replace("q3 0 g3", "q3 0 g4"), "utf-8")
    done = recallatk("report", run, "--format", form, "-o", file, "--overwrite", "--qrels", other)
    assert done.code == 3
    assert "these qrels are not those" in done.err
    assert file.read_text("utf-8") == written


def test_a_page_says_that_qrels_are_gone_or_others(judged, tmp_path):
    run, qrels = judged
    page = tmp_path / "a.html"
    for content, said in ((None, "name the qrels with --qrels FILE"), ("q1 0 g2 1\n", "these qrels are not those")):
        if content is not None:
            qrels.with_name("before.qrels").write_text(content, "utf-8")
        assert recallatk("report", run, "-o", page, "--overwrite").code == 0
        assert said in page.read_text("utf-8")


def test_csv_says_what_a_spreadsheet_would_run(tmp_path):
    save_run(hostile_report(), tmp_path / "run")
    done = recallatk("report", tmp_path / "run", "--format", "csv")
    assert "cells begin with = + - or @" in done.err
    assert "=1+1" in done.out  # as it is: other programs find rows by it
    save_run(evaluate_embeddings(random_set()), tmp_path / "tame")
    assert recallatk("report", tmp_path / "tame", "--format", "csv").err == ""


def test_formulas_are_counted_whatever_is_around_them():
    rows = [["a", '"=x'], ["=1,2", "x,=2"], ["\r-x", "-1e5"], ["-inf", "=\nq"], ["z" * 200_000, "@"]]
    assert count_formulas(make_csv(rows)) == 4


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["-o", "x.docx"], 2, ".docx names no form"),
        (["--format", "csv", "--qrels", "q.txt"], 2, "--qrels is for trec-run, trec-qrels and html, not for csv"),
        (["--format", "trec-run", "--length", "0"], 2, "k=0"),
        (["--name", "a", "--name", "b"], 2, "--name"),
        (["--overwrite"], 2, "--overwrite needs the file"),
    ],
)
def test_what_cannot_be_written_is_said_in_a_line(run, flags, code, message):
    done = recallatk("report", run, *flags)
    assert done.code == code
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not done.out


def test_lists_of_other_embeddings_than_those_evaluated_are_refused(run, tmp_path):
    file = next(run.glob("embeddings*query*.npy"))
    rows = np.load(file)
    np.save(file, rows[::-1])
    done = recallatk("report", run, "-o", tmp_path / "a.run")
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "the embeddings are no longer those that were evaluated" in done.err
    assert not (tmp_path / "a.run").exists()


def test_a_run_without_embeddings_says_how_to_keep_them(tmp_path):
    save_run(evaluate_embeddings(random_set()), tmp_path / "run")
    done = recallatk("report", tmp_path / "run", "--format", "trec-run")
    assert done.code == 3
    assert "--save-embeddings" in done.err
    assert recallatk("report", tmp_path / "run", "--format", "trec-qrels").code == 0
    assert recallatk("report").code == 2
    assert recallatk("report", tmp_path / "run", tmp_path / "run", "--format", "csv").code in (2, 3)
