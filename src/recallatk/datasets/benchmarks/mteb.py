"""Image retrieval as MTEB stores it: queries, corpus and qrels in Parquet files, with the images inside."""

from __future__ import annotations

import collections
import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recallatk.datasets.benchmarks.description import Benchmark, Part, PublishedRow
from recallatk.datasets.naming import shown
from recallatk.datasets.packed import list_packed, list_paths
from recallatk.datasets.pairs import as_id
from recallatk.datasets.qrels import load_qrels
from recallatk.datasets.tables import read_table
from recallatk.datasets.walk import is_hidden
from recallatk.types import Dataset, ImageSet, OnError, Qrels, RecallatkError, Skipped
from recallatk.wording import and_more, counted

NAMES = {"queries": ("queries", "query"), "corpus": ("corpus",), "qrels": ("qrels", "default")}
"""What the folders, or the beginnings of the files, are called."""
SUFFIXES = {"queries": (".parquet",), "corpus": (".parquet",), "qrels": (".parquet", ".tsv", ".csv", ".jsonl")}
SPLIT = "test"
IDS = ("id", "_id")
IMAGE, MODALITY = "image", "modality"

_SHARD = re.compile(r"(?P<split>.*?)-?(?P<number>\d{5})-of-(?P<total>\d{5})(-[0-9a-f]+)?")

KNOWN = {5_794: "CUB200I2IRetrieval", 8_041: "StanfordCarsI2IRetrieval", 120_053: "SOPI2IRetrieval"}
"""Queries of tasks whose corpus holds the queries too."""


def load(data: Path, *, part: str, on_error: OnError) -> Dataset:
    """Read ids, and where each image is stored; ids are those of the files, as the qrels name them."""
    files = {kind: _find_files(data, kind) for kind in NAMES}
    qrels = _read_qrels(files["qrels"])
    queries, no_query = _read_side(data, files["queries"], "query", on_error)
    corpus, no_image = _read_side(data, files["corpus"], "corpus", on_error)
    judged = set(qrels.query_ids)
    kept = [row for row, query in enumerate(queries.ids) if query in judged]
    if not kept:
        raise RecallatkError(
            f"{data}: the qrels name none of the {len(queries):,} queries (the first of each: {qrels.query_ids[0]!r}, "
            f"{queries.ids[0]!r}); they belong to other data"
        )
    notes = []
    if (aside := len(queries) - len(kept)) > 0:
        notes.append(f"{counted(aside, 'query', 'queries')} left aside that the qrels do not name")
    if len(kept) in KNOWN:
        notes.append(f"{len(kept):,} queries: the count of {KNOWN[len(kept)]}")
    return Dataset(
        query=queries.take(kept),
        gallery=corpus,
        root=data,
        skipped=(*no_query, *no_image),
        notes=tuple(notes),
        qrels=qrels,
    )


def _find_files(data: Path, kind: str) -> list[Path]:
    """The files of one kind in one split: those of a folder of that name, or beside each other."""
    found: list[tuple[str, Path]] = []  # the file's name without what says its kind, and the file
    for name in NAMES[kind]:
        for root in (data, data / "data"):
            folder = root / name
            if folder.is_dir():
                found = [(file.stem, file) for file in _files(folder, kind)]
            elif root.is_dir():
                named = [file for file in _files(root, kind) if re.match(rf"{name}(?![a-z])", file.name)]
                found = [(file.stem[len(name) :].lstrip("-_."), file) for file in named]
            if found:
                return _of_one_split(data, kind, found)
    raise RecallatkError(
        f"{data}: no {kind}/ with files {', '.join(SUFFIXES[kind])} in this folder, and none called {kind}...; DATA is "
        "the folder that holds queries/, corpus/ and qrels/"
    )


def _files(folder: Path, kind: str) -> list[Path]:
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in SUFFIXES[kind] and not is_hidden(file.name) and file.is_file()
    )


def _of_one_split(data: Path, kind: str, found: Sequence[tuple[str, Path]]) -> list[Path]:
    """The files of the split test, or of the only one; all of its shards must be there."""
    splits = collections.defaultdict[str, list[Path]](list)
    shards = collections.defaultdict[str, set[int]](set)
    totals: dict[str, int] = {}
    for stem, file in found:
        shard = _SHARD.fullmatch(stem)
        split = stem if shard is None else shard["split"]
        splits[split].append(file)
        if shard is not None:
            shards[split].add(int(shard["number"]))
            totals[split] = int(shard["total"])
    preferred = next((split for split in (SPLIT, kind) if split in splits), None)
    if preferred is None and len(splits) > 1:
        raise RecallatkError(
            f"{data}: the {kind} have the splits {', '.join(sorted(splits))}, and none is called {SPLIT}; leave only "
            "the files of one there"
        )
    split = preferred if preferred is not None else next(iter(splits))
    absent = set(range(totals.get(split, 0))) - shards[split]
    if absent:
        raise RecallatkError(
            f"{data}: of the {totals[split]} files of the {kind}, number {min(absent)} (counted from 0) is missing"
            f"{and_more(len(absent), 'file')}; complete the copy"
        )
    return splits[split]


def _read_qrels(files: Sequence[Path]) -> Qrels:
    parts = [load_qrels(file) for file in files]
    return Qrels(
        query_ids=tuple(query for one in parts for query in one.query_ids),
        gallery_ids=tuple(item for one in parts for item in one.gallery_ids),
        grades=np.concatenate([one.grades for one in parts]),
    )


