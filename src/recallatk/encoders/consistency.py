"""Does an encoder give an image the same row every time? Alone, in a batch, shuffled, and twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recallatk.encoders.evaluation_mode import check_evaluation_mode
from recallatk.images import DEFAULT_POLICY, DecodePolicy, stored_bytes
from recallatk.images import decode as decode_image
from recallatk.types import RecallatkError, as_numbers
from recallatk.wording import counted

if TYPE_CHECKING:
    from recallatk.types import Encoder

SAMPLE = 8
"""How many images `check_encoder_on_files` takes."""

ROUNDING = 1e-5
"""Up to this share of a row's length, differences are those of float32 sums in another order."""

HALF_ROUNDING = 2e-2
"""The same for an encoder that computes in half precision."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far two rows of one image are apart, at most.

    Attributes:
        share: the length of their difference, as a share of the row's length.
        image: the name of the image where it is largest.
    """

    share: float
    image: str

    @property
    def said(self) -> str:
        """The share as people read it: 12.5%, or 3.1e-07."""
        return f"{self.share:.1%}" if self.share >= 1e-3 else f"{self.share:.1e}"


@dataclasses.dataclass(frozen=True)
class ConsistencyCheck:
    """What encoding some images in four ways showed.

    Attributes:
        images: how many images were encoded.
        twice: the same batch again.
        shuffled: the same images in another order.
        alone: each image by itself.
        rounding: what counts as rounding, as a share of the row's length.
    """

    images: int
    twice: Difference
    shuffled: Difference
    alone: Difference
    rounding: float

    def lines(self) -> list[str]:
        """The largest differences, one a line."""
        ways = {"twice": self.twice, "shuffled": self.shuffled, "alone": self.alone}
        return [
            f"{counted(self.images, 'image')} encoded in a batch and {way}: "
            + ("identical" if found.share == 0 else f"differ by {found.said} of the length ({found.image})")
            for way, found in ways.items()
        ]

    def warnings(self) -> list[str]:
        """What the differences mean, where they are more than rounding."""
        if self.twice.share > self.rounding:
            return [
                "the encoder is not deterministic: the same batch gave other rows "
                f"({self.twice.image} by {self.twice.said} of its length). Dropout or random crops are on, or its "
                "kernels add in any order; call model.eval() and use the transform for evaluation"
            ]
        if self.shuffled.share > self.rounding:
            return [
                "a row depends on the order of the batch "
                f"({self.shuffled.image} by {self.shuffled.said} of its length): the encoder sorts or mixes the "
                "images, or its rows are not in the order of the images"
            ]
        if self.alone.share > self.rounding:
            return [
                "a row depends on the other images of its batch "
                f"({self.alone.image} by {self.alone.said} of its length): batch norm in training mode, or "
                "another statistic over the batch; call model.eval()"
            ]
        return []


def check_encoder(encoder: Encoder, images: Sequence[Any], names: Sequence[str] | None = None) -> ConsistencyCheck:
    """Encode images in a batch, twice, shuffled, and each alone; compare the rows.

    Args:
        encoder: a callable from a list of n images to (n, d).
        images: at least two, whatever the encoder takes.
        names: how the images are called; by default their numbers.

    Raises:
        RecallatkError: fewer than two images, a model in training mode, or rows that are not one an image.
    """
    if len(images) < 2:
        raise RecallatkError("checking an encoder takes at least two images; hand over more")
    called = [f"image {row}" for row in range(len(images))] if names is None else list(names)
    check_evaluation_mode(encoder, getattr(encoder, "name", type(encoder).__name__))
    order = np.random.default_rng(0).permutation(len(images))
    if (order == np.arange(len(images))).all():
        order = order[::-1]
    together = _rows(encoder, list(images))
    twice = _rows(encoder, list(images))
    shuffled = np.empty_like(together)
    shuffled[order] = _rows(encoder, [images[row] for row in order])
    alone = np.concatenate([_rows(encoder, [image]) for image in images])
    half = "float16" in str(getattr(encoder, "dtype", "float32"))
    return ConsistencyCheck(
        len(images),
        twice=_largest(together, twice, called),
        shuffled=_largest(together, shuffled, called),
        alone=_largest(together, alone, called),
        rounding=HALF_ROUNDING if half else ROUNDING,
    )


def check_encoder_on_files(
    encoder: Encoder,
    paths: Sequence[Any],
    names: Sequence[str],
    *,
    policy: DecodePolicy = DEFAULT_POLICY,
    decode: bool = True,
) -> ConsistencyCheck:
    """The same on the first SAMPLE image files that can be decoded; the others are for the encoding itself to report.

    Args:
        encoder: as for `check_encoder`.
        paths: image files, or other stored images.
        names: how they are called.
        policy: how bytes become pixels.
        decode: False hands the paths over as they are.

    Raises:
        RecallatkError: as for `check_encoder`; or fewer than two files can be decoded.
    """
    images: list[Any] = []
    called: list[str] = []
    for path, name in zip(paths, names, strict=True):
        if len(images) == SAMPLE:
            break
        try:
            images.append(decode_image(stored_bytes(path), policy=policy, name=name).image if decode else path)
        except (OSError, RecallatkError):
            continue
        called.append(name)
    return check_encoder(encoder, images, called)


def _rows(encoder: Encoder, images: list[Any]) -> npt.NDArray[np.float64]:
    rows = as_numbers(encoder(images), "encoder output").astype(np.float64)
    if rows.ndim != 2 or len(rows) != len(images):
        raise RecallatkError(
            f"the encoder returned the shape {rows.shape} for a batch of {counted(len(images), 'image')}; it must "
            "return one embedding row an image"
        )
    return rows


def _largest(rows: npt.NDArray[np.float64], others: npt.NDArray[np.float64], names: Sequence[str]) -> Difference:
    if rows.shape != others.shape:
        raise RecallatkError(
            f"the encoder returned {rows.shape[1]} columns in a batch and {others.shape[1]} otherwise; all embeddings "
            "must have one dimension"
        )
    lengths = np.maximum(np.linalg.norm(rows, axis=1), np.finfo(np.float64).tiny)
    shares = np.linalg.norm(rows - others, axis=1) / lengths
    worst = int(np.argmax(np.nan_to_num(shares, nan=np.inf)))
    return Difference(float(shares[worst]), names[worst])
