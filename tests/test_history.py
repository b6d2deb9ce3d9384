"""history: runs over epochs in order, each against others, and nothing that failed or is missing goes unsaid."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from command_line import Result, recallatk
from recallatk import (
    EmbeddingSet,
    EvalProtocol,
    History,
    RecallatkError,
    Report,
    evaluate_embeddings,
    load_report,
    save_run,
    track,
)
from recallatk.history import expected_best
from recallatk.history.order import BY_TIME, missing_steps, order_runs
from recallatk.history.plot import plot_history
from recallatk.history.tables import sparkline
from recallatk.report import Provenance
from recallatk.run import load_runs
from recallatk.statistics import adjust_holm
from recallatk.types import ChoiceError, IntervalRule

PHOTOS = Path(__file__).parents[1] / "src" / "recallatk" / "assets" / "photos"
EPOCHS = """\
import hashlib
from functools import partial

import numpy as np


def noisy(noise, batch):
    rows = []
    for image in batch:
        row = np.asarray(image.resize((8, 8)), np.float32).ravel() / 255
        seed = int.from_bytes(hashlib.sha256(image.tobytes() + repr(noise).encode()).digest()[:4], "little")
        rows.append(row - row.mean() + noise * np.random.default_rng(seed).standard_normal(row.size))
    return np.stack(rows)


for number in range(1, 13):
    globals()[f"epoch_{number}"] = partial(noisy, 1 / number)


def epoch_7(batch):
    return np.full((len(batch), 2), np.nan)
"""
LABELS = np.repeat(list("abcdefghijkl"), 5)


def report(hits: np.ndarray | list[int], labels: np.ndarray = LABELS, **protocol: object) -> Report:
    """A run that hits just these queries: query and gallery item of one row are alike, or those of two labels."""
    codes = np.unique(labels, return_inverse=True)[1]
    aimed = np.where(np.asarray(hits, bool), codes, (codes + 1) % (codes.max() + 1))
    ids = [f"q{row:03}" for row in range(len(labels))]
    eye = np.eye(codes.max() + 1)
    gallery = EmbeddingSet(eye, sorted(set(labels)), ids=[f"g{label}" for label in sorted(set(labels))])
    return evaluate_embeddings(
        EmbeddingSet(eye[aimed], list(labels), ids=ids), gallery, protocol=EvalProtocol(ks=(1, 2), **protocol)
    )


def hits(share: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(len(LABELS)) < share


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve epochs but the fourth, on real photos; the seventh gives NaN, the ninth never finished."""
    folder = tmp_path_factory.mktemp("history")
    (folder / "series_of_epochs.py").write_text(EPOCHS, "utf-8")
    numbers = [number for number in range(1, 13) if number != 4]
    specs = [part for number in numbers for part in ("--encoder", f"series_of_epochs:epoch_{number}")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        result = recallatk("eval", PHOTOS, *specs, "-k", "1,5", "-o", folder / "runs", "--quiet", "--no-cache")
    assert result.code == 3
    assert "epoch_7" in result.err
    (folder / "runs" / "series_of_epochs_epoch_9" / "record.json").unlink()
    return folder / "runs"


@pytest.fixture(scope="module")
def printed(runs: Path) -> Result:
    return recallatk("history", runs)


def section(text: str, name: str) -> list[str]:
    after = text.split(f"[{name}]\n")[1].splitlines()
    end = next((row for row, line in enumerate(after) if line.startswith("[")), len(after))
    return after[:end]


# --- from the terminal


def test_epochs_come_in_natural_order_and_what_is_missing_or_failed_is_named(printed: Result) -> None:
    assert (printed.code, printed.err) == (0, "")
    rows = [line.split() for line in section(printed.out, "runs")[2:]]
    assert [row[0] for row in rows] == ["1", "2", "3", "5", "6", "7", "8", "9", "10", "11", "12"]
    assert [row[0] for row in rows if row[1] == "failed"] == ["7", "9"]
    failed = section(printed.out, "failed")
    assert failed[0].startswith("7: encoder series_of_epochs:epoch_7: ")
    assert "not finite" in failed[0]
    assert failed[1] == "9: no record.json: the run did not finish, or this is none"
    assert section(printed.out, "missing") == ["no run for step 4"]
    assert "recall@1 of 11 runs on 115 queries" in section(printed.out, "history")[0]
    assert section(printed.out, "history")[0].endswith("2 runs failed")


def test_the_bias_of_the_best_run_is_said_in_numbers(printed: Result) -> None:
    (bias, advice) = section(printed.out, "selection")
    assert bias.startswith(
        "the best of 9 equally good runs looks better than they are by 1.4850 standard errors; one is "
    )
    assert advice.startswith("choose the run on other queries")


def test_without_a_terminal_there_is_plain_text_and_without_unicode_digits(runs: Path, printed: Result) -> None:
    command = [sys.executable, "-c", "from recallatk.cli import main; main()", "history", str(runs)]
    done = subprocess.run(command, capture_output=True, check=True, env={"PYTHONIOENCODING": "ascii", **paths()})
    curve = section(printed.out, "history")[1].split()[0]
    digits = section(done.stdout.decode("ascii"), "history")[1].split()[0]
    assert b"\x1b" not in done.stdout
    assert len(curve) == len(digits) == 11
    assert digits == "".join("x" if block == "x" else str("▁▂▃▄▅▆▇█".index(block) + 1) for block in curve)


def paths() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(__file__).parents[1] / "src"), "PATH": ""}


