"""`recallatk score`: the same report for a system that is known by its scores or ranked lists."""

# No `from __future__ import annotations`: the command line is made from these annotations.

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast

from cyclopts import Parameter

from recallatk.cli.delivery import check_metrics, check_output, deliver
from recallatk.cli.flags import (
    NO_INTERVALS,
    NO_OUTPUT,
    NO_PROTOCOL,
    NO_SCORES,
    Intervals,
    Many,
    Output,
    Protocol,
    Scores,
    parse_bytes,
)
from recallatk.types import ChoiceError, EvalProtocol, Qrels

LABELLED = ("label", "labels")
"""The kinds of relevance that look at labels."""


def score(
    *,
    metric: Many = (),
    memory: str | None = None,
    protocol_file: Annotated[Path | None, Parameter(name="--protocol")] = None,
    protocol: Protocol = NO_PROTOCOL,
    intervals: Intervals = NO_INTERVALS,
    scores: Scores = NO_SCORES,
    output: Output = NO_OUTPUT,
) -> None:
    """Score what any system returned: a TREC run with qrels, ranked lists, or a matrix of scores.

    With --run and --qrels alone the queries are those of the qrels, and one without a list finds nothing. Labels or
    ids of queries and gallery say which they are in the order of the matrix. Short forms as for `recallatk eval`.

    Args:
        metric: metrics beside recall@k: set_recall@5, map, mrr (see `recallatk metrics`).
        memory: what the whole process may hold while it ranks, such as 2GB; by default a quarter of what is free.
        protocol_file: a TOML file, or the record of an earlier run, whose protocol is used; flags given win.
    """
    started = datetime.now(UTC)
    budget = None if memory is None else parse_bytes(memory)
    check_metrics(metric)
    if output.save_embeddings:
        raise ChoiceError("--save-embeddings: there are none here; `recallatk eval` has embeddings")
    folders = check_output(output, ("scores",))
    common = {"protocol": protocol, "metrics": metric, "memory": budget, "started": started, "intervals": intervals}
    deliver(iter([("scores", _report(scores, protocol, common), None)]), output, folders, several=False)


def _report(files: Scores, protocol: EvalProtocol, common: dict[str, Any]) -> Any:
    """The report on these files."""
    from recallatk.datasets import load_ranked_lists
    from recallatk.embeddings import load_samples
    from recallatk.report import Provenance
    from recallatk.run import score_lists, score_matrix

    if (files.run is None) == (files.scores is None):
        raise ChoiceError("give ranked lists with --run or a matrix with --scores, and not both")
    qrels = None if files.qrels is None else read_qrels(files.qrels, protocol)
    data = {name: str(value) for name, value in vars(files).items() if value is not None}
    common |= {"qrels": qrels, "provenance": Provenance(data=data)}
    sides = {"query": (files.query_labels, files.query_ids), "gallery": (files.gallery_labels, files.gallery_ids)}
    known = {side: [file and file.resolve() for file in given] for side, given in sides.items() if any(given)}
    if len(known) == 2 and known["query"] == known["gallery"]:
        del known["gallery"]  # leave-one-out
    if "query" not in known and (files.run is None or protocol.relevance != "qrels"):
        raise ChoiceError(
            "say what the queries are: --query-labels, or with --qrels and --relevance qrels --query-ids; only --run "
            "with --qrels can do without"
        )
    samples: dict[str, Any] = {
        side: load_samples(
            labels,
            ids=ids,
            name=side,
            label_separator=files.label_separator,
            labels_required=protocol.relevance in LABELLED,
        )
        for side, (labels, ids) in known.items()
    }
    if files.scores is not None:
        return score_matrix(files.scores, **samples, **common)
    return score_lists(load_ranked_lists(cast("Path", files.run)), **samples, **common)


def read_qrels(path: Path, protocol: EvalProtocol) -> Qrels:
    """Read judged pairs, and refuse those that the protocol would pass over."""
    from recallatk.datasets import load_qrels

    qrels = load_qrels(path)
    if protocol.relevance != "qrels" and qrels.levels is None:
        raise ChoiceError(f"--qrels {path}: relevance={protocol.relevance} does not look at it; use --relevance qrels")
    return qrels
