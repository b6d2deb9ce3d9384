"""From embeddings to a report: where relevance, ranking, metrics and report meet. Knows neither files nor torch."""

from __future__ import annotations

import dataclasses
import math
import warnings as python_warnings
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from recallatk import signature
from recallatk.caveats import find_caveats
from recallatk.metrics import MetricName, Values, chance_of_hit, mean_value, parse_metric
from recallatk.ranking import Ranking, rank, to_grid
from recallatk.ranking.grid import SIMILARITY_SCALE
from recallatk.relevance import Relevance, build_relevance, check_labels_agree
from recallatk.report import Provenance, Report, Value, WithoutPositive
from recallatk.types import EmbeddingSet, EvalProtocol, Label, RecallatkError, Ties, as_labels

__all__ = ["evaluate_embeddings", "recall_at_k"]

TIE_RULES: tuple[Ties, ...] = ("expected", "pessimistic", "optimistic")


class NothingToEvaluateError(RecallatkError):
    """No query is left with a positive."""


def evaluate_embeddings(
    query: EmbeddingSet,
    gallery: EmbeddingSet | None = None,
    *,
    protocol: EvalProtocol | None = None,
    metrics: Sequence[str] = (),
    backend: str = "reference",
    memory: int | None = None,
    provenance: Provenance | None = None,
) -> Report:
    """Evaluate embeddings.

    Args:
        query: the queries.
        gallery: the gallery; None for leave-one-out: every row is query and gallery and never in its own ranking.
        protocol: everything that can change the number; default `EvalProtocol()`. Sets with several labels a sample
            are judged by `relevance="labels"`.
        metrics: metrics beside recall@k, such as `"set_recall@5"` or `"mrr"`.
        backend: how to count; never changes a number.
        memory: bytes of working memory for the ranking; default a fraction of what is free.
        provenance: what is known of encoder and data, for the record.

    Raises:
        RecallatkError: the sets do not fit each other or the protocol, or no query has a positive.

    >>> import numpy as np
    >>> rows = EmbeddingSet(np.eye(3)[[0, 0, 1, 1, 2]], labels=["a", "a", "b", "b", "c"])
    >>> report = evaluate_embeddings(rows)
    >>> report["recall@1"], report.num_evaluated, report.num_excluded
    (1.0, 4, 1)
    """
    protocol = protocol or EvalProtocol()
    provenance = provenance or Provenance()
    other = query if gallery is None or gallery is query else gallery
    gallery = None if other is query else gallery
    _check_sets(query, other)
    if any(isinstance(label, tuple) for label in (*query.labels, *other.labels)):
        protocol = dataclasses.replace(protocol, relevance="labels")
    names = _metric_names(protocol, metrics)

    relevance = build_relevance(query, gallery, protocol)
    rows = to_grid(query.embeddings)
    blocks = rank(
        rows,
        rows if gallery is None else to_grid(other.embeddings),
        relevance,
        depth="all" if any(name.metric.depth == "all" for name in names) else "first",
        backend=backend,
        memory=memory,
    )
    columns = _fold(blocks, names, len(query))
    found = columns.counts["n_positives"] > 0
    without_positive = _explain(query, relevance, np.flatnonzero(~found), protocol)
    kept = np.arange(len(query)) if protocol.no_positive == "miss" else np.flatnonzero(found)
    if not len(kept) or not found.any():
        reasons = "; ".join(f"{group.reason}: {group.count}, e.g. {group.example!r}" for group in without_positive)
        raise NothingToEvaluateError(f"none of the {len(query)} queries has a positive in the gallery ({reasons})")

    labels = tuple(query.labels[row] for row in kept)
    values = {str(name): _summarise(name, columns, kept, labels, protocol) for name in names}
    hashes = _hashes(query, other, gallery is None, protocol, provenance, columns)
    num_labels = len({one for cell in signature.label_cells((*query.labels, *other.labels)) for one in cell})
    return Report(
        protocol=protocol,
        values_by_metric=values,
        num_queries=len(query),
        num_gallery=len(other),
        num_labels=num_labels,
        embedding_dim=int(query.embeddings.shape[1]),
        without_positive=without_positive,
        tied_queries=_count_tied(names, columns, kept),
        near_tied_queries=_count_near_tied(columns, kept, protocol.ks),
        warnings=(*provenance.warnings, *find_caveats(query, gallery, columns.counts, kept, protocol)),
        signature=_sign(protocol, hashes, len(kept), len(other), num_labels),
        hashes=hashes,
        provenance=provenance,
        queries=_query_rows(query, other, columns, names, protocol),
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


@dataclasses.dataclass(frozen=True)
class _Columns:
    """What the ranking says of every query: its counts, and each metric under each tie rule."""

    counts: dict[str, npt.NDArray[np.int64]]
    values: dict[tuple[str, Ties], Values]


_LEVEL_COUNTS = ("similarity", "negatives_ahead", "negatives_tied", "positives_tied")
_QUERY_COUNTS = ("best_positive", "near_above", "near_below", "n_positives", "n_candidates")


def _fold(blocks: Iterable[Ranking], names: Sequence[MetricName], n: int) -> _Columns:
    counts = {column: np.zeros(n, np.int64) for column in (*_LEVEL_COUNTS, *_QUERY_COUNTS)}
    values = {(str(name), ties): np.zeros(n) for name in names for ties in TIE_RULES}
    for block in blocks:
        for column in _LEVEL_COUNTS:
            counts[column][block.queries] = block.at_best(getattr(block, column))
        for column in _QUERY_COUNTS:
            counts[column][block.queries] = getattr(block, column)
        for name in names:
            for ties in TIE_RULES:
                values[str(name), ties][block.queries] = name.values(block, ties=ties)
    return _Columns(counts, values)


def _check_sets(query: EmbeddingSet, gallery: EmbeddingSet) -> None:
    if query.embeddings.shape[1] != gallery.embeddings.shape[1]:
        raise RecallatkError(
            f"{query.name} embeddings have {query.embeddings.shape[1]} columns and {gallery.name} embeddings "
            f"{gallery.embeddings.shape[1]}; the dimension must be the same, so encode both with one encoder"
        )


def _metric_names(protocol: EvalProtocol, metrics: Sequence[str]) -> tuple[MetricName, ...]:
    names = [MetricName("recall", k) for k in protocol.ks] + [parse_metric(text) for text in metrics]
    return tuple(dict.fromkeys(names))


def _explain(
    query: EmbeddingSet, relevance: Relevance, rows: npt.NDArray[np.int64], protocol: EvalProtocol
) -> tuple[WithoutPositive, ...]:
    """Group the queries without a positive by reason; the example is the first id, so row order is free."""
    ids = query.row_ids
    groups: dict[str, list[int]] = {}
    for row in rows.tolist():
        reason = relevance.why_no_positive(row) if query.labels[row] else "it has no label"
        groups.setdefault(reason, []).append(row)
    if groups and protocol.no_positive == "error":
        labels = sorted({str(query.labels[row]) for row in rows.tolist()})
        shown = ", ".join(labels[:10]) + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")
        raise RecallatkError(
            f"{len(rows)} queries have no positive (no_positive=error), e.g. {ids[rows[0]]!r}: {next(iter(groups))}; "
            f"their labels: {shown}"
        )
    described = []
    for reason, members in sorted(groups.items()):
        example = min(members, key=lambda row: ids[row])
        described.append(WithoutPositive(reason, len(members), ids[example], _label_text(query.labels[example])))
    return tuple(described)


def _label_text(label: Label) -> str:
    return label if isinstance(label, str) else ", ".join(label)


def _summarise(
    name: MetricName, columns: _Columns, kept: npt.NDArray[np.int64], labels: Sequence[Label], protocol: EvalProtocol
) -> Value:
    per_query = {ties: columns.values[str(name), ties][kept] for ties in TIE_RULES}
    means = {ties: mean_value(values, labels, average=protocol.average) for ties, values in per_query.items()}
    value = Value(means[protocol.ties], len(kept), means["pessimistic"], means["optimistic"])
    if name.name != "recall" or name.k is None:
        return value
    chance = chance_of_hit(columns.counts["n_candidates"][kept], columns.counts["n_positives"][kept], name.k)
    return dataclasses.replace(
        value,
        hits=math.fsum(per_query[protocol.ties]),
        hits_min=int(per_query["pessimistic"].sum()),
        hits_max=int(per_query["optimistic"].sum()),
        chance=mean_value(chance, labels, average=protocol.average),
    )


def _count_tied(names: Sequence[MetricName], columns: _Columns, kept: npt.NDArray[np.int64]) -> int:
    moved = np.zeros(len(kept), dtype=np.bool_)
    for name in names:
        moved |= (columns.values[str(name), "pessimistic"] != columns.values[str(name), "optimistic"])[kept]
    return int(np.count_nonzero(moved))


def _count_near_tied(columns: _Columns, kept: npt.NDArray[np.int64], ks: Sequence[int]) -> int:
    """Queries whose hit at some k differs between all near-tied negatives ahead of the best positive and behind it."""
    counts = {column: values[kept] for column, values in columns.counts.items()}
    behind = counts["negatives_ahead"] - counts["near_above"]
    ahead = counts["negatives_ahead"] + counts["negatives_tied"] + counts["near_below"]
    moved = np.zeros(len(kept), dtype=np.bool_)
    for k in ks:
        moved |= (counts["n_positives"] > 0) & (behind < k) & (ahead >= k)
    return int(np.count_nonzero(moved))


def _hashes(
    query: EmbeddingSet,
    gallery: EmbeddingSet,
    alone: bool,
    protocol: EvalProtocol,
    provenance: Provenance,
    columns: _Columns,
) -> dict[str, str]:
    """The full hashes behind the signature; what is unknown is absent."""
    sides = [("g", gallery), ("q", query)]
    rows = (gallery, query)
    labels = [cell for side in rows for cell in signature.label_cells(side.labels)]
    used: list[Sequence[Iterable[str]]] = [labels]
    if protocol.exclude_self == "id" and not alone and query.identity and gallery.identity:
        used.append([(value,) for side in rows for value in side.identity or ()])
    used += [[(cell,) for side in rows for cell in side.groups[c]] for c in protocol.ignore_columns if c != "label"]
    counts = columns.counts
    ranks = np.where(counts["n_positives"] > 0, counts["negatives_ahead"] + 1, 0)
    order = sorted(range(len(query)), key=lambda row: query.row_ids[row].encode()) if query.ids else range(len(query))
    preprocessing = {"decode": provenance.decode, "encoder": provenance.preprocessing}
    hashes = {
        "img": signature.content_hash(sides),
        "lab": signature.label_hash(sides),
        "part": signature.relevance_hash(sides, [labels]),
        "rel": signature.relevance_hash(sides, used),
        "emb": signature.embedding_hash(sides),
        "res": signature.first_ranks_hash(ranks[list(order)]),
        "pre": None if provenance.preprocessing is None else signature.json_hash(preprocessing),
        "w": provenance.fingerprint,
    }
    return {name: value for name, value in hashes.items() if value is not None}


def _sign(
    protocol: EvalProtocol, hashes: dict[str, str], evaluated: int, n_gallery: int, num_labels: int
) -> signature.Signature:
    parts = {field.metadata["part"]: str(getattr(protocol, field.name)) for field in dataclasses.fields(protocol)}
    short = {name: value[: signature.SHORT] for name, value in hashes.items()}
    return signature.Signature.of(
        {
            **parts,
            "k": ",".join(map(str, protocol.ks)),
            "rel": f"{protocol.relevance}-{short['rel']}",
            "n": str(evaluated),
            "g": str(n_gallery),
            "c": str(num_labels),
            "img": short.get("img"),
            "lab": short["part"],
            "pre": short.get("pre"),
            "w": short.get("w"),
            "emb": short["emb"],
            "ci": "none",
            "v": version("recallatk"),
        }
    )


def _query_rows(
    query: EmbeddingSet,
    gallery: EmbeddingSet,
    columns: _Columns,
    names: Sequence[MetricName],
    protocol: EvalProtocol,
) -> dict[str, Any]:
    """One column for each thing known of a query; the values of an excluded query are NaN."""
    ids = gallery.row_ids
    best = columns.counts["best_positive"]
    found = columns.counts["n_positives"] > 0
    evaluated = found | (protocol.no_positive == "miss")
    return {
        "id": query.row_ids,
        "label": query.labels,
        **{f"group.{column}": values for column, values in query.groups.items()},
        "has_positive": found,
        **{column: columns.counts[column] for column in (*_LEVEL_COUNTS[1:], *_QUERY_COUNTS[1:])},
        "best_positive": tuple(ids[row] if row >= 0 else None for row in best.tolist()),
        "similarity": np.where(found, columns.counts["similarity"] / SIMILARITY_SCALE, np.nan),
        **{str(name): np.where(evaluated, columns.values[str(name), protocol.ties], np.nan) for name in names},
    }


def _embedding_set(embeddings: Any, labels: Iterable[Any], identities: Iterable[Any] | None, name: str) -> EmbeddingSet:
    texts, kind = as_labels(labels, name)
    same = None if identities is None else tuple(str(identity) for identity in identities)
    return EmbeddingSet(embeddings, texts, same=same, label_kind=kind, name=name)
