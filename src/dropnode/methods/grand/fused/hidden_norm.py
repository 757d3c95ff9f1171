"""Batch norm computed by kernels."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from dropnode.methods.grand.fused.common import Gradients, pad
from dropnode.methods.grand.fused.kernels import batch_norm, rows


class HiddenNorm:
    """Batch norm of the hidden layer, with separate statistics for each view."""

    def __init__(
        self, norm: nn.BatchNorm1d, product: np.ndarray, bias: np.ndarray, wide: int
    ) -> None:
        self.norm, self.wide = norm, wide
        self.nodes, width = product.shape
        self.mean, variance = batch_norm.activation_statistics(product, bias)
        self.inverse = 1.0 / np.sqrt(variance + norm.eps)
        views_count, hidden = width // wide, norm.num_features
        for view in range(views_count):
            part = slice(view * wide, view * wide + hidden)
            mean, variances = (torch.from_numpy(x[part]).float() for x in (self.mean, variance))
            update_running(norm, mean, variances, self.nodes)
        gain = np.tile(pad(norm.weight.detach().numpy()[None], wide), views_count)[0]
        shift = np.tile(pad(norm.bias.detach().numpy()[None], wide), views_count)[0]
        factor = gain * self.inverse
        self.scale = factor.astype(np.float32)[None]
        self.shift = (shift - self.mean * factor).astype(np.float32)[None]

    def backward(
        self,
        found: rows.Learnt,
        product: np.ndarray,
        bias: np.ndarray,
        out: np.ndarray,
        gradients: Gradients,
    ) -> np.ndarray:
        """Turn ``out`` into the gradient of the product, in place; return that of the bias."""
        plain = found.shift.astype(np.float64)
        weighted = self.inverse * (found.scale - self.mean * plain)
        hidden = self.norm.num_features
        for name, part in (("norm2.bias", plain), ("norm2.weight", weighted)):
            summed = part.reshape(-1, self.wide).sum(axis=0)[:hidden]
            gradients[name] = torch.from_numpy(summed.astype(np.float32))
        factor = self.scale.astype(np.float64)[0]
        slope = -factor * self.inverse * weighted / self.nodes
        offset = -factor * plain / self.nodes - slope * self.mean
        slopes = slope.astype(np.float32)[None]
        offsets = offset.astype(np.float32)[None]
        return batch_norm.through_norm(product, bias, self.scale, slopes, offsets, out)


def update_running(
    norm: nn.BatchNorm1d, mean: torch.Tensor, variance: torch.Tensor, nodes: int
) -> None:
    """Update a batch norm's running statistics as torch does, with the unbiased variance."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance * (nodes / max(nodes - 1, 1)), norm.momentum)
    norm.num_batches_tracked += 1
