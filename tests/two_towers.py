"""An encoder of images and texts that needs no library: what it gives can be worked out by hand."""

from __future__ import annotations

import re
from typing import Any

import numpy as np


class TwoTowers:
    """Of an image the red and the green, of a text the numbers that stand in it."""

    name = "two-towers"
    fingerprint = "two-towers-1"

    def __init__(self) -> None:
        self.preprocessing = {"size": None}
        self.text_preprocessing = {"tokenizer": "numbers"}
        self.seen: list[str] = []

    def __call__(self, batch: list[Any]) -> np.ndarray:
        return np.array([np.asarray(image, np.float64).mean((0, 1))[:2] / 255 for image in batch])

    def encode_texts(self, batch: list[str]) -> np.ndarray:
        self.seen += batch
        return np.array([[float(number) for number in re.findall(r"\d+\.\d+", text)[:2]] for text in batch])


class OtherWidth(TwoTowers):
    """Its texts have a column too many."""

    def encode_texts(self, batch: list[str]) -> np.ndarray:
        return np.ones((len(batch), 3))


towers = TwoTowers()
other_width = OtherWidth()
