"""What can make the number look right and be wrong: found in the sets and in the counts, and said in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from recallatk.metrics import MetricName
from recallatk.relevance import same_image_keys
from recallatk.signature import Side, count_equal_rows
from recallatk.types import EvalProtocol, Samples, each_label
from recallatk.wording import counted

Counts = npt.NDArray[np.int64]

COLLAPSED_SHARE = 0.5
"""From this share of queries without any negative outside the near-ties on, the encoder is said to have collapsed."""


def find_row_caveats(gallery: Side, query: Side) -> list[str]:
    """A line when nothing says whether equal rows on both sides are the same image."""
    if query.twin is not None or (query.samples.identity is not None and gallery.samples.identity is not None):
        return []
    equal = count_equal_rows(gallery, query)
    if not equal:
        return []
    return [
        f"{_share(equal, len(query.samples))} an embedding equal to one in the gallery, and without ids nothing says "
        "whether it is the same image; give ids so that a query is left out of its own ranking"
    ]


def find_caveats(
    query: Samples,
    gallery: Samples | None,
    counts: Mapping[str, Counts],
    kept: Counts,
    protocol: EvalProtocol,
    names: Sequence[MetricName],
    *,
    gallery_known: bool = True,
) -> list[str]:
    """One line for each of: clipped k, queries that find themselves or a copy, an encoder that collapsed.

    Args:
        query: the queries.
        gallery: the gallery; None for leave-one-out.
        counts: the columns of `Ranking` at the best positive of every query.
        kept: the rows of the evaluated queries.
        protocol: the protocol.
        names: the metrics.
        gallery_known: whether the gallery is more than what lists and qrels name; else nothing says what is left.
    """
    counts = {column: values[kept] for column, values in counts.items()}
    found = []
    for name in names:
        found += _clipped(name, counts) if gallery_known else []
        found += _truncated(name, counts)
    if gallery is None and protocol.exclude_self == "none":
        found.append("every query is in its own ranking and finds itself first (exclude_self=none)")
    if protocol.exclude_self != "content":
        found += _equal_content(query, gallery)
    found += _collapse(counts)
    return found


def _clipped(name: MetricName, counts: Mapping[str, Counts]) -> list[str]:
    """Whether the cutoff is beyond what is left of the gallery."""
    candidates = counts["n_candidates"]
    short = 0 if name.k is None else int(np.count_nonzero(candidates < name.k))
    if not short:
        return []
    return [
        f"{name}: {_share(short, len(candidates))} fewer than {name.k} gallery items left "
        f"(as few as {candidates.min()}); all that are left were used"
    ]


def _truncated(name: MetricName, counts: Mapping[str, Counts]) -> list[str]:
    """Whether ranked lists end before the metric stops looking; queries without any list are told of elsewhere."""
    ranked, candidates = counts["n_ranked"], counts["n_candidates"]
    looked_at = np.minimum(name.reach(counts["n_positives"]), candidates)
    short = (ranked > 0) & (ranked < looked_at)
    if not short.any():
        return []
    number = int(np.count_nonzero(short))
    lists = "1 list is" if number == 1 else f"{number:,} lists are"
    return [
        f"{name}: {lists} truncated before the metric stops looking (the shortest holds "
        f"{counted(int(ranked[short].min()), 'item')}); what a list does not hold is never found"
    ]


def _equal_content(query: Samples, gallery: Samples | None) -> list[str]:
    """Images with the same bytes under two identities: the query finds a copy of itself."""
    other = query if gallery is None else gallery
    if query.content is None or other.content is None:
        return []
    own_keys, keys = same_image_keys(query, gallery, by="identity")
    own_labels, labels = ([each_label(label) for label in side.labels] for side in (query, other))
    # Counts of gallery rows by bytes, and of those that are the query itself: pairs may be too many to list.
    equal, itself, alike, itself_alike = (
        Counter(zip(other.content, *columns, strict=True)) for columns in ((), (keys,), (labels,), (keys, labels))
    )
    copied, unlike = [], 0
    for row, (content, key, label) in enumerate(zip(query.content, own_keys, own_labels, strict=True)):
        copies = equal[content,] - (itself[content, key] if key else 0)
        if content and copies:
            copied.append(row)
            unlike += copies > alike[content, label] - (itself_alike[content, key, label] if key else 0)
    if not copied:
        return []
    first = min(copied, key=query.row_ids.__getitem__)
    its_content = query.content[first]
    twin = min(
        name
        for name, content, key in zip(other.row_ids, other.content, keys, strict=True)
        if content == its_content and not (key and key == own_keys[first])
    )
    other_label = f", {unlike} of them under another label" if unlike else ""
    return [
        f"{counted(len(copied), 'query has', 'queries have')} a duplicate in the gallery, an image with identical "
        f"bytes{other_label} (e.g. {query.row_ids[first]} and {twin}); leave such copies out with exclude_self=content"
    ]


def _collapse(counts: Mapping[str, Counts]) -> list[str]:
    negatives = counts["n_candidates"] - counts["n_positives"]
    level = counts["near_above"] + counts["negatives_tied"] + counts["near_below"]
    collapsed = np.count_nonzero((negatives > 0) & (counts["n_positives"] > 0) & (level == negatives))
    if collapsed < COLLAPSED_SHARE * len(negatives):
        return []
    return [
        f"for {collapsed} of {counted(len(negatives), 'query', 'queries')} every negative is as near as the best "
        "positive (within 1e-6), as with an encoder that maps everything to one point: the number is that of chance"
    ]


def _share(part: int, whole: int) -> str:
    return f"{part} of {counted(whole, 'query', 'queries')} {'has' if part == 1 else 'have'}"
