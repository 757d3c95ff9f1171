"""Files: atomic writing, checksums, and the user's cache.

A reader never sees a partly written file, however the writer ends: everything is written to a
temporary file in the same folder, flushed to the disk, and moved into place in one step. A record
that a later run computes from is sealed: it carries a checksum of itself, which reading checks.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Literal, overload

import platformdirs

from dropnode.errors import ConfigError, WorkError
from dropnode.memory import check_memory


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
    write_bytes(path, json_bytes(value, indent=2) + b"\n")


def json_bytes(value: Any, indent: int | None = None) -> bytes:
    """Return ``value`` as JSON in UTF-8; NaN and infinity raise a ``ValueError``."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, as in the name of a file that is not in UTF-8.
        return json.dumps(value, indent=indent, allow_nan=False).encode()


BLOCK = 16 * 2**20
"""Bytes that are read at a time from what is no plain file."""


def read_content(path: Path, *, packed: bool = False, most: int | None = None) -> bytes:
    """Return the content of a file, if it fits into memory together with what it becomes.

    A device such as ``/dev/zero`` never ends, and a small file may expand to any size, so that such
    content is counted block by block.

    Parameters
    ----------
    path : Path
    packed : bool
        Whether it is a gzip file, whose expanded content is returned.
    most : int, optional
        A file with more bytes is a :class:`~dropnode.errors.ConfigError`.
    """
    found = path.stat()
    plain = stat.S_ISREG(found.st_mode) and not packed
    _check_size(path, found.st_size, most if plain else None)
    if plain:
        return path.read_bytes()
    parts, size = [], 0
    with gzip.open(path) if packed else open(path, "rb") as file:
        while part := file.read(BLOCK):
            parts.append(part)
            size += len(part)
            _check_size(path, size, most)
    return b"".join(parts)


def _check_size(path: Path, size: int, most: int | None) -> None:
    if most is not None and size > most:
        raise ConfigError(f"{path} has more than the {most:,} bytes that are expected at most")
    check_memory(3 * size, f"reading {path}", "use a larger machine or a smaller file")


SEAL = "sha256"
"""The key of the checksum in a sealed record."""


def seal(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of JSON values with a checksum of them, which :func:`unseal` checks.

    Examples
    --------
    >>> unseal(seal({"epochs": 3}))
    {'epochs': 3}
    >>> unseal(seal({"epochs": 3}) | {"epochs": 4})
    Traceback (most recent call last):
    ValueError: its checksum does not match: it was damaged or edited
    """
    return {**record, SEAL: record_sha256(record)}


def unseal(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sealed record without its checksum; ``ValueError`` if it does not match.

    A record without a checksum, of an earlier version, is returned as it is.
    """
    values = {key: value for key, value in record.items() if key != SEAL}
    if SEAL in record and record[SEAL] != record_sha256(values):
        raise ValueError("its checksum does not match: it was damaged or edited")
    return values


def record_sha256(record: Mapping[str, Any]) -> str:
    """Return the sha256 of the values of a record, however its file is laid out."""
    # Read back first, so that a key or a tuple is what it will be in the file.
    plain = json.loads(json.dumps(record))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@contextmanager
def _atomic_write(path: Path, mode: str) -> Iterator[IO[Any]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile, whose files are private to the user; a finished file should follow the umask.
    # Without the name of the file, which may be as long as a name can be.
    temporary = temporary_in(path.parent)
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "\n")
    try:
        with open(temporary, mode.replace("w", "x"), encoding=encoding, newline=newline) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        # A folder that was deleted meanwhile has no temporary file either.
        temporary.unlink(missing_ok=True)
        if isinstance(error, UnicodeEncodeError):
            raise WorkError(
                f"{path} cannot be written: {error.object[error.start : error.end]!r} in a text is "
                "not Unicode; replace it"
            ) from error
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(temporary)):
            # A failed write does not say which file it was, and nobody knows the temporary one.
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def temporary_in(folder: Path) -> Path:
    """Return a path in a folder that nobody else has; :func:`remove_leftovers` knows it."""
    return folder / f".dropnode-{os.getpid()}-{secrets.token_hex(4)}.tmp"


_TEMPORARY = re.compile(r"\.dropnode-\d+-[0-9a-f]{8}\.tmp")


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and folders that killed writers of ours left below ``folder``.

    Call it only for a folder that is known to be ours.
    """
    for path in list(folder.rglob(".dropnode-*.tmp")):
        if _TEMPORARY.fullmatch(path.name) and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


def is_vacant(folder: Path) -> bool:
    """Return whether a folder can be made or is empty, apart from temporary files of ours.

    A file, or a folder with anything else in it, belongs to somebody.
    """
    if not os.path.lexists(folder):
        return True
    return folder.is_dir() and all(_TEMPORARY.fullmatch(path.name) for path in folder.iterdir())


_CURES = {
    errno.ENOSPC: "free some space and run the same command again; what was stored is not lost",
    errno.EDQUOT: "free some space and run the same command again; what was stored is not lost",
    errno.EFBIG: "allow larger files and run the same command again; what was stored is not lost",
    errno.EACCES: "choose a place where you may write, or change the rights",
    errno.EPERM: "choose a place where you may write, or change the rights",
    errno.EROFS: "choose a place where you may write",
    errno.EEXIST: "a file is where a folder is needed; choose another path",
    errno.ENOTDIR: "a file is where a folder is needed; choose another path",
    errno.EISDIR: "a folder is where a file is needed; choose another path",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "it does not exist, or was deleted while it was in use",
}
"""What to do about an error of the operating system."""


def explained(error: OSError) -> str:
    """Return an error of the operating system in a sentence: the file, what happened, the cure.

    Examples
    --------
    >>> explained(OSError(errno.ENAMETOOLONG, "File name too long", "a" * 10))
    'aaaaaaaaaa: File name too long; choose a shorter name'
    """
    if error.errno is None:
        return str(error) or type(error).__name__
    place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    cure = _CURES.get(error.errno, "correct this and run the same command again")
    return f"{place}{error.strerror}; {cure}"


DAMAGED_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    KeyError,
    EOFError,
    OSError,
    struct.error,
    # An unknown compression, or a password, that a flipped bit asks for.
    NotImplementedError,
    RuntimeError,
)
"""What reading a damaged archive of arrays can raise."""


def user_cache() -> Path | None:
    """Return the folder ``dropnode`` in the platform's folder for caches of the user.

    None if the user has no home, as in a container that runs under a number without a name.
    """
    try:
        return platformdirs.user_cache_path("dropnode", appauthor=False)
    except RuntimeError:
        return None


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
