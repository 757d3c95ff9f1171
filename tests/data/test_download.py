"""Downloads end with the right file or none, whatever the server, the network or the user does."""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_server import FaultyServer, serving

from dropnode.data import download as module
from dropnode.data.download import download
from dropnode.errors import DataError

CONTENT = random.Random(0).randbytes(400_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with serving() as server:
        server.files["/data.bin"] = CONTENT
        yield server


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data.bin"


def test_a_file_arrives_whole_and_alone(server: FaultyServer, target: Path) -> None:
    download(f"{server.url}/data.bin", target, SHA256)
    assert target.read_bytes() == CONTENT
    assert os.listdir(target.parent) == ["data.bin"]


def test_a_cut_connection_leaves_no_file_and_the_next_run_goes_on(
    server: FaultyServer, target: Path
) -> None:
    server.faults["/data.bin"] = "cut"
    with pytest.raises(DataError, match=r"closed after 200,000 of 400,000 bytes"):
        download(f"{server.url}/data.bin", target, SHA256)
    assert not target.exists()

    server.faults.clear()
    server.sent = 0
    download(f"{server.url}/data.bin", target, SHA256)
    assert target.read_bytes() == CONTENT
    assert server.requests[-1] == ("/data.bin", "bytes=200000-")
    assert server.sent == 200_000
    assert os.listdir(target.parent) == ["data.bin"]


@pytest.mark.parametrize("sha256", [SHA256, None])
def test_a_server_without_ranges_starts_anew(
    server: FaultyServer, target: Path, sha256: str | None
) -> None:
    target.with_name("data.bin.part").write_bytes(CONTENT[:1000])
    server.faults["/data.bin"] = "no-range"
    download(f"{server.url}/data.bin", target, sha256)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "left_over", [b"of another file" * 9, CONTENT + b"too long", b""], ids=["wrong", "long", "none"]
)
def test_a_useless_left_over_is_replaced(
    server: FaultyServer, target: Path, left_over: bytes
) -> None:
    target.with_name("data.bin.part").write_bytes(left_over)
    download(f"{server.url}/data.bin", target, SHA256)
    assert target.read_bytes() == CONTENT
    assert os.listdir(target.parent) == ["data.bin"]


def test_the_wrong_file_is_refused_and_removed(server: FaultyServer, target: Path) -> None:
    server.files["/data.bin"] = b"<html>please log in</html>"
    received = hashlib.sha256(server.files["/data.bin"]).hexdigest()
    with pytest.raises(DataError, match=f"sha256 {received}, expected {SHA256}"):
        download(f"{server.url}/data.bin", target, SHA256)
    assert os.listdir(target.parent) == []


def test_a_stalled_server_is_given_up(
    server: FaultyServer, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.3)
    server.faults["/data.bin"] = "stall"
    begun = time.monotonic()
    with pytest.raises(DataError, match=r"no byte in 0\.3 s"):
        download(f"{server.url}/data.bin", target, SHA256)
    assert time.monotonic() - begun < 5
    assert not target.exists()
    # What came before the stall is not lost.
    assert target.with_name("data.bin.part").stat().st_size == 200_000


def test_a_missing_file_is_named(server: FaultyServer, target: Path) -> None:
    with pytest.raises(DataError, match=re.escape(f"{server.url}/other.bin: HTTP 404 Not Found")):
        download(f"{server.url}/other.bin", target, SHA256)
    assert os.listdir(target.parent) == []


def test_an_unreachable_server_is_named(target: Path) -> None:
    with serving() as gone:
        url = gone.url
    with pytest.raises(DataError, match=f"{url}/data.bin: .*refused"):
        download(f"{url}/data.bin", target, SHA256)


def fetching(url: str, target: Path, count: int) -> list[subprocess.Popen[bytes]]:
    """Start processes that download at the same moment."""
    program = (
        "import sys; from pathlib import Path; from dropnode.data.download import download; "
        "print('ready', flush=True); input(); "
        "download(sys.argv[1], Path(sys.argv[2]), sys.argv[3])"
    )
    arguments = [sys.executable, "-c", program, url, str(target), SHA256]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(arguments, **pipes) for _ in range(count)]  # type: ignore[call-overload]
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write(b"\n")
        process.stdin.flush()
    return processes


def test_processes_that_fetch_at_once_do_not_disturb_one_another(
    server: FaultyServer, target: Path
) -> None:
    server.faults["/data.bin"] = "slow"
    # Both want the same left-over; one gets it, and the other must not write into it.
    target.with_name("data.bin.part").write_bytes(CONTENT[:100_000])
    for process in fetching(f"{server.url}/data.bin", target, 2):
        _, complaint = process.communicate(timeout=60)
        assert process.returncode == 0, complaint.decode()
    assert sorted(server.requests, key=str) == [
        ("/data.bin", "bytes=100000-"),
        ("/data.bin", None),
    ]
    assert target.read_bytes() == CONTENT
    assert os.listdir(target.parent) == ["data.bin"]


def test_what_a_killed_process_left_is_taken_over_once_it_is_old(
    server: FaultyServer, target: Path
) -> None:
    server.faults["/data.bin"] = "slow"
    (process,) = fetching(f"{server.url}/data.bin", target, 1)
    deadline = time.monotonic() + 30
    while not (left := [*target.parent.glob("*.part")]) or left[0].stat().st_size < 30_000:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not target.exists()
    (left_over,) = target.parent.glob("data.bin.*.part")
    size = left_over.stat().st_size

    server.faults.clear()
    # Still fresh: for all one knows its owner is alive, so it is left alone.
    download(f"{server.url}/data.bin", target, SHA256)
    assert server.requests[-1] == ("/data.bin", None)
    assert left_over.exists()

    target.unlink()
    long_ago = time.time() - 2 * module.ABANDONED
    os.utime(left_over, (long_ago, long_ago))
    download(f"{server.url}/data.bin", target, SHA256)
    assert server.requests[-1] == ("/data.bin", f"bytes={size}-")
    assert target.read_bytes() == CONTENT
    assert os.listdir(target.parent) == ["data.bin"]


@pytest.mark.slow
def test_a_download_killed_twenty_times_arrives(
    server: FaultyServer, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = random.Random(20261117)
    server.faults["/data.bin"] = "slow"
    for turn in range(20):
        number = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)[turn % 3]
        (process,) = fetching(f"{server.url}/data.bin", target, 1)
        time.sleep(moments.uniform(0.0, 0.5))
        process.send_signal(number)
        process.communicate()
        assert process.returncode == -number
        assert not target.exists()
    server.faults.clear()
    # All of their owners are gone.
    monkeypatch.setattr(module, "ABANDONED", 0.0)
    download(f"{server.url}/data.bin", target, SHA256)
    assert target.read_bytes() == CONTENT
    assert os.listdir(target.parent) == ["data.bin"]


def test_an_interrupt_keeps_what_arrived(
    server: FaultyServer, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        download(f"{server.url}/data.bin", target, SHA256)
    assert not target.exists()
    assert target.with_name("data.bin.part").read_bytes() == CONTENT
