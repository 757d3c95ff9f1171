"""A new folder appears whole or not at all, wherever it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import damage
from dropnode.errors import ConfigError
from dropnode.files import is_vacant, write_bytes
from dropnode.folders import check_makeable, check_place, new_folder


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with new_folder(out) as place:
        write_bytes(place / "a", b"1")
        assert not out.exists()
    assert (out / "a").read_bytes() == b"1"
    assert os.listdir(out.parent) == ["out"]


@pytest.mark.parametrize("out", ["out", "deep/er/out"])
def test_a_folder_that_fails_leaves_nothing(tmp_path: Path, out: str) -> None:
    def interrupted() -> None:
        with new_folder(tmp_path / out) as place:
            write_bytes(place / "a", b"1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []


def test_an_empty_folder_is_taken_and_a_full_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".dropnode-1-0123abcd.tmp").write_text("left behind")
    assert is_vacant(tmp_path / "out")
    with new_folder(tmp_path / "out") as place:
        write_bytes(place / "a", b"1")
    assert os.listdir(tmp_path / "out") == ["a"]

    def again() -> None:
        with new_folder(tmp_path / "out") as place:
            write_bytes(place / "a", b"2")

    with pytest.raises(OSError, match="out"):
        again()
    assert (tmp_path / "out" / "a").read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["out"]


def test_a_full_disk_names_the_folder_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage.FullDisk(monkeypatch, 1)

    def failing() -> None:
        with new_folder(tmp_path / "out") as place:
            write_bytes(place / "a", b"1")

    with pytest.raises(OSError, match="No space left") as caught:
        failing()
    assert caught.value.filename == str(tmp_path / "out" / "a")
    assert os.listdir(tmp_path) == []


def test_the_folder_that_the_user_is_in_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    check_place(Path("."))
    with new_folder(".") as place:
        write_bytes(place / "a", b"1")
        write_bytes(place / "deep" / "b", b"2")
    # Still the same folder, not one that was removed.
    assert sorted(os.listdir(".")) == ["a", "deep"]
    assert os.listdir(tmp_path) == ["here"]


def test_a_link_to_an_empty_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    check_place(tmp_path / "link")
    with new_folder(tmp_path / "link") as place:
        write_bytes(place / "a", b"1")
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "real") == ["a"]


def test_a_folder_that_cannot_be_replaced_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a place where a disk is mounted, and a folder in one where nobody may write."""
    out = tmp_path / "out"
    out.mkdir()
    renamed = os.rename

    def rename(source: Path, target: Path) -> None:
        assert Path(target) != out
        assert Path(source).is_relative_to(out)
        renamed(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with new_folder(out) as place:
        write_bytes(place / "a", b"1")
    assert os.listdir(out) == ["a"]


def test_an_existing_folder_that_fails_stays_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = os.rename

    def rename(source: Path, target: Path) -> None:
        if Path(target) == tmp_path / "b":
            raise OSError(5, "Input/output error", str(source))
        renamed(source, target)

    monkeypatch.setattr(os, "rename", rename)

    def failing() -> None:
        with new_folder(tmp_path) as place:
            write_bytes(place / "a", b"1")
            write_bytes(place / "b", b"2")

    with pytest.raises(OSError, match="Input/output") as caught:
        failing()
    assert caught.value.filename == str(tmp_path / "b")
    assert os.listdir(tmp_path) == []


def test_a_place_with_something_in_it_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    for place in (tmp_path, tmp_path / "mine"):
        with pytest.raises(ConfigError, match="exists and is not empty"):
            check_place(place)
    with pytest.raises(OSError, match="mine"):
        check_place(tmp_path / "mine" / "model")


def test_a_place_that_cannot_be_written_to_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Path.mkdir

    def mkdir(path: Path, *arguments: int, **options: bool) -> None:
        if path.parent == tmp_path / "locked":
            raise PermissionError(13, "Permission denied", str(path))
        made(path, *arguments, **options)

    (tmp_path / "locked").mkdir()
    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(PermissionError) as caught:
        check_makeable(tmp_path / "locked")
    assert caught.value.filename == str(tmp_path / "locked")
    assert os.listdir(tmp_path / "locked") == []


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the rights of root have no limits"
)
def test_a_folder_of_somebody_else_is_refused_before_any_work(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(PermissionError):
        check_place(tmp_path)
    with pytest.raises(PermissionError):
        check_place(tmp_path / "new")
