"""PyTorch Geometric's graph attention: its weights and its result, in kernels on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.nn import GATConv

from dropnode.ops.attention import attend
from dropnode.ops.kernels.memory import usable
from dropnode.ops.sparse_matrix import SparseMatrix


class GraphAttention(GATConv):
    """Graph attention over the stored entries of an operator, which has every node's self-loop.

    The library computes it on other devices, one message per edge, head and column at a time. The
    kernels draw the same masks from torch's generator, so that results are equal up to rounding.
    """

    def __init__(self, num_inputs: int, num_outputs: int, heads: int, **options: Any) -> None:
        super().__init__(num_inputs, num_outputs, heads, add_self_loops=False, **options)

    def forward(self, x: torch.Tensor, operator: SparseMatrix) -> torch.Tensor:
        """Return what every node receives."""
        if not usable(x.device):
            received: torch.Tensor = super().forward(x, operator.edge_index())
            return received
        heads = self.lin(x).unflatten(1, (self.heads, -1))
        dropped = self.dropout if self.training else 0.0
        gathered = attend(heads, self.att_src, self.att_dst, operator, self.negative_slope, dropped)
        return (gathered.flatten(1) if self.concat else gathered.mean(dim=1)) + self.bias
