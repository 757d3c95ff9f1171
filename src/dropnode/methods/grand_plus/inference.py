"""Exact logits: predictions and validation use all of Π, not the truncated rows of training.

Propagation has no weights, so the first linear map may come before it: ΠXW = Π(XW). With one layer
and no node norm the logits themselves are propagated, as many columns as there are classes. A node
norm needs the length of every row of ΠX; then features are propagated, a block of columns at a
time, and neither path ever holds an (n, features) matrix.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from dropnode.methods.grand_plus.head import Head
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.propagation import feature_columns, together
from dropnode.ops.push import walked, walked_rows
from dropnode.ops.sparse_matrix import compact


def exact_logits(head: Head, tensors: GraphTensors, shares: np.ndarray) -> torch.Tensor:
    """Return the logits of every node of a graph."""
    weight, offset = head.folded(0)
    if head.node_norm or tensors.features.shape[1] < weight.shape[1]:
        return head.rest(_features_first(head, tensors, shares, weight) + offset)
    if head.layers == 1:
        product = tensors.features @ weight
        return walked(tensors.operator, tensors.degrees, product, shares) + offset
    weight2, logits = head.folded(1)
    width = together(tensors.num_nodes)
    for first in range(0, weight.shape[1], width):
        columns = slice(first, first + width)
        product = tensors.features @ weight[:, columns]
        part = walked(tensors.operator, tensors.degrees, product, shares) + offset[columns]
        logits = logits + torch.relu(part) @ weight2[columns]
    return logits


def _features_first(
    head: Head, tensors: GraphTensors, shares: np.ndarray, weight: torch.Tensor
) -> torch.Tensor:
    """Return ΠXW, with the rows of ΠX divided by their length if the head does that."""
    product = torch.zeros(tensors.num_nodes, weight.shape[1], device=weight.device)
    squares = torch.zeros(tensors.num_nodes, 1, device=weight.device)
    width = together(tensors.num_nodes)
    for first in range(0, tensors.features.shape[1], width):
        block = feature_columns(tensors.features, first, width)
        part = walked(tensors.operator, tensors.degrees, block, shares)
        product += part @ weight[first : first + width]
        squares += part.square().sum(dim=1, keepdim=True)
    return product / squares.sqrt().clamp(min=1e-12) if head.node_norm else product


def exact_rows(tensors: GraphTensors, rows: np.ndarray, shares: np.ndarray) -> torch.Tensor:
    """Return some rows of ΠX."""
    wanted = torch.from_numpy(rows.copy()).to(tensors.device)
    return walked_rows(tensors.operator, tensors.degrees, tensors.features, wanted, shares)


def watch_rows(
    head: Head, tensors: GraphTensors, rows: np.ndarray, shares: np.ndarray
) -> Callable[[], torch.Tensor]:
    """Return a function that returns the current logits of some nodes; it keeps their ΠX."""
    return watch_propagated(head, exact_rows(tensors, rows, shares))


def watch_propagated(head: Head, rows: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return a function that returns the current logits of nodes, given their rows of ΠX."""
    propagated = compact(head.normalised(rows))

    def logits() -> torch.Tensor:
        head.eval()
        with torch.no_grad():
            weight, offset = head.folded(0)
            return head.rest(propagated @ weight + offset)

    return logits
