"""The rows of a run held against those of now: gone, new, renamed, changed, and named."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from recallatk.types import SampleSet, each_label
from recallatk.verification.outcome import Moved
from recallatk.wording import counted

Digests = Sequence[str] | None


class Side:
    """One side then and now, its rows matched by name.

    A row is called by its id. Where there are no ids it is called by the hash of its embedding if the same hashes are
    there now (then only the order can have moved), and else by its number.
    """

    def __init__(
        self,
        role: str,
        then: SampleSet,
        now: SampleSet,
        digests: tuple[Digests, Digests],
        unusable: Mapping[str, str] | None = None,
        image: str = "image",
    ) -> None:
        self.role = role
        self.unusable = unusable or {}
        self.sets = (then, now)
        self.digests = digests
        self.names = _names(self.sets, digests)
        self.places = tuple({name: row for row, name in enumerate(names)} for names in self.names)
        gone = [name for name in self.names[0] if name not in self.places[1]]
        new = [name for name in self.names[1] if name not in self.places[0]]
        self.renamed = self._renamed(gone, new)
        self.gone = [name for name in gone if name not in self.renamed]
        self.new = [name for name in new if name not in self.renamed.values()]
        # From here on a renamed row is looked up by the name it had.
        self.places[1].update({then: self.places[1][now] for then, now in self.renamed.items()})
        self.common = [name for name in self.names[0] if name in self.places[1]]
        self.noun = image if then.content is not None else "row"

    def moved(self) -> list[Moved]:
        """What is not as it was."""
        lost = [f"{name}: {self.unusable[name]}" for name in self.gone if name in self.unusable]
        renames = [f"{self.shown(then, 0)} is now {self.shown(now, 1)}" for then, now in self.renamed.items()]
        found = [
            self._moved("images", "was renamed (same bytes)", renames, "were renamed (same bytes)"),
            self._moved(
                "images",
                "is gone",
                [self.shown(name, 0) for name in self.gone if name not in self.unusable],
                "are gone",
            ),
            self._moved("skipped", "cannot be used any more", lost),
            self._moved("images", "is new", [self.shown(name, 1) for name in self.new], "are new"),
            self._moved("images", "has other bytes", self._changed(_contents), "have other bytes"),
            self._moved("labels", "has another label", self._lines(_labels), "have another label"),
            *(
                self._moved("columns", f"has another {column}", self._lines(_column(column)), f"have another {column}")
                for column in sorted(set(self.sets[0].groups) | set(self.sets[1].groups))
            ),
            self._moved("columns", "has another position", self._lines(_positions), "have another position"),
            self._moved("embeddings", "has another embedding", self._new_embeddings(), "have another embedding"),
        ]
        return [moved for moved in found if moved is not None]

    @property
    def reordered(self) -> bool:
        """Whether the rows that are there then and now come in another order."""
        rows = [self.places[1][name] for name in self.common]
        return rows != sorted(rows)

    def shown(self, name: str, when: int) -> str:
        """How a row is called for people."""
        return name if self.sets[when].ids is not None else f"row {self.places[when][name]}"

    def _moved(self, part: Any, one: str, items: Sequence[str], several: str | None = None) -> Moved | None:
        if not items:
            return None
        verb = one if len(items) == 1 else several or one
        where = "" if self.role == "both" else f" ({self.role})"
        return Moved(part, f"{counted(len(items), self.noun)}{where} {verb}", tuple(items))

    def _pairs(self, column: Callable[[SampleSet], Sequence[Any] | None]) -> list[tuple[str, Any, Any]]:
        """The common rows whose value in a column differs; none where one of the two is not known."""
        then, now = map(column, self.sets)
        if then is None or now is None:
            return []
        pairs = [(name, then[self.places[0][name]], now[self.places[1][name]]) for name in self.common]
        return [pair for pair in pairs if pair[1] != pair[2]]

    def _changed(self, column: Callable[[SampleSet], Sequence[Any] | None]) -> list[str]:
        return [self.shown(name, 0) for name, *_ in self._pairs(column)]

    def _lines(self, column: Callable[[SampleSet], Sequence[Any] | None]) -> list[str]:
        return [f"{self.shown(name, 0)}: {then} then, {now} now" for name, then, now in self._pairs(column)]

    def _new_embeddings(self) -> list[str]:
        """The rows whose embedding moved though the bytes of their image, where they are known, did not."""
        bytes_moved = {name for name, *_ in self._pairs(_contents)}
        then, now = self.digests
        if then is None or now is None:
            return []
        return [
            self.shown(name, 0)
            for name in self.common
            if name not in bytes_moved and then[self.places[0][name]] != now[self.places[1][name]]
        ]

    def _renamed(self, gone: Sequence[str], new: Sequence[str]) -> dict[str, str]:
        """Names that are gone and the new names of the same bytes."""
        contents = [side.content for side in self.sets]
        if contents[0] is None or contents[1] is None:
            return {}
        waiting = defaultdict(list)
        for name in reversed(new):
            waiting[contents[1][self.places[1][name]]].append(name)
        renamed = {}
        for name in gone:
            others = waiting[contents[0][self.places[0][name]]]
            if others:
                renamed[name] = others.pop()
        return renamed


def match_sides(
    then: Mapping[str, SampleSet],
    now: Mapping[str, SampleSet],
    digests: tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]],
    unusable: Mapping[str, str],
    texts: Collection[str],
) -> list[Side]:
    """The sides that were there and are there; `texts` are the roles that hold texts."""
    return [
        Side(
            role,
            then[role],
            now[role],
            (digests[0].get(role), digests[1].get(role)),
            unusable,
            "text" if role in texts else "image",
        )
        for role in then
        if role in now
    ]


def _names(sets: tuple[SampleSet, SampleSet], digests: tuple[Digests, Digests]) -> tuple[tuple[str, ...], ...]:
    if sets[0].ids is not None and sets[1].ids is not None:
        return sets[0].ids, sets[1].ids
    if digests[0] is not None and digests[1] is not None and Counter(digests[0]) == Counter(digests[1]):
        return tuple(_told_apart(column) for column in digests if column is not None)
    return tuple(tuple(map(str, range(len(side)))) for side in sets)


def _told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """Equal rows numbered as they come; nothing tells them apart."""
    seen: Counter[str] = Counter()
    different = []
    for name in names:
        different.append(f"{name}/{seen[name]}")
        seen[name] += 1
    return tuple(different)


def _contents(side: SampleSet) -> Sequence[str] | None:
    return side.content


def _labels(side: SampleSet) -> list[str]:
    """Each row's labels for people: one as it is quoted, several in order."""
    return [", ".join(map(repr, sorted(each_label(label)))) or "none" for label in side.labels]


def _positions(side: SampleSet) -> Sequence[Any] | None:
    return None if side.positions is None else [tuple(point) for point in side.positions.tolist()]


def _column(name: str) -> Callable[[SampleSet], Sequence[str] | None]:
    return lambda side: side.groups.get(name)
