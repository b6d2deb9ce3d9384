"""What goes in: images with encoders, or embeddings, from the flags that name them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallatk.cli.cluster import Steps, progress_of
from recallatk.cli.flags import NO_ENCODING, Embeddings, Encoding, Output, Reading
from recallatk.types import ChoiceError, Dataset, Encoder, EvalProtocol, Qrels, RecallatkError

if TYPE_CHECKING:
    from recallatk.run import EncodedDataset


def load_encoders(specs: Sequence[str], encoding: Encoding = NO_ENCODING) -> dict[str, Callable[[], Encoder]]:
    """The encoders, each once, behind a call; those of a series are loaded one at a time, when they are called.

    Raises:
        ChoiceError: there are none, one is given twice, or one does not exist.
        RecallatkError: one cannot be loaded.
    """
    from recallatk.encoders import expand_series, load_encoder

    if not specs:
        raise ChoiceError("name an encoder with --encoder (see `recallatk encoders`), or give embeddings with --query")
    series = {spec: expand_series(spec) for spec in specs}
    specs = [one for spec in specs for one in series[spec]]
    twice = [spec for spec, times in Counter(specs).items() if times > 1]
    if twice:
        raise ChoiceError(f"--encoder {twice[0]} is given more than once; name each encoder once")
    loaders: dict[str, Callable[[], Encoder]] = {}
    for members in series.values():
        for spec in members:
            load = functools.partial(load_encoder, spec, device=encoding.device, dtype=encoding.dtype)
            loaders[spec] = load if len(members) > 1 else _loaded(load)
    return loaders


def _loaded(load: Callable[[], Encoder]) -> Callable[[], Encoder]:
    """The same behind a call, loaded now and once."""
    once = functools.cache(load)
    once()
    return once


def load_images(data: Path | None, reading: Reading, *, labels_required: bool) -> Dataset:
    """The data set that DATA or two folders hold, or a sample of it."""
    from recallatk.datasets import load_dataset, load_two_folders, sample_dataset

    folders = (reading.queries_folder, reading.gallery_folder)
    common: Any = {"label_from": reading.label_from, "label_separator": reading.label_separator}
    if folders[0] is not None and folders[1] is not None and data is None:
        dataset = load_two_folders(folders[0], folders[1], on_error=reading.on_error, **common)
    elif folders != (None, None):
        raise ChoiceError("--queries-folder and --gallery-folder belong together, and replace DATA")
    elif data is None:
        raise ChoiceError("name DATA: a folder with query/ and gallery/, a folder of class folders, or a manifest")
    else:
        common |= {"root": reading.root, "labels_required": labels_required}
        common |= {"part": reading.part, "counts": reading.counts, "split_column": reading.split_column}
        dataset = load_dataset(data, layout=reading.layout, on_error=reading.on_error, **common)
    return dataset if reading.limit is None else sample_dataset(dataset, reading.limit, seed=reading.seed)


def encode_images(
    dataset: Dataset,
    encoders: dict[str, Callable[[], Encoder]],
    reading: Reading,
    encoding: Encoding,
    output: Output,
    elsewhere: Any = None,
    steps: Steps | None = None,
) -> Iterator[tuple[str, EncodedDataset | RecallatkError]]:
    """Encode the data set with each encoder in turn, when it is asked for; one that fails gives its error."""
    cache = encoding.cache()
    images = len(dataset.query) + (0 if dataset.gallery is None else len(dataset.gallery))
    for spec, load in encoders.items():
        try:
            what = spec if steps is None else f"encoding {spec}"
            with (
                naming(spec, several=len(encoders) > 1),
                progress_of(steps, what, images, quiet=output.quiet) as on_progress,
            ):
                encoder = load()
                yielded: EncodedDataset | RecallatkError = _encode(
                    spec, encoder, dataset, reading, encoding, cache, on_progress, elsewhere
                )
        except ChoiceError:  # a flag is wrong: it is so for all of them
            raise
        except RecallatkError as error:
            yielded = error
        yield spec, yielded


def encode_sample(
    encoders: dict[str, Callable[[], Encoder]], reading: Reading, encoding: Encoding, dataset: Dataset
) -> EncodedDataset | RecallatkError:
    """Some images with the first of the encoders, in this process, and without the cache."""
    first = dict(list(encoders.items())[:1])
    encoding = dataclasses.replace(encoding, no_cache=True)
    return next(iter(encode_images(dataset, first, reading, encoding, Output(quiet=True))))[1]


def _encode(
    spec: str,
    encoder: Encoder,
    dataset: Dataset,
    reading: Reading,
    encoding: Encoding,
    cache: Any,
    on_progress: Any,
    elsewhere: Any,
) -> EncodedDataset:
    from recallatk.encoders.consistency import check_encoder_on_files
    from recallatk.images import DecodePolicy
    from recallatk.run import encode_dataset

    policy = DecodePolicy(exif=encoding.exif)
    looked_at = dataset.query if dataset.query.kind == "image" or dataset.gallery is None else dataset.gallery
    check = (
        check_encoder_on_files(
            encoder,
            looked_at.elements,
            looked_at.ids,
            policy=policy,
            decode=encoding.hand_over == "pixels",
        )
        if encoding.check_encoder
        else None
    )
    encoded = encode_dataset(
        dataset,
        encoder,
        batch=encoding.batch_size,
        decode=encoding.hand_over == "pixels",
        policy=policy,
        on_error=reading.on_error,
        cache=cache,
        workers=encoding.workers,
        on_progress=on_progress,
        request={"spec": spec, "device": encoding.device, "dtype": encoding.dtype},
        elsewhere=elsewhere,
    )
    if check is None:
        return encoded
    provenance = encoded.provenance
    provenance = dataclasses.replace(
        provenance,
        notes=(*provenance.notes, *check.lines()),
        warnings=(*provenance.warnings, *check.warnings()),
    )
    return dataclasses.replace(encoded, provenance=provenance)


def load_files(
    files: Embeddings,
    reading: Reading,
    *,
    labels_required: bool,
    memory: int | None = None,
    in_place: bool = False,
) -> EncodedDataset:
    """The embeddings that files hold."""
    from recallatk.run import load_encoded

    if files.query is None:
        raise ChoiceError("--gallery needs --query beside it; one set alone is --query")
    return load_encoded(
        files.query,
        files.gallery,
        query_labels=files.query_labels,
        gallery_labels=files.gallery_labels,
        label_separator=reading.label_separator,
        labels_required=labels_required,
        on_error=reading.on_error,
        memory=memory,
        in_place=in_place,
    )


def join(files: EncodedDataset, dataset: Dataset, reading: Reading) -> EncodedDataset:
    """The embeddings with what DATA says of their rows."""
    from recallatk.run import join_dataset

    return join_dataset(files, dataset, on_error=reading.on_error)


def with_qrels(encoded: EncodedDataset | RecallatkError, qrels: Qrels, path: Path) -> EncodedDataset | RecallatkError:
    """The data set with judged pairs from a file, which the record names; an error stays one."""
    if isinstance(encoded, RecallatkError):
        return encoded
    data = {**encoded.provenance.data, "qrels": str(path)}
    provenance = dataclasses.replace(encoded.provenance, data=data)
    return dataclasses.replace(encoded, qrels=qrels, provenance=provenance)


@contextlib.contextmanager
def naming(name: str, *, several: bool, of: str = "encoder ") -> Iterator[None]:
    """Begin an error with what it is of, by default an encoder, where there are several."""
    try:
        yield
    except RecallatkError as error:
        if not several:
            raise
        raise type(error)(f"{of}{name}: {error}") from error


def read_qrels(path: Path, protocol: EvalProtocol) -> Qrels:
    """Read judged pairs, and refuse those that the protocol would pass over."""
    from recallatk.datasets import load_qrels

    qrels = load_qrels(path)
    if protocol.relevance != "qrels" and qrels.levels is None:
        raise ChoiceError(f"--qrels {path}: relevance={protocol.relevance} does not look at it; use --relevance qrels")
    return qrels
