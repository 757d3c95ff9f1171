"""A file is written whole or not at all."""

from __future__ import annotations

import gzip
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import damage
from dropnode import memory, read_tables
from dropnode.errors import ConfigError, DropnodeError, WorkError
from dropnode.experiments.exchange import add_missing, read_trials
from dropnode.experiments.spec_file import load_spec
from dropnode.experiments.store import Store
from dropnode.files import (
    atomic_write,
    explained,
    read_content,
    remove_leftovers,
    seal,
    unseal,
    write_bytes,
    write_json,
)
from dropnode.locks import FolderLock
from dropnode.saving import load_model
from dropnode.settings import read_changes, read_json


def test_bytes_and_json_come_back(tmp_path: Path) -> None:
    write_bytes(tmp_path / "deep" / "er" / "a.bin", b"\x00\xff")
    write_json(tmp_path / "a.json", {"α": [1, 2.5, None]})
    assert (tmp_path / "deep" / "er" / "a.bin").read_bytes() == b"\x00\xff"
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == {"α": [1, 2.5, None]}


def test_text_is_utf8_with_unix_line_ends(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a.txt", "w") as file:
        file.write("ä\n")
    assert (tmp_path / "a.txt").read_bytes() == b"\xc3\xa4\n"


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_bytes(path, b"old")

    def interrupted() -> None:
        with atomic_write(path) as file:
            file.write(b"half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_the_old_file_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_bytes(path, b"old")
    with atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with atomic_write(path) as first, atomic_write(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_values_that_json_does_not_have_are_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", 1)
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a.json", float("nan"))
    assert (tmp_path / "a.json").read_text() == "1\n"


def test_a_seal_is_of_the_values_and_not_of_the_layout() -> None:
    """A tool that sorts or indents a record again does it no harm; another value is noticed."""
    record = {"seed": 3, "config": {"order": 8, "hidden": [32, 16]}, "name": "ä"}
    sealed = seal(record)
    for text in (json.dumps(sealed, sort_keys=True, indent=4), json.dumps(sealed, indent=None)):
        assert unseal(json.loads(text)) == record
    other = json.loads(json.dumps(sealed))
    other["config"]["hidden"] = [16, 32]
    with pytest.raises(ValueError, match="damaged or edited"):
        unseal(other)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no file mode bits")
def test_others_may_read_the_file_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_bytes(tmp_path / "a.txt", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o644


def test_a_second_holder_of_a_folder_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with FolderLock(folder), pytest.raises(ConfigError, match=f"another process .* {folder}"):
        FolderLock(folder)
    with FolderLock(folder):
        pass


def test_a_lock_that_is_another_file_is_not_taken_for_a_second_process(tmp_path: Path) -> None:
    (tmp_path / ".driver").write_text("what somebody wrote\n" * 100)
    with pytest.raises(WorkError, match=r"not a database.*; .* holds nothing: delete it"):
        FolderLock(tmp_path)


def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path) -> None:
    write_bytes(tmp_path / ("a" * 255), b"whole")
    assert (tmp_path / ("a" * 255)).read_bytes() == b"whole"


def test_a_failed_write_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage.FullDisk(monkeypatch, fatal=1)
    with pytest.raises(OSError, match="No space left") as told:
        write_bytes(tmp_path / "a.bin", b"data")
    assert explained(told.value) == (
        f"{tmp_path / 'a.bin'}: No space left on device; free some space and run the same command "
        "again; what was stored is not lost"
    )


def test_text_that_is_not_unicode_is_an_error_or_an_escape(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"name": "\ud800"})
    assert json.loads((tmp_path / "a.json").read_text()) == {"name": "\ud800"}
    with (
        pytest.raises(WorkError, match=r"a\.txt cannot be written"),
        atomic_write(tmp_path / "a.txt", "w") as file,
    ):
        file.write("\ud800")
    assert not (tmp_path / "a.txt").exists()


def test_only_temporary_files_of_ours_are_removed(tmp_path: Path) -> None:
    ours = [tmp_path / ".dropnode-1-0a1b2c3d.tmp", tmp_path / "model" / ".dropnode-23-00000000.tmp"]
    others = [
        tmp_path / name
        for name in (".a.tmp", "dropnode-1-0a1b2c3d.tmp", ".dropnode-1-0a1b2c3d.tmp.bak", "a.tmp")
    ]
    (tmp_path / "model").mkdir()
    for path in (*ours, *others):
        path.write_text("text")
    remove_leftovers(tmp_path)
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in others)


def test_folders_of_killed_writers_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".dropnode-1-0123abcd.tmp").mkdir()
    (tmp_path / ".dropnode-1-0123abcd.tmp" / "a").write_text("half")
    (tmp_path / "mine").mkdir()
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize("packed", [False, True])
def test_content_is_read_up_to_a_limit(
    packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content = tmp_path / "a", b"7" * 1000
    path.write_bytes(gzip.compress(content) if packed else content)
    assert read_content(path, packed=packed, most=1000) == content
    with pytest.raises(ConfigError, match="more than the 999 bytes"):
        read_content(path, packed=packed, most=999)
    # What is parsed takes three times its size.
    monkeypatch.setattr(memory, "available_memory", lambda: 3000)
    assert read_content(path, packed=packed) == content
    monkeypatch.setattr(memory, "available_memory", lambda: 2999)
    with pytest.raises(WorkError, match="needs at least 3,000 bytes of memory"):
        read_content(path, packed=packed)


def _import(path: Path) -> None:
    with Store(path.parent / "store") as store:
        add_missing(store, read_trials(path))


READERS: dict[str, Callable[[Path], object]] = {
    "settings.yaml": lambda path: read_changes([f"@{path}"]),
    "spec.yaml": lambda path: load_spec(str(path)),
    "record.json": read_json,
    "model.json": lambda path: load_model(path.parent),
    "trials.csv": _import,
    "trials.json": _import,
    "nodes.csv": lambda path: read_tables(path, label="topic"),
    "nodes.jsonl": lambda path: read_tables(path, label="topic"),
}
"""What reads a file that a user names."""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no /dev/zero on Windows")
@pytest.mark.parametrize("name", READERS)
def test_a_file_that_never_ends_is_an_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 80 * 2**20)
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(
        DropnodeError, match=r"more than the|needs at least .* of memory|a pipe or a device"
    ):
        READERS[name](tmp_path / name)


def test_trials_that_expand_beyond_memory_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 80 * 2**20)
    (tmp_path / "trials.csv.gz").write_bytes(gzip.compress(bytes(50 * 2**20), compresslevel=1))
    with pytest.raises(WorkError, match="of memory"):
        _import(tmp_path / "trials.csv.gz")


def test_a_lock_that_can_only_be_read_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FolderLock(tmp_path):
        pass
    # Root may write to every file, so that permissions alone would not show it.
    monkeypatch.setattr("dropnode.locks.os.access", lambda path, mode: False)
    with pytest.raises(WorkError, match=r"is read-only; choose a folder where you may write"):
        FolderLock(tmp_path)
