"""The printed report, to the letter; the record, strict and complete; text from outside that cannot break a line."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from recallatk.evaluation import evaluate_embeddings
from recallatk.report import Provenance, Report, report_from_record
from recallatk.types import EmbeddingSet, EvalProtocol, RecallatkError, Skipped
from recallatk.wording import one_line
from worlds import draw_world

QUERY = EmbeddingSet(
    [[1.0, 0], [0, 1], [3, 1], [1, 0], [1, 1]],
    list("abaxb"),
    ids=["q1", "q2", "q3", "q4", "q5"],
    groups={"camera": list("11222")},
)
GALLERY = EmbeddingSet(
    [[1.0, 0], [0, 2], [5, 0], [-1, 0]], list("abbc"), ids=["g1", "g2", "g3", "g4"], groups={"camera": list("2212")}
)

# q1 (1, 0) a: g1 and g3 are level, one of four is an a.         q2 (0, 1) b: g3 is of its camera and label, g2 first.
# q3 (3, 1) a: g1 is of its camera and label: nothing is left.   q4 (1, 0) x: there is no other x.
# q5 (1, 1) b: g2 is of its camera and label; g1 and g3 are level, one of three is a b.
EXPECTED = """\
[evaluation]
num queries: 5
num gallery: 4
embedding_dim: 2
[recall]
recall@1: 0.666667
recall@4: 1.000000
[excluded]
evaluated: 3
excluded (no positive): 2
every positive is of the query's camera and label (ignore_same=camera+label): 1 (e.g. q3, label 'a')
no gallery item shares its label: 1 (e.g. q4, label 'x')
[skipped]
skipped: 2
broken.png: cannot be decoded
gone.png: is not there
[metrics]
mrr: 0.833333
set_recall@1: 0.666667
[interval]
95 % cluster-robust t over 2 labels
recall@1: 0.000000 to 1.000000 (design effect 0.33, effective n 9.0; cut at 0 and 1)
recall@4: 0.438503 to 1.000000 (wilson, as if queries were independent: every query is a hit)
mrr: 0.127433 to 1.000000 (design effect 0.33, effective n 9.0; cut at 1)
set_recall@1: 0.000000 to 1.000000 (design effect 0.33, effective n 9.0; cut at 0 and 1)
[chance]
recall@1: 0.305556
recall@4: 1.000000
[ties]
rule: expected
recall@1: between 0.333333 and 1.000000
mrr: between 0.666667 and 1.000000
set_recall@1: between 0.333333 and 1.000000
queries that ties can move (some metric): 2
queries that near-ties can move (recall, within 1e-6): 2
[warnings]
- two files are missing
- recall@4: 2 of 3 queries have fewer than 4 gallery items left (as few as 3); all that are left were used
[signature]
{signature}
protocol id: {protocol_id}
run id: {run_id}"""


def full_report(**changes) -> Report:
    provenance = Provenance(
        encoder="tiny",
        preprocessing={"size": [8, 8]},
        skipped=(Skipped("broken.png", "cannot be decoded"), Skipped("gone.png", "is not there")),
        notes=("a note",),
        warnings=("two files are missing",),
        environment={"python": "3"},
    )
    return evaluate_embeddings(
        QUERY,
        GALLERY,
        protocol=EvalProtocol(ks=(1, 4), ignore_same="camera+label"),
        metrics=["mrr", "set_recall@1"],
        provenance=dataclasses.replace(provenance, **changes),
    )


def test_the_report_is_this_text():
    report = full_report()
    ids = {"protocol_id": report.signature.protocol_id, "run_id": report.signature.run_id}
    assert str(report) == report.text() == EXPECTED.format(signature=report.signature, **ids)
    assert str(report.signature).startswith("k:1,4|self:id|ign:camera+label|rel:label-")
    assert "|n:3|g:4|c:4|img:na|" in str(report.signature)


def test_without_anything_to_say_the_template_comes_first_and_alone():
    rows = np.random.default_rng(0).normal(size=(138, 1280)).astype(np.float32)
    report = evaluate_embeddings(EmbeddingSet(rows, np.arange(138) // 2))
    lines = str(report).splitlines()
    assert lines[:5] == ["[evaluation]", "num queries: 138", "num gallery: 138", "embedding_dim: 1280", "[recall]"]
    assert [line.split(":")[0] for line in lines[5:8]] == ["recall@1", "recall@5", "recall@10"]
    assert [line for line in lines if line.startswith("[")] == [
        "[evaluation]",
        "[recall]",
        "[interval]",
        "[chance]",
        "[signature]",
    ]
    assert all(len(line.split(": ")[1]) == 8 for line in lines[5:8])


def test_percent_is_only_another_way_to_print():
    report = full_report()
    plain, percent = report.text().splitlines(), report.text(percent=True).splitlines()
    assert len(plain) == len(percent)
    assert percent[5:7] == ["recall@1: 66.6667", "recall@4: 100.0000"]
    assert "recall@1: between 33.3333 and 100.0000" in percent
    differing = {a.split(":")[0] for a, b in zip(plain, percent, strict=True) if a != b}
    assert differing == {"recall@1", "recall@4", "mrr", "set_recall@1"}


def test_misses_are_named_as_such():
    report = evaluate_embeddings(QUERY, GALLERY, protocol=EvalProtocol(ks=(1,), no_positive="miss"))
    lines = str(report).splitlines()
    assert lines[lines.index("[excluded]") + 1 :][:2] == ["evaluated: 5", "counted as a miss (no positive): 1"]
    assert (report.num_evaluated, report.num_excluded) == (5, 0)


def test_a_long_list_of_skipped_files_is_cut_and_counted():
    skipped = tuple(Skipped(f"{i:03}.png", "broken") for i in range(123))
    lines = str(full_report(skipped=skipped)).splitlines()
    at = lines.index("[skipped]")
    assert lines[at + 1 : at + 3] == ["skipped: 123", "000.png: broken"]
    assert lines[at + 22] == "and 103 more; the record lists all"
    assert lines[at + 23] == "[metrics]"
    assert len(full_report(skipped=skipped).record()["provenance"]["skipped"]) == 123


def test_a_report_reads_like_a_dict():
    report = full_report()
    assert list(report) == ["recall@1", "recall@4", "mrr", "set_recall@1"]
    assert len(report) == 4
    assert dict(report)["recall@4"] == report["recall@4"] == 1.0
    assert report.recall == {1: report["recall@1"], 4: 1.0}
    assert "recall@7" not in report
    with pytest.raises(KeyError):
        report["recall@7"]
    assert repr(report) == "<Report recall@1=0.666667, recall@4=1.000000, mrr=0.833333, set_recall@1=0.666667, n=3>"


# The record


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_record_is_strict_json_and_gives_the_same_report():
    report = full_report()
    record = strict(report.to_json())
    again = report_from_record(record, report.queries)
    assert str(again) == str(report)
    assert again.to_json() == report.to_json()
    assert (again.protocol, again.signature, again.provenance) == (report.protocol, report.signature, report.provenance)
    assert again.values_by_metric == report.values_by_metric


def test_the_record_holds_json_values_only():
    assert full_report().record() == strict(full_report().to_json())
    numpy = {"rows": np.int64(3), "scale": np.float32(0.5), "size": np.array([8, 8]), "on": np.bool_(True), 1: (2,)}
    record = full_report(data=numpy).record()
    assert record == strict(full_report(data=numpy).to_json())
    assert record["provenance"]["data"] == {"rows": 3, "scale": 0.5, "size": [8, 8], "on": True, "1": [2]}
    given = EvalProtocol(ks=(np.int64(1),), min_grade=np.int64(2), radius=np.float32(3))
    made = dataclasses.asdict(given)
    assert [type(made[field]) for field in ("min_grade", "radius")] == [int, float]
    assert type(made["ks"][0]) is int


def test_any_report_survives_its_record():
    for seed in range(30):
        world = draw_world(seed, alone=bool(seed % 2), several=bool(seed // 2 % 2))
        try:
            report = evaluate_embeddings(world.query, world.gallery, metrics=["mrr", "precision@2"])
        except RecallatkError:
            continue
        assert str(report_from_record(strict(report.to_json()), {})) == str(report)


def test_the_record_holds_what_it_takes_to_check_the_number():
    record = full_report().record()
    assert record["schema"] == "recallatk.record/1"
    interval = record["metrics"]["recall@1"].pop("interval")
    assert (interval["low"], interval["high"], interval["clusters"]) == (0.0, 1.0, 2)
    assert record["intervals"] == {"ci": "cluster-t", "cluster": "label", "confidence": 0.95}
    assert record["metrics"]["recall@1"] == {
        **{"value": pytest.approx(2 / 3), "n": 3, "low": pytest.approx(1 / 3), "high": 1.0},
        **{"hits": 2.0, "hits_min": 1, "hits_max": 3, "chance": pytest.approx((1 / 4 + 1 / 3 + 1 / 3) / 3)},
    }
    assert set(record["metrics"]["mrr"]) == {"value", "n", "low", "high", "interval"}
    assert record["counts"] == {
        **{"num_queries": 5, "num_evaluated": 3, "num_excluded": 2, "num_gallery": 4, "num_labels": 4},
        **{"num_skipped": 2, "embedding_dim": 2, "tied_queries": 2, "near_tied_queries": 2},
    }
    lists = {"ks": [1, 4], "junk_labels": [], "distractor_labels": []}
    assert record["protocol"] == {**dataclasses.asdict(full_report().protocol), **lists}
    assert set(record["hashes"]) == {"lab", "labels", "rel", "emb", "res", "pre"}
    assert all(len(value) == 64 for value in record["hashes"].values())
    assert f"|lab:{record['hashes']['lab'][:12]}|" in record["signature"]
    assert record["provenance"]["notes"] == ["a note"]
    assert "protocol_id" in record
    assert "run_id" in record


@pytest.mark.parametrize("schema", [None, "recallatk.record/2", 1])
def test_another_schema_is_named(schema):
    record = {**full_report().record(), "schema": schema}
    with pytest.raises(RecallatkError, match=r"schema .*recallatk.record/1"):
        report_from_record(record, {})


# Row order


def shuffled(side: EmbeddingSet, seed: int) -> EmbeddingSet:
    return side.take(np.random.default_rng(seed).permutation(len(side)))


@pytest.mark.parametrize("alone", [False, True], ids=["two-sets", "leave-one-out"])
def test_row_order_changes_nothing_in_the_report(alone):
    compared = 0
    for seed in range(60):
        world = draw_world(seed, alone=alone, several=bool(seed // 2 % 2))
        if world.query.ids is None:
            continue
        protocol = EvalProtocol(
            average=("micro", "macro")[seed % 2], ignore_same=("none", "camera+label")[seed // 2 % 2]
        )
        try:
            report = evaluate_embeddings(world.query, world.gallery, protocol=protocol, metrics=["mrr", "set_recall@3"])
        except RecallatkError:
            continue
        query, gallery = shuffled(world.query, seed), world.gallery and shuffled(world.gallery, seed + 1)
        again = evaluate_embeddings(query, gallery, protocol=protocol, metrics=["mrr", "set_recall@3"])
        assert str(again) == str(report)
        assert again.record() == report.record()
        compared += 1
    assert compared > 25


@pytest.mark.parametrize("alone", [False, True], ids=["two-sets", "leave-one-out"])
def test_without_ids_row_order_changes_at_most_the_number_of_a_row(alone):
    compared = 0
    for seed in range(60):
        world = draw_world(seed, alone=alone, several=False)
        query, gallery = (
            side and dataclasses.replace(side, ids=None, same=None, content=None)
            for side in (world.query, world.gallery)
        )
        try:
            report = evaluate_embeddings(query, gallery)
        except RecallatkError:
            continue
        again = evaluate_embeddings(shuffled(query, seed), gallery and shuffled(gallery, seed + 1))
        nameless = ["\n".join(line for line in str(r).splitlines() if "(e.g. " not in line) for r in (report, again)]
        assert nameless[0] == nameless[1]
        if not report.without_positive:
            assert str(again) == str(report)
        compared += 1
    assert compared > 25


# Text from outside

HOSTILE = [
    *("a\nb", "a\rb", "a\r\n[recall]\nrecall@1: 1.000000", "\x1b[31mred\x1b[0m", "quote\"s and 's", "\u2028\u2029\x85"),
    *("\x00\x07\x7f", "\u202egpj.exe", "tab\there", "back\\slash", "\x9b31m"),
]


def hostile_report(text: str, **changes) -> Report:
    query = EmbeddingSet(
        np.eye(4)[[0, 1, 2, 2]],
        [f"x{text}", "b", "c", "c"],
        ids=[f"1{text}", "2", f"3{text}", "4"],
        groups={"camera": [text] * 4},
    )
    gallery = EmbeddingSet(
        np.eye(4)[[1, 2, 3]], ["b", "c", "c"], ids=["5", f"6{text}", "7"], groups={"camera": ["1", text, "2"]}
    )
    provenance = Provenance(skipped=(Skipped(text, text),), warnings=(text,), notes=(text,), encoder=text)
    return evaluate_embeddings(query, gallery, provenance=provenance, **changes)


@pytest.mark.parametrize("text", HOSTILE)
def test_names_cannot_break_a_line_or_talk_to_the_terminal(text):
    lines = hostile_report(text).text().split("\n")
    assert len(lines) == len(hostile_report("tame").text().split("\n"))
    assert all(line.isprintable() for line in lines)
    assert lines[5].startswith("recall@1: 1.0")
    record = strict(hostile_report(text).to_json())
    assert record["without_positive"][0]["example"] == f"1{text}"
    assert record["provenance"]["skipped"][0] == {"item": text, "reason": text}
    assert str(report_from_record(record, {})) == hostile_report(text).text()


def test_names_of_columns_cannot_break_a_line_either():
    for column in HOSTILE:
        rows = EmbeddingSet(np.eye(3)[[0, 0, 1, 1]], list("aabb"), groups={column: list("1123")})
        lines = str(evaluate_embeddings(rows, protocol=EvalProtocol(ignore_same=column))).split("\n")
        assert all(line.isprintable() for line in lines), column


def test_one_line_keeps_what_can_be_read():
    assert one_line("caf\u00e9 \u732b.png") == "caf\u00e9 \u732b.png"
    assert one_line("a\n\x1b\u2028") == "a\\n\\x1b\\u2028"
