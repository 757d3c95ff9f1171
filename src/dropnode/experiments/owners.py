"""Folders that a command continues: which command a folder belongs to.

Each writes its own record first. It refuses the folder of another, whose trials or files it would
take for its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dropnode.errors import ConfigError
from dropnode.files import is_vacant
from dropnode.locks import FolderLock

EXPERIMENT, TUNING, ARCHITECTURES = "experiment.json", "tuning.json", "search.json"

_KINDS = {
    EXPERIMENT: "an experiment",
    TUNING: "a search for settings",
    ARCHITECTURES: "a search for an architecture",
}
"""What the folder with each record is the folder of."""


def check_owner(out: Path, record: str, others: Iterable[str] = ()) -> None:
    """Raise :class:`ConfigError` unless a folder is new, or belongs to the writer of a record.

    ``others`` are the files by which its folder is known, too, should the record be lost.
    """
    for name, kind in _KINDS.items():
        if name != record and (out / name).is_file():
            raise ConfigError(
                f"{out} is the folder of {kind}; choose another folder for {_KINDS[record]} with "
                "--out"
            )
    ours = (record, *others, FolderLock.FILE)
    if not is_vacant(out) and not any((out / name).is_file() for name in ours):
        raise ConfigError(
            f"{out} exists and is not the folder of {_KINDS[record]}; choose a new folder with "
            "--out"
        )
