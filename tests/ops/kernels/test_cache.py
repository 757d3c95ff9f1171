"""Whatever happens to the files of compiled kernels, a kernel gives the right result."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropnode import files
from dropnode.ops.kernels import cache, jit
from dropnode.ops.kernels.bits import transpose_words
from dropnode.ops.kernels.jit import kernel


@kernel
def tripled(values, out):  # type: ignore[no-untyped-def]
    for place in range(len(values)):
        out[place] = 3 * values[place] + 1


@kernel
def negated(values, out):  # type: ignore[no-untyped-def]
    for place in range(len(values)):
        out[place] = -values[place]


class Fresh:
    """A kernel as a new process has it: nothing compiled, nothing loaded."""

    def __init__(self, compiled: Any) -> None:
        self.compiled: Any = kernel(compiled.py_func)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        out = np.empty_like(values)
        self.compiled(values, out)
        return out

    @property
    def loaded(self) -> bool:
        """Whether the last call found the kernel in the cache."""
        return sum(self.compiled.stats.cache_hits.values()) == 1


VALUES = np.array([1.0, -2.0, 0.5], dtype=np.float32)
TRIPLED, NEGATED = 3 * VALUES + 1, -VALUES


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def compiled_files(home: Path) -> list[Path]:
    return sorted(path for path in home.rglob("*") if path.is_file())


@pytest.fixture
def file(home: Path) -> Path:
    """The file of the first kernel."""
    assert not Fresh(tripled).loaded
    np.testing.assert_array_equal(Fresh(tripled)(VALUES), TRIPLED)
    (path,) = compiled_files(home)
    return path


def assert_heals(path: Path, whole: bytes) -> None:
    """A process compiles again, with the right result, and the next one loads what it wrote."""
    first = Fresh(tripled)
    np.testing.assert_array_equal(first(VALUES), TRIPLED)
    assert not first.loaded, "a damaged file is not used"
    second = Fresh(tripled)
    np.testing.assert_array_equal(second(VALUES), TRIPLED)
    assert second.loaded
    path.write_bytes(whole)


def test_a_compiled_kernel_is_found_again(file: Path) -> None:
    again = Fresh(tripled)
    np.testing.assert_array_equal(again(VALUES), TRIPLED)
    assert again.loaded
    other = Fresh(tripled)
    np.testing.assert_array_equal(other(VALUES.astype(np.float64)), TRIPLED.astype(np.float64))
    assert not other.loaded, "other types are another kernel"


def test_a_change_of_what_a_kernel_may_call_is_compiled_anew(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files beside the kernel, and those of the kernels that all may call."""
    own, common = tmp_path / "own", tmp_path / "common"
    folders = []
    for version, changed in enumerate((None, own, common)):
        for folder in (own, common):
            folder.mkdir(exist_ok=True)
            text = f"VERSION = {version}" if folder == changed else "VERSION = 0"
            (folder / "some.py").write_text(text)
        made: dict[str, Any] = {}
        code = "def doubled(values, out):\n    out[:] = 2 * values\n"
        exec(compile(code, str(own / "some.py"), "exec"), made)
        with monkeypatch.context() as patch:
            patch.setattr(jit, "__file__", str(common / "jit.py"))
            jit._sources.cache_clear()
            compiled: Any = kernel(made["doubled"])
            folders.append(compiled._cache.cache_path)
        jit._sources.cache_clear()
    assert len(set(folders)) == 3
    assert all(folder.startswith(str(home)) for folder in folders)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "a part of the checksum": lambda whole: whole[:20],
    "the checksum alone": lambda whole: whole[:32],
    "truncated": lambda whole: whole[: len(whole) // 2],
    "one byte short": lambda whole: whole[:-1],
    "longer": lambda whole: whole + b"\0",
    "zeroed": lambda whole: bytes(len(whole)),
    "a zeroed page": lambda whole: whole[:4096] + bytes(4096) + whole[8192:],
    "another pickle": lambda whole: pickle.dumps("foreign"),
    "a pickle that ends the process": lambda whole: whole[:32] + b"cos\n_exit\n(I3\ntR.",
    "text": lambda whole: b"not a kernel\n",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_compiled_again(file: Path, damage: str) -> None:
    whole = file.read_bytes()
    file.write_bytes(DAMAGES[damage](whole))
    assert_heals(file, whole)


def flipped(whole: bytes, count: int) -> Iterator[bytes]:
    """Flip one bit at a time, at random places and at the very first and last."""
    places = np.random.default_rng(0).integers(0, 8 * len(whole), count - 2).tolist()
    for place in [0, 8 * len(whole) - 1, *places]:
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        yield bytes(damaged)


def refuses_flipped_bits(file: Path, count: int) -> None:
    whole = file.read_bytes()
    for damaged in flipped(whole, count):
        file.write_bytes(damaged)
        assert_heals(file, whole)


def test_a_flipped_bit_is_noticed(file: Path) -> None:
    refuses_flipped_bits(file, 4)


@pytest.mark.slow
def test_two_hundred_flipped_bits_are_noticed(file: Path) -> None:
    refuses_flipped_bits(file, 200)


def test_a_deleted_file_is_written_again(file: Path) -> None:
    whole = file.read_bytes()
    file.unlink()
    assert_heals(file, whole)


def test_exchanged_files_are_noticed(file: Path, home: Path) -> None:
    """Both are intact: only their names say that each is the other's."""
    np.testing.assert_array_equal(Fresh(negated)(VALUES), NEGATED)
    one, other = compiled_files(home)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    np.testing.assert_array_equal(Fresh(tripled)(VALUES), TRIPLED)
    np.testing.assert_array_equal(Fresh(negated)(VALUES), NEGATED)
    healed = Fresh(tripled), Fresh(negated)
    for each, expected in zip(healed, (TRIPLED, NEGATED), strict=True):
        np.testing.assert_array_equal(each(VALUES), expected)
        assert each.loaded


def test_an_intact_file_that_cannot_be_used_is_compiled_again(file: Path) -> None:
    """As after a change of the libraries that their version does not tell."""
    whole = file.read_bytes()
    for data in (pickle.dumps("foreign"), b"", pickle.dumps((1, 2, 3)), b"garbage"):
        file.write_bytes(cache._checksum(file, data) + data)
        assert_heals(file, whole)


def test_a_folder_in_place_of_the_file_is_no_obstacle(file: Path) -> None:
    file.unlink()
    file.mkdir()
    for _ in range(2):
        again = Fresh(tripled)
        np.testing.assert_array_equal(again(VALUES), TRIPLED)
        assert not again.loaded


@pytest.mark.parametrize("place", ["home", "home/dropnode", "home/dropnode/kernels"])
def test_a_file_in_place_of_a_folder_is_no_obstacle(home: Path, place: str) -> None:
    path = home.parent / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("not a folder")
    np.testing.assert_array_equal(Fresh(tripled)(VALUES), TRIPLED)
    assert path.read_text() == "not a folder"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_full_or_read_only_disk_is_no_obstacle(
    home: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """The disk gives the error when the file is flushed, after it was opened and written."""

    def fail(descriptor: int) -> None:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", fail)
        for _ in range(2):
            again = Fresh(tripled)
            np.testing.assert_array_equal(again(VALUES), TRIPLED)
            assert not again.loaded
    assert compiled_files(home) == [], "nothing is left behind"


def test_without_a_home_nothing_is_written(homeless: Path) -> None:
    for _ in range(2):
        again = Fresh(tripled)
        np.testing.assert_array_equal(again(VALUES), TRIPLED)
        assert not again.loaded
    assert list(homeless.iterdir()) == []


def aged(path: Path, days: float) -> None:
    """Set the times of a file or folder back."""
    then = time.time() - 86_400 * days
    os.utime(path, (then, then))


def version(kernels: Path, name: str, days: float, *names: str) -> Path:
    """Make the folder of a version that was used so many days ago."""
    folder = kernels / name
    folder.mkdir(parents=True)
    for each in (f"hop-{'0' * 32}.kernel", f"_hops.hops-{'f' * 32}.kernel", *names):
        (folder / each).write_bytes(b"old")
    aged(folder, days)
    return folder


def test_versions_that_nobody_uses_are_removed(home: Path) -> None:
    kernels = home / "dropnode" / "kernels"
    old = version(kernels, "0123456789abcdef", 31, ".dropnode-77-0123abcd.tmp")
    recent = version(kernels, "1123456789abcdef", 29)
    shared = version(kernels, "2123456789abcdef", 31, "notes.txt", "hop.kernel")
    others = [version(kernels, name, 400) for name in ("mine", "0123456789abcdef0", "3123")]
    elsewhere = version(home / "elsewhere", "kept", 400)
    (kernels / "4123456789abcdef").symlink_to(elsewhere)
    (kernels / "5123456789abcdef").write_text("a file")
    aged(kernels / "5123456789abcdef", 400)
    before = {folder: sorted(folder.iterdir()) for folder in (recent, *others, elsewhere)}
    np.testing.assert_array_equal(Fresh(tripled)(VALUES), TRIPLED)
    assert not old.exists()
    assert {folder: sorted(folder.iterdir()) for folder in before} == before
    assert sorted(path.name for path in shared.iterdir()) == ["hop.kernel", "notes.txt"]
    assert (kernels / "4123456789abcdef").is_symlink()
    assert (kernels / "5123456789abcdef").read_text() == "a file"


def test_a_version_in_use_stays(file: Path, home: Path) -> None:
    """Loading a kernel counts as use, and so the newest version removes none that is used."""
    aged(file.parent, 400)
    again = Fresh(tripled)
    np.testing.assert_array_equal(again(VALUES), TRIPLED)
    assert again.loaded
    cache.remove_stale(file.parent.parent)
    assert compiled_files(home) == [file]
    aged(file.parent, 400)
    cache.remove_stale(file.parent.parent)
    assert not file.parent.exists()
    np.testing.assert_array_equal(Fresh(tripled)(VALUES), TRIPLED)
    assert compiled_files(home) == [file], "it is compiled again"


def test_a_folder_that_vanishes_while_it_is_removed_is_no_obstacle(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if another process removed the same versions at this moment."""
    kernels = home / "dropnode" / "kernels"
    for number in range(2):
        version(kernels, f"{number}123456789abcdef", 31)
    unlink, rmdir = Path.unlink, Path.rmdir

    def raced_unlink(path: Path, missing_ok: bool = False) -> None:
        unlink(path)
        unlink(path, missing_ok)

    def raced_rmdir(path: Path) -> None:
        rmdir(path)
        rmdir(path)

    monkeypatch.setattr(Path, "unlink", raced_unlink)
    monkeypatch.setattr(Path, "rmdir", raced_rmdir)
    cache.remove_stale(kernels)
    assert list(kernels.iterdir()) == []


TRANSPOSE = """
import numpy as np
from dropnode.ops.kernels import cache
from dropnode.ops.kernels.bits import transpose_words
block = np.empty(64, np.uint64)
transpose_words(np.arange(64, dtype=np.uint64)[:, None], 0, 0, block)
print(block.tolist())
"""


def transposed() -> str:
    """Return what the code above prints."""
    block = np.empty(64, np.uint64)
    transpose_words(np.arange(64, dtype=np.uint64)[:, None], 0, 0, block)
    return f"{block.tolist()}\n"


@pytest.mark.skipif(sys.platform == "win32", reason="limits of Unix")
def test_a_disk_that_takes_no_more_bytes_is_no_obstacle(home: Path) -> None:
    """The operating system refuses to let a file grow beyond four kilobytes."""
    limit = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
"""
    ended = subprocess.run(
        [sys.executable, "-c", limit + TRANSPOSE], capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == transposed()
    assert compiled_files(home) == []


def test_processes_that_compile_at_once_agree(home: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", TRANSPOSE], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=300)[0] for process in processes] == [transposed()] * 2
    assert len(compiled_files(home)) == 1
