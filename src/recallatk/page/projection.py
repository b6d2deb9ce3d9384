"""The map: the two directions in which the embeddings differ most."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from recallatk.page.options import PageSource
from recallatk.page.selection import Rows, order_of_ids

MOST_POINTS = 2000


@dataclasses.dataclass(frozen=True, eq=False)
class Map:
    """Queries on a plane.

    Attributes:
        rows: the queries.
        xy: (n, 2), each axis within -1..1.
        explained: the share of the variance that each axis holds.
    """

    rows: Rows
    xy: npt.NDArray[np.float64]
    explained: tuple[float, float]


def project(source: PageSource, chosen: Rows, seed: int) -> Map | None:
    """Principal components of queries at unit length: the chosen ones, and a random sample up to a limit.

    The directions are those of the sample alone, so that a choice of misses does not bend them. None without
    embeddings, or where all are equal.
    """
    if source.query is None:
        return None
    n = len(source.query)
    order = order_of_ids(source.query.row_ids)
    sample = order if n <= MOST_POINTS else np.random.default_rng(seed).permutation(order)[:MOST_POINTS]
    rows = np.concatenate([sample, np.setdiff1d(chosen, sample)])[: max(MOST_POINTS, len(chosen))]
    points = np.asarray(source.query.embeddings[rows], dtype=np.float64)
    points /= np.abs(points).max(axis=1, keepdims=True)  # squares of large numbers would overflow
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    middle = points[: len(sample)].mean(axis=0)
    points -= middle
    _, scale, directions = np.linalg.svd(points[: len(sample)], full_matrices=False)
    total = float((scale**2).sum())
    if total < 1e-12:
        return None
    axes = directions[:2]
    axes = axes * np.where(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)] < 0, -1, 1)[:, None]
    xy = np.zeros((len(rows), 2))
    xy[:, : len(axes)] = points @ axes.T
    xy /= np.maximum(np.abs(xy).max(axis=0), 1e-12)
    explained = [*(scale[:2] ** 2 / total).tolist(), 0.0]
    return Map(rows, xy, (explained[0], explained[1]))
