"""CSV and TSV files as tables of text.

Every cell stays text here: what a column means is decided once, for all formats, in
:mod:`dropnode.tables.columns`. Guessing earlier would make numbers of ids, and round large ones.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from dropnode.tables.problems import Problems
from dropnode.tables.quotes import report_quotes
from dropnode.tables.table import Column, Table, positions

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""What may separate columns, and its name in messages."""

BLOCK = 16 * 2**20
"""The bytes that are parsed at a time, and the most that a row may have."""

MOST_COLUMNS = 100_000
"""The most columns of a file."""

SAMPLE = 2**18
"""The bytes at the beginning of a file that tell what separates its columns."""


ARCHIVE, UTF16_MARKS = b"PK\x03\x04", (b"\xff\xfe", b"\xfe\xff")
"""How a file begins that is no text in UTF-8."""

MOST_NUL = 0.2
"""With more NUL bytes a file is in UTF-16; fewer are mistakes in some cells."""

UNREADABLE = {
    "\ufffd": "is not in UTF-8; save it again in UTF-8",
    "\0": "has NUL bytes; remove them",
}
"""What makes a header useless."""


def read_csv(
    name: str,
    data: bytes,
    usual: str,
    problems: Problems,
    is_data: Callable[[list[str]], bool] | None = None,
    above: int = 0,
) -> Table | None:
    """Read a file of separated values; None if nothing in it can be used.

    Parameters
    ----------
    name : str
        The name of the file in messages.
    data : bytes
        The content of the file. Read before, because a reader of Arrow's runs in threads of its
        own, which a Python file would have to stop when the program is interrupted.
    usual : str
        The delimiter that the ending of the file promises.
    problems : Problems
        Gets what is wrong with the file.
    is_data : callable, optional
        Returns whether the cells of the first row are data: then the file has no header.
    above : int
        How many rows of the file are above those that are given, if they are a part of it.
    """
    head = _Head.read(name, data, usual, above + 1, problems)
    if head is None:
        return None
    names, headless = head.names, is_data is not None and is_data(head.names)
    if headless:
        names = [f"column {at + 1}" for at in range(len(names))]
    elif not _check_names(name, names, problems):
        return None
    is_utf8 = _is_utf8(data)
    # A byte becomes a character each: rows and columns are where they were.
    text = data if is_utf8 else data.decode("latin-1").encode()
    content = _Content(name, text, head, headless, above, problems)
    columns = dict(zip(names, content.columns, strict=True))
    notes = []
    if head.delimiter != usual:
        named = DELIMITERS[head.delimiter], DELIMITERS[usual]
        notes.append(f"{name} has {named[0]} between its columns, not {named[1]}")
    if headless:
        notes.append(f"{name} has no header: its first row is data")
    table = Table(name, columns, True, content.first, content.rows, tuple(notes))
    if not is_utf8:
        _report_bytes(table, problems)
    if b"\0" in data:
        _report_nul(table, problems)
    return _without_empty_rows(table)


@dataclass(frozen=True)
class _Head:
    """The first row of a file."""

    raw: list[str]
    delimiter: str

    @property
    def names(self) -> list[str]:
        """The names of the columns; those without a name are numbered."""
        stripped = [name.strip() for name in self.raw]
        return [name or f"column {at + 1}" for at, name in enumerate(stripped)]

    @classmethod
    def read(cls, name: str, data: bytes, usual: str, row: int, problems: Problems) -> _Head | None:
        """Read the first row, which has this number in the file; None if there is none."""
        start, whole = data[:SAMPLE], len(data) <= SAMPLE
        line_ends = [at for end in b"\r\n" if (at := start.rfind(end)) >= 0]
        if not start.strip():
            problems.add(name, "is empty; expected a header and rows below it")
            return None
        if start.startswith(ARCHIVE):
            problems.add(name, "is an archive, as spreadsheets are; save it as CSV in UTF-8")
            return None
        if start[:2] in UTF16_MARKS or start.count(0) > len(start) * MOST_NUL:
            problems.add(name, "has NUL bytes, as UTF-16 does; save it as CSV in UTF-8")
            return None
        if not whole and not line_ends:
            problems.add(name, f"has no line end in its first {SAMPLE:,} bytes; is it a table?")
            return None
        # A character may be cut in two at the end of the sample, and so may a row.
        text = start[: None if whole else max(line_ends)].decode("utf-8-sig", "replace")
        delimiter = _delimiter(text, usual)
        with suppress(StopIteration, csv.Error):
            first = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
            for mark, told in UNREADABLE.items():
                if mark in "".join(first):
                    problems.add(name, told, row=row)
                    return None
            if 0 < len(first) <= MOST_COLUMNS:
                return cls(first, delimiter)
        problems.add(name, f"no header of 1 to {MOST_COLUMNS:,} columns; write one", row=row)
        return None


def _delimiter(text: str, usual: str) -> str:
    """Return what separates the columns: what the ending promises, unless only another can be."""
    widths = {mark: _widths(text, mark) for mark in (usual, *DELIMITERS)}
    # Rows of different widths are mistakes, which are told by row once the header is divided.
    even = [mark for mark, found in widths.items() if len(set(found)) == 1 and found[0] > 1]
    divided = [mark for mark, found in widths.items() if found and found[0] > 1]
    for marks in (even, divided):
        if usual in marks:
            return usual
        if marks:
            return max(marks, key=lambda mark: widths[mark][0])
    return usual


