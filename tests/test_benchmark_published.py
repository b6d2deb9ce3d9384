"""Reports against the rows that were published for a benchmark, and what every row of the table must be."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from command_line import recallatk
from lookalikes import write_lines, write_picture
from recallatk import EmbeddingSet, EvalProtocol, evaluate_embeddings
from recallatk.comparison.published import compare_with_published, protocol_differences, published_lines
from recallatk.datasets import BENCHMARKS
from recallatk.datasets.benchmarks import PublishedRow
from recallatk.metrics import parse_metric
from recallatk.statistics.published import parse_published

PARTS = [
    pytest.param(benchmark, name, id=f"{key}-{name}")
    for key, benchmark in BENCHMARKS.items()
    for name in benchmark.parts
]


def report_of(hits: int, n: int, *, ks=(1, 2), metrics=()):
    """A report of n queries, of which the first `hits` find their positive at 1 and all others behind one negative."""
    angles = np.radians(np.linspace(0, 80, n))
    query = EmbeddingSet(_rows(angles), [str(row) for row in range(n)], ids=[f"q{row}" for row in range(n)])
    # Every gallery row lies on its query; that of a miss belongs to the next query's label.
    order = [*range(hits), *(hits + np.roll(np.arange(n - hits), 1))]
    gallery = EmbeddingSet(_rows(angles), [str(row) for row in order], ids=[f"g{row}" for row in range(n)])
    return evaluate_embeddings(query, gallery, protocol=EvalProtocol(ks=ks), metrics=metrics)


def _rows(angles):
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_a_row_is_held_against_the_report_number_by_number():
    row = PublishedRow("a system", {"recall@1": "70.0%", "recall@2": "0.9", "map": "50%"}, "a paper")
    (system,) = compare_with_published(report_of(7, 10), [row])
    assert (system.system, system.source) == ("a system", "a paper")
    assert system.checks[0].reproduced
    assert [check.metric for check in system.checks] == ["recall@1", "recall@2"]  # the report has no map


def test_the_table_says_what_prints_so_and_how_far_ours_is():
    rows = [PublishedRow("one", {"recall@1": "65%"}, "here"), PublishedRow("two", {"recall@1": "0.70"}, "there")]
    lines = published_lines(compare_with_published(report_of(7, 10), rows))
    assert lines[1].split() == ["one", "recall@1", "65%", "0.645", "to", "0.655", "0.700000", "none", "of", "10",
                                "5.00", "points", "above,", "within", "noise", "(p", "=", "1)"]  # fmt: skip
    assert lines[2].split()[-3:] == ["0.700000", "7", "reproduced"]
    assert lines[3:5] == ["source: here (one)", "source: there (two)"]


def test_a_difference_beyond_noise_is_called_so():
    lines = published_lines(compare_with_published(report_of(20, 200), [PublishedRow("one", {"recall@1": "90%"}, "x")]))
    assert "80.00 points below, more than noise (p = " in lines[1]


def test_another_denominator_is_named():
    # 97.06 % is 66 of 68, 97.14 % is 68 of 70: with 70 queries the first cannot be printed.
    row = PublishedRow("R-GeM", {"recall@1": "97.06%"}, "revisitop")
    systems = compare_with_published(report_of(66, 70), [row], other_counts={"without two queries": 68, "no fit": 3})
    assert "1 number above cannot be a share of our 70 queries: 68 can (without two queries)" in published_lines(
        systems
    )


def test_means_over_labels_have_no_count_of_hits():
    report = report_of(7, 10, metrics=["map"])
    lines = published_lines(compare_with_published(report, [PublishedRow("one", {"map": "60%"}, "x")]))
    assert lines[1].split()[-4:-1] == ["-", *lines[1].split()[-3:-1]]
    assert not any(line.startswith("p:") for line in lines)


@pytest.mark.parametrize(("benchmark", "name"), PARTS)
def test_what_the_table_says_of_a_part_can_be_used(benchmark, name):
    part = benchmark.parts[name]
    assert part.summary
    assert part.counts.keys() <= {"queries", "gallery", "labels"}
    ks = part.eval_protocol.ks  # the fields are fields of the protocol, and their values are choices
    for metric in part.metrics:
        parse_metric(metric)
    known = {*(f"recall@{k}" for k in ks), *part.metrics}
    for row in part.published:
        assert row.source
        for metric, digits in row.values.items():
            assert metric in known, f"{row.system}: {metric} is not evaluated by default, so it is never compared"
            parse_published(f"{metric}={digits}")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--layout", "classes", "--published"], "--published needs a benchmark"),
        (["--published"], "--published needs a benchmark"),
        (["--layout", "cub200", "--published", "--limit", "5"], "leave --limit out"),
        (["--layout", "cub200", "--part", "x"], "choose one of: dml, official-test"),
        (["--part", "x"], "--part x belongs to a benchmark"),
        (["--layout", "cub"], "did you mean cub200"),
    ],
)
def test_flags_that_do_not_fit_are_refused_before_any_work(tmp_path: Path, argv: list[str], words: str):
    result = recallatk("eval", str(tmp_path), "--encoder", "pixels", *argv)
    assert (result.code, result.out) == (2, "")
    assert words in result.err


def test_show_says_all_of_it_and_identify_knows_nothing_of_an_empty_folder(tmp_path: Path):
    for name, benchmark in BENCHMARKS.items():
        shown = recallatk("datasets", "show", name).out
        assert all(f"[part {part}" in shown for part in benchmark.whole_parts)
        assert all(trap in shown for trap in benchmark.traps)
    assert "no copy of a benchmark" in recallatk("datasets", "identify", str(tmp_path)).out


def test_an_archive_is_told_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    archive = tmp_path / "renamed.tgz"
    archive.write_bytes(b"not the birds")
    assert "no copy of a benchmark" in recallatk("datasets", "identify", str(tmp_path)).out
    monkeypatch.setitem(BENCHMARKS["cub200"].archives, "a98dca8003e0a6d6cfce342fd80e594a", "CUB_200_2011.tgz")
    result = recallatk("datasets", "identify", str(archive))
    assert "renamed.tgz is CUB_200_2011.tgz, byte for byte" in result.out


def test_archives_in_a_folder_are_told_and_what_is_none_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "unpacked.zip").mkdir()
    (tmp_path / "BIRDS.TGZ").write_bytes(b"not the birds")
    monkeypatch.setitem(BENCHMARKS["cub200"].archives, "a98dca8003e0a6d6cfce342fd80e594a", "CUB_200_2011.tgz")
    result = recallatk("datasets", "identify", str(tmp_path))
    assert "BIRDS.TGZ is CUB_200_2011.tgz, byte for byte" in result.out


def test_a_copy_that_cannot_be_read_is_said_with_the_reason(tmp_path: Path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images.txt").write_text("1 101.White_Pelican/a.jpg\n")
    (tmp_path / "image_class_labels.txt").write_text("1 pelican\n")
    result = recallatk("datasets", "identify", str(tmp_path))
    assert (result.code, result.err) == (0, "")
    assert "class pelican of image id 1" in result.out


def test_another_protocol_than_the_published_one_is_said():
    part = BENCHMARKS["cub200"].parts["dml"]
    assert protocol_differences(report_of(7, 10), part.eval_protocol) == []  # other cutoffs are no other protocol
    ours = dataclasses.replace(part.eval_protocol, exclude_self="none", junk_labels=("0", "-1"))
    assert protocol_differences(dataclasses.replace(report_of(7, 10), protocol=ours), part.eval_protocol) == [
        "exclude_self=none where theirs is id",
        "junk_labels=-1,0 where theirs is none",
    ]


def test_a_probability_too_small_to_be_told_is_not_nothing():
    lines = published_lines(
        compare_with_published(report_of(0, 3000), [PublishedRow("one", {"recall@1": "90%"}, "here")])
    )
    assert "more than noise (p < 1e-300)" in lines[1]


def test_cutoffs_that_were_not_published_are_said(tmp_path: Path):
    folder = tmp_path / "images" / "101.White_Pelican"
    write_lines(tmp_path / "images.txt", [f"{n} 101.White_Pelican/{n}.jpg" for n in (1, 2)])
    write_lines(tmp_path / "image_class_labels.txt", ["1 101", "2 101"])
    for n in (1, 2):
        write_picture(folder / f"{n}.jpg", 50 * n)
    argv = ["--layout", "cub200", "--counts", "any", "--encoder", "pixels", "-k", "3", "--published", "--quiet"]
    result = recallatk("eval", str(tmp_path), *argv)
    assert result.code == 0
    assert "nothing to compare: they are of recall@1, recall@2, recall@4, recall@8" in result.out
