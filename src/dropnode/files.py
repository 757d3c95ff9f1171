"""Files: atomic writing, locks of folders, and the user's cache.

A reader never sees a partly written file, however the writer ends: everything is written to a
temporary file in the same folder, flushed to the disk, and moved into place in one step.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Literal, Self, overload

import platformdirs

from dropnode.errors import ConfigError, WorkError


@overload
def atomic_write(
    path: str | Path, mode: Literal["wb"] = "wb"
) -> AbstractContextManager[IO[bytes]]: ...
@overload
def atomic_write(path: str | Path, mode: Literal["w"]) -> AbstractContextManager[IO[str]]: ...
def atomic_write(path: str | Path, mode: Literal["wb", "w"] = "wb") -> Any:
    """Open ``path`` for writing; the complete file appears when the ``with`` block succeeds.

    If the block raises, ``path`` is unchanged. Missing parent folders are created.

    Parameters
    ----------
    path : str or Path
        The file to create or replace.
    mode : {"wb", "w"}
        Bytes, or text in UTF-8 with ``\\n`` line ends on every platform.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "greeting.txt", "w") as file:
    ...         _ = file.write("hello")
    ...     (Path(folder) / "greeting.txt").read_text()
    'hello'
    """
    return _atomic_write(Path(path), mode)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically."""
    with atomic_write(path) as file:
        file.write(data)


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` to ``path`` as indented JSON; NaN and infinity raise a ``ValueError``."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_write(path, "w") as file:
        file.write(text + "\n")


@contextmanager
def _atomic_write(path: Path, mode: str) -> Iterator[IO[Any]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile, whose files are private to the user; a finished file should follow the umask.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "\n")
    try:
        with open(temporary, mode.replace("w", "x"), encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that a killed writer left anywhere below ``folder``."""
    for path in folder.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


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

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / ".driver"
        try:
            self.connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        except sqlite3.OperationalError as error:
            raise _unusable(path, error) from error
        try:
            self.connection.execute("begin exclusive")
        except sqlite3.DatabaseError as error:
            self.connection.close()
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise _unusable(path, error) from error
            raise ConfigError(
                f"another process is writing to {folder}; wait for it to end, or choose another "
                "folder with --out"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def _unusable(path: Path, error: sqlite3.Error) -> WorkError:
    return WorkError(f"{path} cannot be used ({error}); choose a writable folder with --out")


def user_cache() -> Path:
    """Return the folder ``dropnode`` in the platform's folder for caches of the user."""
    return platformdirs.user_cache_path("dropnode", appauthor=False)


def to_path(path: Any) -> Path:
    """Return a path; what can be none is an error."""
    if isinstance(path, str | os.PathLike) and "\0" not in os.fsdecode(path):
        return Path(path)
    raise ConfigError(f"{type(path).__name__} {str(path)[:60]!r} is no path; give one as text")


def exists(path: str | Path) -> bool:
    """Return whether there is such a file or folder; a text that can be no path is none."""
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False


def is_text(text: str) -> bool:
    """Return whether a text can be written to a file: bytes of a file name may be no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
