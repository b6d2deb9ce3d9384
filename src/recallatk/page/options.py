"""What goes into a page, and whose it is."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from recallatk.images import DEFAULT_POLICY, DecodePolicy
from recallatk.report import Report
from recallatk.types import Box, ChoiceError, EmbeddingSet, Qrels, RecallatkError, Stored

Embedding: TypeAlias = Literal["embed", "folder", "none"]

NUM_QUERIES = 500
NEIGHBOURS = 10
MAX_SIZE = 30_000_000


@dataclasses.dataclass(frozen=True)
class PageOptions:
    """What can be chosen about a page; nothing of it changes a number.

    Attributes:
        num_queries: queries that are shown with their neighbours and pictures.
        neighbours: how many neighbours of each.
        only_wrong: of the queries, only those that miss at the smallest k.
        pictures: inside the file, in a folder beside it, or none.
        max_size: bytes that file and pictures may have together; pictures become smaller, then fewer.
        seed: of every random choice.
    """

    num_queries: int = NUM_QUERIES
    neighbours: int = NEIGHBOURS
    only_wrong: bool = False
    pictures: Embedding = "embed"
    max_size: int = MAX_SIZE
    seed: int = 0

    def __post_init__(self) -> None:
        if self.pictures not in get_args(Embedding):
            raise ChoiceError(
                f"pictures={self.pictures!r} is not a choice; choose one of: {', '.join(get_args(Embedding))}"
            )
        for name, least in (("num_queries", 0), ("neighbours", 1), ("max_size", 500_000), ("seed", 0)):
            if getattr(self, name) < least:
                raise ChoiceError(f"{name}={getattr(self, name)}: give {least:,} or more")


DEFAULT_OPTIONS = PageOptions()

Place: TypeAlias = tuple[str | os.PathLike[str] | Stored, Box | None]


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
    """Where the picture of each id lies.

    Attributes:
        query: path, and the box where the image is a part of the picture, by the id of the query.
        gallery: the same for the gallery; the same mapping for leave-one-out.
        texts: what stands in the place of a picture, by the id of an item that is a text.
        policy: how the run decoded them; the page shows what the encoder saw.
        missing: why there are no pictures, in words; empty if there are.
    """

    query: Mapping[str, Place] = dataclasses.field(default_factory=dict)
    gallery: Mapping[str, Place] = dataclasses.field(default_factory=dict)
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    policy: DecodePolicy = DEFAULT_POLICY
    missing: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class PageSource:
    """One run, with what it was made from as far as that is there.

    Attributes:
        report: its report.
        name: what the page calls it.
        query: the embeddings of the queries; None: the page has no neighbours and no map.
        gallery: those of the gallery; None for leave-one-out.
        qrels: judged pairs, where relevance comes from them.
        images: where the pictures are.
        missing: why there are no embeddings, in words; empty if there are.
    """

    report: Report
    name: str = "run"
    query: EmbeddingSet | None = None
    gallery: EmbeddingSet | None = None
    qrels: Qrels | None = None
    images: Images = dataclasses.field(default_factory=Images)
    missing: str = ""

    def __post_init__(self) -> None:
        if self.query is not None and tuple(self.query.row_ids) != tuple(self.report.queries["id"]):
            raise RecallatkError(
                f"{self.name}: the embeddings are not those of the queries of this run; repeat the run"
            )

    @property
    def alone(self) -> bool:
        """Whether every image is query and gallery."""
        return "both" in self.report.samples or (self.query is not None and self.gallery is None)
