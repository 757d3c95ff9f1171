"""The objective of GRAND: a supervised loss, and the consistency of the augmentations.

Losses take log-probabilities of shape (nodes, augmentations, classes). ``reduction`` is ``"sum"``
over nodes, as in the paper's Eq. 1 and 3, or ``"mean"``, as in its released code. Both average over
the S augmentations.

On a CPU, training with a perceptron head rarely calls the losses of this module. Kernels compute
the same objective together with its gradients (``methods/grand/fused/``: ``step.py`` calls
``kernels/rows.py``), as a sum over nodes and views with the weights of :func:`summand_weights`.
``tests/methods/grand/fused/test_step.py`` compares the two.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from dropnode.methods.grand.config import GrandConfig


def supervised_loss(
    log_probabilities: torch.Tensor,
    targets: torch.Tensor,
    reduction: str,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the cross-entropy of the labelled nodes, averaged over augmentations (Eq. 1).

    ``weights`` are those of the nodes; a mean is divided by their sum.
    """
    augmentations = log_probabilities.shape[1]
    flat = log_probabilities.flatten(0, 1)
    repeated = targets.repeat_interleave(augmentations)
    if weights is None:
        loss = F.nll_loss(flat, repeated, reduction=reduction)
        return loss / augmentations if reduction == "sum" else loss
    losses = F.nll_loss(flat, repeated, reduction="none").view(-1, augmentations)
    total = (losses.mean(dim=1) * weights).sum()
    return total / weights.sum() if reduction == "mean" else total


def sharpen(probabilities: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return probabilities to the power 1/T, normalised (Eq. 2).

    Computed with logarithms: a probability of 1e-20 to the power 1/0.1 underflows, but its
    logarithm times 10 does not.
    """
    return torch.softmax(probabilities.log() / temperature, dim=-1)


def consistency_loss(
    log_probabilities: torch.Tensor, temperature: float, reduction: str
) -> torch.Tensor:
    """Return the squared distance of every augmentation to the sharpened average (Eq. 3).

    No gradient passes through the average: the released code detaches it, and the paper calls it a
    guess of the label.
    """
    probabilities = log_probabilities.exp()
    with torch.no_grad():
        target = sharpen(probabilities.mean(dim=1), temperature)
    nodes, augmentations, _ = probabilities.shape
    distance = (probabilities - target[:, None]).pow(2).sum() / augmentations
    return distance / nodes if reduction == "mean" else distance


def summand_weights(
    nodes: int,
    train_rows: torch.Tensor,
    config: GrandConfig,
    weights: torch.Tensor | None = None,
) -> tuple[np.ndarray, float]:
    """Return weights with which both losses are plain sums over nodes and views.

    ``weights`` are those of the training nodes, if they differ.

    Returns
    -------
    ndarray of float32 (nodes,), float
        The weight of each node's cross-entropy in one view, which is zero outside the training set;
        and the weight of a node's squared distance to the sharpened average in one view.
    """
    if weights is None:
        weights = torch.ones(len(train_rows))
    per_node = 1.0
    if config.reduction == "mean":
        weights, per_node = weights / weights.sum(), 1.0 / nodes
    label_weights = np.zeros(nodes, dtype=np.float32)
    label_weights[train_rows.numpy()] = weights.numpy() / config.augmentations
    return label_weights, config.consistency_weight * per_node / config.augmentations
