"""GAT: graph attention network.

Veličković et al., *Graph Attention Networks*, ICLR 2018. Every layer averages over neighbours with
weights that several heads of attention learn; ELU and dropout between layers, dropout on the
attention too. Heads are concatenated, and averaged in the last layer.

Attention depends on which nodes are joined, not on the weights of their edges. Deviation: biases
are decayed along with the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from dropnode.methods.base import Sizes
from dropnode.methods.baselines.base import Baseline, BaselineConfig, drop, drop_features
from dropnode.methods.baselines.pyg_layers import Attention
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.settings import rate, repeats, width


@dataclass(frozen=True, kw_only=True)
class GATConfig(BaselineConfig):
    """Settings of GAT.

    Attributes
    ----------
    hidden : width of a head
    heads : attention heads in each hidden layer
    output_heads : attention heads in the last layer
    layers : number of layers
    dropout : before each layer, and on attention
    """

    hidden: int = width()
    heads: int = repeats()
    output_heads: int = repeats()
    layers: int = repeats(default=2)
    dropout: float = rate()


class GAT(Baseline):
    """Graph attention, as many layers as asked for."""

    name = "gat"
    config_type = GATConfig
    config: GATConfig
    # The first one summed messages in another order.
    revision = 2

    @property
    def hops(self) -> int:
        """One hop per layer."""
        return self.config.layers

    def make_network(self, sizes: Sizes) -> nn.ModuleList:
        """Return the layers."""
        config = self.config
        wide = config.hidden * config.heads
        widths = [sizes.features, *[wide] * (config.layers - 1)]
        options = {"dropout": config.dropout}
        inner = [Attention(n, config.hidden, config.heads, **options) for n in widths[:-1]]
        last = Attention(widths[-1], sizes.classes, config.output_heads, concat=False, **options)
        return nn.ModuleList([*inner, last])

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Attend, layer after layer; the layers drop attention themselves, in training."""
        rate, operator = self.config.dropout, tensors.operator
        assert isinstance(self.network, nn.ModuleList)
        first, *others = self.network
        x: torch.Tensor = first(drop_features(tensors.features, rate, stream), operator)
        for number, layer in enumerate(others):
            x = layer(drop(F.elu(x), rate, stream, f"hidden {number}"), operator)
        return x