def test_csv_and_json_hold_every_run_and_every_test(runs: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(recallatk("history", runs, "--format", "csv").out)))
    record = json.loads(recallatk("history", runs, "--format", "json").out)
    assert [row["step"] for row in rows] == [step["step"] for step in record["steps"]]
    assert record["missing"] == ["4"]
    for row, step in zip(rows, record["steps"], strict=True):
        known = step["value"] is not None
        assert known != bool(row["error"])
        assert known == bool(row["value"])
        if known:
            saved = load_report(runs / step["name"])
            assert float(row["value"]) == step["value"] == saved["recall@1"]
            assert step["finished"] == saved.provenance.environment["finished"]
        if step["first"]:
            assert float(row["first_p_value"]) == step["first"]["test"]["p_value"]


def test_markdown_and_latex_are_tables_and_failures_are_said_beside_them(runs: Path) -> None:
    markdown, latex = (recallatk("history", runs, "--format", form, "--percent") for form in ("markdown", "latex"))
    assert len(markdown.out.splitlines()) == 13
    assert markdown.out.startswith("| step ")
    assert latex.out.startswith("\\begin{tabular}")
    for result in (markdown, latex):
        assert "not finite" in result.err
        assert "no run for step 4" in result.err


def test_a_result_goes_into_a_file_and_is_not_written_over(runs: Path, tmp_path: Path) -> None:
    there = tmp_path / "curve.csv"
    first = recallatk("history", runs, "--format", "csv", "-o", there)
    assert (first.code, first.out) == (0, "")
    assert there.read_text("utf-8") == recallatk("history", runs, "--format", "csv").out
    again = recallatk("history", runs, "-o", there)
    assert (again.code, again.err) == (
        3,
        f"recallatk: {there}: there is a file already; name another, or use --overwrite\n",
    )
    assert recallatk("history", runs, "-o", there, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        ([], 2, "name a folder of runs"),
        (["nowhere"], 3, "nowhere: no such folder"),
        (["."], 3, "there is no run in it"),
        (["RUNS", "--metric", "mrr"], 2, "has no mrr"),
        (["RUNS", "--by", "("], 2, "is no regular expression"),
        (["RUNS", "--by", "step_(.*)"], 2, "finds no step in 'series_of_epochs_epoch_1'"),
        (["RUNS", "--by", "epoch"], 2, "one step, epoch"),
        (["RUNS", "--by", "(a)|(b)"], 2, "has 2 groups"),
        (["RUNS", "--plot", "curve.jpg"], 2, "a plot is a .png or .svg file"),
        (["RUNS", "--plot", "no/curve.png"], 3, "there is no folder"),
        (["RUNS", "RUNS"], 3, "named twice"),
        (["RUNS", "--cluster", "camera"], 2, "camera"),
    ],
)
def test_what_cannot_be_shown_is_one_clear_line(
    argv: list[str], code: int, words: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = recallatk("history", *[str(runs) if word == "RUNS" else word for word in argv])
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert words in result.err


def test_intervals_can_be_made_otherwise(runs: Path) -> None:
    assert "95 % cluster bootstrap" in recallatk("history", runs, "--ci", "cluster-bootstrap").out
    assert "90 % cluster-robust t over 13 labels" in recallatk("history", runs, "--confidence", "0.9").out
    without = recallatk("history", runs, "--ci", "none").out
    assert "interval" not in without.replace("there are no intervals", "")


# --- in Python: the numbers


def test_values_and_tests_are_those_of_scipy() -> None:
    made = {f"epoch_{n}": report(hits(0.4 + n / 20, seed=n)) for n in (1, 2, 3)}
    history = track(made)
    rows = [np.asarray(run.queries["recall@1"], float) for run in made.values()]
    sums = np.stack([[row[label == LABELS].sum() for label in sorted(set(LABELS))] for row in rows])
    p_values = []
    for step, row in zip(history.steps[1:], (1, 2), strict=True):
        difference = (sums[row] - sums[0])[sums[row] != sums[0]]
        expected = stats.permutation_test(
            (difference,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=False
        )
        assert step.first is not None
        assert step.first.test.p_value == pytest.approx(expected.pvalue, abs=1e-12)
        assert step.first.test.difference == pytest.approx(rows[row].mean() - rows[0].mean(), abs=1e-12)
        p_values.append(step.first.test.p_value)
    assert [step.first.p_holm for step in history.steps[1:] if step.first] == adjust_holm(p_values)
    assert [step.value for step in history.steps] == [run["recall@1"] for run in made.values()]
    assert [step.interval for step in history.steps] == [
        run.values_by_metric["recall@1"].interval for run in made.values()
    ]


def test_the_standard_error_between_runs_is_that_of_their_differences() -> None:
    history = track({f"epoch_{n}": report(hits(0.6, seed=n)) for n in (1, 2)})
    (change,) = (step.previous for step in history.steps if step.previous)
    assert history.selection is not None
    assert change.test.interval is not None
    assert history.selection.standard_error == pytest.approx(change.test.interval.standard_error / 2**0.5)
    assert history.selection.bias == pytest.approx(change.test.interval.standard_error / 2**0.5 / np.pi**0.5)


@pytest.mark.parametrize(
    ("m", "expected"), [(1, 0.0), (2, 1 / np.sqrt(np.pi)), (5, 1.163), (10, 1.5388), (20, 1.8675), (50, 2.2491)]
)
def test_the_mean_of_the_best_of_m(m: int, expected: float) -> None:
    assert expected_best(m) == pytest.approx(expected, abs=5e-5)


def test_the_best_of_many_grows_and_agrees_with_simulation() -> None:
    drawn = np.random.default_rng(0).standard_normal((20_000, 200)).max(axis=1)
    assert expected_best(200) == pytest.approx(drawn.mean(), abs=5 * drawn.std() / np.sqrt(len(drawn)))
    assert expected_best(200) < expected_best(10_000) < 5


def test_identical_runs_differ_in_nothing() -> None:
    one = report(hits(0.5))
    history = track({"epoch_1": one, "epoch_2": one, "epoch_3": one})
    assert history.best.name == "epoch_1"
    assert all(step.first.test.p_value == 1 for step in history.steps[1:] if step.first)
    text = history.text()
    assert "best: step 1, the first" in text
    assert "last: step 3, the same as the best for every query" in text
    assert "how much that is here is not known" in text
    assert "nan" not in text.lower()


@pytest.mark.parametrize("share", [0, 1])
def test_all_hit_and_all_miss(share: int) -> None:
    history = track({"epoch_1": report([share] * 60), "epoch_2": report([1 - share] * 60)})
    assert {step.value for step in history.steps} == {0.0, 1.0}
    (change,) = (step.first for step in history.steps if step.first)
    assert change.test.difference == 1 - 2 * share
    assert "nan" not in history.text().lower()


def test_too_few_labels_say_that_they_can_show_nothing() -> None:
    labels = np.repeat(list("abc"), 4)
    text = track({f"e{n}": report([n > 1] * 12, labels) for n in (1, 2)}).text()
    assert "no p below 0.25 after Holm is possible" in text
    assert "no more than 3 labels differ between two runs" in text
    assert "no difference shown, too little differs for the test to show one" in text


def test_a_sample_of_flips_gives_no_smaller_p_than_its_size() -> None:
    labels = np.array([f"l{row // 2:02}" for row in range(40)])
    runs = {f"e{n}": report([n > 1] * 39 + [0], labels) for n in (1, 2)}
    text = track(runs, intervals=IntervalRule(confidence=0.9999)).text()
    assert "1 test of 9,999 flips each: no p below 0.0002 after Holm is possible" in text


def test_what_stood_in_for_the_interval_that_was_asked_for_is_said() -> None:
    notes = section(track({"e1": report([0] * 60), "e2": report(hits(0.5))}).text(), "notes")
    assert notes[0] == "intervals: 95 % cluster-robust t over 12 labels"
    assert notes[1] == "step 1: 95 % wilson, every query on its own, as every query is a miss"
    labels = np.array([f"l{row:02}" for row in range(60)])
    notes = section(track({f"e{n}": report(hits(0.5, n), labels) for n in (1, 2)}).text(), "notes")
    assert notes[0] == "intervals: 95 % wilson, every query on its own, as no two queries have the same label"
    assert notes[1] == "intervals of changes: t over queries, as no two queries have the same label"
    assert notes[2].startswith("p: sign flips of queries, in the table")
    same = section(track({f"e{n}": report(hits(0.5)) for n in (1, 2)}).text(), "notes")
    assert "all runs are the same for every query" in same


def test_the_level_is_that_of_the_confidence_also_where_there_is_no_interval() -> None:
    """Every query has the same difference, so it has no interval, and p = 2 / 2^12 = 0.000488."""
    runs = {"e1": report([0] * 60), "e2": report([1] * 60)}
    assert "to show one" not in track(runs).text()
    assert "to show one" not in track(runs, intervals=IntervalRule(confidence=0.999)).text()
    assert "to show one" in track(runs, intervals=IntervalRule("none", confidence=0.9996)).text()


def test_one_run_has_nothing_to_be_held_against() -> None:
    history = track({"alone": report(hits(0.5))})
    assert history.selection is None
    assert "there is nothing to hold it against" in history.text()
    assert [step.step for step in history.steps] == ["alone"]


def test_a_failed_epoch_of_a_loop_is_an_exception_among_the_reports() -> None:
    history = track({"epoch_1": report(hits(0.5)), "epoch_2": ValueError("lost the GPU\nat step 3")})
    assert [step.error for step in history.failed] == ["lost the GPU\\nat step 3"]
    assert "1 run failed" in history.text()
    with pytest.raises(RecallatkError, match="no run can be put in a curve: epoch_1: gone"):
        track({"epoch_1": ValueError("gone")})
    with pytest.raises(RecallatkError, match="there are none"):
        track({})


def test_runs_on_other_data_are_not_put_in_one_curve_unless_forced() -> None:
    other = [label.replace("a", "z") for label in LABELS]
    other[7] = "c"
    made = {
        "epoch_1": report(hits(0.5)),
        "epoch_2": report(hits(0.6, 1)),
        "epoch_3": report(hits(0.7, 2), np.array(other)),
    }
    with pytest.raises(RecallatkError, match=r"epoch_1 and epoch_2 and epoch_3 are not comparable: .*labels differ"):
        track(made)
    history = track(made, force=True)
    assert history.notes[0].startswith("forced into one curve")
    assert any("labels differ" in note for note in history.notes)
    assert "forced into one curve" in history.text()


def test_forced_runs_with_other_queries_are_compared_on_the_common_ones() -> None:
    all_, fewer = report(hits(0.5)), report(hits(0.6, 1)[:50], LABELS[:50])
    history = track({"a": all_, "b": fewer}, force=True)
    assert {step.n for step in history.steps} == {50}
    assert history.steps[0].value == np.mean(hits(0.5)[:50])
    assert any("10 queries only in a" in note for note in history.notes)


def test_runs_without_ids_are_paired_by_row_only_when_forced() -> None:
    labels = list("aabbcc")
    rows = [np.random.default_rng(seed).standard_normal((6, 3)) for seed in (0, 1)]
    made = {f"epoch_{n}": evaluate_embeddings(EmbeddingSet(row, labels)) for n, row in enumerate(rows)}
    with pytest.raises(RecallatkError, match="have no ids"):
        track(made)
    assert track(made, force=True).notes[0].startswith("forced: there are no ids")


def test_other_protocols_and_metrics() -> None:
    macro = track({f"e{n}": report(hits(0.5, n), average="macro") for n in (1, 2)}, metric="recall@2")
    assert macro.metric == "recall@2"
    assert "nan" not in macro.text().lower()
    sampled = track({f"e{n}": report(hits(0.5, n)) for n in (1, 2)}, intervals=IntervalRule("cluster-bootstrap"))
    assert "cluster bootstrap" in sampled.text()
    single = track({f"e{n}": report(hits(0.5, n)) for n in (1, 2)}, intervals=IntervalRule("wilson"))
    assert "95 % wilson, every query on its own" in single.text()


def test_hostile_names_stay_in_their_cell() -> None:
    names = ["a|b\x1b[31m", "c\nd", "e & f_$x$", "[2pt]"]
    history = track({name: report(hits(0.5, seed)) for seed, name in enumerate(names)})
    for text in (history.text(), history.markdown(), history.latex(), history.csv()):
        assert "\x1b" not in text
        assert "c\nd" not in text
    assert "a\\|b" in history.markdown()
    assert r"e \& f\_\$x\$" in history.latex()
    assert "{}[2pt]" in history.latex()
    markup = track({name: report(hits(0.5, seed)) for seed, name in enumerate(["<b>x</b>", "`*y*`", "a--b|c"])})
    assert r"\<b\>x\</b\>" in markup.markdown()
    assert r"\`\*y\*\`" in markup.markdown()
    assert r"a-{}-b\textbar{}c" in markup.latex()
    assert len(list(csv.reader(io.StringIO(history.csv())))) == 5


# --- the order


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["e10", "e2", "e1"], ["1", "2", "10"]),
        (["epoch_10.pt", "epoch_2.5.pt", "epoch_2.pt"], ["2", "2.5", "10"]),
        (["v2_e3_s30", "v2_e1_s10", "v2_e2_s20"], ["1", "2", "3"]),
        (["s1_e3", "s1_e20", "s2_e10"], ["3", "10", "20"]),
        (["b", "a"], ["b", "a"]),
        (["e1", "e01"], ["e1", "e01"]),
        (["n-2024-02-01", "n-2024-01-31", "n-2024-01-30"], ["01-30", "01-31", "02-01"]),
        (
            ["20240131_110000", "20240130_120000", "20240130_90000"],
            ["20240130_90000", "20240130_120000", "20240131_110000"],
        ),
        (["v1.10.0", "v1.9.0"], ["9", "10"]),
        (["1.10.0", "1.9.2", "1.9.0"], ["9.0", "9.2", "10.0"]),
        (["rel_v1.10", "rel_v1.9", "rel_v1.1"], ["1", "9", "10"]),
    ],
)
def test_the_step_is_the_number_that_tells_names_apart(names: list[str], steps: list[str]) -> None:
    none = [None] * len(names)
    assert list(order_runs(names, none, none).steps) == steps


