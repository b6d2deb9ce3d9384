"""The command line from end to end, on real files: what it prints and where, and its exit codes."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import COLOURS, COMMAND, ENCODERS, MEAN, Result, data, in_process_of_its_own, recallatk, save
from recallatk import RecallatkError, load_report
from recallatk.cli import app, main, printing
from recallatk.cli.flags import EMBEDDINGS_ONLY
from recallatk.datasets.tables import READERS
from recallatk.embeddings import FORMATS
from recallatk.types import EvalProtocol

__all__ = ["data"]  # a fixture is used by its name

TEMPLATE = """\
[evaluation]
num queries: 138
num gallery: 138
embedding_dim: 1280
[recall]
recall@1: 0.930435
recall@5: 0.991304
recall@10: 0.991304
[excluded]
evaluated: 115
"""


def files_in(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


# --- The demo --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo() -> Result:
    return in_process_of_its_own("demo")


def test_the_demo_prints_the_template_exactly(demo: Result) -> None:
    assert demo.code == 0
    assert demo.out.startswith(TEMPLATE)


def test_sections_come_after_the_template_in_the_documented_order(demo: Result) -> None:
    sections = re.findall(r"^\[(\w+)\]$", demo.out, re.MULTILINE)
    order = ["evaluation", "recall", "excluded", "skipped", "metrics", "interval", "chance", "ties", "warnings"]
    assert sections == [name for name in [*order, "signature"] if name in sections]


def test_standard_output_carries_the_result_and_notes_go_to_standard_error(demo: Result) -> None:
    assert "ICC profile ignored" in demo.err
    assert "ICC profile ignored" not in demo.out
    assert "\x1b" not in demo.out + demo.err


def test_quiet_silences_the_notes() -> None:
    loud, quiet = (recallatk("demo", "--encoder", "pixels", *flags) for flags in ([], ["--quiet"]))
    assert (loud.out, quiet.err) == (quiet.out, "")
    assert loud.err


def test_the_demo_without_onnxruntime_uses_hog_and_says_so() -> None:
    result = in_process_of_its_own("demo", before="sys.modules['onnxruntime'] = None")
    assert result.code == 0
    assert "embedding_dim: 1765\n" in result.out
    first = result.err.splitlines()[0]
    assert "hog" in first
    assert "pip install 'recallatk[onnx]'" in first


def test_an_encoder_whose_package_is_absent_names_the_pip_command(data: Path) -> None:
    result = in_process_of_its_own("eval", data, "--encoder", "lite0", before="sys.modules['onnxruntime'] = None")
    assert (result.code, result.out) == (3, "")
    assert result.err.count("\n") == 1
    assert "pip install 'recallatk[onnx]'" in result.err


# --- What is printed -------------------------------------------------------------------------------------------------


def test_a_folder_is_evaluated(data: Path) -> None:
    result = recallatk("eval", data, *MEAN, "-k", "1,2", "--no-cache")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(
        "[evaluation]\nnum queries: 3\nnum gallery: 4\nembedding_dim: 3\n"
        "[recall]\nrecall@1: 0.666667\nrecall@2: 1.000000\n"
    )


def test_json_is_strict_and_is_the_record(data: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    result = recallatk("eval", data, *MEAN, "-m", "mrr", "--json")
    record = json.loads(result.out, parse_constant=refuse)
    assert record["schema"] == "recallatk.record/1"
    assert record["metrics"]["recall@1"]["hits"] == 2
    assert record["metrics"]["mrr"]["value"] == pytest.approx(5 / 6)
    assert record["protocol"]["ks"] == [1, 5, 10]


def test_json_of_several_encoders_is_a_list(data: Path) -> None:
    result = recallatk("eval", data, *MEAN, "--encoder", "pixels", "--json")
    records = json.loads(result.out)
    assert [record["provenance"]["encoder"] for record in records] == ["tiny:mean_rgb", "pixels"]


def test_percent_is_printed_with_four_digits_in_all_sections(data: Path) -> None:
    result = recallatk("eval", data, *MEAN, "-k", "1", "-m", "mrr", "--percent")
    assert result.values() == {"recall@1": 66.6667, "mrr": 83.3333}
    assert "[chance]\nrecall@1: 33.3333\n" in result.out


def test_several_encoders_give_one_table_with_the_values_of_each_alone(data: Path) -> None:
    result = recallatk("eval", data, *MEAN, "--encoder", "pixels", "-k", "1", "2")
    header, _, *rows = (line.split() for line in result.out.splitlines())
    assert header == ["encoder", "recall@1", "recall@2", "evaluated", "excluded", "skipped", "dim", "run", "id"]
    for row, spec in zip(rows, ("tiny:mean_rgb", "pixels"), strict=True):
        alone = recallatk("eval", data, "--encoder", spec, "-k", "1", "2")
        run_id = alone.out.rstrip().rpartition(" ")[2]
        dim = re.findall(r"embedding_dim: (\d+)", alone.out)[0]
        ends = [map(float, pair) for pair in re.findall(r": (\S+) to (\S+)", alone.out)]
        intervals = [f"[{low:.3f}, {high:.3f}]".split() for low, high in ends]
        values = zip((f"{value:.6f}" for value in alone.values().values()), intervals, strict=True)
        cells = [word for value, interval in values for word in (value, *interval)]
        assert row == [spec, *cells, "3", "0", "0", dim, run_id]


def test_several_encoders_do_not_hide_what_was_skipped(data: Path) -> None:
    (data / "gallery" / "red" / "empty.png").touch()
    result = recallatk("eval", data, *MEAN, "--encoder", "pixels", "--on-error", "skip")
    assert result.code == 0
    assert "empty.png" in result.out + result.err


def test_several_encoders_do_not_hide_what_was_excluded(data: Path) -> None:
    save(data / "query" / "violet" / "a.png", (200, 0, 200))
    result = recallatk("eval", data, *MEAN, "--encoder", "pixels")
    assert result.code == 0
    assert re.search(r"excluded|no positive", result.out + result.err)


def test_warnings_beside_a_table_are_a_line_each(data: Path) -> None:
    copy = (data / "query" / "red" / "a.png").read_bytes()
    (data / "gallery" / "blue" / "two\nlines\x1b[31m.png").write_bytes(copy)
    result = recallatk("eval", data, *MEAN, "--encoder", "pixels", "-k", "1", "--no-cache")
    assert [line.partition(":")[0] for line in result.err.splitlines()] == ["tiny", "pixels"]
    assert "\x1b" not in result.err


def test_metrics_have_a_section_of_their_own(data: Path) -> None:
    result = recallatk("eval", data, *MEAN, "-k", "1", "-m", "set_recall@1", "--metric", "precision@1")
    assert "[metrics]\nset_recall@1: 0.500000\nprecision@1: 0.666667\n" in result.out


@pytest.mark.parametrize("command", ["info", "encoders", "datasets"])
def test_lists_are_printed_on_standard_output(command: str) -> None:
    result = recallatk(command)
    assert (result.code, result.err) == (0, "")
    expected = {"info": "backend in use: ", "encoders": "color-histogram", "datasets": "leave-one-out"}
    assert expected[command] in result.out


# --- Flags -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        ["-k", "1,2"],
        ["-k", "1", "2"],
        ["-k", "2,1", "2"],
        ["-k=1,2"],
        ["--ks", "1", "--ks", "2"],
        ["--ks=1,2"],
        ["--recall_values", "1", "2"],
        ["--recall-at", "1,2"],
        ["-k", "1,2", "--batch_size", "1"],
        ["-k", "1,2", "--batch-size", "3"],
        ["-k", "1,2", "--exclude_self", "id", "--no_positive=exclude"],
        ["-k", "1,2", "--memory", "2GB"],
        ["-k", "1,2", "--layout", "folder"],
        ["-k", "1,2", "--label-from", "regex:(red|green|blue)"],
        ["-k", "1,2", "--label_from", "regex:(?P<label>[a-z]+)/[ab].png$"],
    ],
)
def test_spellings_of_one_request_give_one_output(data: Path, flags: list[str]) -> None:
    assert recallatk("eval", data, *MEAN, *flags) == recallatk("eval", data, *MEAN, "--ks", "1", "--ks", "2")


def test_two_folders_are_given_with_the_names_of_other_tools(data: Path) -> None:
    together = recallatk("eval", data, *MEAN)
    for names in (("--queries-folder", "--gallery-folder"), ("--queries_folder", "--database_folder")):
        result = recallatk("eval", names[0], data / "query", names[1], data / "gallery", "--model", "tiny:mean_rgb")
        assert result == together


def test_one_folder_for_both_sides_is_leave_one_out(data: Path) -> None:
    folder = data / "gallery"
    twice = recallatk("eval", "--queries-folder", folder, "--gallery-folder", folder, *MEAN, "-k", "1")
    assert twice == recallatk("eval", folder, *MEAN, "-k", "1")
    assert "num queries: 4\nnum gallery: 4\n" in twice.out


def test_limit_says_that_it_is_a_sample(data: Path) -> None:
    result = recallatk("eval", data, *MEAN, "--limit", "2", "--seed", "3")
    assert "num queries: 2\nnum gallery: 2\n" in result.out
    assert "- a sample: 2 of 3 queries and 2 of 4 gallery images (seed 3)" in result.out
    assert "a sample" not in recallatk("eval", data, *MEAN, "--limit", "4").out


def test_files_that_cannot_be_read_are_skipped_and_named(data: Path) -> None:
    (data / "query" / "red" / "empty.png").touch()
    (data / "gallery" / "red" / "page.jpg").write_text("<html>", encoding="utf-8")
    assert recallatk("eval", data, *MEAN).code == 3
    result = recallatk("eval", data, *MEAN, "-k", "1,2", "--on-error", "skip")
    assert result.values() == {"recall@1": 0.666667, "recall@2": 1.0}
    assert "[skipped]\nskipped: 2\nquery/red/empty.png: " in result.out
    assert "\ngallery/red/page.jpg: " in result.out
    assert "num queries: 3\nnum gallery: 4\n" in result.out


def test_several_labels_and_groups_come_from_a_manifest(data: Path) -> None:
    rows = ["path,label,role,camera"]
    rows += [f"{name},{name.split('/')[1]}|any,{name.split('/')[0]},1" for name in COLOURS]
    Path("data/all.csv").write_text("\n".join(rows), encoding="utf-8")
    result = recallatk("eval", "data/all.csv", *MEAN, "-k", "1", "--label-separator", "|")
    assert result.values() == {"recall@1": 1.0}
    assert "rel:labels-" in result.out
    result = recallatk("eval", "data/all.csv", *MEAN, "--label-separator", "|", "--ignore-same", "camera")
    assert result.code == 3
    assert "camera" in result.err


def test_paths_are_handed_over_where_the_encoder_reads_files(data: Path) -> None:
    result = recallatk("eval", data, "--encoder", "tiny:of_paths", "--hand-over", "paths", "-k", "1")
    assert result.values()["recall@1"] == pytest.approx((1 + 2 * 1 / 3 + 1 / 3) / 3, abs=0.2)
    assert "pre:na" in result.out


def test_every_field_of_the_protocol_is_a_flag_and_reaches_the_record(data: Path) -> None:
    other = {
        "ks": [3],
        "exclude_self": "content",
        "ignore_same": "label",
        "relevance": "labels",
        "radius": 3.5,
        "min_grade": 2,
        "level": "none",
        "junk_labels": ["x"],
        "distractor_labels": ["y"],
        "no_positive": "miss",
        "ties": "pessimistic",
        "average": "macro",
        "similarity": "cosine",
    }
    assert other.keys() == {field.name for field in dataclasses.fields(EvalProtocol)}
    other["ignore_same"] = "none"  # with it, no query would keep a positive
    flags = [
        f"--{name.replace('_', '-')}={one}"
        for name, value in other.items()
        for one in (value if isinstance(value, list) else [value])
    ]
    result = recallatk("eval", data, *MEAN, *flags, "--json")
    assert json.loads(result.out)["protocol"] == other


@pytest.mark.parametrize("command", [name for name in app if not name.startswith("-")])
def test_every_command_and_every_flag_has_a_help_text(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = recallatk(command, "--help")
    assert (result.code, result.err) == (0, "")
    described = {}
    for line in result.out.splitlines():
        if row := re.match(r"│ (?:\* +)?(--[\w-]+|[A-Z]+)(?: [^ ]+)* {2,}(.*?) *│$", line):
            described[row[1]] = re.sub(r"\[(default|choices|required).*?\]", "", row[2]).strip()
    leaves = [argument for argument in app[command].assemble_argument_collection() if not argument.children]
    names = {argument.name for argument in leaves}
    assert described.keys() >= names
    assert [name for name in sorted(names) if len(described[name].split()) < 2 and name != "--similarity"] == []
    assert len(result.out.splitlines()[2].split()) > 3  # what the command does


@pytest.mark.parametrize("argv", [["--help"], ["eval", "--help"], ["demo", "--help"], ["--version"]])
def test_help_imports_nothing_slow(argv: list[str]) -> None:
    before = "import atexit\natexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))"
    result = in_process_of_its_own(*argv, before=before)
    assert result.code == 0
    loaded = set(result.err.split())
    assert "cyclopts" in loaded
    assert loaded & {"pyarrow", "PIL", "onnxruntime", "torch", "safetensors"} == set()


@pytest.mark.parametrize("argv", [["--version"], ["eval", "--version"]])
def test_the_version_is_ours(argv: list[str]) -> None:
    from importlib.metadata import version

    assert recallatk(*argv).out == version("recallatk") + "\n"


# --- Exit codes and errors -------------------------------------------------------------------------------------------

USAGE, DATA, EITHER = {2}, {3}, {2, 3}
ERRORS: list[tuple[set[int], list[str], list[str]]] = [
    (USAGE, ["surprise"], ["surprise", "eval"]),
    (USAGE, ["eval"], ["--encoder", "--query"]),
    (USAGE, ["eval", "data"], ["--encoder"]),
    (USAGE, ["eval", *MEAN], ["DATA"]),
    (USAGE, ["eval", "data", "more", *MEAN], ["more"]),
    (USAGE, ["eval", "data", *MEAN, "--surprise"], ["--surprise"]),
    (USAGE, ["eval", "data", *MEAN, "--ties", "surprise"], ["surprise", "--ties", "pessimistic"]),
    (USAGE, ["eval", "data", *MEAN, "-k", "0"], ["k=0"]),
    (USAGE, ["eval", "data", *MEAN, "-k", "-1"], ["k=-1"]),
    (USAGE, ["eval", "data", *MEAN, "-m", "surprise"], ["surprise", "set_recall"]),
    (USAGE, ["eval", "data", *MEAN, "--memory", "surprise"], ["surprise", "500MB"]),
    (USAGE, ["eval", "data", *MEAN, "--batch-size", "many"], ["many", "--batch-size"]),
    (USAGE, ["eval", "data", *MEAN, "--save-embeddings"], ["--save-embeddings", "--output"]),
    (USAGE, ["eval", "data", *MEAN, "--query", "q.npy"], ["--query"]),
    (USAGE, ["eval", "--gallery", "g.npy"], ["--query"]),
    (USAGE, ["eval", "--queries-folder", "data/query", *MEAN], ["--gallery-folder"]),
    (USAGE, ["eval", "data", *MEAN, *MEAN], ["tiny:mean_rgb", "more than once"]),
    (USAGE, ["eval", "data", *MEAN, "-k", "1,,5"], ["k=''", "not a cutoff"]),
    (USAGE, ["eval", "data", *MEAN, "--limit", "1.5"], ["--limit", "'1.5'", "whole number"]),
    (USAGE, ["eval", "data", *MEAN, "--min-grade", "1.5"], ["--min-grade", "'1.5'"]),
    (USAGE, ["embed", "data", *MEAN], ["--output"]),
    (DATA, ["eval", "nowhere", *MEAN], ["nowhere", "no such"]),
    (EITHER, ["eval", "data", "--encoder", "tiny:surprise"], ["surprise", "tiny"]),
    (EITHER, ["eval", "data", "--encoder", "surprise:x"], ["no module 'surprise'"]),
    (DATA, ["eval", "data", "--encoder", "tiny:one_row_too_few"], ["(6, 3)", "7 images"]),
    (DATA, ["eval", "data", "--encoder", "tiny:not_finite"], ["not finite", "query/"]),
    (DATA, ["eval", "data", *MEAN, "--ignore-same", "camera"], ["'camera'", "label"]),
    (DATA, ["eval", "data/query/red/a.png", *MEAN], ["a.png", ".csv"]),
    (DATA, ["eval", "data/query/red", *MEAN], ["a.png", "label"]),
    (DATA, ["eval", "--query", "nowhere.npy"], ["nowhere.npy"]),
    (DATA, ["eval", "--query", "data"], ["data"]),
    (EITHER, ["embed", "data", *MEAN, "-o", "x.pt"], [".pt", "refused"]),
    (EITHER, ["embed", "data", *MEAN, "-o", "nowhere/x.npy"], ["nowhere"]),
]


@pytest.mark.parametrize(("codes", "argv", "words"), ERRORS, ids=[" ".join(argv) for _, argv, _ in ERRORS])
def test_an_error_is_one_line_on_standard_error(data: Path, codes: set[int], argv: list[str], words: list[str]) -> None:
    result = recallatk(*argv)
    assert result.code in codes
    assert result.out == ""
    assert result.err.startswith("recallatk: ")
    assert result.err.count("\n") == 1
    assert [word for word in words if word not in result.err] == []


@pytest.mark.parametrize(
    "flags",
    [
        ["--encoder", "pixel"],
        [*MEAN, "--layout", "surprise"],
        [*MEAN, "--label-from", "surprise"],
        [*MEAN, "--limit", "0"],
        [*MEAN, "--limit", "1", "--seed", "-1"],
        [*MEAN, "--batch-size", "0"],
        [*MEAN, "--ignore-same", ""],
    ],
    ids=" ".join,
)
def test_a_flag_whose_value_does_not_exist_is_a_usage_error_whatever_the_data(data: Path, flags: list[str]) -> None:
    result = recallatk("eval", data, *flags)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("ks", [["1.5"], ["1", "2.5"], ["5."]], ids=" ".join)
def test_a_cutoff_that_is_no_whole_number_is_refused_not_rounded(data: Path, ks: list[str]) -> None:
    result = recallatk("eval", data, *MEAN, "-k", *ks)
    assert (result.code, result.out) == (2, "")
    assert ks[-1] in result.err


@pytest.mark.parametrize("flags", [["-k"], ["-k", "--quiet"], ["--ks="]], ids=" ".join)
def test_cutoffs_without_a_value_are_refused_not_replaced_by_the_default(data: Path, flags: list[str]) -> None:
    result = recallatk("eval", data, *MEAN, *flags)
    assert (result.code, result.out) == (2, "")


def test_a_cutoff_that_is_no_number_is_called_one(data: Path) -> None:
    result = recallatk("eval", data, *MEAN, "-k", "a")
    assert result.code == 2
    assert "-k" in result.err
    assert "'a'" in result.err


@pytest.mark.parametrize(
    "argv",
    [
        ["eval", "data", *MEAN, "-k", "1", "5", "ten"],
        ["eval", *MEAN, "--quiet", "data", "--recall_values", "1,5", "ten", "10"],
        ["eval", *MEAN, "-k", "1", "ten", "data"],
        ["score", "--run", "run.txt", "-k", "1", "ten"],
    ],
    ids=" ".join,
)
def test_a_word_among_cutoffs_is_called_one_where_it_cannot_be_data(data: Path, argv: list[str]) -> None:
    result = recallatk(*argv)
    assert (result.code, result.out) == (2, "")
    assert result.err == "recallatk: -k 'ten' is not a cutoff; every k must be a whole number of at least 1\n"


@pytest.mark.parametrize("between", [[], ["--"]], ids=["plain", "after --"])
def test_data_may_follow_cutoffs(data: Path, between: list[str]) -> None:
    result = recallatk("eval", *MEAN, "--quiet", "-k", "1", "2", *between, "data")
    assert result.values() == {"recall@1": 0.666667, "recall@2": 1.0}


@pytest.mark.parametrize("suffix", sorted(EMBEDDINGS_ONLY))
@pytest.mark.parametrize("encoder", [[], MEAN], ids=["alone", "with an encoder"])
def test_embeddings_in_the_place_of_data_are_sent_to_query(data: Path, suffix: str, encoder: list[str]) -> None:
    Path(f"photos{suffix}").touch()
    result = recallatk("eval", f"photos{suffix}", *encoder)
    assert (result.code, result.out) == (2, "")
    assert f"use --query photos{suffix}" in result.err
    assert {*FORMATS} - {*READERS} == EMBEDDINGS_ONLY


def test_a_cutoff_beyond_every_gallery_is_all_of_it(data: Path) -> None:
    result = recallatk("eval", data, *MEAN, "-k", "1", str(2**62))
    assert result.values() == {"recall@1": 0.666667, f"recall@{2**62}": 1.0}
    assert recallatk("eval", data, *MEAN, "-k", str(10**20)).code == 2


def test_a_fault_of_the_encoder_keeps_its_traceback_and_says_what_it_was_called_with(data: Path) -> None:
    result = in_process_of_its_own("eval", data, "--encoder", "tiny:breaks", cwd=Path.cwd())
    assert (result.code, result.out) == (1, "")
    assert "ValueError: a fault of its own" in result.err
    assert "a list of 7 images, the first of them query/" in result.err


def test_one_of_several_encoders_that_fails_is_named_and_the_others_are_kept(data: Path) -> None:
    specs = [part for spec in ("pixels", "tiny:not_finite", "hog") for part in ("--encoder", spec)]
    result = recallatk("eval", data, *specs, "-k", "1", "-o", "runs", "--no-cache")
    assert (result.code, len(re.findall("^recallatk: ", result.err, re.MULTILINE))) == (3, 1)
    assert [line.split()[0] for line in result.out.splitlines()[2:]] == ["pixels", "hog"]
    assert [load_report(f"runs/{name}").provenance.encoder for name in ("pixels", "hog")] == ["pixels", "hog"]
    assert files_in("runs/tiny_not_finite") == ["failed.json"]
    with pytest.raises(RecallatkError, match=r"runs/tiny_not_finite: this run failed: encoder .*not finite"):
        load_report("runs/tiny_not_finite")
    assert result.err.startswith("recallatk: encoder tiny:not_finite: query/")


def test_the_note_of_a_failed_run_goes_when_the_run_is_there_and_the_other_way_round(data: Path) -> None:
    failing, working = (
        ["eval", data, "--encoder", f"tiny:{name}", "-o", "run", "--no-cache"] for name in ("not_finite", "mean_rgb")
    )
    assert recallatk(*failing).code == 3
    assert files_in("run") == ["failed.json"]
    assert recallatk(*working).code == 0
    assert files_in("run") == ["queries.parquet", "record.json", "samples.parquet"]
    assert recallatk(*failing).code == 3
    assert files_in("run") == ["queries.parquet", "record.json", "samples.parquet"], (
        "nothing is lost without --overwrite"
    )
    assert recallatk(*failing, "--overwrite").code == 3
    assert files_in("run") == ["failed.json"], "the folder does not show an older run as this one"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("one image", ["every positive is the query itself", "a/0.png"]),
        ("no common label", ["no gallery item shares its label", "query/a/0.png"]),
        ("empty gallery", ["gallery", "no image"]),
        ("empty folder", ["no image"]),
    ],
)
def test_nothing_to_evaluate_is_an_error_with_the_reason_and_never_a_zero(
    data: Path, kind: str, words: list[str]
) -> None:
    folder = Path("sparse")
    if kind == "one image":
        save(folder / "a" / "0.png", (1, 2, 3))
    elif kind == "no common label":
        save(folder / "query" / "a" / "0.png", (1, 2, 3))
        save(folder / "gallery" / "b" / "0.png", (1, 2, 3))
    elif kind == "empty gallery":
        save(folder / "query" / "a" / "0.png", (1, 2, 3))
        (folder / "gallery").mkdir()
    else:
        folder.mkdir()
    result = recallatk("eval", folder, *MEAN)
    assert (result.code, result.out, result.err.count("\n")) == (3, "", 1)
    assert [word for word in words if word not in result.err] == []


@pytest.mark.parametrize("side", ["query", "gallery"])
def test_a_side_of_which_every_file_is_skipped_is_an_error_that_says_so(data: Path, side: str) -> None:
    for image in (data / side).rglob("*.png"):
        image.write_bytes(b"")
    result = recallatk("eval", data, *MEAN, "--on-error", "skip")
    assert (result.code, result.out, result.err.count("\n")) == (3, "", 1)
    assert side in result.err
    assert re.search(r"skipped|cannot be read", result.err)


def test_advice_is_given_once(data: Path) -> None:
    (data / "query" / "red" / "empty.png").touch()
    result = recallatk("eval", data, *MEAN)
    assert result.err.count("--on-error skip") == 1
    skipped = recallatk("eval", data, *MEAN, "--on-error", "skip")
    assert "--on-error skip" not in skipped.out, "what is skipped already need not be told how to skip it"


def test_a_class_of_one_image_is_excluded_and_counted(data: Path) -> None:
    result = recallatk("eval", data / "gallery", *MEAN, "-k", "1")
    assert "num queries: 4\n" in result.out
    assert "[excluded]\nevaluated: 2\nexcluded (no positive): 2\n" in result.out


# --- The protocol from a file ----------------------------------------------------------------------------------------


def test_the_protocol_comes_from_toml_and_flags_given_win(data: Path) -> None:
    Path("p.toml").write_text('[protocol]\nks = [1, 3]\nties = "pessimistic"\nno_positive = "miss"\n', encoding="utf-8")
    result = recallatk("eval", data, *MEAN, "--protocol", "p.toml", "--ties", "optimistic")
    assert "k:1,3|" in result.out
    assert "|nopos:miss|ties:optimistic|" in result.out
    Path("flat.toml").write_text("ks = 2\n", encoding="utf-8")
    assert "[recall]\nrecall@2: " in recallatk("eval", data, *MEAN, "--protocol", "flat.toml").out


def test_an_earlier_record_is_a_protocol(data: Path) -> None:
    first = recallatk("eval", data, *MEAN, "-k", "2", "--average", "macro", "--exclude-self", "content", "-o", "run")
    for source in ("run", "run/record.json"):
        assert recallatk("eval", data, *MEAN, "--protocol", source) == first
    won = recallatk("eval", data, *MEAN, "--protocol", "run", "-k", "1")
    assert won.values() == {"recall@1": 0.666667}
    assert "|self:content|" in won.out
    assert "|avg:macro|" in won.out


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("p.toml", "kss = [1]", ["p.toml", "'kss'", "exclude_self"]),
        ("p.toml", "", ["p.toml", "no protocol"]),
        ("p.toml", 'ks = [1]\n[protocol]\nties = "optimistic"', ["p.toml", "'ks' stands outside [protocol]"]),
        ("p.toml", "ks = [", ["p.toml"]),
        ("p.toml", 'ties = "surprise"', ["p.toml", "surprise", "pessimistic"]),
        ("p.toml", "protocol = 3", ["p.toml"]),
        ("p.toml", "ks = []", ["p.toml"]),
        ("p.toml", "ks = [1.5]", ["1.5"]),
        ("p.json", '{"protocol": ["ks"]}', ["p.json"]),
        ("p.json", "[]", ["p.json", "record"]),
        ("p.json", "{", ["p.json", "JSON"]),
        (None, "", ["p.toml"]),
    ],
)
def test_a_protocol_that_cannot_be_used_is_an_error_and_never_the_default(
    data: Path, name: str | None, text: str, words: list[str]
) -> None:
    if name is not None:
        Path(name).write_text(text, encoding="utf-8")
    result = recallatk("eval", data, *MEAN, "--protocol", name or "p.toml")
    assert result.code in (2, 3)
    assert (result.out, result.err.count("\n")) == ("", 1)
    assert [word for word in words if word not in result.err] == []


# --- Runs on disk ----------------------------------------------------------------------------------------------------


def test_output_writes_a_run_and_prints_the_same(data: Path) -> None:
    result = recallatk("eval", data, *MEAN, "-k", "1", "-o", "runs/first")
    assert result == recallatk("eval", data, *MEAN, "-k", "1")
    assert files_in("runs/first") == ["queries.parquet", "record.json", "samples.parquet"]
    assert load_report(Path("runs/first")).text() + "\n" == result.out


def test_an_earlier_run_is_not_overwritten_unless_asked(data: Path) -> None:
    recallatk("eval", data, *MEAN, "-k", "1", "-o", "run")
    again = recallatk("eval", data, *MEAN, "-k", "2", "-o", "run")
    assert (again.code, again.out, again.err.count("\n")) == (3, "", 1)
    assert "--overwrite" in again.err
    assert list(load_report(Path("run"))) == ["recall@1"]
    assert recallatk("eval", data, *MEAN, "-k", "2", "-o", "run", "--overwrite").code == 0
    assert list(load_report(Path("run"))) == ["recall@2"]


def test_saved_embeddings_give_the_same_report_again(data: Path) -> None:
    first = recallatk("eval", data, *MEAN, "-o", "run", "--save-embeddings")
    again = recallatk("eval", "--query", "run/embeddings-query.npy", "--gallery", "run/embeddings-gallery.npy")
    assert again == first


def test_overwriting_a_run_leaves_no_embeddings_of_the_old_one_behind(data: Path) -> None:
    recallatk("eval", data, *MEAN, "-o", "run", "--save-embeddings")
    recallatk("eval", data, "--encoder", "pixels", "-o", "run", "--overwrite")
    assert files_in("run") == ["queries.parquet", "record.json", "samples.parquet"]


def test_a_run_that_is_in_the_way_of_the_second_encoder_is_found_before_the_first_one_runs(data: Path) -> None:
    recallatk("eval", data, "--encoder", "pixels", "-o", "runs/pixels")
    result = recallatk("eval", data, *MEAN, "--encoder", "pixels", "-o", "runs")
    assert (result.code, result.err.count("\n")) == (3, 1)
    assert files_in("runs") == ["pixels"]


@pytest.mark.parametrize("target", ["a_file", "a_file/below"])
@pytest.mark.parametrize("encoders", [MEAN, (*MEAN, "--encoder", "pixels")], ids=["one", "several"])
def test_a_run_that_cannot_be_written_there_is_refused_in_one_line(
    data: Path, target: str, encoders: Sequence[str]
) -> None:
    Path("a_file").touch()
    result = recallatk("eval", data, *encoders, "-o", target)
    assert (result.code, result.out, result.err.count("\n")) == (3, "", 1)
    assert "a_file" in result.err


@pytest.mark.skipif(sys.platform == "win32", reason="a colon names a drive there")
@pytest.mark.parametrize("target", ["s p ä#é%20", "exp:1", "C:run"])
def test_a_run_can_have_any_name_that_a_folder_can_have(data: Path, target: str) -> None:
    assert recallatk("eval", data, *MEAN, "-k", "1", "-o", target, "--save-embeddings").code == 0
    assert load_report(Path(target))["recall@1"] == pytest.approx(2 / 3)


# --- Embeddings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", FORMATS)
def test_embed_then_eval_gives_the_report_of_eval_in_every_format(data: Path, suffix: str) -> None:
    if suffix == ".safetensors":
        pytest.importorskip("safetensors")
    result = recallatk("embed", data, "--encoder", "pixels", "-o", f"e{suffix}", "--no-cache")
    assert (result.code, result.out) == (0, f"e-query{suffix}\ne-gallery{suffix}\n")
    again = recallatk("eval", "--query", f"e-query{suffix}", "--gallery", f"e-gallery{suffix}")
    direct = recallatk("eval", data, "--encoder", "pixels", "--no-cache")
    parts = dict(part.split(":", 1) for part in re.findall(r"^k:.*$", again.out, re.MULTILINE)[0].split("|"))
    assert all(parts[part] != "na" for part in ("pre", "w", "emb", "img"))
    assert again == direct


def test_embed_writes_over_a_file_only_when_asked(data: Path) -> None:
    words = ("embed", data, *MEAN, "-o", "e.npy")
    assert recallatk(*words).code == 0
    before = Path("e-gallery.npy").stat().st_mtime_ns
    refused = recallatk(*words)
    assert (refused.code, refused.out, refused.err.count("\n")) == (3, "", 1)
    assert "e-query.npy" in refused.err
    assert "--overwrite" in refused.err
    assert Path("e-gallery.npy").stat().st_mtime_ns == before
    assert recallatk(*words, "--overwrite").code == 0


def test_what_embed_left_out_and_noticed_is_said_by_it_and_by_a_later_eval(data: Path) -> None:
    (data / "query" / "red" / "empty.png").touch()
    flags = ("--on-error", "skip", "--limit", "3")
    embedded = recallatk("embed", data, *MEAN, *flags, "-o", "e.npz")
    assert "a sample: 3 of 4 queries" in embedded.err
    later = recallatk("eval", "--query", "e-query.npz", "--gallery", "e-gallery.npz")
    assert "- a sample: 3 of 4 queries and 3 of 4 gallery images" in later.out
    assert later == recallatk("eval", data, *MEAN, *flags)
    assert ("[skipped]\nskipped: 1\nquery/red/empty.png: " in later.out) == ("empty.png" in embedded.err)


def test_the_package_is_a_command_too(data: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "recallatk", "eval", data, *MEAN, "-k", "1"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, recallatk("eval", data, *MEAN, "-k", "1").out)


def test_notes_name_the_encoder_where_there_are_several(data: Path) -> None:
    Image.new("L", (8, 8), 200).save(data / "gallery" / "red" / "grey.png")
    alone = recallatk("eval", data, *MEAN, "-k", "1", "--no-cache")
    assert alone.err == "1 image: greyscale converted\n"
    both = recallatk("eval", data, *MEAN, "--encoder", "pixels", "-k", "1", "--no-cache")
    assert both.err.splitlines() == [f"{spec}: {alone.err.strip()}" for spec in ("tiny:mean_rgb", "pixels")]


def test_one_file_on_both_sides_is_leave_one_out(data: Path) -> None:
    recallatk("embed", data / "gallery", *MEAN, "-o", "e.npy")
    Path("link.npy").symlink_to("e.npy")
    Path("link.samples.parquet").symlink_to("e.samples.parquet")
    direct = recallatk("eval", data / "gallery", *MEAN)
    for gallery in ([], ["--gallery", "./e.npy"], ["--gallery", "link.npy"]):
        assert recallatk("eval", "--query", "e.npy", *gallery) == direct


def test_a_bare_array_takes_labels_from_a_file(data: Path) -> None:
    np.save("q.npy", np.eye(2))
    np.save("g.npy", np.eye(2) + 0.1)
    Path("labels.txt").write_text("a\nb\n", encoding="utf-8")
    missing = recallatk("eval", "--query", "q.npy", "--gallery", "g.npy")
    assert (missing.code, missing.err.count("\n")) == (3, 1)
    assert "--query-labels" in missing.err
    labels = ["--query-labels", "labels.txt", "--gallery-labels", "labels.txt"]
    assert recallatk("eval", "--query", "q.npy", "--gallery", "g.npy", *labels, "-k", "1").values() == {"recall@1": 1}


def test_embeddings_of_two_encoders_are_warned_of(data: Path) -> None:
    text = ENCODERS + "\n\ndef other(batch):\n    return mean_rgb(batch)\n"
    Path("tiny.py").write_text(text, encoding="utf-8")
    recallatk("embed", data / "query", "--encoder", "tiny:mean_rgb", "-o", "q.npy")
    recallatk("embed", data / "gallery", "--encoder", "tiny:other", "-o", "g.npy")
    result = recallatk("eval", "--query", "q.npy", "--gallery", "g.npy")
    assert "query and gallery embeddings differ in encoder: 'tiny:mean_rgb' and 'tiny:other'" in result.out


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_narrow_terminal_gets_several_tables_and_every_number_whole(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    header = ("encoder", "recall@1", "recall@5", "recall@10", "run id")
    row = ("lite0", "0.930435 [0.886, 0.975]", "0.991304 [0.975, 1.000]", "0.991304 [0.976, 1.000]", "b2888833b26a")
    printing.print_table(header, [row], keys=1)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert all(cell in shown for cell in (*header, *row))
    assert max(map(len, shown.splitlines())) <= columns


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize("command", ["metrics", "--help", "demo --quiet"])
def test_where_the_output_finds_no_room_is_one_line(command):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, *command.split()], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    said = "standard output, or a file, cannot be written (No space left on device)"
    assert (done.returncode, done.stderr) == (3, f"recallatk: {said}; make room, and run the command again\n")


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_that_there_is_no_room_is_told_also_where_a_condition_is_not_met(tmp_path):
    np.save(tmp_path / "rows.npy", np.array([[1, 0], [0, 1], [1, 0.1], [0.1, 1]]))
    (tmp_path / "labels.txt").write_text("a\nb\nb\na\n")
    command = [*COMMAND, "eval", "--query", "rows.npy", "--query-labels", "labels.txt", "--min", "recall@1=0.9"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path, env=BUFFERED
        )
    assert done.returncode == 3
    assert "cannot be written (No space left on device); make room, and run the command again\n" in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes it")
@pytest.mark.parametrize(("command", "code"), [("metrics", 0), ("eval --query nofile.npy", 3)])
def test_a_standard_output_that_is_closed_is_no_error(command, code):
    line = f'"$@" {command} >&-'
    done = subprocess.run(["sh", "-c", line, "sh", *COMMAND], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


def test_a_broken_disk_is_not_a_full_one(monkeypatch, capsys):
    def read(*_, **__):
        raise OSError(errno.EIO, "Input/output error", "rows.npy")

    monkeypatch.setattr("recallatk.cli.app", read)
    monkeypatch.setattr("recallatk.cli.printing.forget_output", lambda: None)
    with pytest.raises(SystemExit) as end:
        main(["metrics"])
    assert end.value.code == 3
    assert capsys.readouterr().err == (
        "recallatk: rows.npy cannot be read or written (Input/output error); look after that disk, and run the command "
        "again\n"
    )
