"""The acceptance cases: every check of every case, one test each.

They lie beside the project, in ../shared/cases, or where the environment variable RECALLATK_CASES says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from casebank_runner import (
    ADAPTER_KIND,
    CASES,
    Case,
    Check,
    NotUnderstoodError,
    Outcome,
    helper,
    iter_checks,
    make,
    offered,
    run_check,
)
from recallatk import Report

if not (CASES / "casebank.py").is_file():
    pytest.skip(f"the acceptance cases are not at {CASES}; say where with RECALLATK_CASES", allow_module_level=True)

RECALLATK = Path(sys.executable).parent / "recallatk"
COUNTS: dict[str, Callable[[Report], int]] = {
    "num_queries": lambda report: report.num_queries,
    "num_evaluated": lambda report: report.num_evaluated,
    "num_excluded": lambda report: report.num_excluded,
    "num_gallery": lambda report: report.num_gallery,
    "num_classes": lambda report: report.num_labels,
    "num_skipped_files": lambda report: len(report.provenance.skipped),
    "embedding_dim": lambda report: report.embedding_dim,
}


def parameters() -> list[object]:
    return [
        pytest.param(folder, case, check, id=f"{case['id']}: {check['check']}")
        for folder, case, check in iter_checks()
        if case["kind"] != ADAPTER_KIND
    ]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Fills a folder with a case's files, once for all its checks; a case with stages changes them every time."""
    built: dict[Path, Path] = {}

    def fill(folder: Path, *stages: int) -> Path:
        if folder not in built or 1 in stages:
            built[folder] = make(folder, tmp_path_factory.mktemp("case"), *stages)
        elif stages:
            make(folder, built[folder], *stages)
        return built[folder]

    return fill


def find_faults(check: Check, outcomes: list[Outcome]) -> list[str]:
    """What is wrong with the outcomes of a check, a line each."""
    faults = [fault for outcome in outcomes for fault in _faults_of(check, outcome)]
    if check["outcome"] == "invariance":
        first = {outcome.input: outcome for outcome in reversed(outcomes)}
        for outcome in outcomes:
            before, now = dict(first[outcome.input].values or {}), dict(outcome.values or {})
            faults += [f"{now} after {before}"] if now != before or not now else []
    return faults


def _faults_of(check: Check, outcome: Outcome) -> list[str]:
    kind = check["outcome"]
    if kind not in ("values", "error", "values-or-error", "invariance"):
        raise NotUnderstoodError(f"the outcome {kind!r}")
    if outcome.error is not None:
        if kind not in ("error", "values-or-error"):
            return [f"an error: {outcome.error}"]
        missing = helper().names(outcome.error, check["error_must_name"])
        return [f"none of {group} in the error {outcome.error!r}" for group in missing]
    if kind == "error":
        return [f"no error, but {dict(outcome.values or {})}"]
    return [*_wrong_values(check, outcome), *_wrong_report(check, outcome)]


def _wrong_values(check: Check, outcome: Outcome) -> list[str]:
    assert outcome.values is not None
    ours = offered(check.get("values", {}))
    got = {name: outcome.values.get(own) for name, own in ours.items()}
    faults = list(helper().same(got, {**check, "values": {name: check["values"][name] for name in ours}}))
    for name, own in ours.items():
        exact = float(Fraction(check["exact"][name]))
        if got[name] is not None and abs(got[name] - exact) > 1e-12:
            faults.append(f"{name}: got {got[name]!r}, exactly {check['exact'][name]}")
        if outcome.report is not None and f"\n{own}: {exact:.6f}\n" not in str(outcome.printed):
            faults.append(f"{own}: {exact:.6f} is not printed")
    return faults


def _wrong_report(check: Check, outcome: Outcome) -> list[str]:
    expected = check.get("counts", {})
    if outcome.report is None and outcome.comparison is None:
        return []
    assert outcome.printed is not None
    report = outcome.report
    if report is None:
        assert outcome.comparison is not None
        counts = {name: outcome.comparison[name] for name in expected}
    else:
        counts = {name: COUNTS[name](report) for name in expected}
    faults = [f"{name}: got {counts[name]}, expected {n}" for name, n in expected.items() if counts[name] != n]
    if report is not None and "excluded_queries" in check:
        left_out = np.flatnonzero(~np.asarray(report.queries["has_positive"])).tolist()
        by_id = any(isinstance(item, str) for item in check["excluded_queries"])
        got = [report.queries["id"][row] for row in left_out] if by_id else left_out
        if got != check["excluded_queries"]:
            faults.append(f"excluded {got}, expected {check['excluded_queries']}")
    missing = helper().names(outcome.printed, check.get("report_must_name", []))
    return faults + [f"none of {group} in the report" for group in missing]


@pytest.mark.parametrize(("folder", "case", "check"), parameters())
def test_case(
    folder: Path,
    case: Case,
    check: Check,
    build: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(CASES)
    assert find_faults(check, run_check(folder, case, check, tmp_path, build)) == []


def test_only_the_cases_of_the_adapter_are_left_to_its_tests() -> None:
    kinds = {case["kind"] for _, case, _ in iter_checks()}
    assert kinds >= {"metric-definition", "protocol", ADAPTER_KIND}


BLANK: Case = {
    "id": "blank",
    "kind": "labels",
    "parameters": {"ks": [1], "similarity": "cosine"},
    "input": {"arrays": {"query_labels": ["a"], "gallery_labels": ["a"]}},
}


@pytest.mark.parametrize(
    "check",
    [
        {"outcome": "values", "surprise": 1},
        {"outcome": "values", "with": {"surprise": 1}},
        {"outcome": "values", "with": {"similarity": "cosine", "self_exclusion": "surprise"}},
        {"outcome": "values", "with": {"gallery_order": "surprise"}},
        {"outcome": "values", "values": {"surprise@1": 1.0}},
        {"outcome": "surprise"},
    ],
)
def test_a_check_that_is_not_understood_does_not_pass(check: Check, tmp_path: Path, build: Callable[..., Path]) -> None:
    for side in ("query", "gallery"):
        np.save(tmp_path / f"{side}_emb.npy", np.ones((1, 2)))
    with pytest.raises(NotUnderstoodError):
        find_faults(check, run_check(tmp_path, BLANK, {"check": "blank", **check}, tmp_path, build))


def test_two_folders_in_a_process_of_its_own(build: Callable[..., Path]) -> None:
    folder = CASES / "rk08-same-relative-path"
    done = subprocess.run(
        [RECALLATK, "eval", build(folder), "--encoder", "encoders:mean_rgb", "-k", "1", "3"],
        cwd=CASES,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "[recall]\nrecall@1: 1.000000\nrecall@3: 1.000000\n" in done.stdout


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="this system does not tell the memory of a process")
def test_twelve_thousand_by_twelve_thousand_stay_below_the_memory_of_one_matrix(build: Callable[..., Path]) -> None:
    folder = CASES / "rk51-twelve-thousand-by-twelve-thousand"
    files = build(folder)
    sides = [
        part
        for side in ("query", "gallery")
        for part in (f"--{side}", f"{files / side}_emb.npy", f"--{side}-labels", f"{files / side}_labels.npy")
    ]
    command = [RECALLATK, "eval", *sides, "--json", "--memory", "400MB"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        record = json.load(process.stdout)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert record["counts"]["num_evaluated"] == 12167
    kilobytes = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    assert kilobytes < 592_000  # the float32 similarities alone, not counting the process