def _widths(text: str, mark: str) -> list[int]:
    """Return how many columns the first rows have."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    widths: list[int] = []
    with suppress(csv.Error):
        widths += [len(row) for row in islice(rows, 50) if row]
    return widths


def _check_names(name: str, names: list[str], problems: Problems) -> bool:
    twice = [each for each, count in Counter(names).items() if count > 1]
    for each in twice:
        problems.add(name, "stands twice in the header; rename one", row=1, column=each)
    return not twice


class _Content:
    """The cells below the header, as columns of text, and the numbers of their rows."""

    columns: list[Column]
    rows: np.ndarray | None
    first: int

    def __init__(
        self,
        name: str,
        data: bytes,
        head: _Head,
        headless: bool,
        above: int,
        problems: Problems,
    ) -> None:
        width, self.first = len(head.raw), above + (1 if headless else 2)
        ragged: list[tuple[int, int]] = []

        def skip(row: Any) -> str:
            ragged.append((row.number, row.actual_columns))
            return "skip"

        # Names of our own: those of the file may be anything.
        names = [f"c{at}" for at in range(width)]
        kinds = dict.fromkeys(names, pa.string())
        try:
            content = arrow_csv.read_csv(
                # Arrow cannot read a header alone without the end of its line.
                pa.BufferReader(data if data[-1:] == b"\n" else data + b"\n"),
                arrow_csv.ReadOptions(
                    use_threads=False,  # With threads, rows have no numbers.
                    block_size=BLOCK,
                    column_names=names,
                    skip_rows_after_names=0 if headless else 1,
                ),
                arrow_csv.ParseOptions(
                    delimiter=head.delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=False,  # They count, too.
                    invalid_row_handler=skip,
                ),
                arrow_csv.ConvertOptions(
                    check_utf8=False,  # It has been.
                    column_types=kinds,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            content = pa.schema(kinds.items()).empty_table()
            if "Empty CSV" not in str(error) and not report_quotes(
                name, data, head.delimiter, above, problems
            ):
                told = f"cannot be read ({error}); a row has at most {BLOCK:,} bytes"
                problems.add(name, told, row=above + 1)
        else:
            # A quotation mark by mistake takes rows for a cell: those up to the next one, or all.
            if b'"' in data and (data.count(b'"') % 2 or _have_lines(head.raw, content.columns)):
                report_quotes(name, data, head.delimiter, above, problems)
        self.columns, self.rows = content.columns, None
        if ragged:
            numbers, found = (np.array(values) for values in zip(*ragged, strict=True))
            problems.add_rows(
                name,
                "",
                above + numbers,
                lambda at: (
                    f"number of cells {found[at]}, but the header has {width}; put cells that "
                    "contain a delimiter into quotation marks"
                ),
            )
            everything = np.arange(self.first, self.first + content.num_rows + len(numbers))
            self.rows = np.setdiff1d(everything, above + numbers)[: content.num_rows]


def _have_lines(names: list[str], columns: list[Column]) -> bool:
    """Return whether a cell contains the end of a line."""
    cells = [pa.array(names, pa.string()), *columns]
    return any(pc.any(pc.match_substring(each, end)).as_py() for each in cells for end in "\r\n")


def _is_utf8(data: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), BLOCK):
            decoder.decode(data[start : start + BLOCK])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _report_bytes(table: Table, problems: Problems) -> None:
    """Report the cells whose bytes are no text; every character of the table is a byte."""
    before = len(problems)
    for name, column in table.columns.items():
        wrong = [at for at, cell in enumerate(column.to_pylist()) if not _is_cell(cell)]
        told = "{} is not in UTF-8; save the file again in UTF-8"
        table.report(problems, name, np.array(wrong, dtype=np.int64), told)
    if len(problems) == before:
        problems.add(table.name, "is not in UTF-8; save it again in UTF-8")


def _is_cell(cell: str | None) -> bool:
    try:
        (cell or "").encode("latin-1").decode()
    except UnicodeDecodeError:
        return False
    return True


def _report_nul(table: Table, problems: Problems) -> None:
    for name, column in table.columns.items():
        wrong = positions(pc.match_substring(column, "\0"))
        table.report(problems, name, wrong, "{} has a NUL byte; remove it")


def _without_empty_rows(table: Table) -> Table:
    """Return the table without rows in which every cell is empty, such as empty lines."""
    empty = np.ones(table.num_rows, dtype=bool)
    for column in table.columns.values():
        if not empty.any():
            return table
        empty &= column.is_null().to_numpy()
    if not empty.any():
        return table
    kept = np.flatnonzero(~empty)
    if empty[len(kept) :].all():  # At the end, where they take nothing away from the others.
        columns = {name: column[: len(kept)] for name, column in table.columns.items()}
        return replace(table, columns=columns)
    columns = {name: column.take(pa.array(kept)) for name, column in table.columns.items()}
    return replace(table, columns=columns, rows=table.row_numbers(kept))
