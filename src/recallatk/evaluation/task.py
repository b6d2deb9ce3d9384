"""One evaluation: everything but where the similarities come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from recallatk import signature
from recallatk.evaluation.caveats import find_caveats
from recallatk.evaluation.signing import full_hashes, sign
from recallatk.evaluation.tally import count_near_tied, count_tied, fold, query_rows, summarise
from recallatk.metrics import MetricName, parse_metric
from recallatk.ranking import Depth, Ranking
from recallatk.relevance import Relevance, build_relevance
from recallatk.report import Provenance, Report, WithoutPositive
from recallatk.statistics import Clusters, cluster_queries, sign_rule
from recallatk.types import (
    ChoiceError,
    EvalProtocol,
    IntervalRule,
    Label,
    Qrels,
    RecallatkError,
    Samples,
    SampleSet,
    Similarity,
    distinct_labels,
    each_label,
)
from recallatk.wording import counted, one_line


class NothingToEvaluateError(RecallatkError):
    """No query is left with a positive."""


@dataclasses.dataclass(frozen=True)
class Task:
    """One evaluation: everything but where the similarities come from."""

    query: Samples
    gallery: Samples
    alone: bool
    sides: tuple[signature.Side, signature.Side]
    protocol: EvalProtocol
    names: tuple[MetricName, ...]
    relevance: Relevance
    qrels: Qrels | None
    intervals: IntervalRule

    @classmethod
    def of(
        cls,
        query: Samples,
        gallery: Samples | None,
        protocol: EvalProtocol | None,
        qrels: Qrels | None,
        metrics: Sequence[str],
        intervals: IntervalRule | None,
    ) -> Task:
        """Check that everything fits; several labels a sample make `relevance="label"` mean "labels"."""
        protocol = EvalProtocol() if protocol is None else protocol
        if not isinstance(protocol, EvalProtocol):
            raise RecallatkError(
                f"protocol is {type(protocol).__name__}; build one, such as EvalProtocol(ks=(1, 5), ties='optimistic')"
            )
        other = query if gallery is None else gallery
        if not len(query):
            raise NothingToEvaluateError("there are no queries; give at least one")
        if not len(other):
            raise NothingToEvaluateError("the gallery is empty; give at least one gallery item")
        several = any(isinstance(label, tuple) and label for side in (query, other) for label in side.labels)
        if several and protocol.relevance == "label":
            protocol = dataclasses.replace(protocol, relevance="labels")
        names = metric_names(protocol, metrics)
        deeper = [name.k for name in names if name.name == "recall" and name.k is not None]
        protocol = dataclasses.replace(protocol, ks=(*protocol.ks, *deeper))  # recall@k is never beside the ks
        names = metric_names(protocol, metrics)
        intervals = _check_intervals(intervals, query, protocol)
        relevance = build_relevance(query, gallery, protocol, qrels=qrels)
        gallery_side = signature.Side("g", other)
        sides = (gallery_side, signature.Side("q", query, twin=gallery_side if gallery is None else None))
        return cls(query, other, gallery is None, sides, protocol, names, relevance, qrels, intervals)

    @property
    def similarity(self) -> Similarity:
        """What embeddings are compared by."""
        return self.protocol.similarity

    @property
    def depth(self) -> Depth:
        """How deep the deepest metric looks."""
        return "all" if any(name.metric.depth == "all" for name in self.names) else "first"

    @property
    def limit(self) -> npt.NDArray[np.int64] | None:
        """The rank from which on nothing changes any metric, for each query; None where there is none."""
        deep = [name for name in self.names if name.metric.depth == "all"]
        if not deep or any(name.reaches_everywhere for name in deep):
            return None
        most_positives = self.relevance.positive.pairs
        limit: npt.NDArray[np.int64] = np.maximum.reduce([name.reach(most_positives) for name in deep])
        return limit

    def depends(self, system: str, *more: object) -> object:
        """Everything that the counts of the ranking depend on: what was hashed in the order of ids, and that order."""
        orders = [side.order for side in self.sides]
        return system, orders, self.similarity, self.relevance, self.depth, self.limit, more

    def report(
        self,
        blocks: Iterable[Ranking],
        *,
        embedding_dim: int | None,
        system: str,
        doubts: Sequence[str],
        provenance: Provenance | None,
        gallery_known: bool = True,
    ) -> Report:
        """Fold the ranking into the report."""
        provenance = provenance or Provenance()
        query, protocol, names = self.query, self.protocol, self.names
        columns = fold(blocks, names, len(query))
        found = columns.counts["n_positives"] > 0
        without_positive = explain(query, self.relevance, np.flatnonzero(~found), protocol)
        kept = np.arange(len(query)) if protocol.no_positive == "miss" else np.flatnonzero(found)
        if not found.any():
            reasons = "; ".join(f"{group.reason}: {group.count}, e.g. {group.example!r}" for group in without_positive)
            noticed = (*provenance.warnings, *self.relevance.doubts, *doubts)
            raise NothingToEvaluateError(
                one_line(
                    f"none of the {counted(len(query), 'query', 'queries')} has a positive in the gallery ({reasons})"
                    + "".join(f"; {line}" for line in noticed)
                )
            )
        labels = tuple(query.labels[row] for row in kept)
        if protocol.average == "macro" and not any(labels):
            raise RecallatkError(
                "average=macro is a mean over labels, and no evaluated query has one; use average=micro"
            )
        gallery_side, query_side = self.sides
        hashes = full_hashes(
            query_side, gallery_side, protocol, columns, qrels=self.qrels, provenance=provenance, system=system
        )
        num_labels = len(distinct_labels(query.labels, self.gallery.labels))
        gallery = None if self.alone else self.gallery
        clusters = self._clusters(kept)
        caveats = find_caveats(query, gallery, columns.counts, kept, protocol, names, gallery_known=gallery_known)
        values = {
            str(name): summarise(
                name,
                columns,
                kept,
                labels,
                protocol,
                clusters=clusters,
                intervals=self.intervals,
                gallery_known=gallery_known,
            )
            for name in names
        }
        return Report(
            protocol=protocol,
            values_by_metric=values,
            num_queries=len(query),
            num_gallery=len(self.gallery),
            num_labels=num_labels,
            embedding_dim=embedding_dim,
            without_positive=without_positive,
            tied_queries=count_tied(names, columns, kept),
            near_tied_queries=count_near_tied(columns, kept, protocol.ks),
            warnings=(*provenance.warnings, *self.relevance.doubts, *doubts, *caveats),
            signature=sign(
                protocol,
                hashes,
                len(kept),
                len(self.gallery),
                num_labels,
                interval=sign_rule(self.intervals, clusters.count),
                from_scores=embedding_dim is None,
            ),
            hashes=hashes,
            provenance=provenance,
            queries=query_rows(query, self.gallery, columns, names, protocol),
            intervals=self.intervals,
            samples={"both": _columns(query)}
            if self.alone
            else {"query": _columns(query), "gallery": _columns(self.gallery)},
            ids_given=query.ids is not None,
        )

    def _clusters(self, kept: npt.NDArray[np.int64]) -> Clusters:
        """The clusters of the evaluated queries."""
        column = self.intervals.cluster
        values = self.query.labels if column == "label" else self.query.groups[column]
        return cluster_queries([values[row] for row in kept.tolist()], column=column, average=self.protocol.average)


def _columns(side: Samples) -> SampleSet:
    """What is known of each row, without its embedding: a report does not keep those alive."""
    return SampleSet(
        side.labels,
        ids=side.ids,
        same=side.identity,
        groups=side.groups,
        content=side.content,
        positions=side.positions,
        label_kind=side.label_kind,
        name=side.name,
    )


def _check_intervals(rule: IntervalRule | None, query: Samples, protocol: EvalProtocol) -> IntervalRule:
    """The rule, refused where it does not fit the queries or the mean that it is of."""
    rule = IntervalRule() if rule is None else rule
    if not isinstance(rule, IntervalRule):
        raise RecallatkError(f"intervals is {type(rule).__name__}; build one, such as IntervalRule(ci='wilson')")
    if rule.cluster != "label" and rule.cluster not in query.groups:
        known = ", ".join(["label", *query.groups])
        raise ChoiceError(f"cluster={rule.cluster!r} is no column of the {query.name} set; its columns are: {known}")
    if protocol.average == "macro" and rule.ci != "none" and (rule.cluster != "label" or not rule.clustered):
        raise ChoiceError(
            f"ci={rule.ci}, cluster={rule.cluster}: average=macro is a mean over labels, so the labels are its "
            "clusters; use cluster-t or cluster-bootstrap over label, or none"
        )
    return rule


def metric_names(protocol: EvalProtocol, metrics: Sequence[str]) -> tuple[MetricName, ...]:
    """recall@k for every k, then what was asked for, each once."""
    texts = (metrics,) if isinstance(metrics, str) else metrics
    names = [MetricName("recall", k) for k in protocol.ks] + [parse_metric(text) for text in texts]
    return tuple(dict.fromkeys(names))


def explain(
    query: Samples, relevance: Relevance, rows: npt.NDArray[np.int64], protocol: EvalProtocol
) -> tuple[WithoutPositive, ...]:
    """Group the queries without a positive by reason; the example is the first id, so row order is free."""
    ids = query.row_ids
    groups: dict[str, list[int]] = {}
    for row in rows.tolist():
        unlabelled = protocol.relevance in ("label", "labels") and not query.labels[row]
        reason = "it has no label" if unlabelled else relevance.why_no_positive(row)
        groups.setdefault(reason, []).append(row)
    if groups and protocol.no_positive == "error":
        labels = sorted({_label_text(query.labels[row]) for row in rows.tolist()} - {""})
        shown = ", ".join(labels[:10]) + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")
        raise RecallatkError(
            one_line(
                f"{counted(len(rows), 'query has', 'queries have')} no positive (no_positive=error), "
                f"e.g. {ids[rows[0]]!r}: {next(iter(groups))}" + (f"; their labels: {shown}" if shown else "")
            )
        )
    described = []
    for reason, members in sorted(groups.items()):
        example = min(members, key=lambda row: ids[row])
        described.append(WithoutPositive(reason, len(members), ids[example], _label_text(query.labels[example])))
    return tuple(described)


def _label_text(label: Label) -> str:
    return ", ".join(each_label(label))
