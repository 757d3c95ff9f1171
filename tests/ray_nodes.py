"""A Ray cluster of several nodes on this machine, and the fixtures of tests that need one.

Workers import this module too; it imports nothing that takes long.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 240.0
"""Seconds that anything may take: a busy machine is not a failure."""

NEEDED = [
    pytest.mark.usefixtures("ray_environment", "ray_disconnected"),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason='RAY IS NOT INSTALLED, so nothing of it is tested: pip install "dropnode[ray]"',
    ),
    pytest.mark.skipif(
        not Path("/proc/self/stat").exists(), reason="which processes live is read from /proc"
    ),
]
"""Marks of tests that use Ray."""


def wait_until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def members(session: int) -> list[int]:
    """Return the processes of a session: whatever its first process has brought about."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            # A zombie has ended, whoever has to collect it.
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


class Node:
    """A node of a cluster: the processes that ``ray start`` leaves behind, as a machine would."""

    def __init__(self, log: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *arguments]
        with log.open("w") as file:
            starting = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
        self.session = starting.pid
        try:
            assert starting.wait(timeout=PATIENCE) == 0, log.read_text()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End all processes without a warning, as when the power fails."""

        def nobody_is_left() -> bool:
            left = members(self.session)
            for process in left:
                os.kill(process, signal.SIGKILL)
            return not left

        wait_until(nobody_is_left, "processes of Ray could not be killed")


class Cluster:
    """A cluster on this machine, of nodes with one CPU each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.2", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.2:{port}"
        self.nodes: list[Node] = []
        self.add("--head", f"--port={port}", "--include-dashboard=false")

    def add(self, *arguments: str) -> Node:
        """Start a node; of one machine's many loopback addresses, each has its own."""
        number = len(self.nodes) + 2
        log = self.folder / f"node-{number}.log"
        node = Node(log, f"--node-ip-address=127.0.0.{number}", "--num-cpus=1", *arguments)
        self.nodes.append(node)
        return node


@pytest.fixture(scope="module")
def ray_folder() -> Iterator[Path]:
    """A folder with a short name: what Ray puts there are sockets, whose paths are limited."""
    path = Path(tempfile.mkdtemp(prefix="dropnode-ray-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def ray_environment(ray_folder: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """What Ray reads, so that it does not touch the network, nor the home of who runs the tests."""
    # Workers import functions of the test module, and this module.
    folders = (request.path.parent, Path(__file__).parent)
    here = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, here)))
        patch.setenv("RAY_TMPDIR", str(ray_folder))
        # Loopback addresses are all that the cluster has. A token would stay in this process.
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_USAGE_STATS_REPORT_URL", "http://127.0.0.1:1")
        patch.setenv("http_proxy", "http://127.0.0.1:1")
        # Ray lets its workers yield to everything else, which tests should not take part in.
        patch.setenv("RAY_worker_niceness", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


@pytest.fixture(scope="module")
def cluster(ray_folder: Path, ray_environment: None) -> Iterator[Cluster]:
    made = Cluster(ray_folder)
    yield made
    for node in made.nodes:
        node.kill()


@pytest.fixture
def ray_disconnected() -> Iterator[None]:
    """See to it that no test leaves this process connected."""
    yield
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()
        pytest.fail("the test left Ray connected")
