"""Export of trials from a store to CSV, JSON or Parquet files, and import into another.

Every imported row is checked (:mod:`~dropnode.experiments.trial_row`), and one wrong row makes the
import fail as a whole. Histories are not exported, because they are large.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dropnode.csv_text import csv_lines, csv_rows
from dropnode.errors import ConfigError
from dropnode.experiments.record import Record
from dropnode.experiments.store import Store
from dropnode.experiments.trial_row import COLUMNS, TrialRow
from dropnode.files import atomic_write, read_content, write_bytes
from dropnode.settings import check_keys, continued, parse_json, read_record
from dropnode.settings.records import keys_of

# Columns with JSON in a CSV or Parquet file; an error is among them as it can be any text, also "".
_JSON = ("error", "config", "confusion", "reliability", "measures", "versions")
_WHOLE = ("split_seed", "revision", "seed", "best_epoch", "epochs")
_NUMBERS = ("test_accuracy", "val_accuracy", "val_loss", "seconds")

_UNREADABLE = (OSError, EOFError, zlib.error, ValueError, csv.Error)

_REQUIRED = tuple(name for name, needed in keys_of(TrialRow).items() if needed)
"""The columns that every export has, also one of an earlier version."""

FORMATS: tuple[str, ...] = ("csv", "json", "parquet")


def export_trials(records: Iterable[Record], path: Path) -> int:
    """Write trials to a file in the format of its extension; return how many."""
    kind = _format(path)
    rows = [row_of(record) for record in records]
    if kind == "json":
        _write(path, json.dumps({"trials": rows}, indent=1) + "\n")
        return len(rows)
    flat = [_flat(row) for row in rows]
    if kind == "csv":
        lines = ([row[name] for name in COLUMNS] for row in flat)
        _write(path, csv_lines([COLUMNS, *lines], quoted=True))
    else:
        arrow, parquet = _arrow()
        kinds = dict.fromkeys(COLUMNS, arrow.string())
        kinds |= dict.fromkeys(_WHOLE, arrow.int64()) | dict.fromkeys(_NUMBERS, arrow.float64())
        schema = arrow.schema(list(kinds.items()))
        with atomic_write(path) as target:
            table = arrow.Table.from_pylist(flat, schema=schema)
            parquet.write_table(table, target, write_page_checksum=True)
    return len(rows)


def check_replaceable(path: Path) -> None:
    """Raise :class:`ConfigError` if a file exists and is no export of trials."""
    if path.exists():
        try:
            for columns, where in _headers(path):
                check_keys(dict.fromkeys(columns), _REQUIRED, COLUMNS, where)
        except (*_UNREADABLE, ConfigError) as error:
            raise ConfigError(
                f"{path} exists and has no exported trials; choose another file"
            ) from error


def read_trials(path: Path) -> dict[str, Record]:
    """Return the trials of a file by id; one wrong row is an error for all of them."""
    try:
        rows = _read(path)
    except _UNREADABLE as error:
        raise ConfigError(
            f"{path} cannot be read ({' '.join(str(error).split())}); expected a file written by "
            "dropnode trials FOLDER export"
        ) from error
    records: dict[str, Record] = {}
    for where, row in rows:
        try:
            values = {name: value for name, value in row.items() if value is not None}
            if _format(path) != "json":
                values = _parsed(values)
            record = read_record(TrialRow, values, "trial").record()
            if record.trial.id in records:
                raise ConfigError(f"trial.id = {record.trial.id!r} occurs twice; remove one row")
        except ConfigError as error:
            told = continued(f"{path}, {where}: {error}", "nothing was imported")
            raise ConfigError(told) from error
        records[record.trial.id] = record
    return records


def add_missing(store: Store, records: Mapping[str, Record]) -> int:
    """Add those trials that are not in the store; return how many."""
    # A failure is only imported for a trial that is not stored: a stored one may be more recent.
    there = store.statuses()
    return store.add(
        (record, None)
        for identifier, record in records.items()
        if record.status == "done" or identifier not in there
    )


def _read(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of a file, and where in it each is."""
    kind = _format(path)
    if kind == "csv":
        text = _text(path)
        if not text.endswith("\n"):
            raise ValueError("its last line is not complete")
        if "id" not in next(csv.reader(io.StringIO(text, newline="")), ()):
            raise ValueError("it has no column id")
        found = enumerate(csv_rows(text), start=1)
        return [(f"trial {number} (line {line})", row) for number, (line, row) in found]
    if kind == "json":
        content = parse_json(_text(path))
        if not isinstance(content, dict) or not isinstance(content.get("trials"), list):
            raise ValueError("it has no list of trials")
        if len(content) > 1:
            raise ValueError("it has more than a list of trials")
        if not all(isinstance(row, dict) for row in content["trials"]):
            raise ValueError("a trial in it is not an object")
        rows = content["trials"]
    else:
        arrow, parquet = _arrow()
        try:
            rows = parquet.read_table(path, page_checksum_verification=True).to_pylist()
        except arrow.ArrowException as error:
            raise ValueError(str(error)) from error
    return [(f"trial {number}", row) for number, row in enumerate(rows, start=1)]


def _headers(path: Path) -> list[tuple[Iterable[str], str]]:
    """Return the columns of a file, and where they are: JSON has them in every trial."""
    kind = _format(path)
    if kind == "csv":
        return [(next(csv.reader(io.StringIO(_text(path), newline="")), ()), "the header")]
    if kind == "parquet":
        arrow, parquet = _arrow()
        try:
            return [(parquet.read_schema(path).names, "the schema")]
        except arrow.ArrowException as error:
            raise ValueError(str(error)) from error
    return [(row, where) for where, row in _read(path)]


def _text(path: Path) -> str:
    return read_content(path, packed=path.suffix.lower() == ".gz").decode()


def _write(path: Path, text: str) -> None:
    content = text.encode("utf-8")
    # Without a timestamp, so that the same trials give the same bytes.
    write_bytes(path, gzip.compress(content, mtime=0) if path.suffix.lower() == ".gz" else content)


def row_of(record: Record) -> dict[str, Any]:
    """Return the columns of a trial as plain values."""
    return asdict(TrialRow.of(record))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return row | {
        name: None
        if row[name] is None
        else json.dumps(row[name], sort_keys=True, separators=(",", ":"))
        for name in _JSON
    }


def _parsed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a CSV or Parquet file with numbers and JSON parsed, without empty columns."""
    values: dict[str, Any] = {}
    for name, value in row.items():
        if value == "":
            continue
        kind = parse_json if name in _JSON else int if name in _WHOLE else float
        try:
            text = isinstance(value, str) and name in (*_JSON, *_WHOLE, *_NUMBERS)
            values[name] = kind(value) if text else value
        except ValueError as error:
            raise ConfigError(f"{name} = {value!r} cannot be parsed ({error})") from error
    return values


def _format(path: Path) -> str:
    known = FORMATS
    ending = path.suffix.lstrip(".").lower()
    if ending == "gz":
        ending = path.with_suffix("").suffix.lstrip(".").lower()
        # Parquet is compressed already.
        known = ("csv", "json")
    if ending not in known:
        raise ConfigError(
            f"{path}: expected a name that ends in .{', .'.join(FORMATS)}, .csv.gz or .json.gz"
        )
    return ending


def _arrow() -> tuple[Any, Any]:
    # Imported here, because only Parquet files need it.
    import pyarrow
    import pyarrow.parquet

    return pyarrow, pyarrow.parquet
