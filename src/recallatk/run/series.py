"""Several runs on disk: a folder of runs, in natural order, with those that failed or never finished."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from recallatk.datasets.naming import shown
from recallatk.encoders.request import natural_order
from recallatk.report import Report
from recallatk.run.folder import FAILED, RECORD, load_report, read_failure, run_folder
from recallatk.types import RecallatkError


def load_runs(places: Sequence[str | os.PathLike[str]]) -> dict[str, Report | RecallatkError]:
    """The runs in these folders by name; for one that failed, did not finish or cannot be read, the reason.

    Args:
        places: folders of runs, or runs. The runs of a folder come in natural order (2 before 10).

    Returns:
        Runs by the name of their folder, with as many of the folders above as it takes to tell them apart.

    Raises:
        RecallatkError: a place is no folder, or there is no run in it; a run is named twice.
    """
    folders = [folder for place in places for folder in _runs_in(Path(place))]
    resolved = [folder.resolve() for folder in folders]
    for row, folder in enumerate(resolved):
        if folder in resolved[:row]:
            raise RecallatkError(f"{folders[row]}: this run is named twice; name each run once")
    return {name: _load(folder) for name, folder in zip(distinct_names(folders), folders, strict=True)}


def _runs_in(place: Path) -> list[Path]:
    place = run_folder(place)
    if not os.path.isdir(place):  # noqa: PTH112 - a name may be long
        raise RecallatkError(f"{place}: no such folder; name runs, or a folder that holds them")
    if (place / RECORD).exists() or (place / FAILED).exists():
        return [place]
    try:
        inside = [folder for folder in place.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
        runs = any((folder / name).exists() for folder in inside for name in (RECORD, FAILED))
        deeper = None if runs else next(iter(sorted(place.glob(f"*/*/{RECORD}"))), None)
    except OSError as error:
        raise RecallatkError(f"{place}: cannot be read ({error.strerror})") from error
    if deeper is not None:
        view = shown(deeper.parent.name)
        raise RecallatkError(f"{place}: its runs lie a folder deeper; name those of one kind, such as {place}/*/{view}")
    if not runs:
        raise RecallatkError(f"{place}: there is no run in it; write some with `recallatk eval ... --output DIR`")
    return sorted(inside, key=lambda folder: natural_order(shown(folder.name)))


def _load(folder: Path) -> Report | RecallatkError:
    try:
        if (folder / FAILED).exists():
            return RecallatkError(read_failure(folder))
        if not (folder / RECORD).exists():
            return RecallatkError(f"no {RECORD}: the run did not finish, or this is none")
        return load_report(folder)
    except (RecallatkError, OSError) as error:
        return RecallatkError(f"cannot be read: {error}")


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of paths that tell folders apart; one folder named twice gets a number.

    >>> distinct_names([Path("/a/base/run"), Path("/a/new/run"), Path("/a/new/run")])
    ['base/run', 'new/run', 'new/run (2)']
    """
    parts = [Path(os.path.abspath(folder)).parts for folder in folders]  # noqa: PTH100 - links keep their names
    names = []
    for own in parts:
        others = [other for other in parts if other != own]
        length = 1
        while length < len(own) and any(other[-length:] == own[-length:] for other in others):
            length += 1
        names.append(shown("/".join(own[-length:])))
    return [
        name if name not in names[:place] else f"{name} ({names[: place + 1].count(name)})"
        for place, name in enumerate(names)
    ]
