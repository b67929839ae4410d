"""Rows in memory: arrays, and frames of any library that speaks Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._kinfolk import Rows


def is_frame(table: Any) -> bool:
    """Whether columns have names, and kinds of their own."""
    return hasattr(table, "__arrow_c_stream__") or hasattr(table, "columns") and hasattr(table, "dtypes")


def read_frame(frame: Any) -> Rows:
    """The rows of a frame."""
    if hasattr(frame, "reset_index"):
        # To Arrow, the index of pandas is one more column.
        frame = frame.reset_index(drop=True)
    if hasattr(frame, "__arrow_c_stream__"):
        try:
            return Rows.of_arrow(frame)
        except (ImportError, TypeError, ValueError):
            # Without pyarrow, or with columns of mixed kinds, pandas has no Arrow to offer.
            if not hasattr(frame, "columns"):
                raise
    return Rows.of_columns([(str(name), cells(frame[name])) for name in frame.columns])


def read_array(array: np.ndarray[Any, Any], names: list[str]) -> Rows:
    """The rows of an array of numbers, under these names of its columns."""
    return Rows.of_columns([(name, column) for name, column in zip(names, array.T, strict=True)])


def cells(values: Any) -> np.ndarray[Any, Any] | list[str | None]:
    """The cells of a column: numbers, or texts."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"got the shape {array.shape}, want one dimension")
    if array.dtype.kind == "f":
        return array.astype(np.float64, copy=False)
    if array.dtype.kind in "iu" and array.dtype != np.uint64:
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "b":
        return ["true" if cell else "false" for cell in array]
    return [None if _is_missing(cell) else str(cell) for cell in array]


def _is_missing(cell: object) -> bool:
    # NaN, NaT and pandas' NA are the values that are not equal to themselves, in a word or another.
    return cell is None or str(cell) in ("nan", "NaN", "NaT", "<NA>")
