"""The lists that people look at: the nearest gallery items of a query. The number never depends on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.cores import usable_cores
from recallatk.memory import default_memory
from recallatk.ranking import Block, Grid, stream_grid
from recallatk.ranking.blocks import query_blocks
from recallatk.ranking.products import exact_products, fetched_products
from recallatk.ranking.reference import ExactProducts
from recallatk.relevance import Relevance, build_relevance, side_names
from recallatk.types import ChoiceError, EmbeddingSet, EvalProtocol, Qrels, RecallatkError
from recallatk.wording import counted

Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

DENSE = 32
"""A pair by itself costs as much as so many pairs in a product of matrices."""


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbours:
    """For n queries the k nearest gallery items, and where their positives stand. Ignored items do not exist here.

    Items of equal similarity are tied: they share a rank, and stand in the order of their ids only so that the order of
    the rows says nothing. Where a list is shorter than k, because no more of the gallery is left, `rows` is -1,
    `similarity` NaN, `ranks` and `ties` 0 and `positive` False.

    Attributes:
        queries: (n,) rows of the query set.
        rows: (n, k) gallery rows, nearest first.
        similarity: (n, k) higher is nearer: the cosine, the inner product, or minus the squared distance.
        ranks: (n, k) 1 + the items of greater similarity.
        ties: (n, k) how many gallery items have this similarity, those beyond the list included; 1 for no tie.
        positive: (n, k) whether the item is a positive.
        best_positive: (n,) gallery row of the nearest positive, the first by id of several; -1 without a positive.
        best_positive_similarity: (n,) of that one; NaN without a positive.
        negatives_ahead: (n,) negatives nearer than the best positive, as the number counts them.
        negatives_tied: (n,) negatives level with it.
        positives_tied: (n,) positives level with it, itself included; 0 without a positive.
        best_negative: (n,) gallery row of the nearest negative, the first by id of several; -1 without a negative.
        best_negative_similarity: (n,) of that one; NaN without a negative.
        n_positives: (n,) positives that are left after everything ignored is gone.
        n_candidates: (n,) gallery items that are left.
    """

    queries: Counts
    rows: Counts
    similarity: Numbers
    ranks: Counts
    ties: Counts
    positive: Flags
    best_positive: Counts
    best_positive_similarity: Numbers
    negatives_ahead: Counts
    negatives_tied: Counts
    positives_tied: Counts
    best_negative: Counts
    best_negative_similarity: Numbers
    n_positives: Counts
    n_candidates: Counts

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def tied(self) -> Flags:
        """(n, k) whether another gallery item has the same similarity."""
        return self.ties > 1

    @property
    def best_positive_rank(self) -> Counts:
        """(n,) the rank of the best positive if ties are broken for it: 1 + the negatives ahead; 0 without one."""
        return np.where(self.n_positives > 0, self.negatives_ahead + 1, 0)


def nearest(
    query: EmbeddingSet,
    gallery: EmbeddingSet | None = None,
    k: int = 10,
    *,
    protocol: EvalProtocol | None = None,
    qrels: Qrels | None = None,
    rows: Iterable[int] | None = None,
    memory: int | None = None,
    threads: int | None = None,
    block: Block | None = None,
) -> Neighbours:
    """The exact nearest gallery items of queries, in the order that recall@k implies.

    Args:
        query: the queries.
        gallery: the gallery; None for leave-one-out.
        k: the length of the lists.
        protocol: who is positive, who is ignored, and the similarity; default `EvalProtocol()`.
        qrels: judged pairs, as for `evaluate_embeddings`.
        rows: rows of the query set, in the order wanted; default all.
        memory: bytes of working memory beyond what the process holds; default a quarter of what is free. The lists
            themselves come on top.
        threads: how many; default as many as there are cores.
        block: block sizes, in place of those chosen from `memory`; they never change a list.

    Raises:
        RecallatkError: the sets do not fit each other or the protocol; k or a row is out of range.

    >>> shop = EmbeddingSet([[1, 0], [1, 0], [0, 1]], labels=["mug", "cup", "hat"])
    >>> found = nearest(EmbeddingSet([[1, 0.5]], labels=["mug"]), shop, k=2)
    >>> found.rows, found.ranks, found.positive
    (array([[0, 1]]), array([[1, 1]]), array([[ True, False]]))
    """
    from threadpoolctl import ThreadpoolController

    gallery = None if gallery is query else gallery
    other = query if gallery is None else gallery
    protocol = EvalProtocol() if protocol is None else protocol
    chosen = _check(query, gallery, k, rows, threads)
    relevance = build_relevance(query, gallery, protocol, qrels=qrels)
    sets = [query.embeddings] if gallery is None else [query.embeddings, gallery.embeddings]
    grids = stream_grid(*sets, similarity=protocol.similarity)
    size = block or Block.within(default_memory() if memory is None else memory, grids[0].dim)
    own, theirs = grids[0], grids[-1]
    theirs = theirs.load() if len(theirs) <= size.part else theirs
    places = _id_places(other)
    parts = []
    with ThreadpoolController().limit(limits=threads or usable_cores(), user_api="blas"):
        for some in list(query_blocks(relevance.pairs[chosen], size)) or [slice(0, 0)]:
            parts.append(_look(own, theirs, relevance, places, chosen[some], k=min(k, len(other)), size=size))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Neighbours(queries=chosen, **{name: _pad(name, column, k) for name, column in columns.items()})


def _check(
    query: EmbeddingSet, gallery: EmbeddingSet | None, k: int, rows: Iterable[int] | None, threads: int | None
) -> Counts:
    """The chosen rows, in range; everything else fits."""
    for role, side in (("query", query), ("gallery", gallery)):
        if side is not None and not isinstance(side, EmbeddingSet):
            raise RecallatkError(
                f"{role}: {type(side).__name__} is no EmbeddingSet; make one: EmbeddingSet(embeddings, labels)"
            )
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ChoiceError(f"k={k!r}: a list has a whole number of items, at least 1")
    if threads is not None and threads < 1:
        raise ChoiceError(f"threads={threads}: there must be at least one")
    other = query if gallery is None else gallery
    if not len(query) or not len(other):
        raise RecallatkError(
            f"there are {len(query)} queries and {len(other)} gallery items; give at least one of each"
        )
    if query.embeddings.shape[1] != other.embeddings.shape[1]:
        names = side_names(query, gallery)
        raise RecallatkError(
            f"the {names[0]} embeddings have {counted(query.embeddings.shape[1], 'column')} and the {names[1]} "
            f"embeddings {other.embeddings.shape[1]}; encode both with one encoder"
        )
    if rows is None:
        return np.arange(len(query))
    listed: list[Any] = list(rows)
    wrong = [row for row in listed if isinstance(row, bool) or not isinstance(row, int | np.integer)]
    wrong = wrong or [row for row in listed if not 0 <= row < len(query)]
    if wrong:
        raise ChoiceError(f"rows: {wrong[0]!r} is no row of the {counted(len(query), 'query', 'queries')}; from 0 on")
    return np.array(listed, dtype=np.int64)


def _id_places(rows: EmbeddingSet) -> Counts:
    """The place of each row among the sorted ids; rows without ids are in their own order."""
    if rows.ids is None:
        return np.arange(len(rows))
    places = np.empty(len(rows), np.int64)
    places[sorted(range(len(rows)), key=rows.ids.__getitem__)] = np.arange(len(rows))
    return places


def _look(
    query: Grid, gallery: Grid, relevance: Relevance, places: Counts, queries: Counts, *, k: int, size: Block
) -> dict[str, npt.NDArray[Any]]:
    """The columns of `Neighbours` for some queries: the gallery passes by once, a tile at a time."""
    judged = relevance.judge(queries)
    n = len(queries)
    own = query.rows[queries]
    products = ExactProducts(own.astype(np.float64), gallery, size.gallery)
    owners, positives = judged.positive_queries, judged.positive_rows
    if len(positives) * DENSE < n * len(gallery):
        similarity = fetched_products(own, gallery, exact_products, at_once=size.part)(owners, positives)
    else:
        similarity = np.empty(len(positives))
        for start, tile in products.tiles():
            inside = (positives >= start) & (positives < start + tile.shape[1])
            similarity[inside] = tile[owners[inside], positives[inside] - start]
    best = _Nearest.none(n, places)
    best.add(owners, positives, similarity)
    tied = np.bincount(owners[similarity == best.similarity[owners]], minlength=n)
    negative = _Nearest.none(n, places)
    lists = _Lists.none(n, k, places)
    ahead, level = np.zeros(n, np.int64), np.zeros(n, np.int64)
    compared = np.where(best.row >= 0, best.similarity, np.inf)[:, None]
    for start, tile in products.tiles():
        _put_out(tile, judged.ignored_queries, judged.ignored_rows - start)
        lists.add(tile, start)
        _put_out(tile, owners, positives - start)
        ahead += np.count_nonzero(tile > compared, axis=1)
        level += np.count_nonzero(tile == compared, axis=1)
        negative.add_tile(tile, start)
    rows, found, ties = lists.rows, lists.similarity, lists.ties()
    there = rows >= 0
    asked = np.arange(n)[:, None] * len(gallery) + rows
    return {
        "rows": rows,
        "similarity": np.where(there, found, np.nan) * gallery.unit,
        "ranks": np.where(there, _ranks(found), 0),
        "ties": np.where(there, ties, 0),
        "positive": _among(asked, owners * len(gallery) + positives) & there,
        "best_positive": best.row,
        "best_positive_similarity": np.where(best.row >= 0, best.similarity, np.nan) * gallery.unit,
        "negatives_ahead": ahead,
        "negatives_tied": level,
        "positives_tied": tied,
        "best_negative": negative.row,
        "best_negative_similarity": np.where(negative.row >= 0, negative.similarity, np.nan) * gallery.unit,
        "n_positives": np.diff(judged.positive_starts),
        "n_candidates": len(gallery) - np.diff(judged.ignored_starts),
    }


def _among(values: Counts, rising: Counts) -> Flags:
    """Which values are among those of a rising column."""
    if not len(rising):
        return np.zeros(values.shape, np.bool_)
    there: Flags = rising[np.minimum(np.searchsorted(rising, values), len(rising) - 1)] == values
    return there


def _put_out(tile: Numbers, owners: Counts, columns: Counts) -> None:
    """Make pairs that lie in the tile further than anything else."""
    inside = (columns >= 0) & (columns < tile.shape[1])
    tile[owners[inside], columns[inside]] = -np.inf


@dataclasses.dataclass(frozen=True, eq=False)
class _Nearest:
    """The nearest of the rows seen so far, the first by id of several; changed in place."""

    row: Counts
    similarity: Numbers
    places: Counts

    @classmethod
    def none(cls, n: int, places: Counts) -> _Nearest:
        return cls(np.full(n, -1, np.int64), np.full(n, -np.inf), places)

    def add_tile(self, tile: Numbers, start: int) -> None:
        owners, columns = np.nonzero((tile == tile.max(axis=1)[:, None]) & (tile > -np.inf))
        self.add(owners, columns + start, tile[owners, columns])

    def add(self, owners: Counts, rows: Counts, similarity: Numbers) -> None:
        """Look at pairs, query by query: `owners` rises."""
        if not len(owners):
            return
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        greatest = np.repeat(np.maximum.reduceat(similarity, begins), np.diff(begins, append=len(owners)))
        level = similarity == greatest
        owners, rows, similarity = owners[level], rows[level], similarity[level]
        order = np.lexsort((self.places[rows], owners))
        first = order[np.flatnonzero(np.diff(owners[order], prepend=-1))]
        who, row, value = owners[first], rows[first], similarity[first]
        nearer = value > self.similarity[who]
        nearer |= (value == self.similarity[who]) & (self.places[row] < self.places[self.row[who]])
        self.row[who[nearer]], self.similarity[who[nearer]] = row[nearer], value[nearer]


@dataclasses.dataclass(frozen=True, eq=False)
class _Lists:
    """The k nearest of the rows seen so far, nearest first, ties by id; changed in place.

    Attributes:
        rows: (n, k), -1 where there is none yet.
        similarity: (n, k), -inf where there is none yet.
        level: (n,) rows seen that are level with the last of the list, whether they are in it or not.
        places: of each gallery row by id.
    """

    rows: Counts
    similarity: Numbers
    level: Counts
    places: Counts

    @classmethod
    def none(cls, n: int, k: int, places: Counts) -> _Lists:
        return cls(np.full((n, k), -1, np.int64), np.full((n, k), -np.inf), np.zeros(n, np.int64), places)

    def add(self, tile: Numbers, start: int) -> None:
        """Look at a tile of gallery rows."""
        n, k = self.rows.shape
        last = self.similarity[:, -1].copy()
        low = last
        if tile.shape[1] > k:  # a list never begins with more than it can hold
            low = np.maximum(low, np.partition(tile, -k, axis=1)[:, -k]) if np.isneginf(last).any() else low
        wanted = tile >= low[:, None]
        wanted &= tile > -np.inf
        owners, columns = np.nonzero(wanted)
        value, rows = tile[owners, columns], columns + start
        level_here = np.bincount(owners[value == last[owners]], minlength=n)
        # What is level with the last of a full list comes in only by its id.
        last_place = np.where(self.rows[:, -1] >= 0, self.places[self.rows[:, -1]], len(self.places))
        kept = (value > last[owners]) | (self.places[rows] < last_place[owners])
        touched = np.unique(owners[kept])
        owners = np.concatenate([np.repeat(touched, k), owners[kept]])
        rows = np.concatenate([self.rows[touched].ravel(), rows[kept]])
        value = np.concatenate([self.similarity[touched].ravel(), value[kept]])
        order = np.lexsort((self.places[rows], -value, owners))  # a row that is none (-1) is at -inf, behind all
        owners, rows, value = owners[order], rows[order], value[order]
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        first = begins[:, None] + np.arange(k)
        self.rows[touched], self.similarity[touched] = rows[first], value[first]
        now = self.similarity[:, -1]
        # A new last one is above the old: everything level with it is among what was just sorted.
        new = np.bincount(owners[value == now[owners]], minlength=n)
        self.level[:] = np.where(now == last, self.level + level_here, new)

    def ties(self) -> Counts:
        """(n, k) how many rows are level with each, those beyond the list included."""
        ties = _runs(self.similarity)
        return np.where(self.similarity == self.similarity[:, -1:], self.level[:, None], ties)


def _runs(values: Numbers) -> Counts:
    """For each of the falling values of a row how many are equal to it."""
    n, k = values.shape
    flat = np.flatnonzero(np.column_stack([np.ones(n, np.bool_), values[:, 1:] != values[:, :-1]]))
    sizes = np.diff(flat, append=n * k)
    return np.repeat(sizes, sizes).reshape(n, k)


def _ranks(values: Numbers) -> Counts:
    """For each of the falling values of a row 1 + how many are above it."""
    new = np.column_stack([np.ones(len(values), np.bool_), values[:, 1:] != values[:, :-1]])
    return np.maximum.accumulate(np.where(new, np.arange(1, values.shape[1] + 1), 0), axis=1)


def _pad(name: str, column: npt.NDArray[Any], k: int) -> npt.NDArray[Any]:
    """Lists as long as they were asked for."""
    if column.ndim == 1 or column.shape[1] == k:
        return column
    missing = np.full((len(column), k - column.shape[1]), _NOTHING.get(name, 0), column.dtype)
    return np.concatenate([column, missing], axis=1)


_NOTHING = {"rows": -1, "similarity": np.nan}
