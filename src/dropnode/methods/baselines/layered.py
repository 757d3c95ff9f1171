"""Networks that are layers of one kind, with ReLU and dropout between them: GCN and its kin."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dropnode.methods.base import Inputs
from dropnode.methods.baselines.base import Baseline, BaselineConfig, drop, drop_features
from dropnode.ops.propagation import Features
from dropnode.ops.randomness import Stream
from dropnode.settings import count, rate


@dataclass(frozen=True, kw_only=True)
class LayeredConfig(BaselineConfig):
    """Further settings: width of the hidden layers, number of layers, dropout before each."""

    hidden: int = count()
    layers: int = count(default=2)
    dropout: float = rate()


class Layered(Baseline):
    """A stack of layers."""

    config_type = LayeredConfig
    config: LayeredConfig

    @abstractmethod
    def make_layer(self, num_inputs: int, num_outputs: int) -> nn.Module:
        """Return one layer."""

    @abstractmethod
    def context(self, inputs: Inputs, stream: Stream | None) -> tuple[Any, ...]:
        """Return what layers need to know of the graph, after the features."""

    def activated(self, x: torch.Tensor) -> torch.Tensor:
        """Return what a layer hands to the next, before dropout."""
        return torch.relu(x)

    def make_network(self, num_features: int, num_classes: int) -> nn.ModuleList:
        """Return the layers."""
        inner = [self.config.hidden] * (self.config.layers - 1)
        widths = [num_features, *inner, num_classes]
        return nn.ModuleList(map(self.make_layer, widths[:-1], widths[1:]))

    def classify(self, inputs: Inputs, stream: Stream | None = None) -> torch.Tensor:
        """Pass features from layer to layer."""
        rate, context = self.config.dropout, self.context(inputs, stream)
        x: Features = drop_features(inputs.features, rate, stream)
        for number, layer in enumerate(self.network):
            if isinstance(x, torch.Tensor) and number:
                x = drop(self.activated(x), rate, stream, f"hidden {number}")
            x = layer(x, *context)
        assert isinstance(x, torch.Tensor)
        return x
