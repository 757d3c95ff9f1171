"""Files as tables, by their ending: CSV, TSV, JSON lines and Parquet, the first three also ``.gz``.

Also any data frame that speaks Arrow, such as those of pandas, Polars and pyarrow.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from dropnode.files import explained, read_content, to_path
from dropnode.memory import check_memory
from dropnode.tables.csv_files import read_csv
from dropnode.tables.json_lines import read_json_lines
from dropnode.tables.problems import Problems
from dropnode.tables.table import Table, common_type

DELIMITED = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
LINES = (".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")

ENDINGS = ", ".join([*DELIMITED, *LINES, *PARQUET])

_INDEX = re.compile(r"__index_level_\d+__")
"""What pandas calls the index of its rows in Arrow and Parquet, if it has no name of its own: a
count that is no longer whole, since rows were left out or sorted, and nothing about a node."""


def read_table(
    source: Any,
    what: str,
    problems: Problems,
    is_data: Callable[[list[str]], bool] | None = None,
) -> Table | None:
    """Read a table; None if nothing in it can be used, which is then among the problems.

    Parameters
    ----------
    source : path or data frame
        The ending of a path decides how it is read.
    what : str
        The name of a data frame in messages.
    problems : Problems
        Gets what is wrong with the table.
    is_data : callable, optional
        Returns whether the cells of the first row of a CSV file are data, not names.
    """
    if hasattr(source, "__arrow_c_stream__"):
        return _frame(source, what, problems)
    path = to_path(source)
    try:
        return _file(path, problems, is_data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problems.add(str(path), f"is a damaged gzip file ({error}); compress it again")
    except OSError as error:
        problems.add(str(path), f"cannot be read ({explained(error)})")
    return None


def _file(
    path: Path, problems: Problems, is_data: Callable[[list[str]], bool] | None
) -> Table | None:
    name = str(path)
    if path.is_dir():
        problems.add(name, "is a folder; give a file")
        return None
    if not path.exists():
        problems.add(name, "does not exist; check the path")
        return None
    if not path.is_file():
        # Nobody may ever write into a pipe, and a device may have no end.
        problems.add(name, "is a pipe or a device; save its content to a file and give that")
        return None
    packed = path.suffix.lower() == ".gz"
    ending = Path(path.stem if packed else path.name).suffix.lower()
    if ending in DELIMITED:
        return read_csv(
            name, read_content(path, packed=packed), DELIMITED[ending], problems, is_data
        )
    if ending in LINES:
        return read_json_lines(name, read_content(path, packed=packed), problems)
    if ending in PARQUET and not packed:
        return _parquet(path, problems)
    told = "has an unknown ending; save it as a file whose name ends in"
    problems.add(name, f"{told} {ENDINGS}, or in one of the first five and .gz")
    return None


def _parquet(path: Path, problems: Problems) -> Table | None:
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            groups = range(file.metadata.num_row_groups)
            size = sum(file.metadata.row_group(at).total_byte_size for at in groups)
            check_memory(size, f"reading {path}", "use a larger machine or fewer columns")
            return checked_table(str(path), file.read(use_threads=False), problems)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        problems.add(str(path), f"is not a readable Parquet file ({error}); write it again")
    return None


def _frame(source: Any, what: str, problems: Problems) -> Table | None:
    try:
        return checked_table(what, pa.table(source), problems)
    except (pa.ArrowException, TypeError, ValueError) as error:
        problems.add(what, f"cannot be read ({error}); give columns of one type each")
    return None


def checked_table(name: str, content: pa.Table, problems: Problems) -> Table | None:
    """Return a table of Arrow's with columns in the common types."""
    columns: dict[str, Any] = {}
    sound = True
    for at, given in enumerate(content.column_names):
        if _INDEX.fullmatch(given):
            continue
        column = str(given).strip() or f"column {at + 1}"
        if column in columns:
            problems.add(name, "occurs twice; rename one", column=column)
            sound = False
            continue
        try:
            content.column(at).validate(full=True)
            columns[column] = common_type(content.column(at))
        except (pa.ArrowException, UnicodeDecodeError) as error:
            problems.add(name, f"cannot be read ({error}); write it again, as text", column=column)
            sound = False
    if not columns or not content.num_rows:
        problems.add(name, "is empty; expected columns with names and rows")
        return None
    return Table(name, columns) if sound else None
