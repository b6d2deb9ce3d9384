"""The queries of a page as data, with as many pictures as the page may hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from recallatk.page.gather import Lists, query_columns, system_columns
from recallatk.page.items import Items
from recallatk.page.markup import as_json
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
    shown = min(options.num_queries, len(order))
    listed = len(rows[0])
    notes: list[str] = []
    while True:
        data, items, wanted = _gather(sources, rows, lists, order, shown=0, listed=listed, options=options, plane=plane)
        if len(as_json(data)) <= room * SHARE_OF_LIST or listed <= shown:
            break
        listed = max(int(listed * 0.7), shown)
    if listed < len(rows[0]):
        notes.append(f"the page lists {listed:,} of {len(rows[0]):,} queries: more do not fit (--max-size)")
    asked = shown
    size = SIZES[0]
    while True:
        data, items, wanted = _gather(
            sources, rows, lists, order, shown=shown, listed=listed, options=options, plane=plane, items=items
        )
        spare = room - len(as_json(data))
        if options.pictures == "none" or sources[0].images.missing:
            break
        items.make_pictures(wanted)
        items.keep_pictures(set(wanted))
        while (over := _size(items, options)) > spare and size > SIZES[-1]:
            size = SIZES[SIZES.index(size) + 1]
            items.shrink_pictures(size)
        if over <= spare or not shown:
            break
        shown = int(shown * min(0.9, max(spare, 0) / over))
    if options.pictures == "none" or sources[0].images.missing:
        while shown and len(as_json(data)) > room:
            shown = int(shown * 0.8)
            data, items, wanted = _gather(
                sources, rows, lists, order, shown=shown, listed=listed, options=options, plane=plane
            )
    if shown < asked:
        notes.append(
            f"{counted(shown, 'query has', 'queries have')} pictures, not {asked:,}: more do not fit (--max-size)"
        )
    if size < SIZES[0]:
        notes.append(f"pictures are {size} pixels wide, not {SIZES[0]}, to fit (--max-size)")
    files = {number: one.data for number, one in items.thumbnails.items() if one.data}
    missing = sum(not one.data for one in items.thumbnails.values())
    changed = sum(bool(one.data and one.note) for one in items.thumbnails.values())
    if missing:
        notes.append(f"{counted(missing, 'picture is', 'pictures are')} missing; the page says why beside each")
    if changed:
        notes.append(f"{counted(changed, 'picture has', 'pictures have')} changed since the run")
    data["notes"] = {str(number): one.note for number, one in items.thumbnails.items() if one.note}
    data["shown"] = shown
    return Explored(data, files, tuple(notes))


def _size(items: Items, options: PageOptions) -> int:
    total = sum(len(one.data) for one in items.thumbnails.values())
    return total * 4 // 3 + 40 * len(items.thumbnails) if options.pictures == "embed" else total


def _gather(
    sources: Sequence[PageSource],
    rows: Sequence[Rows],
    lists: Sequence[Lists | None],
    order: Sequence[int],
    *,
    shown: int,
    listed: int,
    options: PageOptions,
    plane: Map | None,
    items: Items | None = None,
) -> tuple[dict[str, Any], Items, list[int]]:
    """The data, the names in it, and the items that want a picture."""
    before = items
    items = Items(sources[0])
    if before is not None:
        items.adopt(before)
    kept = np.sort(np.array(list(order[:listed]), np.int64))
    chosen = np.array(list(order[:shown]), np.int64)
    queries = query_columns(sources[0], items, rows[0][kept])
    systems = [
        system_columns(source, items, own[kept], found, own[chosen], options.neighbours)
        for source, own, found in zip(sources, rows, lists, strict=True)
    ]
    data: dict[str, Any] = {"queries": queries, "systems": systems, **items.columns()}
    position = {place: number for number, place in enumerate(kept.tolist())}
    wanted = []
    for place in order[:shown]:
        number = position[place]
        wanted.append(queries["item"][number])
        for system in systems:
            if system["lists"] is not None:
                start, end = system["lists"]["start"][number : number + 2]
                wanted += system["lists"]["item"][start:end]
            if system["best"][number] >= 0:
                wanted.append(system["best"][number])
    if plane is not None:
        data["map"] = _map_columns(sources[0], items, plane)
        data |= items.columns()
    data["chosen"] = sorted(position[place] for place in order[:shown])
    return data, items, list(dict.fromkeys(wanted))


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
