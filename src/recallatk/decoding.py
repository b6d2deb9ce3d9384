"""Images ahead of the model: read, hashed, decoded and prepared on threads, and handed over in order; and texts."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from recallatk.cache import CachedRow, RowStore
from recallatk.cores import usable_cores
from recallatk.images import (
    DecodePolicy,
    content_of,
    decode,
    is_stored,
    pillow_warnings_ignored,
    pixel_bytes,
    stored_bytes,
)
from recallatk.types import Box, RecallatkError, Skipped

BATCHES_AHEAD = 3
"""So many batches at most are decoded before the encoder asks for them."""
BYTES_AHEAD = 256 * 2**20
"""What may wait for the encoder: files, and decoded or prepared images."""
MOST_PENDING = 2000
"""So many elements at most are between reading and the encoder; most of them copies, or from the cache."""


class ImageError(RecallatkError):
    """An image that cannot be read or decoded: the file's fault, which may be skipped."""


class _Ready(NamedTuple):
    element: Any
    conversions: tuple[str, ...]
    size: int


class _Read(NamedTuple):
    content: str | None
    data: bytes | None


@dataclasses.dataclass(eq=False)
class DistinctImage:
    """One distinct image, or text, on its way to its row.

    Attributes:
        name: the id of the first element that showed it.
        content: see `content_of`; None where it is not known what makes it the same image as another.
        cached: what the cache knows of it.
        failure: why it cannot be used.
        conversions: what was done while decoding; see `Decoded`.
        row: its row among all embeddings; -1 until it has one.
        ready: what the encoder gets, once; waits for it, and raises `ImageError` if the image cannot be decoded.
    """

    name: str
    content: str | None = None
    cached: CachedRow | None = None
    failure: Skipped | None = None
    conversions: tuple[str, ...] = ()
    row: int = -1
    ready: Callable[[], Any] = lambda: None


class Ahead:
    """Works on images ahead of whoever takes them, and not too far; use it in a `with` statement.

    How far is a number of images that shrinks while they are large: what waits holds about BYTES_AHEAD, or a few images
    if these are larger. It begins with few, as nobody knows how large images are before they are decoded.

    Args:
        decode: elements are files that become RGB images.
        policy: how they become that.
        prepare: what else is done to one image alone; see `PreparingEncoder`.
        cache: what is known of images already; asked in the thread that takes them.
        workers: the number of threads; by default one for each core.
        batch: how many images the encoder takes at once.
    """

    def __init__(
        self,
        decode: bool,
        policy: DecodePolicy,
        prepare: Callable[[Any], Any] | None,
        cache: RowStore | None,
        *,
        workers: int | None,
        batch: int,
    ) -> None:
        workers = workers or usable_cores()
        self._decode, self._policy, self._prepare, self._cache = decode, policy, prepare, cache
        self._least, self._most = workers + 1, BATCHES_AHEAD * batch + workers
        self._size = BYTES_AHEAD / self._least
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="recallatk-decode")
        self._stack = contextlib.ExitStack()
        self._reading: dict[Hashable, Future[_Read]] = {}
        self._seen: dict[Hashable, DistinctImage] = {}
        self._decoding = 0

    def __enter__(self) -> Ahead:
        self._stack.enter_context(pillow_warnings_ignored())
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            self._pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C, what has not begun is left

    def in_order(self, elements: Sequence[tuple[str, Any, Box | None]]) -> Iterator[DistinctImage]:
        """The image of each (id, element, box), in order; equal ones give the same object."""
        pending: deque[DistinctImage] = deque()
        for image in self._looked_at(elements):
            pending.append(image)
            while self._decoding >= self._window() or len(pending) >= MOST_PENDING:
                yield pending.popleft()
        yield from pending

    def _looked_at(self, elements: Sequence[tuple[str, Any, Box | None]]) -> Iterator[DistinctImage]:
        """The image of each element, which is decoded from now on where it must be, while later ones are read."""
        queue: deque[tuple[str, Any, Box | None]] = deque()
        for name, element, box in elements:
            place = _place(element, box)
            if place not in self._seen and place not in self._reading:
                self._reading[place] = self._pool.submit(_read, element, box, decode=self._decode)
            queue.append((name, element, box))
            if len(queue) > self._window():
                yield self._look_at(*queue.popleft())
        for one in queue:
            yield self._look_at(*one)

    def _look_at(self, name: str, element: Any, box: Box | None) -> DistinctImage:
        place = _place(element, box)
        if place not in self._seen:
            self._seen[place] = self._at_new_place(name, element, box, self._reading.pop(place))
        return self._seen[place]

    def _at_new_place(self, name: str, element: Any, box: Box | None, reading: Future[_Read]) -> DistinctImage:
        """An image that is known by its content, or in the cache, or is to be decoded."""
        try:
            content, data = reading.result()
        except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
            reason = f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})"
            return DistinctImage(name, failure=Skipped(name, reason))
        key: Hashable = ("content", content)
        if content is not None and key in self._seen:
            return self._seen[key]
        image = DistinctImage(name, content)
        if content is not None:
            self._seen[key] = image
            image.cached = None if self._cache is None else self._cache.get(content)
        if image.cached is None:
            image.ready = self._begin(image, element, data, box)
        return image

    def _begin(self, image: DistinctImage, element: Any, data: bytes | None, box: Box | None) -> Callable[[], Any]:
        if not self._decode:
            return lambda: element
        if data is None:
            return functools.partial(_refuse, f"{image.name}: only files are decoded, not {type(element).__name__}")
        self._decoding += 1
        return functools.partial(
            self._finish, image, self._pool.submit(_decoded, data, box, self._policy, image.name, self._prepare)
        )

    def _finish(self, image: DistinctImage, decoding: Future[_Ready]) -> Any:
        self._decoding -= 1
        image.ready = DistinctImage.ready  # the pixels are not held any longer
        element, image.conversions, size = decoding.result()
        self._size = max(size, 0.8 * self._size, 1.0)  # large images count at once, small ones in time
        return element

    def _window(self) -> int:
        """How many images may wait now."""
        return int(min(self._most, max(self._least, BYTES_AHEAD / self._size)))


