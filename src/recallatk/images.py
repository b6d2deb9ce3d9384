"""Bytes of an image file to RGB pixels: the decode policy, in one place."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import os
import threading
import warnings
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

from recallatk.types import Box, RecallatkError, Stored

if TYPE_CHECKING:
    from collections.abc import Iterator

Exif: TypeAlias = Literal["apply", "ignore"]

# fmt: off
IMAGE_SUFFIXES: frozenset[str] = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".dib", ".gif", ".webp", ".tif", ".tiff",
    ".ppm", ".pgm", ".pbm", ".pnm", ".avif", ".jp2", ".j2k", ".jpx", ".tga", ".heic", ".heif",
})
# fmt: on
"""Endings of image files, in lower case. HEIC is among them so that such a file is named instead of lost."""

# The content decides the decoder, not the name. HEIF counts only where a plugin for Pillow brings it.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000", "HEIF")
# These have no signature that a text or noise could not have too, so for them the name must agree.
_FORMATS_BY_NAME = {".tga": "TGA", ".dib": "DIB"}

_CONVERTED = {
    "L": "greyscale converted",
    "LA": "greyscale converted",
    "La": "greyscale converted",
    "1": "greyscale converted",
    "P": "palette converted",
    "PA": "palette converted",
    "CMYK": "CMYK converted",
    "YCbCr": "YCbCr converted",
    "LAB": "LAB converted",
    "HSV": "HSV converted",
}

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_TURNED_BACK = _TURNS | {6: _TURNS[8], 8: _TURNS[6]}

# Filters for warnings belong to the whole process: the first thread sets them, the last one puts them back.
_FILTERS = threading.Lock()
_inside: list[contextlib.ExitStack] = []


@dataclasses.dataclass(frozen=True)
class DecodePolicy:
    """What can be chosen about decoding; the rest of the policy is fixed and stated in `record`.

    Attributes:
        exif: turn the image as its EXIF orientation says, or leave it as it is stored.
    """

    exif: Exif = "apply"

    def __post_init__(self) -> None:
        if self.exif not in ("apply", "ignore"):
            raise RecallatkError(f"exif={self.exif!r} is not a choice; choose one of: apply, ignore")

    def record(self) -> dict[str, object]:
        """The complete policy as JSON values, for the record of a run (without Pillow's version).

        >>> DecodePolicy().record()["background"]
        'white'
        """
        return {
            "library": "pillow",
            "exif": self.exif,
            "background": "white",
            "sixteen_bit": "value/257, rounded",
            "float": "error",
            "icc": "ignored",
            "frames": "first",
            "truncated": "decoded as far as it goes" if ImageFile.LOAD_TRUNCATED_IMAGES else "error",
            "max_pixels": _max_pixels(),
            "mode": "RGB",
        }


DEFAULT_POLICY = DecodePolicy()


@dataclasses.dataclass(frozen=True, eq=False)
class Decoded:
    """The pixels of one image.

    Attributes:
        image: mode RGB.
        conversions: what was done beyond reading, as short fixed phrases that can be counted over a set.
    """

    image: Image.Image
    conversions: tuple[str, ...]


def is_image_name(name: str) -> bool:
    """Whether a file name (or a path with "/") ends like an image and is not hidden.

    >>> [is_image_name(name) for name in ("cat/IMG_1.JPG", "cat/._IMG_1.JPG", "Thumbs.db")]
    [True, False, False]
    """
    path = PurePosixPath(name)
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")


def pixel_bytes(image: object) -> bytes | None:
    """What tells one decoded image from another: all that an encoder can see of it; None for anything else.

    Beside the pixels that is how they are to be read: the palette, the transparent colour, the EXIF orientation and the
    ICC profile.
    """
    if not isinstance(image, Image.Image):
        return None
    info = (image.info.get("transparency"), image.info.get("icc_profile"))
    return repr((image.mode, image.size, image.getpalette(None), _orientation(image), *info)).encode() + image.tobytes()


def is_stored(element: object) -> bool:
    """Whether `stored_bytes` can read it: a path, or another image that is stored."""
    return isinstance(element, str | os.PathLike | Stored)


def stored_bytes(element: str | os.PathLike[str] | Stored) -> bytes:
    """The bytes of an image that lies somewhere: a file's, or those of a part of a larger one.

    Raises:
        OSError: they cannot be read.
        ValueError: a path with a NUL in it.
    """
    return Path(element).read_bytes() if isinstance(element, str | os.PathLike) else element.read_bytes()


def content_of(data: bytes, box: Box | None = None) -> str:
    """What an image is, whatever its name: the sha256 of the file's bytes, or of them and the box.

    >>> content_of(b"")[:8], content_of(b"", (0, 0, 2, 2))[:8]
    ('e3b0c442', 'e5bd4608')
    """
    digest = hashlib.sha256(data).hexdigest()
    return digest if box is None else hashlib.sha256(f"{digest}{box_suffix(box)}".encode()).hexdigest()


def box_suffix(box: Box) -> str:
    """What a box adds to the name of its picture.

    >>> box_suffix((10, 20, 110, 220))
    '@10,20,110,220'
    """
    return "@" + ",".join(map(str, box))


def decode(data: bytes, *, policy: DecodePolicy = DEFAULT_POLICY, name: str, box: Box | None = None) -> Decoded:
    """Decode one image file.

    The EXIF orientation is applied (or ignored); 16-bit grey is scaled by 1/257 and rounded, never clipped; what is
    transparent is laid on white; every other mode is converted to RGB; ICC profiles are ignored; of several frames
    the first is used. Pixels of 32-bit integers are read as 16-bit ones, and refused where they do not fit; floating
    point is refused, because no file says what its black and white are. 16-bit *colour* reaches us as 8 bits
    already (Pillow keeps the high byte). The limit on the number of pixels is Pillow's own error limit.

    Args:
        data: the bytes of the file.
        policy: what can be chosen.
        name: what the error calls the file; its ending decides only for formats without a signature (TGA, DIB).
        box: the part that is wanted, in pixels of the picture as it is read (turned, if the policy turns it).

    Raises:
        RecallatkError: the bytes are no image, or a damaged or refused one, or the box is not inside the picture.
    """
    if not data:
        raise _refusal(name, "the file is empty")
    try:
        decoded = _decode(data, policy, name.removesuffix(box_suffix(box)) if box else name)
        return decoded if box is None else dataclasses.replace(decoded, image=_crop(decoded.image, box))
    except MemoryError:  # not the file's fault
        raise
    except Exception as error:  # damaged bytes make Pillow raise almost anything
        raise _refusal(name, _reason(error, data)) from error


def _crop(image: Image.Image, box: Box) -> Image.Image:
    """The part of a picture; Pillow would fill what is outside with black."""
    left, top, right, bottom = box
    if not (0 <= left < right <= image.width and 0 <= top < bottom <= image.height):
        raise ValueError(f"the box {box} is not inside its {image.width} x {image.height} pixels; correct the box")
    return image.crop(box)


def _decode(data: bytes, policy: DecodePolicy, name: str) -> Decoded:
    conversions = []
    with pillow_warnings_ignored():
        Image.init()
        suffix = _FORMATS_BY_NAME.get(PurePosixPath(name).suffix.lower(), "")
        formats = [known for known in (*_FORMATS, suffix) if known in Image.OPEN]
        image: Image.Image = Image.open(io.BytesIO(data), formats=formats)
        stored_turn = _orientation(image) if image.format == "TIFF" else None
        layout = str(getattr(image, "tile", ""))  # names the raw mode, until the pixels are loaded
        if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
            image.load()  # some formats warn again here
    image.load()
    with pillow_warnings_ignored():
        turn = _orientation(image)
    if turn == "damaged":
        conversions.append("damaged EXIF data ignored")
    turned_by_pillow = stored_turn in _TURNS and turn != stored_turn  # TIFF: while loading, whatever the policy

    pixels, phrases = _to_rgb(image, layout)
    if 0 in pixels.size:
        raise ValueError("it has no pixels")
    conversions += phrases
    if policy.exif == "apply" and turn in _TURNS:
        pixels = pixels.transpose(_TURNS[int(turn)])
    if policy.exif == "apply" and (turn in _TURNS or turned_by_pillow):
        conversions.append("EXIF orientation applied")
    if policy.exif == "ignore" and turned_by_pillow and stored_turn is not None:
        pixels = pixels.transpose(_TURNED_BACK[int(stored_turn)])

    if "icc_profile" in image.info:
        conversions.append("ICC profile ignored")
    if _has_more_frames(image):
        conversions.append("first of several frames used")
    if ImageFile.LOAD_TRUNCATED_IMAGES:  # set by somebody's import; then Pillow fills what is missing with grey
        conversions.append("not checked for truncation (PIL.ImageFile.LOAD_TRUNCATED_IMAGES is on)")
    return Decoded(pixels, tuple(conversions))


@contextlib.contextmanager
def pillow_warnings_ignored() -> Iterator[None]:
    """Pillow warns about large images and odd metadata; both are part of the policy, not news.

    Whoever decodes on several threads holds it around all of them, so that no thread changes the filters of the process
    while others work.
    """
    with _FILTERS:
        stack = _inside[0] if _inside else contextlib.ExitStack()
        if not _inside:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", module=r"PIL\b")
        _inside.append(stack)
    try:
        yield
    finally:
        with _FILTERS:
            _inside.pop()
            if not _inside:
                stack.close()


def _orientation(image: Image.Image) -> int | Literal["damaged"] | None:
    try:
        value = image.getexif().get(ExifTags.Base.Orientation)
    except MemoryError:
        raise
    except Exception:  # the pixels may be fine all the same
        return "damaged"
    return value if isinstance(value, int) else None


def _has_more_frames(image: Image.Image) -> bool:
    try:
        return bool(getattr(image, "is_animated", False))
    except MemoryError:
        raise
    except Exception:  # a second frame that cannot be read is not used anyway
        return True


def _to_rgb(image: Image.Image, layout: str) -> tuple[Image.Image, list[str]]:
    """Any mode to RGB, and what that took."""
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers without a stated range; save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        return _sixteen_bit_grey(image, layout)
    phrases = [_CONVERTED[image.mode]] if image.mode in _CONVERTED else []
    if ";16" in layout:
        phrases.append("16-bit colour reduced to 8-bit (high byte)")
        transparent = image.info.get("transparency")
        if isinstance(transparent, tuple):  # the pixels have lost their low bytes, so must what they are compared with
            image.info["transparency"] = tuple(value >> 8 for value in transparent)
    if image.has_transparency_data:
        rgba = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        if rgba.getchannel("A").getextrema() != (255, 255):
            phrases.append("transparency composited on white")
            rgba = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
        return rgba.convert("RGB"), phrases
    if image.mode == "LAB":
        return _lab_to_rgb(image), phrases
    return image.convert("RGB"), phrases


def _sixteen_bit_grey(image: Image.Image, layout: str) -> tuple[Image.Image, list[str]]:
    phrases = ["greyscale converted", "16-bit scaled to 8-bit"]
    values = np.asarray(image)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise ValueError(f"its pixels are integers from {low} to {high}, not 16-bit; save it with 8 or 16 bits")
    white = 4095 if "I;12" in layout else 65535
    grey = ((values.astype(np.int64) * 255 + white // 2) // white).astype(np.uint8)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int) and (values == transparent).any():
        grey[values == transparent] = 255
        phrases.append("transparency composited on white")
    return Image.fromarray(grey).convert("RGB"), phrases


def _lab_to_rgb(image: Image.Image) -> Image.Image:
    from PIL import ImageCms  # Pillow converts LAB nowhere else

    transform = ImageCms.buildTransform(
        ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), inMode="LAB", outMode="RGB"
    )
    rgb = ImageCms.applyTransform(image, transform)
    if rgb is None:
        raise ValueError("its LAB pixels could not be converted")
    return rgb


def _max_pixels() -> int | None:
    """Pillow's error limit: twice the number from which it warns; None if the caller has lifted it."""
    return None if Image.MAX_IMAGE_PIXELS is None else 2 * int(Image.MAX_IMAGE_PIXELS)


def _reason(error: Exception, data: bytes) -> str:
    if isinstance(error, Image.DecompressionBombError):
        return f"it has more than {_max_pixels():,} pixels, Pillow's limit"
    if isinstance(error, UnidentifiedImageError):
        if data[4:8] == b"ftyp" and data[8:11] in (b"hei", b"hev", b"mif", b"msf"):
            return "HEIC is not read by Pillow alone; convert it to JPEG or PNG"
        return "it is no image of a known format"
    return " ".join(str(error).split()) or type(error).__name__


def _refusal(name: str, reason: str) -> RecallatkError:
    return RecallatkError(f"{name}: cannot be read as an image: {reason}")
