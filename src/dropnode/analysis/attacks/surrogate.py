"""The surrogate of Metattack, and how its loss after training depends on every edge.

The surrogate is a graph convolutional network of two layers without non-linearity or bias: its
logits are Â² X W₁ W₂. Metattack asks how the loss of the *trained* surrogate would change with an
edge. That derivative goes through every step of training. Automatic differentiation of it would
hold a dense N × N matrix per step. Three facts make that unnecessary:

1. Training sees the graph only through K = (Â² X) of the labelled nodes, a small matrix.
2. The gradient of W₁ is Kᵀ times a matrix of one row per labelled node, at every step. Training can
   therefore be followed in that small matrix alone, with the Gram matrix K Kᵀ in place of K. It is
   differentiated backwards by hand.
3. So the derivative by Â is a sum of two products of thin matrices: one with two columns per class,
   and one with two columns per labelled node, whose left side is sparse. Whoever needs the
   derivative multiplies them out, in blocks.

No approximation is made: the result agrees with that of automatic differentiation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from dropnode.analysis.attacks.factors import Factors
from dropnode.ops.sparse_matrix import Features, SparseMatrix

Tensor = torch.Tensor


@dataclass(frozen=True)
class Task:
    """What the surrogate learns, and the loss that the attack wants to raise.

    Attributes
    ----------
    features : tensor or SparseMatrix (N, F)
    train : tensor of int (n,)
        The labelled nodes.
    targets : tensor (N, C)
        One-hot labels: the given ones of the labelled nodes, guesses elsewhere. Training reads
        those of the labelled nodes alone.
    node_weights : tensor (N,)
        The weight of each node in the attack's loss.
    """

    features: Features
    train: Tensor
    targets: Tensor
    node_weights: Tensor

    def attack_gradient(self, logits: Tensor) -> Tensor:
        """Return the derivative of the attack's loss, a weighted cross-entropy, by the logits."""
        # In float64: what is left of a probability near 1 would be rounding.
        error = logits.double().softmax(dim=1) - self.targets
        return self.node_weights[:, None] * error.float()


@dataclass(frozen=True)
class Weights:
    """The weights of both layers, W₁ (F, h) and W₂ (h, C)."""

    first: Tensor
    second: Tensor


def initial_weights(
    features: int, hidden: int, classes: int, generator: np.random.Generator
) -> Weights:
    """Draw weights uniformly from ±1/√outputs, as early PyTorch code for GCN did.

    The attacked graphs that others use were made with these. With the smaller ones of Glorot and
    Bengio, attacks are weaker: a GCN keeps 53 to 56 % on Cora at 25 %, not 51 %.
    """

    def drawn(inputs: int, outputs: int) -> Tensor:
        limit = outputs**-0.5
        values = generator.uniform(-limit, limit, (inputs, outputs))
        return torch.from_numpy(values.astype(np.float32))

    return Weights(drawn(features, hidden), drawn(hidden, classes))


def logits_of(operator: SparseMatrix, features: Features, weights: Weights) -> Tensor:
    """Return the logits of all nodes, Â² X W₁ W₂."""
    return (operator @ (operator @ (features @ weights.first))) @ weights.second


def trained(
    operator: SparseMatrix, task: Task, start: Weights, steps: int, rate: float, momentum: float
) -> Weights:
    """Return the weights after training by gradient descent with momentum."""
    inputs = _inputs(operator, task)
    run = _Training(inputs, task.targets[task.train], start, steps, rate, momentum)
    return run.weights()


def unrolled(
    inputs: Tensor, targets: Tensor, start: Weights, steps: int, rate: float, momentum: float
) -> Weights:
    """Return the weights after the same training, as a function that autograd can differentiate.

    ``inputs`` is K (n, F). For callers that have gradients of their own before and after training.
    """
    weights = [start.first, start.second]
    velocities = [torch.zeros_like(each) for each in weights]
    for _ in range(steps):
        first, second = weights
        projection = inputs @ first
        error = ((projection @ second).softmax(dim=1) - targets) / len(targets)
        gradients = inputs.T @ (error @ second.T), projection.T @ error
        velocities = [
            momentum * velocity + gradient
            for velocity, gradient in zip(velocities, gradients, strict=True)
        ]
        weights = [
            each - rate * velocity for each, velocity in zip(weights, velocities, strict=True)
        ]
    return Weights(*weights)


