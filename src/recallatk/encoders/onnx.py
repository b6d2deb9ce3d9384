"""Encoders that run in onnxruntime: the built-in EfficientNet-Lite0."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.resources
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recallatk.cores import usable_cores
from recallatk.encoders.inputs import rgb_image, squashed
from recallatk.extras import import_extra
from recallatk.types import RecallatkError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recallatk.types import Float32Rows

_LITE0_FILE = "assets/lite0_fp16.onnx"
_TOGETHER = 2
"""So many images go through the model at once: what they need stays in a core's cache. No row depends on it."""
_LITE0_SHA256 = "8ca11b290ea2acd41e5b086bec67951e731d68156c8e331f8e3984007c89c9d1"


@dataclasses.dataclass(frozen=True)
class OnnxEncoder:
    """A model that takes uint8 RGB images (n, side, side, 3) and gives float32 (n, d).

    Attributes:
        name: its name in ENCODERS.
        fingerprint: sha256 of the model file, in hex.
        preprocessing: what happens to the image before and inside the model, as JSON values.
        side: height and width of the model's input, in pixels.
        session: the loaded model, which runs in the thread that calls it.
        pool: the threads that call it, each with a few images of a batch.
    """

    name: str
    fingerprint: str
    preprocessing: Mapping[str, Any]
    side: int
    session: Any
    pool: ThreadPoolExecutor

    def __call__(self, batch: list[Any], /) -> Float32Rows:
        """A list of n RGB images to float32 (n, d)."""
        return self.encode_prepared([self.prepare(image) for image in batch])

    def prepare(self, image: Any, /) -> npt.NDArray[np.uint8]:
        """One RGB image to the model's input, (side, side, 3)."""
        return squashed(rgb_image(image, self.name), self.side)

    def encode_prepared(self, batch: list[Any], /) -> Float32Rows:
        """A list of n prepared images to float32 (n, d)."""
        parts = [np.stack(batch[start : start + _TOGETHER]) for start in range(0, len(batch), _TOGETHER)]
        return np.concatenate(list(self.pool.map(self._run, parts)))

    def _run(self, images: npt.NDArray[np.uint8]) -> Float32Rows:
        (embeddings,) = self.session.run(["embedding"], {"image": images})
        return np.asarray(embeddings, dtype=np.float32)


def lite0() -> OnnxEncoder:
    """EfficientNet-Lite0 up to its pooled features (1280-d), with ImageNet weights that come with the package.

    Raises:
        RecallatkError: onnxruntime is not installed, or the model file is not the one that was released.
    """
    onnxruntime = import_extra("onnxruntime", "onnx", "the encoder lite0")
    model = importlib.resources.files("recallatk").joinpath(_LITE0_FILE).read_bytes()
    sha256 = hashlib.sha256(model).hexdigest()
    if sha256 != _LITE0_SHA256:
        raise RecallatkError(
            f"the encoder lite0: its model file is damaged (sha256 {sha256[:12]}..., not {_LITE0_SHA256[:12]}...); "
            "install recallatk again"
        )
    options = onnxruntime.SessionOptions()
    # One thread for each call, and as many calls at once as there are cores: threads that share every operation wait
    # for one another many times an image, which costs half as much again, and more where cores are shared.
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    preprocessing = {
        "size": [224, 224],
        "crop": None,
        "interpolation": "bicubic",
        "mode": "RGB",
        "mean": [127, 127, 127],
        "std": [128, 128, 128],
    }
    return OnnxEncoder("lite0", sha256, preprocessing, 224, session, ThreadPoolExecutor(usable_cores()))