@dataclasses.dataclass(frozen=True)
class _Row:
    id: str
    element: Any  # None: not there
    name: str


def _read_side(data: Path, files: Sequence[Path], side: str, on_error: OnError) -> tuple[ImageSet, tuple[Skipped, ...]]:
    rows = [row for file in files for row in _read_file(file, side)]
    missing = [row for row in rows if row.element is None]
    if missing and (on_error == "error" or len(missing) == len(rows)):
        raise RecallatkError(
            f"{missing[0].name}: the image of {missing[0].id!r} is neither in the file nor beside it"
            f"{and_more(len(missing), 'image')}; complete the copy, or leave such rows out with --on-error skip"
        )
    kept = [row for row in rows if row.element is not None]
    if not kept:
        raise RecallatkError(f"{data}: the files of the {side} have no rows; take complete ones")
    images = ImageSet(
        elements=tuple(row.element for row in kept),
        ids=tuple(row.id for row in kept),
        labels=((),) * len(kept),
        same=tuple(shown(row.name.removeprefix(f"{data}{os.sep}")) for row in kept),  # equal ids are two images
    )
    return images, tuple(Skipped(row.id, f"no image in {row.name}, and none beside it") for row in missing)


def _read_file(file: Path, side: str) -> list[_Row]:
    table = read_table(file)
    column = next((name for name in IDS if name in table.columns), None)
    if column is None:
        found = ", ".join(map(repr, table.columns))
        raise RecallatkError(f"{file}: no column {' and no column '.join(map(repr, IDS))}; columns found: {found}")
    for place, modality in zip(table.places, table.columns.get(MODALITY, ()), strict=False):
        if modality not in (IMAGE, None):
            raise RecallatkError(
                f"{file}: {place}: the modality is {modality!r}; this layout takes images on both sides, so text and "
                "images are evaluated from embeddings (--query, --gallery) with --qrels"
            )
    stored = list_packed(file, IMAGE)
    cells = zip(table.columns[column], table.places, strict=True)
    ids = [as_id(value, f"{file}: {place}", column) for value, place in cells]
    paths = list_paths(file, IMAGE) if None in stored else [None] * len(ids)
    rows = []
    for identifier, place, element, path in zip(ids, table.places, stored, paths, strict=True):
        beside = None if element is not None or not path else file.parent / path
        there = beside is not None and os.path.isfile(beside)  # noqa: PTH113 - a name may be too long
        rows.append(_Row(identifier, beside if there else element, f"{file}: {place}"))
    return rows


PROTOCOL = {"ks": (1, 3, 5, 10, 20, 100, 1000), "relevance": "qrels", "no_positive": "miss"}

PUBLISHED = tuple(
    PublishedRow(f"{system}, on {KNOWN[queries]}", {"recall@1": digits}, "MTEB's results", queries=queries)
    for system, queries, digits in (
        ("CLIP ViT-B/32", 5_794, "0.52054"),
        ("CLIP ViT-L/14", 5_794, "0.7349"),
        ("DINOv2-base", 5_794, "0.85744"),
        ("SigLIP-B/16", 5_794, "0.68605"),
        ("CLIP ViT-B/32", 120_053, "0.48561"),
        ("DINOv2-base", 120_053, "0.4813"),
    )
)

BENCHMARK = Benchmark(
    title="Image retrieval of MTEB",
    summary="image retrieval as MTEB stores it: queries, corpus and qrels in Parquet, with the images inside",
    load=load,
    files={
        "queries/": "Parquet: id, image (bytes and path), modality; also query/, or files that begin so",
        "corpus/": "Parquet: likewise",
        "qrels/": "Parquet, .tsv, .csv or .jsonl: query-id, corpus-id, score",
    },
    parts={
        "retrieval": Part(
            summary="every query of the qrels against the whole corpus; it is many tasks, so no count is checked",
            counts={},
            protocol={**PROTOCOL, "exclude_self": "none"},
            metrics=("ndcg@10",),
            published=(
                PublishedRow(
                    "every model, on ROxfordEasyI2IRetrieval (68 of 70)",
                    {"recall@1000": "0.97143"},
                    "MTEB's results, hit rate at 1000",
                    queries=70,
                ),
            ),
        ),
        "without-itself": Part(
            summary="tasks whose corpus holds the queries too (CUB200, StanfordCars, SOP, MET, RP2K): an image with "
            "the query's bytes takes no rank",
            counts={},
            protocol={**PROTOCOL, "exclude_self": "content"},
            metrics=("ndcg@10",),
            published=PUBLISHED,
        ),
    },
    traps=(
        "Where queries are in the corpus, MTEB drops the first result of each query, whatever it is. Here the image "
        "with the query's bytes leaves the ranking (--part without-itself): that differs where another image comes "
        "first, and where there are copies.",
        "MTEB's hit_rate_at_k (once cv_recall_at_k) is recall@k. Its recall_at_k is set_recall@k.",
        "A query whose pairs all have the score 0 is a miss. Queries that the qrels do not name are left aside.",
        "Ids of queries and corpus are two name spaces: equal ids are no reason to leave anything out.",
        "The CUB task has the 5,794 official test images of all 200 classes, and the SOP task all 120,053 images with "
        "the training half; neither is the protocol of metric learning. Revisions of a data set differ, too.",
        "Images are read out of the Parquet files as they are needed, and nothing is unpacked to disk.",
    ),
)
