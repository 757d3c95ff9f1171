"""GRAND+ on a Ray cluster of two nodes: rows pushed there, and a team that loses members.

Workers import this module too.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dropnode.engines.base import Failure
from dropnode.engines.ray_cluster import run_ray
from dropnode.engines.team import Team
from dropnode.errors import CheckpointError, ConfigError, TrainingError, WorkError
from dropnode.graph import Graph, Split
from dropnode.methods.grand_plus import on_ray
from dropnode.methods.grand_plus.config import preset
from dropnode.methods.grand_plus.model import GrandPlus
from dropnode.methods.grand_plus.on_ray import train_on_ray
from dropnode.ops import push
from dropnode.ops.push import pushed_rows, walk_shares
from dropnode.training import Outcome, Phase, train
from dropnode.training.checkpoint import read_checkpoint
from dropnode.training.stopping import Stopping
from ray_nodes import NEEDED, Cluster

pytestmark = NEEDED

BATCHES, EPOCHS = 3, 6

PHASE = Phase("train", torch.optim.SGD([torch.zeros(1)]), EPOCHS, Stopping("never"))


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Cluster:
    """The cluster, with its second node."""
    cluster.add(f"--address={cluster.address}")
    return cluster


def blocks_graph() -> Graph:
    """Three classes of thirty nodes, with weights, and few labels."""
    generator = np.random.default_rng(3)
    labels = np.repeat(np.arange(3), 30)
    alike = labels[:, None] == labels
    dense = np.triu(generator.random((90, 90)) < np.where(alike, 0.2, 0.02), 1)
    edges = np.argwhere(dense)
    x = generator.standard_normal((90, 12)) + 2.0 * np.eye(3, 12)[labels]
    order = generator.permutation(90)
    return Graph.from_edges(
        edges,
        x,
        labels,
        weights=generator.uniform(0.5, 2.0, len(edges)),
        split=Split(order[:15], order[15:40], order[40:]),
    )


def method(**changes: Any) -> GrandPlus:
    """Every part of the training step is in it: norms, dropout, both layers, clipping."""
    config = preset("default", None)[1].replace(
        order=3,
        top=6,
        layers=2,
        hidden=8,
        batch_norm=True,
        input_dropout=0.2,
        warmup=3,
        # A pass of fifteen nodes ends in a batch of one, so that a member has none.
        labelled_batch=7,
        unlabelled_batch=11,
        batches=BATCHES,
        max_epochs=EPOCHS,
        **changes,
    )
    return GrandPlus(config, class_weights=np.array([1.0, 2.0, 0.5]))


class Epochs:
    """A callback that lists the epochs it is told of."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
        self.seen.append(int(outcome.history[-1]["epoch"]))


