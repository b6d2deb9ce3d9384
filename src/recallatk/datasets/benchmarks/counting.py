"""The counts of a copy against the official ones: a wrong or partial copy is told before anything is encoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from recallatk.datasets.benchmarks.description import Benchmark, Counts, Part
from recallatk.types import EmbeddingSet, ImageSet, RecallatkError, distinct_labels
from recallatk.wording import counted

Rows: TypeAlias = ImageSet | EmbeddingSet

_NOUNS = {
    "queries": ("query", "queries"),
    "labels": ("label among the queries", "labels among the queries"),
}


def count_sides(query: Rows, gallery: Rows | None) -> dict[str, int]:
    """What is counted of a copy; in leave-one-out every query is a gallery image too."""
    return {
        "queries": len(query),
        "gallery": len(query if gallery is None else gallery),
        "labels": len(distinct_labels(query.labels)),
    }


def deviations(part: Part, query: Rows, gallery: Rows | None) -> dict[str, int]:
    """What is counted -> how much of it there is, where that is not the official count; empty for a copy that fits."""
    found = count_sides(query, gallery)
    return {what: found[what] for what, official in part.counts.items() if found[what] != official}


def in_words(part: Part, different: Mapping[str, int]) -> str:
    """What `deviations` gives, as a text."""
    nouns = {**_NOUNS, "gallery": (f"gallery {part.gallery}", f"gallery {part.gallery}s")}
    return "; ".join(
        f"{counted(count, *nouns[what])} where the official count is {part.counts[what]:,}"
        for what, count in different.items()
    )


def check_counts(
    benchmark: Benchmark, name: str, query: Rows, gallery: Rows | None, *, counts: Counts
) -> tuple[str, ...]:
    """Hold a copy against the official counts of a part.

    Args:
        benchmark: the benchmark.
        name: which of its parts is evaluated.
        query: the queries.
        gallery: the gallery; None for leave-one-out.
        counts: official: other counts are an error; any: they are warnings.

    Returns:
        The warnings for the report.

    Raises:
        RecallatkError: a count differs, and counts is official.
    """
    part = benchmark.parts[name]
    different = deviations(part, query, gallery)
    if not different:
        return ()
    counts_found = dict.fromkeys(different.values())
    known = [f"{count:,} is {part.other_counts[count]}" for count in counts_found if count in part.other_counts]
    what = f"{benchmark.title}, {name}: {in_words(part, different)}" + (f" ({'; '.join(known)})" if known else "")
    if counts == "any":
        return (f"{what}; published numbers are of other images",)
    raise RecallatkError(
        f"{what}; complete or correct the copy, or evaluate it as it is with --counts any (counts='any'), and the "
        "report will say so"
    )
