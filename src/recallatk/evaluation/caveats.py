"""What can make the number look right and be wrong: found in the sets and in the counts, and said in words."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from recallatk.types import EmbeddingSet, EvalProtocol, Samples, float32_blocks

Counts = npt.NDArray[np.int64]

COLLAPSED_SHARE = 0.5
"""From this share of queries without any negative outside the near-ties on, the encoder is said to have collapsed."""


def find_row_caveats(query: EmbeddingSet, gallery: EmbeddingSet | None) -> list[str]:
    """A line when nothing says whether equal rows on both sides are the same image."""
    if gallery is None or (query.identity is not None and gallery.identity is not None):
        return []
    return _equal_rows(query, gallery)


def find_caveats(
    query: Samples,
    gallery: Samples | None,
    counts: Mapping[str, Counts],
    kept: Counts,
    protocol: EvalProtocol,
) -> list[str]:
    """One line for each of: clipped k, queries that find themselves or a copy, an encoder that collapsed.

    Args:
        query: the queries.
        gallery: the gallery; None for leave-one-out.
        counts: the columns of `Ranking` at the best positive of every query.
        kept: the rows of the evaluated queries.
        protocol: the protocol.
    """
    counts = {column: values[kept] for column, values in counts.items()}
    found = []
    candidates = counts["n_candidates"]
    for k in protocol.ks:
        short = np.count_nonzero(candidates < k)
        if short:
            found.append(
                f"recall@{k}: {short} of {len(kept)} queries have fewer than {k} gallery items left "
                f"(as few as {candidates.min()}); all that are left were used"
            )
    if gallery is None and protocol.exclude_self == "none":
        found.append("every query is in its own ranking and finds itself first (exclude_self=none)")
    if protocol.exclude_self != "content":
        found += _equal_content(query, gallery or query)
    found += _collapse(counts)
    return found


def _equal_rows(query: EmbeddingSet, gallery: EmbeddingSet) -> list[str]:
    known = {row.tobytes() for _, block in float32_blocks(gallery.embeddings) for row in block}
    equal = sum(row.tobytes() in known for _, block in float32_blocks(query.embeddings) for row in block)
    if not equal:
        return []
    return [
        f"{equal} of {len(query)} queries have an embedding equal to one in the gallery, and without ids nothing says "
        "whether it is the same image; give ids so that a query is left out of its own ranking"
    ]


def _equal_content(query: Samples, gallery: Samples) -> list[str]:
    """Images with the same bytes under two identities: the query finds a copy of itself."""
    if query.content is None or gallery.content is None:
        return []
    by_content: dict[str, list[int]] = {}
    for row, content in enumerate(gallery.content):
        by_content.setdefault(content, []).append(row)
    own, other = query.identity or query.row_ids, gallery.identity or gallery.row_ids
    copies = [
        (query.row_ids[row], gallery.row_ids[twin], query.labels[row] == gallery.labels[twin])
        for row, content in enumerate(query.content)
        for twin in by_content.get(content, ())
        if own[row] != other[twin]
    ]
    if not copies:
        return []
    queries = len({name for name, _, _ in copies})
    name, twin, _ = min(copies)
    unlike = len({name for name, _, same_label in copies if not same_label})
    other_label = f", {unlike} of them under another label" if unlike else ""
    return [
        f"{queries} queries have a duplicate in the gallery, an image with identical bytes{other_label} "
        f"(e.g. {name} and {twin}); leave such copies out with exclude_self=content"
    ]


def _collapse(counts: Mapping[str, Counts]) -> list[str]:
    negatives = counts["n_candidates"] - counts["n_positives"]
    level = counts["near_above"] + counts["negatives_tied"] + counts["near_below"]
    collapsed = np.count_nonzero((negatives > 0) & (counts["n_positives"] > 0) & (level == negatives))
    if collapsed < COLLAPSED_SHARE * len(negatives):
        return []
    return [
        f"the encoder maps (nearly) everything to one point: for {collapsed} of {len(negatives)} queries every "
        "negative is within 1e-6 of the best positive, so the number is that of chance"
    ]
