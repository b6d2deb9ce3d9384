"""From the ranking to values: one of each metric for each query, and their summary."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.metrics import MetricName, Values, chance_of_hit, mean_value
from recallatk.ranking import Ranking
from recallatk.report import Value, is_hit
from recallatk.statistics import Clusters, interval_of_mean
from recallatk.types import EvalProtocol, IntervalRule, Label, Samples, Ties

TIE_RULES: tuple[Ties, ...] = ("expected", "pessimistic", "optimistic")


@dataclasses.dataclass(frozen=True)
class Tally:
    """What the ranking says of every query: its counts, and each metric under each tie rule."""

    counts: dict[str, npt.NDArray[np.int64]]
    similarity: Values
    values: dict[tuple[str, Ties], Values]


_LEVEL_COUNTS = ("negatives_ahead", "negatives_tied", "positives_tied")
_QUERY_COUNTS = ("best_positive", "near_above", "near_below", "n_positives", "n_candidates", "n_ranked")


def fold(blocks: Iterable[Ranking], names: Sequence[MetricName], n: int) -> Tally:
    """The columns of n queries from the blocks of their ranking."""
    counts = {column: np.zeros(n, np.int64) for column in (*_LEVEL_COUNTS, *_QUERY_COUNTS)}
    values = {(str(name), ties): np.zeros(n) for name in names for ties in TIE_RULES}
    similarity = np.full(n, np.nan)
    for block in blocks:
        similarity[block.queries] = np.where(np.diff(block.starts) > 0, block.at_best(block.similarity), np.nan)
        for column in _LEVEL_COUNTS:
            counts[column][block.queries] = block.at_best(getattr(block, column))
        for column in _QUERY_COUNTS:
            counts[column][block.queries] = getattr(block, column)
        for name in names:
            for ties in TIE_RULES:
                values[str(name), ties][block.queries] = name.values(block, ties=ties)
    return Tally(counts, similarity, values)


def summarise(
    name: MetricName,
    columns: Tally,
    kept: npt.NDArray[np.int64],
    labels: Sequence[Label],
    protocol: EvalProtocol,
    *,
    clusters: Clusters,
    intervals: IntervalRule,
    gallery_known: bool = True,
) -> Value:
    """One metric over the evaluated queries: value and interval, and what other tie rules and chance would give.

    Chance only where the gallery is known.
    """
    per_query = {ties: columns.values[str(name), ties][kept] for ties in TIE_RULES}
    means = {ties: mean_value(values, labels, average=protocol.average) for ties, values in per_query.items()}
    hit_or_miss = is_hit(str(name))
    interval = interval_of_mean(per_query[protocol.ties], clusters, rule=intervals, hits=hit_or_miss)
    value = Value(means[protocol.ties], len(kept), means["pessimistic"], means["optimistic"], interval=interval)
    if not hit_or_miss or name.k is None:
        return value
    chance = chance_of_hit(columns.counts["n_candidates"][kept], columns.counts["n_positives"][kept], name.k)
    return dataclasses.replace(
        value,
        hits=math.fsum(per_query[protocol.ties]),
        hits_min=int(per_query["pessimistic"].sum()),
        hits_max=int(per_query["optimistic"].sum()),
        chance=mean_value(chance, labels, average=protocol.average) if gallery_known else None,
    )


def count_tied(names: Sequence[MetricName], columns: Tally, kept: npt.NDArray[np.int64]) -> int:
    """Queries for which the order of equal similarities can move a metric."""
    moved = np.zeros(len(kept), dtype=np.bool_)
    for name in names:
        moved |= (columns.values[str(name), "pessimistic"] != columns.values[str(name), "optimistic"])[kept]
    return int(np.count_nonzero(moved))


def count_near_tied(columns: Tally, kept: npt.NDArray[np.int64], ks: Sequence[int]) -> int:
    """Queries whose hit at some k differs between all near-tied negatives ahead of the best positive and behind it."""
    counts = {column: values[kept] for column, values in columns.counts.items()}
    behind = counts["negatives_ahead"] - counts["near_above"]
    ahead = counts["negatives_ahead"] + counts["negatives_tied"] + counts["near_below"]
    moved = np.zeros(len(kept), dtype=np.bool_)
    for k in ks:
        moved |= (counts["n_positives"] > 0) & (behind < k) & (ahead >= k)
    return int(np.count_nonzero(moved))


def query_rows(
    query: Samples,
    gallery: Samples,
    columns: Tally,
    names: Sequence[MetricName],
    protocol: EvalProtocol,
) -> dict[str, Any]:
    """One column for each thing known of a query; the values of an excluded query are NaN."""
    ids = gallery.row_ids
    best = columns.counts["best_positive"]
    found = columns.counts["n_positives"] > 0
    evaluated = found | (protocol.no_positive == "miss")
    return {
        "id": query.row_ids,
        "label": query.labels,
        **{f"group.{column}": values for column, values in query.groups.items()},
        "has_positive": found,
        **{column: columns.counts[column] for column in (*_LEVEL_COUNTS, *_QUERY_COUNTS[1:-1])},
        "best_positive": tuple(ids[row] if row >= 0 else None for row in best.tolist()),
        "similarity": columns.similarity,
        **{str(name): np.where(evaluated, columns.values[str(name), protocol.ties], np.nan) for name in names},
    }
