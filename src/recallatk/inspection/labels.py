"""Labels that only one side has, classes of one image, and queries that will have no positive, with the reason."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from recallatk.inspection.findings import Finding
from recallatk.relevance import Relevance
from recallatk.types import EvalProtocol, Label, Samples, each_label
from recallatk.wording import counted

COMPARED = 200_000
"""Pairs of labels whose spellings are compared at most, so that thousands of labels take seconds."""

PAIRS_A_BLOCK = 4_000_000
"""Judged pairs that are looked at at once: some hundred megabytes."""


def count_labels(sides: Mapping[str, Iterable[Label]]) -> dict[str, dict[str, int]]:
    """Label -> number of images by role, in the order of the labels."""
    counts = {role: Counter(one for label in labels for one in each_label(label)) for role, labels in sides.items()}
    names = sorted(set().union(*counts.values()))
    return {name: {role: counted_[name] for role, counted_ in counts.items()} for name in names}


def find_lonely_labels(labels: Mapping[str, Mapping[str, int]]) -> Iterator[Finding]:
    """Labels that only the queries or only the gallery have; for leave-one-out, labels of one image."""
    if all("both" in counts for counts in labels.values()):
        single = [label for label, counts in labels.items() if counts["both"] == 1]
        if single:
            yield Finding(
                "single-image-label",
                "warning",
                f"{counted(len(single), 'label has', 'labels have')} one image only: such a query finds nothing",
                "add an image of each, or correct the label",
                tuple(_with_nearest(single, labels)),
            )
        return
    queries = [label for label, counts in labels.items() if not counts["gallery"]]
    gallery = [label for label, counts in labels.items() if not counts["query"]]
    if queries:
        there = [label for label, counts in labels.items() if counts["gallery"]]
        yield Finding(
            "label-query-only",
            "warning",
            f"{counted(len(queries), 'label is', 'labels are')} on the query side only",
            "add gallery images of each, or correct the spelling",
            tuple(_with_nearest(queries, there)),
        )
    if gallery:
        yield Finding(
            "label-gallery-only",
            "note",
            f"{counted(len(gallery), 'label is', 'labels are')} in the gallery only: negatives for every query",
            "",
            tuple(_with_nearest(gallery, queries)),
        )


def find_queries_without_positive(
    relevance: Relevance, query: Samples, protocol: EvalProtocol
) -> tuple[list[Finding], int]:
    """A finding for each reason why queries have no positive, and the number of the other queries."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for row in _without_positive(relevance, query, protocol):
        reasons[relevance.why_no_positive(row)].append(query.row_ids[row])
    outcome = {
        "exclude": "they are excluded and counted (no_positive=exclude)",
        "miss": "they count as misses (no_positive=miss)",
        "error": "no_positive=error stops there; mend the data, or use exclude or miss",
    }[protocol.no_positive]
    found = [
        Finding(
            "no-positive",
            "error" if protocol.no_positive == "error" else "warning",
            f"{counted(len(names), 'query has', 'queries have')} no positive: {reason}",
            outcome,
            tuple(names),
        )
        for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]
    return found, len(query) - sum(len(names) for names in reasons.values())


def _without_positive(relevance: Relevance, query: Samples, protocol: EvalProtocol) -> Iterator[int]:
    pairs = relevance.pairs
    rows = np.arange(len(query))
    one_label = protocol.relevance == "label" and all(isinstance(label, str) for label in query.labels)
    if (one_label or protocol.relevance == "qrels") and relevance.distractors is None:
        # Here each match is a pair of its own: more of them than ignored pairs leave one that is not ignored.
        rows = rows[2 * relevance.positive.pairs <= pairs]
    costs = np.cumsum(pairs[rows]) // PAIRS_A_BLOCK
    for block in np.split(rows, np.flatnonzero(np.diff(costs)) + 1):
        judged = relevance.judge(block)
        yield from block[np.diff(judged.positive_starts) == 0].tolist()


def _with_nearest(labels: Sequence[str], others: Iterable[str]) -> list[str]:
    """Each label with the nearest spelling among the others, those that have one first."""
    others = list(others)
    plain: dict[str, list[str]] = defaultdict(list)
    for other in others:
        plain[_plain(other)].append(other)
    compared = COMPARED // max(1, len(others))
    near, far = [], []
    for number, label in enumerate(labels):
        alike = [other for other in plain[_plain(label)] if other != label]
        if not alike and number < compared:
            close = difflib.get_close_matches(label, others, n=3, cutoff=0.8)
            alike = [other for other in close if other != label and _digits(other) == _digits(label)]
        if alike:
            near.append(f"{label!r}, nearest {alike[0]!r}")
        else:
            far.append(repr(label))
    return near + far


def _digits(label: str) -> list[str]:
    """The numbers in a label: what differs in them is another class and no slip."""
    return re.findall(r"[0-9]+", label)


def _plain(label: str) -> str:
    """A label without what people spell in different ways: case, spaces, hyphens, and forms of letters."""
    return re.sub(r"[\s_-]+", "", unicodedata.normalize("NFKC", label).casefold())
