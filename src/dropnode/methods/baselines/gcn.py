"""GCN: graph convolutional network.

Kipf and Welling, *Semi-Supervised Classification with Graph Convolutional Networks*, ICLR 2017.
Layers of Â X W with ReLU and dropout between them, trained on the cross-entropy of the labelled
nodes; weight decay on the first layer alone.

Deviations: the authors stop once the validation loss exceeds its mean over the last ten epochs and
keep the last weights; here the loop's own rule stops, and keeps the weights it has validated best.
Layers have a bias, as in PyTorch Geometric.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from dropnode.methods.baselines.layered import Layered
from dropnode.methods.baselines.pyg_layers import Convolution
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import SparseMatrix


class GCN(Layered):
    """Graph convolutions, as many as asked for."""

    name = "gcn"

    def make_layer(self, num_inputs: int, num_outputs: int) -> Convolution:
        """Return one convolution."""
        return Convolution(num_inputs, num_outputs)

    def context(self, tensors: GraphTensors, stream: Stream | None) -> tuple[SparseMatrix]:
        """Return Â."""
        return (tensors.operator,)

    def decayed(self) -> Iterable[nn.Parameter]:
        """Return the weights of the first layer."""
        return [self.network[0].lin.weight]
