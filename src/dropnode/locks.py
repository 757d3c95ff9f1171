"""Locks of folders, and what the errors of SQLite mean, on whose files the locks are."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Self

from dropnode.errors import ConfigError, WorkError

ELSEWHERE = "choose a folder where you may write"


class FolderLock:
    """A lock on a folder for one process at a time; others get a :class:`ConfigError`.

    It is the lock of an SQLite file, which the operating system releases however the process ends,
    on every system that SQLite supports.

    Parameters
    ----------
    folder : Path
        Created if it does not exist.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, FolderLock(Path(folder)):
    ...     FolderLock(Path(folder))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dropnode.errors.ConfigError: another process is writing to ...
    """

    FILE = ".driver"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / self.FILE
        try:
            self.connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        except sqlite3.OperationalError as error:
            raise _unusable(path, error) from error
        if not os.access(path, os.W_OK) and path.exists():
            # SQLite would open it to be read, and lock nothing.
            self.connection.close()
            raise WorkError(f"{path} is read-only; {ELSEWHERE}")
        try:
            self.connection.execute("begin exclusive")
        except sqlite3.DatabaseError as error:
            self.connection.close()
            if not is_busy(error):
                raise _unusable(path, error) from error
            raise ConfigError(
                f"another process is writing to {folder}; wait for it to end, or choose another "
                "folder"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether SQLite failed because another process holds the file at this moment."""
    # The lowest byte is the kind of the error; the others say more about it.
    return _kind(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damaged(error: sqlite3.Error) -> bool:
    """Return whether SQLite failed because a file is damaged, or is not one of SQLite's."""
    # Python itself, which gives no code, finds text that is not UTF-8; no row was stored so.
    broken_text = isinstance(error, sqlite3.OperationalError) and _kind(error) is None
    return broken_text or _kind(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _kind(error: sqlite3.Error) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _unusable(path: Path, error: sqlite3.Error) -> WorkError:
    if is_damaged(error):
        cure = "it only locks the folder and holds nothing: delete it"
    else:
        cure = ELSEWHERE
    return WorkError(f"{path} cannot be used ({error}); {cure}")
