"""The `dbStruct` of place recognition: a MATLAB file that lists both sides with their positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.datasets.benchmarks.files import Item
from recallatk.datasets.benchmarks.matlab import read_matlab
from recallatk.types import RecallatkError
from recallatk.wording import counted

_FIELDS = ("whichSet", "dbImage", "utmDb", "qImage", "utmQ")
"""The fields that are read, which are the first ones, in this order."""


@dataclasses.dataclass(frozen=True, eq=False)
class Side:
    """One side of a `dbStruct`.

    Attributes:
        names: a path for each image, as the file says it.
        positions: (n, 2) easting and northing in metres.
    """

    names: tuple[str, ...]
    positions: npt.NDArray[np.float64]

    def items(self, folder: str) -> list[Item]:
        """The images, which lie below a folder of the root ("": in the root itself)."""
        prefix = f"{folder}/" if folder else ""
        return [
            Item(f"{prefix}{name}", position=(float(easting), float(northing)))
            for name, (easting, northing) in zip(self.names, self.positions, strict=True)
        ]


def find_dbstruct(data: Path, file: str, *folders: str) -> tuple[Path, Path]:
    """The folder of the images, and the file, which lies in it or in its folder `datasets`.

    Args:
        data: DATA.
        file: what the file is called.
        folders: what the folder of the images may be called where DATA only holds it.

    Raises:
        RecallatkError: the file is in none of these places.
    """
    for root in (data, *(data / folder for folder in (*folders, "raw_data"))):
        for path in (root / file, root / "datasets" / file):
            if path.is_file():
                return root, path
    raise RecallatkError(
        f"{data}: no {file} in this folder nor in its datasets/; DATA is the folder of the images, and the .mat files "
        "come from netvlad_v100_datasets.tar.gz, which unpacks to datasets/"
    )


def folder_of(root: Path, names: Sequence[str], *folders: str) -> str:
    """The first of these folders below the root in which the first image lies; the first one where it lies in none."""
    return next((folder for folder in folders if names and (root / folder / names[0]).is_file()), folders[0])


def read_dbstruct(path: Path) -> tuple[Side, Side]:
    """The queries and the gallery that a file lists; a side may be empty.

    Raises:
        RecallatkError: the file cannot be read, or is no such file.
    """
    content = read_matlab(path)
    found = content.get("dbStruct")
    if not isinstance(found, np.ndarray) or found.dtype.names is None or found.size != 1:
        there = ", ".join(name for name in content if not name.startswith("__")) or "nothing"
        raise RecallatkError(f"{path}: it holds {there}, and no struct dbStruct; take the official file")
    names, values = found.dtype.names, found.ravel()[0]
    if len(names) < len(_FIELDS):
        raise RecallatkError(
            f"{path}: dbStruct has the fields {', '.join(names)}; the first must be {', '.join(_FIELDS)}"
        )
    chosen = _FIELDS if set(_FIELDS) <= set(names) else names[: len(_FIELDS)]
    fields = [values[field] for field in chosen]
    _, gallery_names, gallery_positions, query_names, query_positions = fields
    return (
        _side(path, query_names, query_positions, "qImage", "utmQ"),
        _side(path, gallery_names, gallery_positions, "dbImage", "utmDb"),
    )


def _side(path: Path, cells: Any, positions: Any, names_field: str, positions_field: str) -> Side:
    names = tuple(_text(path, cell, names_field).replace("\\", "/") for cell in np.asarray(cells).ravel())
    try:
        metres = np.asarray(positions, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise RecallatkError(
            f"{path}: {positions_field} of dbStruct holds no numbers; take the official file"
        ) from error
    if metres.shape == (len(names), 2) and metres.shape != (2, 2):
        metres = metres.T  # as numpy would have it; the official files have two rows
    if not names and not metres.size:
        return Side((), np.empty((0, 2)))
    if metres.shape != (2, len(names)):
        raise RecallatkError(
            f"{path}: {names_field} of dbStruct lists {counted(len(names), 'image')}, and {positions_field} has the "
            f"shape {metres.shape}, not (2, {len(names)}): easting and northing of each; take the official file"
        )
    return Side(names, np.ascontiguousarray(metres.T))


def _text(path: Path, cell: Any, field: str) -> str:
    while isinstance(cell, np.ndarray) and cell.size == 1:
        cell = cell.ravel()[0]
    if not isinstance(cell, str) or not cell.strip():
        raise RecallatkError(f"{path}: {field} of dbStruct holds {cell!r} where the name of an image is meant")
    return str(cell).strip()
