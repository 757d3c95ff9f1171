"""Download of one file from a URL: verified, resumable, and never half there.

Each download writes to a name of its own, so that processes fetching the same file cannot disturb
one another. The next download continues what an interrupted one left behind: it takes the piece
over by a rename, which only one process can win. The checksum alone decides whether the result
becomes the file.

The library pooch verifies and writes atomically as well, but it starts an interrupted download from
the beginning and removes the piece that arrived. Over a bad connection a large file would never be
finished, so this module stays.
"""

from __future__ import annotations

import http.client
import os
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from dropnode.errors import DataError
from dropnode.files import file_sha256

TIMEOUT = 30.0
"""Seconds without a byte, while connecting or reading, after which a download gives up."""

ABANDONED = 600.0
"""Seconds without a write after which an unfinished file has no writer any more."""

CHUNK = 1 << 18


def download(url: str, target: Path, sha256: str | None) -> None:
    """Download ``url`` to the file ``target``.

    Parameters
    ----------
    url : str
        The address of the file.
    target : Path
        A file in an existing folder. It appears only when complete and verified.
    sha256 : str or None
        The checksum; None if it is not known.

    Raises
    ------
    DataError
        If it cannot be fetched (what arrived is kept for the next attempt) or is not the file
        expected (what arrived is deleted).
    """
    partial = target.with_name(f"{target.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    resumed = _adopt(target, partial)
    try:
        _transfer(url, partial)
        if resumed and not _matches(partial, sha256):
            # The piece that was taken over belonged to another file.
            partial.unlink()
            _transfer(url, partial)
        if not _matches(partial, sha256):
            received = file_sha256(partial)
            partial.unlink()
            raise DataError(f"{url} has sha256 {received}, expected {sha256}")
        os.replace(partial, target)
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"{url}: {_reason(error)}") from error
    finally:
        if partial.exists():
            os.replace(partial, _left_over(target))
    for path in _unclaimed(target):
        path.unlink(missing_ok=True)


def _matches(path: Path, sha256: str | None) -> bool:
    return sha256 is None or file_sha256(path) == sha256


def _left_over(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _unclaimed(target: Path) -> Iterator[Path]:
    """Yield unfinished files without a writer: released ones, and those of killed processes."""
    for path in target.parent.glob(f"{target.name}.*part"):
        try:
            idle = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            continue
        if path == _left_over(target) or idle > ABANDONED:
            yield path


def _adopt(target: Path, partial: Path) -> bool:
    for path in _unclaimed(target):
        try:
            os.rename(path, partial)
        except FileNotFoundError:
            continue
        return True
    return False


def _transfer(url: str, partial: Path) -> None:
    """Fetch ``url`` into ``partial``; continue what it holds if the server supports that."""
    have = partial.stat().st_size if partial.exists() else 0
    with _open(url, have) as response, _progress() as progress:
        span = response.headers.get("Content-Range", "")
        continues = response.status == http.client.PARTIAL_CONTENT
        if continues and not span.startswith(f"bytes {have}-"):
            raise ConnectionError(f"asked for bytes from {have:,}, got {span!r}")
        received = have if continues else 0
        length = response.headers.get("Content-Length")
        total = None if length is None else received + int(length)
        task = progress.add_task(url.rsplit("/", 1)[-1], total=total, completed=received)
        with open(partial, "ab" if continues else "wb") as file:
            while chunk := response.read1(CHUNK):
                file.write(chunk)
                received += len(chunk)
                progress.update(task, completed=received)
            file.flush()
            os.fsync(file.fileno())
    # The standard library mistakes a connection that was cut for the end of the file.
    if total is not None and received < total:
        raise ConnectionError(f"the connection closed after {received:,} of {total:,} bytes")


def _open(url: str, start: int) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"User-Agent": "dropnode"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if start and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _open(url, 0)
        raise
    return response


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    if isinstance(error, TimeoutError) or isinstance(getattr(error, "reason", None), TimeoutError):
        return f"no byte in {TIMEOUT:g} s"
    return str(getattr(error, "reason", "") or error) or type(error).__name__
