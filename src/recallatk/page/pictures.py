"""Thumbnails: what the encoder was given, small; what cannot be read is named, and what has changed is marked."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from typing import TYPE_CHECKING

from recallatk.cores import usable_cores
from recallatk.images import content_of, decode, pillow_warnings_ignored, stored_bytes
from recallatk.page.options import Images, Place
from recallatk.types import RecallatkError
from recallatk.wording import one_line

if TYPE_CHECKING:
    from PIL import Image

SIZES = (160, 112, 80)
"""Pixels of the longer side, the best first."""
QUALITY = 72


@dataclasses.dataclass(frozen=True)
class Thumbnail:
    """One picture of the page.

    Attributes:
        data: a WebP file; empty if there is none.
        note: why there is none, or that it is no longer what was evaluated.
        text: the item itself where it is a text, which has no picture.
    """

    data: bytes = b""
    note: str = ""
    text: str | None = None


def as_written(text: str, content: str | None) -> Thumbnail:
    """A text, which stands in the place of a picture; `content` as for `make_thumbnails`."""
    changed = content is not None and content_of(text.encode("utf-8", "surrogatepass")) != content
    return Thumbnail(note="the text has changed since it was evaluated" if changed else "", text=text)


def make_thumbnails(places: Sequence[Place | None], contents: Sequence[str | None], images: Images) -> list[Thumbnail]:
    """Read and shrink pictures.

    Args:
        places: where each lies; None: nobody knows.
        contents: the hash of the image when it was evaluated; None where that is not known.
        images: how they are decoded.
    """
    with pillow_warnings_ignored(), ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(lambda place, content: _thumbnail(place, content, images), places, contents))


def _thumbnail(place: Place | None, content: str | None, images: Images) -> Thumbnail:
    if place is None:
        return Thumbnail(note="the data set has no such image any more")
    path, box = place
    try:
        data = stored_bytes(path)
        picture = decode(data, policy=images.policy, name=PurePath(str(path)).name, box=box).image
    except OSError as error:
        return Thumbnail(note=f"the file cannot be read ({error.strerror or error})")
    except RecallatkError as error:
        return Thumbnail(note=one_line(str(error)))
    changed = content is not None and content_of(data, box) != content
    return Thumbnail(_webp(picture, SIZES[0]), "the file has changed since it was evaluated" if changed else "")


def shrink(thumbnail: Thumbnail, size: int) -> Thumbnail:
    """The same picture, smaller."""
    from PIL import Image

    if not thumbnail.data:
        return thumbnail
    with Image.open(io.BytesIO(thumbnail.data)) as picture:
        return dataclasses.replace(thumbnail, data=_webp(picture.convert("RGB"), size))


def _webp(picture: Image.Image, size: int) -> bytes:
    small = picture.copy()
    small.thumbnail((size, size))
    stream = io.BytesIO()
    small.save(stream, "WEBP", quality=QUALITY, method=2)
    return stream.getvalue()
