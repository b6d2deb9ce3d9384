"""What is said of a benchmark: what lies on disk, what is evaluated and how, and what was published."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from recallatk.types import ChoiceError, Dataset, EvalProtocol, View

Counts: TypeAlias = Literal["official", "any"]
"""Whether a copy must have the official counts, or may have others, which the report then says."""

Needed: TypeAlias = str | tuple[str, ...]
"""A file or folder below a copy's root; or the names that it has in different copies, of which one is enough."""


@dataclasses.dataclass(frozen=True)
class PublishedRow:
    """What was printed for one system.

    Attributes:
        system: the system, with what tells it apart from its kin ("Proxy-Anchor, ResNet-50, 512 columns").
        values: metric, as recallatk calls it -> the digits as they were printed ("69.9%", "0.52054").
        source: where they were printed.
        queries: where a part is many data sets: how many queries the one has that the row is of, by which it is told;
            None where the part is one data set.
    """

    system: str
    values: Mapping[str, str]
    source: str
    queries: int | None = None


@dataclasses.dataclass(frozen=True)
class Part:
    """One evaluation that a benchmark defines.

    Attributes:
        summary: what is evaluated, in one line.
        counts: official counts by what is counted: `queries`, `gallery`, `labels` (distinct labels of the queries).
        protocol: the fields of `EvalProtocol` that differ from its defaults.
        metrics: what is published beside recall@k.
        published: what was printed for systems under this protocol.
        other_counts: other numbers of queries or gallery images that copies have, and what such a copy is.
        views: the parts that this one evaluates together, from one encoding; empty for one evaluation.
        within: for one of several folds, the part that evaluates all of them.
        gallery: what an item of the gallery is.
    """

    summary: str
    counts: Mapping[str, int]
    protocol: Mapping[str, Any]
    metrics: tuple[str, ...] = ()
    published: Sequence[PublishedRow] = ()
    other_counts: Mapping[int, str] = dataclasses.field(default_factory=dict)
    views: Mapping[str, View] = dataclasses.field(default_factory=dict)
    within: str = ""
    gallery: Literal["image", "text"] = "image"

    @property
    def eval_protocol(self) -> EvalProtocol:
        """The protocol in full."""
        return EvalProtocol(**self.protocol)


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A row of BENCHMARKS.

    Attributes:
        title: its name in papers.
        summary: one line for the list of layouts.
        load: called with DATA, and by name with `part` (a key of `parts`), `on_error` and every option; opens no image.
        files: what it needs below DATA (or below the folder of that name in DATA) -> what that is.
        marks: files or folders below DATA (* and ? stand for what differs in a name) which together tell that DATA is
            a copy; empty where nothing is telling.
        parts: its evaluations by name; the first is the default.
        traps: what goes wrong with it, a sentence or two each.
        archives: md5 of an official archive -> its name.
        reads: what DATA is.
        options: the options of `load_dataset` that it takes beside `part` and `counts`, with their defaults.
    """

    title: str
    summary: str
    load: Callable[..., Dataset]
    files: Mapping[str, str]
    parts: Mapping[str, Part]
    marks: tuple[Needed, ...] = ()
    traps: tuple[str, ...] = ()
    archives: Mapping[str, str] = dataclasses.field(default_factory=dict)
    reads: Literal["folder", "file"] = "folder"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def default_part(self) -> str:
        """The name of the evaluation that is meant where none is named."""
        return next(iter(self.parts))

    @property
    def whole_parts(self) -> dict[str, Part]:
        """The parts without those that are one of several folds of another."""
        return {name: part for name, part in self.parts.items() if not part.within}

    def part_named(self, name: str | None) -> str:
        """The name of a part; the default's for None.

        Raises:
            ChoiceError: there is no such part.
        """
        if name is not None and name not in self.parts:
            known = ", ".join(self.whole_parts)
            raise ChoiceError(f"part={name!r} is no part of {self.title}; choose one of: {known}")
        return self.default_part if name is None else name
