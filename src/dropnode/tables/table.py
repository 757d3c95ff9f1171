"""Table: the columns of a file, the number of each row in it, and values in common types.

Whatever a file is, its columns come in few types: text, int64, float64, booleans, lists of these.
All else, such as dates, stays as it is, and no encoder takes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dropnode.settings import shown, suggestion
from dropnode.tables.problems import Problems

Column: TypeAlias = Any
"""A ``pyarrow.ChunkedArray`` (pyarrow ships no types)."""

MISSING = ("", "nan", "na", "n/a", "null")
"""The texts that stand for a missing value, in any case of letters."""

WHOLE = 2.0**53
"""From here on, floating point numbers cannot tell whole numbers apart."""


@dataclass(frozen=True)
class Table:
    """The columns of a file.

    Attributes
    ----------
    name : str
        The name of the file in messages.
    columns : dict of str to Column
        The columns by name, in order.
    plain_text : bool
        Whether every cell is text, as in CSV, so that a text may stand for a number.
    first_row : int
        The number of the first row in the file.
    rows : ndarray or None
        The number of every row in the file, if some rows of it were left out.
    notes : tuple of str
        What a reader of the file should be told.
    """

    name: str
    columns: dict[str, Column]
    plain_text: bool = False
    first_row: int = 1
    rows: np.ndarray | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def row_numbers(self, positions: np.ndarray) -> np.ndarray:
        """Return the numbers in the file of rows at some positions."""
        return self.first_row + positions if self.rows is None else self.rows[positions]

    def report(
        self, problems: Problems, column: str, positions: np.ndarray, text: str, *values: Any
    ) -> None:
        """Add a problem of the cells of a column at some positions; ``{}`` in the text is the cell.

        ``values`` has, for every further ``{}``, one value per position.
        """
        cells = self.columns[column].take(pa.array(positions[:100], pa.int64())).to_pylist()

        def tell(at: int) -> str:
            return text.format(shown(cells[at]), *(value[at] for value in values))

        problems.add_rows(self.name, column, self.row_numbers(positions), tell)


def common_type(column: Column) -> Column:
    """Return a column in one of the common types, if it has a counterpart among them."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_integer(kind):
        return column.cast(pa.int64()) if fits(column) else column.cast(pa.string())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    if is_list(kind):
        inner = common_type(pa.chunked_array([], kind.value_type)).type
        if pa.types.is_uint64(kind.value_type) and not fits(pc.list_flatten(column)):
            inner = pa.string()
        return column.cast(pa.list_(inner))
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    return column


def fits(column: Column) -> bool:
    """Return whether whole numbers fit into 64 bits with a sign."""
    if not pa.types.is_uint64(column.type) or not len(column):
        return True
    largest = pc.max(column).as_py()
    return largest is None or largest < 2**63


def is_list(kind: Any) -> bool:
    """Return whether a type is a list of any sort."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def is_text(column: Column) -> bool:
    """Return whether a column is text."""
    return bool(pa.types.is_string(column.type))


def is_scalar(column: Column) -> bool:
    """Return whether a column has text, numbers or booleans."""
    kind = column.type
    return is_text(column) or kind in (pa.int64(), pa.float64(), pa.bool_())


def texts(column: Column) -> Column:
    """Return scalar values as text without white space around, null where they are missing.

    Whole floats are written as integers, because a column of integers with missing values arrives
    as floats.

    Examples
    --------
    >>> texts(pa.chunked_array([[1.0, None, 2.5]])).to_pylist()
    ['1', None, '2.5']
    >>> texts(pa.chunked_array([[" a", "NA", "b"]])).to_pylist()
    ['a', None, 'b']
    """
    column = plain_texts(column)
    missing = pc.is_in(pc.utf8_lower(column), value_set=pa.array(MISSING))
    return pc.if_else(missing, pa.scalar(None, pa.string()), column)


def plain_texts(column: Column) -> Column:
    """Return scalar values as text without white space around; no text but "" is missing."""
    if column.type == pa.float64():
        return _float_texts(column)
    column = pc.utf8_trim_whitespace(column) if is_text(column) else column.cast(pa.string())
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def _float_texts(column: Column) -> Column:
    values = column.to_numpy()
    with np.errstate(invalid="ignore"):
        whole = (np.abs(values) < WHOLE) & (np.trunc(values) == values)
    integers = pc.cast(pa.array(np.where(whole, values, 0.0).astype(np.int64)), pa.string())
    written = pc.cast(pa.array(values), pa.string())
    absent = pa.array(np.isnan(values))
    chosen = pc.if_else(pa.array(whole), integers, written)
    return pa.chunked_array([pc.if_else(absent, pa.scalar(None, pa.string()), chosen)])


def positions(mask: Any) -> np.ndarray:
    """Return the positions at which a column of booleans is true; null is false."""
    return np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))


def find_column(table: Table, name: str, what: str, problems: Problems) -> bool:
    """Return whether a table has a column that was asked for; if not, that is a problem."""
    if name in table.columns:
        return True
    known = list(table.columns)
    told = suggestion(str(name), known[:20])
    if len(known) == 1:
        told += "; only commas, semicolons and tabs are recognised between columns"
    problems.add(table.name, f"has no column {shown(name)} for the {what}{told}")
    return False


def first_named(table: Table, names: Iterable[str]) -> str | None:
    """Return the first column with one of some names, in any case of letters."""
    by_name = {name.lower(): name for name in reversed(table.columns)}
    return next((by_name[name] for name in names if name in by_name), None)
