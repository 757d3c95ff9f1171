"""GraphNAS: a network whose layers were found by a search.

Gao, Yang, Zhang, Zhou and Hu, *GraphNAS: Graph Neural Architecture Search with Reinforcement
Learning*, arXiv:1904.09981, 2019 (*Graph Neural Architecture Search*, IJCAI 2020). Two layers, each
with an attention, an aggregation, an activation, heads and a width out of a search space; trained
on the cross-entropy of the labelled nodes. This is the training of a given architecture; the search
for one is :mod:`dropnode.experiments.architectures`. The official presets are the architectures
that the authors found.

The authors report, of every run, the highest test accuracy among the epochs that lowered the
validation loss, and average 100 runs without the five best and the five worst. Here validation
alone chooses the epoch, and every run counts. Their Cora, moreover, is not split as everyone
else's: the script loads it through DGL, which then took other nodes (its issue 1573). Expect less
than they report, on Cora above all.

Their release has two versions of the layer, which differ: Cora's figure is from one, Citeseer's and
Pubmed's from the other. Of the first are the residual connection of the last layer (``residual``)
and ``mlp``, a sum that a perceptron maps; of the other, the attentions. Their softmax runs over
the messages a node receives, as in the paper and the first version; in the other it runs over those
that a node sends.

Deviations: ``mean`` and ``max`` merge the messages themselves, where both versions map every
message first, each in its own way. Attention depends on which nodes are joined, not on the weights
of their edges; ``gcn`` depends on both.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from dropnode.methods.base import Sizes
from dropnode.methods.baselines.base import Baseline, BaselineConfig, drop, drop_features
from dropnode.methods.baselines.graphnas_layer import SearchedLayer
from dropnode.methods.baselines.graphnas_space import parse
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.settings import flag, rate


@dataclass(frozen=True, kw_only=True)
class GraphNASConfig(BaselineConfig):
    """Settings of GraphNAS.

    Attributes
    ----------
    architecture : as :func:`dropnode.methods.baselines.graphnas_space.parse` reads it
    dropout : before each layer, and on attention
    residual : whether the last layer adds a linear map of its input
    """

    architecture: str
    dropout: float = rate()
    residual: bool = flag()

    def __post_init__(self) -> None:
        super().__post_init__()
        parse(self.architecture)


class GraphNAS(Baseline):
    """Two layers of a given architecture."""

    name = "graphnas"
    config_type = GraphNASConfig
    config: GraphNASConfig

    @property
    def hops(self) -> int:
        """One hop per layer."""
        return 2

    def make_network(self, sizes: Sizes) -> nn.ModuleList:
        """Return the layers."""
        config = self.config
        first, last = parse(config.architecture)
        hidden = SearchedLayer(sizes.features, first, dropout=config.dropout)
        output = SearchedLayer(
            hidden.columns, last, sizes.classes, residual=config.residual, dropout=config.dropout
        )
        return nn.ModuleList([hidden, output])

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Pass features through both layers."""
        rate = self.config.dropout
        hidden, output = self.network
        own = [None if stream is None else stream.at("layer", number) for number in range(2)]
        x = hidden(drop_features(tensors.features, rate, stream), tensors, own[0])
        logits: torch.Tensor = output(drop(x, rate, stream, "hidden"), tensors, own[1])
        return logits
