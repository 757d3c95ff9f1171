"""Items on a Ray cluster of several nodes, some of which are killed.

Workers import this module too; what takes long to import is imported where it is needed.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tasks

from dropnode.engines.base import Failure
from dropnode.engines.local import run_local
from dropnode.engines.ray_cluster import run_ray
from ray_nodes import NEEDED, Cluster, members, wait_until

SEEDS = [0, 1, 2]

# What a person runs on one machine.
SCRIPT = """
import json, sys
from pathlib import Path
from test_ray_cluster import behave
from dropnode.engines.ray_cluster import run_ray
asked = ["one", "http_proxy", "stumble", "raise", "listen"]
for item, outcome in run_ray(behave, asked, jobs=2, shared=(None, Path(sys.argv[1]))):
    print(json.dumps([item, str(outcome)]))
"""

pytestmark = NEEDED


def digits() -> Any:
    from dropnode.data import load_dataset

    return load_dataset("digits")


def train(shared: tuple[Any, Path], item: int) -> dict[str, Any]:
    """Say where the item runs, wait until it may go on, and train for some epochs."""
    graph, folder = shared
    (folder / f"{item}-{os.getpid()}").touch()
    wait_until((folder / "go").exists, "nobody let the item go on")
    import torch

    from dropnode.experiments.run import Request, run
    from dropnode.experiments.trials import Data

    torch.set_num_threads(1)
    request = Request("digits", seed=item, changes={"max_epochs": 5, "hidden": 16})
    data = Data({"digits": graph}, {("digits", 0): graph.split}, {"digits": graph.fingerprint()})
    result = asdict(run(request, data=data))
    return {key: value for key, value in result.items() if not key.startswith("seconds")}


def behave(shared: tuple[Any, Path], item: str) -> Any:
    """Do what the item says, good or bad."""
    array, folder = shared
    if item == "array":
        return array.tolist(), array.flags.writeable
    if item in os.environ:
        return os.environ[item]
    if item == "listen":
        return listening(os.getsid(0))
    if item.startswith("linger"):
        tasks.linger(folder, item)
    if item == "stumble" and not (folder / item).exists():
        (folder / item).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return tasks.behave(shared, item)


class Broken:
    """A worker on a node that lacks something."""

    def __init__(self, parcel: Any) -> None:
        raise ModuleNotFoundError("No module named 'dropnode'")

    def report(self) -> None:
        """Never called."""


def listening(session: int) -> list[str]:
    """Return the hexadecimal addresses at which the processes of a session listen."""
    sockets = set()
    for process in members(session):
        for handle in Path(f"/proc/{process}/fd").iterdir():
            with suppress(FileNotFoundError):
                sockets.add(os.readlink(handle))
    lines = [
        line.split()
        for family in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]
    ]
    # 0A is the state of a socket that listens.
    return sorted(
        {
            line[1].partition(":")[0]
            for line in lines
            if line[3] == "0A" and f"socket:[{line[9]}]" in sockets
        }
    )


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """The results of all seeds on the local engine."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "go").touch()
    outcomes = dict(run_local(train, SEEDS, 1, shared=(digits(), folder)))
    assert not any(isinstance(outcome, Failure) for outcome in outcomes.values()), outcomes
    assert len({outcome["val_loss"] for outcome in outcomes.values()}) == len(SEEDS)
    return outcomes


