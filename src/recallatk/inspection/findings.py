"""What an inspection says: findings, and the counts beside them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

Level: TypeAlias = Literal["error", "warning", "note"]
"""An error: evaluating with the same choices stops. A warning: there is a number, but maybe not the one that is
meant. A note: good to know."""

LEVELS: tuple[Level, ...] = get_args(Level)

SCHEMA = 1
"""The version of the record of an inspection."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One kind of thing that was found.

    Attributes:
        kind: a short name that stays the same over versions, such as "unreadable".
        level: how bad it is.
        what: how many of what, in words.
        advice: what to do; empty where there is nothing to do.
        items: the things themselves, one text each.
    """

    kind: str
    level: Level
    what: str
    advice: str = ""
    items: tuple[str, ...] = ()

    def line(self) -> str:
        """The finding in one line: what, an example, what to do.

        >>> Finding("tiny", "warning", "2 images are tiny", "look at them", ("a.png", "b.png")).line()
        'warning: 2 images are tiny (such as a.png); look at them'
        """
        example = f" (such as {self.items[0]})" if self.items else ""
        return f"{self.level}: {self.what}{example}{f'; {self.advice}' if self.advice else ''}"


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What was found in a data set before anything is encoded.

    Attributes:
        images: the number of images by role: "query" and "gallery", or "both" for leave-one-out.
        readable: how many of them could be decoded.
        evaluated: the queries that have a positive, and so count.
        labels: label -> number of images by role.
        sizes: "width", "height" (of the images, in pixels) and "bytes" (of the files) -> smallest, median, largest;
            empty where nothing could be decoded.
        findings: errors first, then warnings, then notes.
    """

    images: Mapping[str, int]
    readable: Mapping[str, int]
    evaluated: int
    labels: Mapping[str, Mapping[str, int]]
    sizes: Mapping[str, tuple[float, float, float]]
    findings: tuple[Finding, ...]

    def of(self, level: Level) -> tuple[Finding, ...]:
        """The findings of one level."""
        return tuple(finding for finding in self.findings if finding.level == level)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that make an evaluation stop."""
        return self.of("error")

    def record(self) -> dict[str, Any]:
        """Everything as JSON values."""
        names = ("smallest", "median", "largest")
        return {
            "schema": SCHEMA,
            "images": dict(self.images),
            "readable": dict(self.readable),
            "evaluated": self.evaluated,
            "labels": {label: dict(counts) for label, counts in self.labels.items()},
            "sizes": {what: dict(zip(names, values, strict=True)) for what, values in self.sizes.items()},
            "findings": [
                {**dataclasses.asdict(finding), "items": list(finding.items), "count": len(finding.items)}
                for finding in self.findings
            ],
        }

    def to_json(self) -> str:
        """`record` as text."""
        return json.dumps(self.record(), indent=2, ensure_ascii=False, allow_nan=False)
