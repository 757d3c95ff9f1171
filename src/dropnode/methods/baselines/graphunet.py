"""Graph U-Net: pooling to fewer and fewer nodes, and back.

Gao and Ji, *Graph U-Nets*, ICML 2019. On the way down, convolutions and poolings by turns: nodes
are ranked by a learnt projection, the top ones stay, joined where two steps joined them before. On
the way up they return to their places, are added to the values there, and convolved again. Trained
on the cross-entropy of the labelled nodes, with dropout on features and some edges dropped every
epoch; weight decay on everything.

The authors' released code classifies whole graphs only. Weights, poolings and most settings are
those of PyTorch Geometric, whose maintainers could not reach the paper's accuracies either. What is
computed is the same too, at a fraction of the cost: the library squares an adjacency before most of
its nodes go, and moves messages one edge at a time, of which the last levels have nearly all there
can be. Deviations: the first pooling keeps a number of nodes rather than a share, so that graphs
with fewer nodes lose none; the following halve. Dropout before the last layer, which the library's
example lacks and the paper may mean, raises the validation accuracy. Edge weights count.

New nodes, which receive messages but send none, do not compete in the poolings: they stay in all
levels, and their logits do not depend on each other. The poolings rank all nodes of a graph, so the
logits of a node depend on the whole graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv
from torch_geometric.nn import GraphUNet as PygGraphUNet
from torch_geometric.nn.pool.select import SelectTopK

from dropnode.graph.arrays import Matrix
from dropnode.methods.base import Sizes
from dropnode.methods.baselines.base import Baseline, BaselineConfig, drop_features
from dropnode.methods.baselines.dropedge import kept_edges
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.propagation import normalise
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import Features, SparseMatrix
from dropnode.settings import count, rate, repeats, width

FULL = 0.1
"""The share of entries from which on an adjacency is held dense."""


@dataclass(frozen=True, kw_only=True)
class GraphUNetConfig(BaselineConfig):
    """Settings of Graph U-Net.

    Attributes
    ----------
    hidden : width of every layer but the last
    depth : number of poolings
    pooled : nodes that the first pooling keeps, at most; every further one keeps half
    input_dropout, hidden_dropout : of the features, and before the last layer
    edge_dropout : of the edges
    """

    hidden: int = width()
    depth: int = repeats()
    pooled: int = count()
    input_dropout: float = rate()
    hidden_dropout: float = rate()
    edge_dropout: float = rate()


class UNet(PygGraphUNet):
    """The network of PyTorch Geometric on adjacency matrices, and on sparse features."""

    def __init__(self, num_features: int, num_classes: int, config: GraphUNetConfig) -> None:
        ratios = [config.pooled, 0.5]
        super().__init__(num_features, config.hidden, num_classes, config.depth, ratios)
        self.config = config

    def forward(self, x: Features, adjacency: Matrix, known: int) -> torch.Tensor:
        """Return class scores.

        Parameters
        ----------
        x : Features
        adjacency : Matrix
            Without self-loops; rows receive from columns.
        known : int
            How many nodes compete in poolings. The nodes behind them stay in all levels.
        """
        operator = self.operator(adjacency)
        reached = torch.relu(_convolved(self.down_convs[0], x, operator))
        passed = []
        kept = min(self.config.pooled, known)
        for pool, convolution in zip(self.pools, self.down_convs[1:], strict=True):
            scores = _scores(pool.select, reached)
            # Stable, so that new nodes cannot change the order of equal scores.
            ranking = scores[:known].argsort(descending=True, stable=True)
            receivers = torch.arange(known, len(scores), device=scores.device)
            nodes = torch.cat([ranking[:kept], receivers])
            passed.append((reached, operator, nodes))
            adjacency = two_steps(adjacency, nodes.cpu().numpy())
            operator = self.operator(adjacency)
            pooled = reached[nodes] * scores[nodes].unsqueeze(1)
            reached = torch.relu(_convolved(convolution, pooled, operator))
            known, kept = kept, (kept + 1) // 2
        for convolution in self.up_convs[:-1]:
            skipped, operator, nodes = passed.pop()
            restored = skipped.index_add(0, nodes, reached)
            reached = torch.relu(_convolved(convolution, restored, operator))
        skipped, operator, nodes = passed.pop()
        restored = skipped.index_add(0, nodes, reached)
        dropped = F.dropout(restored, self.config.hidden_dropout, self.training)
        return _convolved(self.up_convs[-1], dropped, operator)

    def operator(self, adjacency: Matrix) -> Features:
        """Return D̃^-½ (A + 2I) D̃^-½."""
        device = self.down_convs[0].bias.device
        if sp.issparse(adjacency):
            # Halving the edges is like self-loops of weight two. Training has no new nodes.
            halved = normalise(adjacency * np.float32(0.5))
            return SparseMatrix.from_scipy(halved, device, symmetric=self.training)
        looped = adjacency + 2.0 * np.eye(len(adjacency), dtype=np.float32)
        scale = 1.0 / np.sqrt(looped.sum(axis=1))
        return torch.from_numpy(looped * scale * scale[:, None]).to(device)


class GraphUNet(Baseline):
    """A U-shaped network of poolings."""

    name = "graphunet"
    config_type = GraphUNetConfig
    config: GraphUNetConfig

    def make_network(self, sizes: Sizes) -> UNet:
        """Return the network."""
        return UNet(sizes.features, sizes.classes, self.config)

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Go down and up."""
        adjacency = tensors.adjacency
        if stream is not None:
            adjacency = kept_edges(tensors, self.config.edge_dropout, both_ways=True)
        features = drop_features(tensors.features, self.config.input_dropout, stream)
        scores: torch.Tensor = self.network(
            features, adjacency, tensors.num_nodes - tensors.receivers
        )
        return scores


def two_steps(adjacency: Matrix, nodes: np.ndarray) -> Matrix:
    """Return the walks of two steps between some nodes: (A + I)², without self-loops."""
    if not sp.issparse(adjacency):
        looped = adjacency + np.eye(len(adjacency), dtype=np.float32)
        joined = looped[nodes] @ looped[:, nodes]
        np.fill_diagonal(joined, 0.0)
        return joined
    looped = sp.csr_array(adjacency + sp.eye_array(adjacency.shape[0], dtype=np.float32))
    joined = looped[nodes] @ looped[:, nodes]
    joined.setdiag(0.0)
    joined.eliminate_zeros()
    return joined.toarray() if joined.nnz > FULL * len(nodes) ** 2 else joined


def _scores(select: SelectTopK, x: torch.Tensor) -> torch.Tensor:
    scores: torch.Tensor = select.act((x @ select.weight[0]) / select.weight.norm())
    return scores


def _convolved(convolution: GCNConv, x: Features, operator: Features) -> torch.Tensor:
    return operator @ (x @ convolution.lin.weight.T) + convolution.bias
