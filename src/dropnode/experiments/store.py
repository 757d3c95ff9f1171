"""The store of an experiment: one SQLite file that holds a row for every trial that ended.

Only the process that drives the experiment writes. A row is written in one transaction with its
history, so that a reader, or a driver that goes on after ``kill -9``, finds a trial whole or not at
all. A trial that is done stays as it is: writing it again changes nothing.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from dropnode.engines.base import Failure
from dropnode.errors import ConfigError, StoreError
from dropnode.experiments.measures import MEASURES
from dropnode.experiments.trials import Finished, Trial, now, read_history

FILE = "trials.sqlite"
LAYOUT = 2
"""Raised when the tables below change; a store of another layout is refused."""

_TABLES = """
create table if not exists trials (
    id text primary key,
    dataset text not null,
    dataset_sha256 text not null,
    split text not null,
    split_seed integer not null,
    method text not null,
    revision integer not null,
    preset text not null,
    config text not null,
    seed integer not null,
    split_sha256 text not null,
    recipe text not null,
    status text not null check (status in ('done', 'failed')),
    metrics text not null,
    seconds real,
    finished text not null,
    versions text not null,
    error text
) strict;
create table if not exists histories (
    id text primary key references trials (id),
    columns blob not null
) strict;
"""

_TRIAL = [field.name for field in fields(Trial)]
_RESULT = "status metrics seconds finished versions error".split()
_COLUMNS = ["id", *_TRIAL, *_RESULT]
_JSON = ("config", "metrics", "versions")


@dataclass(frozen=True)
class Record:
    """A trial that ended, and how.

    Attributes
    ----------
    trial : Trial
    status : str
        ``done`` or ``failed``.
    metrics : dict
        Those of :class:`~dropnode.experiments.trials.Finished`; empty for a failed trial.
    seconds : float or None
    finished : str
    versions : dict
    error : str or None
        Why it failed.
    """

    trial: Trial
    status: str
    metrics: dict[str, Any]
    seconds: float | None
    finished: str
    versions: dict[str, str]
    error: str | None = None

    @classmethod
    def of(cls, trial: Trial, outcome: Finished | Failure) -> Record:
        """Return the record of what an engine returned for a trial."""
        if isinstance(outcome, Failure):
            # An error can quote anything, also bytes that are no text.
            error = outcome.error.encode(errors="backslashreplace").decode()
            return cls(trial, "failed", {}, None, now(), {}, error)
        return cls(
            trial, "done", outcome.metrics, outcome.seconds, outcome.finished, outcome.versions
        )

    def lacks(self, measures: Iterable[str]) -> bool:
        """Whether one of some measures was not stored."""
        return any(name not in self.metrics for name in measures)

    def completed(self, again: Record) -> Record:
        """Return this done trial with the measures that another run of it has beyond its own.

        If the other run failed, or gave other numbers, the result is a failure that says so.
        """
        if again.status == "failed":
            return again
        for name, value in self.metrics.items():
            if MEASURES[name].repeats and not _agree(value, again.metrics.get(name)):
                error = (
                    f"run again for another measure, its {name} is {again.metrics.get(name)!r}, "
                    f"stored is {value!r}: another machine or other versions made the stored one; "
                    "it stays as it is. Run the experiment in a new folder to measure all of it"
                )
                return replace(again, status="failed", metrics={}, seconds=None, error=error)
        return replace(self, metrics={**again.metrics, **self.metrics})


class Store:
    """The trials of an experiment in a folder.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        with self._explained():
            self.connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self.connection.close()
                raise

    def _open(self) -> None:
        # What is committed is on disk, and readers do not wait for the writer.
        self.connection.execute("pragma journal_mode = wal")
        self.connection.execute("pragma synchronous = full")
        (layout,) = self.connection.execute("pragma user_version").fetchone()
        if layout not in (0, LAYOUT):
            raise ConfigError(
                f"{self.path} has layout {layout}, this version reads {LAYOUT}; export it with the "
                "version that wrote it, and import that"
            )
        with self._transaction():
            for statement in _TABLES.split(";"):
                self.connection.execute(statement)
            self.connection.execute(f"pragma user_version = {LAYOUT}")

    def add(self, records: Iterable[tuple[Record, bytes | None]]) -> int:
        """Store records with their histories, all or none; return how many were new or better.

        A done trial is never changed; a failed one gives way to any later end of the same trial.
        """
        changed = 0
        with self._explained(), self._transaction():
            for record, history in records:
                values = _flatten(record)
                places = ", ".join("?" * len(_COLUMNS))
                updates = ", ".join(f"{name} = excluded.{name}" for name in _RESULT)
                cursor = self.connection.execute(
                    f"insert into trials ({', '.join(_COLUMNS)}) values ({places}) "
                    f"on conflict (id) do update set {updates} where trials.status = 'failed'",
                    [values[name] for name in _COLUMNS],
                )
                changed += cursor.rowcount
                if cursor.rowcount and history is not None:
                    self.connection.execute(
                        "insert or replace into histories values (?, ?)",
                        (record.trial.id, history),
                    )
        return changed

    def complete(self, record: Record) -> None:
        """Store the further measures of a done trial; a failed record changes nothing."""
        if record.status == "done":
            with self._explained(), self._transaction():
                self.connection.execute(
                    "update trials set metrics = ? where id = ? and status = 'done'",
                    (_flatten(record)["metrics"], record.trial.id),
                )

    def statuses(self) -> dict[str, str]:
        """Return the status of every trial by its id."""
        with self._explained():
            return dict(self.connection.execute("select id, status from trials"))

    def get(self, identifier: str) -> Record | None:
        """Return a trial, if it ended."""
        return next(self.records("id = ?", identifier), None)

    def records(self, condition: str = "true", *values: Any) -> Iterator[Record]:
        """Return the trials that an SQL condition holds of, in a fixed order."""
        query = (
            f"select {', '.join(_COLUMNS)} from trials where {condition} "
            "order by dataset, method, preset, config, split, seed"
        )
        with self._explained(), closing(self.connection.execute(query, values)) as rows:
            for row in rows:
                yield _unflatten(dict(zip(_COLUMNS, row, strict=True)))

    def history(self, identifier: str) -> dict[str, np.ndarray] | None:
        """Return the history of a trial by columns; None for one that came without."""
        with self._explained():
            row = self.connection.execute(
                "select columns from histories where id = ?", (identifier,)
            ).fetchone()
        return None if row is None else read_history(row[0])

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("begin immediate")
        try:
            yield
            self.connection.execute("commit")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("rollback")
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.path} cannot be used ({error}); what was stored before is safe: see that "
                "the disk has room and the file is ours, then run the same command again"
            ) from error


def _agree(stored: Any, measured: Any) -> bool:
    # What a file in between has rounded is still the same.
    if isinstance(stored, float) and isinstance(measured, float):
        return math.isclose(stored, measured, rel_tol=1e-9)
    if isinstance(stored, dict) and isinstance(measured, dict):
        return stored.keys() == measured.keys() and all(
            _agree(value, measured[key]) for key, value in stored.items()
        )
    if isinstance(stored, list) and isinstance(measured, list):
        return len(stored) == len(measured) and all(map(_agree, stored, measured))
    return bool(stored == measured)


def _flatten(record: Record) -> dict[str, Any]:
    values = {name: getattr(record.trial, name) for name in ("id", *_TRIAL)}
    values |= {name: getattr(record, name) for name in _RESULT}
    for name in _JSON:
        values[name] = json.dumps(dict(values[name]), sort_keys=True)
    return values


def _unflatten(values: dict[str, Any]) -> Record:
    for name in _JSON:
        values[name] = json.loads(values[name])
    return Record(
        Trial(**{name: values[name] for name in _TRIAL}),
        **{name: values[name] for name in _RESULT},
    )
