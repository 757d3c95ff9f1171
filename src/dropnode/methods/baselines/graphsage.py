"""GraphSAGE: sample and aggregate.

Hamilton, Ying and Leskovec, *Inductive Representation Learning on Large Graphs*, NeurIPS 2017. A
layer maps a node's own row and the mean of its neighbours' rows, each with weights of its own, and
adds the two; between layers ReLU, rows scaled to unit length, and dropout. Trained on the
cross-entropy of the labelled nodes.

In training a node may receive messages from a few of its neighbours only, drawn without replacement
for every layer and step; inference uses all. The mean is over neighbours, whatever the weights of
their edges; for an isolated node it is zero.

Deviations: batches are whole graphs, and the last layer is the classifier, where the authors scale
its rows too and classify them by one more. They have no results on citation networks with few
labels: settings are those of a GCN.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv

from dropnode.methods.baselines.layered import Layered, LayeredConfig
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import Features
from dropnode.settings import count


@dataclass(frozen=True, kw_only=True)
class GraphSAGEConfig(LayeredConfig):
    """Further settings.

    Attributes
    ----------
    neighbours : how many neighbours send to a node in training, 0 for all
    """

    neighbours: int = count(least=0)


class Aggregation(SAGEConv):
    """The mean aggregator of PyTorch Geometric, for sparse features too."""

    def __init__(self, num_inputs: int, num_outputs: int, neighbours: int) -> None:
        super().__init__(num_inputs, num_outputs, aggr="mean")
        self.neighbours = neighbours

    def forward(self, x: Features, edges: torch.Tensor) -> torch.Tensor:
        """Return x W + mean(x of neighbours) V + b; V, which leaves fewer columns, comes first."""
        if self.training and self.neighbours:
            edges = sampled(edges, self.neighbours)
        mapped = x @ self.lin_l.weight.T
        received = self.propagate(edges, x=(mapped, mapped), size=None)
        return received + self.lin_l.bias + x @ self.lin_r.weight.T


class GraphSAGE(Layered):
    """Mean aggregators, as many as asked for."""

    name = "graphsage"
    config_type = GraphSAGEConfig
    config: GraphSAGEConfig

    def make_layer(self, num_inputs: int, num_outputs: int) -> Aggregation:
        """Return one aggregator."""
        return Aggregation(num_inputs, num_outputs, self.config.neighbours)

    def activated(self, x: torch.Tensor) -> torch.Tensor:
        """Return rows of unit length."""
        return F.normalize(torch.relu(x))

    def context(self, tensors: GraphTensors, stream: Stream | None) -> tuple[torch.Tensor]:
        """Return the edges."""
        return (tensors.edges[0],)


def sampled(edges: torch.Tensor, neighbours: int) -> torch.Tensor:
    """Return the edges that a layer of GraphSAGE aggregates: a sample of each node's neighbours.

    Torch draws it.
    """
    target = edges[1]
    # Shuffled, then by target: the first few of each are a sample.
    order = torch.randperm(len(target), device=target.device)
    order = order[target[order].argsort(stable=True)]
    degrees = target.bincount()
    first = degrees.cumsum(0) - degrees
    rank = torch.arange(len(target), device=target.device) - first[target[order]]
    return edges[:, order[rank < neighbours]]
