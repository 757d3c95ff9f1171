"""Both losses against the equations, and against the mistakes other implementations have made."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oracles
from dropnode.methods.grand.objective import consistency_loss, sharpen, supervised_loss
from rounding import Rounded, lost

NODES, VIEWS, CLASSES = 11, 3, 4
ROWS = np.array([0, 3, 4, 9])
LABELS = np.array([2, 0, 3, 3])


@pytest.fixture(scope="module")
def logits() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return 2.0 * torch.randn(NODES, VIEWS, CLASSES, generator=generator)


@pytest.fixture(scope="module")
def views(logits: torch.Tensor) -> list[oracles.Array]:
    return [oracles.softmax(logits[:, s].double().numpy()) for s in range(VIEWS)]


@pytest.fixture(scope="module")
def rounded(logits: torch.Tensor) -> list[Rounded]:
    """The same, with a bound on what float32 may be off."""
    return [oracles.softmax(Rounded(logits[:, s].double().numpy())) for s in range(VIEWS)]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("weights", [None, [1.0, 0.5, 3.0, 0.0]])
def test_supervised_loss(
    logits: torch.Tensor, rounded: list[Rounded], reduction: str, weights: list[float] | None
) -> None:
    result = supervised_loss(
        logits.log_softmax(-1)[ROWS],
        torch.from_numpy(LABELS),
        reduction,
        None if weights is None else torch.tensor(weights)[LABELS],
    )
    array = None if weights is None else np.array(weights)
    oracles.supervised(rounded, ROWS, LABELS, reduction, array).assert_near(result)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("temperature", [0.1, 0.2, 0.3, 0.5, 1.0])
def test_consistency_loss(
    logits: torch.Tensor, rounded: list[Rounded], temperature: float, reduction: str
) -> None:
    result = consistency_loss(logits.log_softmax(-1), temperature, reduction)
    target = oracles.guessed(rounded, temperature)
    oracles.consistency(rounded, target, reduction).assert_near(result)


@pytest.mark.parametrize("temperature", [0.2, 0.3])
def test_the_mistakes_of_other_implementations_would_be_seen(
    logits: torch.Tensor, views: list[oracles.Array], temperature: float
) -> None:
    """The inputs above tell the right loss from each loss that has been shipped by mistake."""
    right = consistency_loss(logits.log_softmax(-1), temperature, "mean").item()
    target = oracles.guessed(views, temperature)
    unlabelled = np.setdiff1d(np.arange(NODES), ROWS)
    error = np.abs(np.stack(views) - target)
    raw = [np.exp(view) for view in logits.double().numpy().transpose(1, 0, 2)]
    mistakes = {
        "1/T as the exponent of the error": (error ** (1 / temperature)).sum() / VIEWS / NODES,
        "logits exponentiated": oracles.consistency(raw, oracles.guessed(raw, temperature), "mean"),
        "labelled nodes only": oracles.consistency(
            [view[ROWS] for view in views], target[ROWS], "mean"
        ),
        "unlabelled nodes only": oracles.consistency(
            [view[unlabelled] for view in views], target[unlabelled], "mean"
        ),
        "T stuck at a half": oracles.consistency(views, oracles.guessed(views, 0.5), "mean"),
        "no sharpening": oracles.consistency(views, np.mean(views, axis=0), "mean"),
        "T for 1/T": oracles.consistency(views, oracles.guessed(views, 1 / temperature), "mean"),
        "mean over classes": right / CLASSES,
        "sum over augmentations": right * VIEWS,
    }
    for mistake, wrong in mistakes.items():
        assert abs(wrong - right) > 0.02 * right, mistake


def test_the_guess_is_a_constant(logits: torch.Tensor, views: list[oracles.Array]) -> None:
    """The gradient is that of a fixed target; a path through the average would show."""
    leaf = logits.double().clone().requires_grad_()
    consistency_loss(leaf.log_softmax(-1), 0.3, "sum").backward()
    target = torch.from_numpy(oracles.guessed(views, 0.3))
    for moves in (False, True):
        other = logits.double().clone().requires_grad_()
        z = other.softmax(-1)
        guess = z.mean(1) ** (1 / 0.3)
        guess = guess / guess.sum(-1, keepdim=True) if moves else target
        ((z - guess[:, None]) ** 2).sum().div(VIEWS).backward()
        assert leaf.grad is not None
        assert other.grad is not None
        # In float64, whose roundings are far smaller than this.
        assert torch.allclose(leaf.grad, other.grad, rtol=1e-10, atol=1e-12) is not moves


def test_every_node_pulls(logits: torch.Tensor) -> None:
    leaf = logits.clone().requires_grad_()
    consistency_loss(leaf.log_softmax(-1), 0.3, "mean").backward()
    assert leaf.grad is not None
    assert (leaf.grad.abs().sum(dim=(1, 2)) > 0).all()


@pytest.mark.parametrize("temperature", [0.1, 0.2, 0.3, 0.5, 0.999, 1.0])
def test_sharpening(temperature: float) -> None:
    generator = np.random.default_rng(1)
    probabilities = generator.dirichlet(np.ones(5), 200)
    result = sharpen(torch.from_numpy(probabilities), temperature).numpy()
    # In float64. Logarithms down to -20, divided by the temperature, round to 200 units.
    expected = oracles.sharpened(probabilities, temperature)
    np.testing.assert_allclose(result, expected, rtol=1000 * 2.0**-53)


def test_sharpening_survives_probabilities_that_vanish() -> None:
    probabilities = torch.tensor([[1.0, 0.0, 0.0], [1e-30, 2e-30, 1e-38], [0.5, 0.5, 0.0]])
    result = sharpen(probabilities, 0.1)
    assert torch.isfinite(result).all()
    expected = torch.tensor([[1.0, 0, 0], [2**-10, 1, 0], [0.5, 0.5, 0]])
    # The logarithm of 1e-30 is -69; times ten it is rounded, as it was itself.
    torch.testing.assert_close(
        result, expected / expected.sum(1, keepdim=True), rtol=lost(3) * 690, atol=1e-30
    )


def test_certain_predictions_have_a_finite_gradient() -> None:
    leaf = (300.0 * torch.eye(4)[:, None, :].repeat(1, 3, 1)).requires_grad_()
    loss = consistency_loss(leaf.log_softmax(-1), 0.001, "mean")
    loss.backward()
    assert loss.item() == 0.0
    assert leaf.grad is not None
    assert torch.isfinite(leaf.grad).all()


def test_views_that_agree_are_still_sharpened() -> None:
    """With one view, or equal ones, what remains is entropy minimisation."""
    logits = torch.tensor([[0.3, 0.0]])
    one = consistency_loss(logits[:, None].log_softmax(-1), 0.5, "mean")
    three = consistency_loss(logits[:, None].repeat(1, 3, 1).log_softmax(-1), 0.5, "mean")
    z = oracles.softmax(Rounded(logits.double().numpy()))
    for loss in (one, three):
        oracles.consistency([z], oracles.sharpened(z, 0.5), "mean").assert_near(loss)
