"""What a page shows of the queries of a run: a list of all of them, and the neighbours of those that were chosen."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recallatk.neighbours import nearest
from recallatk.page.items import Items
from recallatk.page.options import PageOptions, PageSource
from recallatk.page.selection import Rows, label_text, sample_queries, smallest_k, value_of
from recallatk.report import Report
from recallatk.types import EmbeddingSet, Label, each_label

if TYPE_CHECKING:
    from recallatk.neighbours import Neighbours

MOST_WORK = 2e11
"""Products for which neighbours are looked up; beyond that the plots and confusions rest on a sample of the queries."""
OVERHEAD = 256
"""A pair of a query and a gallery item costs so many products more than its embeddings have columns."""
MOST_CONFUSIONS = 2000


@dataclasses.dataclass(frozen=True, eq=False)
class Lists:
    """The neighbours of some queries.

    Attributes:
        rows: the queries.
        found: their neighbours, in the order of `rows`.
        gallery: what they point into.
        sample: which of `rows` stand for all queries: all of them, or a random sample.
        whole: whether those are all queries.
    """

    rows: Rows
    found: Neighbours
    gallery: EmbeddingSet
    sample: npt.NDArray[np.bool_]
    whole: bool


def find_lists(source: PageSource, chosen: Rows, options: PageOptions) -> Lists | None:
    """The neighbours of the chosen queries, and of all queries or a sample of them; None without embeddings."""
    if source.query is None:
        return None
    gallery = source.query if source.gallery is None else source.gallery
    report = source.report
    affordable = max(int(MOST_WORK / max(len(gallery) * (gallery.embeddings.shape[1] + OVERHEAD), 1)), 100)
    sample = sample_queries(report, affordable, options.seed)
    rows = np.union1d(sample, chosen)
    found = nearest(
        source.query, source.gallery, options.neighbours, protocol=report.protocol, qrels=source.qrels, rows=rows
    )
    return Lists(rows, found, gallery, np.isin(rows, sample), len(sample) == report.num_queries)


def query_columns(source: PageSource, items: Items, rows: Rows) -> dict[str, Any]:
    """The queries themselves, the same in every system."""
    report = source.report
    ids, labels = report.queries["id"], report.queries["label"]
    return {"item": [items.query(ids[row], labels[row]) for row in rows.tolist()], "row": rows.tolist()}


def system_columns(
    source: PageSource,
    items: Items,
    rows: Rows,
    lists: Lists | None,
    chosen: Rows,
    *,
    neighbours: int,
    ks: Sequence[int],
) -> dict[str, Any]:
    """What one run says of these queries, and the neighbours of those that were chosen.

    Args:
        source: the run.
        items: where names go.
        rows: the queries, in the order of the page.
        lists: neighbours, if there are any.
        chosen: the queries that are shown with their neighbours.
        neighbours: how many of each.
        ks: the cutoffs of the page, whatever those of this run are.
    """
    queries = source.report.queries
    labels = _labels_of_gallery(source)
    best = [queries["best_positive"][row] for row in rows.tolist()]
    columns: dict[str, Any] = {
        "name": source.name,
        "value": {str(k): _numbers(value_of(source.report, k)[rows], 4) for k in ks},
        "ahead": np.asarray(queries["negatives_ahead"])[rows].tolist(),
        "tied": np.asarray(queries["negatives_tied"])[rows].tolist(),
        "positives": np.asarray(queries["n_positives"])[rows].tolist(),
        "candidates": np.asarray(queries["n_candidates"])[rows].tolist(),
        "best": [-1 if name is None else items.gallery(name, labels.get(name)) for name in best],
        "similarity": _numbers(np.asarray(queries["similarity"], np.float64)[rows], 6),
        "wrong": None,
        "lists": None,
    }
    if lists is not None:
        place = {row: number for number, row in enumerate(lists.rows.tolist())}
        wrong = lists.found.best_negative_similarity
        columns["wrong"] = _numbers(
            np.array([wrong[place[row]] if row in place else np.nan for row in rows.tolist()]), 6
        )
        shown = set(chosen.tolist())
        columns["lists"] = _flat(
            lists, items, [place[row] if row in shown else None for row in rows.tolist()], neighbours
        )
    return columns


def _flat(lists: Lists, items: Items, places: list[int | None], neighbours: int) -> dict[str, Any]:
    """Lists end to end; `start` has one entry more than there are queries."""
    columns: dict[str, list[Any]] = {"start": [0], "item": [], "similarity": [], "rank": [], "flags": []}
    found, gallery = lists.found, lists.gallery
    for place in places:
        for j in range(0 if place is None else min(neighbours, found.rows.shape[1])):
            row = int(found.rows[place, j])
            if row < 0:
                break
            columns["item"].append(items.gallery(gallery.row_ids[row], gallery.labels[row]))
            columns["similarity"].append(round(float(found.similarity[place, j]), 6))
            columns["rank"].append(int(found.ranks[place, j]))
            columns["flags"].append(int(found.positive[place, j]) + 2 * int(found.tied[place, j]))
        columns["start"].append(len(columns["item"]))
    return columns


def find_confusions(report: Report, lists: Lists) -> list[tuple[str, str, int, str]]:
    """Label, the label that was retrieved for it, how often, the id of one such query; the most frequent first.

    A query counts if it misses at the smallest k: with its nearest gallery item that is no positive.
    """
    values = value_of(report, smallest_k(report))
    labels: list[Label] = list(report.queries["label"])
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for place, row in enumerate(lists.rows.tolist()):
        item = int(lists.found.best_negative[place])
        if not lists.sample[place] or not values[row] < 1 or item < 0:
            continue
        pair = (label_text(labels[row]), label_text(lists.gallery.labels[item]))
        counts[pair] += 1
        name = report.queries["id"][row]
        examples[pair] = min(name, examples.get(pair, name))
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return [(*pair, count, examples[pair]) for pair, count in ordered[:MOST_CONFUSIONS]]


def label_rows(report: Report, smallest: int | None = None) -> list[dict[str, Any]]:
    """Each label of the queries: evaluated, excluded, misses, recall at the smallest and the largest k, median rank.

    Args:
        report: the run.
        smallest: the smallest k of the page; by default that of the run.
    """
    low = value_of(report, smallest_k(report) if smallest is None else smallest)
    high = value_of(report, max(report.protocol.ks))
    ranks = np.asarray(report.queries["negatives_ahead"], np.float64) + 1
    ranks[~np.asarray(report.queries["has_positive"], np.bool_)] = np.nan
    by_label: dict[str, list[int]] = defaultdict(list)
    for row, label in enumerate(report.queries["label"]):
        for one in each_label(label or ""):
            if one:
                by_label[one].append(row)
    found = []
    for label, rows in by_label.items():
        kept = [row for row in rows if not np.isnan(low[row])]
        known = ranks[kept][~np.isnan(ranks[kept])]
        found.append(
            {
                "label": label,
                "n": len(kept),
                "excluded": len(rows) - len(kept),
                "misses": int(np.count_nonzero(low[kept] < 1)),
                "low": float(np.mean(low[kept])) if kept else None,
                "high": float(np.mean(high[kept])) if kept else None,
                "rank": float(np.median(known)) if len(known) else None,
            }
        )
    return sorted(found, key=lambda one: (one["low"] is None, one["low"], one["high"], -one["n"], one["label"]))


def _labels_of_gallery(source: PageSource) -> dict[str, Label]:
    for role in ("both", "gallery"):
        if role in source.report.samples:
            samples = source.report.samples[role]
            return dict(zip(samples.row_ids, samples.labels, strict=True))
    side = source.query if source.gallery is None else source.gallery
    return {} if side is None else dict(zip(side.row_ids, side.labels, strict=True))


def _numbers(values: npt.NDArray[np.float64], digits: int) -> list[float | int | None]:
    """Numbers in as few characters as they need; NaN becomes null."""
    found: list[float | int | None] = []
    for value in values.tolist():
        if np.isnan(value):
            found.append(None)
        else:
            found.append(int(value) if value == int(value) else round(value, digits))
    return found
