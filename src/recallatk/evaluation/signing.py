"""The signature of one evaluation: everything it used, hashed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from importlib.metadata import version

import numpy as np

from recallatk import signature
from recallatk.evaluation.tally import Tally
from recallatk.report import Provenance
from recallatk.types import EvalProtocol, Qrels, Samples


def full_hashes(
    query: Samples,
    gallery: Samples,
    protocol: EvalProtocol,
    tally: Tally,
    *,
    alone: bool,
    qrels: Qrels | None,
    provenance: Provenance,
    system: str,
) -> dict[str, str]:
    """The full hashes behind the signature; what is unknown is absent."""
    sides = [("g", gallery), ("q", query)]
    counts = tally.counts
    ranks = np.where(counts["positives_tied"] > 0, counts["negatives_ahead"] + 1, 0)
    order = sorted(range(len(query)), key=lambda row: query.row_ids[row].encode()) if query.ids else range(len(query))
    preprocessing = {"decode": provenance.decode, "encoder": provenance.preprocessing}
    labels = [cell for _, side in sides for cell in signature.label_cells(side.labels)]
    used = _columns_used(query, gallery, protocol, alone=alone, qrels=qrels)
    hashes = {
        "img": signature.content_hash(sides),
        "lab": signature.label_hash(sides),
        "part": signature.relevance_hash(sides, [labels]),
        "rel": signature.relevance_hash(sides, [labels, *used]),
        "emb": system,
        "res": signature.first_ranks_hash(ranks[list(order)]),
        "pre": None if provenance.preprocessing is None else signature.json_hash(preprocessing),
        "w": provenance.fingerprint,
    }
    return {name: value for name, value in hashes.items() if value is not None}


def _columns_used(
    query: Samples, gallery: Samples, protocol: EvalProtocol, *, alone: bool, qrels: Qrels | None
) -> list[Sequence[Iterable[str]]]:
    """All that relevance looked at beside labels, as columns over the gallery and the queries."""
    sides = (gallery, query)
    used: list[Sequence[Iterable[str]]] = []
    if protocol.exclude_self == "id" and not alone and all(side.identity for side in sides):
        used.append([(value,) for side in sides for value in side.identity or ()])
    used += [[(cell,) for side in sides for cell in side.groups[c]] for c in protocol.ignore_columns if c != "label"]
    if protocol.relevance == "radius":
        points = [point for side in sides for point in ([] if side.positions is None else side.positions)]
        used.append([(point.astype("<f8").tobytes().hex(),) for point in points])
    if qrels is not None:
        used.append([*[()] * len(gallery), *signature.qrels_cells(qrels, query.row_ids)])
    return used


def sign(
    protocol: EvalProtocol, hashes: dict[str, str], evaluated: int, n_gallery: int, num_labels: int
) -> signature.Signature:
    """Every part in its place."""
    fields = [field for field in dataclasses.fields(protocol) if "part" in field.metadata]
    parts = {field.metadata["part"]: str(getattr(protocol, field.name)) for field in fields}
    short = {name: value[: signature.SHORT] for name, value in hashes.items()}
    return signature.Signature.of(
        {
            **parts,
            "k": ",".join(map(str, protocol.ks)),
            "rel": f"{protocol.relevance_rule}-{short['rel']}",
            "n": str(evaluated),
            "g": str(n_gallery),
            "c": str(num_labels) if num_labels else None,
            "img": short.get("img"),
            "lab": short["part"],
            "pre": short.get("pre"),
            "w": short.get("w"),
            "emb": short["emb"],
            "ci": "none",
            "v": version("recallatk"),
        }
    )
