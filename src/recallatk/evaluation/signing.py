"""The signature of one evaluation: everything it used, hashed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from recallatk import signature
from recallatk.evaluation.tally import Tally
from recallatk.report import Provenance
from recallatk.types import EvalProtocol, Qrels, Samples


def full_hashes(
    query: signature.Side,
    gallery: signature.Side,
    protocol: EvalProtocol,
    tally: Tally,
    *,
    qrels: Qrels | None,
    provenance: Provenance,
    system: str,
) -> dict[str, str]:
    """The full hashes behind the signature; what is unknown is absent."""
    sides = [gallery, query]
    counts = tally.counts
    ranks = np.where(counts["positives_tied"] > 0, counts["negatives_ahead"] + 1, 0)
    ordered = ranks[query.order] if query.samples.ids else ranks
    preprocessing = {"decode": provenance.decode, "encoder": provenance.preprocessing}
    labels = _labels(query, gallery)
    partition = signature.relevance_hash(sides, [labels])
    columns = _columns_used(query, gallery, protocol)
    values = _values_used(query, gallery, protocol, qrels)
    hashes = {
        "img": signature.content_hash(sides),
        "lab": partition,
        "labels": signature.label_hash(sides),
        "rel": signature.relevance_hash(sides, [labels, *columns], values) if columns or values else partition,
        "emb": system,
        "res": signature.first_ranks_hash(ordered),
        "pre": None if provenance.preprocessing is None else signature.json_hash(preprocessing),
        "w": provenance.fingerprint,
    }
    return {name: value for name, value in hashes.items() if value is not None}


def hash_qrels(query: Samples, gallery: Samples | None, protocol: EvalProtocol, qrels: Qrels) -> str:
    """The hash of all that relevance uses where it looks at qrels: the "rel" of a report's hashes."""
    theirs = signature.Side("g", query if gallery is None else gallery)
    own = signature.Side("q", query, twin=theirs if gallery is None else None)
    columns, values = _columns_used(own, theirs, protocol), _values_used(own, theirs, protocol, qrels)
    return signature.relevance_hash([theirs, own], [_labels(own, theirs), *columns], values)


def _labels(query: signature.Side, gallery: signature.Side) -> signature.Column:
    return [gallery.samples.labels, query.samples.labels]


def _columns_used(query: signature.Side, gallery: signature.Side, protocol: EvalProtocol) -> list[signature.Column]:
    """The columns that relevance compared beside labels, of the gallery and of the queries."""
    sides = (gallery.samples, query.samples)
    columns: list[list[Sequence[str] | None]] = []
    if protocol.exclude_self == "id":
        columns.append([side.identity for side in sides])
    if protocol.exclude_self == "content":
        columns.append([side.content for side in sides])
    columns += [[side.groups[column] for side in sides] for column in protocol.ignore_columns if column != "label"]
    return [[cells for cells in column if cells] for column in columns if all(column)]


def _values_used(
    query: signature.Side, gallery: signature.Side, protocol: EvalProtocol, qrels: Qrels | None
) -> list[signature.Column]:
    """Positions and judged pairs that relevance looked at, of the gallery and of the queries."""
    used: list[signature.Column] = []
    if protocol.relevance == "radius":
        points: list[Any] = [
            [] if side.samples.positions is None else side.samples.positions for side in (gallery, query)
        ]
        used.append([[point.astype("<f8").tobytes().hex() for point in own] for own in points])
    if qrels is not None:
        used.append([[()] * len(gallery.samples), signature.qrels_cells(qrels, query.samples.row_ids)])
    return used


def sign(
    protocol: EvalProtocol,
    hashes: dict[str, str],
    evaluated: int,
    n_gallery: int,
    num_labels: int,
    *,
    interval: str,
    from_scores: bool = False,
) -> signature.Signature:
    """Every part in its place; of somebody else's scores nobody knows the similarity."""
    fields = [field for field in dataclasses.fields(protocol) if "part" in field.metadata]
    parts = {field.metadata["part"]: str(getattr(protocol, field.name)) for field in fields}
    short = {name: value[: signature.SHORT] for name, value in hashes.items() if name != "w"}
    return signature.Signature.of(
        {
            **parts,
            **({"sim": None} if from_scores else {}),
            "k": ",".join(map(str, protocol.ks)),
            "rel": f"{protocol.relevance_rule}-{short['rel']}",
            "n": str(evaluated),
            "g": str(n_gallery),
            "c": str(num_labels) if num_labels else None,
            "img": short.get("img"),
            "lab": short["lab"],
            "pre": short.get("pre"),
            "w": signature.short_fingerprint(hashes["w"]) if "w" in hashes else None,
            "emb": short["emb"],
            "ci": interval,
            "v": version("recallatk"),
        }
    )
