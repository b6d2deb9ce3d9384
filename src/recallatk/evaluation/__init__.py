"""From embeddings to a report: where relevance, ranking, metrics and report meet. Knows neither files nor torch."""

from __future__ import annotations

import dataclasses
import functools
import warnings as python_warnings
from collections.abc import Iterable, Sequence
from typing import Any, cast

from recallatk import signature
from recallatk.evaluation.caveats import find_row_caveats
from recallatk.evaluation.task import NothingToEvaluateError, Task
from recallatk.memory import working_memory
from recallatk.ranking import Block, Keep, Rank, RankScores, list_rows, rank, rank_scores, stream_grid
from recallatk.relevance import check_labels_agree, side_names
from recallatk.report import Provenance, Report
from recallatk.types import (
    EmbeddingSet,
    EvalProtocol,
    IntervalRule,
    Qrels,
    RankedLists,
    RecallatkError,
    SampleSet,
    as_ids,
    as_labels,
    as_numbers,
    as_rows,
)
from recallatk.wording import counted

__all__ = ["NothingToEvaluateError", "evaluate_embeddings", "evaluate_scores", "recall_at_k"]


def evaluate_embeddings(
    query: EmbeddingSet,
    gallery: EmbeddingSet | None = None,
    *,
    protocol: EvalProtocol | None = None,
    qrels: Qrels | None = None,
    metrics: Sequence[str] = (),
    intervals: IntervalRule | None = None,
    backend: str = "auto",
    memory: int | None = None,
    threads: int | None = None,
    provenance: Provenance | None = None,
    rank: Rank = rank,
    keep: Keep | None = None,
) -> Report:
    """Evaluate embeddings.

    Args:
        query: the queries.
        gallery: the gallery; None for leave-one-out: every row is query and gallery and never in its own ranking.
        protocol: everything that can change the number; default `EvalProtocol()`. Sets with several labels a sample
            are judged by `relevance="labels"`.
        qrels: judged pairs, for `relevance="qrels"` and for junk.
        metrics: metrics beside recall@k, such as `"set_recall@5"` or `"mrr"`.
        intervals: how intervals are made; default `IntervalRule()`, robust to queries of one label that are alike.
        backend: how to count; never changes a number.
        memory: bytes that the whole process may hold while it ranks, mapped files counted (default: what it holds and
            a quarter of what is free). Embeddings that do not fit are ranked in parts.
        threads: how many; default as many as there are cores.
        provenance: what is known of encoder and data, for the record.
        rank: what ranks: `recallatk.ranking.rank`, or what counts the same elsewhere.
        keep: what keeps blocks of the ranking while it runs; `rank` must then know where to begin (`start`).

    Raises:
        RecallatkError: the sets do not fit each other or the protocol, or no query has a positive.

    >>> import numpy as np
    >>> rows = EmbeddingSet(np.eye(3)[[0, 0, 1, 1, 2]], labels=["a", "a", "b", "b", "c"])
    >>> report = evaluate_embeddings(rows)
    >>> report["recall@1"], report.num_evaluated, report.num_excluded
    (1.0, 4, 1)
    """
    gallery = None if gallery is query else gallery
    _check_sets(query, gallery, (EmbeddingSet,), "EmbeddingSet(embeddings, labels)")
    task = Task.of(query, gallery, protocol, qrels, metrics, intervals)
    sets = [query.embeddings] if gallery is None else [query.embeddings, gallery.embeddings]
    if sets[0].shape[1] != sets[-1].shape[1]:
        names = side_names(query, gallery)
        raise RecallatkError(
            f"the {names[0]} embeddings have {counted(sets[0].shape[1], 'column')} and the {names[1]} embeddings "
            f"{sets[-1].shape[1]}; the dimension must be the same, so encode both with one encoder"
        )
    grids = stream_grid(*sets, similarity=task.similarity)
    budget, notes = working_memory(memory, Block.least().bytes(grids[0].dim))
    rank_from = functools.partial(
        rank,
        grids[0],
        grids[-1],
        task.relevance,
        depth=task.depth,
        limit=task.limit,
        backend=backend,
        memory=budget,
        threads=threads,
    )
    blocks = rank_from()  # refuses at once what cannot be
    system = signature.embedding_hash(task.sides, [sets[-1], sets[0]])
    if keep is not None:
        blocks = keep(task.depends(system), len(query), rank_from)
    return task.report(
        blocks,
        embedding_dim=sets[0].shape[1],
        system=system,
        doubts=find_row_caveats(*task.sides),
        provenance=_with_notes(provenance, notes),
    )


