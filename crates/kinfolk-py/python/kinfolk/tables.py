"""Tables of a run: columns by name, as numpy arrays, and for everything that reads Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, NoReturn

import numpy as np

from ._kinfolk import Columns

SHOWN_ROWS = 10


class Table:
    """The columns of a csv file of a run: same names, same order.

    Used like a dict it gives numpy arrays. Where a number is missing its column is of floats, with NaN there; texts that
    are missing are empty. To Arrow (`polars.DataFrame(table)`, `pandas.DataFrame.from_arrow(table)`,
    `pyarrow.table(table)`) whole numbers stay whole, and what is missing is null.
    """

    # No Mapping by name: libraries would then take the arrays, and never ask for Arrow.

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._arrays:
            values = self._columns.values(name)
            self._arrays[name] = np.array(values, dtype=np.str_) if isinstance(values, list) else values
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.names)

    def __len__(self) -> int:
        return len(self._columns.names)

    def __contains__(self, name: object) -> bool:
        return name in self._columns.names

    def keys(self) -> list[str]:
        """What the columns are called."""
        return self._columns.names

    def values(self) -> list[np.ndarray[Any, Any]]:
        """The columns."""
        return [self[name] for name in self]

    def items(self) -> list[tuple[str, np.ndarray[Any, Any]]]:
        """The columns with their names."""
        return [(name, self[name]) for name in self]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._columns.rows

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a table is no array; take its columns, dict(table), or pandas.DataFrame.from_arrow(table)")

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._columns.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"Table of {self.rows} rows: {', '.join(self)}"

    def _repr_html_(self) -> str:
        shown = zip(*(self[name][:SHOWN_ROWS] for name in self), strict=True)
        table = html_table(list(self), ([str(cell) for cell in row] for row in shown))
        more = self.rows - SHOWN_ROWS
        return table if more <= 0 else f"{table}<p>and {more} more rows</p>"


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a notebook."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
