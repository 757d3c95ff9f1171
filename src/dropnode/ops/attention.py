"""Graph attention with gradients, in kernels for the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from dropnode.ops.kernels import attention as kernels
from dropnode.ops.propagation import SparseMatrix


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
        _, heads, width = x.shape
        lanes = kernels.lanes_for(width)
        starts, columns, _ = operator.csr
        rows, vectors = _wide(x, lanes), _wide(torch.cat([source, target]), lanes)
        scored = kernels.scores((starts, columns), rows, vectors, heads, lanes)
        kept = _kept(len(columns), heads, dropout)
        options = kept, 1.0 / (1.0 - dropout), slope, heads, lanes
        out, normalisers = kernels.attend((starts, columns), rows, scored, *options)
        wide = torch.from_numpy(out)
        ctx.save_for_backward(wide)
        ctx.rows, ctx.vectors, ctx.scored, ctx.normalisers = rows, vectors, scored, normalisers
        ctx.operator, ctx.options, ctx.shape = operator, options, x.shape
        return wide.view(len(out), heads, -1)[:, :, :width]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        _, heads, width = ctx.shape
        lanes = ctx.options[-1]
        (out,) = ctx.saved_tensors
        starts, columns, _ = ctx.operator.csr
        transposed = tuple(part.numpy() for part in ctx.operator.by_column)
        of_x, of_vectors = kernels.gradients(
            (starts, columns),
            transposed,
            ctx.rows,
            ctx.vectors,
            ctx.scored,
            ctx.normalisers,
            out.numpy(),
            _wide(gradient, lanes),
            *ctx.options,
        )
        narrow = torch.from_numpy(of_x).view(len(of_x), heads, -1)[:, :, :width]
        source, target = torch.from_numpy(of_vectors).view(2, 1, heads, -1)[..., :width]
        return narrow, source, target, None, None, None


def _kept(edges: int, heads: int, dropout: float) -> np.ndarray:
    """Draw which weights are kept: the entries that ``F.dropout`` of a matrix would leave."""
    if dropout == 0:
        return np.empty((0, heads), dtype=np.bool_)
    return torch.empty(edges, heads, dtype=torch.bool).bernoulli_(1.0 - dropout).numpy()


def _wide(x: torch.Tensor, lanes: int) -> np.ndarray:
    """Return a matrix with every head padded to whole vectors, copied only if necessary."""
    missing = -x.shape[-1] % lanes
    wide = F.pad(x.detach(), (0, missing)) if missing else x.detach()
    return wide.reshape(len(x), -1).contiguous().numpy()
