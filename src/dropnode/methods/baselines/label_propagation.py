"""Label propagation: the labels flow along the edges, and features are not looked at.

Zhu and Ghahramani, *Learning from Labeled and Unlabeled Data with Label Propagation*, 2002, in the
form of PyTorch Geometric: y ← α D^-½ A D^-½ y + (1-α) y₀, as many times as asked for, where y₀ has
the labels of the training nodes and nothing else. The other floor for every method: what the edges
alone say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import LabelPropagation as PygLabelPropagation
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from dropnode.errors import ConfigError, GraphError
from dropnode.graph import Graph, Split
from dropnode.methods.base import Inputs
from dropnode.methods.baselines.closed import ClosedForm, ClosedFormConfig
from dropnode.ops.randomness import Stream
from dropnode.ops.scaling import FeatureScaling
from dropnode.settings import count, share


@dataclass(frozen=True, kw_only=True)
class LabelPropagationConfig(ClosedFormConfig):
    """Settings: how many times labels move, and the share α that comes from neighbours."""

    steps: int = count()
    share: float = share()


class LabelPropagation(ClosedForm):
    """Labels that move along edges."""

    name = "label-propagation"
    config_type = LabelPropagationConfig
    config: LabelPropagationConfig

    def prepare(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Put the labels of the training nodes in place."""
        if self.class_weights is not None:
            raise ConfigError(
                "class weights for label propagation, which has no loss to weigh; leave them out"
            )
        super().prepare(graph, split, stream)
        self.network.seeds[self.train_rows] = F.one_hot(
            self.train_targets, graph.num_classes
        ).float()

    def build(self, scaling: FeatureScaling, graph: Graph) -> None:
        """Make room for a label of every node."""
        self.num_nodes = graph.num_nodes
        super().build(scaling, graph)

    def make_network(self, num_features: int, num_classes: int) -> nn.Module:
        """Return the labels that move, none of them known yet."""
        network = nn.Module()
        network.register_buffer("seeds", torch.zeros(self.num_nodes, num_classes))
        return network

    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        """Return the logarithm of what arrived at nodes of the training graph."""
        if graph is not None:
            raise GraphError(
                "label propagation knows the labels of its training graph and reads no features: "
                f"it cannot classify another graph ({graph.name!r}); train on it, or use a method "
                "that reads features"
            )
        return super().logits(None, rows)

    def classify(self, inputs: Inputs, stream: Stream | None = None) -> torch.Tensor:
        """Move the labels; nodes that listen to the training graph come after its own."""
        seeds = self.network.seeds
        nodes = inputs.operator.shape[0]
        start = F.pad(seeds, (0, 0, 0, nodes - len(seeds)))
        edges, weights = inputs.edges
        edges, weights = gcn_norm(edges, weights, nodes, add_self_loops=False)
        move = PygLabelPropagation(self.config.steps, self.config.share)
        arrived = move(start, edges, edge_weight=weights)
        # Where nothing arrived, every class is as probable.
        return (arrived + 1e-12).log()