def exact_gradient(
    operator: SparseMatrix, task: Task, start: Weights, steps: int, rate: float, momentum: float
) -> Factors:
    """Return how the attack's loss after training depends on Â: G + Gᵀ for G = ∂loss/∂Â.

    Parameters
    ----------
    operator : SparseMatrix
        Â.
    task : Task
    start : Weights
        The weights before training.
    steps, rate, momentum
        Training is gradient descent with momentum on the mean cross-entropy of labelled nodes.
    """
    inputs = _inputs(operator, task)
    run = _Training(inputs, task.targets[task.train], start, steps, rate, momentum)
    last = run.weights()

    hidden = task.features @ last.first
    smoothed = operator @ (operator @ hidden)
    gradient = task.attack_gradient(smoothed @ last.second)
    one_hop = operator @ gradient
    by_first = transposed(task.features) @ ((operator @ one_hop) @ last.second.T)
    by_second = smoothed.T @ gradient

    # Backwards: by the last weights, by K, and from there by Â. The logits of all nodes depend on
    # Â directly, too; both parts have the form ∂loss/∂(Â²X) Xᵀ = J, and ∂loss/∂Â = J Â + Â J.
    rows = task.features @ run.backward(by_first, by_second)
    scores = hidden @ last.second
    matrix, train = operator.to_scipy(), task.train.numpy()
    unit = sp.eye_array(len(task.targets), format="csr", dtype=np.float32)[:, train]
    return Factors(
        torch.cat([gradient, one_hop], dim=1),
        torch.cat([operator @ scores, scores], dim=1),
        sp.hstack([unit, matrix[:, train]], format="csr"),
        torch.cat([operator @ rows, rows], dim=1),
    )


def approximate_gradient(
    operator: SparseMatrix, task: Task, start: Weights, steps: int, rate: float
) -> Factors:
    """Return the first-order approximation of :func:`exact_gradient`.

    At every step of training, by Adam, the weights count as constants in the derivative of the
    attack's loss; the derivatives of all steps are summed.
    """
    gradients, scores = [], []
    for weights in _adam(operator, task, start, steps, rate):
        hidden = task.features @ weights.first
        logits = (operator @ (operator @ hidden)) @ weights.second
        gradients.append(task.attack_gradient(logits))
        scores.append(hidden @ weights.second)
    by_logits, by_features = torch.cat(gradients, dim=1), torch.cat(scores, dim=1)
    nothing = sp.csr_array((len(task.targets), 0), dtype=np.float32)
    return Factors(
        torch.cat([by_logits, operator @ by_logits], dim=1),
        torch.cat([operator @ by_features, by_features], dim=1),
        nothing,
        torch.zeros(nothing.shape),
    )


