"""The page of one run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recallatk.comparison.differences import check_rows
from recallatk.page.curves import rank_counts, recall_over_k
from recallatk.page.gather import Lists, find_confusions, find_lists, label_rows
from recallatk.page.options import DEFAULT_OPTIONS, PageOptions, PageSource
from recallatk.page.paper import Page, common_data, finish, missing_lines, rounded, with_the_rest
from recallatk.page.plots import Plot, draw_ranks, draw_recall, draw_similarities
from recallatk.page.projection import project
from recallatk.page.selection import choose_queries, smallest_k, value_of
from recallatk.page.words import about, headline, in_short, left_out, noticed, recipe
from recallatk.report import Report
from recallatk.wording import counted

MOST_MARKS = 1500
"""Queries in the plot of similarities; more would only cover each other."""


def run_page(source: PageSource, options: PageOptions = DEFAULT_OPTIONS) -> Page:
    """The page of one run: the number, what fails, and what was retrieved instead.

    Args:
        source: the run, with embeddings and images as far as they are there.
        options: what goes in.

    Raises:
        RecallatkError: jinja2 or matplotlib is not installed (`pip install 'recallatk[report]'`), or the rows of the
            report do not give its values.
    """
    report = source.report
    check_rows(source.name, report)
    chosen = choose_queries(report, options.num_queries, only_wrong=options.only_wrong, seed=options.seed)
    order = with_the_rest(chosen, report.num_queries)
    lists = find_lists(source, chosen, options)
    labels = label_rows(report)
    confusions = [] if lists is None else find_confusions(report, lists)
    points = recall_over_k(report)
    plots = [
        draw_recall({source.name: points}, report.protocol.ks),
        draw_ranks({source.name: rank_counts(report)}),
        *_similarities(report, lists, options.seed),
    ]
    plane = project(source, chosen, options.seed)
    fixed: dict[str, Any] = {
        "title": source.name,
        "about": about(report),
        "headline": headline(report),
        "counts": _counts(report),
        "short": in_short(report, labels, confusions),
        "left_out": left_out(report),
        "noticed": noticed(report),
        "signature": str(report.signature),
        "recipe": recipe(report),
        "plots": plots,
        "missing": missing_lines(source),
        "sampled": _sampled(report, lists),
        "mapped": None if plane is None else _map_words(plane.explained, len(plane.rows), report.num_queries),
        "has_labels": bool(labels),
        "has_confusions": lists is not None and any(a or b for a, b, _, _ in confusions),
    }
    data: dict[str, Any] = {
        "kind": "run",
        **common_data(report, options),
        "tables": {
            "labels": _label_table(labels, report),
            "confusions": _columns(confusions, ("label", "retrieved", "count", "example")),
        },
    }
    rows = np.arange(report.num_queries)
    shown = dataclasses.replace(options, num_queries=len(chosen))
    return finish("run.html", fixed, data, [source], [rows], [lists], order, shown, plane)


def _counts(report: Report) -> str:
    parts = [f"{counted(report.num_evaluated, 'query', 'queries')} evaluated"]
    if report.num_excluded:
        parts.append(f"{report.num_excluded:,} excluded without a positive")
    skipped = len(report.provenance.skipped)
    if skipped:
        parts.append(f"{counted(skipped, 'file or row', 'files or rows')} skipped")
    return ", ".join([*parts, counted(report.num_gallery, "gallery item"), counted(report.num_labels, "label")])


def _sampled(report: Report, lists: Lists | None) -> str:
    if lists is None or lists.whole:
        return ""
    return f"From a random {int(lists.sample.sum()):,} of {report.num_queries:,} queries."


def _map_words(explained: tuple[float, float], points: int, total: int) -> str:
    part = "All" if points == total else f"{points:,} of {total:,}"
    return (
        f"{part} queries on the two directions in which their embeddings differ most (PCA). They hold "
        f"{100 * sum(explained):.0f} % of the variance: points that are near here need not be near for the encoder."
    )


def _similarities(report: Report, lists: Lists | None, seed: int) -> list[Plot]:
    if lists is None:
        return []
    best = np.asarray(report.queries["similarity"], np.float64)[lists.rows]
    wrong = lists.found.best_negative_similarity
    values = value_of(report, 1 if 1 in report.protocol.ks else smallest_k(report))[lists.rows]
    known = np.flatnonzero(~np.isnan(best) & ~np.isnan(wrong) & ~np.isnan(values) & lists.sample)
    if not len(known):
        return []
    whole = len(known) <= MOST_MARKS and lists.whole
    if len(known) > MOST_MARKS:
        known = np.sort(np.random.default_rng(seed).choice(known, MOST_MARKS, replace=False))
    return [draw_similarities(best[known], wrong[known], values[known] < 1, whole=whole)]


def _label_table(labels: Sequence[Mapping[str, Any]], report: Report) -> dict[str, list[Any]]:
    table = {name: [one[name] for one in labels] for name in ("label", "n", "excluded", "rank")}
    return {**table, **{name: [rounded(one[name]) for one in labels] for name in ("low", "high")}}


def _columns(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}
