"""Export of trials from a store to CSV, JSON or Parquet files, and import into another.

Every imported row is checked: the id is computed again from the row, and one wrong row makes the
import fail as a whole. Histories are not exported, because they are large.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from dropnode.errors import ConfigError
from dropnode.experiments.measures import MEASURES, NUMBERS, STANDARD, check_measures
from dropnode.experiments.store import Record, Store
from dropnode.experiments.trials import Trial
from dropnode.files import atomic_write, write_bytes
from dropnode.settings import choice, continued, count, read_record, seed, share, weight


@dataclass(frozen=True)
class ReliabilityRow:
    """The counts of a reliability diagram, bin by bin."""

    count: list[int]
    confidence: list[float]
    correct: list[int]


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """An exported trial; its fields are the columns of a file, and are read strictly."""

    id: str
    status: str = choice("done", "failed")
    dataset: str
    dataset_sha256: str
    split: str
    split_seed: int = seed()
    method: str
    revision: int = count()
    preset: str
    config: Mapping[str, Any]
    seed: int = seed()
    split_sha256: str = ""
    recipe: str = ""
    # The most important measures have their own columns.
    test_accuracy: float | None = share(default=None)
    val_accuracy: float | None = share(default=None)
    val_loss: float | None = weight(default=None)
    best_epoch: int | None = count(least=0, default=None)
    epochs: int | None = count(least=0, default=None)
    seconds: float | None = weight(default=None)
    finished: str
    error: str | None = None
    confusion: list[list[int]] | None = None
    reliability: ReliabilityRow | None = None
    measures: Mapping[str, Any] | None = None
    versions: Mapping[str, str] | None = None

    @classmethod
    def of(cls, record: Record) -> TrialRow:
        """Return the row of a stored trial."""
        trial, metrics = record.trial, record.metrics
        standard = {name: metrics[name] for name in STANDARD if metrics.get(name) is not None}
        if "reliability" in standard:
            standard["reliability"] = ReliabilityRow(**standard["reliability"])
        further = {name: value for name, value in metrics.items() if name not in STANDARD}
        ended = {name: getattr(record, name) for name in ENDED}
        known = {name: getattr(trial, name) for name in ("id", *IDENTIFYING)}
        return cls(**known, **standard, **ended, measures=further or None)

    def record(self) -> Record:
        """Return the trial; an id that does not match the other columns is an error."""
        trial = Trial(**{name: getattr(self, name) for name in IDENTIFYING})
        if trial.id != self.id:
            raise ConfigError(
                f"the id is {self.id}, but the dataset, split, method, configuration and seed give "
                f"{trial.id}; restore the row as it was exported"
            )
        check_measures(self.measures or {})
        values = asdict(self)
        standard = {
            name: values[name]
            for name in STANDARD
            if values[name] is not None or MEASURES[name].kind in NUMBERS
        }
        done = self.status == "done"
        metrics = {**standard, **(self.measures or {})} if done else {}
        ended = {name: values[name] for name in ENDED} | {"versions": dict(self.versions or {})}
        return Record(trial=trial, metrics=metrics, **ended)


IDENTIFYING = tuple(each.name for each in fields(Trial))
"""The columns of :class:`~dropnode.experiments.trials.Trial`."""

ENDED = ("status", "seconds", "finished", "versions", "error")
"""The columns about the end of a trial, without its measures."""

COLUMNS = tuple(each.name for each in fields(TrialRow))
"""The columns of an exported trial."""

# Columns with JSON in a CSV or Parquet file; an error is among them as it can be any text, also "".
_JSON = ("error", "config", "confusion", "reliability", "measures", "versions")
_WHOLE = ("split_seed", "revision", "seed", "best_epoch", "epochs")
_NUMBERS = ("test_accuracy", "val_accuracy", "val_loss", "seconds")

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
        text = io.StringIO()
        # Everything is quoted, because a lone carriage return would otherwise end a line.
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(flat)
        _write(path, text.getvalue())
    else:
        arrow, parquet = _arrow()
        kinds = dict.fromkeys(COLUMNS, arrow.string())
        kinds |= dict.fromkeys(_WHOLE, arrow.int64()) | dict.fromkeys(_NUMBERS, arrow.float64())
        schema = arrow.schema(list(kinds.items()))
        with atomic_write(path) as target:
            parquet.write_table(arrow.Table.from_pylist(flat, schema=schema), target)
    return len(rows)


def import_trials(store: Store, path: Path) -> int:
    """Import those trials of a file that are not in the store; return how many."""
    try:
        rows = _read(path)
    except (OSError, EOFError, zlib.error, ValueError, csv.Error) as error:
        raise ConfigError(
            f"{path} cannot be read ({' '.join(str(error).split())}); expected a file written by "
            "dropnode trials FOLDER export"
        ) from error
    records = []
    for number, row in enumerate(rows, start=1):
        try:
            values = {name: value for name, value in row.items() if value is not None}
            if _format(path) != "json":
                values = _parsed(values)
            records.append(read_record(TrialRow, values, "trial").record())
        except ConfigError as error:
            told = continued(f"{path}, trial {number}: {error}", "nothing was imported")
            raise ConfigError(told) from error
    # A failure is only imported for a trial that is not stored: a stored one may be more recent.
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
            raise ValueError("it has no list of trials")
        if not all(isinstance(row, dict) for row in content["trials"]):
            raise ValueError("a trial in it is not an object")
        return list(content["trials"])
    if kind == "csv":
        text = _text(path)
        if not text.endswith("\n"):
            raise ValueError("its last line is not complete")
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        if "id" not in (reader.fieldnames or ()):
            raise ValueError("it has no column id")
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
        kind = json.loads if name in _JSON else int if name in _WHOLE else float
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
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            'Parquet needs pyarrow: pip install "dropnode[parquet]", or use .csv or .json'
        ) from error
    return pyarrow, pyarrow.parquet
