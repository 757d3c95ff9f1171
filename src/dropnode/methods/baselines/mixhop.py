"""MixHop: powers of Â side by side.

Abu-El-Haija et al., *MixHop: Higher-Order Graph Convolutional Architectures via Sparsified
Neighborhood Mixing*, ICML 2019. A layer puts the columns of Â⁰XW₀, ÂXW₁, Â²XW₂ next to each other,
each power with a width of its own, so that differences between neighbourhoods can be learnt. Two
such layers with batch normalisation, ReLU and dropout between; the second gives one or more sets of
class scores per power, whose weighted sum, with weights that are learnt, makes the logits. Features
are scaled to rows of unit length after their dropout. Gradient descent on the cross-entropy of the
labelled nodes, at a rate that falls in steps.

Widths are those the authors' group lasso has left; it is not repeated here. Deviations: batch
normalisation uses running statistics at inference, so that a new node's logits do not depend on
other new nodes, and has a learnt scale; the released code normalises by the statistics of whatever
it is given, without a scale. Among epochs of equal validation accuracy it keeps the one with the
highest test accuracy; here the latest is kept, and the test labels stay unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from dropnode.errors import ConfigError
from dropnode.methods.base import Sizes
from dropnode.methods.baselines.base import Baseline, BaselineConfig, Parts, drop, drop_features
from dropnode.methods.baselines.pyg_layers import Linear
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import Features, SparseMatrix
from dropnode.settings import MOST_REPEATS, MOST_UNITS, count, rate
from dropnode.training.optimiser import SGD

DECREMENT = 0.01
"""The share of the first learning rate by which it falls each time."""

BLEND_PENALTY = 1e-3
"""The weight of the mean square of the blend's weights before their softmax."""


@dataclass(frozen=True, kw_only=True)
class MixHopConfig(BaselineConfig):
    """Settings of MixHop.

    Attributes
    ----------
    hidden : columns of each power of Â in the first layer, from the zeroth on; 0 leaves one out
    outputs : sets of class scores of each power in the second layer
    input_dropout, hidden_dropout : before the first and the second layer
    decrement_every : steps after which the learning rate falls by a hundredth of the first
    """

    hidden: tuple[int, ...] = count(least=0, most=MOST_UNITS)
    outputs: tuple[int, ...] = count(least=0, most=MOST_REPEATS)
    input_dropout: float = rate()
    hidden_dropout: float = rate()
    decrement_every: int = count()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hidden", "outputs"):
            widths = getattr(self, name)
            if not any(widths):
                raise ConfigError(
                    f"{name} = {list(widths)!r}; expected a width for each power of Â, not all of "
                    "them 0"
                )


class Mixing(nn.Module):
    """A layer of powers: Âᵖ x Wₚ for every p, next to each other."""

    def __init__(self, num_inputs: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.lins = nn.ModuleList(Linear(num_inputs, width, bias=False) for width in widths)

    def forward(self, x: Features, operator: SparseMatrix) -> torch.Tensor:
        """Return all powers; every product with Â takes the higher ones along."""
        weights: list[torch.Tensor] = list(self.parameters())
        rest = x @ torch.cat(weights).T
        done = []
        for power, weight in enumerate(weights):
            if power and rest.shape[1]:
                rest = operator @ rest
            done.append(rest[:, : len(weight)])
            rest = rest[:, len(weight) :]
        return torch.cat(done, dim=1)


class MixHop(Baseline):
    """Two layers of powers, and a weighted sum."""

    name = "mixhop"
    config_type = MixHopConfig
    config: MixHopConfig

    @property
    def hops(self) -> int:
        """The highest power of Â of each layer."""
        return len(self.config.hidden) + len(self.config.outputs) - 2

    def make_network(self, sizes: Sizes) -> nn.Module:
        """Return the layers, and the weights of the sum."""
        wide = sum(self.config.hidden)
        network = nn.Module()
        network.hidden = Mixing(sizes.features, self.config.hidden)
        network.norm = nn.BatchNorm1d(wide)
        network.output = Mixing(wide, [sets * sizes.classes for sets in self.config.outputs])
        network.blend = nn.Parameter(torch.zeros(sum(self.config.outputs)))
        return network

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Mix twice, and blend the sets of class scores."""
        network, operator = self.network, tensors.operator
        x = unit_rows(drop_features(tensors.features, self.config.input_dropout, stream))
        hidden = torch.relu(network.norm(network.hidden(x, operator)))
        dropped = drop(hidden, self.config.hidden_dropout, stream, "hidden")
        scores = network.output(dropped, operator)
        sets = scores.view(len(scores), len(network.blend), -1)
        return torch.einsum("nsc,s->nc", sets, network.blend.softmax(dim=0))

    def loss(self, batch: None, stream: Stream) -> tuple[torch.Tensor, Parts]:
        """Return the cross-entropy, and what keeps the weights of the sum near each other."""
        supervised, parts = super().loss(batch, stream)
        blend = BLEND_PENALTY * self.network.blend.square().mean()
        return supervised + blend, parts | {"blend": blend}

    def decayed(self) -> Iterable[nn.Parameter]:
        """Return the weights of both layers."""
        return [*self.network.hidden.parameters(), *self.network.output.parameters()]

    def optimiser(self) -> torch.optim.Optimizer:
        """Return gradient descent."""
        groups: list[dict[str, Any]] = [
            {"params": self.decayed(), "weight_decay": self.config.weight_decay},
            {"params": [*self.network.norm.parameters(), self.network.blend]},
        ]
        return FallingSGD(groups, self.config.learning_rate, self.config.decrement_every)


class FallingSGD(SGD):
    """Gradient descent at a rate that falls, evenly, every so many steps.

    The number of steps is kept in the parameter groups, which a checkpoint stores: a resumed run
    goes on at the rate it had.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], first: float, every: int) -> None:
        super().__init__(groups, lr=first)
        for group in self.param_groups:
            group |= {"first": first, "every": every, "steps": 0}

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take a step."""
        result = super().step(closure)
        for group in self.param_groups:
            falls = group["steps"] // group["every"]
            group["steps"] += 1
            group["lr"] = group["first"] * max(1.0 - DECREMENT * falls, 0.0)
        return result


def unit_rows(features: Features) -> Features:
    """Return features whose rows have length one; rows of zeros stay zero."""
    if isinstance(features, torch.Tensor):
        return F.normalize(features)
    lengths = features.forward.crow_indices().diff().long()
    squares = torch.segment_reduce(features.values.square(), "sum", lengths=lengths)
    norms = squares.sqrt().clamp(min=1e-12)
    return features.reweighted(1.0 / norms.repeat_interleave(lengths))
