"""Damage to files, as disks, people and crashes do it; what is random says its seed."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def truncate(path: Path, length: int) -> None:
    """Keep only the first bytes of a file."""
    os.truncate(path, length)


def flip_bit(path: Path, seed: int) -> str:
    """Flip one bit of a file, drawn by a seed; return which, for the message of a failure."""
    content = bytearray(path.read_bytes())
    bit = random.Random(seed).randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return f"seed {seed}: bit {bit % 8} of byte {bit // 8} of {path}"


def zero(path: Path, start: int, length: int) -> None:
    """Overwrite a range of a file with zeros, as a lost page."""
    content = bytearray(path.read_bytes())
    content[start : start + length] = bytes(min(length, len(content) - start))
    path.write_bytes(content)


def exchange(one: Path, other: Path) -> None:
    """Exchange two files."""
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


@contextmanager
def restored(path: Path) -> Iterator[None]:
    """Give a file its content back, so that it can be damaged again."""
    content = path.read_bytes()
    try:
        yield
    finally:
        path.write_bytes(content)


def error_of(call: Callable[[], object], kind: type[Exception]) -> str | None:
    """Return the error of one kind that a call gives; None if it gives none."""
    try:
        call()
    except kind as error:
        return str(error)
    return None


class FullDisk:
    """A disk that is full from the n-th write on, counted from 1.

    Everything that the package writes is flushed to the disk before it is moved into place, so
    that every write passes ``os.fsync``.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fatal: int) -> None:
        self.writes = 0
        real: Callable[[int], None] = os.fsync

        def fsync(descriptor: int) -> None:
            self.writes += 1
            if self.writes >= fatal:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
