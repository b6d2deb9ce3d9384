"""Which queries are shown with pictures, and which are looked at for the plots."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from recallatk.metrics import hits_of_counts
from recallatk.report import Report
from recallatk.types import Label

Rows = npt.NDArray[np.int64]

SHARE_OF_MISSES = 0.8
"""The share of the places that misses may take while there are hits to show beside them."""


def smallest_k(report: Report) -> int:
    """The k that the page calls hit and miss by."""
    return min(report.protocol.ks)


def value_of(report: Report, k: int) -> npt.NDArray[np.float64]:
    """recall@k of each query: 1 hit, 0 miss, between them where ties decide, NaN for an excluded query.

    The k need not be one of the run: another run that stands beside it on the page may have been evaluated at it.
    """
    known = np.asarray(report.queries[f"recall@{k if k in report.protocol.ks else smallest_k(report)}"], np.float64)
    return known if k in report.protocol.ks else np.where(np.isnan(known), np.nan, hits_at(report, k))


def hits_at(report: Report, k: int) -> npt.NDArray[np.float64]:
    """recall@k of each query for any k, from the counts that a run keeps; 0 without a positive."""
    columns = ("negatives_ahead", "negatives_tied", "positives_tied")
    counts = (np.asarray(report.queries[name], np.int64) for name in columns)
    return hits_of_counts(*counts, k=k, ties=report.protocol.ties)


def choose_queries(report: Report, number: int, *, only_wrong: bool, seed: int) -> Rows:
    """The queries that are shown, in the order of their importance.

    Labels take turns, so that a large one does not hide the others. Misses come first, the hardest of each label
    before its easier ones, and take at most four fifths of the places while there are hits; then hits at random; then
    queries without a positive, where places are left.

    Args:
        report: the run.
        number: how many.
        only_wrong: only misses at the smallest k.
        seed: of the choice among hits.
    """
    values = value_of(report, smallest_k(report))
    labels: Sequence[Label] = list(report.queries["label"])
    ahead = np.asarray(report.queries["negatives_ahead"], np.int64)
    without = ~np.asarray(report.queries["has_positive"], np.bool_)
    by_id = order_of_ids(report.queries["id"])  # so that the order of the rows changes nothing
    # A query without a positive that counts as a miss is the hardest of all.
    hardness = np.where(without, np.iinfo(np.int64).max, ahead)
    missed = by_id[values[by_id] < 1]
    missed = _take_turns(missed[np.argsort(-hardness[missed], kind="stable")], labels)
    if only_wrong:
        return missed[:number]
    hits = by_id[values[by_id] == 1]
    hits = _take_turns(np.random.default_rng(seed).permutation(hits), labels)
    places = max(int(number * SHARE_OF_MISSES), number - len(hits))
    chosen = np.concatenate([missed[:places], hits])[:number]
    excluded = _take_turns(by_id[np.isnan(values[by_id])], labels)
    return np.concatenate([chosen, excluded])[:number]


def sample_queries(report: Report, number: int, seed: int) -> Rows:
    """A random sample of the queries, sorted; all of them where there are no more."""
    n = report.num_queries
    if n <= number:
        return np.arange(n)
    by_id = order_of_ids(report.queries["id"])
    return np.sort(by_id[np.random.default_rng(seed).choice(n, number, replace=False)])


def order_of_ids(ids: Iterable[str]) -> Rows:
    """The rows in the order of their ids; an array of text would give each the room of the longest."""
    names = list(ids)
    return np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)


def _take_turns(rows: Rows, labels: Sequence[Label]) -> Rows:
    """The first of each label, then the second of each, and so on."""
    seen: Counter[Label] = Counter()
    turns = []
    for row in rows.tolist():
        turns.append(seen[labels[row]])
        seen[labels[row]] += 1
    return rows[np.argsort(np.array(turns, np.int64), kind="stable")]


def label_text(label: Label | None) -> str:
    """A label as the page shows it; several are joined."""
    return ", ".join(label) if isinstance(label, tuple) else (label or "")


def first(things: Iterable[str], number: int) -> list[str]:
    """The first few."""
    return list(itertools.islice(things, number))