@pytest.fixture(scope="module")
def outcomes(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What comes of items of all kinds."""
    asked = ["linger", "one", "raise", "kill", "stumble", "unpicklable", "large", "two"]
    asked += ["array", "OMP_NUM_THREADS", "MKL_NUM_THREADS"]
    shared = (np.arange(100_000), tmp_path_factory.mktemp("cluster"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dropnode.engines.ray_cluster.RUNS", 2)
        came = dict(run_ray(behave, asked, address=cluster.address, shared=shared, timeout=4))
    assert came.keys() == set(asked)
    return came


def test_bad_items_fail_alone(outcomes: dict[str, Any]) -> None:
    """Whatever an item does to its process, the others have results, and every cause is told."""
    assert outcomes["raise"] == Failure("ValueError: this item is wrong")
    assert outcomes["linger"] == Failure(
        "no result within 4 seconds, so it was stopped; allow more time"
    )
    assert "pickle" in outcomes["unpicklable"].error
    assert "died 2 times" in outcomes["kill"].error
    assert "\n" not in outcomes["kill"].error
    names = ["one", "stumble", "two"]
    assert [outcomes[name][0] for name in names] == names, "stumble dies once, and is run again"
    assert outcomes["large"][0] == "x" * 5_000_000


def test_what_is_shared_is_the_same_and_read_only(outcomes: dict[str, Any]) -> None:
    assert outcomes["array"] == (list(range(100_000)), False)


def test_workers_compute_with_one_thread(outcomes: dict[str, Any]) -> None:
    assert [outcomes[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")] == ["1", "1"]


def test_leaving_early_ends_the_workers(cluster: Cluster, tmp_path: Path) -> None:
    """Not the Ray of a caller who has one, and who has not been given all that waits."""
    import ray

    ray.init(cluster.address, logging_level="error", log_to_driver=False)
    try:
        asked = ["one", "linger", *map(str, range(300_000))]
        outcomes = run_ray(behave, asked, shared=(None, tmp_path))
        first, (_, worker) = next(outcomes)
        assert first == "one"
        wait_until((tmp_path / "linger").exists, "the worker was kept waiting")
        assert int((tmp_path / "linger").read_text()) == worker, "it takes item after item"
        assert worker in members(cluster.nodes[0].session)
        outcomes.close()
        wait_until(lambda: worker not in members(cluster.nodes[0].session), "it went on computing")
        assert ray.is_initialized()
    finally:
        ray.shutdown()


def test_a_node_that_is_killed_costs_no_result(
    cluster: Cluster, expected: dict[int, Any], tmp_path: Path
) -> None:
    """What it was running is run again elsewhere, and comes to the same."""
    node = cluster.add(f"--address={cluster.address}")

    def ran_by(processes: list[int]) -> list[int]:
        """Return the seeds that some processes have begun."""
        begun = [map(int, path.name.split("-")) for path in tmp_path.glob("*-*")]
        return [seed for seed, process in begun if process in processes]

    def kill_the_node() -> int:
        wait_until(lambda: ran_by(members(node.session)), "the node was given no item")
        [lost] = ran_by(members(node.session))
        node.kill()
        (tmp_path / "go").touch()
        return lost

    with ThreadPoolExecutor() as pool:
        killing = pool.submit(kill_the_node)
        outcomes = dict(run_ray(train, SEEDS, address="auto", shared=(digits(), tmp_path)))
        lost = killing.result()
    assert outcomes == expected
    runs = {seed: len(list(tmp_path.glob(f"{seed}-*"))) for seed in SEEDS}
    assert runs == dict.fromkeys(SEEDS, 1) | {lost: 2}, "only what was lost is run again"


def test_one_machine_on_its_own(tmp_path: Path) -> None:
    """Ray comes and goes with the experiment, and nothing that it says is printed."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env=os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
        outcomes = dict(json.loads(line) for line in printed.splitlines())
        assert outcomes.pop("raise") == str(Failure("ValueError: this item is wrong"))
        assert outcomes.pop("http_proxy") == os.environ["http_proxy"], (
            "that of Ray is not for items"
        )
        assert outcomes.pop("one").startswith("('one', ")
        assert outcomes.pop("listen") == str(["0000000000000000FFFF00000100007F", "0100007F"]), (
            "Ray listens on an interface other than the loopback"
        )
        assert outcomes.pop("stumble").startswith("('stumble', ")
        assert outcomes == {}
        wait_until(lambda: not members(process.pid), "processes of Ray were left behind")
    finally:
        for member in members(process.pid):
            os.kill(member, signal.SIGKILL)
        process.communicate()


def test_the_token_is_private_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dropnode.engines.own_ray import make_private_token

    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".ray" / "auth_token"
    before = os.umask(0)
    try:
        make_private_token()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    token = path.read_text()
    assert len(token) == 64
    path.chmod(0o644)
    make_private_token()
    assert (path.stat().st_mode & 0o777, path.read_text()) == (0o600, token)
    path.unlink()
    monkeypatch.setenv("RAY_AUTH_TOKEN", "mine")
    make_private_token()
    assert not path.exists(), "the user's own token is used"


def test_without_a_home_ray_decides_about_its_token(
    homeless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dropnode.engines.own_ray import make_private_token

    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    make_private_token()
    assert list(homeless.iterdir()) == []


def test_where_no_cluster_is_it_says_so_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    from dropnode.errors import ConfigError

    monkeypatch.setattr("dropnode.engines.ray_cluster.PATIENCE", 0.5)
    with socket.socket() as silent, socket.socket() as closed:
        for one in (silent, closed):
            one.bind(("127.0.0.1", 0))
        silent.listen()
        quiet, shut = (f"127.0.0.1:{one.getsockname()[1]}" for one in (silent, closed))
        for address, why in [
            (shut, "Connection refused"),
            (quiet, "timed out"),
            (f"ray://{shut}", "Connection refused"),
            ("nowhere", "expected auto, host:port or ray://host:port"),
            ("nowhere.invalid:6379", "not known|resolution"),
        ]:
            asked = time.monotonic()
            with pytest.raises(ConfigError, match=f"reached at {address} .*({why})") as refused:
                list(run_ray(tasks.behave, ["one"], address=address))
            assert time.monotonic() - asked < 10
            assert "ray start --head" in str(refused.value)
            assert "\n" not in str(refused.value)


def test_nodes_that_cannot_run_workers_end_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dropnode.errors import ConfigError

    monkeypatch.setattr("dropnode.engines.ray_cluster._Worker", Broken)
    with pytest.raises(ConfigError, match=r"No module named 'dropnode'\); every node needs"):
        list(run_ray(tasks.behave, ["one"], address=cluster.address))


def test_without_ray_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from dropnode.errors import ConfigError

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r'pip install "dropnode\[ray\]"'):
        list(run_ray(tasks.behave, ["one"]))


def test_no_items_no_cluster() -> None:
    assert list(run_ray(tasks.behave, [], address="127.0.0.1:1")) == []
    with pytest.raises(ValueError, match="jobs is 0"):
        list(run_ray(tasks.behave, ["one"], jobs=0))
