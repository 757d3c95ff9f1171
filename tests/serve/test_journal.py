"""Labels of people survive a crash, and what was not confirmed does not appear."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dropnode.errors import WorkError
from dropnode.serve.journal import Journal


def labels(journal: Journal) -> dict[str, str | None]:
    return {name: entry.label for name, entry in journal.latest().items()}


def test_the_last_label_of_a_node_counts_and_all_are_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "labels.jsonl")
    journal.add([("a", "tea"), ("b", "mate")])
    journal.add([("a", None)])
    again = Journal(tmp_path / "labels.jsonl")
    assert labels(again) == {"b": "mate", "a": None}
    assert len(again) == 3


@pytest.mark.parametrize("cut", range(1, 30, 4))
def test_a_line_without_an_end_is_removed_and_the_journal_goes_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "labels.jsonl"
    Journal(path).add([("a", "tea")])
    whole = path.read_bytes()
    Journal(path).add([("b", "ü\n")])
    path.write_bytes(path.read_bytes()[: len(whole) + cut])
    again = Journal(path)
    assert labels(again) == {"a": "tea"}
    again.add([("c", "mate")])
    assert labels(Journal(path)) == {"a": "tea", "c": "mate"}


def test_labels_that_the_disk_does_not_take_are_not_there_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "labels.jsonl"
    journal = Journal(path)
    journal.add([("a", "tea")])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            journal.add([("b", "mate"), ("c", "mate")])
    assert labels(journal) == labels(Journal(path)) == {"a": "tea"}


@pytest.mark.parametrize("line", ["{}", "[1]", '{"id": 1, "label": "x", "at": ""}', "\xff", "nan"])
def test_a_line_of_something_else_is_an_error_that_names_it(tmp_path: Path, line: str) -> None:
    path = tmp_path / "labels.jsonl"
    Journal(path).add([("a", "tea")])
    path.write_bytes(path.read_bytes() + line.encode("latin-1") + b"\n")
    with pytest.raises(WorkError, match="line 2"):
        Journal(path)
