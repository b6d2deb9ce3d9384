"""From images and texts to embeddings: batches, one encoding for each distinct one, nothing silently lost."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.cache import CachedRow, RowStore
from recallatk.decoding import Ahead, DistinctImage, ImageError, distinct_texts
from recallatk.encoders.evaluation_mode import check_evaluation_mode
from recallatk.images import DEFAULT_POLICY, DecodePolicy
from recallatk.types import (
    ChoiceError,
    ElementKind,
    EmbeddingSet,
    Encoder,
    ImageSet,
    OnError,
    PreparingEncoder,
    RecallatkError,
    Skipped,
    TextEncoder,
    as_numbers,
    unusable_rows,
)
from recallatk.wording import counted

Progress = Callable[[int, int], None]
"""Called with the number of images and texts that are done and their total."""

BATCH = 32
SET_NAMES = ("query", "gallery")
"""How messages call the embeddings of the first and the second set."""

REPLACE_FILE = "replace the file, or leave such files out with on_error='skip' (--on-error skip)"
"""What to do about an image that cannot be used, by whose fault it is."""


@dataclasses.dataclass(frozen=True, eq=False)
class Encoded:
    """What encoding image sets gave.

    Attributes:
        sets: the embeddings of each set, without the rows of skipped images.
        skipped: the images that could not be used, with the reason.
        conversions: how many distinct images were converted in each way while decoding ("CMYK converted": 3).
        distinct: how many distinct images and texts went through the encoder.
        cached: how many more came from the cache, or from where they were encoded before.
    """

    sets: tuple[EmbeddingSet, ...]
    skipped: tuple[Skipped, ...]
    conversions: Mapping[str, int]
    distinct: int
    cached: int = 0


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
        output = encode_batch(list(images[start : start + batch]), encoder_fn, name)
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
    cache: RowStore | None = None,
    text_cache: RowStore | None = None,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> Encoded:
    """Encode image sets in one pass; each distinct image is encoded once, so copies cannot differ by batch noise.

    A set of texts goes to the encoder's `encode_texts`, each distinct text once.

    Args:
        sets: the queries alone, or the queries and the gallery.
        encoder: a callable from a list of n images to an array (n, d).
        batch: how many images go in at once.
        decode: elements are paths that become RGB images; False hands elements over as they are.
        policy: how bytes become pixels.
        on_error: an image that cannot be decoded, or whose embedding has no direction, is an error or is skipped.
        cache: rows by the sha256 of an image's bytes, read, and filled after every batch; for one encoder and one
            policy. `recallatk.cache.Cache` keeps them on disk, a dict in memory.
        text_cache: the same for texts, by the sha256 of their UTF-8 bytes.
        workers: threads that read and decode beside the encoder; by default one for each core.
        on_progress: told after every batch.

    Raises:
        RecallatkError: names the image that could not be used (with `on_error="error"`), or the encoder's fault; more
            than two sets, or no images; or texts for an encoder that takes none.
    """
    _check_batch(batch)
    if len(sets) > len(SET_NAMES):
        raise RecallatkError(f"there are {len(sets)} sets; give the queries alone, or the queries and the gallery")
    elements: dict[ElementKind, list[Any]] = {
        kind: [
            one
            for side in sets
            if side.kind == kind
            for one in zip(side.ids, side.elements, side.boxes or [None] * len(side), strict=True)
        ]
        for kind in ("text", "image")
    }
    if not decode and any(box for _, _, box in elements["image"]):
        raise RecallatkError("boxes are cut out of decoded pictures; use decode=True (--hand-over pixels)")
    total = sum(map(len, elements.values()))
    if not total:
        raise RecallatkError("there are no images to encode; hand over at least one")
    if workers is not None and workers < 1:
        raise ChoiceError(f"workers={workers}: at least one thread must read images")
    works: dict[ElementKind, _Encoding] = {
        # Texts first: a tokenizer that is not there is known of at once.
        "text": _Encoding(text_tower(encoder, sets), batch, False, on_error, text_cache, "text", total),
        "image": _Encoding(encoder, batch, decode, on_error, cache, "image", total),
    }
    found: dict[ElementKind, list[DistinctImage]] = {"text": [], "image": []}

    def take_all(kind: ElementKind, items: Iterator[DistinctImage], before: int = 0) -> None:
        for done, item in enumerate(items, start=before + 1):
            found[kind].append(item)
            works[kind].take(item)
            if on_progress and (done % batch == 0 or done == total):
                on_progress(done, total)
        works[kind].flush()

    take_all("text", distinct_texts(elements["text"], text_cache))
    first_step = encoder.prepare if isinstance(encoder, PreparingEncoder) else None
    with Ahead(decode, policy, first_step, cache, workers=workers, batch=batch) as ahead:
        take_all("image", ahead.in_order(elements["image"]), before=len(elements["text"]))
    check_one_dimension({kind: work.embeddings.shape[1] for kind, work in works.items() if len(work.embeddings)})
    return _assemble(sets, found, works)


def text_tower(encoder: Encoder, sets: Sequence[ImageSet]) -> Encoder:
    """What encodes texts, refused before any work where there is none and there are texts."""
    if isinstance(encoder, TextEncoder):
        return encoder.encode_texts
    first = next((side.ids[0] for side in sets if side.kind == "text" and len(side)), None)
    if first is not None:
        raise RecallatkError(
            f"{first}: a text, and the encoder {_name_of(encoder)} takes images only; use an encoder with two "
            "towers: open_clip:..., a model of images and texts by hf:..., or your own with a method encode_texts"
        )
    return encoder


def check_one_dimension(columns: Mapping[ElementKind, int]) -> None:
    """Refuse images and texts whose rows are not of one width, as nothing compares them."""
    if len(set(columns.values())) > 1:
        raise RecallatkError(
            f"the encoder gives {counted(columns['image'], 'column')} for images and {columns['text']} for texts; "
            "rows of both must be of one dimension to be compared"
        )


@dataclasses.dataclass(eq=False)
class _Encoding:
    """The state of one pass: what waits for the encoder, and what came out."""

    encoder: Encoder
    batch: int
    decode: bool
    on_error: OnError
    cache: RowStore | None
    kind: ElementKind
    total: int
    conversions: Counter[str] = dataclasses.field(default_factory=Counter)
    encoded: int = 0
    from_cache: int = 0
    _rows: npt.NDArray[Any] | None = None
    _used: int = 0
    _waiting: list[tuple[DistinctImage, Any]] = dataclasses.field(default_factory=list)

    @property
    def embeddings(self) -> npt.NDArray[Any]:
        """A row for each distinct image that has one, in the order in which they were seen."""
        return np.empty((0, 1)) if self._rows is None else self._rows[: self._used]

    def take(self, image: DistinctImage) -> None:
        """Give an image that is taken for the first time its place in a batch, its cached row, or its failure.

        Raises:
            RecallatkError: it cannot be used, with `on_error="error"`.
        """
        if image.failure is not None:
            self._refuse(image.failure)
        elif image.cached is not None:
            self._claim(image)
            rows = np.asarray(image.cached.row)[None]
            self._store([image], rows, "the cache holds", image.name)
            self._check([image], rows)
            self.from_cache += 1
            self.conversions.update(image.cached.conversions)
            image.cached = None
        elif image.row < 0:
            self._take_new(image)

    def _take_new(self, image: DistinctImage) -> None:
        try:
            element = image.ready()
        except ImageError as error:
            image.failure = Skipped(image.name, str(error))
            return self._refuse(image.failure)
        self.conversions.update(image.conversions)
        self._claim(image)
        self._waiting.append((image, element))
        if len(self._waiting) == self.batch:
            self.flush()
        return None

    def flush(self) -> None:
        """Encode what waits, and keep it."""
        if not self._waiting:
            return
        images, elements = [image for image, _ in self._waiting], [element for _, element in self._waiting]
        self._waiting.clear()
        encoder = self.encoder
        if self.decode and isinstance(encoder, PreparingEncoder):
            encoder = encoder.encode_prepared
        output = encode_batch(elements, encoder, images[0].name, self.kind)
        self._store(images, output, "the encoder returned", f"the batch of {images[0].name}")
        self.encoded += len(output)
        if self.cache is not None:
            bad = {row for row, _ in unusable_rows(output)}  # another try may give better ones
            self.cache.update({
                image.content: CachedRow(output[row].copy(), image.conversions)
                for row, image in enumerate(images)
                if image.content is not None and row not in bad
            })  # fmt: skip
        self._check(images, output)

    def _claim(self, image: DistinctImage) -> None:
        image.row = self._used
        self._used += 1

    def _store(self, images: list[DistinctImage], rows: npt.NDArray[Any], who: str, name: str) -> None:
        """Write the rows of images to their places; all are as wide as the first."""
        if rows.ndim != 2 or (self._rows is not None and self._rows.shape[1] != rows.shape[1]):
            found = counted(rows.shape[1], "column") if rows.ndim == 2 else f"an array of shape {rows.shape[1:]}"
            before = f" and {self._rows.shape[1]} before" if self._rows is not None else ""
            raise RecallatkError(f"{who} {found} for {name}{before}; all embeddings must have one dimension")
        if self._rows is None:
            self._rows = np.empty(
                (self.total, rows.shape[1]), dtype=rows.dtype
            )  # pages that nobody writes cost nothing
        elif self._rows.dtype != rows.dtype:
            self._rows = self._rows.astype(np.result_type(self._rows, rows), copy=False)
        self._rows[[image.row for image in images]] = rows

    def _check(self, images: list[DistinctImage], rows: npt.NDArray[Any]) -> None:
        """Refuse the images whose embedding has no direction."""
        for row, why in unusable_rows(rows):
            image = images[row]
            image.failure = Skipped(image.name, f"{image.name}: its embedding {why}")
            if self.on_error == "error":
                raise RecallatkError(f"{image.failure.reason}; {fix_encoder(self.kind)}")

    def _refuse(self, failure: Skipped) -> None:
        if self.on_error == "error":
            raise RecallatkError(f"{failure.reason}; {REPLACE_FILE}")


def fix_encoder(kind: ElementKind = "image") -> str:
    """What to do about an element whose row is of no use."""
    return f"fix the encoder, or leave such {kind}s out with on_error='skip' (--on-error skip)"


def _assemble(
    sets: Sequence[ImageSet], found: Mapping[ElementKind, list[DistinctImage]], works: Mapping[ElementKind, _Encoding]
) -> Encoded:
    """Give every set the rows of its images or texts, without those that failed."""
    results: list[EmbeddingSet] = []
    skipped: dict[str, Skipped] = {}
    start = dict.fromkeys(found, 0)
    for side, name in zip(sets, SET_NAMES, strict=False):
        own = found[side.kind][start[side.kind] : start[side.kind] + len(side)]
        start[side.kind] += len(side)
        kept = []
        for place, image in enumerate(own):
            if image.failure is None:
                kept.append(place)
            else:
                skipped[side.ids[place]] = Skipped(side.ids[place], _reason(side.ids[place], image.failure))
        if not own:
            raise RecallatkError(f"there are no {name} {side.kind}s; hand over at least one")
        if not kept:
            first = f"{side.ids[0]}: {skipped[side.ids[0]].reason}"
            raise RecallatkError(f"no {name} {side.kind} could be used: {len(own)} of {len(own)} skipped, e.g. {first}")
        taken = side.take(kept)
        contents = tuple(own[place].content for place in kept)
        results.append(
            EmbeddingSet(
                _rows(works[side.kind].embeddings, [own[place].row for place in kept]),
                taken.labels,
                ids=taken.ids,
                same=taken.same,
                groups=taken.groups,
                content=None if None in contents else contents,  # type: ignore[arg-type]  # so all are texts
                positions=taken.positions,
                label_kind=taken.label_kind,
                name=name,
            )
        )
    return Encoded(
        tuple(results),
        tuple(skipped.values()),
        dict(works["image"].conversions),
        sum(work.encoded for work in works.values()),
        cached=sum(work.from_cache for work in works.values()),
    )


def _rows(embeddings: npt.NDArray[Any], index: list[int]) -> npt.NDArray[Any]:
    """These rows, without a copy where they follow each other."""
    if index and index == list(range(index[0], index[0] + len(index))):
        return embeddings[index[0] : index[0] + len(index)]
    return embeddings[np.asarray(index, dtype=np.int64)]


def _reason(name: str, failure: Skipped) -> str:
    """The reason without the name in front that it begins with (of this image, or of one with the same bytes)."""
    return failure.reason.removeprefix(f"{failure.item}: ").removeprefix(f"{name}: ")


def _name_of(encoder: Any) -> str:
    return str(getattr(encoder, "name", type(encoder).__name__))


def encode_batch(batch: list[Any], encoder: Encoder, name: str, kind: ElementKind = "image") -> npt.NDArray[Any]:
    """Call the encoder and check that it returned one row an image, or a text.

    The result is a copy, because an encoder may use its buffer again.
    """
    images = counted(len(batch), kind)
    check_evaluation_mode(encoder, _name_of(encoder))
    try:
        result = encoder(list(batch))
    except Exception as error:
        error.add_note(f"recallatk called the encoder with a list of {images}, the first of them {name}")
        raise
    output = np.array(as_numbers(result, f"encoder output for {name}"))
    if output.ndim != 2 or len(output) != len(batch):
        raise RecallatkError(
            f"the encoder returned the shape {output.shape} for a batch of {images} ({name}); it must return one "
            f"embedding row {'an image' if kind == 'image' else 'a text'}, shape ({len(batch)}, d); an encoder of one "
            f"{kind} must be wrapped: lambda batch: np.stack([f({kind}) for {kind} in batch])"
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


def _check_batch(batch: int) -> None:
    if batch < 1:
        raise ChoiceError(f"batch={batch}: a batch holds at least one image")
