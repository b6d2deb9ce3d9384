"""`recallatk score`: the same report for a system that is known by its scores or ranked lists."""

# No `from __future__ import annotations`: the command line is made from these annotations.

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from recallatk.cli.cluster import NO_CLUSTER, Cluster, print_plan_of_scores, progress_of, session, steps_of
from recallatk.cli.delivery import check_metrics, check_output, deliver
from recallatk.cli.flags import (
    NO_INTERVALS,
    NO_OUTPUT,
    NO_PAGE,
    NO_PROTOCOL,
    NO_SCORES,
    PAGE_GROUP,
    Intervals,
    Many,
    Output,
    PageContent,
    Protocol,
    Scores,
    parse_bytes,
)
from recallatk.cli.inputs import read_qrels
from recallatk.cli.page import check_page_file, page_of_each
from recallatk.types import ChoiceError

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
    cluster: Cluster = NO_CLUSTER,
    output: Output = NO_OUTPUT,
    report: Annotated[Path | None, Parameter(group=PAGE_GROUP)] = None,
    page: PageContent = NO_PAGE,
) -> None:
    """Score what any system returned: a TREC run with qrels, ranked lists, or a matrix of scores.

    With --run and --qrels alone the queries are those of the qrels, and one without a list finds nothing. Labels or
    ids of queries and gallery say which they are in the order of the matrix. Short forms as for `recallatk eval`.

    Args:
        metric: metrics beside recall@k: set_recall@5, map, mrr (see `recallatk metrics`).
        memory: what the whole process may hold while it ranks, such as 2GB; by default a quarter of what is free.
        protocol_file: a TOML file, or the record of an earlier run, whose protocol is used; flags given win.
        report: write an HTML page that shows the number and the queries; without lists or pictures, which take
            embeddings and images.
    """
    from recallatk.cache import Cache
    from recallatk.run import measure_score_files, score_files

    started = datetime.now(UTC)
    check_page_file(report, page, overwrite=output.overwrite)
    budget = None if memory is None else parse_bytes(memory)
    check_metrics(metric)
    if output.save_embeddings:
        raise ChoiceError("--save-embeddings: there are none here; `recallatk eval` has embeddings")
    folders = check_output(output, {"scores": ()}, report=report)
    make_page = page_of_each(report, page, names=("scores",), output=output)
    common: dict[str, Any] = {
        "protocol": protocol,
        "metrics": metric,
        "memory": budget,
        "started": started,
        "intervals": intervals,
        "cluster": cluster.run_on,
    }
    cluster.refuse_gpus("scores")
    qrels = None if scores.qrels is None else read_qrels(scores.qrels, protocol)
    if cluster.dry_run:
        size = measure_score_files(vars(scores), qrels=qrels, protocol=protocol)
        return print_plan_of_scores(cluster, size, budget)
    with session(cluster), cluster.keeping(Cache()) as common["kept"]:
        with progress_of(steps_of(cluster, 1), "ranking", quiet=output.quiet) as told:
            found = score_files(vars(scores), qrels=qrels, on_progress=told, **common)
        deliver(iter([("scores", found, None)]), output, folders, several=False, make_page=make_page)
    return None
