"""CSV files that a spreadsheet shows and does not run.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end for a
formula. Such a text gets an apostrophe in front, which spreadsheets understand as "this is text";
reading takes it away. A text that begins with apostrophes and then such a mark gets one more, so
that every text comes back as it was. Numbers are written as they are, also negative ones.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from dropnode.files import atomic_write

MARKS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a formula can begin with."""

ROWS = 100_000
"""How many rows are written at a time."""


def neutral(value: Any) -> Any:
    """Return a cell as it is written; only texts change.

    Examples
    --------
    >>> neutral("=1+1"), neutral("'=1"), neutral("it's"), neutral(-3)
    ("'=1+1", "''=1", "it's", -3)
    """
    if isinstance(value, str) and value.lstrip("'").startswith(MARKS):
        return f"'{value}"
    return value


def original(text: str) -> str:
    """Return the text that :func:`neutral` was given.

    Examples
    --------
    >>> original("'=1+1"), original("''=1"), original("it's")
    ('=1+1', "'=1", "it's")
    """
    if text.startswith("'") and text.lstrip("'").startswith(MARKS):
        return text[1:]
    return text


def csv_lines(rows: Iterable[Iterable[Any]], *, quoted: bool = False) -> str:
    """Return rows as CSV; ``quoted`` puts every cell in quotation marks."""
    cells = [[neutral(value) for value in row] for row in rows]
    # Python's writer leaves a lone carriage return bare, which its reader takes for a line end.
    quoted = quoted or any("\r" in value for row in cells for value in row if type(value) is str)
    text = io.StringIO()
    dialect: Any = {"lineterminator": "\n"} | ({"quoting": csv.QUOTE_ALL} if quoted else {})
    csv.writer(text, **dialect).writerows(cells)
    return text.getvalue()


def write_csv(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write rows to a CSV file, whole or not at all; some at a time, so there may be many."""
    rest = iter(rows)
    with atomic_write(path, "w") as file:
        while block := list(islice(rest, ROWS)):
            file.write(csv_lines(block))


def csv_rows(text: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a CSV text by column, with every text as it was, and their lines.

    Cells without a column are a list under the key None, and columns without a cell are None.

    Examples
    --------
    >>> csv_rows("id,label\\n7,'=1+1\\n")
    [(2, {'id': '7', 'label': '=1+1'})]
    """
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[int, dict[str, Any]]] = []
    while True:
        line = reader.line_num + 1 if reader.fieldnames else 1
        row = next(reader, None)
        if row is None:
            return rows
        rows.append((line, {k: original(v) if isinstance(v, str) else v for k, v in row.items()}))
