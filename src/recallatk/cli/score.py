"""`recallatk score`: the same report for a system that is known by its scores or ranked lists."""

# No `from __future__ import annotations`: the command line is made from these annotations.

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

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
    from recallatk.run import score_files

    started = datetime.now(UTC)
    budget = None if memory is None else parse_bytes(memory)
    check_metrics(metric)
    if output.save_embeddings:
        raise ChoiceError("--save-embeddings: there are none here; `recallatk eval` has embeddings")
    folders = check_output(output, {"scores": ()})
    common: dict[str, Any] = {
        "protocol": protocol,
        "metrics": metric,
        "memory": budget,
        "started": started,
        "intervals": intervals,
    }
    qrels = None if scores.qrels is None else read_qrels(scores.qrels, protocol)
    report = score_files(vars(scores), qrels=qrels, **common)
    deliver(iter([("scores", report, None)]), output, folders, several=False)


def read_qrels(path: Path, protocol: EvalProtocol) -> Qrels:
    """Read judged pairs, and refuse those that the protocol would pass over."""
    from recallatk.datasets import load_qrels

    qrels = load_qrels(path)
    if protocol.relevance != "qrels" and qrels.levels is None:
        raise ChoiceError(f"--qrels {path}: relevance={protocol.relevance} does not look at it; use --relevance qrels")
    return qrels
