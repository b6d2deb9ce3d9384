"""From images to embeddings: batches, one encoding for each distinct image, nothing silently lost."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.encoders.evaluation_mode import check_evaluation_mode
from recallatk.images import DEFAULT_POLICY, DecodePolicy, pixel_bytes
from recallatk.images import decode as decode_image
from recallatk.types import (
    ChoiceError,
    EmbeddingSet,
    Encoder,
    ImageSet,
    OnError,
    RecallatkError,
    Skipped,
    as_numbers,
    unusable_rows,
)
from recallatk.wording import counted

Progress = Callable[[int, int], None]
"""Called with the number of images that are done and their total."""

BATCH = 32
SET_NAMES = ("query", "gallery")
"""How messages call the embeddings of the first and the second set."""


@dataclasses.dataclass(frozen=True, eq=False)
class Encoded:
    """What encoding image sets gave.

    Attributes:
        sets: the embeddings of each set, without the rows of skipped images.
        skipped: the images that could not be used, with the reason.
        conversions: how many distinct images were converted in each way while decoding ("CMYK converted": 3).
        distinct: how many distinct images went through the encoder.
    """

    sets: tuple[EmbeddingSet, ...]
    skipped: tuple[Skipped, ...]
    conversions: Mapping[str, int]
    distinct: int


def encode_all(images: Sequence[Any], encoder_fn: Encoder, batch: int = BATCH) -> npt.NDArray[Any]:
    """Encode a sequence batch by batch: element i of `images` gives row i.

    Args:
        images: anything that can be sliced; elements go to the encoder as they are (paths stay paths).
        encoder_fn: a callable from a list of n elements to an array (n, d).
        batch: how many elements go in at once.

    Returns:
        (len(images), d).

    Raises:
        RecallatkError: there are no images, or the encoder does not return one row an element.

    >>> encode_all([[1, 2], [3, 4], [5, 6]], lambda batch: np.array(batch), batch=2).shape
    (3, 2)
    """
    _check_batch(batch)
    if len(images) == 0:
        raise RecallatkError("there are no images to encode; hand over at least one")
    outputs: list[npt.NDArray[Any]] = []
    for start in range(0, len(images), batch):
        name = f"element {start}"
        output = _encode_batch(list(images[start : start + batch]), encoder_fn, name)
        _append(outputs, output, "the encoder returned", f"the batch of {name}")
    return np.concatenate(outputs)


def encode(
    sets: Sequence[ImageSet],
    encoder: Encoder,
    *,
    batch: int = BATCH,
    decode: bool = True,
    policy: DecodePolicy = DEFAULT_POLICY,
    on_error: OnError = "error",
    cache: MutableMapping[str, npt.NDArray[Any]] | None = None,
    on_progress: Progress | None = None,
) -> Encoded:
    """Encode image sets in one pass; each distinct image is encoded once, so copies cannot differ by batch noise.

    Args:
        sets: the queries alone, or the queries and the gallery.
        encoder: a callable from a list of n images to an array (n, d).
        batch: how many images go in at once.
        decode: elements are paths that become RGB images; False hands elements over as they are.
        policy: how bytes become pixels.
        on_error: an image that cannot be decoded, or whose embedding has no direction, is an error or is skipped.
        cache: embeddings by the sha256 of an image's bytes, read and filled; for one encoder and one policy.
        on_progress: told after every batch.

    Raises:
        RecallatkError: names the image that could not be used (with `on_error="error"`), or the encoder's fault; more
            than two sets, or no images.
    """
    _check_batch(batch)
    if len(sets) > len(SET_NAMES):
        raise RecallatkError(f"there are {len(sets)} sets; give the queries alone, or the queries and the gallery")
    work = _Encoding(encoder, batch, decode, policy, cache)
    names = [name for side in sets for name in side.ids]
    elements = [element for side in sets for element in side.elements]
    if not elements:
        raise RecallatkError("there are no images to encode; hand over at least one")
    rows = []
    for done, (name, element) in enumerate(zip(names, elements, strict=True), start=1):
        rows.append(work.add(name, element))
        failure = work.failures.get(rows[-1])
        if failure and on_error == "error":
            raise RecallatkError(
                f"{failure.reason}; replace the file, or leave such files out with on_error='skip' (--on-error skip)"
            )
        if on_progress and (done % batch == 0 or done == len(elements)):
            on_progress(done, len(elements))
    work.flush()
    embeddings = np.concatenate(work.outputs) if work.outputs else np.empty((0, 1))
    for row, why in unusable_rows(embeddings):
        reason = f"{work.names[row]}: its embedding {why}"
        if on_error == "error":
            raise RecallatkError(
                f"{reason}; fix the encoder, or leave such images out with on_error='skip' (--on-error skip)"
            )
        work.failures[row] = Skipped(work.names[row], reason)
    return _assemble(sets, rows, embeddings, work)


@dataclasses.dataclass
class _Encoding:
    """The state of one pass: which distinct images were seen, what waits for the encoder, what came out.

    A distinct image is called by the row that it has, or will have, in the concatenated outputs; images that cannot
    be decoded get negative numbers.
    """

    encoder: Encoder
    batch: int
    decode: bool
    policy: DecodePolicy
    cache: MutableMapping[str, npt.NDArray[Any]] | None
    outputs: list[npt.NDArray[Any]] = dataclasses.field(default_factory=list)
    names: list[str] = dataclasses.field(default_factory=list)
    contents: dict[int, str] = dataclasses.field(default_factory=dict)
    failures: dict[int, Skipped] = dataclasses.field(default_factory=dict)
    conversions: Counter[str] = dataclasses.field(default_factory=Counter)
    encoded: int = 0
    _seen: dict[Hashable, int] = dataclasses.field(default_factory=dict)
    _waiting: list[Any] = dataclasses.field(default_factory=list)

    def add(self, name: str, element: Any) -> int:
        """Take one element and say which row it has; decodes and encodes only what was not seen before."""
        place: Hashable = os.fspath(element) if _is_path(element) else id(element)
        if place not in self._seen:
            self._seen[place] = self._look_at(name, element)
        return self._seen[place]

    def _look_at(self, name: str, element: Any) -> int:
        try:
            data = _bytes_of(element, must_be_file=self.decode or not isinstance(element, str))
        except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
            return self._fail(name, f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})")
        if data is None:
            return self._take(name, element, None, None)
        content = hashlib.sha256(data).hexdigest()
        key = ("content", content)
        if key not in self._seen:
            self._seen[key] = self._take(name, element, data, content)
        return self._seen[key]

    def _take(self, name: str, element: Any, data: bytes | None, content: str | None) -> int:
        if self.cache is not None and content is not None and content in self.cache:
            self.flush()
            cached = np.asarray(self.cache[content])[None]
            _append(self.outputs, cached, "the cache holds", name)
            return self._claim(name, content)
        if self.decode:
            if data is None or not _is_path(element):
                raise RecallatkError(f"{name}: only files are decoded, not {type(element).__name__}; use decode=False")
            try:
                decoded = decode_image(data, policy=self.policy, name=name)
            except RecallatkError as error:
                return self._fail(name, str(error))
            self.conversions.update(decoded.conversions)
            element = decoded.image
        self._waiting.append(element)
        row = self._claim(name, content)
        if len(self._waiting) == self.batch:
            self.flush()
        return row

    def flush(self) -> None:
        """Encode what waits."""
        if not self._waiting:
            return
        first = len(self.names) - len(self._waiting)
        output = _encode_batch(self._waiting, self.encoder, self.names[first])
        _append(self.outputs, output, "the encoder returned", f"the batch of {self.names[first]}")
        self.encoded += len(output)
        self._waiting.clear()
        if self.cache is not None:
            for row in range(len(output)):
                content = self.contents.get(first + row)
                if content is not None:
                    self.cache[content] = output[row].copy()

    def _claim(self, name: str, content: str | None) -> int:
        self.names.append(name)
        if content is not None:
            self.contents[len(self.names) - 1] = content
        return len(self.names) - 1

    def _fail(self, name: str, reason: str) -> int:
        row = -1 - len(self.failures)
        self.failures[row] = Skipped(name, reason)
        return row


def _assemble(sets: Sequence[ImageSet], rows: list[int], embeddings: npt.NDArray[Any], work: _Encoding) -> Encoded:
    """Give every set the rows of its images, without those that failed."""
    results: list[EmbeddingSet] = []
    skipped: dict[str, Skipped] = {}
    start = 0
    for side, name in zip(sets, SET_NAMES, strict=False):
        own = rows[start : start + len(side)]
        start += len(side)
        kept = []
        for place, row in enumerate(own):
            if row not in work.failures:
                kept.append(place)
            else:
                skipped[side.ids[place]] = Skipped(side.ids[place], _reason(side.ids[place], work.failures[row]))
        if not own:
            raise RecallatkError(f"there are no {name} images; hand over at least one")
        if not kept:
            first = f"{side.ids[0]}: {_reason(side.ids[0], work.failures[own[0]])}"
            raise RecallatkError(f"no {name} image could be used: {len(own)} of {len(own)} skipped, e.g. {first}")
        index = [own[place] for place in kept]
        taken = side.take(kept)
        contents = tuple(work.contents[row] for row in index if row in work.contents)
        results.append(
            EmbeddingSet(
                _rows(embeddings, index),
                taken.labels,
                ids=taken.ids,
                same=taken.same,
                groups=taken.groups,
                content=contents if len(contents) == len(index) else None,
                positions=taken.positions,
                label_kind=taken.label_kind,
                name=name,
            )
        )
    return Encoded(tuple(results), tuple(skipped.values()), dict(work.conversions), work.encoded)


def _rows(embeddings: npt.NDArray[Any], index: list[int]) -> npt.NDArray[Any]:
    """These rows, without a copy where they follow each other."""
    if index and index == list(range(index[0], index[0] + len(index))):
        return embeddings[index[0] : index[0] + len(index)]
    return embeddings[np.asarray(index, dtype=np.int64)]


def _reason(name: str, failure: Skipped) -> str:
    """The reason without the name in front that it begins with (of this image, or of one with the same bytes)."""
    return failure.reason.removeprefix(f"{failure.item}: ").removeprefix(f"{name}: ")


def _encode_batch(batch: list[Any], encoder: Encoder, name: str) -> npt.NDArray[Any]:
    """Call the encoder and check that it returned one row an image.

    The result is a copy, because an encoder may use its buffer again.
    """
    images = counted(len(batch), "image")
    check_evaluation_mode(encoder, str(getattr(encoder, "name", type(encoder).__name__)))
    try:
        result = encoder(list(batch))
    except Exception as error:
        error.add_note(f"recallatk called the encoder with a list of {images}, the first of them {name}")
        raise
    output = np.array(as_numbers(result, f"encoder output for {name}"))
    if output.ndim != 2 or len(output) != len(batch):
        raise RecallatkError(
            f"the encoder returned the shape {output.shape} for a batch of {images} ({name}); it must return one "
            f"embedding row an image, shape ({len(batch)}, d); an encoder of one image must be wrapped: "
            "lambda batch: np.stack([f(image) for image in batch])"
        )
    if output.shape[1] == 0:
        raise RecallatkError(
            f"the encoder returned embeddings without a column, shape {output.shape}, for a batch of {images} ({name})"
        )
    return output


def _append(outputs: list[npt.NDArray[Any]], rows: npt.NDArray[Any], who: str, name: str) -> None:
    """Add rows that are as wide as those before."""
    if rows.ndim != 2 or (outputs and outputs[0].shape[1] != rows.shape[1]):
        found = counted(rows.shape[1], "column") if rows.ndim == 2 else f"an array of shape {rows.shape[1:]}"
        before = f" and {outputs[0].shape[1]} before" if outputs else ""
        raise RecallatkError(f"{who} {found} for {name}{before}; all embeddings must have one dimension")
    outputs.append(rows)


def _is_path(element: Any) -> bool:
    return isinstance(element, str | os.PathLike)


def _bytes_of(element: Any, *, must_be_file: bool) -> bytes | None:
    """What makes an element the same image as another: a file's bytes, an array's; None where that is not known."""
    if _is_path(element):
        # os.path: Path.is_file raises on a text that is too long for a name.
        is_file = must_be_file or os.path.isfile(element)  # noqa: PTH113
        return Path(element).read_bytes() if is_file else None
    if isinstance(element, np.generic) or type(element) in (np.ndarray, np.memmap):
        return None if element.dtype.hasobject else f"{element.dtype} {element.shape} ".encode() + element.tobytes()
    return pixel_bytes(element)


def _check_batch(batch: int) -> None:
    if batch < 1:
        raise ChoiceError(f"batch={batch}: a batch holds at least one image")
