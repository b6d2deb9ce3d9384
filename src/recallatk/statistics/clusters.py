"""Clusters: queries that are hit or missed together, because they share a label, a place or a photo."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recallatk.types import Average, Label, each_label

Values = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Clusters:
    """Which queries belong together.

    A mean over queries is a ratio of sums over clusters: that of the values over that of the weights. With
    `average="macro"` a query counts 1/n for each of its labels, n being the queries of that label: where it has one
    label, each label is a cluster of weight 1 whose value is the mean of its queries. A query is in one cluster only,
    whatever labels it has, or its outcome would be taken for several.

    Attributes:
        queries: rows of the queries that count (macro: those with a label).
        codes: the cluster of each of them, 0..count-1.
        names: what the queries of each cluster share, by code: one value or several; the row of one without any.
        column: what makes a cluster: `label`, or a column of the queries.
        average: micro or macro.
        owners: macro: the cluster of each label of each cluster; of other means there are none.
        label_sizes: macro: how many queries each of these labels has, in all clusters.
    """

    queries: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    names: tuple[tuple[str, ...] | tuple[int], ...]
    column: str
    average: Average
    owners: npt.NDArray[np.int64]
    label_sizes: npt.NDArray[np.int64]

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
        """What each cluster counts in the mean: its queries (micro), or its share of each of its labels (macro)."""
        return self._shares(self.sizes.astype(np.float64))

    @property
    def noun(self) -> tuple[str, str]:
        """What one cluster is, and several are."""
        return name_clusters(self.column, several=any(len(name) > 1 for name in self.names))

    def sums(self, values: Values) -> Values:
        """Of one value a query, the sum over each cluster: of a label of its own, with macro, the mean.

        Args:
            values: one for each query, in the order that the clusters were made in.
        """
        counted = values[self.queries]
        # In the order of the values, so that rounding does not depend on the order of the queries.
        order = np.lexsort((counted, self.codes))
        sums: Values = np.bincount(self.codes[order], weights=counted[order], minlength=self.count).astype(np.float64)
        return self._shares(sums)

    def mean(self, values: Values) -> float:
        """The mean of one value a query, micro or macro; the order of the queries changes no digit."""
        return math.fsum(self.sums(values)) / math.fsum(self.weights)

    def _shares(self, sums: Values) -> Values:
        if self.average == "micro":
            return sums
        shares: Values = np.bincount(self.owners, sums[self.owners] / self.label_sizes, self.count).astype(np.float64)
        return shares


def name_clusters(column: str, *, several: bool = False) -> tuple[str, str]:
    """What one cluster is called, and what several are.

    Args:
        column: what makes a cluster.
        several: whether queries have several labels.
    """
    if column != "label":
        return f"value of {column}", f"values of {column}"
    return ("set of labels", "sets of labels") if several else ("label", "labels")


def cluster_queries(values: Sequence[Label], *, column: str = "label", average: Average = "micro") -> Clusters:
    """Put queries together that share a value; one without a value is a cluster of its own.

    Args:
        values: the label of each query, or what it has in another column. Several labels are one value.
        column: what the values are called.
        average: micro or macro.

    >>> cluster_queries(["a", "b", "a", ""]).codes.tolist()
    [0, 1, 0, 2]
    """
    known: dict[tuple[str, ...] | tuple[int], int] = {}
    queries, codes = [], []
    labelled: Counter[str] = Counter()
    for row, value in enumerate(values):
        labels = each_label(value) if value else ()
        labelled.update(labels)
        if labels or average == "micro":  # a query without a label is in no mean over labels
            queries.append(row)
            codes.append(known.setdefault(tuple(sorted(labels)) or (row,), len(known)))
    owned = [(code, labelled[str(one)]) for name, code in known.items() for one in name if average == "macro"]
    owners, sizes = np.array(owned, np.int64).reshape(-1, 2).T
    return Clusters(
        np.array(queries, np.int64), np.array(codes, np.int64), tuple(known), column, average, owners, sizes
    )
