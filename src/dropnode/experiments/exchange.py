"""Trials as files: CSV, JSON and Parquet, out of a store and into another.

A row that comes in has to be what its identity says: the id is computed again from the row, and a
file with one wrong row is refused as a whole. Histories stay behind; they are large.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dropnode.errors import ConfigError
from dropnode.experiments.measures import MEASURES, STANDARD
from dropnode.experiments.store import Record, Store
from dropnode.experiments.trials import Trial
from dropnode.files import atomic_write, write_bytes
from dropnode.settings import suggestion

# What a trial is known by; the last two may be empty.
_TRIAL: dict[str, type] = {
    "dataset": str,
    "dataset_sha256": str,
    "split": str,
    "split_seed": int,
    "method": str,
    "revision": int,
    "preset": str,
    "config": dict,
    "seed": int,
    "split_sha256": str,
    "recipe": str,
}
_OPTIONAL = ("split_sha256", "recipe")
# What a person looks at first has columns of its own; the rest of the metrics stays together.
_PLAIN: dict[str, type] = {
    "test_accuracy": float,
    "val_accuracy": float,
    "val_loss": float,
    "best_epoch": int,
    "epochs": int,
}
_ENDED: dict[str, type] = {
    "seconds": float,
    "finished": str,
    "error": str,
    "confusion": list,
    "reliability": dict,
    "measures": dict,
    "versions": dict,
}
COLUMNS: dict[str, type] = {"id": str, "status": str, **_TRIAL, **_PLAIN, **_ENDED}
"""The columns of an exported trial."""

FORMATS: tuple[str, ...] = ("csv", "json", "parquet")

# An error can be any text, also none at all.
_STRUCTURED = ("error", *(name for name, kind in COLUMNS.items() if kind in (dict, list)))


def export_trials(records: Iterable[Record], path: Path) -> int:
    """Write trials to a file, in the format that its name ends in; return how many."""
    kind = _format(path)
    rows = [row_of(record) for record in records]
    if kind == "json":
        _write(path, json.dumps({"trials": rows}, indent=1) + "\n")
        return len(rows)
    flat = [_flat(row) for row in rows]
    if kind == "csv":
        text = io.StringIO()
        # Quoted throughout: a lone carriage return would otherwise end a line.
        writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(flat)
        _write(path, text.getvalue())
    else:
        arrow, parquet = _arrow()
        names = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
        schema = arrow.schema(
            [(name, names.get(kind, arrow.string())) for name, kind in COLUMNS.items()]
        )
        with atomic_write(path) as target:
            parquet.write_table(arrow.Table.from_pylist(flat, schema=schema), target)
    return len(rows)


def import_trials(store: Store, path: Path) -> int:
    """Take over the trials of a file that the store lacks; return how many those are."""
    try:
        rows = _read(path)
    except (OSError, EOFError, zlib.error, ValueError, csv.Error) as error:
        raise ConfigError(
            f"{path} cannot be read ({' '.join(str(error).split())}); expected a file that was "
            "exported from a store"
        ) from error
    records = []
    for number, row in enumerate(rows, start=1):
        try:
            records.append(_record(_structured(row) if _format(path) != "json" else row))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{path}, trial {number}: {error}; nothing was imported") from error
    # A failure is only news where there is nothing yet: what is stored may be a later attempt's.
    there = store.statuses()
    return store.add(
        (record, None)
        for record in records
        if record.status == "done" or record.trial.id not in there
    )


def _read(path: Path) -> list[dict[str, Any]]:
    kind = _format(path)
    if kind == "json":
        content = json.loads(_text(path))
        if not isinstance(content, dict) or not isinstance(content.get("trials"), list):
            raise ValueError("no list of trials in it")
        if not all(isinstance(row, dict) for row in content["trials"]):
            raise ValueError("not every trial in it has columns")
        return list(content["trials"])
    if kind == "csv":
        text = _text(path)
        if not text.endswith("\n"):
            raise ValueError("its last line is not complete")
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        if "id" not in (reader.fieldnames or ()):
            raise ValueError("no id in it")
        return list(reader)
    arrow, parquet = _arrow()
    try:
        rows = parquet.read_table(path).to_pylist()
    except arrow.ArrowInvalid as error:
        raise ValueError(str(error)) from error
    return list(rows)


def _text(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix.lower() == ".gz" else content).decode("utf-8")


def _write(path: Path, text: str) -> None:
    content = text.encode("utf-8")
    # Without the time of day, so that the same trials have the same bytes.
    write_bytes(path, gzip.compress(content, mtime=0) if path.suffix.lower() == ".gz" else content)


def row_of(record: Record) -> dict[str, Any]:
    """Return a trial by its columns."""
    trial = record.trial
    values = {name: getattr(trial, name) for name in ("id", *_TRIAL)}
    values["config"] = dict(trial.config)
    further = {name: value for name, value in record.metrics.items() if name not in STANDARD}
    values["measures"] = further or None
    for name in COLUMNS:
        if name not in values:
            values[name] = getattr(record, name, record.metrics.get(name))
    return {name: values[name] for name in COLUMNS}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return row | {
        name: None
        if row[name] is None
        else json.dumps(row[name], sort_keys=True, separators=(",", ":"))
        for name in _STRUCTURED
    }


def _structured(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of text in the types of its columns."""
    values: dict[str, Any] = {}
    for name, value in row.items():
        kind = COLUMNS.get(name)
        if value is None or value == "":
            values[name] = None
            continue
        try:
            if name in _STRUCTURED:
                values[name] = json.loads(value)
            else:
                values[name] = value if kind is None or isinstance(value, kind) else kind(value)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name} is {value!r} ({error})") from error
    return values


def _record(row: dict[str, Any]) -> Record:
    for name in row:
        if name not in COLUMNS:
            raise ValueError(f"unknown column {name!r}{suggestion(str(name), COLUMNS)}")
    row = row | {name: row.get(name) or "" for name in _OPTIONAL}
    missing = [name for name in ("id", "status", "finished", *_TRIAL) if row.get(name) is None]
    if missing:
        raise ValueError(f"no {', '.join(missing)}")
    for name, value in row.items():
        wanted = (int, float) if COLUMNS[name] is float else COLUMNS[name]
        if value is not None and not isinstance(value, wanted):
            raise ValueError(f"{name} is {value!r}; expected {COLUMNS[name].__name__}")
    trial = Trial(**{name: row[name] for name in _TRIAL})
    if trial.id != row["id"]:
        raise ValueError(
            f"the id is {row['id']}, that of this dataset, split, method, configuration and seed "
            f"is {trial.id}"
        )
    if row["status"] not in ("done", "failed"):
        raise ValueError(f"status is {row['status']!r}; expected done or failed")
    metrics = {
        name: row.get(name)
        for name in (*_PLAIN, "confusion", "reliability")
        if row.get(name) is not None or (name in _PLAIN and row["status"] == "done")
    }
    for name in row.get("measures") or {}:
        if name not in MEASURES:
            raise ValueError(f"unknown measure {name!r}{suggestion(name, MEASURES)}")
    metrics |= row.get("measures") or {}
    return Record(
        trial,
        row["status"],
        metrics if row["status"] == "done" else {},
        row.get("seconds"),
        row["finished"],
        row.get("versions") or {},
        row.get("error"),
    )


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
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            'Parquet needs pyarrow: pip install "dropnode[parquet]", or use .csv or .json'
        ) from error
    return pyarrow, pyarrow.parquet
