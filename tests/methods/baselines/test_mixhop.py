"""MixHop puts powers of Â side by side, blends sets of scores, and slows down step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.nn import MixHopConv

import oracles
from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.methods.baselines.mixhop import BLEND_PENALTY, MixHop, MixHopConfig, Mixing, unit_rows
from dropnode.ops.propagation import normalise
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import SparseMatrix
from dropnode.training import train
from rounding import Rounded, exactly, joined, lost

CONFIG = MixHopConfig(
    feature_scaling="none",
    hidden=(4, 3, 2),
    outputs=(0, 2, 1),
    input_dropout=0.5,
    hidden_dropout=0.5,
    learning_rate=0.5,
    decrement_every=3,
    weight_decay=0.01,
    stopping="accuracy",
    patience=200,
    max_epochs=10,
)


def mixed(x: Rounded, graph: Graph, layer: Mixing) -> Rounded:
    """Âᵖ x Wₚ, power by power."""
    operator = oracles.operator_of(graph.adjacency)
    parts = []
    for lin in layer.lins:
        if lin.weight.numel():
            parts.append(x @ exactly(lin.weight).T)
        x = operator @ x
    return joined(parts, np.concatenate, -1)


@pytest.mark.parametrize("widths", [(4, 3, 2), (0, 5, 1), (2, 0, 3, 1), (3,), (0, 0, 2)])
def test_every_power_has_its_own_columns(widths: tuple[int, ...], community: Graph) -> None:
    layer = Mixing(community.num_features, widths)
    operator = SparseMatrix.from_scipy(normalise(community.adjacency), symmetric=True)
    result = layer(torch.tensor(community.features), operator).detach()
    assert result.shape == (community.num_nodes, sum(widths))
    mixed(exactly(community.features), community, layer).assert_near(result)


def test_equal_widths_are_the_librarys_layer(community: Graph) -> None:
    ours = Mixing(community.num_features, (5, 5, 5))
    theirs = MixHopConv(community.num_features, 5, powers=[0, 1, 2], bias=False)
    theirs.load_state_dict(ours.state_dict())
    x = torch.tensor(community.features)
    entries = community.adjacency.tocoo()
    edges = torch.from_numpy(np.stack(entries.coords).astype(np.int64))
    operator = SparseMatrix.from_scipy(normalise(community.adjacency), symmetric=True)
    expected = mixed(exactly(x), community, ours)
    for found in (ours(x, operator), theirs(x, edges, torch.tensor(entries.data))):
        expected.assert_near(found.detach())


def test_logits_are_the_blend_of_the_second_layer(community: Graph) -> None:
    method = MixHop(CONFIG)
    train(method, community)
    network = method.network
    lengths = np.linalg.norm(community.features.astype(float), axis=1, keepdims=True)
    # As many roundings as a length of nine numbers and a division have.
    unit = Rounded(community.features / np.where(lengths > 0, lengths, 1.0), steps=12)
    norm = {name: exactly(value) for name, value in network.norm.state_dict().items()}
    hidden: Any = mixed(unit, community, network.hidden)
    deviation: Any = np.sqrt(norm["running_var"] + network.norm.eps)
    hidden = (hidden - norm["running_mean"]) / deviation * norm["weight"] + norm["bias"]
    scores = mixed(np.maximum(hidden, 0.0), community, network.output)
    # No columns of the zeroth power, two sets of class scores of the first, one of the second.
    shares = oracles.softmax(exactly(network.blend))
    classes = community.num_classes
    expected: Any = 0.0
    for number in range(3):
        share, part = shares[[number]], scores[:, number * classes : (number + 1) * classes]
        expected = expected + share * part
    assert len(shares) == 3
    expected.assert_near(method.logits())


def test_the_weights_of_the_sum_are_learnt_and_held_together(community: Graph) -> None:
    method = MixHop(CONFIG)
    train(method, community)
    blend = method.network.blend.detach()
    assert blend.abs().max() > 1e-4
    # So large that the penalty shows beside the rounding of the sum.
    blend += torch.tensor([1.0, -2.0, 3.0])
    loss, parts = method.loss(None, Stream(3))
    penalty: Any = BLEND_PENALTY * np.square(exactly(blend)).mean()
    total = exactly(parts["supervised"]) + penalty
    assert penalty.value > 1000 * total.bound
    total.assert_near(loss.detach())


def test_rows_have_length_one_or_zero() -> None:
    features = np.array([[3.0, 0.0, -4.0], [0.0, 0.0, 0.0], [0.0, 1e-3, 0.0]], dtype=np.float32)
    expected = np.array([[0.6, 0.0, -0.8], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    sparse = unit_rows(SparseMatrix.from_scipy(sp.csr_array(features)))
    assert isinstance(sparse, SparseMatrix)
    # Three squares, their sum, its root and a division.
    np.testing.assert_allclose(sparse.to_dense().numpy(), expected, rtol=lost(7))
    np.testing.assert_allclose(unit_rows(torch.tensor(features)), expected, rtol=lost(7))


class Rates:
    """Notes the learning rate after each epoch, and may end the training."""

    def __init__(self, last: int | None = None) -> None:
        self.seen: list[float] = []
        self.last = last

    def on_epoch(self, phase: Any, outcome: Any) -> None:
        self.seen.append(phase.optimiser.param_groups[0]["lr"])
        if outcome.epochs == self.last:
            raise RuntimeError("killed")


def test_the_rate_falls_by_a_hundredth_every_few_steps_also_after_a_resume(
    community: Graph, tmp_path: Path
) -> None:
    whole = Rates()
    train(MixHop(CONFIG), community, callbacks=[whole])
    # What the next step is taken with: the first four have the whole rate, then every three less.
    falls = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    np.testing.assert_allclose(whole.seen, [0.5 * (1 - 0.01 * fall) for fall in falls])
    options = {"checkpoint": tmp_path / "c.safetensors", "checkpoint_every": 0.0}
    with pytest.raises(RuntimeError, match="killed"):
        train(MixHop(CONFIG), community, callbacks=[Rates(last=6)], **options)
    resumed = Rates()
    train(MixHop(CONFIG), community, callbacks=[resumed], **options)
    assert resumed.seen == whole.seen[-len(resumed.seen) :]
    assert len(resumed.seen) == 5


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hidden": (0, 0)}, "expected a width for each power of Â, not all of them 0"),
        ({"outputs": (1, -1)}, "expected a whole number of at least 0"),
        ({"hidden": (1, 10**9)}, "expected at most 1,000,000"),
    ],
)
def test_widths_that_cannot_be_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        CONFIG.replace(**changes)