def distinct_texts(elements: Sequence[tuple[str, Any, Box | None]], cache: RowStore | None) -> Iterator[DistinctImage]:
    """The text of each (id, text, box) in order; equal ones give the same object.

    Raises:
        RecallatkError: an element is no text.
    """
    seen: dict[str, DistinctImage] = {}
    for name, text, _ in elements:
        if not isinstance(text, str):
            raise RecallatkError(f"{name}: {type(text).__name__} is no text; a set of texts holds nothing else")
        content = content_of_text(text)
        if content not in seen:
            cached = None if cache is None else cache.get(content)
            seen[content] = DistinctImage(name, content, cached, ready=functools.partial(str, text))
        yield seen[content]


def content_of_text(text: str) -> str:
    """What a text is, whatever its name: the sha256 of its UTF-8 bytes."""
    return content_of(text.encode("utf-8", "surrogatepass"))


def _refuse(reason: str) -> Any:
    raise RecallatkError(f"{reason}; use decode=False")


def _place(element: Any, box: Box | None) -> Hashable:
    """What tells that an element was seen before, without reading it."""
    if isinstance(element, str | os.PathLike):
        return (os.fspath(element), box)
    return (element if is_stored(element) and isinstance(element, Hashable) else id(element), box)


def _read(element: Any, box: Box | None, *, decode: bool) -> _Read:
    """The hash of an element, and its bytes where they are to be decoded."""
    data = _bytes_of(element, must_be_file=decode or not isinstance(element, str))
    if data is None:
        return _Read(None, None)
    return _Read(content_of(data, box), data if decode and is_stored(element) else None)


def _decoded(
    data: bytes, box: Box | None, policy: DecodePolicy, name: str, prepare: Callable[[Any], Any] | None
) -> _Ready:
    """Decode one file, and do what the encoder does to one image alone."""
    try:
        decoded = decode(data, policy=policy, name=name, box=box)
    except RecallatkError as error:
        raise ImageError(str(error)) from error
    element: Any = decoded.image
    size = 3 * decoded.image.width * decoded.image.height
    if prepare is not None:
        element = prepare_one(prepare, element, name)
        size = int(getattr(element, "nbytes", size))
    return _Ready(element, decoded.conversions, len(data) + size)


def prepare_one(prepare: Callable[[Any], Any], element: Any, name: str) -> Any:
    """What an encoder makes of one image alone; what it raises says of which."""
    try:
        return prepare(element)
    except Exception as error:
        error.add_note(f"recallatk called the encoder's prepare with the image {name}")
        raise


def _bytes_of(element: Any, *, must_be_file: bool) -> bytes | None:
    """What makes an element the same image as another: a file's bytes, an array's; None where that is not known."""
    if isinstance(element, str | os.PathLike) and not must_be_file:
        # os.path: Path.is_file raises on a text that is too long for a name.
        must_be_file = os.path.isfile(element)  # noqa: PTH113
        return stored_bytes(element) if must_be_file else None
    if is_stored(element):
        return stored_bytes(element)
    if isinstance(element, np.generic) or type(element) in (np.ndarray, np.memmap):
        return None if element.dtype.hasobject else f"{element.dtype} {element.shape} ".encode() + element.tobytes()
    return pixel_bytes(element)