def test_without_numbers_encoders_and_then_time_decide() -> None:
    none = [None, None]
    assert order_runs(["x", "y"], ["m:e10", "m:e9"], none).rows == (1, 0)
    times = ["2026-02-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00"]
    found = order_runs(["b5e1", "a7f"], none, times)
    assert (found.rows, found.steps) == ((1, 0), ("a7f", "b5e1"))
    assert "time" in found.how
    assert order_runs(["b5e1", "a7f", "gone"], [None] * 3, [*times, None]).rows == (1, 0, 2)


def test_runs_in_the_order_of_time_show_it(tmp_path: Path) -> None:
    for place, (name, day) in enumerate({"b5e1": 2, "a7f": 1}.items()):
        environment = {"finished": f"2026-01-0{day}T12:30:00+00:00"}
        made = report(hits(0.5, place))
        save_run(dataclasses.replace(made, provenance=Provenance(environment=environment)), tmp_path / name)
    result = recallatk("history", tmp_path)
    rows = [line.split() for line in section(result.out, "runs")]
    assert rows[0][:2] == ["run", "finished"]
    assert [row[:2] for row in rows[2:]] == [["a7f", "2026-01-01T12:30:00"], ["b5e1", "2026-01-02T12:30:00"]]


def test_by_finds_the_step_in_the_name_or_in_the_encoder() -> None:
    assert order_runs(["r_10_x", "q_9_y"], [None, None], [None, None], by=r"_(\d+)_").steps == ("9", "10")
    assert order_runs(["x", "y"], ["e7", "e5"], [None, None], by=r"\d").steps == ("5", "7")
    with pytest.raises(ChoiceError, match="r1 and r01 one step, 01"):
        order_runs(["r1", "r01"], [None, None], [None, None], by=r"\d+")
    large = ["s1000001", "s1000000", "s20240131"]
    assert order_runs(large, [None] * 3, [None] * 3, by=r"\d+").steps == ("1000000", "1000001", "20240131")
    dates = order_runs(["a_2024-02-01", "b_2024-01-30"], [None, None], [None, None], by=r"[\d-]+")
    assert (dates.steps, dates.numbers) == (("2024-01-30", "2024-02-01"), ())
    assert order_runs(["e-3", "e3"], [None, None], [None, None], by=r"-?\d+").steps == ("-3", "3")
    assert order_runs(["9" * 400, "x1"], [None, None], [None, None], by=r"\d+").numbers == ()


