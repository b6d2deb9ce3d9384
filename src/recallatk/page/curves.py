"""Recall over K, and where the best positives stand: what the plots are drawn from."""

from __future__ import annotations

import dataclasses

import numpy as np

from recallatk.metrics import chance_of_hit, mean_value
from recallatk.page.selection import hits_at, smallest_k, value_of
from recallatk.report import Report
from recallatk.statistics import cluster_queries, interval_of_mean
from recallatk.types import Label

POINTS = 40
EDGES = (1, 2, 3, 6, 11, 21, 51, 101, 1001, 10001, 100001)


@dataclasses.dataclass(frozen=True)
class Point:
    """Recall at one k, with its interval (None where nothing can be said) and chance (None without a known gallery)."""

    k: int
    value: float
    low: float | None
    high: float | None
    chance: float | None


def recall_over_k(report: Report) -> list[Point]:
    """recall@k from 1 to the size of the gallery, by the tie rule, average and interval rule of the run."""
    kept = np.flatnonzero(~np.isnan(value_of(report, smallest_k(report))))
    labels: list[Label] = [report.queries["label"][row] for row in kept.tolist()]
    column = report.intervals.cluster
    if column != "label" and f"group.{column}" in report.queries:
        groups = report.queries[f"group.{column}"]
        clusters = cluster_queries([groups[row] for row in kept.tolist()], column=column)
    else:
        clusters = cluster_queries(labels, average=report.protocol.average)
    largest = max(int(np.asarray(report.queries["n_candidates"])[kept].max(initial=1)), *report.protocol.ks)
    steps = np.unique(np.round(np.geomspace(1, largest, POINTS)).astype(np.int64)).tolist()
    points = []
    gallery_known = next(iter(report.values_by_metric.values())).chance is not None
    candidates, positives = (np.asarray(report.queries[name])[kept] for name in ("n_candidates", "n_positives"))
    for k in sorted({*steps, *report.protocol.ks}):
        values = hits_at(report, k)[kept]
        interval = interval_of_mean(values, clusters, rule=report.intervals)
        chance = chance_of_hit(candidates, positives, k) if gallery_known else None
        points.append(
            Point(
                k,
                mean_value(values, labels, average=report.protocol.average),
                None if interval is None else interval.low,
                None if interval is None else interval.high,
                None if chance is None else mean_value(chance, labels, average=report.protocol.average),
            )
        )
    return points


def rank_counts(report: Report) -> list[tuple[str, int]]:
    """How many evaluated queries have their best positive at which rank (ties broken for us), in growing bins."""
    kept = ~np.isnan(value_of(report, smallest_k(report))) & np.asarray(report.queries["has_positive"], np.bool_)
    ranks = np.asarray(report.queries["negatives_ahead"], np.int64)[kept] + 1
    last = int(ranks.max(initial=1))
    edges = [edge for edge in EDGES if edge <= last]
    found = []
    for place, low in enumerate(edges):
        high = (edges[place + 1] if place + 1 < len(edges) else EDGES[min(place + 1, len(EDGES) - 1)]) - 1
        name = str(low) if high <= low else (f"{low:,} to {high:,}" if low < EDGES[-1] else f"{low:,} and more")
        inside = (ranks >= low) & ((ranks <= high) | (low == EDGES[-1]))
        found.append((name, int(np.count_nonzero(inside))))
    return found
