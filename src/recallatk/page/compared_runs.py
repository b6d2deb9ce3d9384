"""The page of a comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recallatk.comparison import Comparison, Contrast
from recallatk.comparison.verdict import verdict
from recallatk.page.curves import rank_counts, recall_over_k
from recallatk.page.gather import find_lists
from recallatk.page.options import DEFAULT_OPTIONS, PageOptions, PageSource
from recallatk.page.paper import Page, common_data, finish, missing_lines, rounded, with_the_rest
from recallatk.page.plots import draw_ranks, draw_recall
from recallatk.page.selection import Rows, choose_queries, smallest_k, value_of
from recallatk.page.words import recipe
from recallatk.report import Report
from recallatk.wording import counted


def compare_page(
    comparison: Comparison, sources: Mapping[str, PageSource], options: PageOptions = DEFAULT_OPTIONS
) -> Page:
    """The page of a comparison: the systems side by side, query by query.

    Args:
        comparison: what `compare` returned.
        sources: each of its runs, by the name it has there.
        options: what goes in.

    Raises:
        RecallatkError: as for `run_page`.
    """
    used = [dataclasses.replace(sources[system.name], name=system.name) for system in comparison.systems]
    rows = [_rows_of(source.report, comparison) for source in used]
    first = used[0].report
    order = _order_of_comparison(comparison, used, rows, options)
    chosen = np.array(order[: options.num_queries], np.int64)
    lists = [find_lists(source, own[chosen], options) for source, own in zip(used, rows, strict=True)]
    names = [system.name for system in comparison.systems]
    fixed: dict[str, Any] = {
        "title": " against ".join(names),
        "verdict": verdict(comparison),
        "metric": comparison.metric,
        "systems": [
            {
                "name": system.name,
                "encoder": system.encoder or "unknown",
                "signature": system.signature,
                "values": {
                    name: {
                        "value": f"{value.value:.4f}",
                        "beside": ""
                        if value.interval is None
                        else f"{value.interval.low:.3f} to {value.interval.high:.3f}",
                    }
                    for name, value in system.values.items()
                },
            }
            for system in comparison.systems
        ],
        "counts": f"{counted(len(comparison.ids), 'query', 'queries')} compared; all values are of the same queries",
        "tests": [_test_words(comparison, contrast) for contrast in comparison.contrasts],
        "notes": [*comparison.differences, *comparison.dropped.lines(), *comparison.notes],
        "plots": [
            draw_recall({source.name: recall_over_k(source.report) for source in used}, first.protocol.ks),
            draw_ranks({source.name: rank_counts(source.report) for source in used}),
        ],
        "missing": _missing(used),
        "recipes": {source.name: recipe(source.report) for source in used},
        "whole": all(source.report.num_evaluated == len(comparison.ids) for source in used),
    }
    data: dict[str, Any] = {
        "kind": "compare",
        **common_data(first, options),
        "tables": {"labels": _compared_labels(comparison)},
    }
    shown = dataclasses.replace(options, num_queries=min(options.num_queries, len(order)))
    return finish(
        "compare.html",
        fixed,
        data,
        used,
        rows,
        lists,
        with_the_rest(np.array(order, np.int64), len(rows[0])),
        shown,
        None,
    )


def _rows_of(report: Report, comparison: Comparison) -> Rows:
    """The rows of the compared queries in one run, in the order of the comparison."""
    ids = [str(row) for row in range(report.num_queries)] if comparison.by_row else report.queries["id"]
    place = {name: row for row, name in enumerate(ids)}
    return np.array([place[name] for name in comparison.ids], np.int64)


def _order_of_comparison(
    comparison: Comparison, sources: Sequence[PageSource], rows: Sequence[Rows], options: PageOptions
) -> list[int]:
    """Queries whose value changes first, then those that all miss, then the others as the first run has them."""
    place = {name: number for number, name in enumerate(comparison.ids)}
    k = smallest_k(sources[0].report)
    values = np.stack([value_of(s.report, k)[own] for s, own in zip(sources, rows, strict=True)])
    # Losses and gains take turns, so that neither hides the other where there is no room for all.
    changed = [place[query.id] for query in comparison.changed]
    half = len(changed) // 2
    turns = [row for both in zip(changed[: len(changed) - half], changed[::-1], strict=False) for row in both]
    missed = np.flatnonzero((values < 1).all(axis=0)).tolist()
    position = {row: number for number, row in enumerate(rows[0].tolist())}
    first = sources[0].report
    rest = choose_queries(first, first.num_queries, only_wrong=False, seed=options.seed).tolist()
    order = list(dict.fromkeys([*turns, *missed, *(position[row] for row in rest if row in position)]))
    return [row for row in order if (values[:, row] < 1).any()] if options.only_wrong else order


def _test_words(comparison: Comparison, contrast: Contrast) -> str:
    test = contrast.test
    queries = counted(len(comparison.ids), "query", "queries")
    wins = f"of {queries} {contrast.name} is better on {test.wins:,} and {comparison.baseline.name} on {test.losses:,}"
    return f"{wins} (paired, two-sided test)"


def _missing(sources: Sequence[PageSource]) -> list[str]:
    """What the page lacks and why, once for all systems that lack it."""
    lacking: dict[str, list[str]] = {}
    for source in sources:
        for line in missing_lines(source):
            lacking.setdefault(line, []).append(source.name)
    return [f"{', '.join(names)}: {line}" for line, names in lacking.items()]


def _compared_labels(comparison: Comparison) -> dict[str, list[Any]]:
    table: dict[str, list[Any]] = {
        "label": [one.label for one in comparison.labels],
        "n": [one.n for one in comparison.labels],
    }
    for number in range(len(comparison.systems)):
        table[f"value{number}"] = [rounded(one.values[number]) for one in comparison.labels]
        if number:
            table[f"change{number}"] = [rounded(one.values[number] - one.values[0]) for one in comparison.labels]
    return table
