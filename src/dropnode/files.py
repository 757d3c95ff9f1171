"""Whole files or none: how the project writes to disk, and where its caches go.

A reader never meets a half-written file, however the writer ends: everything is written beside the
target under a name of its own, flushed to the disk, and moved into place in one step.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Literal, overload


@overload
def atomic_write(
    path: str | Path, mode: Literal["wb"] = "wb"
) -> AbstractContextManager[IO[bytes]]: ...
@overload
def atomic_write(path: str | Path, mode: Literal["w"]) -> AbstractContextManager[IO[str]]: ...
def atomic_write(path: str | Path, mode: Literal["wb", "w"] = "wb") -> Any:
    """Open ``path`` for writing; it appears, complete, when the ``with`` block ends well.

    If the block raises, ``path`` is left as it was. Missing parent folders are made.

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
    """Write ``data`` to ``path``, whole or not at all."""
    with atomic_write(path) as file:
        file.write(data)


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` to ``path`` as indented JSON; NaN and infinity, not JSON, are refused."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_write(path, "w") as file:
        file.write(text + "\n")


@contextmanager
def _atomic_write(path: Path, mode: str) -> Iterator[IO[Any]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile: its files are private to the user, and a finished file should follow the umask.
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
    """Remove what a killed writer left half-written anywhere below ``folder``."""
    for path in folder.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


def user_cache() -> Path:
    """Return ``dropnode`` in the platform's user cache."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "dropnode" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dropnode"
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification asks to ignore a relative path.
    return (Path(configured) if os.path.isabs(configured) else Path.home() / ".cache") / "dropnode"
