"""Files of any length as tables, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from dropnode.files import explained
from dropnode.tables.csv_files import read_csv
from dropnode.tables.files import DELIMITED, PARQUET, checked_table, read_table
from dropnode.tables.problems import Problems
from dropnode.tables.table import Table

BYTES = 2**27
"""The bytes of a CSV file that are read at a time."""

ROWS = 2**22
"""The rows of a Parquet file that are read at a time."""


def table_blocks(
    path: Path, problems: Problems, is_data: Callable[[list[str]], bool]
) -> Iterator[tuple[Table, float]]:
    """Yield parts of a table, and the share of the file that has been read; see ``read_table``.

    CSV and Parquet files are read in parts. Others, and compressed ones, are read as a whole. A
    part with a problem is the last.
    """
    ending = path.suffix.lower()
    try:
        if ending in DELIMITED and path.is_file():
            yield from _csv_blocks(path, DELIMITED[ending], problems, is_data)
        elif ending in PARQUET and path.is_file():
            yield from _parquet_blocks(path, problems)
        else:
            table = read_table(path, "edges", problems, is_data)
            if table is not None:
                yield table, 1.0
    except OSError as error:
        problems.add(str(path), f"cannot be read ({explained(error)})")


def _csv_blocks(
    path: Path, usual: str, problems: Problems, is_data: Callable[[list[str]], bool]
) -> Iterator[tuple[Table, float]]:
    """Yield parts that end with a line; a cell that contains a line end is a problem.

    A file without rows is one part without any.
    """
    size, header, rows = max(path.stat().st_size, 1), b"", 0
    headless = found = False

    def is_row(names: list[str]) -> bool:
        nonlocal headless
        # In later parts, the first row is data if it was in the first part.
        headless = headless or (not rows and is_data(names))
        return headless

    with path.open("rb") as file:
        while (data := file.read(BYTES)) or not rows:
            data += file.readline()
            if found and not data.strip():
                rows += data.count(b"\n")
                continue
            # The header stands above every part, and counts once.
            above = rows - bool(header)
            table = read_csv(str(path), header + data, usual, problems, is_row, above)
            if table is None or len(problems):
                return
            if not rows and not headless:
                header = data[: data.index(b"\n") + 1] if b"\n" in data else b""
            if table.num_rows or (not found and file.tell() >= size):
                found = True
                yield table, file.tell() / size
            rows += data.count(b"\n") + (not data.endswith(b"\n"))


def _parquet_blocks(path: Path, problems: Problems) -> Iterator[tuple[Table, float]]:
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            rows, total = 0, max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(ROWS, use_threads=False):
                table = checked_table(str(path), pa.table(batch), problems)
                if table is None:
                    return
                yield replace(table, first_row=1 + rows), (rows + table.num_rows) / total
                rows += table.num_rows
            if not rows:
                problems.add(str(path), "is empty; expected columns with names and rows")
    except (pa.ArrowException, ValueError, MemoryError) as error:
        problems.add(str(path), f"is not a readable Parquet file ({error}); write it again")
