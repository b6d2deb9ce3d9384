"""The pipeline of Ray Data: files are read and decoded by tasks, and encoded by actors that hold the model.

Tasks are told where images lie, and read them there; texts are sent as they are.

All use of Ray Data is here. It passes on what is finished and starts no more than the object store has room for: that
is the back-pressure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import logging
import os
import pickle
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from recallatk.cache import Cache, CachedRow
from recallatk.cluster.engine import RETRIES, SHARE_OF_A_CORE, Engine, first_line, in_one_line
from recallatk.decoding import content_of_text, prepare_one
from recallatk.encoding import encode_batch, text_tower
from recallatk.images import DecodePolicy, content_of, decode, stored_bytes
from recallatk.types import (
    Box,
    ElementKind,
    Encoder,
    ImageSet,
    OnError,
    PreparingEncoder,
    RecallatkError,
    unusable_rows,
)

DECODED_TOGETHER = 16
"""Images that are read and decoded before they are passed on."""

TASKS_A_CORE, MOST_LISTED = 8, 512
"""Tasks that read images, and how many images one of them reads at the most."""

BLOCK_BYTES = 2**25
"""What a task collects before it passes it on; it holds some copies of that meanwhile."""

TOLD_EVERY = 256
"""Images between two reports of progress."""

PREPARING = 4
"""Threads of an actor that do what an encoder does to one image alone."""


@dataclasses.dataclass(frozen=True)
class Job:
    """What is encoded, and everything that the rows depend on.

    Attributes:
        load: gives the encoder; called once by each actor.
        settings: the keys of cached rows, of images and of texts; see `recallatk.cache.Cache.rows`.
        cache: the cache of each node (the folder is the same on all of them, its disk is the node's own); or None.
        batch: how many images or texts go into the encoder at once.
        decode: elements are files that become RGB images; else paths are handed over.
        policy: how bytes become pixels.
        on_error: as for `recallatk.encoding.encode`.
    """

    load: Callable[[], Encoder]
    settings: Mapping[ElementKind, str]
    cache: Cache | None
    batch: int
    decode: bool
    policy: DecodePolicy
    on_error: OnError


def stamp_of(element: Any, kind: ElementKind) -> tuple[int, int]:
    """The size and the time of the last change of an image's file, by which another one in its place is seen.

    A text has none, as it is part of what rows depend on; nor has what lies in no file.
    """
    file = element if isinstance(element, str | os.PathLike) else getattr(element, "file", None)
    if kind == "text" or file is None:
        return (0, 0)
    try:
        stat = Path(file).stat()
    except (OSError, ValueError):  # ValueError: a path with a NUL in it
        return (-1, -1)
    return (stat.st_size, stat.st_mtime_ns)


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
        decoded = ray.data.from_arrow(_tables(image_sets, engine.cores)).map_batches(
            _decode,
            batch_format="pyarrow",
            batch_size=DECODED_TOGETHER,
            fn_kwargs={"job": dataclasses.replace(job, load=_nothing)},
            num_cpus=1,
            **_limits(_task_limits),
        )
        encoded = decoded.map_batches(
            _Encode,
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


def _tables(image_sets: Sequence[ImageSet], cores: int) -> list[Any]:
    import pyarrow as pa

    tables = []
    height = min(max(sum(map(len, image_sets)) // (TASKS_A_CORE * cores), DECODED_TOGETHER), MOST_LISTED)
    for images in image_sets:
        elements = list(map(pickle.dumps, images.elements))
        boxes = [None] * len(images) if images.boxes is None else list(images.boxes)
        for start in range(0, len(images), height):
            some = slice(start, start + height)
            columns = {
                "name": pa.array(images.ids[some], pa.string()),
                "kind": pa.array([images.kind] * len(elements[some]), pa.string()),
                "element": pa.array(elements[some], pa.binary()),
                "box": pa.array([None if box is None else list(box) for box in boxes[some]], pa.list_(pa.int64())),
            }
            tables.append(pa.table(columns))
    return tables


def _decode(table: Any, *, job: Job) -> Any:
    """Read and decode some images; what the cache of this node knows needs no pixels, and neither do texts."""
    import pyarrow as pa

    with _rows_of(job) as caches:
        rows = [_read(**image, job=job, caches=caches) for image in table.to_pylist()]
    return pa.Table.from_pylist(rows, schema=_schema())


def _read(
    name: str, kind: ElementKind, element: bytes, box: list[int] | None, *, job: Job, caches: Mapping[str, Any]
) -> dict[str, Any]:
    where = pickle.loads(element)  # this run wrote it
    size, changed = stamp_of(where, kind)
    row: dict[str, Any] = {"name": name, "kind": kind, "size": size, "changed": changed, "cached": False}
    area: Box | None = None if box is None else (box[0], box[1], box[2], box[3])
    decoded_here = job.decode and kind == "image"
    try:
        data = stored_bytes(where) if kind == "image" else b""
        row["content"] = content_of(data, area) if kind == "image" else content_of_text(where)
        found = caches[kind].get(row["content"]) if kind in caches else None
        if found is not None:
            known = {"row": found.row.tobytes(), "dtype": found.row.dtype.str, "conversions": list(found.conversions)}
            return {**row, **known, "cached": True}
        if not decoded_here:
            row["element"] = element
        else:
            decoded = decode(data, policy=job.policy, name=name, box=area)
            row |= {"pixels": decoded.image.tobytes(), "width": decoded.image.width, "height": decoded.image.height}
            row["conversions"] = list(decoded.conversions)
    except (OSError, ValueError) as error:
        row["failure"] = f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})"
    except RecallatkError as error:
        row["failure"] = str(error)
    return row


class _Encode:
    """An actor: the model is loaded once."""

    def __init__(self, job: Job) -> None:
        self._job, self._encoder = job, job.load()
        self._prepare = self._encoder.prepare if job.decode and isinstance(self._encoder, PreparingEncoder) else None
        self._pool = ThreadPoolExecutor(PREPARING)

    def __call__(self, table: Any) -> Any:
        """Encode a batch."""
        import pyarrow as pa

        rows = table.to_pylist()
        kinds: tuple[ElementKind, ...] = ("text", "image")
        for kind in kinds:
            new = [row for row in rows if row["kind"] == kind and row["row"] is None and not row["failure"]]
            if new:
                self._fill(new, kind)
        for row in rows:
            row |= {"pixels": None, "element": None, "conversions": row["conversions"] or []}
        return pa.Table.from_pylist(rows, schema=_schema())

    def _fill(self, new: list[dict[str, Any]], kind: ElementKind) -> None:
        """Give what is of one kind its rows."""
        try:
            embeddings = self._encode(list(map(self._element, new)), [row["name"] for row in new], kind)
        except (RecallatkError, MemoryError) as error:  # as data: Ray Data would wrap it, and lose what it was
            what = f"{new[0]['name']} and those behind it: a worker ran out of memory; use a smaller --batch-size"
            new[0]["fatal"] = str(error) if isinstance(error, RecallatkError) else what
            return
        except Exception as error:
            called = [note for note in getattr(error, "__notes__", ()) if note.startswith("recallatk called")]
            if not called:  # it is no fault of the encoder's
                raise
            new[0]["fatal"] = _of_the_encoder(error, called[0])
            return
        bad = dict(unusable_rows(embeddings))
        for place, row in enumerate(new):
            row["row"], row["dtype"] = embeddings[place].tobytes(), embeddings.dtype.str
            if place in bad:
                row |= {"failure": f"{row['name']}: its embedding {bad[place]}", "by_encoder": True}
        with _rows_of(self._job) as caches:
            if kind in caches:
                kept = [(row["content"], embeddings[i], row["conversions"]) for i, row in enumerate(new)
                        if i not in bad]  # fmt: skip
                caches[kind].update({key: CachedRow(row, tuple(words or ())) for key, row, words in kept})

    def _element(self, row: Mapping[str, Any]) -> Any:
        from PIL import Image

        if row["element"] is not None:
            return pickle.loads(row["element"])  # this run wrote it
        return Image.frombytes("RGB", (row["width"], row["height"]), row["pixels"])

    def _encode(self, elements: list[Any], names: list[str], kind: ElementKind) -> Any:
        if kind == "text":
            return encode_batch(elements, text_tower(self._encoder, ()), names[0], kind)
        if isinstance(self._encoder, PreparingEncoder) and self._prepare is not None:
            prepared = list(self._pool.map(prepare_one, itertools.repeat(self._prepare), elements, names))
            return encode_batch(prepared, self._encoder.encode_prepared, names[0])
        return encode_batch(elements, self._encoder, names[0])


def _of_the_encoder(error: Exception, called: str) -> str:
    """What the encoder raised, where, and what it was called with: there is no traceback on another machine."""
    every = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in every if "site-packages" not in frame.filename] or every  # all of it is installed
    where = f"{frames[-1].filename}, line {frames[-1].lineno}"
    return f"the encoder raised {type(error).__name__}: {first_line(error)} ({where}); {called}"


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        {
            "name": pa.string(),
            "kind": pa.string(),
            "element": pa.binary(),
            "size": pa.int64(),
            "changed": pa.int64(),
            "content": pa.string(),
            "failure": pa.string(),
            "by_encoder": pa.bool_(),
            "fatal": pa.string(),
            "conversions": pa.list_(pa.string()),
            "pixels": pa.large_binary(),
            "width": pa.int64(),
            "height": pa.int64(),
            "row": pa.binary(),
            "dtype": pa.string(),
            "cached": pa.bool_(),
        }
    )


@contextlib.contextmanager
def _rows_of(job: Job) -> Iterator[dict[str, Any]]:
    """The rows that the cache of this node holds, of images and of texts; nothing where there is no cache."""
    with contextlib.ExitStack() as stack:
        settings = {} if job.cache is None else job.settings
        yield {kind: stack.enter_context(job.cache.rows(own)) for kind, own in settings.items() if job.cache}
