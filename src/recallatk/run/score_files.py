"""From the files of some other system, its scores or ranked lists and what they are of, to a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recallatk.datasets import load_ranked_lists
from recallatk.datasets.naming import as_source
from recallatk.embeddings import load_samples, read_matrix
from recallatk.ranking import check_sizes
from recallatk.report import Provenance, Report
from recallatk.run.scores import score_lists, score_matrix
from recallatk.types import ChoiceError, EvalProtocol, Qrels, RankedLists, RecallatkError, SampleSet


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
    found, samples = _read(files, protocol)
    choices |= {"protocol": protocol, "qrels": qrels, "provenance": provenance or Provenance(data=as_source(files))}
    choices |= samples
    return score_lists(found, **choices) if isinstance(found, RankedLists) else score_matrix(found, **choices)


@dataclasses.dataclass(frozen=True)
class ScoreSize:
    """How much there is to score.

    Attributes:
        queries: how many.
        gallery: items that may be listed: columns of a matrix.
        listed: items in all lists; None: a matrix.
        width: bytes of a score.
    """

    queries: int
    gallery: int
    listed: int | None
    width: int


def measure_score_files(
    files: Mapping[str, Path | str | None], *, qrels: Qrels | None, protocol: EvalProtocol
) -> ScoreSize:
    """How much `score_files` would have to do; the arguments are the same.

    Raises:
        ChoiceError: as for `score_files`.
        RecallatkError: a file cannot be read, or nothing says what the queries are.
    """
    found, samples = _read(files, protocol)
    sides = {side: len(some) for side, some in samples.items()}
    if not isinstance(found, RankedLists):
        matrix = read_matrix(found)
        check_sizes(matrix, sides["query"], sides.get("gallery", sides["query"]))
        return ScoreSize(matrix.shape[0], matrix.shape[1], None, matrix.dtype.itemsize)
    if "query" in sides:
        return ScoreSize(sides["query"], sides.get("gallery", sides["query"]), len(found.scores), 16)
    if qrels is None:
        raise RecallatkError("nothing says who is relevant; give --qrels, or the samples with their labels")
    gallery = sides.get("gallery", len({*found.gallery_ids, *qrels.gallery_ids}))
    return ScoreSize(len(set(qrels.query_ids)), gallery, len(found.scores), 16)


def _read(
    files: Mapping[str, Path | str | None], protocol: EvalProtocol
) -> tuple[RankedLists | Path | str, dict[str, SampleSet]]:
    """The lists, or where the matrix lies, and what is known of the samples."""
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
    samples = {
        side: load_samples(
            labels,
            ids=ids,
            name=side,
            label_separator=separator,
            labels_required=protocol.relevance in ("label", "labels"),
        )
        for side, (labels, ids) in known.items()
    }
    if scores is not None:
        return scores, samples
    assert run is not None  # one of both is there
    return load_ranked_lists(run), samples
