"""GRAND+ on a Ray cluster of two nodes: rows pushed there, and a team that loses members.

Workers import this module too.
"""

from __future__ import annotations

import os
import signal
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
from dropnode.errors import ConfigError, TrainingError, WorkError
from dropnode.graph import Graph, Split
from dropnode.methods.grand_plus import on_ray
from dropnode.methods.grand_plus.config import preset
from dropnode.methods.grand_plus.model import GrandPlus
from dropnode.methods.grand_plus.on_ray import train_on_ray
from dropnode.ops import push
from dropnode.ops.push import pushed_rows, walk_shares
from dropnode.training import Outcome, Phase, train
from dropnode.training.checkpoint import read_checkpoint
from ray_nodes import NEEDED, Cluster

pytestmark = NEEDED

BATCHES, EPOCHS = 3, 6


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Cluster:
    """The cluster, with its second node."""
    cluster.add(f"--address={cluster.address}")
    return cluster


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


def test_two_workers_train_as_one_process_does(nodes: Cluster, tmp_path: Path) -> None:
    """But for rounding: their losses add up to that of the whole batch, with the same masks."""
    graph, alone, together, epochs = blocks_graph(), method(), method(), Epochs()
    expected = train(alone, graph, seed=5)
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    outcome = train_on_ray(
        together,
        graph,
        seed=5,
        workers=2,
        address=nodes.address,
        callbacks=[epochs],
        checkpoint=checkpoint,
    )
    assert epochs.seen == list(range(1, EPOCHS + 1))
    assert outcome.epochs == expected.epochs
    for found, known in zip(outcome.history, expected.history, strict=True):
        assert found == pytest.approx(known, rel=1e-3, abs=1e-4)
    saved = read_checkpoint(checkpoint)
    assert saved is not None
    assert saved.epoch == EPOCHS
    torch.testing.assert_close(together.logits(), alone.logits(), rtol=1e-2, atol=1e-3)
    assert "run" not in vars(together)


def share_that_dies(rank: int, flag: Path, task: Any, team: Team, file: Any) -> None:
    """Train, but one member dies in the middle of the fourth epoch, once."""
    calls, loss = 0, GrandPlus.loss

    def fatal(self: GrandPlus, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3 * BATCHES + 2:
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return loss(self, *arguments)

    if team.rank == rank and not flag.exists():
        GrandPlus.loss = fatal  # type: ignore[method-assign]
    on_ray._train_share(task, team, file)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_member_that_is_killed_in_an_epoch_changes_no_bit(
    nodes: Cluster, rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, epochs, outcomes, trained = blocks_graph(), Epochs(), [], []
    share = on_ray._train_share
    for dies in (False, True):
        fatal = partial(share_that_dies, rank, tmp_path / "died")
        monkeypatch.setattr(on_ray, "_train_share", fatal if dies else share)
        trained.append(method())
        outcomes.append(
            train_on_ray(
                trained[-1],
                graph,
                workers=2,
                address=nodes.address,
                callbacks=[epochs],
                checkpoint_every=0.0,
            )
        )
    assert (tmp_path / "died").exists()
    # Nothing that was in a checkpoint was done again.
    assert epochs.seen == 2 * list(range(1, EPOCHS + 1))
    assert outcomes[0].history == outcomes[1].history
    assert outcomes[0].best_epoch == outcomes[1].best_epoch
    for one, other in zip(trained[0].state().values(), trained[1].state().values(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_a_training_that_diverges_says_so_once(nodes: Cluster) -> None:
    with pytest.raises(TrainingError, match="lower learning_rate"):
        train_on_ray(method(learning_rate=1e30), blocks_graph(), workers=2, address=nodes.address)


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
