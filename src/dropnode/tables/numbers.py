"""Columns as numbers, whether they come as numbers or as text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dropnode.tables.problems import Problems
from dropnode.tables.table import Column, Table, is_scalar, is_text, positions, texts

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf(inity)?)$"
"""A number as text. Cells such as NaN are missing values before they could be numbers."""

CODE = r"^[+-]?0\d"
"""A number with a leading zero, such as a postal code: nobody writes a quantity so."""

COMMA = r"^[+-]?\d+,\d+$"
"""A number with a decimal comma, or one with a comma between thousands."""


def numeric_share(column: Column) -> float:
    """Return the share of the present cells of a column of text that are numbers.

    A column with codes has none.

    Examples
    --------
    >>> numeric_share(pa.chunked_array([["1", "2.5e3", None, "x"]])).__round__(2)
    0.67
    >>> numeric_share(pa.chunked_array([["01234", "98765"]]))
    0.0
    """
    present = len(column) - column.null_count
    if not present or positions(pc.match_substring_regex(column, CODE)).size:
        return 0.0
    return len(positions(pc.match_substring_regex(column, NUMBER))) / present


def read_numbers(table: Table, name: str, problems: Problems) -> np.ndarray:
    """Return a column as float64, NaN where a cell is missing; what is no number is a problem."""
    column = table.columns[name]
    if not is_scalar(column):
        problems.add(table.name, f"{column.type} where numbers are expected", column=name)
        return np.full(len(column), np.nan)
    if is_text(column):
        column = texts(column)
        fine = pc.match_substring_regex(column, NUMBER)
        wrong = positions(pc.invert(fine))
        table.report(problems, name, wrong, "{} is not a number; correct it or empty the cell")
        column = pc.if_else(fine, column, pa.scalar(None, pa.string()))
    values: np.ndarray = _floats(column)
    endless = np.flatnonzero(np.isinf(values))
    table.report(problems, name, endless, "{} is infinite; write a finite number or empty the cell")
    return values


def _floats(column: Any) -> np.ndarray:
    if column.type == pa.bool_():
        column = column.cast(pa.int8())
    floats = column.cast(pa.float64(), safe=False)
    return np.array(floats.to_numpy(), dtype=np.float64)
