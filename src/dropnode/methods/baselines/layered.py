"""Networks of layers of one kind, with ReLU and dropout between them: GCN and its relatives."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dropnode.methods.base import Sizes
from dropnode.methods.baselines.base import Baseline, BaselineConfig, drop, drop_features
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import Features
from dropnode.settings import rate, repeats, width


@dataclass(frozen=True, kw_only=True)
class LayeredConfig(BaselineConfig):
    """Further settings.

    Attributes
    ----------
    hidden : width of the hidden layers
    layers : number of layers
    dropout : dropout rate before each layer
    """

    hidden: int = width()
    layers: int = repeats(default=2)
    dropout: float = rate()


class Layered(Baseline):
    """A stack of layers."""

    config_type = LayeredConfig
    config: LayeredConfig

    @abstractmethod
    def make_layer(self, num_inputs: int, num_outputs: int) -> nn.Module:
        """Return one layer."""

    @abstractmethod
    def context(self, tensors: GraphTensors, stream: Stream | None) -> tuple[Any, ...]:
        """Return the arguments of a layer after the features: its view of the graph."""

    def activated(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activation of a layer's output, before dropout."""
        return torch.relu(x)

    @property
    def hops(self) -> int:
        """One hop per layer."""
        return self.config.layers

    def make_network(self, sizes: Sizes) -> nn.ModuleList:
        """Return the layers."""
        inner = [self.config.hidden] * (self.config.layers - 1)
        widths = [sizes.features, *inner, sizes.classes]
        return nn.ModuleList(map(self.make_layer, widths[:-1], widths[1:]))

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Pass features from layer to layer."""
        rate, context = self.config.dropout, self.context(tensors, stream)
        x: Features = drop_features(tensors.features, rate, stream)
        for number, layer in enumerate(self.network):
            if isinstance(x, torch.Tensor) and number:
                x = drop(self.activated(x), rate, stream, f"hidden {number}")
            x = layer(x, *context)
        assert isinstance(x, torch.Tensor)
        return x
