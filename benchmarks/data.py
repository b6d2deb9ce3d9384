"""Made-up embeddings: clustered like those of a trained encoder, and the shapes that hurt a screen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import text

Rows = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        query: (q, d) unit rows.
        query_labels: (q,) class numbers.
        gallery: (n, d) unit rows; None for self-retrieval, where a query is ignored in its own ranking.
        gallery_labels: (n,) class numbers.
        metrics: what is evaluated; recall@1,5,10 in any case.
        largest_k: what peers have to fetch for it, without the query itself.
    """

    query: Rows
    query_labels: Labels
    gallery: Rows | None = None
    gallery_labels: Labels | None = None
    metrics: tuple[str, ...] = ()
    largest_k: int = 10


def unit_rows(rows: npt.NDArray[np.floating]) -> Rows:
    """Scale rows to unit length."""
    return np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def clustered(
    rng: np.random.Generator, n: int, d: int, *, class_size: float, spread: float = 1.0
) -> tuple[npt.NDArray[np.float64], Labels]:
    """Classes around centres, some twelve groups of centres, and directions of unlike importance.

    With `spread` 1, about five items a class and 20,000 rows, recall@1 is near 0.75 at any width, as it is on Stanford
    Online Products.

    Args:
        rng: the source of everything random.
        n: rows.
        d: columns.
        class_size: mean number of items a class.
        spread: of the items around the centre of their class; it differs from item to item.
    """
    weight, noise_weight = ((np.arange(d) + 2.0) ** -power for power in (0.8, 0.48))
    weight, noise_weight = np.sqrt(weight / weight.sum()), np.sqrt(noise_weight / noise_weight.sum())
    classes = max(1, round(n / class_size))
    labels = rng.permutation(np.arange(n) % classes) if class_size >= 50 else rng.integers(0, classes, n)
    themes = rng.normal(size=(12, d)) * weight
    centres = rng.normal(size=(classes, d)) * weight + 0.6 * themes[rng.integers(0, 12, classes)]
    strength = spread * 2.05 * (d / 512) ** 0.3 * np.exp(0.45 * rng.normal(size=(n, 1)))
    rows = centres[labels] + strength * (rng.normal(size=(n, d)) * noise_weight)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]  # no coordinate is special
    return rows @ turn, labels


def self_retrieval(n: int, d: int, *, class_size: float = 5.3, spread: float = 1.0, seed: int = 0) -> Case:
    """Every row against every other."""
    rows, labels = clustered(np.random.default_rng(seed), n, d, class_size=class_size, spread=spread)
    return Case(unit_rows(rows), labels)


def separate(queries: int, n: int, d: int, *, seed: int = 0) -> Case:
    """Queries against a gallery of other rows of the same classes."""
    rows, labels = clustered(np.random.default_rng(seed), queries + n, d, class_size=5.3 * (queries + n) / n)
    rows = unit_rows(rows)
    return Case(rows[:queries], labels[:queries], rows[queries:], labels[queries:])


def outlier_coordinates(n: int, d: int) -> Case:
    """Two coordinates that are large in every row, as in CLIP's embeddings."""
    rows, labels = clustered(np.random.default_rng(1), n, d, class_size=5.3)
    rows[:, :2] += np.sqrt((rows**2).sum(axis=1).mean()) * np.array([0.6, -0.4])
    return Case(unit_rows(rows), labels)


def outlier_variance(n: int, d: int) -> Case:
    """Two coordinates that vary far more than all others, as activations of large transformers do."""
    rows, labels = clustered(np.random.default_rng(1), n, d, class_size=5.3)
    rows[:, :2] *= 0.4 * np.sqrt((rows**2).sum(axis=1).mean()) / rows[:, :2].std(axis=0)
    return Case(unit_rows(rows), labels)


def documentation() -> Case:
    """Real embeddings of sentences, duplicates among them (text.py)."""
    return Case(*text.docstring_embeddings())


def common_mean(n: int, d: int) -> Case:
    """Every row shares a direction: all similarities are high."""
    rows, labels = clustered(np.random.default_rng(2), n, d, class_size=5.3)
    rows += 1.5 * np.sqrt((rows**2).sum(axis=1).mean()) * unit_rows(np.random.default_rng(3).normal(size=(1, d)))
    return Case(unit_rows(rows), labels)


