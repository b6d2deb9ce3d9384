"""plan: how many queries it takes, against the published tables and against statsmodels."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.power import NormalIndPower, TTestPower
from statsmodels.stats.proportion import proportion_effectsize

from command_line import recallatk
from recallatk import RecallatkError, plan
from recallatk.planning import unpaired_difference, unpaired_queries
from recallatk.statistics import detectable_difference
from recallatk.types import ChoiceError, IntervalRule
from test_history import LABELS, hits, report

PHOTOS = Path(__file__).parents[1] / "src" / "recallatk" / "assets" / "photos"
# Queries needed at power 0.8, two-sided 0.05, by discordance, for differences of 0.5, 1, 2 and 5 points.
NEEDED = {
    0.05: (15_692, 3_919, 976, None),
    0.10: (31_390, 7_843, 1_957, 309),
    0.20: (62_785, 15_692, 3_919, 622),
    0.30: (94_181, 23_541, 5_881, 936),
}
# Least differences in points: of n queries, paired at discordance 0.05, 0.1 and 0.2, unpaired at 0.7 and 0.9.
DETECTABLE = {
    315: (3.52, 4.97, 7.03, 9.65, 5.65),
    740: (2.30, 3.25, 4.60, 6.44, 3.93),
    1_000: (1.98, 2.80, 3.96, 5.57, 3.44),
    3_368: (1.08, 1.53, 2.16, 3.08, 1.95),
    5_000: (0.89, 1.25, 1.77, 2.53, 1.62),
    5_924: (0.81, 1.15, 1.63, 2.33, 1.49),
    6_816: (0.76, 1.07, 1.52, 2.18, 1.39),
    8_131: (0.69, 0.98, 1.39, 1.99, 1.28),
    14_218: (0.53, 0.74, 1.05, 1.51, 0.97),
    60_502: (0.25, 0.36, 0.51, 0.74, 0.48),
    136_093: (0.17, 0.24, 0.34, 0.49, 0.32),
}
ALONE = np.array([f"label {row:02}" for row in range(60)])
"""Every query its own label: nothing is clustered."""


@pytest.mark.parametrize(("discordance", "needed"), NEEDED.items())
def test_the_queries_of_the_published_table(discordance: float, needed: tuple[int | None, ...]) -> None:
    found = plan(report(hits(0.5), ALONE), discordance=discordance)
    assert found.differences == (0.005, 0.01, 0.02, 0.05)
    assert found.design_effect == 1
    if needed[-1] is None:  # as large as the discordance: possible, and not in the table
        assert found.scenarios[0].needed[:-1] == needed[:-1]
    else:
        # The table rounds to the nearest query in some cells, and a plan rounds up.
        assert found.scenarios[0].needed == pytest.approx(needed, abs=1)


@pytest.mark.parametrize(("n", "points"), DETECTABLE.items())
def test_the_least_differences_of_the_published_table(n: int, points: tuple[float, ...]) -> None:
    paired = [detectable_difference(n, discordance=discordance) for discordance in (0.05, 0.1, 0.2)]
    unpaired = [unpaired_difference(value, n) for value in (0.7, 0.9)]
    # The table's paired columns are worked out with normal quantiles (Connor), ours with those of t.
    assert [100 * (found or 0) for found in paired] == pytest.approx(points[:3], abs=0.0051, rel=0.007)
    assert [100 * (found or 0) for found in unpaired] == pytest.approx(points[3:], abs=0.0051)


@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.01])
def test_power_is_that_of_statsmodels(power: float, alpha: float) -> None:
    run = report(hits(0.5), ALONE)
    rule = IntervalRule(confidence=1 - alpha)
    found = plan(run, discordance=0.15, differences=[0.02, 0.05], power=power, intervals=rule)
    for difference, needed in zip(found.differences, found.scenarios[0].needed, strict=True):
        effect = difference / math.sqrt(0.15 - difference**2)
        expected = TTestPower().solve_power(effect_size=effect, power=power, alpha=alpha)
        assert needed == math.ceil(round(float(np.squeeze(expected)), 4))
    value = run["recall@1"]
    for difference, needed in zip(found.differences, found.unpaired_needed, strict=True):
        effect = proportion_effectsize(value + difference, value)
        expected = NormalIndPower().solve_power(effect_size=effect, power=power, alpha=alpha)
        assert needed == pytest.approx(float(expected), rel=3e-3, abs=1)


def test_the_unpaired_example() -> None:
    assert unpaired_queries(0.90, 0.02) == pytest.approx(3204.7, abs=0.05)
    assert unpaired_queries(0.99, 0.02) is None
    assert unpaired_difference(0.99, 10) is None


def test_a_pair_of_runs_gives_discordance_and_design_effect() -> None:
    first, second = report(hits(0.5, 1)), report(np.repeat(np.arange(12) % 3 > 0, 5))
    found = plan(first, second, differences=[0.05])
    differ = np.asarray(second.queries["recall@1"]) - np.asarray(first.queries["recall@1"])
    (scenario,) = found.scenarios
    assert scenario.discordance == pytest.approx(np.mean(differ != 0))
    sums = np.array([(differ - differ.mean())[label == LABELS].sum() for label in sorted(set(LABELS))])
    effect = (sums**2).sum() / ((differ - differ.mean()) ** 2).sum()
    assert effect > 1
    assert found.design_effect == pytest.approx(effect)
    spread = math.sqrt(scenario.discordance - 0.05**2)
    alone = float(np.squeeze(TTestPower().solve_power(effect_size=0.05 / spread, power=0.8, alpha=0.05)))
    assert scenario.needed[0] == pytest.approx(alone * effect, abs=1)
    assert found.clusters_needed(scenario.needed[0] or 0) == math.ceil((scenario.needed[0] or 0) / 5)
    assert any("measured on the two runs" in line for line in found.assumed)


def test_means_over_labels_are_planned_for_with_the_design_effect_of_the_mean_over_queries() -> None:
    alike = [hits(0.5, 1), np.repeat(np.arange(12) % 3 > 0, 5)]
    micro, macro = (plan(*(report(one, average=average) for one in alike)) for average in ("micro", "macro"))
    assert micro.design_effect == macro.design_effect > 1
    assert macro.assumed[0] == micro.assumed[0]
    assert any("means over labels" in line for line in macro.notes)


@pytest.mark.parametrize(
    ("first", "second", "labels", "why"),
    [
        (0, 1, LABELS, "every query has the same difference"),
        (
            hits(0.2, 1),
            hits(0.8, 2),
            np.array([f"l{row:02}" for row in range(60)]),
            "no two queries have the same label",
        ),
    ],
)
def test_a_design_effect_that_is_not_known_is_not_called_measured(
    first: object, second: object, labels: np.ndarray, why: str
) -> None:
    runs = [report([one] * 60 if isinstance(one, int) else one, labels) for one in (first, second)]
    found = plan(*runs)
    assert found.design_effect == 1
    assert found.assumed[0].endswith(f"the design effect of the difference is not known ({why}) and was taken as 1")


def test_one_run_says_what_it_assumes() -> None:
    found = plan(report(np.repeat(np.arange(12) % 2 > 0, 5)))
    assert [scenario.discordance for scenario in found.scenarios] == [0.05, 0.1, 0.2]
    assert found.design_effect == pytest.approx(5)
    text = found.text()
    assert "assumed, not measured" in text
    assert "assumed: the design effect of a difference is that of the value, 5.00" in text
    assert "unpaired" in text


@pytest.mark.parametrize("share", [0, 1])
def test_all_hit_and_all_miss(share: int) -> None:
    text = plan(report([share] * 60)).text()
    assert "the design effect of the value is not known" in text
    assert "nan" not in text.lower()
    assert ("unpaired (the other system on as many other queries): nothing" in text) == bool(share)


def test_few_queries_show_nothing_and_say_so() -> None:
    found = plan(report([1, 0, 1], np.array(list("abc"))))
    assert [scenario.detectable for scenario in found.scenarios] == [None, None, None]
    assert "if 5 % of the queries differ: nothing" in found.text()


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"differences": [0]}, "between 0 and 1"),
        ({"differences": [1.5]}, "for one percent write 0.01"),
        ({"differences": [float("nan")]}, "between 0 and 1"),
        ({"discordance": 0}, "no share"),
        ({"discordance": float("nan")}, "no share"),
        ({"power": 1}, "no share"),
        ({"power": 0.01}, "must be above alpha"),
        ({"metric": "recall@9"}, "has no recall@9"),
        ({"intervals": IntervalRule(cluster="camera")}, "camera"),
    ],
)
def test_numbers_that_cannot_be_are_refused(choices: dict[str, object], words: str) -> None:
    with pytest.raises(ChoiceError, match=words):
        plan(report(hits(0.5)), **choices)


def test_two_runs_that_agree_or_do_not_fit_are_refused() -> None:
    run = report(hits(0.5))
    with pytest.raises(RecallatkError, match="hit and miss the same queries"):
        plan(run, run)
    with pytest.raises(RecallatkError, match="not comparable"):
        plan(run, report(hits(0.5)[:50], LABELS[:50]))
    with pytest.raises(ChoiceError, match="not both"):
        plan(run, report(hits(0.6, 1)), discordance=0.1)


def test_a_difference_larger_than_the_discordance_cannot_be() -> None:
    found = plan(report(hits(0.5)), discordance=0.1, differences=[0.2])
    assert found.scenarios[0].needed == (None,)
    assert "-: a difference cannot be larger than the share of queries that differ" in found.text()


def test_from_the_terminal_on_photos(tmp_path: Path) -> None:
    for encoder in ("pixels", "hog"):
        assert recallatk("eval", PHOTOS, "--encoder", encoder, "-o", tmp_path / encoder, "--quiet").code == 0
    shown = recallatk("plan", tmp_path / "pixels", "--against", tmp_path / "hog", "--difference", "0.02")
    assert (shown.code, shown.err) == (0, "")
    sections = ["[plan]", "[now]", "[needed]", "[assumed]"]
    assert [line for line in shown.out.splitlines() if line.startswith("[")][:4] == sections
    known = json.loads(recallatk("plan", tmp_path / "pixels", "--against", tmp_path / "hog", "--json").out)
    assert known["n"] == 115
    assert known["clusters"] == 13
    assert known["scenarios"][0]["detectable"] > 0.1
    refused = recallatk("plan", tmp_path / "pixels", "--metric", "mrr")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
