"""From what some other system says, a matrix of scores or ranked lists, to a report."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from recallatk.cluster import memory_notes, scoring_on
from recallatk.embeddings import read_matrix
from recallatk.encoding import Progress
from recallatk.evaluation import evaluate_scores
from recallatk.report import Provenance, Report
from recallatk.run.environment import describe_environment
from recallatk.run.kept import Kept, keeping, with_notes
from recallatk.types import EvalProtocol, IntervalRule, Qrels, RankedLists, RecallatkError, SampleSet
from recallatk.wording import counted


def score_lists(
    lists: RankedLists,
    qrels: Qrels | None = None,
    *,
    query: SampleSet | None = None,
    gallery: SampleSet | None = None,
    protocol: EvalProtocol | None = None,
    metrics: Sequence[str] = (),
    intervals: IntervalRule | None = None,
    memory: int | None = None,
    provenance: Provenance | None = None,
    started: datetime | None = None,
    cluster: str | None = None,
    kept: Kept | None = None,
    on_progress: Progress | None = None,
) -> Report:
    """Evaluate ranked lists: against judged pairs alone, as trec_eval does, or with what is known of the samples.

    With qrels alone `relevance` is qrels, and the queries are those of the qrels: one without a list is evaluated, and
    nothing is found for it. The gallery itself is not known, only the ids that lists and qrels name; so there is no
    value of chance. An id names one image on both sides, so an item with the query's own id leaves its list
    (`exclude_self=id`), which is warned of.

    Args:
        lists: what the system returned.
        qrels: who is relevant for whom.
        query: the queries, with ids; None: those of the qrels.
        gallery: the gallery, with ids; None: not known, or with `query` leave-one-out.
        protocol: as for `evaluate_scores`.
        metrics: as for `evaluate_scores`.
        intervals: as for `evaluate_scores`.
        memory: as for `evaluate_scores`.
        provenance: what is known of system and data, for the record.
        started: when the work began, for the record.
        cluster: as for `evaluate_encoded`.
        kept: as for `evaluate_encoded`.
        on_progress: as for `evaluate_encoded`.

    Raises:
        RecallatkError: nothing says what the queries are, samples have no ids; and as for `evaluate_scores`.

    >>> import numpy as np
    >>> lists = RankedLists(("q", "q"), ("wrong", "right"), np.array([0.9, 0.8]))
    >>> qrels = Qrels(("q", "missing"), ("right", "right"), np.array([1, 1]))
    >>> report = score_lists(lists, qrels, protocol=EvalProtocol(ks=(1, 2)))
    >>> report["recall@1"], report["recall@2"]
    (0.0, 0.5)
    """
    protocol = protocol or EvalProtocol()
    provenance = _at(provenance, started)
    for side in (query, gallery):
        if side is not None and side.ids is None:
            raise RecallatkError(f"{side.name}: ranked lists name rows by id, and these have no ids; give them ids")
    gallery_known = query is not None or gallery is not None
    if query is None:
        if qrels is None:
            raise RecallatkError("nothing says who is relevant; give qrels, or the samples with their labels")
        protocol = dataclasses.replace(protocol, relevance="qrels")
        query = _unlabelled(qrels.query_ids, "query")
        provenance = _add(provenance, warnings=_found_themselves(lists, qrels, protocol))
        if gallery is None:
            note = "num gallery counts the items that the lists and the qrels name; the gallery itself is not known"
            provenance = _add(provenance, notes=[note])
            gallery = _unlabelled([*lists.gallery_ids, *qrels.gallery_ids], "gallery")
    return _evaluate(
        lists,
        query,
        gallery,
        cluster=cluster,
        kept=kept,
        on_progress=on_progress,
        protocol=protocol,
        qrels=qrels,
        metrics=metrics,
        intervals=intervals,
        memory=memory,
        provenance=provenance,
        gallery_known=gallery_known,
    )


def score_matrix(
    scores: str | os.PathLike[str],
    query: SampleSet,
    gallery: SampleSet | None = None,
    *,
    qrels: Qrels | None = None,
    protocol: EvalProtocol | None = None,
    metrics: Sequence[str] = (),
    intervals: IntervalRule | None = None,
    memory: int | None = None,
    provenance: Provenance | None = None,
    started: datetime | None = None,
    cluster: str | None = None,
    kept: Kept | None = None,
    on_progress: Progress | None = None,
) -> Report:
    """Evaluate a matrix of scores in a .npy file, which is mapped and read a block of rows at a time.

    Args:
        scores: the file; (n_queries, n_gallery), higher is nearer.
        query: the queries in the order of the rows; `recallatk.embeddings.load_samples` reads them from files.
        gallery: the gallery in the order of the columns; None for leave-one-out.
        qrels: as for `evaluate_scores`.
        protocol: as for `evaluate_scores`.
        metrics: as for `evaluate_scores`.
        intervals: as for `evaluate_scores`.
        memory: as for `evaluate_scores`.
        provenance: as for `score_lists`.
        started: as for `score_lists`.
        cluster: as for `score_lists`.
        kept: as for `score_lists`.
        on_progress: as for `score_lists`.

    Raises:
        RecallatkError: the file is absent, damaged or holds objects; and as for `evaluate_scores`.
    """
    return _evaluate(
        read_matrix(scores),
        query,
        gallery,
        cluster=cluster,
        kept=kept,
        on_progress=on_progress,
        protocol=protocol,
        qrels=qrels,
        metrics=metrics,
        intervals=intervals,
        memory=memory,
        provenance=_at(provenance, started),
    )


def _evaluate(
    scores: Any,
    query: SampleSet,
    gallery: SampleSet | None,
    *,
    cluster: str | None,
    kept: Kept | None,
    memory: int | None,
    on_progress: Progress | None,
    **choices: Any,
) -> Report:
    """Evaluate here or on a cluster; `memory` is then that of each worker."""
    if cluster is None:
        return evaluate_scores(scores, query, gallery, memory=memory, **choices)
    notes = memory_notes(memory)
    choices["keep"] = keeping(kept, notes)
    with scoring_on(cluster, memory=memory, on_progress=on_progress) as rank_scores:
        return with_notes(evaluate_scores(scores, query, gallery, rank_scores=rank_scores, **choices), notes)


def _unlabelled(ids: Iterable[str], name: str) -> SampleSet:
    names = sorted(set(ids))
    return SampleSet(((),) * len(names), ids=tuple(names), name=name)


def _add(provenance: Provenance, *, notes: Sequence[str] = (), warnings: Sequence[str] = ()) -> Provenance:
    return dataclasses.replace(
        provenance, notes=(*provenance.notes, *notes), warnings=(*provenance.warnings, *warnings)
    )


def _at(provenance: Provenance | None, started: datetime | None) -> Provenance:
    return dataclasses.replace(provenance or Provenance(), environment=describe_environment(started))


def _found_themselves(lists: RankedLists, qrels: Qrels, protocol: EvalProtocol) -> list[str]:
    """A line when equal ids on both sides make an item leave a list or the judged pairs: they may be other things."""
    if protocol.exclude_self == "none":
        return []
    listed = zip(lists.query_ids, lists.gallery_ids, strict=True)
    judged = zip(qrels.query_ids, qrels.gallery_ids, strict=True)
    own = {query for pairs in (listed, judged) for query, item in pairs if query == item}
    own &= set(qrels.query_ids)
    if not own:
        return []
    return [
        f"{counted(len(own), 'query has', 'queries have')} an item of the same id (such as {min(own)!r}), which left "
        "the ranking as the same image (exclude_self=id); where it is another thing, use exclude_self=none"
    ]
