"""The journal of labels that people gave: lines of JSON, each on the disk before it is confirmed.

A process that is killed while it writes leaves at most one line without an end. Nobody was told
that this line was stored, and it is removed when the journal is opened again.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dropnode.errors import WorkError
from dropnode.files import json_bytes
from dropnode.settings import parse_json


@dataclass(frozen=True)
class Entry:
    """A label that a person gave to a node, or took away.

    Attributes
    ----------
    id : the id of the node
    label : the name of the class; None takes the label away
    at : when, in ISO 8601
    """

    id: str
    label: str | None
    at: str


class Journal:
    """Labels in the order in which they were given.

    Parameters
    ----------
    path : Path
        Made if it does not exist.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Journal(Path(folder) / "labels.jsonl").add([("p1", "tea"), ("p1", "mate")])
    ...     [entry.label for entry in Journal(Path(folder) / "labels.jsonl").latest().values()]
    ['mate']
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._entries: list[Entry] = self._opened()

    def add(self, labels: Sequence[tuple[str, str | None]]) -> list[Entry]:
        """Append labels, all or none; they are on the disk when this returns."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        entries = [Entry(name, label, at) for name, label in labels]
        data = b"".join(json_bytes(vars(entry)) + b"\n" for entry in entries)
        with self._lock:
            size = self.path.stat().st_size
            try:
                with open(self.path, "ab", buffering=0) as file:
                    written = file.write(data)
                    if written != len(data):
                        raise OSError(28, "the file system took a part of it", str(self.path))
                    os.fsync(file.fileno())
            except OSError:
                # What was not confirmed must not appear later.
                os.truncate(self.path, size)
                raise
            self._entries += entries
        return entries

    def latest(self) -> dict[str, Entry]:
        """Return the last entry of every node, the newest last."""
        with self._lock:
            found: dict[str, Entry] = {}
            for entry in self._entries:
                found.pop(entry.id, None)
                found[entry.id] = entry
            return found

    def __len__(self) -> int:
        return len(self._entries)

    def _opened(self) -> list[Entry]:
        with open(self.path, "ab") as file:
            os.fsync(file.fileno())
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        entries = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                values = parse_json(line.decode())
                entry = Entry(**values)
                if not all(
                    isinstance(each, str) for each in (entry.id, entry.label or "", entry.at)
                ):
                    raise ValueError("id, label and at must be text")
            except (TypeError, ValueError, json.JSONDecodeError) as error:
                raise WorkError(
                    f"{self.path}, line {number}: not a label of the Explorer ({error}); correct "
                    "or remove the line"
                ) from error
            entries.append(entry)
        return entries
