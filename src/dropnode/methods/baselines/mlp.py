"""MLP: a perceptron that reads a node's own features and no edge.

A lower bound for every method on a graph: the information in a node's own features. Width, dropout
and decay are those of the GCN it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from dropnode.methods.baselines.layered import Layered
from dropnode.methods.baselines.pyg_layers import Linear
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream


class MLP(Layered):
    """Linear layers, as many as asked for."""

    name = "mlp"

    def make_layer(self, num_inputs: int, num_outputs: int) -> Linear:
        """Return one linear map."""
        return Linear(num_inputs, num_outputs)

    @property
    def hops(self) -> int:
        """None of the neighbours count."""
        return 0

    def context(self, tensors: GraphTensors, stream: Stream | None) -> tuple[()]:
        """Return nothing."""
        return ()

    def decayed(self) -> Iterable[nn.Parameter]:
        """Return the weights of the first layer."""
        return [self.network[0].weight]
