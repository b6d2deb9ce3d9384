"""From a decoded image to the array that an encoder computes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from recallatk.types import RecallatkError


def rgb_image(image: Any, encoder: str) -> Image.Image:
    """The image, if it is what encoders by name are made for.

    Raises:
        RecallatkError: it is a path, an array, or an image in another mode.
    """
    if isinstance(image, Image.Image) and image.mode == "RGB":
        return image
    got = f"an image in mode {image.mode}" if isinstance(image, Image.Image) else type(image).__name__
    raise RecallatkError(
        f"the encoder {encoder} takes PIL images in mode RGB, not {got}; decode files with decode=True"
    )


def squashed(image: Image.Image, side: int) -> npt.NDArray[np.uint8]:
    """Resized to side x side with Pillow's bicubic filter; the aspect ratio is not kept."""
    return np.asarray(image.resize((side, side), Image.Resampling.BICUBIC))
