"""How the files of a data set are named: in ids and in `same`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recallatk.types import ChoiceError


def shown(name: str) -> str:
    r"""A file name as valid text: bytes that are no UTF-8 become visible escapes.

    >>> shown("caf\udce9.png")
    'caf\\xe9.png'
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def as_source(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as values that a record can hold; what was not given is left out.

    >>> as_source({"data": Path("photos"), "root": None, "seed": 0})
    {'data': 'photos', 'seed': 0}
    """
    return {
        name: shown(os.fspath(value)) if isinstance(value, Path) else value
        for name, value in arguments.items()
        if value is not None
    }


def same_file(real: str, bases: Sequence[tuple[str, str]]) -> str:
    """The text that stands for a resolved file: equal for two paths exactly when they lead to the same file.

    Args:
        real: the file with every link followed.
        bases: (resolved folder, prefix) in order; the first folder that holds the file makes it relative, so that a
            data set that is moved keeps its names. A file outside them keeps its absolute path.
    """
    for folder, prefix in bases:
        inside = folder.rstrip(os.sep) + os.sep
        if real.startswith(inside):
            return prefix + shown(real[len(inside) :]).replace(os.sep, "/")
    return shown(real).replace(os.sep, "/")


def split_labels(cell: str, separator: str) -> tuple[str, ...]:
    """The labels of one cell; blanks are kept, and an empty cell is no label.

    >>> split_labels("cat|pet", "|")
    ('cat', 'pet')
    """
    if not separator:
        raise ChoiceError("label_separator='' separates nothing; give a text such as '|', or leave it out")
    return tuple(part for part in cell.split(separator) if part)
