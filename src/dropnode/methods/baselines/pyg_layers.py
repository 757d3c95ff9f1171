"""PyTorch Geometric's layers on our matrices: sparse features, and Â with fast kernels.

The weights, their initialisation and the result are those of the library, at a lower cost: the
library multiplies features as if none were zero, and moves messages one edge at a time. On bags of
words the first alone takes most of an epoch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch_geometric.nn import GCNConv
from torch_geometric.nn.dense import Linear as PygLinear

from dropnode.methods.graph_attention import GraphAttention
from dropnode.ops.sparse_matrix import Features, SparseMatrix


class Linear(PygLinear):
    """A linear map of dense or sparse features; Glorot uniform weights, no bias at first."""

    def __init__(self, num_inputs: int, num_outputs: int, bias: bool = True) -> None:
        super().__init__(num_inputs, num_outputs, bias, "glorot", "zeros")

    def forward(self, x: Features) -> torch.Tensor:
        """Return x W + b."""
        product = x @ self.weight.T
        return product if self.bias is None else product + self.bias


class Convolution(GCNConv):
    """A graph convolution, Â x W + b."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__(num_inputs, num_outputs, normalize=False)

    def forward(self, x: Features, operator: SparseMatrix) -> torch.Tensor:
        """Return Â x W + b; the product with W, which leaves fewer columns, comes first."""
        return operator @ (x @ self.lin.weight.T) + self.bias


class Attention(GraphAttention):
    """Graph attention of dense or sparse features."""

    def __init__(self, num_inputs: int, num_outputs: int, heads: int, **options: Any) -> None:
        super().__init__(num_inputs, num_outputs, heads, **options)
        # The library's own forward pass maps features as its first step, and takes dense ones only.
        self.linear: Any = self.lin
        self.lin: Any = nn.Identity()

    def forward(self, x: Features, operator: SparseMatrix) -> torch.Tensor:
        """Return what every node receives."""
        return super().forward(x @ self.linear.weight.T, operator)
