"""The cache of one run: under which setting an encoder's embeddings are kept, and what is told of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from recallatk.cache import Cache, Rows
from recallatk.encoding import Encoded
from recallatk.report import Provenance
from recallatk.types import ElementKind, Encoder

LIBRARIES = (
    "numpy",
    "pillow",
    "onnxruntime",
    "onnxruntime-gpu",
    "torch",
    "torchvision",
    "timm",
    "open_clip_torch",
    "transformers",
)
"""Another version of one of these may give other pixels or embeddings."""

FROM_CACHE = "came from the cache"
BEFORE = "were encoded before"
"""What is said of rows that a cluster finds in its folder of parts."""


@contextlib.contextmanager
def open_rows(cache: Cache | None, encoder: Encoder, provenance: Provenance) -> Iterator[Rows | None]:
    """The cached rows of an encoder; None if there is no cache, or no fingerprint that says when rows are still its."""
    if cache is None or provenance.fingerprint is None:
        yield None
    else:
        with cache.rows(setting(encoder, provenance)) as rows:
            yield rows


def setting(encoder: Encoder, provenance: Provenance) -> str:
    """Everything beside the image that its embedding depends on, as a text that is equal when all of it is."""
    parts = {
        "encoder": provenance.encoder,
        "fingerprint": provenance.fingerprint,
        "preprocessing": provenance.preprocessing,
        "decode": provenance.decode,
        **{name: str(getattr(encoder, name)) for name in ("dtype", "device") if hasattr(encoder, name)},
        "libraries": {name: found for name in LIBRARIES if (found := _installed(name))},
    }
    return json.dumps(parts, sort_keys=True)


def cache_notes(encoded: Encoded, kinds: Iterable[ElementKind], *stores: Rows | None) -> list[str]:
    """How much came from the cache, if anything did, and what happened to it."""
    notes = list(dict.fromkeys(note for rows in stores if rows is not None for note in rows.notes()))
    return [*encoded_notes(encoded, kinds), *notes]


def encoded_notes(encoded: Encoded, kinds: Iterable[ElementKind], where: str = FROM_CACHE) -> list[str]:
    """How much was encoded now, where some of it was there already."""
    if not encoded.cached:
        return []
    every = encoded.distinct + encoded.cached
    distinct = "" if every == sum(map(len, encoded.sets)) else "distinct "
    what = " and ".join(f"{kind}{'s' * (every != 1)}" for kind in sorted(set(kinds)))
    return [f"encoded {encoded.distinct:,} of {every:,} {distinct}{what}; {encoded.cached:,} {where}"]


def is_about_this_run(note: str) -> bool:
    """Whether a note tells of this run's cache; embeddings that are kept in a file do not remember it."""
    return note.endswith((FROM_CACHE, BEFORE)) or note.startswith("cache:")


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