class _Training:
    """Gradient descent with momentum, followed in one row per labelled node.

    W₁ is always ``start.first + Kᵀ A``. With P = K W₁ and the Gram matrix K Kᵀ, every step needs
    only A, P and W₂. In float64: these matrices are small, and a hundred steps are many.
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        start: Weights,
        steps: int,
        rate: float,
        momentum: float,
    ) -> None:
        self.inputs, self.start = inputs, start
        self.rate, self.momentum = rate, momentum
        wide = inputs.double()
        self.gram = wide.T @ wide
        self.first_projection = wide.T @ start.first.double()
        self.shares = targets.double() / len(targets)
        self.path: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]] = []
        self._run(steps)

    def _run(self, steps: int) -> None:
        coefficients = torch.zeros_like(self.first_projection)
        second = self.start.second.double()
        velocities = torch.zeros_like(coefficients), torch.zeros_like(second)
        projection = self.first_projection
        for _ in range(steps):
            probabilities = (projection @ second).softmax(dim=1)
            error = probabilities / len(probabilities) - self.shares
            self.path.append((coefficients, projection, second, probabilities, error))
            velocities = (
                self.momentum * velocities[0] + error @ second.T,
                self.momentum * velocities[1] + projection.T @ error,
            )
            coefficients = coefficients - self.rate * velocities[0]
            second = second - self.rate * velocities[1]
            projection = self.first_projection + self.gram @ coefficients
        self.coefficients, self.second = coefficients, second

    def weights(self) -> Weights:
        """Return the trained weights."""
        first = self.start.first + self.inputs @ self.coefficients.float()
        return Weights(first, self.second.float())

    def backward(self, by_first: Tensor, by_second: Tensor) -> Tensor:
        """Return the derivative by Kᵀ, given those by the trained weights.

        Every line undoes one of :meth:`_run`, in the opposite order.
        """
        # A is the only route from a step to W₁, and K enters once more where A becomes W₁.
        by_coefficients = self.inputs.double().T @ by_first.double()
        by_second = by_second.double()
        by_velocities = torch.zeros_like(by_coefficients), torch.zeros_like(by_second)
        projections, coefficients = [], []
        by_start = torch.zeros_like(by_coefficients)
        for step_coefficients, projection, second, probabilities, error in reversed(self.path):
            by_velocities = (
                by_velocities[0] - self.rate * by_coefficients,
                by_velocities[1] - self.rate * by_second,
            )
            by_error = by_velocities[0] @ second + projection @ by_velocities[1]
            centred = by_error - (by_error * probabilities).sum(dim=1, keepdim=True)
            by_logits = probabilities * centred / len(probabilities)
            by_projection = error @ by_velocities[1].T + by_logits @ second.T
            by_second = by_second + by_velocities[0].T @ error + projection.T @ by_logits
            by_coefficients = by_coefficients + self.gram @ by_projection
            by_start += by_projection
            projections.append(by_projection)
            coefficients.append(step_coefficients)
            by_velocities = (
                self.momentum * by_velocities[0],
                self.momentum * by_velocities[1],
            )
        by_gram = torch.cat(projections, dim=1) @ torch.cat(coefficients, dim=1).T
        return (
            self.inputs @ (by_gram + by_gram.T).float()
            + self.start.first @ by_start.T.float()
            + by_first @ self.coefficients.T.float()
        )


def _adam(
    operator: SparseMatrix, task: Task, start: Weights, steps: int, rate: float
) -> Iterator[Weights]:
    """Yield the weights before each step of Adam on the loss of the labelled nodes."""
    inputs = _inputs(operator, task)
    targets = task.targets[task.train]
    parameters = [start.first.clone(), start.second.clone()]
    moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in parameters]
    for step in range(1, steps + 1):
        first, second = parameters
        yield Weights(first, second)
        projection = inputs.T @ first
        error = ((projection @ second).softmax(dim=1) - targets) / len(targets)
        gradients = inputs @ (error @ second.T), projection.T @ error
        moments = [
            (0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2)
            for (mean, square), gradient in zip(moments, gradients, strict=True)
        ]
        parameters = [
            each - rate * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
            for each, (mean, square) in zip(parameters, moments, strict=True)
        ]


def _inputs(operator: SparseMatrix, task: Task) -> Tensor:
    """Return Kᵀ (F, n)."""
    matrix = operator.to_scipy()
    reached = matrix[task.train.numpy()] @ matrix
    if isinstance(task.features, SparseMatrix):
        inputs = (reached @ task.features.to_scipy()).toarray()
    else:
        inputs = reached @ task.features.numpy()
    return torch.from_numpy(np.ascontiguousarray(inputs.T))


def transposed(features: Features) -> Features:
    """Return Xᵀ."""
    return features.transpose if isinstance(features, SparseMatrix) else features.T
