"""plan(): how many queries it takes to see a difference, from what an earlier run or pair of runs showed."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

from recallatk.comparison import pair
from recallatk.comparison.differences import check_rows
from recallatk.report import Report, is_hit
from recallatk.statistics import (
    detectable_difference,
    interval_of_mean,
    name_clusters,
    paired_test,
    queries_needed,
    unpaired_difference,
    unpaired_queries,
)
from recallatk.statistics.clusters import cluster_queries
from recallatk.statistics.power import POWER
from recallatk.types import ChoiceError, IntervalRule, RecallatkError
from recallatk.wording import counted, one_line

DIFFERENCES = (0.005, 0.01, 0.02, 0.05)
ASSUMED = (0.05, 0.1, 0.2)
"""Shares of queries that differ, where nothing says how many it will be."""


@dataclasses.dataclass(frozen=True)
class Scenario:
    """The power of a comparison if this share of queries differs.

    Attributes:
        discordance: the share of queries that one system hits and the other does not.
        detectable: the least difference that the present queries show; None if they cannot show any.
        needed: for each difference of the plan, the queries that it takes; None where it cannot be: a difference is
            at most the discordance.
    """

    discordance: float
    detectable: float | None
    needed: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """How many queries it takes.

    Attributes:
        metric: recall at a k.
        value: of the run.
        n: the evaluated queries that there are.
        clusters: the labels (or values of another column) that they have.
        cluster: what makes a cluster.
        design_effect: how many queries tell as much as one that is independent, in a paired comparison.
        value_design_effect: the same for a value alone, that is, for systems on different queries.
        assumed: what was assumed and what was measured, in words.
        power: the chance to see a difference that is there.
        alpha: the level of the two-sided test.
        differences: the differences that are asked about.
        scenarios: paired comparisons, one for each share of queries that differ.
        unpaired_detectable: the least gain that two systems on so many different queries each show; None if none.
        unpaired_needed: for each difference, the queries that each of two systems takes on different queries.
        notes: what to know beside it.
    """

    metric: str
    value: float
    n: int
    clusters: int
    cluster: str
    design_effect: float
    value_design_effect: float
    assumed: tuple[str, ...]
    power: float
    alpha: float
    differences: tuple[float, ...]
    scenarios: tuple[Scenario, ...]
    unpaired_detectable: float | None
    unpaired_needed: tuple[int | None, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text()

    @property
    def queries_per_cluster(self) -> float:
        """How many queries a label has on average."""
        return self.n / self.clusters

    def clusters_needed(self, queries: int) -> int:
        """How many labels that many queries are, with as many queries each as now."""
        return math.ceil(round(queries / self.queries_per_cluster, 9))

    def text(self) -> str:
        """What `recallatk plan` prints."""
        sections = {
            "plan": self._summary(),
            "now": self._now(),
            "needed": self._needed(),
            "assumed": list(self.assumed),
            "notes": list(self.notes),
        }
        return "\n".join(f"[{name}]\n" + "\n".join(map(one_line, lines)) for name, lines in sections.items() if lines)

    def record(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        record: dict[str, Any] = json.loads(json.dumps({"schema": "recallatk.plan/1", **dataclasses.asdict(self)}))
        return record

    def _summary(self) -> list[str]:
        return [
            f"{self.metric} is {self.value:.4f} on {counted(self.n, 'query', 'queries')} "
            f"of {self._clusters(self.clusters)} ({self.queries_per_cluster:.1f} queries each)",
            f"a difference is seen if p <= {self.alpha:g}; one that is there shall be seen {100 * self.power:g} times "
            "of 100",
        ]

    def _now(self) -> list[str]:
        lines = [
            f"paired, if {_percent(scenario.discordance)} of the queries differ: "
            + ("nothing" if scenario.detectable is None else f"a difference of {scenario.detectable:.4f} or more")
            for scenario in self.scenarios
        ]
        unpaired = self.unpaired_detectable
        lines.append(
            "unpaired (the other system on as many other queries): "
            + ("nothing" if unpaired is None else f"a gain of {unpaired:.4f} or more")
        )
        return ["these queries show", *lines]

    def _needed(self) -> list[str]:
        from tabulate import tabulate

        header = ["difference"]
        for scenario in self.scenarios:
            header.append(f"paired, {_percent(scenario.discordance)} differ")
        rows = [
            [
                f"{difference:g}",
                *(self._cell(scenario.needed[row]) for scenario in self.scenarios),
                self._cell(self.unpaired_needed[row]),
            ]
            for row, difference in enumerate(self.differences)
        ]
        table = tabulate(rows, [*header, "unpaired, each"], tablefmt="simple", disable_numparse=True)
        return [*table.splitlines(), f"in brackets: {self._plural}, with as many queries each as now"]

    def _cell(self, queries: int | None) -> str:
        return "-" if queries is None else f"{queries:,} ({self.clusters_needed(queries):,})"

    @property
    def _plural(self) -> str:
        return name_clusters(self.cluster)[1]

    def _clusters(self, count: int) -> str:
        return counted(count, *name_clusters(self.cluster))


def plan(
    report: Report,
    against: Report | None = None,
    *,
    metric: str | None = None,
    differences: Sequence[float] = (),
    discordance: float | None = None,
    power: float = POWER,
    intervals: IntervalRule | None = None,
) -> Plan:
    """How many queries it takes to see a difference, and what those that there are can show.

    Two systems on the same queries are told apart by the queries on which they differ. How many these will be is
    measured on two earlier runs (`against`), said (`discordance`), or assumed: three shares, which the plan states.

    Args:
        report: an earlier run on such queries.
        against: a run of another system on the same queries.
        metric: recall or cmc at a k; default: recall at the smallest k.
        differences: what should be seen, such as 0.01; default: several.
        discordance: the share of queries on which two systems will differ.
        power: the chance to see a difference that is there.
        intervals: its `cluster` and `confidence` are used; default: as the run made its own.

    Raises:
        ChoiceError: a number that none of these can be, or a metric that is no hit or miss.
        RecallatkError: the runs are not comparable, or do not differ for any query.

    >>> from recallatk import EmbeddingSet, evaluate_embeddings
    >>> report = evaluate_embeddings(EmbeddingSet([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [1, 0.2]], labels=list("aabba")))
    >>> plan(report, differences=[0.01], discordance=0.1).scenarios[0].needed
    (7843,)
    """
    metric = metric or f"recall@{min(report.protocol.ks)}"
    _check(report, metric, differences)
    check_rows("the run", report)
    if against is not None and discordance is not None:
        raise ChoiceError("give a second run or discordance, not both: two runs show how many queries differ")
    rule = intervals or (report.intervals if report.intervals.clustered else IntervalRule())
    alone = _alone(report, metric, rule)
    assumed: list[str] = []
    notes: list[str] = []
    value_effect = 1.0 if alone.effect is None else alone.effect
    effect = value_effect
    shares: tuple[float, ...] = ASSUMED
    if against is not None:
        rule_of_both = dataclasses.replace(rule, ci="cluster-t")
        pairing = pair(report, against, metric=metric, intervals=rule_of_both, forcible=False)
        clusters = pairing.clusters
        if clusters.average == "macro":  # it is worked out for the mean over queries
            clusters = cluster_queries([label or "" for label in pairing.labels])
        test = paired_test(pairing.first, pairing.second, clusters, rule=pairing.rule, movable=pairing.movable)
        if not test.wins and not test.losses:
            raise RecallatkError(
                "the two runs hit and miss the same queries, so they do not say how many will differ; say it with "
                "discordance=0.1 (--discordance) and leave out the second run"
            )
        shares, effect = (test.discordance,), 1.0 if test.design_effect is None else test.design_effect
        why = "every query has the same difference" if test.interval is None else test.interval.reason
        assumed.append(
            f"measured on the two runs: {test.wins + test.losses:,} of {len(pairing.ids):,} queries differ; the design "
            + (
                f"effect of the difference is not known ({why}) and was taken as 1"
                if why or test.design_effect is None
                else f"effect of the difference is {effect:.2f}"
            )
        )
    else:
        if discordance is not None:
            shares = (discordance,)
        told = "assumed, not measured" if discordance is None else "as was said"
        assumed.append(
            f"{told}: the share of queries on which two systems differ; a second run on these queries measures it"
        )
        assumed.append(
            f"assumed: the design effect of a difference is that of the value, {effect:.2f}; it is often smaller"
        )
    if alone.effect is None:
        assumed.append(f"the design effect of the value is not known ({alone.why}) and was taken as 1")
    if effect < 1 or value_effect < 1:
        notes.append("a design effect below 1 is taken as 1: so few queries cannot promise that it holds")
    effect, value_effect = max(effect, 1.0), max(value_effect, 1.0)
    alpha = rule.alpha
    asked = tuple(differences) or DIFFERENCES
    how: dict[str, float] = {"power": power, "alpha": alpha}
    n = report.values_by_metric[metric].n
    scenarios = tuple(
        Scenario(
            share,
            _detectable(n, share, effect, how),
            tuple(
                queries_needed(d, discordance=share, design_effect=effect, **how) if d <= share else None for d in asked
            ),
        )
        for share in shares
    )
    value = report[metric]
    if any(count is None for scenario in scenarios for count in scenario.needed):
        notes.append("-: a difference cannot be larger than the share of queries that differ")
    if report.protocol.average == "macro":
        notes.append(
            "worked out for the mean over queries; these runs are means over labels, whose differences vary more"
        )
    return Plan(
        metric,
        value,
        n,
        alone.clusters,
        rule.cluster,
        effect,
        value_effect,
        tuple(assumed),
        power,
        alpha,
        asked,
        scenarios,
        unpaired_difference(value, n / value_effect, **how),
        tuple(_whole(unpaired_queries(value, d, **how), value_effect) for d in asked),
        tuple(notes),
    )


def _detectable(n: int, discordance: float, effect: float, how: dict[str, float]) -> float | None:
    """The least difference that n queries show; None where not even all that differ on one side would show."""
    found = detectable_difference(n, discordance=discordance, design_effect=effect, **how)
    return found if n > 1 and found <= discordance else None


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _whole(queries: float | None, effect: float) -> int | None:
    return None if queries is None else math.ceil(round(queries * effect, 6))


def _check(report: Report, metric: str, differences: Sequence[float]) -> None:
    if metric not in report:
        raise ChoiceError(f"the run has no {metric}; it has {', '.join(report)}")
    if not is_hit(metric):
        raise ChoiceError(f"a plan is for hits and misses, so for recall@k or cmc@k, not for {metric}")
    for difference in differences:
        if not 0 < difference < 1:
            raise ChoiceError(f"difference={difference!r} must be between 0 and 1; for one percent write 0.01")


@dataclasses.dataclass(frozen=True)
class _Alone:
    """What one run says of its clusters."""

    clusters: int
    effect: float | None
    why: str


def _alone(report: Report, metric: str, rule: IntervalRule) -> _Alone:
    import numpy as np

    column = "label" if rule.cluster == "label" else f"group.{rule.cluster}"
    if column not in report.queries or metric not in report.queries:
        raise ChoiceError(f"cluster={rule.cluster!r}: the run has no such column of its queries")
    values = np.asarray(report.queries[metric], np.float64)
    kept = np.flatnonzero(~np.isnan(values))
    labels = [report.queries[column][row] or "" for row in kept.tolist()]
    clusters = cluster_queries(labels, column=rule.cluster)
    found = interval_of_mean(values[kept], clusters, rule=dataclasses.replace(rule, ci="cluster-t"))
    if found is None:
        return _Alone(clusters.count, None, "there is no interval")
    return _Alone(clusters.count, found.design_effect, found.reason)