def test_steps_that_are_no_numbers_come_in_the_order_of_time() -> None:
    times = ["2026-02-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00"]
    found = order_runs(["run-ab1", "run-7fe"], [None, None], times, by="-(.+)")
    assert (found.steps, found.how) == (("7fe", "ab1"), BY_TIME)
    assert order_runs(["run-ab1", "run-7fe"], [None, None], [None, None], by="-(.+)").how == "their names"


@pytest.mark.parametrize(
    ("numbers", "missing"),
    [
        ([1, 2, 3, 5], ("4",)),
        ([5, 10, 15, 30], ("20 to 25",)),
        ([1, 10, 100], ()),
        ([1, 2, 4, 6, 8], ()),
        ([1, 2, 10, 20, 30], ()),
        ([1, 2.5, 4], ()),
        ([3], ()),
        ([0, 1_000_000_000, 1_000_000_001], ("1 to 999999999",)),
    ],
)
def test_missing_steps_of_a_regular_series(numbers: list[float], missing: tuple[str, ...]) -> None:
    assert missing_steps(numbers) == missing


@pytest.mark.parametrize(
    ("values", "shown"), [([0.5], "▁"), ([0.5, 0.5], "▁▁"), ([0, None, 1], "▁x█"), ([None], "x"), ([], "")]
)
def test_the_curve_in_one_line(values: list[float | None], shown: str) -> None:
    assert sparkline(values) == shown


