"""Quotation marks in CSV files that are there by mistake, and make one cell of several rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from dropnode.tables.problems import Problems

_LARGEST = 2**31 - 1
"""The most characters of a cell; the limit of Python is lower by far."""


def report_quotes(name: str, data: bytes, delimiter: str, above: int, problems: Problems) -> bool:
    """Report the rows of several lines in which quotation marks are not where they should be.

    One that is never closed takes the rest of the file for a cell. One that is closed by a mark
    further down takes the rows between, and that mark then stands before more text. A cell may have
    several lines, so that all marks around it in their places are no problem.

    Returns whether there are such rows. ``above`` is the number of rows that are left out above.
    """
    rows, causes = [], []
    before = csv.field_size_limit(_LARGEST)
    try:
        for row, lines in enumerate(_rows(data, delimiter), above + 1):
            cause = _cause(lines, delimiter)
            if cause:
                rows.append(row)
                causes.append(cause)
    finally:
        csv.field_size_limit(before)
    problems.add_rows(name, "", rows, lambda at: causes[at])
    return bool(rows)


def _rows(data: bytes, delimiter: str) -> Iterator[list[str]]:
    """Yield the lines of every row, as a reader divides them that forgives everything."""
    lines: list[str] = []

    def taken() -> Iterator[str]:
        for line in io.StringIO(data.decode("utf-8-sig", "replace"), newline=""):
            lines.append(line)
            yield line

    for _ in csv.reader(taken(), delimiter=delimiter):
        yield lines
        lines.clear()


def _cause(lines: list[str], delimiter: str) -> str:
    """Return what is wrong with the quotation marks of a row; nothing if they are in place."""
    if len(lines) == 1 and lines[0].count('"') % 2 == 0:
        return ""
    try:
        for _ in csv.reader(lines, delimiter=delimiter, strict=True):
            pass
    except csv.Error as error:
        if "unexpected end" in str(error):
            return "a quotation mark is not closed; close it, or remove it"
        if len(lines) > 1:
            return (
                f"a quotation mark makes one row of {len(lines):,} lines, and the mark that closes "
                "it stands before more text; close it in its own line, or remove it"
            )
    return ""
