"""The metrics of each query alone, where relevant gallery items are known by position: for metrics of frameworks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recallatk.evaluation.tally import Tally, fold
from recallatk.memory import working_memory
from recallatk.metrics import parse_metric
from recallatk.ranking import Block, RankedRows, rank_scores
from recallatk.relevance import Relevance

Rows = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class Positions:
    """Gallery positions for each query: those of the i-th query are `rows[starts[i]:starts[i + 1]]`.

    Attributes:
        starts: (n_queries + 1,).
        rows: in any order; for ranked lists, the best first. A position may come more than once.
    """

    starts: Rows
    rows: Rows

    @classmethod
    def of(cls, lists: Sequence[npt.NDArray[np.integer]]) -> Positions:
        """From one array for each query."""
        starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        return cls(starts, np.concatenate([np.empty(0, np.int64), *lists]).astype(np.int64, copy=False))

    @classmethod
    def marked(cls, marks: npt.NDArray[np.generic]) -> Positions:
        """From (n_queries, n_gallery) marks: every entry other than 0 is a position."""
        n, width = marks.shape
        keys = np.flatnonzero(marks != 0)  # several times faster than to look for nonzero integers
        starts = np.searchsorted(keys, np.arange(n + 1) * width)
        return cls(starts.astype(np.int64), keys % max(width, 1))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def owners(self) -> Rows:
        """The query of each position."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))


def tally_scores(scores: npt.NDArray[np.number], relevant: Positions, metrics: Sequence[str]) -> Tally:
    """Metrics of each query from the scores of the whole gallery.

    Args:
        scores: (n_queries, n_gallery), higher is nearer.
        relevant: the relevant positions of each query, below n_gallery; naming one twice changes nothing.
        metrics: such as `"recall@5"`. A query without a relevant item has the value 0.

    Raises:
        RecallatkError: a score is NaN, or the sizes do not fit.
    """
    relevance = Relevance.listed(scores.shape[1], relevant.starts, relevant.rows)
    return _tally(scores, relevance, metrics)


def tally_lists(lists: Positions, relevant: Positions, metrics: Sequence[str]) -> Tally:
    """Metrics of each query from ranked lists of the positions that were returned.

    An item that a list names again takes a rank and is no positive; one that it does not name is never found. The
    size of the gallery is not known, so chance and `n_candidates` mean nothing here.
    """
    items, codes = np.unique(np.concatenate([lists.rows, relevant.rows]), return_inverse=True)
    listed, wanted = codes[: len(lists.rows)], codes[len(lists.rows) :]
    owners = lists.owners
    place = np.arange(len(listed)) - lists.starts[owners]
    order = np.lexsort((place, listed, owners))
    again = np.zeros(len(listed), np.bool_)
    again[order[1:]] = (np.diff(owners[order]) == 0) & (np.diff(listed[order]) == 0)
    rows = np.where(again, len(items) + place, listed)  # a repeated item becomes an item of its own
    n_gallery = len(items) + int(place.max(initial=-1)) + 1
    ranked = RankedRows(lists.starts, rows, -place.astype(np.float64))
    return _tally(ranked, Relevance.listed(n_gallery, relevant.starts, wanted), metrics)


def _tally(scores: npt.NDArray[np.number] | RankedRows, relevance: Relevance, metrics: Sequence[str]) -> Tally:
    names = [parse_metric(metric) for metric in metrics]
    deep = any(name.metric.depth == "all" for name in names)
    budget, _ = working_memory(None, Block.least().bytes(1))
    blocks = rank_scores(scores, relevance, depth="all" if deep else "first", memory=budget)
    return fold(blocks, names, relevance.n_queries)
