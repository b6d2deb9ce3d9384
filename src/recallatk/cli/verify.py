"""`recallatk verify`: a saved run repeated from what is on disk, and printed numbers held against it."""

# No `from __future__ import annotations`: the command line is made from these annotations.

import json as json_text
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from recallatk.cli.cluster import CLUSTER_GROUP, Cluster, progress_of, session, steps_of
from recallatk.cli.flags import ENCODING_GROUP, OUTPUT_GROUP, Many
from recallatk.cli.printing import NOT_PASSED
from recallatk.wording import one_line


def verify(
    run: Path,
    /,
    *,
    data: Path | None = None,
    encoder: str | None = None,
    device: Annotated[str | None, Parameter(group=ENCODING_GROUP)] = None,
    published: Many = (),
    workers: Annotated[int | None, Parameter(group=ENCODING_GROUP)] = None,
    run_on: Annotated[str | None, Parameter(group=CLUSTER_GROUP)] = None,
    num_gpus: Annotated[int | None, Parameter(group=CLUSTER_GROUP)] = None,
    parts: Annotated[str | None, Parameter(group=CLUSTER_GROUP)] = None,
    json: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
    quiet: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
) -> None:
    """Repeat a saved run from what is on disk: identical, or what moved, down to the file.

    Encodes every image again (without the cache), or reads embeddings, scores, labels and judged pairs again, and
    evaluates as the record says. Where images or encoder are gone, the embeddings that the run keeps are used, and what
    was not checked is said. Nothing is written. The exit code is 0 for identical, 1 where something moved or a
    published number is not reproduced, 3 where what it takes is not there.

    Args:
        run: the folder of a run, as --output wrote it.
        data: where the images or the manifest lie now; by default where the record says.
        encoder: the encoder as it is named now; by default as the record names it.
        device: where the model runs now: auto, cpu, cuda, cuda:1, mps; by default as the record says.
        published: a printed number to hold against the run: 0.699, 69.9%, or with its metric recall@5=91.4%; may be
            given several times.
        workers: threads that read and decode beside the encoder; by default one for each core.
        run_on: where it is repeated, wherever it was made: ray, auto, HOST:PORT or ray://HOST:PORT; by default on this
            machine. --cluster is the same flag.
        num_gpus: as for `recallatk eval`.
        parts: an empty folder that every node reads, or an address, for the rows of images while it is repeated.
        json: print everything as JSON, with every item.
        quiet: no progress.
    """
    from recallatk.verification import check_run_published, verify_run

    checks = [check_run_published(run, text) for text in published]
    if checks and not json:  # first, as it needs the record alone
        print("[published]")
        for check in checks:
            print("\n".join(map(one_line, check.lines())))
    cluster = Cluster(run_on, num_gpus, parts)
    elsewhere = cluster.elsewhere(once=True)
    steps = steps_of(cluster, 1)
    with session(cluster), progress_of(steps, "verify", quiet=quiet) as on_progress:
        outcome = verify_run(
            run,
            data=data,
            encoder=encoder,
            device=device,
            workers=workers,
            on_progress=on_progress,
            elsewhere=elsewhere,
        )
    if json:
        print(
            json_text.dumps({**json_text.loads(outcome.to_json()), "published": [_plain(c) for c in checks]}, indent=2)
        )
    else:
        print(f"[repeated]\n{outcome.text()}" if checks else outcome.text())
    if not outcome.identical or not all(check.reproduced for check in checks):
        sys.exit(NOT_PASSED)


def _plain(check: Any) -> dict[str, Any]:
    return {
        "metric": check.metric,
        "printed": check.published.printed,
        "verdict": check.verdict,
        "reproduced": check.reproduced,
        "value": check.value,
        "n": check.n,
        "hits": check.hits,
        "fitting_hits": check.fitting_hits,
        "p_value": check.p_value,
        "p_nearest": check.p_nearest,
        "smallest_n": check.smallest_n,
        "lines": check.lines(),
    }
