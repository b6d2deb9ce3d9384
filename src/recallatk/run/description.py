"""What an encoder says of itself, as values that a record can hold."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from recallatk.datasets.naming import shown
from recallatk.images import DecodePolicy, content_of
from recallatk.report import Provenance
from recallatk.types import Encoder, RecallatkError
from recallatk.wording import counted


def describe_encoder(encoder: Encoder, policy: DecodePolicy | None) -> Provenance:
    """The encoder's name, fingerprint and preprocessing, and how images are decoded for it (None: not by us).

    Raises:
        RecallatkError: the fingerprint is no text or whole number, or the preprocessing is no mapping of JSON values.
    """
    name = str(getattr(encoder, "name", None) or getattr(encoder, "__qualname__", type(encoder).__qualname__))
    fingerprint, preprocessing = getattr(encoder, "fingerprint", None), getattr(encoder, "preprocessing", None)
    if isinstance(fingerprint, int | np.integer) and not isinstance(fingerprint, bool):
        fingerprint = str(fingerprint)
    if not isinstance(fingerprint, str | None) or fingerprint == "":
        raise RecallatkError(
            f"encoder {name}: its attribute fingerprint is {fingerprint!r}; give a text such as a hash of the weights, "
            "or leave it out"
        )
    if preprocessing is not None:
        preprocessing = _as_json(preprocessing, name)
    return Provenance(
        encoder=name,
        fingerprint=fingerprint,
        preprocessing=preprocessing,
        decode=None if policy is None else policy.record(),
    )


def with_texts(provenance: Provenance, encoder: Encoder) -> Provenance:
    """The same where texts were encoded too: what was done to them is a part of the preprocessing."""
    if provenance.preprocessing is None:  # not known of images, so not known of both
        return provenance
    texts = getattr(encoder, "text_preprocessing", None)
    texts = None if texts is None else _as_json(texts, str(provenance.encoder), "text_preprocessing")
    return dataclasses.replace(provenance, preprocessing={**provenance.preprocessing, "text": texts})


def describe_code(encoder: Encoder) -> dict[str, str] | None:
    """The file that an encoder of the user's own is written in, with the sha256 of its bytes; None: there is none."""
    own = getattr(encoder, "encode", encoder) if type(encoder).__module__.startswith(f"{_PACKAGE}.") else encoder
    written = own if inspect.isroutine(own) else type(own)
    if (inspect.getmodule(written) or sys).__name__.partition(".")[0] == _PACKAGE:
        return None
    try:
        file = inspect.getsourcefile(written)
        return None if file is None else {"file": shown(file), "sha256": content_of(Path(file).read_bytes())}
    except (OSError, TypeError):  # typed in, built in, or a file that is gone
        return None


_PACKAGE = __name__.partition(".")[0]


def _as_json(preprocessing: Any, encoder: str, attribute: str = "preprocessing") -> dict[str, Any]:
    problem = ""
    try:
        values = json.loads(json.dumps(preprocessing, default=_plain, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        problem = f" ({error})"
    if problem or not isinstance(values, dict):
        raise RecallatkError(
            f"encoder {encoder}: its attribute {attribute} cannot be recorded{problem}; give a mapping of names to "
            "text, numbers, lists and mappings"
        )
    return values


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, and mappings of other kinds, as values that JSON has."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} is no JSON value")


def conversion_notes(conversions: Mapping[str, int]) -> list[str]:
    """How many images were converted in each way while decoding, a line each."""
    return [f"{counted(count, 'image')}: {what}" for what, count in sorted(conversions.items())]


def conversions_in(metadata: Mapping[str, Any]) -> dict[str, list[str]]:
    """What was converted in each image, as parts say it; under this name somebody else's metadata may hold anything."""
    found = metadata.get("conversions")
    if not isinstance(found, dict) or not all(isinstance(phrases, list) for phrases in found.values()):
        return {}
    return found
