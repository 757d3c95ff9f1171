"""Label propagation: labels move along the edges, and features are ignored.

Zhu and Ghahramani, *Learning from Labeled and Unlabeled Data with Label Propagation*, 2002, in the
form of PyTorch Geometric: y ← α D^-½ A D^-½ y + (1-α) y₀, as many times as asked for, where y₀ has
the labels of the training nodes and nothing else. A lower bound for every method: the information
in the edges alone. With fifty steps, the answer for a node depends on its whole component.
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
from dropnode.methods.base import Sizes
from dropnode.methods.baselines.closed_form import ClosedForm, ClosedFormConfig
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.settings import repeats, share


@dataclass(frozen=True, kw_only=True)
class LabelPropagationConfig(ClosedFormConfig):
    """Settings of label propagation.

    Attributes
    ----------
    steps : how many times labels move
    share : the share of a node's label that comes from its neighbours [α]
    """

    steps: int = repeats()
    share: float = share()


class LabelPropagation(ClosedForm):
    """Labels that move along edges."""

    name = "label-propagation"
    config_type = LabelPropagationConfig
    config: LabelPropagationConfig

    def prepare_training(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Put the labels of the training nodes in place."""
        if self.train_weights is not None:
            kind = "class" if self.node_weights is None else "sample"
            raise ConfigError(
                f"label propagation got {kind} weights, but has no loss to apply them to; "
                "leave them out"
            )
        known = F.one_hot(self.train_targets, graph.num_classes)
        self.network.seeds[self.train_rows] = known.float()

    def make_network(self, sizes: Sizes) -> nn.Module:
        """Return a buffer for the labels that move."""
        network = nn.Module()
        network.register_buffer("seeds", torch.zeros(sizes.nodes, sizes.classes))
        return network

    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        """Return the logarithm of the label scores at nodes of the training graph."""
        if graph is not None:
            raise GraphError(
                "label propagation reads no features, only the labels of its training graph: it "
                f"cannot classify another graph ({graph.name!r}); train on that graph, or use a "
                "method that reads features"
            )
        return super().logits(None, rows)

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Propagate the labels; new nodes stand behind those of the training graph."""
        seeds = self.network.seeds
        nodes = tensors.num_nodes
        start = F.pad(seeds, (0, 0, 0, nodes - len(seeds)))
        edges, weights = tensors.edges
        edges, weights = gcn_norm(edges, weights, nodes, add_self_loops=False)
        move = PygLabelPropagation(self.config.steps, self.config.share)
        arrived = move(start, edges, edge_weight=weights)
        # Nodes that no label reaches get equal scores for all classes.
        return (arrived + 1e-12).log()
