"""The store of an experiment: one SQLite file with a row for every trial that ended.

Only the process that runs the experiment writes. A row and its history are written in one
transaction, so that a reader, or the next process after ``kill -9``, finds a complete trial or
none. A finished trial never changes: writing it again has no effect. Damage is noticed: the file is
checked when it is opened, and every row has a checksum.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from dropnode.errors import ConfigError, StoreError
from dropnode.experiments.record import Record
from dropnode.experiments.trials import Trial, read_history
from dropnode.files import DAMAGED_ZIP
from dropnode.locks import is_busy, is_damaged

FILE = "trials.sqlite"

EXPORT = "trials.csv.gz"
"""The name of the exported trials in an experiment's folder."""

LAYOUT = 3
"""Increased when the tables below change; opening a store of another layout is an error."""

_WITHOUT_CHECKSUMS = 2
"""The layout before rows had checksums, which they get when it is opened."""

PATIENCE = 30.0
"""Seconds to wait for another process that is writing."""

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
    error text,
    sha256 text not null default ''
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
        if self.path.is_dir():
            raise self._damaged("a folder is in its place")
        with self._explained():
            self.connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self.connection.close()
                raise

    def _open(self) -> None:
        # SQLite does not wait for another process while it changes the journal mode.
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self._prepare()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _prepare(self) -> None:
        # In one transaction, because another process may be making the tables at this moment.
        with self._transaction("deferred"):
            self._check_layout()
            (found,) = self.connection.execute("pragma integrity_check(1)").fetchone()
        if found != "ok":
            raise self._damaged(found)
        # Committed rows are on disk, and readers do not wait for the writer.
        self.connection.execute("pragma journal_mode = wal")
        self.connection.execute("pragma synchronous = full")
        with self._transaction():
            # Again, because another process may have been here since.
            layout = self._check_layout()
            if layout == LAYOUT:
                return
            for statement in _TABLES.split(";"):
                self.connection.execute(statement)
            if layout == _WITHOUT_CHECKSUMS:
                self._add_checksums()
            self.connection.execute(f"pragma user_version = {LAYOUT}")

    def _check_layout(self) -> int:
        """Return the layout of the file, 0 if it is empty; raise an error if it is another's."""
        layout: int = self.connection.execute("pragma user_version").fetchone()[0]
        (tables,) = self.connection.execute("select count(*) from sqlite_master").fetchone()
        if layout == 0 and tables:
            raise ConfigError(
                f"{self.path} is a database of something else; choose another folder with --out"
            )
        if layout not in (0, _WITHOUT_CHECKSUMS, LAYOUT):
            raise ConfigError(
                f"{self.path} has layout {layout}, but this version reads layout {LAYOUT}; export "
                "the trials with the version that wrote them, and import the exported file"
            )
        return layout

    def _add_checksums(self) -> None:
        columns = [row[1] for row in self.connection.execute("pragma table_info(trials)")]
        if "sha256" not in columns:
            self.connection.execute("alter table trials add column sha256 text not null default ''")
        query = f"select {', '.join(_COLUMNS)} from trials where sha256 = ''"
        rows = self.connection.execute(query).fetchall()
        self.connection.executemany(
            "update trials set sha256 = ? where id = ?", [(_checksum(row), row[0]) for row in rows]
        )

    def add(self, records: Iterable[tuple[Record, bytes | None]]) -> int:
        """Store records with their histories, all or none; return how many were written.

        A finished trial is never changed; a failed one is replaced by a later run of the trial.
        """
        changed = 0
        with self._explained(), self._transaction():
            for record, history in records:
                row = _flatten(record)
                names = [*_COLUMNS, "sha256"]
                places = ", ".join("?" * len(names))
                updates = ", ".join(f"{name} = excluded.{name}" for name in names)
                cursor = self.connection.execute(
                    f"insert into trials ({', '.join(names)}) values ({places}) "
                    f"on conflict (id) do update set {updates} where trials.status = 'failed'",
                    [*row, _checksum(row)],
                )
                changed += cursor.rowcount
                if cursor.rowcount and history is not None:
                    self.connection.execute(
                        "insert or replace into histories values (?, ?)",
                        (record.trial.id, history),
                    )
        return changed

    def complete(self, record: Record) -> None:
        """Store the further measures of a finished trial.

        A failed record changes nothing: the stored result stays, and the caller reports it.
        """
        if record.status == "done":
            row = _flatten(record)
            metrics = row[_COLUMNS.index("metrics")]
            with self._explained(), self._transaction():
                self.connection.execute(
                    "update trials set metrics = ?, sha256 = ? where id = ? and status = 'done'",
                    (metrics, _checksum(row), record.trial.id),
                )

    def statuses(self) -> dict[str, str]:
        """Return the status of every trial by its id."""
        with self._explained():
            return dict(self.connection.execute("select id, status from trials"))

    def failed(self) -> set[str]:
        """Return the ids of the failed trials."""
        return {identifier for identifier, status in self.statuses().items() if status == "failed"}

    def get(self, identifier: str) -> Record | None:
        """Return the record of a trial; None if it has not ended."""
        return next(self.records("id = ?", identifier), None)

    def records(self, condition: str = "true", *values: Any) -> Iterator[Record]:
        """Yield the trials that satisfy an SQL condition, in a fixed order."""
        query = (
            f"select {', '.join(_COLUMNS)}, sha256 from trials where {condition} "
            "order by dataset, method, preset, config, split, seed"
        )
        with self._explained(), closing(self.connection.execute(query, values)) as rows:
            for *row, checksum in rows:
                if checksum != _checksum(row):
                    raise self._damaged(f"the checksum of trial {row[0]} does not match")
                yield _unflatten(dict(zip(_COLUMNS, row, strict=True)))

    def history(self, identifier: str) -> dict[str, np.ndarray] | None:
        """Return the history of a trial by columns; None if it has none."""
        with self._explained():
            row = self.connection.execute(
                "select columns from histories where id = ?", (identifier,)
            ).fetchone()
        try:
            return None if row is None else read_history(row[0])
        except (*DAMAGED_ZIP, TypeError) as error:
            raise self._damaged(f"the history of trial {identifier}: {error}") from error

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
    def _transaction(self, kind: str = "immediate") -> Iterator[None]:
        self.connection.execute(f"begin {kind}")
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
        except UnicodeDecodeError as error:
            # SQLite's own message quotes what it has read from the file.
            raise self._damaged(error.reason) from error
        except sqlite3.Error as error:
            if is_damaged(error):
                raise self._damaged(error) from error
            cure = (
                "another process is using it: wait for it to end"
                if is_busy(error)
                else "trials stored earlier are safe: check that the disk has space and that you "
                "may write the file"
            )
            raise StoreError(
                f"{self.path} cannot be used ({error}); {cure}, then run the same command again"
            ) from error

    def _damaged(self, reason: object) -> StoreError:
        folder = self.path.parent
        cure = (
            f"move it away (and {FILE}-wal, if there is one), then run: dropnode report {folder}, "
            f"which imports {EXPORT} again"
            if (folder / EXPORT).exists()
            else "restore it from a copy, or move it away to run its trials again"
        )
        return StoreError(f"{self.path} is damaged ({' '.join(str(reason).split())}); {cure}")


def _flatten(record: Record) -> list[Any]:
    """Return the columns of a record."""
    values = {name: getattr(record.trial, name) for name in ("id", *_TRIAL)}
    values |= {name: getattr(record, name) for name in _RESULT}
    for name in _JSON:
        values[name] = json.dumps(dict(values[name]), sort_keys=True)
    # As SQLite returns it, for the checksum.
    values["seconds"] = None if record.seconds is None else float(record.seconds)
    return [values[name] for name in _COLUMNS]


def _checksum(row: Sequence[Any]) -> str:
    # A damaged file may have bytes in place of a text, which JSON does not know.
    return hashlib.sha256(json.dumps(list(row), default=repr).encode()).hexdigest()


def _unflatten(values: dict[str, Any]) -> Record:
    for name in _JSON:
        values[name] = json.loads(values[name])
    return Record(
        Trial(**{name: values[name] for name in _TRIAL}),
        **{name: values[name] for name in _RESULT},
    )
