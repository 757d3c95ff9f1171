"""The classifier of propagated rows: one or two linear layers, with the norms of GRAND+."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import skip_init

from dropnode.engines.team import ALONE, Team
from dropnode.methods.grand_plus.config import GrandPlusConfig
from dropnode.ops.kernels.memory import usable
from dropnode.ops.propagation import COLUMNS
from dropnode.ops.randomness import Dropout, Stream
from dropnode.ops.sparse_matrix import compact


class Head(nn.Module):
    """A perceptron of one or two layers.

    A layer is a batch norm, dropout and a linear map; ReLU stands between two. With ``node_norm``,
    every row of the input is first divided by its length.

    Attributes
    ----------
    batches : torch.Tensor
        How many batches it was trained on. The weight of the agreement depends on it, so a resumed
        run needs it.
    shares : torch.Tensor (order + 1,)
        The weights of the powers of P in the rows that it classifies, which may be fitted.
    """

    batches: torch.Tensor
    shares: torch.Tensor
    # Of what a list of modules holds, torch says no more than that they are modules.
    linears: Any
    norms: Any

    def __init__(self, num_features: int, num_classes: int, config: GrandPlusConfig) -> None:
        super().__init__()
        inputs = [num_features] if config.layers == 1 else [num_features, config.hidden]
        outputs = [*inputs[1:], num_classes]
        # Initial weights are not drawn here, but by initialise.
        self.linears = nn.ModuleList(
            skip_init(nn.Linear, *widths) for widths in zip(inputs, outputs, strict=True)
        )
        self.norms = nn.ModuleList(map(nn.BatchNorm1d, inputs)) if config.batch_norm else None
        self.node_norm = config.node_norm
        self.rates = config.input_dropout, config.hidden_dropout
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.register_buffer("shares", torch.zeros(config.order + 1, dtype=torch.float64))

    @torch.no_grad()
    def initialise(self, stream: Stream) -> None:
        """Draw weights and biases as torch does by default: uniformly, up to 1/√inputs."""
        for number, linear in enumerate(self.linears):
            for name, parameter in linear.named_parameters():
                generator = stream.at("layer", number, name).generator()
                drawn = generator.uniform(-1.0, 1.0, parameter.shape) / linear.in_features**0.5
                parameter.copy_(torch.from_numpy(drawn))

    @property
    def layers(self) -> int:
        """The number of linear layers."""
        return len(self.linears)

    def forward(self, x: torch.Tensor, dropout: Dropout, team: Team = ALONE) -> torch.Tensor:
        """Return the logits of propagated rows in training; the team has the rest of the batch."""
        x = self.normalised(x)
        count = len(x) if dropout.part is None else dropout.part.total
        for number, linear in enumerate(self.linears):
            x = torch.relu(x) if number else x
            x = x if self.norms is None else _normed(x, count, self.norms[number], team)
            x = dropout(x, self.rates[number], f"layer {number}")
            # Rows of words are mostly zeros, which cost most of a wide layer's time.
            wide = linear.out_features > COLUMNS and not x.requires_grad and usable(x.device)
            entries = compact(x, passing=True) if wide else x
            x = linear(x) if entries is x else entries @ linear.weight.T + linear.bias
        return x

    def normalised(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows divided by their length, if the head does that; rows of zeros stay zero."""
        return F.normalize(x) if self.node_norm else x

    def folded(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the norm and the linear map of a layer as one map: weights (in, out), offset.

        The norm has its running statistics, as at inference.
        """
        linear = self.linears[number]
        weight, bias = linear.weight.T, linear.bias
        if self.norms is None:
            return weight, bias
        norm = self.norms[number]
        gain = norm.weight / (norm.running_var + norm.eps).sqrt()
        return weight * gain[:, None], (norm.bias - norm.running_mean * gain) @ weight + bias

    def rest(self, first: torch.Tensor) -> torch.Tensor:
        """Return logits at inference, given the outputs of the first layer."""
        if self.layers == 1:
            return first
        weight, offset = self.folded(1)
        return torch.relu(first) @ weight + offset


def _normed(x: torch.Tensor, count: int, norm: nn.BatchNorm1d, team: Team) -> torch.Tensor:
    """Return a batch normalised by its own statistics, and a single row by those of past ones."""
    if count > 1 and team.size > 1:
        return _normed_together(x, count, norm, team)
    if count > 1:
        normed: torch.Tensor = norm(x)
        return normed
    past = norm.running_mean, norm.running_var, norm.weight, norm.bias
    return F.batch_norm(x, *past, eps=norm.eps)


def _normed_together(x: torch.Tensor, count: int, norm: Any, team: Team) -> torch.Tensor:
    """Return rows normalised by the statistics of a batch that a team has.

    Torch's own layer for this needs GPUs.
    """
    mean = team.total(x.sum(dim=0)) / count
    centred = x - mean
    variance = team.total(centred.square().sum(dim=0)) / count
    with torch.no_grad():
        norm.num_batches_tracked += 1
        # As torch does, with the unbiased variance.
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * count / (count - 1), norm.momentum)
    return centred / (variance + norm.eps).sqrt() * norm.weight + norm.bias
