"""Encoding on a cluster: what the pipeline gives is written in parts, and parts that are finished are not done again.

Rows leave the pipeline in the order of the images and are written here in parts of `PART_ROWS`; an interrupted run goes
on behind those that are finished. A part has one row for each image that could be used, and its metadata says what
became of the others.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recallatk.cluster.engine import Engine
from recallatk.cluster.pipeline import encoded_rows
from recallatk.cluster.places import Place
from recallatk.cluster.tables import Job, stamp_of
from recallatk.embeddings import parts
from recallatk.embeddings.samples import Samples
from recallatk.encoding import REPLACE_FILE, SET_NAMES, Encoded, Progress, check_one_dimension, fix_encoder
from recallatk.images import is_stored
from recallatk.types import (
    ChoiceError,
    ElementKind,
    EmbeddingSet,
    Encoder,
    ImageSet,
    RecallatkError,
    Skipped,
    first_line,
)
from recallatk.wording import counted

PART_ROWS = 4096
"""Images of a part, the most that is encoded again after an interrupted run."""

LISTED = 2**20
"""Images that one pipeline is given: their names lie in the object store while it runs."""

READ_PARTS = 4
"""Parts whose rows are kept while copies of their images are given them."""


def encode_on(
    engine: Engine,
    sets: Sequence[ImageSet],
    job: Job,
    place: Place,
    *,
    gpus: int | None = None,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> Encoded:
    """Encode image sets on a cluster into parts, behind those that are finished; see `recallatk.encoding.encode`.

    Args:
        engine: the cluster.
        sets: the queries alone, or the queries and the gallery; elements are texts, or images that every node reads
            where they are stored.
        job: how.
        place: where to.
        gpus: actors with a GPU each; default one for each GPU of the cluster. 0: the model runs on CPUs.
        overwrite: begin anew where there are parts already.
        on_progress: told of the images that are done.

    Raises:
        RecallatkError: as for `recallatk.encoding.encode`; the place holds something else; or the cluster failed.
    """
    sets = [_found_anywhere(side) for side in sets]
    place = dataclasses.replace(place, folder=parts.found_anywhere(place.folder))
    if engine.client:  # all of it is done there, as from outside there is no pipeline
        choices = {"gpus": gpus, "overwrite": overwrite}
        encoded: Encoded = engine.call_inside(encode_on, sets, job, place, **choices, on_progress=on_progress)
        return encoded
    with place.claimed(overwrite=overwrite):
        return _encode(engine, sets, job, place, gpus, on_progress)


def _encode(
    engine: Engine,
    sets: Sequence[ImageSet],
    job: Job,
    place: Place,
    gpus: int | None,
    on_progress: Progress | None,
) -> Encoded:
    work = [
        _Part(name, number, side.take(range(start, min(start + PART_ROWS, len(side)))))
        for name, side in zip(SET_NAMES, sets, strict=False)
        for number, start in enumerate(range(0, len(side), PART_ROWS))
    ]
    writer = _Writer(place, job)
    finished = _finished(engine, place, work)
    todo = []
    for part in work:
        if part in finished:
            writer.remember(part)
        else:
            todo.append(part)
    total = sum(map(len, sets))
    done = total - sum(len(part.images) for part in todo)
    for pipeline in _pipelines(todo):
        waiting: list[dict[str, Any]] = []
        for rows in encoded_rows(engine, [part.images for part in pipeline], job, gpus):
            writer.check(rows)
            waiting += rows
            while pipeline and len(waiting) >= len(pipeline[0].images):
                part = pipeline.pop(0)
                writer.write(part, waiting[: len(part.images)])
                del waiting[: len(part.images)]
            done += len(rows)
            if on_progress is not None:
                on_progress(done, total)
    return _assemble(sets, place, writer)


def _found_anywhere(side: ImageSet) -> ImageSet:
    """A set that leads to its images from any working directory.

    Raises:
        RecallatkError: an element is none that other processes can read.
    """
    for name, element in zip(side.ids, side.elements, strict=True):
        if side.kind == "text" and not isinstance(element, str):
            raise RecallatkError(f"{name}: {type(element).__name__} is no text; a set of texts holds nothing else")
        if not is_stored(element):
            raise RecallatkError(
                f"{name}: a cluster encodes what its nodes can read, not {type(element).__name__}; give paths"
            )
    return side if side.kind == "text" else dataclasses.replace(side, elements=tuple(map(_absolute, side.elements)))


def _absolute(element: Any) -> Any:
    if isinstance(element, str):
        return str(Path(element).absolute())
    return Path(element).absolute() if isinstance(element, os.PathLike) else element


def dtype_and_device(engine: Engine, load: Callable[[], Encoder], gpus: int | None) -> dict[str, str]:
    """The dtype and device that an encoder has where it will run: cached rows are kept under these.

    Raises:
        ChoiceError: there are fewer GPUs.
    """
    there = engine.gpus
    if gpus is not None and gpus > there:
        raise ChoiceError(f"--num-gpus {gpus}: the cluster has {there}; Ray would wait for the others for ever")
    there = there if gpus is None else gpus
    found: dict[str, str] = engine.fetch(engine.run(_attributes, load, gpus=min(there, 1)))
    return found


def _attributes(load: Callable[[], Encoder]) -> dict[str, str]:
    try:
        encoder = load()
    except (RecallatkError, ImportError, MemoryError):
        raise
    except Exception as error:  # a traceback from another machine is of Ray for the most part
        what = f"the node {socket.gethostname()} cannot load the encoder"
        raise RecallatkError(f"{what} ({type(error).__name__}: {first_line(error)})") from error
    return {name: str(getattr(encoder, name)) for name in ("dtype", "device") if hasattr(encoder, name)}


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    """Images of one side that become one file."""

    side: str
    number: int
    images: ImageSet

    @property
    def file(self) -> str:
        return parts.part_name(self.number)


def _pipelines(todo: Sequence[_Part]) -> Iterator[list[_Part]]:
    many = max(1, LISTED // PART_ROWS)
    for start in range(0, len(todo), many):
        yield list(todo[start : start + many])


class _Writer:
    """Writes parts in their order. Equal images have one row, the first that was written."""

    def __init__(self, place: Place, job: Job) -> None:
        self._place, self._job = place, job
        self._first: dict[str, tuple[bytes, str, str, int]] = {}
        self.conversions: dict[str, tuple[str, ...]] = {}
        self.encoded, self.cached = 0, 0
        self.failures: dict[str, Skipped] = {}
        self._rows_of = functools.lru_cache(maxsize=READ_PARTS)(parts.read_rows)
        self._widths: dict[ElementKind, int] = {}

    def check(self, rows: list[dict[str, Any]]) -> None:
        """Refuse what the encoder did wrong, and the first image that cannot be used, unless such are skipped."""
        for row in rows:
            if row["fatal"]:
                raise RecallatkError(row["fatal"])
            if row["failure"] and self._job.on_error == "error":
                what = fix_encoder(row["kind"]) if row["by_encoder"] else REPLACE_FILE
                raise RecallatkError(f"{row['failure']}; {what}")
            if row["row"] is not None:
                self._check_width(len(np.frombuffer(row["row"], row["dtype"])), row)

    def _check_width(self, width: int, row: Mapping[str, Any]) -> None:
        who = "the cache holds" if row["cached"] else "the encoder returned"
        before = self._widths.setdefault(row["kind"], width)
        if before != width:
            raise RecallatkError(
                f"{who} {counted(width, 'column')} for {row['name']} and {before} before; all embeddings must "
                "have one dimension"
            )
        check_one_dimension(self._widths)

    def write(self, part: _Part, rows: list[dict[str, Any]]) -> None:
        """Write a part."""
        kept = [place for place, row in enumerate(rows) if not row["failure"]]
        good = [rows[place] for place in kept]
        embeddings = [np.frombuffer(row["row"], row["dtype"]) for row in good]
        folder = self._place.side(part.side)
        for place, row in enumerate(good):
            digest = hashlib.blake2b(row["row"], digest_size=8).digest()
            first = self._first.setdefault(row["content"], (digest, folder, part.file, place))
            if first[3] == place and first[1:3] == (folder, part.file):
                self.encoded, self.cached = self.encoded + (not row["cached"]), self.cached + row["cached"]
            elif first[0] != digest:  # an encoder whose rows depend on the batch
                same_part = first[1:3] == (folder, part.file)
                embeddings[place] = embeddings[first[3]] if same_part else self._rows_of(*first[1:3])[first[3]]
        failures = [Skipped(part.images.ids[i], _reason(row, part.images.ids[i])) for i, row in enumerate(rows)
                    if row["failure"]]  # fmt: skip
        conversions = {row["content"]: row["conversions"] for row in good if row["conversions"]}
        metadata = {
            **self._place.metadata,
            "skipped": [*self._place.metadata.get("skipped", ()), *map(dataclasses.asdict, failures)],
            "conversions": conversions,
            "files": [[row["size"], row["changed"]] for row in rows],
        }
        taken = part.images.take(kept)
        whole = EmbeddingSet(
            np.stack(embeddings) if embeddings else np.empty((0, 1), np.float32),
            taken.labels,
            ids=taken.ids,
            same=taken.same,
            groups=taken.groups,
            content=[row["content"] for row in good],
            positions=taken.positions,
            label_kind=taken.label_kind,
        )
        parts.write(folder, part.number, whole, metadata)
        self._note(failures, conversions)

    def remember(self, part: _Part) -> None:
        """What a finished part holds, for the parts to come."""
        folder = self._place.side(part.side)
        samples, n = parts.read_metadata(folder, part.file)
        rows = parts.read_rows(folder, part.file) if n else np.empty((0, 0))
        if n:
            self._widths[part.images.kind] = rows.shape[1]
        for place, (content, row) in enumerate(zip(samples.content or (), rows, strict=True)):
            digest = hashlib.blake2b(row.tobytes(), digest_size=8).digest()
            self.cached += content not in self._first
            self._first.setdefault(content, (digest, folder, part.file, place))
        self._note(_failures(samples), samples.metadata["conversions"])

    def _note(self, failures: Sequence[Skipped], conversions: Mapping[str, Sequence[str]]) -> None:
        self.failures |= {failure.item: failure for failure in failures}
        self.conversions |= {content: tuple(phrases) for content, phrases in conversions.items()}


def _failures(samples: Samples) -> list[Skipped]:
    """The images of a finished part that could not be used: they stand behind what was skipped before encoding."""
    skipped = samples.metadata["skipped"]
    failed = len(samples.metadata["files"]) - len(samples.ids or ())
    return [Skipped(**item) for item in skipped[len(skipped) - failed :]]


def _reason(row: Mapping[str, Any], name: str) -> str:
    return str(row["failure"]).removeprefix(f"{name}: ")


def _finished(engine: Engine, place: Place, work: Sequence[_Part]) -> set[_Part]:
    """The parts that are there and whose images have not changed since."""
    there = {(side, file) for side in SET_NAMES for file in parts.list_parts(place.side(side))}
    asked = {
        part: engine.run(_unchanged, place.side(part.side), part.file, part.images)
        for part in work
        if (part.side, part.file) in there
    }
    return {part for part, answer in asked.items() if engine.fetch(answer)}


def _unchanged(folder: str, file: str, images: ImageSet) -> bool:
    """Whether a part is whole, and its images have the size and time of change that they had when it was made."""
    try:
        samples, _ = parts.read_metadata(folder, file)
    except RecallatkError:
        return False
    skipped = {failure.item for failure in _failures(samples)}
    if [name for name in images.ids if name not in skipped] != list(samples.ids or ()):
        return False
    return bool(samples.metadata["files"] == [list(stamp_of(element, images.kind)) for element in images.elements])


def _assemble(sets: Sequence[ImageSet], place: Place, writer: _Writer) -> Encoded:
    """The sets that the parts hold; their rows stay there."""
    found = []
    for name, side in zip(SET_NAMES, sets, strict=False):
        kept = [row for row, identifier in enumerate(side.ids) if identifier not in writer.failures]
        if not kept:
            raise RecallatkError(
                f"no {name} {side.kind} could be used: {len(side)} of {len(side)} skipped, e.g. {side.ids[0]}: "
                f"{writer.failures[side.ids[0]].reason}"
            )
        rows, samples = parts.read(place.side(name), name)
        taken = side.take(kept)
        assert list(samples.ids or ()) == list(taken.ids)
        found.append(
            EmbeddingSet(
                rows,
                taken.labels,
                ids=taken.ids,
                same=taken.same,
                groups=taken.groups,
                content=tuple(samples.content or ()),
                positions=taken.positions,
                label_kind=taken.label_kind,
                name=name,
            )
        )
    order = dict.fromkeys(name for side in sets for name in side.ids if name in writer.failures)
    conversions = Counter(phrase for phrases in writer.conversions.values() for phrase in phrases)
    skipped = tuple(writer.failures[name] for name in order)
    return Encoded(tuple(found), skipped, dict(conversions), writer.encoded, cached=writer.cached)
