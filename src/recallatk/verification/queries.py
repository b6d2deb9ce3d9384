"""The results of each query, then and now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recallatk.report import Report
from recallatk.types import RecallatkError
from recallatk.verification.outcome import Moved
from recallatk.verification.rows import Side
from recallatk.wording import counted

# Column of queries.parquet -> what it is called where it moved.
COUNTS = {
    "n_positives": "positives",
    "n_candidates": "gallery items left for it",
    "negatives_tied": "negatives level with its best positive",
    "positives_tied": "positives level with its best positive",
}


def compare_queries(then: Report, now: Report, side: Side | None) -> list[Moved]:
    """Which queries have other results; first ranks first."""
    names, rows = _common_rows(then, now, side)
    columns = [_values(report.queries, of) for report, of in zip((then, now), rows, strict=True)]
    ranks = [_first_ranks(values) for values in columns]
    found = [_moved("first rank", names, *ranks)]
    found += [_moved(noun, names, *(values[name] for values in columns)) for name, noun in COUNTS.items()]
    metrics = [name for name in then.values_by_metric if name in columns[0] and name in columns[1]]
    others = [_moved(name, names, *(values[name] for values in columns)) for name in metrics]
    if not any(found):
        found += others  # a metric moves with the counts, which say more
    return [moved for moved in found if moved is not None]


def compare_remaining(then: Report, now: Report, side: Side | None) -> list[Moved]:
    """The columns that `compare_queries` leaves aside, for runs that are alike otherwise."""
    names, rows = _common_rows(then, now, side)
    found = []
    tied = np.asarray(now.queries["positives_tied"])[rows[1]] > 1
    # Numbers of rows are no names: they move where the rows come in another order.
    numbers = ("id", "best_positive") if side is None or any(kept.ids is None for kept in then.samples.values()) else ()
    for column in now.queries:
        if column in numbers:
            continue
        if column not in then.queries:
            found.append(Moved("queries", f"{column}: queries.parquet has no such column"))
            continue
        old, new = (
            [_plain(report.queries[column][row]) for row in own] for report, own in zip((then, now), rows, strict=True)
        )
        # Which of several that are level is named depends on the order of the gallery.
        free = tied if column == "best_positive" else np.zeros_like(tied)
        lines = [
            f"{name}: {was} then, {is_} now"
            for name, was, is_, any_of in zip(names, old, new, free.tolist(), strict=True)
            if was != is_ and not any_of
        ]
        if lines:
            found.append(
                Moved("queries", f"{column}: other for {counted(len(lines), 'query', 'queries')}", tuple(lines))
            )
    return found


def _plain(value: Any) -> Any:
    """A value as text or a number, the same whether it was read or worked out; None where there is none."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, (list, tuple, frozenset)):
        return ", ".join(sorted(value))
    return None if value != value else value.item()


def check_columns(report: Report) -> None:
    """Refuse a run whose queries lack what every run has.

    Raises:
        RecallatkError: a column is missing.
    """
    missing = [
        name for name in ("id", "label", "has_positive", "negatives_ahead", *COUNTS) if name not in report.queries
    ]
    if missing:
        raise RecallatkError(f"queries.parquet has no column {missing[0]!r}; the run is damaged, repeat it")


def _common_rows(then: Report, now: Report, side: Side | None) -> tuple[list[str], tuple[list[int], list[int]]]:
    if side is None:  # a run that keeps no samples: by the ids of its queries
        places = [{name: row for row, name in enumerate(report.queries["id"])} for report in (then, now)]
        common = [name for name in places[0] if name in places[1]]
        return common, ([places[0][name] for name in common], [places[1][name] for name in common])
    shown = [side.shown(name, 0) for name in side.common]
    return shown, ([side.places[0][name] for name in side.common], [side.places[1][name] for name in side.common])


def _values(queries: Mapping[str, Any], rows: Sequence[int]) -> dict[str, np.ndarray[Any, Any]]:
    index = np.asarray(rows, dtype=np.int64)
    return {name: values[index] for name, values in queries.items() if isinstance(values, np.ndarray)}


def _first_ranks(values: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The rank of the best positive with ties broken for it; 0 where there is none."""
    ranks: np.ndarray[Any, Any] = np.where(values["has_positive"], values["negatives_ahead"] + 1, 0)
    return ranks


def _moved(noun: str, names: Sequence[str], then: Any, now: Any) -> Moved | None:
    moved = np.flatnonzero((then != now) & ~(np.isnan(then) & np.isnan(now)))
    if not len(moved):
        return None
    pairs = [(names[row], then[row].item(), now[row].item()) for row in moved.tolist()]
    if noun == "first rank":
        lines = [f"{name}: {_rank(old)} then, {_rank(new)} now" for name, old, new in pairs]
        text = f"the first rank of {counted(len(pairs), 'query', 'queries')} moved"
    else:
        lines = [f"{name}: {old} then, {new} now" for name, old, new in pairs]
        text = f"{noun}: other for {counted(len(pairs), 'query', 'queries')}"
    return Moved("queries", text, tuple(lines))


def _rank(rank: int) -> str:
    return str(rank) if rank else "no positive"