class Threads:
    """What teams need of ``torch.distributed``, for members that are threads of this process."""

    def __init__(self, size: int) -> None:
        self.barrier, self.member = threading.Barrier(size, timeout=60), threading.local()
        self.given: dict[int, torch.Tensor] = {}

    def exchange(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all members."""
        self.given[self.member.rank] = tensor.clone()
        self.barrier.wait()
        all_of_them = [self.given[rank] for rank in sorted(self.given)]
        self.barrier.wait()
        return all_of_them

    def all_reduce(self, tensor: torch.Tensor) -> None:
        tensor.copy_(torch.stack(self.exchange(tensor)).sum(dim=0))

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        tensor.copy_(self.exchange(tensor)[source])


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_team_of_any_size_trains_as_one_process_does(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for rounding, also if some members have no node of a batch; one member alone exactly."""
    graph, alone = blocks_graph(), method()
    expected = train(alone, graph, seed=5)
    assert graph.split is not None
    stored = pickle.dumps(on_ray._StoredRows.of(alone, graph, graph.split), protocol=5)
    threads = Threads(size)
    monkeypatch.setattr("dropnode.engines.team.dist", threads)

    def share(rank: int) -> tuple[GrandPlus, Outcome]:
        threads.member.rank = rank
        member = on_ray._StoredGrandPlus(pickle.loads(stored), Team(rank, size))
        return member, train(member, member.stored.watched, seed=5)

    with ThreadPoolExecutor(size) as pool:
        (first, outcome), *others = pool.map(share, range(size))
    for member, seen in others:
        assert seen.history == outcome.history
        for name, tensor in first.state().items():
            assert torch.equal(member.state()[name], tensor), name
    if size == 1:
        assert outcome.history == expected.history
    for found, known in zip(outcome.history, expected.history, strict=True):
        assert found == pytest.approx(known, rel=1e-3, abs=1e-4)
    for name, tensor in alone.state().items():
        torch.testing.assert_close(first.state()[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore::dropnode.errors.GraphWarning")
def test_a_class_of_the_test_part_alone_is_no_obstacle_to_workers() -> None:
    graph = blocks_graph()
    order = np.argsort(graph.labels, kind="stable")
    graph = graph.with_split(Split(order[:50], order[50:55], order[60:]))
    alone = GrandPlus(method().config)
    train(alone, graph, seed=5)
    assert graph.split is not None
    member = on_ray._StoredGrandPlus(on_ray._StoredRows.of(alone, graph, graph.split), Team(0, 1))
    train(member, member.stored.watched, seed=5)
    for name, tensor in alone.state().items():
        assert torch.equal(member.state()[name], tensor), name


def test_callbacks_of_a_resumed_training_see_its_whole_history(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    expected = train(method(), blocks_graph(), seed=5, checkpoint=path)
    seen: list[Outcome] = []

    class Watching:
        def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
            seen.append(outcome)

    news = on_ray._News(PHASE, [Watching()], read_checkpoint(path))
    news.take(({"epoch": EPOCHS + 1.0, "loss": 1.0}, EPOCHS))
    assert seen[0].epochs == EPOCHS + 1
    assert seen[0].best == expected.history[EPOCHS - 1]


def test_a_checkpoint_of_another_run_is_refused_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    train(method(), blocks_graph(), seed=5, checkpoint=path)
    with pytest.raises(CheckpointError, match=f"{path} belongs to a run with seed 5"):
        train_on_ray(method(), blocks_graph(), workers=1, seed=6, checkpoint=path)
    path.write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match=f"{path} is not a checkpoint"):
        train_on_ray(method(), blocks_graph(), workers=1, seed=5, checkpoint=path)


@dataclass
class Trained:
    """What a training by two workers on the two nodes left behind."""

    method: GrandPlus
    outcome: Outcome
    epochs: list[int]


def train_two(nodes: Cluster, checkpoint: Path) -> Trained:
    trained, epochs = method(), Epochs()
    outcome = train_on_ray(
        trained,
        blocks_graph(),
        seed=5,
        workers=2,
        address=nodes.address,
        callbacks=[epochs],
        checkpoint=checkpoint,
        checkpoint_every=0.0,
    )
    return Trained(trained, outcome, epochs.seen)


@pytest.fixture(scope="module")
def undisturbed(nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    checkpoint = tmp_path_factory.mktemp("undisturbed") / "run" / "checkpoint.safetensors"
    trained = train_two(nodes, checkpoint)
    saved = read_checkpoint(checkpoint)
    assert saved is not None
    assert saved.epoch == EPOCHS
    return trained


@pytest.mark.slow
def test_two_workers_train_as_one_process_does(undisturbed: Trained) -> None:
    """But for rounding: their losses add up to that of the whole batch, with the same masks.

    What they are trained on was pushed by other workers, and has the same bits.
    """
    alone, together = method(), undisturbed.method
    expected = train(alone, blocks_graph(), seed=5)
    for name in ("starts", "places", "scores"):
        assert np.array_equal(getattr(together.rows, name), getattr(alone.rows, name))
    assert undisturbed.epochs == list(range(1, EPOCHS + 1))
    for found, known in zip(undisturbed.outcome.history, expected.history, strict=True):
        assert found == pytest.approx(known, rel=1e-3, abs=1e-4)
    torch.testing.assert_close(together.logits(), alone.logits(), rtol=1e-2, atol=1e-3)
    assert "run" not in vars(together), "a method is not left with the engine of a cluster"


DEATHS = {1: 3, 0: 5}
"""Which members die, each once, and in which epoch."""


def share_that_dies(flags: Path, task: Any, team: Team, file: Any) -> None:
    """Train, but die in the middle of an epoch if this member has not died before."""
    calls, loss, flag = 0, GrandPlus.loss, flags / str(team.rank)
    written = file.read()
    done = 0
    if written is not None:
        copy = flags / f"seen-by-{team.rank}"
        copy.write_bytes(written)
        saved = read_checkpoint(copy)
        assert saved is not None
        done = saved.epoch

    def fatal(self: GrandPlus, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == (DEATHS[team.rank] - 1 - done) * BATCHES + 2:
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return loss(self, *arguments)

    if not flag.exists():
        GrandPlus.loss = fatal  # type: ignore[method-assign]
    on_ray._train_share(task, team, file)


@pytest.mark.slow
def test_members_that_are_killed_in_an_epoch_change_no_bit(
    nodes: Cluster, undisturbed: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them, and later the first, which writes the checkpoints."""
    # Rows are pushed here, to save the time of starting workers for it.
    monkeypatch.setattr(on_ray, "run_ray", here)
    monkeypatch.setattr(on_ray, "_train_share", partial(share_that_dies, tmp_path))
    killed = train_two(nodes, tmp_path / "run" / "checkpoint.safetensors")
    assert all((tmp_path / str(rank)).exists() for rank in DEATHS)
    assert killed.epochs == undisturbed.epochs, "epochs with a checkpoint were trained again"
    assert killed.outcome.history == undisturbed.outcome.history
    assert killed.outcome.best_epoch == undisturbed.outcome.best_epoch
    for name, tensor in undisturbed.method.state().items():
        assert torch.equal(killed.method.state()[name], tensor), name


def here(function: Any, items: Any, *, shared: Any, address: str) -> Any:
    """An engine without workers."""
    for item in items:
        yield item, function(shared, item)


@pytest.mark.slow
def test_a_training_that_diverges_says_so_once(
    nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not started again, only to diverge again."""
    monkeypatch.setattr("dropnode.engines.ray_team.RESTARTS", 0)
    monkeypatch.setattr(on_ray, "run_ray", here)
    with pytest.raises(TrainingError, match="lower learning_rate"):
        train_on_ray(method(learning_rate=1e30), blocks_graph(), workers=2, address=nodes.address)


def weighted_graphs() -> sp.csr_array:
    """Random weighted graphs, from no edges to all, as the components of one graph."""
    generator = np.random.default_rng(11)
    blocks = []
    for size, density in [(1, 1.0), (2, 1.0), (30, 0.0), (40, 0.05), (60, 0.3), (25, 1.0)]:
        dense = (generator.random((size, size)) < density) * generator.uniform(
            0.01, 20.0, (size, size)
        )
        upper = np.triu(dense, 1)
        blocks.append(sp.csr_array((upper + upper.T).astype(np.float32)))
    return sp.csr_array(sp.block_diag(blocks, format="csr"))


def block_that_dies(flag: Path, shared: Any, block: tuple[int, np.ndarray]) -> sp.csr_array:
    """Push a block; the first worker that gets to the fifth one dies on the way."""
    if block[0] and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return push._push_block(shared, block)


def test_push_on_ray_is_push_here_bit_by_bit(
    nodes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a worker is killed in the middle of a block."""
    adjacency = weighted_graphs()
    degrees = np.asarray(adjacency.sum(axis=1), np.float64).ravel() + 1.0
    sources = np.random.default_rng(0).permutation(adjacency.shape[0])
    walk = adjacency, degrees, sources, walk_shares("ppr", 5, 0.2), 1e-4, 9
    monkeypatch.setattr(push, "PIECES", 7)
    monkeypatch.setattr(push, "_push_block", partial(block_that_dies, tmp_path / "died"))
    there = pushed_rows(*walk, run=partial(run_ray, address=nodes.address))
    here = pushed_rows(*walk)
    assert (tmp_path / "died").exists()
    assert_same_rows(there, here)


def assert_same_rows(found: sp.csr_array, expected: sp.csr_array) -> None:
    for name in ("data", "indices", "indptr"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


@pytest.mark.slow
def test_more_workers_than_there_is_room_for(nodes: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"3 workers need 3 CPUs .* the Ray cluster has 2"):
        train_on_ray(method(), blocks_graph(), workers=3, address=nodes.address)


def test_a_driver_outside_the_cluster_is_refused() -> None:
    with pytest.raises(ConfigError, match="run the same command on a machine of the cluster"):
        train_on_ray(method(), blocks_graph(), workers=2, address="ray://127.0.0.1:10001")


def test_other_methods_are_refused() -> None:
    from dropnode.methods.table import make_method

    with pytest.raises(ConfigError, match="only grand-plus"):
        train_on_ray(make_method("gcn", None).method, blocks_graph(), workers=2)


def test_a_block_that_fails_is_one_line() -> None:
    def failing(function: Any, items: Any, *, shared: Any) -> Any:
        yield next(iter(items)), Failure("its worker died 4 times")

    adjacency = weighted_graphs()
    degrees = np.asarray(adjacency.sum(axis=1), np.float64).ravel() + 1.0
    with pytest.raises(WorkError, match="rows could not be pushed: its worker died 4 times"):
        pushed_rows(adjacency, degrees, np.arange(9), np.ones(1), 0.0, 2, run=failing)
