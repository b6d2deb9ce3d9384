"""Encoders by name: ENCODERS and load_encoder. A module of an outside library is imported only when it is used."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, NamedTuple, cast

from recallatk.types import ChoiceError

if TYPE_CHECKING:
    from recallatk.types import Encoder


class EncoderEntry(NamedTuple):
    """A row of the table.

    Attributes:
        load: "module:function"; the function takes nothing and returns the encoder.
        extra: the extra of recallatk that it needs; None for the base installation.
        summary: one line for the list of encoders.
    """

    load: str
    extra: str | None
    summary: str


ENCODERS: dict[str, EncoderEntry] = {
    "lite0": EncoderEntry(
        "recallatk.encoders.onnx:lite0", "onnx", "EfficientNet-Lite0 (ImageNet), pooled features, 1280-d, included"
    ),
    "hog": EncoderEntry(
        "recallatk.encoders.weightless:hog", None, "histograms of oriented gradients on 64 x 64 grey, 1765-d"
    ),
    "color-histogram": EncoderEntry(
        "recallatk.encoders.weightless:color_histogram", None, "8 x 8 x 8 RGB histogram, square roots, 512-d"
    ),
    "pixels": EncoderEntry("recallatk.encoders.weightless:pixels", None, "16 x 16 RGB thumbnail, mean removed, 769-d"),
}


def load_encoder(spec: str) -> Encoder:
    """The encoder behind a name: one of ENCODERS, or `module:attribute` of your own code.

    An encoder takes a list of PIL images in mode RGB and returns float32 (n, d). All carry `name`, `fingerprint` and
    `preprocessing`; for code of your own the last two are None unless it carries them itself.

    `module:attribute` imports the module (from the current directory too). A class, or a function that needs no
    argument, is called once and returns the encoder; anything else callable is the encoder.

    Raises:
        ChoiceError: no such name.
        RecallatkError: no such module or attribute, or what it names is not callable.

    >>> load_encoder("pixels").name
    'pixels'
    """
    if spec in ENCODERS:
        module, _, function = ENCODERS[spec].load.partition(":")
        return cast("Encoder", getattr(importlib.import_module(module), function)())
    if ":" in spec:
        from recallatk.encoders.callables import load_callable

        return load_callable(spec)
    near = difflib.get_close_matches(spec, ENCODERS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ChoiceError(
        f"there is no encoder {spec!r}; {hint}choose one of {', '.join(ENCODERS)}, or name your own as module:attribute"
    )
