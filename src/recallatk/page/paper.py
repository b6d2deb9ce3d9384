"""A page as it is put together, bounded, and written; what the three kinds of pages share."""

from __future__ import annotations

import base64
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recallatk.extras import import_extra
from recallatk.page.explorer import explore
from recallatk.page.gather import Lists
from recallatk.page.markup import fill, json_size, size_text
from recallatk.page.options import PageOptions, PageSource
from recallatk.page.plots import check_plotting
from recallatk.page.selection import Rows
from recallatk.report import Report
from recallatk.types import RecallatkError
from recallatk.wording import counted

NO_LISTS = (
    "This run has no embeddings, so the page has no neighbours, confusions or map. For those, keep the embeddings "
    "(recallatk eval --output DIR --save-embeddings), or make the page while evaluating (recallatk eval --report FILE)."
)


@dataclasses.dataclass(frozen=True, eq=False)
class Page:
    """A page that is ready to be written.

    Attributes:
        html: the page.
        files: the pictures that belong beside it, by their name in its folder.
        notes: what was left out or made smaller, a line each.
    """

    html: str
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the page and its pictures."""
        return len(self.html.encode("utf-8", "replace")) + sum(map(len, self.files.values()))


FOLDER = '<meta name="recallatk-pictures" content="'
"""What stands before the name of the folder of pictures, which is known when the page is written."""


def check_page(purpose: str) -> None:
    """Refuse before any work is done where no page can be made.

    Args:
        purpose: what it is needed for, as the start of a sentence.

    Raises:
        RecallatkError: jinja2 or matplotlib is not installed.
    """
    import_extra("jinja2", "report", purpose)
    check_plotting(purpose)


def write_page(page: Page, path: str | os.PathLike[str], *, overwrite: bool = False) -> tuple[str, ...]:
    """Write a page, and its pictures into a folder beside it, NAME_files, where they are not inside.

    Args:
        page: what to write.
        path: the HTML file.
        overwrite: write over what is there.

    Returns:
        What is to be known, a line each: the size first.

    Raises:
        RecallatkError: something is there already, or the disk refuses.
    """
    path = Path(path)
    folder = path.with_name(f"{path.stem}_files")
    if not overwrite:
        for there in (path, *([folder] if page.files else [])):
            if os.path.lexists(there):
                raise RecallatkError(
                    f"{there}: this is there already; name another file, or use overwrite (--overwrite)"
                )
    try:
        if page.files:
            if folder.is_dir():  # of an earlier page: its pictures alone, nothing else that may lie there
                for old in folder.glob("*.webp"):
                    old.unlink()
            folder.mkdir(parents=True, exist_ok=True)
            for name, data in page.files.items():
                (folder / name).write_bytes(data)
        path.write_text(
            _with_folder(page.html, folder.name) if page.files else page.html,
            encoding="utf-8",
            newline="\n",
            errors="replace",
        )
    except OSError as error:
        raise RecallatkError(f"{error.filename or path}: cannot be written ({error.strerror or error})") from error
    beside = f" with {counted(len(page.files), 'picture')} in {folder}" if page.files else ""
    return (f"wrote {path}{beside}, {size_text(page.size)}", *page.notes)


def _with_folder(html: str, name: str) -> str:
    from urllib.parse import quote

    return html.replace(FOLDER, FOLDER + quote(name.encode("utf-8", "surrogateescape")), 1)


def finish(
    template: str,
    fixed: dict[str, Any],
    data: dict[str, Any],
    sources: Sequence[PageSource],
    rows: Sequence[Rows],
    lists: Sequence[Lists | None],
    order: Sequence[int],
    options: PageOptions,
    plane: Any,
) -> Page:
    """Fill the room that the fixed parts of a page leave with queries and pictures."""
    empty = fill(template, data=data, size="", page_notes=[], **fixed)
    room = options.max_size - len(empty.encode("utf-8", "replace")) - 2000
    explored = explore(sources, rows, lists, order, options, room=max(room, 0), plane=plane)
    folder = options.pictures == "folder"
    if folder:
        addresses = names = {number: f"{number}.webp" for number in explored.files}
    else:
        names = {}
        addresses = {
            number: "data:image/webp;base64," + base64.b64encode(one).decode("ascii")
            for number, one in explored.files.items()
        }
    data = {**data, **explored.data, "pictures": addresses}
    files = {names[number]: one for number, one in explored.files.items()} if folder else {}
    total = len(empty.encode("utf-8", "replace")) + json_size({**explored.data, "pictures": addresses})
    total += sum(map(len, files.values()))
    html = fill(template, folder=folder, data=data, size=size_text(total), page_notes=explored.notes, **fixed)
    return bounded(Page(html, files, explored.notes), options)


def bounded(page: Page, options: PageOptions) -> Page:
    """The page, with a note where it is larger than it may be."""
    if page.size <= options.max_size:
        return page
    sizes = f"{size_text(page.size)}, more than {size_text(options.max_size)}"
    note = f"the page has {sizes}: labels, plots and map alone take that"
    return dataclasses.replace(page, notes=(*page.notes, note))


def common_data(report: Report, options: PageOptions) -> dict[str, Any]:
    """What the list of queries needs to know of the protocol."""
    return {
        "ks": list(report.protocol.ks),
        "seed": options.seed,
    }


def missing_lines(source: PageSource) -> list[str]:
    """What the page cannot show, and how to get it."""
    lines = []
    if source.query is None:
        lines.append(source.missing or NO_LISTS)
    if source.images.missing:
        lines.append(f"No pictures: {source.images.missing}")
    return lines


def rounded(value: float | None) -> float | None:
    """A value as the tables hold it."""
    return None if value is None else round(value, 4)


def with_the_rest(chosen: Rows, n: int) -> list[int]:
    """The chosen first, then all others."""
    first = chosen.tolist()
    known = set(first)
    return [*first, *(row for row in range(n) if row not in known)]
