"""The first layer in kernels, for heads whose other layers use autograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from dropnode.methods.grand.fused.propagated import Propagated
from dropnode.methods.grand.heads import Head
from dropnode.ops.perturb import Augmentation
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import SparseMatrix


class First:
    """The first layer of every view: propagated features, norm, dropout and first linear map.

    Parameters
    ----------
    head : Head
        A head on the CPU that does not commute with propagation.
    features : SparseMatrix
    operator : SparseMatrix
        Â of the unperturbed graph.
    order : int
    views : int
        The number of augmentations of each step.
    """

    def __init__(
        self, head: Head, features: SparseMatrix, operator: SparseMatrix, order: int, views: int
    ) -> None:
        self.layer = Propagated(head, features, operator, order, views)
        self.hidden = head.weight1.shape[1]
        self.calls = 0
        first = ("weight1", "norm1.weight", "norm1.bias")
        self.parameters = {n: p for n, p in head.named_parameters() if n in first}

    def __call__(self, drawn: Sequence[Augmentation], streams: Sequence[Stream]) -> torch.Tensor:
        """Return the output (nodes, views, hidden); backward() must run before the next call."""
        self.calls += 1
        product: torch.Tensor = _Product.apply(self, drawn, streams, *self.parameters.values())
        return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        first: First,
        drawn: Sequence[Augmentation],
        streams: Sequence[Stream],
        *parameters: torch.Tensor,
    ) -> torch.Tensor:
        ctx.first, ctx.call = first, first.calls
        product, _ = first.layer.forward(drawn, streams)
        wide = torch.from_numpy(product).view(len(product), len(drawn), -1)
        # A copy, because the next step overwrites the memory of the layer.
        return wide[:, :, : first.hidden].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        first: First = ctx.first
        if ctx.call != first.calls:
            raise RuntimeError(
                "the views of this loss have been overwritten by those of a later one; call "
                "backward() before computing the next loss"
            )
        missing = first.layer.wide - first.hidden
        wide = torch.nn.functional.pad(gradient, (0, missing)).flatten(1).contiguous()
        found = first.layer.backward(wide.numpy())
        return None, None, None, *(found[name] for name in first.parameters)
