"""Pictures for look-alikes of benchmarks: a few of 8 x 8 pixels under the real file names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image


def write_picture(path: Path, shade: int, *, grey: bool = False) -> None:
    """A picture of its own shade; equal shades are equal files, near shades are near neighbours.

    Args:
        path: where; its folders are made.
        shade: 0 to 255.
        grey: stored as greyscale.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(shade).integers(0, 24, (8, 8, 3))
    pixels = np.clip(np.full((8, 8, 3), shade) + noise, 0, 255).astype(np.uint8)
    picture = Image.fromarray(pixels)
    (picture.convert("L") if grey else picture).save(path)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """A text file of these lines; its folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def on_the_circle(degrees: Iterable[float]) -> npt.NDArray[np.float64]:
    """Rows of two columns, of which the order of similarity can be read off."""
    angles = np.radians(list(degrees))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)
