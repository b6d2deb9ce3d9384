"""What the layouts of benchmarks share: the files that list images, and rows that become an ImageSet."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from recallatk.datasets.benchmarks.description import Needed
from recallatk.datasets.naming import same_file, shown
from recallatk.datasets.walk import is_hidden
from recallatk.images import box_suffix
from recallatk.types import Box, ImageSet, Label, OnError, RecallatkError, Skipped
from recallatk.wording import and_more, counted


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One image that a benchmark lists.

    Attributes:
        path: below the root, with "/".
        label: one label, or several; an empty tuple is none.
        groups: named columns; every item of a side has the same.
        position: easting and northing in metres.
        box: the part of the picture that is the image.
    """

    path: str
    label: Label = ()
    groups: Mapping[str, str] = dataclasses.field(default_factory=dict)
    position: tuple[float, float] | None = None
    box: Box | None = None


def is_there(root: Path, needed: Needed) -> bool:
    """Whether a file or folder lies below a folder; of several names one is enough."""
    return first_there(root, *_names(needed)) is not None


def first_there(root: Path, *names: str) -> Path | None:
    """The first of these files or folders that lies below a folder; * and ? stand for what differs in a name."""
    for name in names:
        found = next(root.glob(name), None) if set("*?") & set(name) else root / name
        if found is not None and found.exists():
            return found
    return None


def search_root(data: Path, folder: str, *needed: Needed) -> Path | None:
    """The folder that holds the benchmark's files, or None: DATA, the folder of its name in it, or any other one in it.

    Args:
        data: DATA.
        folder: what the archive unpacks to; looked for twice inside each other, as some tools unpack it.
        needed: what must be there.

    Raises:
        RecallatkError: several folders of other names hold it.
    """
    for root in (data, data / folder, data / folder / folder):
        if all(is_there(root, one) for one in needed):
            return root
    inside = sorted(one for one in data.iterdir() if one.is_dir() and not is_hidden(one.name)) if data.is_dir() else []
    roots = [root for root in inside if all(is_there(root, one) for one in needed)]
    if len(roots) > 1:
        several = ", ".join(root.name for root in roots)
        raise RecallatkError(f"{data}: several folders in it are such a copy ({several}); give one of them as DATA")
    return roots[0] if roots else None


def find_root(data: Path, folder: str, *needed: Needed) -> Path:
    """The folder that holds the benchmark's files, as `search_root` finds it.

    Raises:
        RecallatkError: something that is needed is not there, or lies in several folders.
    """
    root = search_root(data, folder, *needed)
    if root is not None:
        return root
    roots = [root for root in (data, data / folder) if root.is_dir()]
    root = max(roots, key=lambda root: sum(is_there(root, one) for one in needed), default=data)
    absent = [" or ".join(_names(one)) for one in needed if not is_there(root, one)]
    raise RecallatkError(
        f"{root}: no {' and no '.join(absent)} in this folder; DATA is the folder that holds "
        f"{', '.join(_names(one)[0] for one in needed)} (often called {folder})"
    )


def folder_of_pictures(root: Path, paths: Iterable[str], *places: str) -> Path:
    """The first of these folders below the root in which a listed file lies; the first of all where none does."""
    found = (root / place for path in paths for place in places if os.path.isfile(root / place / path))  # noqa: PTH113 - may be too long
    return next(found, root / places[0])


