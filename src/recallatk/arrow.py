"""Columns of a report as an Arrow table and back, and as a data frame where such a library is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recallatk.extras import import_extra

ROWS_A_BLOCK = 2**16
"""Rows of text that become a piece of a column together."""


def to_arrow(columns: Mapping[str, Any]) -> Any:
    """A pyarrow.Table of columns; NaN, the value of an excluded query, becomes null.

    Labels are text, or lists of text where a row may have several.
    """
    import pyarrow as pa

    return pa.table({name: _array(values) for name, values in columns.items()})


def from_arrow(table: Any) -> dict[str, Any]:
    """The columns of a table as a report has them: arrays of numpy for numbers and flags, tuples for text."""
    return {name: _column(table.column(name)) for name in table.column_names}


def to_pandas(columns: Mapping[str, Any]) -> Any:
    """The same as a pandas.DataFrame.

    Raises:
        RecallatkError: pandas is not installed; the message is the pip command.
    """
    import_extra("pandas", "pandas", "to_pandas()")
    return to_arrow(columns).to_pandas()


def to_polars(columns: Mapping[str, Any]) -> Any:
    """The same as a polars.DataFrame.

    Raises:
        RecallatkError: polars is not installed; the message is the pip command.
    """
    return import_extra("polars", "polars", "to_polars()").from_arrow(to_arrow(columns))


def _array(values: Any) -> Any:
    import pyarrow as pa

    if isinstance(values, np.ndarray):
        return pa.array(values, from_pandas=True)
    several = any(isinstance(value, tuple) for value in values)
    kind = pa.list_(pa.string()) if several else pa.string()
    blocks = (values[start : start + ROWS_A_BLOCK] for start in range(0, len(values), ROWS_A_BLOCK))
    return pa.chunked_array([pa.array(_lists(block) if several else list(block), kind) for block in blocks], kind)


def _lists(labels: Any) -> list[list[str]]:
    return [[label] if isinstance(label, str) else list(label) for label in labels]


def _column(column: Any) -> Any:
    if str(column.type) in ("int64", "double", "bool"):
        return column.to_numpy()
    return tuple(tuple(value) if isinstance(value, list) else value for value in column.to_pylist())
