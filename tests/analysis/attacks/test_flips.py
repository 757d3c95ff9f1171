"""Attacks in the cache: damaged files, two processes at once, a full stop at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from small_graphs import small_graph

import damage
from dropnode.analysis.attacks.flips import (
    Flip,
    apply_flips,
    budget,
    cached_flips,
    fingerprint,
)
from dropnode.analysis.attacks.metattack import Metattack, metattack
from dropnode.graph import Graph, Split
from dropnode.locks import FolderLock

FLIPS = [(0, at) for at in range(1, 9)]

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture
def graph() -> Graph:
    return small_graph()


def found(so_far: list[Flip]) -> Iterator[Flip]:
    """Yield the flips after those there are, as an attack would."""
    assert so_far == FLIPS[: len(so_far)]
    yield from FLIPS[len(so_far) :]


def only_file(cache: Path) -> Path:
    (path,) = (cache / "attacks").rglob("flips.json")
    return path


def test_flips_add_and_remove(graph: Graph) -> None:
    low, high = (int(end[0]) for end in graph.adjacency.nonzero())
    pair = (min(low, high), max(low, high))
    away = apply_flips(graph, [pair])
    assert away.num_edges == graph.num_edges - 1
    assert apply_flips(away, [pair]).fingerprint() == graph.fingerprint()
    assert apply_flips(graph, []).fingerprint() == graph.fingerprint()


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        '{"flips": [[0, 1]], "over": false, "sha256": "0"}',
        '{"flips": [[0, "one"]], "over": false, "sha256": "0"}',
        '{"flips": 3, "over": false, "sha256": "0"}',
        "\x00\x00\x00",
        "[" * 100_000,
        "a changed flip",
        "a flip of another graph",
    ],
    ids=lambda damage: damage[:24],
)
def test_a_damaged_file_is_not_used(empty_cache: Path, damage: str) -> None:
    assert cached_flips("key", 4, found, nodes=20) == FLIPS[:4]
    path = only_file(empty_cache)
    nodes = 20
    if damage == "a changed flip":
        record = json.loads(path.read_text())
        record["flips"][0] = [3, 4]
        path.write_text(json.dumps(record))
    elif damage == "a flip of another graph":
        nodes = 3
    else:
        path.write_text(damage)
    counted: list[int] = []
    assert cached_flips("key", 5, found, nodes=nodes, watch=lambda done, _: counted.append(done))
    assert counted == [1, 2, 3, 4, 5], "the attack did not start again"


@pytest.mark.parametrize("flips", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flipped_bit_in_the_cache_changes_no_attack(empty_cache: Path, flips: int) -> None:
    """A damaged file is found again from the beginning, or the damage means nothing."""
    cached_flips("key", 8, found, nodes=20)
    path = only_file(empty_cache)
    for seed in range(flips):
        with damage.restored(path):
            told = damage.flip_bit(path, seed)
            assert cached_flips("key", 8, found, nodes=20) == FLIPS, told


def test_fewer_flips_than_are_kept_are_the_first_of_them() -> None:
    assert cached_flips("key", 8, found, nodes=20) == FLIPS
    assert cached_flips("key", 3, lambda _: pytest.fail("it ran"), nodes=20) == FLIPS[:3]
    assert cached_flips("key", 8, lambda _: pytest.fail("it ran"), nodes=20) == FLIPS


def test_an_interruption_keeps_what_was_found(empty_cache: Path) -> None:
    def interrupted(so_far: list[Flip]) -> Iterator[Flip]:
        yield from FLIPS[len(so_far) : len(so_far) + 3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_flips("key", 8, interrupted, nodes=20)
    assert [
        tuple(flip) for flip in json.loads(only_file(empty_cache).read_text())["flips"]
    ] == FLIPS[:3]
    assert cached_flips("key", 8, found, nodes=20) == FLIPS


def test_an_attack_that_cannot_go_on_is_kept_whole_or_not_at_all(empty_cache: Path) -> None:
    def dies(so_far: list[Flip]) -> Iterator[Flip]:
        yield FLIPS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_flips("key", 8, dies, nodes=20, resumes=False)
    assert not list(empty_cache.rglob("flips.json"))
    # It may find fewer than it was allowed to, and that is then the result.
    assert cached_flips("key", 99, found, nodes=20, resumes=False) == FLIPS
    assert (
        cached_flips("key", 99, lambda _: pytest.fail("it ran again"), nodes=20, resumes=False)
        == FLIPS
    )


def test_a_second_process_waits_and_picks_up(empty_cache: Path) -> None:
    lock = FolderLock(empty_cache / "attacks" / "key")
    result: list[list[Flip]] = []
    waiting = threading.Thread(
        target=lambda: result.append(cached_flips("key", 8, found, nodes=20))
    )
    waiting.start()
    time.sleep(0.3)
    assert not result, "it did not wait"
    with lock:
        pass
    waiting.join(timeout=10)
    assert result == [FLIPS]


def test_without_a_cache_the_attack_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DROPNODE_DATA", str(tmp_path / "file"))
    assert cached_flips("key", 8, found, nodes=20) == FLIPS
    assert "the attack is not kept" in caplog.text


def test_without_a_home_the_attack_still_runs(
    homeless: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert cached_flips("a" * 64, 4, found, nodes=20) == FLIPS[:4]
    assert "not kept" in caplog.text
    assert "set DROPNODE_DATA" in caplog.text
    assert list(homeless.iterdir()) == []


def test_the_key_is_what_determines_an_attack(graph: Graph) -> None:
    def key(graph: Graph, **options: object) -> str:
        return fingerprint(graph, "metattack", 1, options)

    split = graph.split
    moved = Split(split.train[1:], np.append(split.val, split.train[0]), split.test)
    others = Split(split.train, split.test, split.val)
    assert key(graph) != key(graph.with_split(moved))
    assert key(graph) == key(graph.with_split(others))
    assert key(graph) != key(graph, seed=1)
    for node, counts in ((split.train[0], True), (split.test[0], False)):
        labels = graph.labels.copy()
        labels[node] = (labels[node] + 1) % 3
        assert (key(graph) != key(graph.with_labels(labels, graph.class_names))) == counts
    assert key(graph) != key(apply_flips(graph, [(0, 1)]))
    assert key(graph) != fingerprint(graph, "metattack", 2, {})

    labels = graph.labels.copy()
    labels[split.val[0]] = (labels[split.val[0]] + 1) % 3
    relabelled = graph.with_labels(labels, graph.class_names)
    assert key(graph) == key(relabelled)
    read = [fingerprint(each, "prbcd", 1, {}, ("train", "val")) for each in (graph, relabelled)]
    assert read[0] != read[1]


def test_a_budget_is_rounded_down(graph: Graph) -> None:
    assert budget(graph, 1.0) == graph.num_edges
    assert budget(graph, 1.99 / graph.num_edges) == 1


HERE = Path(__file__).parent
KILLED = """
import os, signal, sys
from small_graphs import small_graph
from dropnode.analysis.attacks import flips, metattack
flips.SAVE_EVERY = 0.0
options = metattack.Metattack(rate=0.1, steps=15, degree_test=False)
def watch(done, wanted):
    if done == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
metattack.metattack(small_graph(), options, watch)
"""


def test_a_killed_attack_goes_on_to_the_same_flips(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(HERE), *sys.path]))
    killed = subprocess.run([sys.executable, "-c", KILLED, "4"], env=environment, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    kept = json.loads(only_file(empty_cache).read_text())["flips"]
    assert len(kept) == 3
    options = Metattack(rate=0.1, steps=15, degree_test=False)
    counted: list[int] = []
    resumed = metattack(small_graph(), options, lambda done, _: counted.append(done))
    assert counted[0] == 4
    monkeypatch.setenv("DROPNODE_DATA", f"{empty_cache}-of-another")
    assert metattack(small_graph(), options).fingerprint() == resumed.fingerprint()
