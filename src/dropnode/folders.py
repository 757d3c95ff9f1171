"""New folders: whole or not at all, and checked before hours of work rather than after."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dropnode.errors import ConfigError
from dropnode.files import is_vacant, remove_leftovers, temporary_in


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """Make a folder whose files appear together, when the ``with`` block succeeds.

    The block gets another folder beside it to write to. If the block raises, nothing is left. The
    folder may exist already if it is vacant, see
    :func:`~dropnode.files.is_vacant`. Then the other folder is in it,
    and its files are moved up, for what exists may be impossible to replace: a place where a disk
    is mounted, the folder that the user is in, or one in a folder that is not the user's.
    """
    path, place = Path(path), Path(os.path.realpath(path))
    exists = place.is_dir()
    temporary = temporary_in(place if exists else place.parent)
    made: list[Path] = []
    try:
        _make(temporary.parent, made)
        temporary.mkdir()
        yield temporary
        if exists:
            _move_up(temporary)
        else:
            os.rename(temporary, place)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        _remove(made)
        if isinstance(error, OSError) and error.errno:
            # Nobody knows the temporary folder.
            named = os.fsdecode(error.filename or temporary).replace(str(temporary), str(path))
            raise OSError(error.errno, error.strerror, named) from error
        raise


def _move_up(folder: Path) -> None:
    """Move the files of a temporary folder to the folder that it is in, all or none."""
    above = folder.parent
    if not is_vacant(above):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))
    # As they were written: what makes a folder one of ours comes last.
    files = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime_ns)
    try:
        for each in files:
            os.rename(each, above / each.name)
    except BaseException:
        for each in files:
            with suppress(FileNotFoundError):
                os.rename(above / each.name, each)
        raise
    # This folder, and those of writers that were killed.
    remove_leftovers(above)


def check_place(folder: Path) -> None:
    """Raise an error unless :func:`new_folder` can make a folder, before any work is done."""
    if not is_vacant(folder):
        raise ConfigError(f"{folder} exists and is not empty; remove it, or choose another folder")
    check_makeable(folder)


def check_makeable(path: Path) -> None:
    """Raise the error of the system if a folder cannot be made and written to, before any work."""
    made: list[Path] = []
    probe = temporary_in(path)
    try:
        _make(path, made)
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        named = error.filename if error.filename != str(probe) else str(path)
        raise OSError(error.errno, error.strerror, named) from error
    finally:
        _remove(made)


def _make(folder: Path, made: list[Path]) -> None:
    """Make a folder and those above it; add those that are new to a list."""
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    for each in reversed(missing):
        each.mkdir()
        made.append(each)
    folder.mkdir(exist_ok=True)  # An error if it is a file.


def _remove(made: list[Path]) -> None:
    with suppress(OSError):
        for folder in reversed(made):
            folder.rmdir()
