"""What encoding runs in a worker, on tables of pyarrow: images are read and decoded, then encoded. Nothing of Ray.

Tables tell where images lie, and a worker reads them there; texts are in them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pickle
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from recallatk.cache import Cache, CachedRow
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
    first_line,
    unusable_rows,
)

DECODED_TOGETHER = 16
"""Images that are read and decoded before they are passed on."""

TASKS_A_CORE, MOST_LISTED = 8, 512
"""Tasks that read images, and how many images one of them reads at the most."""

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


def tables_of(image_sets: Sequence[ImageSet], cores: int) -> list[Any]:
    """Image sets cut into tables, each for one task: names, where images lie, or texts."""
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


def decode_table(table: Any, *, job: Job) -> Any:
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


class EncodeTables:
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
