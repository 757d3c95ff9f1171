"""The agreement of views in GRAND+: as GRAND's, but of nodes with a confident prediction only."""

from __future__ import annotations

import torch

from dropnode.engines.team import ALONE, Team
from dropnode.methods.grand.objective import sharpen


def agreement_loss(
    log_probabilities: torch.Tensor,
    temperature: float,
    distance: str,
    confidence: float,
    team: Team = ALONE,
) -> torch.Tensor:
    """Return how far views are from their sharpened average, over nodes with a confident average.

    Parameters
    ----------
    log_probabilities : torch.Tensor (nodes, views, classes)
    temperature : float
    distance : str
        ``"squared"``, the sum of squares; or ``"kl"``, the cross-entropy, whose gradient is that
        of the Kullback-Leibler divergence.
    confidence : float
        A node counts if a class has a larger average probability than this. If none does, the loss
        is zero.
    team : Team
        Its members have other nodes of the same batch, and their losses add up to that of the
        batch.
    """
    probabilities = log_probabilities.exp()
    with torch.no_grad():
        average = probabilities.mean(dim=1)
        target = sharpen(average, temperature)[:, None]
        sure = (average.max(dim=1).values > confidence).to(average.dtype)
    if distance == "squared":
        distances = (probabilities - target).pow(2).sum(dim=2)
    else:
        distances = -(target * log_probabilities).sum(dim=2)
    return distances.mean(dim=1) @ sure / team.total(sure.sum()).clamp(min=1.0)


def least_confidence(multiple: float, classes: int) -> float:
    """Return the least probability of a confident prediction: a multiple of that by chance.

    It is at most half-way between chance and certainty: with two classes, twice the chance would
    be certainty, which no prediction exceeds.

    Examples
    --------
    >>> least_confidence(2.0, 4), least_confidence(2.0, 2)
    (0.5, 0.75)
    """
    return min(multiple / classes, (1.0 + 1.0 / classes) / 2.0)
