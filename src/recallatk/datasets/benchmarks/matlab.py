"""The .mat files of benchmarks: a variable, or an array of structs as rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from recallatk.types import RecallatkError

HDF5 = b"\x89HDF"


def read_matlab(path: Path, **how: Any) -> dict[str, Any]:
    """The variables of a .mat file up to version 7.

    Args:
        path: the file.
        how: arguments of `scipy.io.loadmat`.

    Raises:
        RecallatkError: the file cannot be read, is of version 7.3, or is no whole .mat file.
    """
    from scipy.io import loadmat  # slow to import

    newer = f"{path}: a .mat file of version 7.3 (HDF5); take the official file, or save it again in MATLAB with -v7"
    try:
        with path.open("rb") as stream:
            start = stream.read(len(HDF5))
    except OSError as error:
        raise RecallatkError(f"{path}: cannot be read ({error.strerror or error})") from error
    if start == HDF5:
        raise RecallatkError(newer)
    try:
        content: dict[str, Any] = loadmat(path, appendmat=False, **how)
    except NotImplementedError as error:  # what scipy says of version 7.3 behind a header of its own
        raise RecallatkError(newer) from error
    except Exception as error:  # a file that is cut, or is none: whatever scipy trips over
        raise RecallatkError(f"{path}: this is no MATLAB file, or not a whole one; take the official file") from error
    return content


def read_variable(path: Path, variable: str) -> Any:
    """A variable of a .mat file, with dimensions of length 1 left out.

    Raises:
        RecallatkError: as for `read_matlab`, or there is no such variable.
    """
    content = read_matlab(path, squeeze_me=True, variable_names=[variable])
    if variable not in content:
        raise RecallatkError(f"{path}: no variable {variable}; take the official file")
    return content[variable]


def read_structs(path: Path, variable: str, fields: Mapping[str, type]) -> list[tuple[str, list[Any]]]:
    """An array of structs, a row each, with its place in messages ("FILE: annotations(3)", from 1 as in MATLAB).

    Args:
        path: the file.
        variable: the array.
        fields: the fields that are read, in any order in the file -> `str`, or `int` for whole numbers.

    Raises:
        RecallatkError: as for `read_variable`, or a field is not there, or holds something else.
    """
    array = np.atleast_1d(read_variable(path, variable))
    names = array.dtype.names or ()
    absent = [field for field in fields if field not in names]
    if absent:
        raise RecallatkError(
            f"{path}: {variable} has no field {' and no '.join(absent)} (it has {', '.join(names) or 'no fields'}); "
            "take the official file"
        )
    rows = []
    for number, struct in enumerate(array.ravel(), start=1):
        where = f"{path}: {variable}({number})"
        rows.append((where, [_value(where, name, struct[name], kind) for name, kind in fields.items()]))
    return rows


def _value(where: str, field: str, value: Any, kind: type) -> Any:
    value = value.item() if isinstance(value, np.ndarray | np.generic) and value.size == 1 else value
    if kind is str and isinstance(value, str) and value.strip():
        return value.strip()
    if kind is int and isinstance(value, int | float) and float(value).is_integer():
        return int(value)
    wanted = "text" if kind is str else "a whole number"
    raise RecallatkError(f"{where}: {field} is not {wanted}; take the official file")
