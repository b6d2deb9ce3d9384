"""From the files of some other system, its scores or ranked lists and what they are of, to a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recallatk.datasets import load_ranked_lists
from recallatk.datasets.naming import as_source
from recallatk.embeddings import load_samples
from recallatk.report import Provenance, Report
from recallatk.run.scores import score_lists, score_matrix
from recallatk.types import ChoiceError, EvalProtocol, Qrels


def score_files(
    files: Mapping[str, Path | str | None],
    *,
    qrels: Qrels | None,
    protocol: EvalProtocol,
    provenance: Provenance | None = None,
    **choices: Any,
) -> Report:
    """Evaluate what the flags of `recallatk score` name.

    Args:
        files: by flag: `run` or `scores`; `query_labels`, `gallery_labels`, `query_ids`, `gallery_ids`; and
            `label_separator`. `qrels` is where those were read from.
        qrels: as for `score_lists`.
        protocol: as for `score_lists`.
        provenance: what the record says of where the files lie; default: `files`.
        choices: as for `score_lists`.

    Raises:
        ChoiceError: the files do not say what was returned, or what the queries are.
        RecallatkError: as for `score_lists`.
    """
    run, scores, separator = files.get("run"), files.get("scores"), files.get("label_separator")
    separator = None if separator is None else str(separator)
    if (run is None) == (scores is None):
        raise ChoiceError("give ranked lists with --run or a matrix with --scores, and not both")
    sides = {side: [files.get(f"{side}_labels"), files.get(f"{side}_ids")] for side in ("query", "gallery")}
    known = {side: [file and Path(file).resolve() for file in given] for side, given in sides.items() if any(given)}
    if len(known) == 2 and known["query"] == known["gallery"]:
        del known["gallery"]  # leave-one-out
    if "query" not in known and (run is None or protocol.relevance != "qrels"):
        raise ChoiceError(
            "say what the queries are: --query-labels, or with --qrels and --relevance qrels --query-ids; only --run "
            "with --qrels can do without"
        )
    samples: dict[str, Any] = {
        side: load_samples(
            labels,
            ids=ids,
            name=side,
            label_separator=separator,
            labels_required=protocol.relevance in ("label", "labels"),
        )
        for side, (labels, ids) in known.items()
    }
    choices |= {"protocol": protocol, "qrels": qrels, "provenance": provenance or Provenance(data=as_source(files))}
    if scores is not None:
        return score_matrix(scores, **samples, **choices)
    return score_lists(load_ranked_lists(run), **samples, **choices)  # type: ignore[arg-type]  # one of both is there
