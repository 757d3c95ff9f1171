"""What the benchmark times is training: each path steps through the real thing and learns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dropnode.bench import epochs
from dropnode.bench.pyg import PygTraining
from dropnode.bench.throughput import product
from dropnode.data import load_dataset
from dropnode.errors import DataError
from dropnode.graph import Graph
from dropnode.methods.grand.config import GrandConfig
from dropnode.methods.grand.model import Grand
from dropnode.training import train

Configure = Callable[..., GrandConfig]


def test_stepping_through_the_loop_is_the_loop(community: Graph, configure: Configure) -> None:
    config = configure(max_epochs=6, patience=2)
    stepped, trained = Grand(config), Grand(config)
    steps = list(epochs.epochs(stepped, community, seed=5))
    outcome = train(trained, community, seed=5)
    assert steps == outcome.history
    for name, value in stepped.state().items():
        assert torch.equal(value, trained.state()[name]), name


@pytest.mark.parametrize("path", epochs.PATHS)
def test_every_path_learns(path: str) -> None:
    try:
        graph = load_dataset("cora")
    except DataError as error:
        pytest.skip(f"cora cannot be obtained on this machine: {error}")
    training = epochs.training(path, "cora", graph)
    first = training.epoch()
    for _ in range(2):
        last = training.epoch()
    assert isinstance(first, dict)
    assert isinstance(last, dict)
    assert last["val_loss"] < first["val_loss"]


def test_no_path_stops_while_it_is_timed(community: Graph, configure: Configure) -> None:
    config = configure(patience=1, max_epochs=1).replace(**epochs.ENDLESS)
    training = epochs.LoopTraining(Grand(config), community)
    assert [training.epoch()["epoch"] for _ in range(120)] == list(range(1, 121))


@pytest.mark.parametrize("name", ["pyg-gcn", "pyg-gat"])
def test_the_yardsticks_are_as_wide_as_grand(community: Graph, name: str) -> None:
    """Two layers, 32 hidden units in all, as the paths they are compared with."""
    training = PygTraining(name, community)
    with torch.no_grad():
        hidden = training.model.get_submodule("conv1")(training.x, training.edges)
        logits = training.model(training.x, training.edges)
    assert hidden.shape == (community.num_nodes, 32)
    assert logits.shape == (community.num_nodes, community.num_classes)


def test_propagation_counts_its_bytes(community: Graph) -> None:
    """By hand: 2 views of 64 columns, 8 hops, every edge twice and a loop for every node."""
    counted = product("community", community, "default")
    entries = 2 * community.num_edges + community.num_nodes
    hop = entries * (128 * 4 + 4 + 4) + community.num_nodes * 128 * 4
    assert counted.gigabytes == pytest.approx(8 * hop / 1e9)
    propagated = counted.compute()
    assert isinstance(propagated, torch.Tensor)
    assert propagated.shape == (community.num_nodes, 128)
