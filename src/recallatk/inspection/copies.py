"""Images that are the same, in bytes, in pixels or to the eye: within a side, and across query and gallery."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Literal

import numpy as np

from recallatk.inspection.findings import Finding, Level
from recallatk.inspection.pictures import Picture
from recallatk.types import EvalProtocol, ImageSet, each_label
from recallatk.wording import counted

NEAR_BITS = 4
"""Perceptual hashes of 64 bits that differ in so many bits at most are near-duplicates."""

Way = Literal["bytes", "pixels", "near"]

_WORDS: dict[Way, str] = {
    "bytes": "identical bytes",
    "pixels": "identical pixels in files that differ",
    "near": f"nearly the same picture (perceptual hashes within {NEAR_BITS} of 64 bits)",
}
_KINDS: dict[Way, str] = {"bytes": "byte-equal", "pixels": "pixel-equal", "near": "near-duplicate"}


@dataclasses.dataclass(frozen=True)
class _Member:
    """An image in a group of copies."""

    side: int
    id: str
    same: str
    label: tuple[str, ...]

    def shown(self) -> str:
        return f"{self.id} ({'|'.join(self.label) or 'no label'})"


def find_copies(
    sides: Sequence[ImageSet], pictures: Sequence[Sequence[Picture]], protocol: EvalProtocol
) -> Iterator[Finding]:
    """Findings about copies: those with different labels first, then across the sides, then within one.

    Args:
        sides: the queries alone, where every image is also in the gallery, or queries and gallery.
        pictures: what is known of each image.
        protocol: whether copies are left out of the ranking.
    """
    near = _near_groups([picture for own in pictures for picture in own])
    by_way: dict[Way, list[list[_Member]]] = {
        "bytes": _groups(sides, pictures, [[p.content for p in own] for own in pictures]),
        "pixels": _groups(sides, pictures, [[p.pixels for p in own] for own in pictures], apart="content"),
    }
    if near:
        keys = [[near.get(p.perceptual, "") if p.pixels else "" for p in own] for own in pictures]
        by_way["near"] = _groups(sides, pictures, keys, apart="pixels")
    for find in (_contradictions, _across, _within):
        for way, groups in by_way.items():
            yield from find(way, groups, protocol, alone=len(sides) == 1)


def _groups(
    sides: Sequence[ImageSet],
    pictures: Sequence[Sequence[Picture]],
    keys: Sequence[Sequence[Hashable]],
    *,
    apart: Literal["content", "pixels", ""] = "",
) -> list[list[_Member]]:
    """Images of equal keys, if they are more than one file; with `apart`, if they also differ in that."""
    found: dict[Hashable, list[tuple[_Member, str]]] = defaultdict(list)
    for number, (side, own, own_keys) in enumerate(zip(sides, pictures, keys, strict=True)):
        same = side.ids if side.same is None else side.same
        for row, (picture, key) in enumerate(zip(own, own_keys, strict=True)):
            if key != "":
                member = _Member(number, side.ids[row], same[row], each_label(side.labels[row]))
                found[key].append((member, getattr(picture, apart) if apart else ""))
    return [
        [member for member, _ in group]
        for group in found.values()
        if len({member.same for member, _ in group}) > 1 and (not apart or len({other for _, other in group}) > 1)
    ]


def _contradictions(
    way: Way, groups: Sequence[Sequence[_Member]], protocol: EvalProtocol, *, alone: bool
) -> Iterator[Finding]:
    """Copies that share no label: one of the labels is wrong, or the picture has both."""
    items = []
    for group in groups:
        by_label = {member.label: member for member in reversed(group) if member.label}
        labels = list(by_label)
        pair = next(
            ((a, b) for i, a in enumerate(labels) for b in labels[i + 1 :] if set(a).isdisjoint(b)),
            None,
        )
        if pair is not None:
            items.append(f"{by_label[pair[1]].shown()} = {by_label[pair[0]].shown()}")
    if items:
        have = counted(len(items), "group of images has", "groups of images have")
        yield Finding(
            f"{_KINDS[way]}-other-label",
            "warning",
            f"{have} {_WORDS[way]} under different labels",
            "correct the label of one, or remove it",
            tuple(items),
        )


def _across(way: Way, groups: Sequence[Sequence[_Member]], protocol: EvalProtocol, *, alone: bool) -> Iterator[Finding]:
    """Queries that find a copy of themselves in the gallery."""
    if alone:
        return
    items = []
    for group in groups:
        gallery = [member for member in group if member.side == 1]
        for member in group:
            twin = next((other for other in gallery if other.same != member.same), None)
            if member.side == 0 and twin is not None:
                items.append(f"{member.shown()} = {twin.shown()}")
    if items:
        left_out = way == "bytes" and protocol.exclude_self == "content"
        level: Level = "note" if left_out else "warning"
        have = counted(len(items), "query has", "queries have")
        yield Finding(
            f"{_KINDS[way]}-query-gallery",
            level,
            f"{have} {_WORDS[way]} in the gallery",
            _advice(way, left_out),
            tuple(items),
        )


def _within(way: Way, groups: Sequence[Sequence[_Member]], protocol: EvalProtocol, *, alone: bool) -> Iterator[Finding]:
    """Copies within one side; alone, where each is in the gallery of the other, they are as bad as across."""
    left_out = way == "bytes" and protocol.exclude_self == "content"
    for number, role in enumerate(["both"] if alone else ["query", "gallery"]):
        items = []
        for group in groups:
            distinct: dict[str, _Member] = {}
            for member in group:
                if member.side == number:
                    distinct.setdefault(member.same, member)
            first, *others = distinct.values() or group[:1]
            items += [f"{other.shown()} = {first.shown()}" for other in others]
        if items:
            where = "another image" if alone else f"another image of the {role} side"
            have = counted(len(items), "image has", "images have")
            level: Level = "warning" if alone and not left_out else "note"
            advice = _advice(way, left_out) if alone else ""
            yield Finding(f"{_KINDS[way]}-{role}", level, f"{have} {_WORDS[way]} as {where}", advice, tuple(items))


def _advice(way: Way, left_out: bool) -> str:
    if left_out:
        return "exclude_self=content leaves them out"
    if way == "bytes":
        return "leave copies out with exclude_self=content (--exclude-self content), or remove them"
    return "remove one of each; exclude_self=content sees identical bytes only"


def _near_groups(pictures: Sequence[Picture]) -> dict[int | None, str]:
    """Perceptual hash -> the name of its group, for hashes that were asked for.

    Hashes within `NEAR_BITS` of each other are in one group, and so are those that a chain of such pairs joins. Of
    NEAR_BITS + 1 parts of such a pair one is equal, so only hashes with an equal part are compared.
    """
    hashes = sorted({picture.perceptual for picture in pictures if picture.perceptual is not None})
    if not hashes:
        return {}
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = {(row, row) for row in range(len(hashes))}
    borders = np.linspace(0, 64, NEAR_BITS + 2).astype(int).tolist()
    for low, high in itertools.pairwise(borders):
        parts: dict[int, list[int]] = defaultdict(list)
        for row, value in enumerate(hashes):
            parts[value >> low & (1 << high - low) - 1].append(row)
        for rows in parts.values():
            edges.update(
                (a, b)
                for i, a in enumerate(rows)
                for b in rows[i + 1 :]
                if (hashes[a] ^ hashes[b]).bit_count() <= NEAR_BITS
            )
    pairs = np.array(sorted(edges)).T
    graph = coo_array((np.ones(pairs.shape[1]), (pairs[0], pairs[1])), shape=(len(hashes), len(hashes)))
    _, groups = connected_components(graph, directed=False)
    return {value: f"group {group}" for value, group in zip(hashes, groups.tolist(), strict=True)}
