"""gate: exact at the border, comparable or an error, and honest about noise."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from command_line import Result, recallatk
from recallatk import (
    EvalProtocol,
    RecallatkError,
    Report,
    check_gate,
    evaluate_scores,
    load_report,
    plan,
    save_run,
    track,
)
from recallatk.types import ChoiceError, SampleSet
from test_history import LABELS, report

PHOTOS = Path(__file__).parents[1] / "src" / "recallatk" / "assets" / "photos"
PIXELS, HISTOGRAM = 51, 48
"""What pixels and color-histogram hit of the 115 queries of the photos at 1."""


def first(hits: int, n: int = 60) -> Report:
    """A run that hits the first queries."""
    labels = np.resize(LABELS, n) if n != 60 else LABELS
    return report([row < hits for row in range(n)], labels)


def lines(result: Result) -> list[str]:
    return [line.split(":")[0] for line in result.out.splitlines()]


# --- the border


@pytest.mark.parametrize(("hits", "n"), [(48, 60), (12, 15), (80, 100), (8, 10)])
@pytest.mark.parametrize("limit", ["0.80", "0.8", 0.8, "8e-1", " .8"])
def test_a_share_of_hits_that_is_the_limit_passes(hits: int, n: int, limit: str | float) -> None:
    run = first(hits, n)
    (at,) = check_gate(run, minimum={"recall@1": limit})
    assert (at.passed, at.short) == (True, 0.0)
    assert "exactly the 0.80 asked for" in at.line


@pytest.mark.parametrize("n", [7, 30, 49, 60, 93])
def test_every_border_is_exact(n: int) -> None:
    run = first(n // 3, n)
    value = run["recall@1"]
    assert check_gate(run, minimum={"recall@1": f"{value:.17f}"[:14]})[0].passed, "rounded down"
    (above,) = check_gate(run, minimum={"recall@1": f"{value + 1e-9:.12f}"})
    assert not above.passed
    assert above.short == pytest.approx(1e-9, abs=1e-11)


@pytest.mark.parametrize(
    ("before", "after", "most"), [(48, 42, "0.1"), (45, 42, "0.05"), (60, 54, "0.10"), (6, 0, 0.1)]
)
def test_a_drop_that_is_what_is_allowed_passes_and_one_query_more_does_not(
    before: int, after: int, most: str | float
) -> None:
    base = first(before)
    (at,) = check_gate(first(after), max_drop=[("base", base, most)])
    assert (at.passed, at.short) == (True, 0.0)
    assert f"exactly the {float(most):.2f} allowed" in at.line
    if after:
        (below,) = check_gate(first(after - 1), max_drop=[("base", base, most)])
        assert (below.passed, below.short) == (False, pytest.approx(1 / 60))


def test_shares_of_hits_under_ties_and_means_over_labels_are_exact_enough() -> None:
    tied = evaluate_scores(
        np.zeros((3, 3)), SampleSet(["a"] * 3), SampleSet(["a", "b", "c"]), protocol=EvalProtocol(ks=1)
    )
    assert tied["recall@1"] == pytest.approx(1 / 3)
    assert check_gate(tied, minimum={"recall@1": "0.333333333333"})[0].passed
    assert not check_gate(tied, minimum={"recall@1": "0.3333333334"})[0].passed
    macro = report([row % 5 < 4 for row in range(60)], average="macro")
    (at,) = check_gate(macro, minimum={"recall@1": 0.8}, max_drop=[])
    assert (at.passed, at.short) == (True, 0.0)


def test_a_miss_by_less_than_is_printed_is_not_printed_as_nothing() -> None:
    (below,) = check_gate(first(20), minimum={"recall@1": "0.3333334"})
    assert below.line.startswith("failed: recall@1 is 0.333333, 6.7e-08 below the 0.3333334 asked for")
    (above,) = check_gate(first(20), minimum={"recall@1": "0.3333333"})
    assert above.line.startswith("passed: recall@1 is 0.333333, 3.3e-08 above the 0.3333333 asked for")


# --- what it says of noise


def test_a_drop_within_noise_fails_unless_only_shown_drops_count() -> None:
    won = np.arange(60) % 5 == 4  # of 7 labels one query is lost, of 3 others one is won
    base, run = report(~won | (np.arange(60) < 35)), report(~won | (np.arange(60) >= 35))
    (plain,) = check_gate(run, max_drop=[("base", base, 0.01)])
    assert (plain.passed, plain.in_noise) == (False, True)
    assert plain.line.startswith(
        "failed: recall@1 is 0.883333, 0.033333 lost against base (0.916667), 0.023333 more than"
    )
    assert "within noise: the paired test shows no drop" in plain.line
    (lenient,) = check_gate(run, max_drop=[("base", base, 0.01)], significant_only=True)
    assert (lenient.passed, lenient.short) == (True, plain.short)
    assert lenient.line.endswith("and --significant-only lets that pass")


def test_a_drop_that_no_test_could_show_is_not_called_noise() -> None:
    """With two labels, 0.9 against 0.4 gives p = 0.5."""
    labels = np.repeat(["a", "b"], 50)
    base, run = (report(np.arange(100) % 50 < hits, labels) for hits in (45, 20))
    (condition,) = check_gate(run, max_drop=[("base", base, 0.01)])
    assert (condition.passed, condition.in_noise) == (False, None)
    assert condition.line.endswith(
        "noise or not cannot be told: so few labels differ that the paired test never shows a drop"
    )
    (lenient,) = check_gate(run, max_drop=[("base", base, 0.01)], significant_only=True)
    assert (lenient.passed, lenient.in_noise) == (True, None)
    assert "cannot be told" in lenient.line


def test_a_shown_drop_fails_either_way_and_a_gain_never_does() -> None:
    base, run = report([1] * 60), report([row % 5 > 0 for row in range(60)])
    for significant_only in (False, True):
        (condition,) = check_gate(run, max_drop=[("base", base, 0.1)], significant_only=significant_only)
        assert (condition.passed, condition.in_noise) == (False, False)
        assert condition.test is not None
        assert condition.test.p_value == 2 / 2**12
        assert condition.line.endswith("the paired test shows a drop")
    (gain,) = check_gate(base, max_drop=[("old", run, 0)])
    assert (gain.passed, gain.in_noise) == (True, None)
    assert "0.200000 gained against old" in gain.line


@pytest.mark.parametrize(("limit", "in_noise"), [("0.5", True), ("0.99", False)])
def test_a_least_value_in_the_interval_is_within_noise(limit: str, in_noise: bool) -> None:
    run = report(np.random.default_rng(0).random(60) < 0.5)
    (condition,) = check_gate(run, minimum={"recall@1": limit})
    interval = run.values_by_metric["recall@1"].interval
    assert condition.interval == interval
    assert condition.in_noise is in_noise
    assert ("within noise: it lies in the" in condition.line) is in_noise


@pytest.mark.parametrize("share", [0, 1])
def test_all_hit_and_all_miss(share: int) -> None:
    run = report([share] * 60)
    reached = check_gate(run, minimum={"recall@1": "0", "recall@2": share}, max_drop=[("itself", run, 0)])
    assert [condition.passed for condition in reached] == [True, True, True]
    assert "the same as in itself" in reached[2].line
    (condition,) = check_gate(run, max_drop=[("other", report([1 - share] * 60), "0.5")])
    assert condition.passed == bool(share)
    assert "nan" not in condition.line


# --- refusals


def test_a_value_that_is_not_the_one_of_its_queries_never_passes() -> None:
    """As where queries.parquet of one run lies beside the record of another, or the record was edited."""
    run, other = report(np.arange(60) % 2 > 0), report([1] * 60)
    mixed = dataclasses.replace(run, values_by_metric=other.values_by_metric)
    with pytest.raises(RecallatkError, match=r"recall@1 is 0\.500000 in its rows and 1.000000 in its record"):
        check_gate(mixed, minimum={"recall@1": "0.9"})
    with pytest.raises(RecallatkError, match="in its record"):
        check_gate(mixed, max_drop=[("base", run, 0)])
    with pytest.raises(RecallatkError, match="in its record"):
        plan(mixed)
    with pytest.raises(RecallatkError, match="in its record"):
        track({"alone": mixed})
    history = track({"e1": run, "e2": mixed})
    assert [step.name for step in history.failed] == ["e2"]
    assert "in its record" in history.failed[0].error


def test_a_run_on_other_data_is_an_error_and_no_pass() -> None:
    with pytest.raises(RecallatkError, match="base and the run are not comparable"):
        check_gate(report([1] * 60), max_drop=[("base", report([0] * 50, LABELS[:50]), 1)])
    with pytest.raises(RecallatkError, match=r"evaluate them alike$"):  # there is no --force here
        check_gate(report([1] * 60), max_drop=[("base", report([0] * 50, LABELS[:50]), 1)])
    with pytest.raises(RecallatkError, match="ties"):
        check_gate(report([1] * 60), max_drop=[("base", report([0] * 60, ties="optimistic"), 1)])


@pytest.mark.parametrize("limit", ["80", "1.01", "-0.1", "nan", "inf", "", "eighty", "1/2", "1e-99999999999", True])
def test_a_limit_that_is_no_share_is_refused(limit: str) -> None:
    with pytest.raises(ChoiceError, match=r"is no share in 0..1"):
        check_gate(report([1] * 60), minimum={"recall@1": limit})


def test_nothing_to_check_and_metrics_that_are_not_there_are_refused() -> None:
    run = report([1] * 60)
    with pytest.raises(ChoiceError, match="nothing to check"):
        check_gate(run)
    with pytest.raises(ChoiceError, match="has no recall@7; it has recall@1, recall@2"):
        check_gate(run, minimum={"recall@7": 0.5})
    with pytest.raises(ChoiceError, match="about drops"):
        check_gate(run, minimum={"recall@1": 0.5}, significant_only=True)


# --- from the terminal, on photos


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    for encoder in ("pixels", "color-histogram"):
        result = recallatk("eval", PHOTOS, "--encoder", encoder, "-m", "mrr", "-o", folder / encoder, "--quiet")
        assert result.code == 0
    return folder


def test_each_condition_is_a_line_and_one_that_fails_gives_exit_code_1(runs: Path) -> None:
    worse = PIXELS - HISTOGRAM
    flags = ["--min", "recall@1=0.3", "--min", "recall@5=0.99", "--max-drop", f"{runs / 'pixels'}=0.02"]
    result = recallatk("gate", runs / "color-histogram", *flags)
    assert (result.code, result.err, lines(result)) == (1, "", ["passed", "failed", "failed"])
    assert f"{worse / 115:.6f} lost against {runs / 'pixels'}" in result.out
    passed = recallatk("gate", runs / "color-histogram", *flags[:2], *flags[4:], "--significant-only")
    assert (passed.code, lines(passed)) == (0, ["passed", "passed"])


def test_drops_in_another_metric_and_as_json(runs: Path) -> None:
    result = recallatk(
        "gate", runs / "color-histogram", "--max-drop", f"{runs / 'pixels'}=0.5", "--metric", "mrr", "--json"
    )
    (condition,) = json.loads(result.out)
    values = [load_report(runs / name)["mrr"] for name in ("color-histogram", "pixels")]
    assert [condition["value"], condition["baseline_value"]] == values
    assert (result.code, condition["metric"], condition["passed"]) == (0, "mrr", True)


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ([], 2, "nothing to check"),
        (["--min", "recall@1"], 2, "says no value"),
        (["--min", "recall@1=80"], 2, "for 80 % write 0.8"),
        (["--min", "recall@1=0.1", "--min", "recall@1=0.2"], 2, "more than once"),
        (["--max-drop", "nowhere=0.1"], 3, "nowhere: cannot be read"),
        (["--max-drop", "=0.1"], 2, "says no value"),
        (["--min", "map=0.1"], 2, "has no map"),
        (["--min", "recall@1=0.1", "--significant-only"], 2, "about drops"),
    ],
)
def test_what_cannot_be_checked_is_one_clear_line(flags: list[str], code: int, words: str, runs: Path) -> None:
    result = recallatk("gate", runs / "pixels", *flags)
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert words in result.err


def test_a_failed_baseline_is_an_error(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "failed.json").write_text('{"error": "NaN"}', "utf-8")
    result = recallatk("gate", runs / "pixels", "--max-drop", f"{tmp_path}=0.5")
    assert (result.code, result.out) == (3, "")
    assert result.err == f"recallatk: {tmp_path}: this run failed: NaN\n"


def test_eval_takes_the_same_flags_and_keeps_its_report_and_its_run(runs: Path, tmp_path: Path) -> None:
    flags = ["--min", "recall@1=0.3", "--max-drop", f"{runs / 'pixels'}=0.01", "--quiet"]
    plain = recallatk("eval", PHOTOS, "--encoder", "color-histogram", "--quiet")
    result = recallatk("eval", PHOTOS, "--encoder", "color-histogram", "-o", tmp_path / "run", *flags)
    assert (result.code, result.out) == (1, plain.out)
    assert [line.split(":")[0] for line in result.err.splitlines()] == ["passed", "failed"]
    assert load_report(tmp_path / "run")["recall@1"] == HISTOGRAM / 115
    several = recallatk("eval", PHOTOS, "--encoder", "color-histogram", "--encoder", "pixels", *flags)
    assert several.code == 1
    assert [" ".join(line.split()[:2]) for line in several.err.splitlines()] == [
        "color-histogram: passed:",
        "color-histogram: failed:",
        "pixels: passed:",
        "pixels: passed:",
    ]


def test_a_failed_encoder_is_the_exit_code_and_the_others_are_checked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lost.py").write_text("def numbers(batch):\n    return [[float('nan')]] * len(batch)\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    flags = ["--encoder", "lost:numbers", "--encoder", "pixels", "--quiet", "--no-cache", "--min", "recall@1=0.9"]
    result = recallatk("eval", PHOTOS, *flags)
    assert result.code == 3
    assert [line.split(": ")[:2] for line in result.err.splitlines()] == [
        ["recallatk", "encoder lost:numbers"],
        ["pixels", "failed"],
    ]


def test_eval_refuses_a_gate_that_cannot_be_read_before_it_encodes(tmp_path: Path) -> None:
    for flags, words in (
        (["--min", "recall@3=0.5"], "the run will have no recall@3"),
        (["--max-drop", f"{tmp_path}=0.5"], "cannot be read"),
        (["--significant-only"], "about drops"),
    ):
        result = recallatk("eval", "nowhere", "--encoder", "pixels", *flags)
        assert result.code in (2, 3)
        assert words in result.err


def test_a_run_without_intervals_can_pass_and_fail(tmp_path: Path) -> None:
    run = recallatk("eval", PHOTOS, "--encoder", "pixels", "--ci", "none", "-o", tmp_path / "run", "--quiet")
    assert run.code == 0
    result = recallatk("gate", tmp_path / "run", "--min", "recall@1=0.9", "--max-drop", f"{tmp_path / 'run'}=0")
    assert (result.code, lines(result)) == (1, ["failed", "passed"])
    assert "noise" not in result.out


def test_saved_runs_of_hostile_names_stay_in_their_line(tmp_path: Path) -> None:
    hostile = tmp_path / "a=b\x1b[31m\nc"
    save_run(report([1] * 60), hostile)
    save_run(report([0] * 60), tmp_path / "now")
    result = recallatk("gate", tmp_path / "now", "--max-drop", f"{hostile}=0.5")
    assert (result.code, result.out.count("\n")) == (1, 1)
    assert "\x1b" not in result.out
