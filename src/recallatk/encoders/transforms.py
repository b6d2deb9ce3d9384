"""From an RGB image to a model's input: resize, centre crop, normalise; each step a field of the record."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recallatk.encoders.request import Request

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")


@dataclasses.dataclass(frozen=True)
class PixelSteps:
    """Pillow's resize, a centre crop, and (pixels / 255 - mean) / std, as torchvision does them to PIL images.

    Attributes:
        size: height and width of what comes out, in pixels.
        resize: the shorter side that the image is resized to, keeping its aspect ratio, before the centre crop to
            `size`; None: straight to `size`, whatever the aspect ratio.
        interpolation: the filter of the resize, one of INTERPOLATIONS; Pillow's are antialiased, but for nearest.
        mean: of the three channels, for pixels in 0..1.
        std: likewise.
    """

    size: tuple[int, int] = (224, 224)
    resize: int | None = 256
    interpolation: str = "bilinear"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    def record(self) -> dict[str, Any]:
        """The steps field by field, as JSON values."""
        return {
            "size": list(self.size),
            "resize": "squash" if self.resize is None else self.resize,
            "crop": None if self.resize is None else "center",
            "interpolation": self.interpolation,
            "antialias": self.interpolation != "nearest",
            "mode": "RGB",
            "range": [0, 1],
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def __call__(self, image: Image.Image, /) -> npt.NDArray[np.float32]:
        """An RGB image to float32 (3, height, width)."""
        mean, std = (np.array(values, dtype=np.float32)[:, None, None] for values in (self.mean, self.std))
        pixels = np.asarray(self.cropped(image)).transpose(2, 0, 1).astype(np.float32) / np.float32(255)
        return np.ascontiguousarray((pixels - mean) / std)

    def cropped(self, image: Image.Image) -> Image.Image:
        """Resized and cropped, still in whole grey levels."""
        height, width = self.size
        filter_ = Image.Resampling[self.interpolation.upper()]
        if self.resize is None:
            return image.resize((width, height), filter_)
        short, long = sorted(image.size)
        longer = int(self.resize * long / short)  # cut, not rounded: as torchvision and transformers do it
        target = (self.resize, longer) if image.width <= image.height else (longer, self.resize)
        resized = image if target == image.size else image.resize(target, filter_)
        left, top = round((resized.width - width) / 2), round((resized.height - height) / 2)
        return resized.crop((left, top, left + width, top + height))


DEFAULT_STEPS = PixelSteps()
"""What is used, and said, where a model does not say how its pixels are made: the usual evaluation on ImageNet."""


def override(steps: PixelSteps, request: Request) -> PixelSteps:
    """The steps with what the options of the request replace.

    A new size without a `resize` keeps the share of the image that is cut off.

    Raises:
        ChoiceError: a value that cannot be read, or a crop that is larger than the resized image.
    """
    options, changes = request.options, dict[str, Any]()
    if "size" in options:
        changes["size"] = _size(options["size"], request)
        if steps.resize is not None:
            changes["resize"] = round(steps.resize * min(changes["size"]) / min(steps.size))
    if "resize" in options:
        changes["resize"] = None if options["resize"] == "squash" else _whole("resize", options["resize"], request)
    if "interpolation" in options:
        if options["interpolation"] not in INTERPOLATIONS:
            raise request.wrong_choice(
                f"interpolation={options['interpolation']}: choose one of {', '.join(INTERPOLATIONS)}"
            )
        changes["interpolation"] = options["interpolation"]
    for key in ("mean", "std"):
        if key in options:
            changes[key] = _three(key, options[key], request)
    changed = dataclasses.replace(steps, **changes)
    if changed.resize is not None and changed.resize < max(changed.size):
        raise request.wrong_choice(
            f"resize={changed.resize} is less than the size {changed.size}; the crop would reach beyond the image"
        )
    return changed


def overridden(options: Mapping[str, str]) -> list[str]:
    """Which fields of the preprocessing the options replace, in their order."""
    return [key for key in options if key in ("size", "resize", "interpolation", "mean", "std")]


def _whole(key: str, text: str, request: Request) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise request.wrong_choice(f"{key}={text} is no whole number of pixels")
    return int(text)


def _size(text: str, request: Request) -> tuple[int, int]:
    height, cross, width = text.partition("x")
    return _whole("size", height, request), _whole("size", width if cross else height, request)


def _three(key: str, text: str, request: Request) -> tuple[float, float, float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    bad = len(values) not in (1, 3) or not np.isfinite(values).all() or (key == "std" and min(values) <= 0)
    if bad:
        above = ", above zero" if key == "std" else ""
        raise request.wrong_choice(f"{key}={text}: give one number or three (red, green, blue){above}")
    red, green, blue = values * (3 if len(values) == 1 else 1)
    return red, green, blue
