"""The store of an experiment: one SQLite file with a row for every trial that ended.

Only the process that runs the experiment writes. A row and its history are written in one
transaction, so that a reader, or the next process after ``kill -9``, finds a complete trial or
none. A finished trial never changes: writing it again has no effect.
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
"""Increased when the tables below change; opening a store of another layout is an error."""

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
    """A trial that ended, with its result or its error.

    Attributes
    ----------
    trial : Trial
    status : str
        ``done`` or ``failed``.
    metrics : dict
        As in :class:`~dropnode.experiments.trials.Finished`; empty for a failed trial.
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
        """Return the record of a trial, given the outcome from an engine."""
        if isinstance(outcome, Failure):
            # An error can contain anything, also characters that cannot be encoded.
            error = outcome.error.encode(errors="backslashreplace").decode()
            return cls(trial, "failed", {}, None, now(), {}, error)
        return cls(
            trial, "done", outcome.metrics, outcome.seconds, outcome.finished, outcome.versions
        )

    def lacks(self, measures: Iterable[str]) -> bool:
        """Return whether any of some measures is missing."""
        return any(name not in self.metrics for name in measures)

    def completed(self, again: Record) -> Record:
        """Return this finished trial with the additional measures of another run of it.

        If the other run failed, or gave different numbers, the result is a failure that says so.
        """
        if again.status == "failed":
            return again
        for name, value in self.metrics.items():
            if MEASURES[name].repeats and not _agree(value, again.metrics.get(name)):
                error = (
                    f"a second run, for another measure, gave {name} = "
                    f"{again.metrics.get(name)!r}, but {value!r} is stored: the stored trial comes "
                    "from another machine or other versions, and was not changed; run the "
                    "experiment in a new folder to get all measures"
                )
                return replace(again, status="failed", metrics={}, seconds=None, error=error)
        return replace(self, metrics={**again.metrics, **self.metrics})


class Store:
    """The trials of an experiment in a folder.

    Parameters
    ----------
    folder : Path
        Created if it does not exist.
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
        # Committed rows are on disk, and readers do not wait for the writer.
        self.connection.execute("pragma journal_mode = wal")
        self.connection.execute("pragma synchronous = full")
        (layout,) = self.connection.execute("pragma user_version").fetchone()
        if layout not in (0, LAYOUT):
            raise ConfigError(
                f"{self.path} has layout {layout}, but this version reads layout {LAYOUT}; export "
                "the trials with the version that wrote them, and import the exported file"
            )
        with self._transaction():
            for statement in _TABLES.split(";"):
                self.connection.execute(statement)
            self.connection.execute(f"pragma user_version = {LAYOUT}")

    def add(self, records: Iterable[tuple[Record, bytes | None]]) -> int:
        """Store records with their histories, all or none; return how many were written.

        A finished trial is never changed; a failed one is replaced by a later run of the trial.
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
        """Store the further measures of a finished trial; a failed record changes nothing."""
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
        """Return the record of a trial; None if it has not ended."""
        return next(self.records("id = ?", identifier), None)

    def records(self, condition: str = "true", *values: Any) -> Iterator[Record]:
        """Yield the trials that satisfy an SQL condition, in a fixed order."""
        query = (
            f"select {', '.join(_COLUMNS)} from trials where {condition} "
            "order by dataset, method, preset, config, split, seed"
        )
        with self._explained(), closing(self.connection.execute(query, values)) as rows:
            for row in rows:
                yield _unflatten(dict(zip(_COLUMNS, row, strict=True)))

    def history(self, identifier: str) -> dict[str, np.ndarray] | None:
        """Return the history of a trial by columns; None if it has none."""
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
                f"{self.path} cannot be used ({error}); trials stored earlier are safe: check that "
                "the disk has space and that you may write the file, then run the same command "
                "again"
            ) from error


def _agree(stored: Any, measured: Any) -> bool:
    # Equal up to the rounding of an exported file.
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
