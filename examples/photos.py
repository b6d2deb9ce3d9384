"""The photos that come with recallatk, in two halves: one to train on, one to evaluate on."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image


class Photos(NamedTuple):
    """Photos as arrays: pixels (n, 3, 64, 64) in -1..1, the number of each label, and the path of each photo."""

    pixels: Any
    labels: Any
    paths: list[str]
    num_labels: int


def load_photos() -> tuple[Photos, Photos]:
    """Every second photo of each label to train on, the others to evaluate on."""
    root = Path(str(files("recallatk") / "assets" / "photos"))
    names = sorted(folder.name for folder in root.iterdir() if folder.is_dir())
    halves: tuple[list[Path], list[Path]] = ([], [])
    for name in names:
        for number, path in enumerate(sorted((root / name).iterdir())):
            halves[number % 2].append(path)

    def load(paths: list[Path]) -> Photos:
        images = [Image.open(path).convert("RGB").resize((64, 64), Image.Resampling.BICUBIC) for path in paths]
        pixels = np.stack([np.asarray(image, np.float32).transpose(2, 0, 1) for image in images]) / 127.5 - 1
        labels = np.array([names.index(path.parent.name) for path in paths])
        return Photos(pixels, labels, [path.relative_to(root).as_posix() for path in paths], len(names))

    train, held_out = halves
    return load(train), load(held_out)
