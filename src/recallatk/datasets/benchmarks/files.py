"""What the layouts of benchmarks share: the files that list images, and rows that become an ImageSet."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from recallatk.datasets.naming import same_file, shown
from recallatk.images import box_suffix
from recallatk.types import Box, ImageSet, Label, OnError, RecallatkError, Skipped
from recallatk.wording import and_more, counted


@dataclasses.dataclass(frozen=True)
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


def find_root(data: Path, folder: str, *needed: str) -> Path:
    """The folder that holds the benchmark's files: DATA, or the folder in it that has the benchmark's own name.

    Args:
        data: DATA.
        folder: what the archive unpacks to.
        needed: files or folders that must be there.

    Raises:
        RecallatkError: something that is needed is not there.
    """
    roots = [root for root in (data, data / folder) if root.is_dir()]
    for root in roots:
        if all((root / name).exists() for name in needed):
            return root
    root = max(roots, key=lambda root: sum((root / name).exists() for name in needed), default=data)
    absent = [name for name in needed if not (root / name).exists()]
    raise RecallatkError(
        f"{root}: no {' and no '.join(absent)} in this folder; DATA is the folder that holds "
        f"{', '.join(needed)} (often called {folder})"
    )


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
    missing = [item for item in items if not os.path.isfile(root / item.path)]  # noqa: PTH113 - a name may be too long
    if missing and (on_error == "error" or len(missing) == len(items)):
        raise RecallatkError(
            f"{root / missing[0].path}: no such file{and_more(len(missing), 'file')}: of the {len(items):,} that the "
            f"lists name ({side}), {len(missing):,} are missing; complete the copy"
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
            same_file(os.path.realpath(root / item.path), [(base, "")]) + suffix
            for item, suffix in zip(kept, suffixes, strict=True)
        ),
        groups={name: tuple(item.groups[name] for item in kept) for name in columns},
        positions=np.array([item.position for item in kept]) if kept[0].position is not None else None,
        boxes=tuple(item.box for item in kept) if any(suffixes) else None,
    )
    return images, tuple(Skipped(shown(item.path), "no such file") for item in missing)
