"""The agreement of views against the same sums in NumPy, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dropnode.methods.grand_plus.agreement import agreement_loss, least_confidence


def by_definition(logs: np.ndarray, temperature: float, distance: str, least: float) -> float:
    """Node by node, view by view."""
    summands = []
    for node in np.exp(logs):
        average = node.mean(axis=0)
        if average.max() <= least:
            continue
        target = average ** (1.0 / temperature)
        target /= target.sum()
        for view in node:
            squared = np.square(view - target).sum()
            summands.append(squared if distance == "squared" else -(target * np.log(view)).sum())
    return float(np.mean(summands)) if summands else 0.0


@pytest.mark.parametrize("distance", ["squared", "kl"])
@pytest.mark.parametrize("least", [0.0, 0.5, 0.6, 1.0])
@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_the_loss_is_a_mean_over_confident_nodes(
    distance: str, least: float, temperature: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 2.0 * torch.randn(20, 3, 4, generator=generator, dtype=torch.float64)
    logs = logits.log_softmax(dim=2).requires_grad_()
    loss = agreement_loss(logs, temperature, distance, least)
    expected = by_definition(logs.detach().numpy(), temperature, distance, least)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    loss.backward()
    assert logs.grad is not None
    sure = logs.detach().exp().mean(dim=1).max(dim=1).values > least
    # Nodes that do not count have no gradient, and the others have one.
    assert torch.equal(logs.grad.abs().sum(dim=(1, 2)) > 0, sure)


def test_no_gradient_passes_through_the_average() -> None:
    """With the average as a constant, the gradient of squares is twice the distance to it."""
    logits = torch.tensor([[[1.0, 0.0], [0.0, 0.5]]], dtype=torch.float64)
    probabilities = logits.softmax(dim=2).requires_grad_()
    agreement_loss(probabilities.log(), 1.0, "squared", 0.0).backward()
    average = probabilities.detach().mean(dim=1, keepdim=True)
    assert probabilities.grad is not None
    torch.testing.assert_close(probabilities.grad, probabilities.detach() - average)


@pytest.mark.parametrize("classes", [2, 3, 7, 100])
def test_the_least_confidence_can_be_exceeded(classes: int) -> None:
    assert 1.0 / classes < least_confidence(2.0, classes) <= 0.75
    if classes > 2:
        assert least_confidence(2.0, classes) == pytest.approx(2.0 / classes)
    assert least_confidence(0.0, classes) == 0.0
