"""Past one machine: the same answer from a cluster. Ray runs it; importing this package does not import Ray.

Without Ray, for any engine:
    `engine.py`: what an engine must offer.
    `plan.py`: how a ranking is cut, and `estimate.py` what it is expected to take.
    `ranking.py`: hands the tasks of a ranking over, and `merging.py` merges what they give.
    `tasks.py`: what a worker runs to rank, and `sources.py` where it finds its rows.
    `tables.py`: what a worker runs to read, decode and encode images.
    `encoding.py`: writes what the pipeline gives in parts, and `places.py` says whose these are.

With Ray, and nowhere else:
    `joining.py`: joins a cluster or starts one, with `signals.py`, `logs.py` and `head.py` for what Ray does to this
    process.
    `ray_engine.py`: runs functions there.
    `pipeline.py`: runs what is in `tables.py`, with Ray Data.

For another engine, replace those three: a subclass of `Engine`, a context that gives it as `joined` does, and a
pipeline with `encoded_rows` and `copies_of_the_model`. `tests/other_engine.py` has engine and pipeline in about a
hundred lines; everything runs in its own process there, in any order, and sometimes twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from recallatk.cluster.encoding import dtype_and_device, encode_on
from recallatk.cluster.engine import Engine, Node, Told
from recallatk.cluster.estimate import describe_nodes, describe_ranking, describe_scores, estimate_ranking, in_words
from recallatk.cluster.joining import address_of, joined
from recallatk.cluster.pipeline import copies_of_the_model
from recallatk.cluster.places import Place, discard, holds_rows
from recallatk.cluster.plan import RankingPlan, memory_notes, plan_ranking, plan_scores, task_memory
from recallatk.cluster.ranking import rank, rank_blocks_of_scores
from recallatk.cluster.sources import are_found_there
from recallatk.cluster.tables import Job
from recallatk.ranking import Rank, Ranking, RankScores

__all__ = [
    "Engine",
    "Job",
    "Node",
    "Place",
    "RankingPlan",
    "address_of",
    "are_found_there",
    "copies_of_the_model",
    "describe_nodes",
    "describe_ranking",
    "describe_scores",
    "discard",
    "dtype_and_device",
    "encode_on",
    "estimate_ranking",
    "holds_rows",
    "in_words",
    "joined",
    "memory_notes",
    "plan_ranking",
    "plan_scores",
    "rank",
    "rank_blocks_of_scores",
    "ranking_on",
    "scoring_on",
    "task_memory",
]


@contextlib.contextmanager
def ranking_on(where: str, *, memory: int | None = None, on_progress: Told | None = None) -> Iterator[Rank]:
    """What takes the place of `recallatk.ranking.rank` on a cluster, which is joined for the `with` block.

    Args:
        where: as for `joined`.
        memory: bytes that the process of each worker may hold.
        on_progress: told how many tasks are done, and how many there will be.
    """
    with joined(where, told=on_progress) as engine:

        def rank_there(*sets: Any, **choices: Any) -> Iterator[Ranking]:
            # What the caller gives is for ranking in its own process, and not for that of a worker.
            return rank(*sets, engine=engine, **{**choices, "memory": memory})

        yield rank_there


@contextlib.contextmanager
def scoring_on(where: str, *, memory: int | None = None, on_progress: Told | None = None) -> Iterator[RankScores]:
    """What takes the place of `recallatk.ranking.rank_scores`; the arguments are those of `ranking_on`."""
    with joined(where, told=on_progress) as engine:

        def rank_there(*given: Any, **choices: Any) -> Iterator[Ranking]:
            return rank_blocks_of_scores(*given, engine=engine, **{**choices, "memory": memory})

        yield rank_there
