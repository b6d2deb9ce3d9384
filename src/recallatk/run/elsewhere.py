"""Encoding on a cluster instead of in this process: where the rows go, and what they depend on."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import secrets
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from recallatk.cache import Cache
from recallatk.cluster import Job, Place, address_of, discard, dtype_and_device, encode_on, holds_rows, joined
from recallatk.embeddings import parts
from recallatk.embeddings.empty_folders import not_there, remove_empty, tidied
from recallatk.encoders import load_encoder
from recallatk.encoding import Encoded, Progress, text_tower
from recallatk.images import DecodePolicy
from recallatk.report import Provenance
from recallatk.run.cached import setting
from recallatk.types import ChoiceError, ElementKind, Encoder, ImageSet, OnError, RecallatkError


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """A cluster that encodes.

    Attributes:
        cluster: as for `recallatk.cluster.joined`.
        folder: where the rows are written, in parts: a path that every node reads and this process writes, or an
            address that pyarrow's file systems know; None: a folder in that of the cache, which then has to be there
            on every node. Without a cache, "ray" takes a temporary one.
        gpus: actors with a GPU each; None: one for each GPU of the cluster.
        overwrite: begin anew where there are parts already.
        once: the rows are for this time alone: nothing is taken from the folder, which must be empty, and they are
            removed from it when nobody holds them any more.
    """

    cluster: str
    folder: str | None = None
    gpus: int | None = None
    overwrite: bool = False
    once: bool = False

    @property
    def begun(self) -> bool:
        """Whether rows are taken from the folder that is named: it holds some."""
        return self.folder is not None and not self.overwrite and holds_rows(self.folder)


def encode_elsewhere(
    sides: Sequence[ImageSet],
    encoder: Encoder,
    elsewhere: Elsewhere,
    *,
    batch: int,
    decode: bool,
    policy: DecodePolicy,
    on_error: OnError,
    cache: Cache | None,
    settings: Mapping[ElementKind, Provenance],
    provenance: Provenance,
    request: Mapping[str, Any] | None,
    on_progress: Progress | None,
) -> Encoded:
    """Encode image sets on a cluster; most arguments are those of `encode_sides`.

    `settings` is what the rows of images, and of texts where there are some, depend on; `provenance` is what the parts
    say of the encoder and of what was noticed before.

    Raises:
        ChoiceError: nothing says where the rows go.
    """
    text_tower(encoder, sides)
    if elsewhere.folder is None and cache is None and address_of(elsewhere.cluster) is not None:
        why = "what is encoded again is not kept in the cache" if elsewhere.once else "there is no cache (--no-cache)"
        raise ChoiceError(
            f"{why}, so nothing says where a cluster writes its rows; name a folder that every node sees, or an "
            "address, with folder=... (--parts)"
        )
    if elsewhere.once and elsewhere.begun:
        raise RecallatkError(f"{elsewhere.folder}: holds rows already, and none may be taken; name an empty folder")
    load: Callable[[], Encoder] = functools.partial(_itself, encoder)
    if request is not None:
        load = functools.partial(_from_here, str(Path.cwd()), dict(request))
    known = provenance.fingerprint is not None
    with joined(elsewhere.cluster) as engine:
        there = SimpleNamespace(**dtype_and_device(engine, load, elsewhere.gpus))
        depends = {kind: setting(there, own) for kind, own in settings.items()}
        key = _key(sides, "\n".join(depends.values()), known=known)
        kept = cache.named() if known and cache is not None else None
        folder, owner, made = _folder(elsewhere, cache, key, known=known)
        job = Job(load, depends, kept, batch, decode, policy, on_error)
        metadata = {
            "encoder": provenance.encoder,
            "fingerprint": provenance.fingerprint,
            "preprocessing": provenance.preprocessing,
            "decode": provenance.decode,
            "skipped": [dataclasses.asdict(skipped) for skipped in provenance.skipped],
            "notes": [*provenance.notes, *getattr(encoder, "notes", ())],
            "warnings": provenance.warnings,
        }
        choices: dict[str, Any] = {"gpus": elsewhere.gpus, "overwrite": elsewhere.overwrite}
        with tidied(made):
            encoded = encode_on(engine, sides, job, Place(folder, key, metadata), **choices, on_progress=on_progress)
    if owner is None:
        return encoded
    found = (dataclasses.replace(side, embeddings=parts.owned(side.embeddings, owner)) for side in encoded.sets)
    return dataclasses.replace(encoded, sets=tuple(found))


def _folder(
    elsewhere: Elsewhere, cache: Cache | None, key: str, *, known: bool
) -> tuple[str, _Owner | None, tuple[str, ...]]:
    """Where the rows go; what removes them with the last of them, None where they stay; and what folders are made."""
    if elsewhere.folder is not None:
        folder, made = elsewhere.folder, not_there(elsewhere.folder)
        return folder, _Owner(discard, folder, made) if elsewhere.once else None, made
    if cache is None:
        folder, made = tempfile.mkdtemp(prefix="recallatk-"), ()
    else:
        around = cache.encoded
        outside = not_there(str(around.parent))
        folder = str(cache.parts(key))
        made = (folder, str(around), *outside)
    # Of rows that are not known nobody can ask again.
    stay = cache is not None and known
    return folder, None if stay else _Owner(shutil.rmtree, folder, made), made


class _Owner:
    """What lives as long as the rows in a folder, and removes them, and the folders that were made, with its end."""

    def __init__(self, remove: Callable[[str], None], folder: str, made: Sequence[str]) -> None:
        weakref.finalize(self, _end, remove, folder, made)


def _end(remove: Callable[[str], None], folder: str, made: Sequence[str]) -> None:
    with contextlib.suppress(RecallatkError, OSError):  # it runs when nobody is left who would be told
        remove(folder)
    remove_empty(made)


def _key(sides: Sequence[ImageSet], depends: str, *, known: bool) -> str:
    """What rows in parts depend on: another data set, encoder or policy is another key.

    Of an encoder without a fingerprint nobody knows whether it is the same, so no key is like another.
    """
    digest = hashlib.sha256(f"{depends}\n{'' if known else secrets.token_hex(16)}".encode())
    for side in sides:
        columns = [side.ids, side.labels, side.same, side.boxes, tuple(sorted(side.groups.items())), side.elements]
        positions = b"" if side.positions is None else side.positions.tobytes()
        for column in columns:
            for value in column or ():
                digest.update(f"{value}\n".encode("utf-8", "backslashreplace"))
            digest.update(b"\0")
        digest.update(positions)
    return digest.hexdigest()


def _from_here(folder: str, request: Mapping[str, Any]) -> Encoder:
    """The encoder, whose module may lie in the folder of the command; ray:// does not tell workers of that."""
    if folder not in sys.path:
        sys.path.append(folder)
        importlib.invalidate_caches()
    return load_encoder(request["spec"], device=request["device"], dtype=request["dtype"])


def _itself(encoder: Encoder) -> Encoder:
    return encoder
