"""Encoders without weights: baselines that any trained encoder should beat, and that need nothing but numpy.

Each works on one image at a time, so a row never depends on the batch. None gives a zero row, whatever the image:
`pixels` and `hog`, for which an even surface holds nothing, carry a last component that is constant and small. Even
images then share one direction, and tie; all others are hardly moved.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recallatk.encoders.inputs import rgb_image, squashed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from PIL import Image

    from recallatk.types import Float32Rows


@dataclasses.dataclass(frozen=True)
class WeightlessEncoder:
    """An image at a time, by a fixed formula.

    Attributes:
        name: its name in ENCODERS.
        fingerprint: there are no weights to hash; this text changes when the formula does.
        preprocessing: what happens to the image first, as JSON values.
        embed: one RGB image to one row.
    """

    name: str
    fingerprint: str
    preprocessing: Mapping[str, Any]
    embed: Callable[[Image.Image], npt.NDArray[Any]]

    def __call__(self, batch: list[Any], /) -> Float32Rows:
        """A list of n RGB images to float32 (n, d)."""
        return self.encode_prepared([self.prepare(image) for image in batch])

    def prepare(self, image: Any, /) -> npt.NDArray[np.float32]:
        """The whole work: one RGB image to its row. So no batch of full-size images has to wait."""
        return self.embed(rgb_image(image, self.name)).astype(np.float32)

    def encode_prepared(self, batch: list[Any], /) -> Float32Rows:
        """N rows to float32 (n, d)."""
        return np.stack(batch)


def pixels() -> WeightlessEncoder:
    """The 16 x 16 RGB thumbnail with its mean over pixels and channels removed, and a constant of one grey level."""
    return WeightlessEncoder("pixels", "pixels-1", _squash_to(16, "RGB"), _embed_pixels)


def color_histogram() -> WeightlessEncoder:
    """Shares of 8 x 8 x 8 RGB bins over all pixels; their square roots, so that cosine is the Hellinger affinity."""
    preprocessing = {"size": None, "mode": "RGB"}
    return WeightlessEncoder("color-histogram", "color-histogram-1", preprocessing, _embed_color_histogram)


def hog() -> WeightlessEncoder:
    """Gradient orientations on a 64 x 64 grey image: 8 x 8 cells of 9 bins, normalised in blocks of 2 x 2 cells."""
    return WeightlessEncoder("hog", "hog-1", _squash_to(64, "L"), _embed_hog)


def _squash_to(side: int, mode: str) -> dict[str, Any]:
    return {"size": [side, side], "crop": None, "interpolation": "bicubic", "mode": mode}


def _embed_pixels(image: Image.Image) -> npt.NDArray[np.int64]:
    values = squashed(image, 16).astype(np.int64).ravel()
    # Multiplied by the number of values all is whole, and below 2^24: exact as float32.
    return np.append(values * values.size - values.sum(), values.size)


def _embed_color_histogram(image: Image.Image) -> npt.NDArray[np.float64]:
    bins = np.asarray(image) >> 5
    red, green, blue = (bins[..., channel].astype(np.intp).ravel() for channel in range(3))
    counts = np.bincount(red * 64 + green * 8 + blue, minlength=512)
    return np.sqrt(counts / red.size)


def _embed_hog(image: Image.Image) -> npt.NDArray[np.float64]:
    grey = squashed(image.convert("L"), 64) / 255.0
    down, right = np.zeros_like(grey), np.zeros_like(grey)
    down[1:-1] = grey[2:] - grey[:-2]
    right[:, 1:-1] = grey[:, 2:] - grey[:, :-2]
    strength = np.hypot(right, down)

    # An orientation has no sign: 9 bins over half a turn; a pixel votes for the two bins it lies between.
    place = np.arctan2(down, right) / np.pi % 1.0 * 9
    lower = np.floor(place).astype(np.intp)
    upper_share = place - lower
    rows, columns = np.indices(grey.shape) // 8
    cells = np.zeros((8, 8, 9))
    np.add.at(cells, (rows, columns, lower % 9), strength * (1 - upper_share))
    np.add.at(cells, (rows, columns, (lower + 1) % 9), strength * upper_share)

    # Each block of 2 x 2 cells to unit length (0.1: what is weaker than that counts as even).
    blocks = np.concatenate([cells[:-1, :-1], cells[:-1, 1:], cells[1:, :-1], cells[1:, 1:]], axis=2)
    blocks /= np.sqrt((blocks**2).sum(axis=2, keepdims=True) + 0.1**2)
    return np.append(blocks.ravel(), 0.01)