def collapsed(n: int, d: int) -> Case:
    """An encoder that maps everything to one point."""
    labels = np.random.default_rng(4).integers(0, max(1, n // 5), n)
    return Case(unit_rows(np.tile(np.random.default_rng(5).normal(size=d), (n, 1))), labels)


def duplicated(n: int, d: int, share: float) -> Case:
    """A share of the rows are copies of others, whatever their labels."""
    rng = np.random.default_rng(6)
    rows, labels = clustered(rng, n, d, class_size=5.3)
    copies = rng.permutation(n)[: int(share * n)]
    rows[copies] = rows[rng.integers(0, n, len(copies))]
    return Case(unit_rows(rows), labels)


def codes(n: int, bits: int) -> Case:
    """Binary codes: few distinct similarities, so ties everywhere."""
    rows, labels = clustered(np.random.default_rng(7), n, bits, class_size=5.3, spread=0.5)
    return Case(unit_rows(np.where(rows > 0, 1.0, -1.0)), labels)


def multi_hot(n: int, d: int, ones: int) -> Case:
    """A few ones among zeros: attributes, tags."""
    rows, labels = clustered(np.random.default_rng(8), n, d, class_size=5.3, spread=0.5)
    hot = np.zeros((n, d))
    np.put_along_axis(hot, np.argpartition(-rows, ones, axis=1)[:, :ones], 1.0, axis=1)
    return Case(unit_rows(hot), labels)


def every_positive(n: int, d: int, *, class_size: float = 5.3, metrics: tuple[str, ...]) -> Case:
    """Metrics that look at all positives; a peer has to fetch as many rows as the largest class holds."""
    spread = 1.0 if class_size < 50 else 1.7
    case = self_retrieval(n, d, class_size=class_size, spread=spread, seed=9)
    return dataclasses.replace(case, metrics=metrics, largest_k=int(np.bincount(case.query_labels).max()) - 1)


REAL_TEXT = "real text embeddings 12k, d=384"

CASES: dict[str, Callable[[], Case]] = {
    "self-retrieval 20k, d=128": lambda: self_retrieval(20_000, 128),
    "self-retrieval 20k, d=512": lambda: self_retrieval(20_000, 512),
    "self-retrieval 20k, d=768": lambda: self_retrieval(20_000, 768),
    "separate 10k x 10k, d=512": lambda: separate(10_000, 10_000, 512),
    "separate 2k x 100k, d=256": lambda: separate(2_000, 100_000, 256),
    "classes 10 x 2000, d=512": lambda: self_retrieval(20_000, 512, class_size=2000, spread=2.4),
    "classes 100 x 60, d=512": lambda: self_retrieval(6_000, 512, class_size=60, spread=1.7),
    "outlier coordinates 20k, d=512": lambda: outlier_coordinates(20_000, 512),
    "outlier variance 20k, d=512": lambda: outlier_variance(20_000, 512),
    "common mean 20k, d=512": lambda: common_mean(20_000, 512),
    "20 % duplicates across classes, 20k, d=512": lambda: duplicated(20_000, 512, 0.2),
    "collapsed 20k, d=512": lambda: collapsed(20_000, 512),
    "64-bit codes 20k": lambda: codes(20_000, 64),
    "multi-hot 20k, d=128": lambda: multi_hot(20_000, 128, 10),
    REAL_TEXT: documentation,
    "MAP@R 20k, d=512": lambda: every_positive(20_000, 512, metrics=("map_r",)),
    "MAP 20k, d=512": lambda: every_positive(20_000, 512, metrics=("map",)),
    "MAP@R, classes 100 x 60": lambda: every_positive(6_000, 512, class_size=60, metrics=("map_r",)),
}
"""What `make bench` runs: a few minutes on one core."""

FULL_CASES: dict[str, Callable[[], Case]] = {
    "separate 20k x 20k, d=128": lambda: separate(20_000, 20_000, 128),
    "separate 20k x 20k, d=512": lambda: separate(20_000, 20_000, 512),
    "separate 20k x 20k, d=768": lambda: separate(20_000, 20_000, 768),
    "self-retrieval 60.5k, d=512": lambda: self_retrieval(60_500, 512),
    "separate 2k x 500k, d=256": lambda: separate(2_000, 500_000, 256),
    "classes 10 x 6000, d=512": lambda: self_retrieval(60_000, 512, class_size=6000, spread=2.4),
}
"""Further rows behind --full."""

LEFT_OUT = {} if text.why_not() is None else {REAL_TEXT: text.why_not()}
"""Case -> what it needs and is not there."""

AIMS = {
    "self-retrieval 20k, d=128": "7x",
    "self-retrieval 20k, d=512": "7x",
    "self-retrieval 20k, d=768": "7x",
    "separate 10k x 10k, d=512": "4.2x",
    "separate 20k x 20k, d=128": "4.2x",
    "separate 20k x 20k, d=512": "4.2x",
    "separate 20k x 20k, d=768": "4.2x",
    "self-retrieval 60.5k, d=512": "6.5x",
    "separate 2k x 500k, d=256": "3.5x",
    REAL_TEXT: "4.5x",
    "classes 10 x 2000, d=512": "4x",
    "classes 10 x 6000, d=512": "4x",
    "classes 100 x 60, d=512": "4x",
    "outlier coordinates 20k, d=512": "plain / 1.3",
    "outlier variance 20k, d=512": "plain / 1.3",
    "20 % duplicates across classes, 20k, d=512": "plain / 1.5",
    "collapsed 20k, d=512": "plain / 1.5",
    "64-bit codes 20k": "plain / 2",
    "multi-hot 20k, d=128": "plain / 2",
    "MAP@R 20k, d=512": "1x",
    "MAP 20k, d=512": "1x",
    "MAP@R, classes 100 x 60": "1x",
}
"""How many times faster than faiss the project wants to be; "plain" is what it reaches at the same size and width."""
