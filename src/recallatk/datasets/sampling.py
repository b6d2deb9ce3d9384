"""A part of a data set for a quick look: seeded, spread over the labels, and marked as a sample."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

from recallatk.types import ChoiceError, Dataset, ImageSet
from recallatk.wording import counted


def sample_dataset(dataset: Dataset, limit: int, *, seed: int = 0) -> Dataset:
    """At most `limit` images of each side, drawn so that queries keep positives.

    The labels are put in a random order, those under which nothing can be found last, and taken in rounds: one query
    and one gallery image of each label a round, or two images where every image is both. Of several labels an image
    has, the first counts. The draw depends on the ids, the labels and the seed only, not on the order of the rows. The
    rows of the sample are in the order of ids.

    Args:
        dataset: what to draw from; it is returned unchanged when no side is larger than `limit`.
        limit: images of a side, at least 1.
        seed: of the random numbers, at least 0.

    Raises:
        ChoiceError: the limit or the seed is out of range.
    """
    if limit < 1:
        raise ChoiceError(f"limit={limit}: a sample has at least 1 image; give a larger limit, or none")
    if seed < 0:
        raise ChoiceError(f"seed={seed}: a seed is a whole number of at least 0")
    query, gallery = dataset.query, dataset.gallery
    sides = [query] if gallery is None else [query, gallery]
    if all(len(side) <= limit for side in sides):
        return dataset
    rng = np.random.default_rng(seed)
    labels = sorted({_first_label(side, row) for side in sides for row in range(len(side))})
    turn = {labels[i]: place for place, i in enumerate(rng.permutation(len(labels)))}
    partnered = _partnered_labels(sides)
    order = {label: (label not in partnered, place) for label, place in turn.items()}
    # Images before texts, whichever of them are the queries: both directions then have one sample.
    drawn = {
        place: _draw(side, limit, order, rng, each_round=2 if gallery is None else 1)
        for place, side in sorted(enumerate(sides), key=lambda one: one[1].kind)
    }
    samples = [drawn[place] for place in range(len(sides))]
    kind = sides[-1].kind
    nouns = [(kind, f"{kind}s")] if gallery is None else [("query", "queries"), (f"gallery {kind}", f"gallery {kind}s")]
    sizes = [
        f"{len(part):,} of {counted(len(side), *noun)}" for part, side, noun in zip(samples, sides, nouns, strict=True)
    ]
    warning = f"a sample: {' and '.join(sizes)} (seed {seed}); not comparable with a full evaluation"
    return dataclasses.replace(
        dataset,
        query=samples[0],
        gallery=None if gallery is None else samples[1],
        warnings=(*dataset.warnings, warning),
        source={**dataset.source, "limit": limit, "seed": seed},
    )


def _partnered_labels(sides: Sequence[ImageSet]) -> set[str]:
    """The labels under which a query can find something: those on both sides, or of two images where all are both."""
    counts = [Counter(_first_label(side, row) for row in range(len(side))) for side in sides]
    if len(counts) == 1:
        return {label for label, count in counts[0].items() if count > 1}
    return set(counts[0]) & set(counts[1])


def _draw(
    side: ImageSet, limit: int, order: dict[str, tuple[bool, int]], rng: np.random.Generator, *, each_round: int
) -> ImageSet:
    members: dict[str, list[int]] = {}
    for row in sorted(range(len(side)), key=side.ids.__getitem__):
        members.setdefault(_first_label(side, row), []).append(row)
    drawn = []
    for label in sorted(members):
        for place, row in enumerate(rng.permutation(members[label]).tolist()):
            drawn.append((place // each_round, order[label], place, row))
    rows = [row for *_, row in sorted(drawn)[:limit]]
    return side.take(sorted(rows, key=side.ids.__getitem__))


def _first_label(side: ImageSet, row: int) -> str:
    label = side.labels[row]
    return label if isinstance(label, str) else next(iter(label), "")
