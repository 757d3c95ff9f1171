"""Graph attention with gradients, in kernels for the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from dropnode.ops.bernoulli import fill
from dropnode.ops.kernels.attention import GROUP, Attention, Layout
from dropnode.ops.sparse_matrix import SparseMatrix


def attend(
    x: torch.Tensor,
    source: torch.Tensor,
    target: torch.Tensor,
    operator: SparseMatrix,
    slope: float,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Return what every node receives from its neighbours, by head (nodes, heads, width).

    Parameters
    ----------
    x : torch.Tensor (nodes, heads, width)
        What nodes send.
    source, target : torch.Tensor (1, heads, width)
        Their products with the rows of sender and receiver add up to the score of an edge.
    operator : SparseMatrix (nodes, nodes)
        The node of a row receives from the nodes of its stored columns, which include itself. The
        values do not matter.
    slope : float
        Of the leaky ReLU that scores pass.
    dropout : float
        The share of attention weights to drop, with a mask from torch's global generator.
    """
    received: torch.Tensor = _Attention.apply(x, source, target, operator, slope, dropout)
    return received


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        source: torch.Tensor,
        target: torch.Tensor,
        operator: SparseMatrix,
        slope: float,
        dropout: float,
    ) -> torch.Tensor:
        layout = Layout(*x.shape[1:])
        starts, senders, _ = operator.csr
        vectors = _wide(torch.cat([source, target]), layout)
        flags = _kept(len(senders), layout.heads, dropout)
        scale = 1.0 / (1.0 - dropout)
        ctx.work = Attention(
            starts, senders, _wide(x, layout), vectors, layout, slope, flags, scale
        )
        out = torch.from_numpy(ctx.work.forward())
        ctx.save_for_backward(out)
        ctx.operator, ctx.layout = operator, layout
        return _narrow(out, layout)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        layout: Layout = ctx.layout
        (out,) = ctx.saved_tensors
        starts, receivers, places = (part.numpy() for part in ctx.operator.by_column)
        of_rows, of_vectors = ctx.work.backward(
            (starts, receivers, places), out.numpy(), _wide(gradient, layout)
        )
        source, target = _narrow(torch.from_numpy(of_vectors), layout)[:, None]
        return _narrow(torch.from_numpy(of_rows), layout), source, target, None, None, None


def _kept(edges: int, heads: int, dropout: float) -> np.ndarray:
    """Draw which weights are kept: those that ``F.dropout`` of an (edges, heads) matrix leaves."""
    if dropout == 0:
        return np.empty((0, heads), dtype=np.bool_)
    flags = torch.empty(edges + GROUP, heads, dtype=torch.bool)
    fill(flags[:edges], 1.0 - dropout)
    return flags.numpy()


def _wide(x: torch.Tensor, layout: Layout) -> np.ndarray:
    """Return rows (nodes, heads, width) in the layout, copied only if necessary."""
    groups, parts, group, lanes = layout.shape
    missing = 0, parts * lanes - layout.width, 0, groups * group - layout.heads
    wide = F.pad(x.detach(), missing) if any(missing) else x.detach()
    if parts > 1:
        wide = wide.reshape(-1, groups, group, parts, lanes).transpose(2, 3)
    return wide.reshape(len(x), -1).contiguous().numpy()


def _narrow(wide: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return rows in the layout as (nodes, heads, width)."""
    groups, parts, group, lanes = layout.shape
    if parts > 1:
        wide = wide.view(-1, groups, parts, group, lanes).transpose(2, 3)
    heads = wide.reshape(len(wide), groups * group, parts * lanes)
    return heads[:, : layout.heads, : layout.width]
