"""What encoders are: callables on a batch, and what more some of them can."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Encoder(Protocol):
    """Any callable from a batch (a list of n images) to an array (n, d).

    There is no base class. Three optional attributes end up in the record: `name` (text), `fingerprint` (a hash of
    the weights) and `preprocessing` (a mapping: size, resampling, normalisation).
    """

    def __call__(self, batch: list[Any], /) -> Any:
        """Encode a batch; row i of the result belongs to element i."""


@runtime_checkable
class PreparingEncoder(Encoder, Protocol):
    """An encoder that can also be called in two steps, of which the first runs beside the model."""

    def prepare(self, image: Any, /) -> Any:
        """What depends on one RGB image alone, such as resizing it; called on several threads at once."""

    def encode_prepared(self, batch: list[Any], /) -> Any:
        """A list of n prepared images to an array (n, d), the same as the encoder gives for the images themselves."""


@runtime_checkable
class TextEncoder(Encoder, Protocol):
    """An encoder with a second tower, for texts: its rows and those of images can be compared.

    An optional attribute `text_preprocessing` (a mapping: tokenizer, length) ends up in the record where texts were
    encoded.
    """

    def encode_texts(self, batch: list[str], /) -> Any:
        """A list of n texts to an array (n, d), with as many columns as images get."""
