"""The pipeline of Ray Data: files are read and decoded by tasks, and encoded by actors that hold the model.

All use of Ray Data is here; what it runs is in `tables.py`. It passes on what is finished and starts no more than the
object store has room for: that is the back-pressure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from recallatk.cluster.engine import Engine
from recallatk.cluster.ray_engine import LEFT_OF_A_CORE, RETRIES, SHARE_OF_A_CORE, in_one_line
from recallatk.cluster.tables import DECODED_TOGETHER, EncodeTables, Job, decode_table, tables_of
from recallatk.types import ImageSet

BLOCK_BYTES = 2**25
"""What a task collects before it passes it on; it holds some copies of that meanwhile."""

TOLD_EVERY = 256
"""Images between two reports of progress."""


def copies_of_the_model(engine: Engine, gpus: int | None) -> int:
    """How many actors encode: one for each GPU, of so many or of all; without one half of the cores, others decode."""
    return (engine.gpus if gpus is None else gpus) or max(1, engine.cores // 2)


def encoded_rows(
    engine: Engine, image_sets: Sequence[ImageSet], job: Job, gpus: int | None
) -> Iterator[list[dict[str, Any]]]:
    """What became of each image, in order, some at a time."""
    import ray

    gpus = engine.gpus if gpus is None else gpus
    # Actors hold no whole core: those of several commands at once would leave none for decoding, and all would wait. Of
    # no core at all they would be put on a head that has none, and without spreading all on one node.
    resources: dict[str, Any] = {"num_cpus": SHARE_OF_A_CORE, "scheduling_strategy": "SPREAD"}
    if gpus:
        resources = {"num_gpus": 1, "num_cpus": 0}
    with _in_order():
        decoded = ray.data.from_arrow(tables_of(image_sets, engine.cores)).map_batches(
            decode_table,
            batch_format="pyarrow",
            batch_size=DECODED_TOGETHER,
            fn_kwargs={"job": dataclasses.replace(job, load=_nothing)},
            num_cpus=1 - LEFT_OF_A_CORE,
            **_limits(_task_limits),
        )
        encoded = decoded.map_batches(
            EncodeTables,
            batch_format="pyarrow",
            batch_size=job.batch,
            fn_constructor_kwargs={"job": job},
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=copies_of_the_model(engine, gpus)),
            **_limits(_actor_limits),
            **resources,
        )
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are raised; it sets its own level when first used
    with in_one_line():
        for table in encoded.iter_batches(batch_format="pyarrow", batch_size=TOLD_EVERY, prefetch_batches=1):
            yield table.to_pylist()


@contextlib.contextmanager
def _in_order() -> Iterator[None]:
    """What is made here gives its rows in order and shows no bars; other pipelines of this process stay as they are."""
    import ray

    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars, context.execution_options.preserve_order, context.target_max_block_size
    context.enable_progress_bars, context.execution_options.preserve_order = False, True
    context.target_max_block_size = BLOCK_BYTES
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what later versions of Ray will not have
            yield
    finally:
        context.enable_progress_bars, context.execution_options.preserve_order, context.target_max_block_size = before


def _limits(limits: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The argument that bounds retries, while Ray Data has one."""
    import ray

    there = "ray_remote_args_fn" in inspect.signature(ray.data.Dataset.map_batches).parameters
    return {"ray_remote_args_fn": limits} if there else {}


def _task_limits() -> dict[str, Any]:
    return {"max_retries": RETRIES}


def _actor_limits() -> dict[str, Any]:
    """Ray Data itself would begin again for ever, also with a model that is too large for the worker."""
    return {"max_restarts": RETRIES, "max_task_retries": RETRIES}


def _nothing() -> Any:
    raise AssertionError("only actors load the encoder")
