"""The layer that GraphNAS puts together: any attention with any aggregation of its search space."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch_geometric.nn import MLP
from torch_geometric.nn.inits import glorot
from torch_geometric.utils import scatter, softmax

from dropnode.methods.baselines.base import drop
from dropnode.methods.baselines.graphnas_space import LayerPlan
from dropnode.methods.baselines.pyg_layers import Linear
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import Features, SparseMatrix

SLOPE = 0.2
"""Of the leaky ReLU in an attention, as in GAT."""

MLP_HIDDEN = 128
"""Width of the perceptron that aggregates, as its authors have it."""

CONSTANT = ("const", "gcn")
"""The attentions that learn nothing."""


class SearchedLayer(nn.Module):
    """One layer of an architecture.

    Parameters
    ----------
    num_inputs : int
    plan : LayerPlan
    num_outputs : int, optional
        For the last layer, whose heads are averaged: columns of a head, in place of the plan's.
    residual : bool
        Whether to add a linear map of the layer's input to its output.
    dropout : float
        Share of the attention that is dropped in training.
    """

    def __init__(
        self,
        num_inputs: int,
        plan: LayerPlan,
        num_outputs: int | None = None,
        *,
        residual: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.plan, self.dropout, self.averages = plan, dropout, num_outputs is not None
        width = plan.hidden if num_outputs is None else num_outputs
        self.columns = width if self.averages else plan.heads * width
        self.linear = Linear(num_inputs, plan.heads * width, bias=False)
        self.bias = nn.Parameter(torch.zeros(self.columns))
        if plan.attention not in CONSTANT:
            self.left = _vectors(1, plan.heads, width)
            self.right = _vectors(1, plan.heads, width)
        if plan.attention == "gene_linear":
            self.combine = _vectors(width, 1)
        if plan.aggregation == "mlp":
            self.mlp = MLP([width, MLP_HIDDEN, width], norm=None)
        self.skip = Linear(num_inputs, self.columns, bias=False) if residual else None

    def forward(self, x: Features, tensors: GraphTensors, stream: Stream | None) -> torch.Tensor:
        """Return the layer's output; with a stream, as in training."""
        heads = self.linear(x).unflatten(1, (self.plan.heads, -1))
        weights = self.attention(heads, tensors, stream)
        gathered = self.aggregate(heads, weights, tensors)
        joined = gathered.mean(dim=1) if self.averages else gathered.flatten(1)
        joined = joined + self.bias
        if self.skip is not None:
            joined = joined + self.skip(x)
        return _activate(self.plan.activation, joined)

    def attention(
        self, heads: torch.Tensor, tensors: GraphTensors, stream: Stream | None
    ) -> torch.Tensor:
        """Return the factors of the messages: (edges, heads or 1, columns or 1)."""
        operator = tensors.operator
        if self.plan.attention == "gcn":
            return operator.values[:, None, None]
        if self.plan.attention == "const":
            if stream is None or self.dropout == 0:
                return torch.ones_like(operator.values)[:, None, None]
            # A constant attention drops entries of the messages instead.
            ones = operator.values.new_ones(len(operator.values), heads[0].numel())
            return drop(ones, self.dropout, stream, "attention").view(-1, *heads.shape[1:])
        source, target = tensors.looped_edges
        scores = self.scores(heads, source, target)
        weights = softmax(scores, target, num_nodes=len(heads))
        return drop(weights, self.dropout, stream, "attention")[:, :, None]

    def scores(
        self, heads: torch.Tensor, source: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        """Return the attention scores of every edge (edges, heads), before the softmax."""
        if self.plan.attention in ("cos", "gene_linear"):
            to, of = (heads * self.left)[target], (heads * self.right)[source]
            if self.plan.attention == "cos":
                return (to * of).sum(dim=-1)
            return (torch.tanh(to + of) @ self.combine).squeeze(-1)
        left, right = (
            torch.einsum("nhc,hc->nh", heads, side[0]) for side in (self.left, self.right)
        )
        if self.plan.attention == "linear":
            return torch.tanh(left + right)[source]
        forward = F.leaky_relu(left[target] + right[source], SLOPE)
        if self.plan.attention == "gat":
            return forward
        return forward + F.leaky_relu(left[source] + right[target], SLOPE)

    def aggregate(
        self, heads: torch.Tensor, weights: torch.Tensor, tensors: GraphTensors
    ) -> torch.Tensor:
        """Return the weighted messages to every node, merged (nodes, heads, columns)."""
        aggregation = self.plan.aggregation
        if aggregation == "max" or weights.shape[2] > 1:
            source, target = tensors.looped_edges
            how = aggregation if aggregation != "mlp" else "sum"
            merged = scatter(heads[source] * weights, target, dim_size=len(heads), reduce=how)
        else:
            merged = _WeightedSum.apply(heads, weights.squeeze(2), tensors.operator)
            if aggregation == "mean":
                merged = merged / tensors.operator.forward.crow_indices().diff()[:, None, None]
        if aggregation == "mlp":
            merged = self.mlp(merged)
        return merged


class _WeightedSum(torch.autograd.Function):
    """Sums over edges with learnt weights: a product of matrices for each head.

    The library would hold a message for every edge, head and column. On Pubmed that is a gigabyte
    for a wide layer, and several times as slow.
    """

    @staticmethod
    def forward(
        ctx: Any, heads: torch.Tensor, weights: torch.Tensor, pattern: SparseMatrix
    ) -> torch.Tensor:
        ctx.save_for_backward(heads, weights)
        ctx.pattern = pattern
        return _each_group(weights, pattern, heads, transposed=False)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        heads, weights = ctx.saved_tensors
        of_heads = _each_group(weights, ctx.pattern, gradient, transposed=True)
        of_weights = None
        if ctx.needs_input_grad[1]:
            source, target = ctx.pattern.edge_index()
            of_weights = torch.stack(
                [
                    (gradient[:, head].index_select(0, target) * heads[:, head][source]).sum(dim=1)
                    for head in range(weights.shape[1])
                ],
                dim=1,
            )
        return of_heads, of_weights, None


def _each_group(
    weights: torch.Tensor, pattern: SparseMatrix, heads: torch.Tensor, transposed: bool
) -> torch.Tensor:
    """Multiply every head by the matrix of its weights; heads that share weights go together."""
    groups = heads.reshape(len(heads), weights.shape[1], -1)
    products = []
    for weight, columns in zip(weights.T, groups.unbind(dim=1), strict=True):
        matrix = pattern.reweighted(weight / pattern.values)
        products.append((matrix.transpose if transposed else matrix) @ columns)
    return torch.stack(products, dim=1).reshape(heads.shape)


def _vectors(*shape: int) -> nn.Parameter:
    vectors = nn.Parameter(torch.empty(shape))
    glorot(vectors)
    return vectors


def _activate(name: str, x: torch.Tensor) -> torch.Tensor:
    if name == "linear":
        return x
    if name in ("sigmoid", "tanh"):
        activated: torch.Tensor = getattr(torch, name)(x)
    else:
        activated = getattr(F, name)(x)
    return activated
