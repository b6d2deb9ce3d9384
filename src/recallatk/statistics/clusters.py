"""Clusters: queries that are hit or missed together, because they share a label, a place or a photo."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recallatk.types import Average, Label, each_label

Values = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Clusters:
    """Which queries belong together.

    A mean over queries is a ratio of sums over clusters: that of the values over that of the weights. With
    `average="macro"` each label is a cluster of weight 1 whose value is the mean of its queries.

    Attributes:
        queries: rows of the queries, a row as often as it counts (macro: once for each of its labels).
        codes: the cluster of each of them, 0..count-1.
        names: what the queries of each cluster share, by code: one value or several; the row of one without any.
        column: what makes a cluster: `label`, or a column of the queries.
        average: micro or macro.
    """

    queries: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    names: tuple[tuple[str, ...] | tuple[int], ...]
    column: str
    average: Average

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return len(self.names)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """How many queries each cluster has."""
        sizes: npt.NDArray[np.int64] = np.bincount(self.codes, minlength=self.count)
        return sizes

    @property
    def weights(self) -> Values:
        """What each cluster counts in the mean: its queries (micro), or 1 (macro)."""
        return np.ones(self.count) if self.average == "macro" else self.sizes.astype(np.float64)

    def sums(self, values: Values) -> Values:
        """Of one value a query, the sum over each cluster (micro) or its mean (macro).

        Args:
            values: one for each query, in the order that the clusters were made in.
        """
        counted = values[self.queries]
        # In the order of the values, so that rounding does not depend on the order of the queries.
        order = np.lexsort((counted, self.codes))
        sums: Values = np.bincount(self.codes[order], weights=counted[order], minlength=self.count).astype(np.float64)
        return sums / self.sizes if self.average == "macro" else sums


def cluster_queries(values: Sequence[Label], *, column: str = "label", average: Average = "micro") -> Clusters:
    """Put queries together that share a value; one without a value is a cluster of its own.

    Args:
        values: the label of each query, or what it has in another column. Several labels are one value with
            `average="micro"`; with macro a query belongs to the cluster of each of its labels.
        column: what the values are called.
        average: micro or macro.

    >>> cluster_queries(["a", "b", "a", ""]).codes.tolist()
    [0, 1, 0, 2]
    """
    known: dict[tuple[str, ...] | tuple[int], int] = {}
    queries, codes = [], []
    for row, value in enumerate(values):
        labels = each_label(value) if value else ()
        for key in [(label,) for label in labels] if average == "macro" else [tuple(sorted(labels)) or (row,)]:
            queries.append(row)
            codes.append(known.setdefault(key, len(known)))
    return Clusters(np.array(queries, np.int64), np.array(codes, np.int64), tuple(known), column, average)
