"""Every picture is really read and decoded, on several threads, and only what is known of it is kept."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from recallatk.cores import usable_cores
from recallatk.extras import import_extra
from recallatk.images import DecodePolicy, content_of, decode, stored_bytes
from recallatk.types import Box, ImageSet, RecallatkError, Stored

Progress = Callable[[int, int], None]
"""Called with the number of images that are done and their total."""

WAITING = 4
"""Files in the queue for each thread: enough that none waits, few enough that memory stays small."""

_Place: TypeAlias = tuple[str | Stored, Box | None]
"""A file or another stored image, and which part of it; equal ones are read once."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """What is known of one image.

    Attributes:
        bytes: the size of the file; 0 where it could not be opened.
        content: what its bytes (and its box) are, as in a set of embeddings; empty where it could not be opened.
        fault: why it cannot be used; empty where it can.
        pixels: the sha256 of size and RGB pixels.
        width: in pixels, of the box where there is one.
        height: likewise.
        conversions: what was done beyond reading.
        perceptual: a perceptual hash of 64 bits, where one was asked for.
        link: whether the path itself is a symbolic link.
    """

    bytes: int = 0
    content: str = ""
    fault: str = ""
    pixels: str = ""
    width: int = 0
    height: int = 0
    conversions: tuple[str, ...] = ()
    perceptual: int | None = None
    link: bool = False


def read_pictures(
    sides: Sequence[ImageSet],
    *,
    policy: DecodePolicy,
    perceptual: bool,
    threads: int | None = None,
    on_progress: Progress | None = None,
) -> list[list[Picture]]:
    """Read every image of these sets; an image that several rows name is read once.

    Args:
        sides: the sets; a text has no picture, and is what its bytes are.
        policy: how bytes become pixels.
        perceptual: whether to work out perceptual hashes (with the extra `near-duplicates`).
        threads: how many pictures are decoded at once; by default as many as there are cores.
        on_progress: told after every image.
    """
    hash_of = _perceptual_hash() if perceptual else None
    jobs: dict[_Place, str] = {}  # the id that messages use
    texts = [_read_texts(side) if side.kind == "text" else None for side in sides]
    pictured = [side for side in sides if side.kind == "image"]
    keys = [[(_key(e), b) for e, b in zip(s.elements, s.boxes or [None] * len(s), strict=True)] for s in pictured]
    for side, own in zip(pictured, keys, strict=True):
        for key, name in zip(own, side.ids, strict=True):
            jobs.setdefault(key, name)
    threads = threads or usable_cores()
    known: dict[_Place, Picture] = {}
    pool = concurrent.futures.ThreadPoolExecutor(threads, thread_name_prefix="recallatk-check")
    waiting: collections.deque[tuple[_Place, concurrent.futures.Future[Picture]]] = collections.deque()

    def take() -> None:
        key, future = waiting.popleft()
        known[key] = future.result()
        if on_progress:
            on_progress(len(known), len(jobs))

    try:
        for (element, box), name in jobs.items():
            waiting.append(((element, box), pool.submit(read_picture, element, box, name, policy, hash_of)))
            if len(waiting) >= WAITING * threads:
                take()
        while waiting:
            take()
    finally:
        pool.shutdown(cancel_futures=True)
    rest = iter([known[key] for key in own] for own in keys)
    return [next(rest) if own is None else own for own in texts]


def _read_texts(side: ImageSet) -> list[Picture]:
    data = [text.encode("utf-8", "surrogatepass") for text in side.elements]
    return [Picture(bytes=len(one), content=content_of(one)) for one in data]


def _key(element: Any) -> str | Stored:
    return element if isinstance(element, Stored) and not isinstance(element, os.PathLike) else os.fspath(element)


def read_picture(
    element: str | Stored,
    box: Box | None,
    name: str,
    policy: DecodePolicy,
    perceptual_hash: Callable[[Any], int] | None = None,
) -> Picture:
    """What is known of one stored image, or of a part of it; never raises for one that is bad."""
    link = isinstance(element, str) and os.path.islink(element)  # noqa: PTH114 - a name may hold anything
    try:
        data = stored_bytes(element)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
        return Picture(fault=f"cannot be read ({getattr(error, 'strerror', None) or error})", link=link)
    content = content_of(data, box)
    try:
        decoded = decode(data, policy=policy, name=name, box=box)
    except RecallatkError as error:
        fault = str(error).removeprefix(f"{name}: cannot be read as an image: ")
        return Picture(bytes=len(data), content=content, fault=fault, link=link)
    image = decoded.image
    pixels = hashlib.sha256(f"{image.width}x{image.height} ".encode())
    pixels.update(image.tobytes())
    return Picture(
        bytes=len(data),
        content=content,
        pixels=pixels.hexdigest(),
        width=image.width,
        height=image.height,
        conversions=decoded.conversions,
        perceptual=None if perceptual_hash is None else perceptual_hash(image),
        link=link,
    )


def _perceptual_hash() -> Callable[[Any], int]:
    imagehash = import_extra("imagehash", "near-duplicates", "a search for near-duplicates")
    return lambda image: int(str(imagehash.phash(image)), 16)
