"""The queries of a page as data, with as many pictures as the page may hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from recallatk.page.gather import Lists, query_columns, system_columns
from recallatk.page.items import Items
from recallatk.page.markup import json_size
from recallatk.page.options import PageOptions, PageSource
from recallatk.page.pictures import SIZES
from recallatk.page.projection import Map
from recallatk.page.selection import Rows
from recallatk.wording import counted

SHARE_OF_LIST = 0.5
"""The share of the page that the list of all queries may take."""


@dataclasses.dataclass(frozen=True, eq=False)
class Explored:
    """What the explorer of a page shows.

    Attributes:
        data: as JSON values, without the pictures themselves.
        files: the pictures by the number of their item.
        notes: what was made smaller or left out, and why, a line each.
    """

    data: dict[str, Any]
    files: dict[int, bytes]
    notes: tuple[str, ...]


def explore(
    sources: Sequence[PageSource],
    rows: Sequence[Rows],
    lists: Sequence[Lists | None],
    order: Sequence[int],
    options: PageOptions,
    *,
    room: int,
    plane: Map | None = None,
) -> Explored:
    """Gather queries, neighbours and pictures within a number of bytes.

    Args:
        sources: the runs; the first knows names, labels and pictures.
        rows: the same queries in each of them.
        lists: the neighbours in each of them.
        order: positions in `rows`, the most important first; the first ones get neighbours and pictures.
        options: what was asked for.
        room: bytes that data and pictures may take together.
        plane: the map, if there is one.
    """
    draft = _Draft(sources, rows, lists, order, options, plane)
    asked = min(options.num_queries, len(order))
    listed = _fit_list(draft, asked, room)
    data, items, shown, size = _fit_pictures(draft, asked, listed, room)
    made = items.thumbnails.values()
    missing = sum(not one.data and one.text is None for one in made)
    changed = sum(bool(one.data and one.note) for one in made)
    rewritten = sum(bool(one.text is not None and one.note) for one in made)
    data["total"] = len(rows[0])
    notes = {
        f"the page lists {listed:,} of {len(rows[0]):,} queries: more do not fit (--max-size)": listed < len(rows[0]),
        f"{counted(shown, 'query has', 'queries have')} neighbours and pictures, not {asked:,}: more do not fit "
        "(--max-size)": shown < asked,
        f"pictures are at most {size} pixels wide, not {SIZES[0]}, to fit (--max-size)": size < SIZES[0],
        f"{counted(missing, 'picture is', 'pictures are')} missing; the page says why beside each": missing,
        f"{counted(changed, 'picture has', 'pictures have')} changed since the run": changed,
        f"{counted(rewritten, 'text has', 'texts have')} changed since the run": rewritten,
    }
    data["notes"] = {str(number): one.note for number, one in items.thumbnails.items() if one.note}
    data["texts"] = {str(number): one.text for number, one in items.thumbnails.items() if one.text is not None}
    files = {number: one.data for number, one in items.thumbnails.items() if one.data}
    return Explored(data, files, tuple(note for note, true in notes.items() if true))


@dataclasses.dataclass(frozen=True, eq=False)
class _Draft:
    """What `gather` is asked again and again, with fewer queries each time."""

    sources: Sequence[PageSource]
    rows: Sequence[Rows]
    lists: Sequence[Lists | None]
    order: Sequence[int]
    options: PageOptions
    plane: Map | None

    @property
    def has_pictures(self) -> bool:
        return self.options.pictures != "none" and not self.sources[0].images.missing

    def gather(self, shown: int, listed: int, items: Items | None = None) -> tuple[dict[str, Any], Items, list[int]]:
        """The data, the names in it, and the items that want a picture; pictures that were read are not read again."""
        items = Items(self.sources[0], read_before=items)
        kept = np.sort(np.array(self.order[:listed], np.int64))
        chosen = np.array(self.order[:shown], np.int64)
        queries = query_columns(self.sources[0], items, self.rows[0][kept])
        systems = [
            system_columns(
                source,
                items,
                own[kept],
                found,
                own[chosen],
                neighbours=self.options.neighbours,
                ks=self.sources[0].report.protocol.ks,  # of every system, so that one hit means the same in all
            )
            for source, own, found in zip(self.sources, self.rows, self.lists, strict=True)
        ]
        data: dict[str, Any] = {"queries": queries, "systems": systems}
        if self.plane is not None:
            data["map"] = _map_columns(self.sources[0], items, self.plane)
        places = np.searchsorted(kept, chosen)
        data["chosen"] = np.sort(places).tolist()
        data |= items.columns()
        wanted = []
        for place in places.tolist():
            wanted.append(queries["item"][place])
            for system in systems:
                if system["lists"] is not None:
                    start, end = system["lists"]["start"][place : place + 2]
                    wanted += system["lists"]["item"][start:end]
                if system["best"][place] >= 0:
                    wanted.append(system["best"][place])
        return data, items, list(dict.fromkeys(wanted))


def _fit_list(draft: _Draft, shown: int, room: int) -> int:
    """How many queries the page can list, beside pictures of some of them."""
    listed = len(draft.rows[0])
    while listed > shown and json_size(draft.gather(0, listed)[0]) > room * SHARE_OF_LIST:
        listed = max(int(listed * 0.7), shown)
    return listed


def _fit_pictures(draft: _Draft, shown: int, listed: int, room: int) -> tuple[dict[str, Any], Items, int, int]:
    """Data and pictures: smaller pictures first, then fewer queries that have some, until they fit."""
    size, items = SIZES[0], None
    while True:
        data, items, wanted = draft.gather(shown, listed, items)
        spare = room - json_size(data)
        if draft.has_pictures:
            items.make_pictures(wanted)
        while (taken := _size(items, draft.options)) > spare and taken and size > SIZES[-1]:
            size = SIZES[SIZES.index(size) + 1]
            items.shrink_pictures(size)
        if taken <= spare or not shown:
            return data, items, shown, size
        shown = int(shown * min(0.9, max(spare, 0) / taken)) if taken else int(shown * 0.8)


def _size(items: Items, options: PageOptions) -> int:
    total = sum(len(one.data) for one in items.thumbnails.values())
    return total * 4 // 3 + 40 * len(items.thumbnails) if options.pictures == "embed" else total


def _map_columns(source: PageSource, items: Items, plane: Map) -> dict[str, Any]:
    queries = source.report.queries
    values = np.asarray(queries[f"recall@{min(source.report.protocol.ks)}"], np.float64)[plane.rows]
    names = [(queries["id"][row], queries["label"][row]) for row in plane.rows.tolist()]
    return {
        "item": [items.query(name, label) for name, label in names],
        "x": np.round(plane.xy[:, 0], 3).tolist(),
        "y": np.round(plane.xy[:, 1], 3).tolist(),
        "state": np.where(np.isnan(values), 2, values < 1).astype(int).tolist(),
        "explained": [round(share, 4) for share in plane.explained],
    }
