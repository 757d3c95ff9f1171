"""The walk that suits a graph, chosen by the training labels.

How much a node's own features should weigh against those of its neighbourhood depends on how noisy
features are and how often neighbours share a class. With noisy features and many such neighbours,
the own features spoil an average over hundreds; with few such neighbours, they are the best there
is. Which walk is right makes a larger difference than anything that training does afterwards.

A ridge regression of the labels on ΠX has leave-one-out errors in closed form. The walk of the
least error is chosen. Labels of validation nodes are not read.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from dropnode.methods.tensors import GraphTensors
from dropnode.ops.push import walk_power_rows, walk_shares

MOST_ROWS = 500
"""How many training nodes are looked at: the cost grows with their cube."""

RIDGES = 10.0 ** np.arange(-3.0, 2.5)
"""Penalties, as multiples of the mean squared length of a row."""


def fitted_shares(
    tensors: GraphTensors,
    rows: np.ndarray,
    labels: np.ndarray,
    order: int,
    teleport: float,
    normalised: Callable[[torch.Tensor], torch.Tensor],
) -> np.ndarray:
    """Return the weights of the powers of P with the least leave-one-out error.

    Parameters
    ----------
    tensors : GraphTensors
    rows, labels : ndarray
        The training nodes and their classes.
    order : int
        The highest power that is considered.
    teleport : float
        That of the walk ``"ppr"``.
    normalised : callable
        What happens to rows of ΠX before the classifier.
    """
    # Evenly spaced, since the order of training nodes may be that of their classes.
    spaced = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(np.int64))
    chosen = torch.from_numpy(rows[spaced]).to(tensors.device)
    powers = walk_power_rows(tensors.operator, tensors.degrees, tensors.features, chosen, order)
    targets = np.eye(labels.max() + 1)[labels[spaced]]
    found = [
        (leave_one_out(normalised(torch.tensordot(weights, powers, 1)).cpu().numpy(), targets), n)
        for n, shares in enumerate(candidates(order, teleport))
        for weights in [torch.from_numpy(shares.astype(np.float32)).to(powers.device)]
    ]
    return candidates(order, teleport)[min(found)[1]]


def candidates(order: int, teleport: float) -> list[np.ndarray]:
    """Return the weights to choose from: each power, averages of the first ones, and ppr.

    Examples
    --------
    >>> [shares.round(2).tolist() for shares in candidates(1, 0.2)]
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.56, 0.44]]
    """
    found = [walk_shares("single", power) for power in range(order + 1)]
    found += [walk_shares("average", power) for power in range(1, order + 1)]
    found.append(walk_shares("ppr", order, teleport))
    return [np.pad(shares, (0, order + 1 - len(shares))) for shares in found]


def leave_one_out(x: np.ndarray, targets: np.ndarray) -> float:
    """Return the mean squared error of ridge regression on rows that it was not fitted to.

    The penalty is the best of :data:`RIDGES`. The mean of the other rows and targets is taken off,
    as an intercept does.
    """
    count = len(x)
    centred = x.astype(np.float64) - x.mean(axis=0, dtype=np.float64)
    values, vectors = np.linalg.eigh(centred @ centred.T)
    values = np.maximum(values, 0.0)
    scale = values.sum() / count or 1.0
    rotated = vectors.T @ (targets - targets.mean(axis=0))
    errors = []
    for ridge in RIDGES * scale:
        left = ridge / (values + ridge)
        # The residuals of all rows, and the share of its own target in the prediction of each.
        residuals = vectors @ (left[:, None] * rotated)
        leverage = 1.0 - np.square(vectors) @ left + 1.0 / count
        errors.append(np.square(residuals / (1.0 - leverage)[:, None]).sum(axis=1).mean())
    return float(min(errors))
