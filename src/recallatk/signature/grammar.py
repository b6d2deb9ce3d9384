"""The line that is printed, its grammar, and the two short ids over its parts."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping

from recallatk.types import EvalProtocol, RecallatkError

UNKNOWN = "na"
SHORT = 12

PROTOCOL_KEYS = tuple(field.metadata["part"] for field in dataclasses.fields(EvalProtocol) if "part" in field.metadata)
DATA_KEYS = ("n", "g", "c", "img", "lab")
SYSTEM_KEYS = ("pre", "w", "emb")
KEYS = (*PROTOCOL_KEYS, *DATA_KEYS, *SYSTEM_KEYS, "ci", "v")
"""Every key of a signature, in order; none is ever left out."""

REPORT_KEYS = frozenset({"k", "ci", "v"})
"""Parts that say how the number is reported; they never make two runs incomparable."""

_PART = re.compile(r"[a-z]+:([A-Za-z0-9._,+/@=-]|%[0-9A-F]{2})+")
_DIGEST = re.compile(r"[0-9a-f]{16,}")
_LONGEST_FINGERPRINT = 24


@dataclasses.dataclass(frozen=True)
class Signature:
    """The parts of a signature by key, every key in its place.

    >>> Signature.of({"k": "1,5", "v": "0.1.0"}).parts["sim"]
    'na'
    """

    parts: Mapping[str, str]

    @classmethod
    def of(cls, values: Mapping[str, str | None]) -> Signature:
        """A signature from what is known; everything else is `na`."""
        known = {key: values.get(key) for key in KEYS}
        return cls({key: UNKNOWN if value is None else escape_part(value) for key, value in known.items()})

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Read a printed signature.

        Raises:
            RecallatkError: a part is no KEY:VALUE, or keys are missing, unknown or out of order.
        """
        parts = text.strip().split("|")
        odd = [part for part in parts if not _PART.fullmatch(part)]
        if odd:
            raise RecallatkError(f"this is no signature: {text!r}; {odd[0]!r} is no KEY:VALUE")
        values = {key: value for key, _, value in (part.partition(":") for part in parts)}
        if tuple(values) != KEYS or len(parts) != len(KEYS):
            raise RecallatkError(f"this is no signature: {text!r}; its keys must be {', '.join(KEYS)}, in this order")
        return cls(values)

    def __str__(self) -> str:
        return "|".join(f"{key}:{value}" for key, value in self.parts.items())

    @property
    def protocol_id(self) -> str:
        """Twelve hex digits over the protocol and data parts: equal ids mean comparable numbers."""
        keys = [key for key in (*PROTOCOL_KEYS, *DATA_KEYS) if key not in REPORT_KEYS]
        return sha256_of("|".join(f"{key}:{self.parts[key]}" for key in keys))[:SHORT]

    @property
    def run_id(self) -> str:
        """Twelve hex digits over the whole line."""
        return sha256_of(str(self))[:SHORT]


def escape_part(value: str) -> str:
    """A value with every byte outside `A-Za-z0-9._,+/@=-` written as %XX; an empty value is `na`.

    >>> escape_part("camera type+label")
    'camera%20type+label'
    """
    if not value:
        return UNKNOWN
    return re.sub(rb"[^A-Za-z0-9._,+/@=-]", lambda byte: b"%%%02X" % byte[0][0], value.encode()).decode()


def short_fingerprint(fingerprint: str) -> str:
    """`w`: twelve digits of a hex digest; another text whole if it is short, else twelve digits of its hash.

    >>> short_fingerprint("color-histogram-1")
    'color-histogram-1'
    """
    if not _DIGEST.fullmatch(fingerprint) and len(fingerprint) <= _LONGEST_FINGERPRINT:
        return fingerprint
    return (fingerprint if _DIGEST.fullmatch(fingerprint) else sha256_of(fingerprint))[:SHORT]


def sha256_of(text: str) -> str:
    """The hash of a text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()