# --- on disk


def test_runs_of_one_name_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    for place in ("old", "new"):
        save_run(report(hits(0.5)), tmp_path / place / "run")
    assert list(load_runs([tmp_path / "old" / "run", tmp_path / "new"])) == ["old/run", "new/run"]


def test_a_damaged_run_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        save_run(report(hits(0.5, number)), tmp_path / f"epoch_{number}")
    (tmp_path / "epoch_2" / "queries.parquet").write_bytes(b"torn")
    (tmp_path / "epoch_3" / "failed.json").write_text("{", "utf-8")
    (tmp_path / "notes.txt").touch()
    (tmp_path / ".hidden").mkdir()
    history = track(load_runs([tmp_path]))
    assert [step.name for step in history.steps] == ["epoch_1", "epoch_2", "epoch_3"]
    assert history.failed[0].error.startswith("cannot be read: ")
    assert history.failed[1].error == "it failed, and failed.json cannot be read"


# --- the picture


@pytest.fixture(scope="module")
def history(runs: Path) -> History:
    return track(load_runs([runs]))


def test_the_plot_is_a_picture(history: History, tmp_path: Path) -> None:
    plot_history(history, tmp_path / "curve.png")
    with Image.open(tmp_path / "curve.png") as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape == (675, 1200, 3)
    colours = {tuple(colour) for colour in pixels.reshape(-1, 3)[::7].tolist()}
    assert {(31, 119, 180), (214, 39, 40)} <= {tuple(colour) for colour in pixels.reshape(-1, 3).tolist()}
    assert len(colours) > 20, "a curve, its band, and a mark for what failed"


def test_the_svg_is_the_same_each_time_and_knows_the_metric(history: History, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        plot_history(history, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert "recall@1" in (tmp_path / "a.svg").read_text("utf-8")


def test_a_plot_needs_no_pyplot_and_says_what_to_install(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; from recallatk.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: assert 'matplotlib.pyplot' not in sys.modules; print('no pyplot', file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "history", str(runs), "--plot", str(tmp_path / "c.png")]
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=paths())
    assert "no pyplot" in done.stderr
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = recallatk("history", runs, "--plot", tmp_path / "d.png")
    assert (result.code, result.out) == (3, "")
    assert "pip install 'recallatk[plot]'" in result.err


@pytest.mark.parametrize("names", [["$x_1$ & <b>", "y"], ["a" * 200, "b"], ["only"]])
def test_hostile_and_single_names_can_be_drawn(names: list[str], tmp_path: Path) -> None:
    found = track({name: report(hits(0.5, seed)) for seed, name in enumerate(names)})
    plot_history(found, tmp_path / "c.svg")
    ElementTree.parse(tmp_path / "c.svg")