def _names(needed: Needed) -> tuple[str, ...]:
    return (needed,) if isinstance(needed, str) else needed


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a text file that are not blank, each with its place in messages ("FILE: line 3").

    Raises:
        RecallatkError: the file cannot be read, or is not UTF-8.
    """
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise RecallatkError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise RecallatkError(f"{path}: this is no text in UTF-8 ({error.reason}); take the official file") from error
    for number, line in enumerate(text.split("\n"), start=1):  # not where only Unicode knows a line's end
        if line.strip():
            yield f"{path}: line {number}", line


def read_fields(path: Path, *names: str, separator: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """The lines of a text file as fields, each with its place; the last field may hold blanks.

    Args:
        path: the file.
        names: what the fields are, for messages.
        separator: what parts them; None: blanks.

    Raises:
        RecallatkError: as for `read_lines`, or a line with fewer fields.
    """
    for where, line in read_lines(path):
        found = [field.strip() for field in line.strip().split(separator, len(names) - 1)]
        if len(found) != len(names):
            raise RecallatkError(
                f"{where} has {counted(len(found), 'field')}, not {len(names)} ({', '.join(names)}); "
                "take the official file"
            )
        yield where, found


def read_pairs(path: Path, key: str, value: str) -> dict[str, str]:
    """A file with a key and a value on each line.

    Raises:
        RecallatkError: as for `read_fields`, or a key that stands there twice.
    """
    pairs: dict[str, str] = {}
    for where, (name, one) in read_fields(path, key, value):
        if name in pairs:
            raise RecallatkError(f"{where}: {key} {name} stands there twice; take the official file")
        pairs[name] = one
    return pairs


def image_set(
    root: Path, items: Sequence[Item], *, on_error: OnError, side: str = "image"
) -> tuple[ImageSet, tuple[Skipped, ...]]:
    """The items as one side of a data set, and those whose file is not there.

    Ids are the paths below the root, with the box appended where there is one; so they do not depend on where the copy
    lies. Images with equal bytes stay two images.

    Raises:
        RecallatkError: nothing is listed, a path is listed twice, or files are missing (unless `on_error` is skip).
    """
    if not items:
        raise RecallatkError(f"{root}: the lists name no {side}; take the official files")
    places = [(item.path, item.box) for item in items]
    if len(set(places)) < len(places):
        path, _ = next(place for place, times in Counter(places).items() if times > 1)
        raise RecallatkError(f"{root}: the lists name {path} twice ({side}); take the official files")
    files = _Files(root)
    missing = [item for item in items if not files.has(item.path)]
    if missing and (on_error == "error" or len(missing) == len(items)):
        are = "is" if len(missing) == 1 else "are"
        raise RecallatkError(
            f"{root / missing[0].path}: no such file{and_more(len(missing), 'file')}: of the {len(items):,} that the "
            f"lists name ({side}), {len(missing):,} {are} missing; complete the copy"
            + ("" if len(missing) == len(items) else ", or evaluate what is there with --on-error skip")
        )
    absent = {item.path for item in missing}
    kept = [item for item in items if item.path not in absent]
    base = os.path.realpath(root)
    suffixes = [box_suffix(item.box) if item.box is not None else "" for item in kept]
    columns = list(dict.fromkeys(name for item in kept for name in item.groups))
    images = ImageSet(
        elements=tuple(root / item.path for item in kept),
        ids=tuple(shown(item.path) + suffix for item, suffix in zip(kept, suffixes, strict=True)),
        labels=tuple(item.label for item in kept),
        same=tuple(
            same_file(files.real(item.path), [(base, "")]) + suffix for item, suffix in zip(kept, suffixes, strict=True)
        ),
        groups={name: tuple(item.groups[name] for item in kept) for name in columns},
        positions=np.array([item.position for item in kept]) if kept[0].position is not None else None,
        boxes=tuple(item.box for item in kept) if any(suffixes) else None,
    )
    return images, tuple(Skipped(shown(item.path), "no such file") for item in missing)


class _Files:
    """The files below a root, a folder listed when it is first asked about.

    With a call for every file alone, the million images of the largest sets would take minutes.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._folders: dict[str, tuple[str, dict[str, bool]]] = {}

    def has(self, path: str) -> bool:
        """Whether there is such a file."""
        _, listed, name = self._folder_of(path)
        # What is not listed may be there all the same: some disks know a name in more than one form.
        return name in listed or os.path.isfile(os.path.join(self._root, path))  # noqa: PTH113, PTH118 - may be too long

    def real(self, path: str) -> str:
        """The file with every link followed."""
        folder, listed, name = self._folder_of(path)
        is_link = listed.get(name, True)
        return os.path.realpath(f"{self._root}/{path}") if is_link else os.path.join(folder, name)  # noqa: PTH118

    def _folder_of(self, path: str) -> tuple[str, dict[str, bool], str]:
        """The resolved folder, its files (each with whether it is a link), and the file's name."""
        below, _, name = path.rpartition("/")
        if below not in self._folders:
            folder = os.path.join(self._root, below)  # noqa: PTH118
            listed: dict[str, bool] = {}
            try:
                with os.scandir(folder) as entries:
                    listed = {entry.name: entry.is_symlink() for entry in entries if entry.is_file()}
            except (OSError, ValueError):  # no such folder, or no name of one
                pass
            self._folders[below] = (os.path.realpath(folder), listed)
        return *self._folders[below], name