def evaluate_scores(
    scores: Any,
    query: SampleSet,
    gallery: SampleSet | None = None,
    *,
    protocol: EvalProtocol | None = None,
    qrels: Qrels | None = None,
    metrics: Sequence[str] = (),
    intervals: IntervalRule | None = None,
    memory: int | None = None,
    provenance: Provenance | None = None,
    gallery_known: bool = True,
    rank_scores: RankScores = rank_scores,
    keep: Keep | None = None,
) -> Report:
    """Evaluate similarities that somebody else computed.

    Args:
        scores: (n_queries, n_gallery), higher is nearer; or `RankedLists`, which may be shorter than the gallery: an
            item that a list does not hold is never found.
        query: the queries, in the order of the rows.
        gallery: the gallery, in the order of the columns; None for leave-one-out.
        protocol: as for `evaluate_embeddings`; its `similarity` says nothing here.
        qrels: as for `evaluate_embeddings`.
        metrics: as for `evaluate_embeddings`.
        intervals: as for `evaluate_embeddings`.
        memory: as for `evaluate_embeddings`.
        provenance: as for `evaluate_embeddings`.
        gallery_known: whether `gallery` is the whole gallery; where it is only what lists and qrels name, the value
            of chance is not known and left out.
        rank_scores: what ranks: `recallatk.ranking.rank_scores`, or what counts the same elsewhere.
        keep: as for `evaluate_embeddings`.

    Raises:
        RecallatkError: as for `evaluate_embeddings`; a score that is NaN; a list that holds an item twice.

    >>> import numpy as np
    >>> samples = SampleSet(labels=["a", "a", "b", "b"])
    >>> report = evaluate_scores(np.array([[9, 1, 0, 0], [1, 9, 2, 0], [0, 0, 9, 3], [0, 0, 3, 9]]), samples)
    >>> report["recall@1"]
    0.75
    """
    gallery = None if gallery is query else gallery
    _check_sets(query, gallery, (SampleSet, EmbeddingSet), "SampleSet(labels, ids)")
    task = Task.of(query, gallery, protocol, qrels, metrics, intervals)
    doubts: list[str] = []
    budget, notes = working_memory(memory, Block.least().bytes(1))
    rows: Any
    if isinstance(scores, RankedLists):
        rows, doubts = list_rows(scores, query, task.gallery)
    else:
        rows = scores = as_numbers(scores, "scores")
    rank_from = functools.partial(rank_scores, rows, task.relevance, depth=task.depth, memory=budget)
    blocks = rank_from()  # refuses at once what cannot be
    system = signature.score_hash(scores, task.sides[1], task.sides[0])
    if keep is not None:  # the hash of lists names ids, and does not say which row is whose
        more = [rows] if isinstance(scores, RankedLists) else []
        blocks = keep(task.depends(system, *more), len(query), rank_from)
    return task.report(
        blocks,
        embedding_dim=None,
        system=system,
        doubts=doubts,
        provenance=_with_notes(provenance, notes),
        gallery_known=gallery_known,
    )


def recall_at_k(
    query_emb: Any,
    gallery_emb: Any,
    q_labels: Iterable[Any],
    g_labels: Iterable[Any],
    ks: Sequence[int] = (1, 5, 10),
    query_ids: Iterable[Any] | None = None,
    gallery_ids: Iterable[Any] | None = None,
) -> dict[str, float]:
    """recall@k (hit rate) of embeddings, as a dict of floats.

    Args:
        query_emb: (n_queries, d).
        gallery_emb: (n_gallery, d).
        q_labels: one label a query, text or integers; lists for several labels.
        g_labels: one label a gallery item.
        ks: the cutoffs.
        query_ids: what makes a query and a gallery item the same image: equal ids leave the query's ranking. Need
            not be unique.
        gallery_ids: likewise for the gallery.

    Returns:
        `{"recall@1": ..., ...}` in 0..1. If no query has a positive every value is 0.0, with a warning; everywhere
        else in recallatk that is an error.

    >>> recall_at_k([[1, 0], [0, 1]], [[1, 0.1], [0.2, 1]], ["a", "b"], ["a", "b"], ks=(1,))
    {'recall@1': 1.0}
    """
    query = _embedding_set(query_emb, q_labels, query_ids, "query")
    gallery = _embedding_set(gallery_emb, g_labels, gallery_ids, "gallery")
    if query.same is not None and gallery.same is not None:
        check_labels_agree(query.same, query.labels, gallery.same, gallery.labels)
    protocol = EvalProtocol(ks=cast("tuple[int, ...]", ks))
    try:
        report = evaluate_embeddings(query, gallery, protocol=protocol)
    except NothingToEvaluateError as error:
        python_warnings.warn(f"recall is 0.0 because there is nothing to evaluate: {error}", stacklevel=2)
        return {f"recall@{k}": 0.0 for k in protocol.ks}
    for warning in report.warnings:
        python_warnings.warn(warning, stacklevel=2)
    return dict(report)


def _with_notes(provenance: Provenance | None, notes: tuple[str, ...]) -> Provenance:
    known = Provenance() if provenance is None else provenance
    return dataclasses.replace(known, notes=(*known.notes, *notes))


def _check_sets(query: Any, gallery: Any, kinds: tuple[type, ...], how: str) -> None:
    for role, side in {"query": query, **({} if gallery is None else {"gallery": gallery})}.items():
        if not isinstance(side, kinds):
            raise RecallatkError(f"{role}: {type(side).__name__} is no {kinds[0].__name__}; make one: {how}")


def _embedding_set(embeddings: Any, labels: Iterable[Any], ids: Iterable[Any] | None, name: str) -> EmbeddingSet:
    texts, kind = as_labels(labels, name)
    rows = as_rows(embeddings, name)
    same = None if ids is None else as_ids(ids, name)
    if same is not None and len(same) != len(rows):
        raise RecallatkError(f"{name}: {len(same)} ids for {len(rows)} embedding rows; there must be one for each")
    return EmbeddingSet(rows, texts, same=same, label_kind=kind, name=name)
