"""What the package computes, written once more: dense, slow, in float64, straight from the paper.

Nothing here imports the package. Matrices are spelt out, powers are powers, and the gradient of a
training step is derived by hand; finite differences of the loss keep the derivation honest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = dict[str, Array]


UNIT = 2.0**-24
"""The relative error of one operation in float32."""


def assert_rounded(
    actual: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, operations: float
) -> None:
    """Equal up to so many roundings of sums whose terms have this magnitude together.

    It holds for any data and any order of summation, if ``operations`` is the length of the longest
    chain of operations on the way to a result.
    """
    excess = np.abs(actual - expected) - operations * UNIT * magnitude - 1e-37
    assert excess.max(initial=0.0) <= 0, (
        f"off by {np.abs(actual - expected).max()}, {excess.max()} more than rounding explains"
    )


def drift(*sums: float) -> float:
    """Return the relative error of a chain of sums of so many terms each, one after the other.

    Roundings go either way, so that n of them add up to √n rather than n (Higham and Mary 2019).
    The chance of more than six times as much is 3e-8, whatever the data. It is for long chains,
    where n roundings would hide any mistake.
    """
    return 6.0 * UNIT * float(np.sqrt(sum(sums)))


def normalised(adjacency: np.ndarray) -> Array:
    """Â = D̃^-½ (A + I) D̃^-½."""
    looped = adjacency.astype(np.float64) + np.eye(len(adjacency))
    degrees = looped.sum(axis=1)
    result = np.empty_like(looped)
    for i in range(len(looped)):
        for j in range(len(looped)):
            result[i, j] = looped[i, j] / np.sqrt(degrees[i] * degrees[j])
    return result


def mixed(operator: Array, order: int) -> Array:
    """Ā = 1/(K+1) Σ_k Âᵏ, as a matrix."""
    powers = [np.linalg.matrix_power(operator, k) for k in range(order + 1)]
    return np.sum(powers, axis=0) / (order + 1)


def row_normalised(features: Array) -> Array:
    """Every row divided by its sum; rows of zeros stay zero."""
    result = np.zeros_like(features, dtype=np.float64)
    for i, row in enumerate(features.astype(np.float64)):
        if row.sum() > 0:
            result[i] = row / row.sum()
    return result


def drop_nodes(features: Array, kept: np.ndarray) -> Array:
    """DropNode, unscaled: rows of dropped nodes become zero."""
    return np.stack([row if keep else 0.0 * row for row, keep in zip(features, kept, strict=True)])


def drop_stored(matrix: Array, kept: np.ndarray) -> Array:
    """Dropout or DropEdge, unscaled: one decision a non-zero entry, row by row."""
    result = np.zeros_like(matrix)
    for number, (i, j) in enumerate(zip(*np.nonzero(matrix), strict=True)):
        result[i, j] = matrix[i, j] if kept[number] else 0.0
    return result


def softmax(logits: Array) -> Array:
    """Probabilities over the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def sharpened(probabilities: Array, temperature: float) -> Array:
    """Eq. 2."""
    powered = probabilities ** (1.0 / temperature)
    return powered / powered.sum(axis=-1, keepdims=True)


def supervised(
    views: Sequence[Array],
    rows: np.ndarray,
    labels: np.ndarray,
    reduction: str,
    class_weights: Array | None = None,
) -> float:
    """Eq. 1; ``views`` holds one matrix of probabilities Z̃ an augmentation."""
    weights = np.ones(len(rows)) if class_weights is None else class_weights[labels]
    total = 0.0
    for view in views:
        for row, label, weight in zip(rows, labels, weights, strict=True):
            total -= weight * np.log(view[row, label])
    total /= len(views)
    return total / weights.sum() if reduction == "mean" else total


def guessed(views: Sequence[Array], temperature: float) -> Array:
    """The sharpened average of the views."""
    return sharpened(np.mean(views, axis=0), temperature)


def consistency(views: Sequence[Array], target: Array, reduction: str) -> float:
    """Eq. 3."""
    total = 0.0
    for view in views:
        for i in range(len(target)):
            total += np.sum((target[i] - view[i]) ** 2)
    total /= len(views)
    return total / len(target) if reduction == "mean" else total


@dataclass(frozen=True)
class View:
    """One augmentation with everything random already drawn, scales included."""

    features: Array
    operator: Array
    input_mask: Array | float = 1.0
    hidden_mask: Array | float = 1.0


@dataclass(frozen=True)
class Step:
    """One training step of GRAND with a two-layer head."""

    views: Sequence[View]
    order: int
    rows: np.ndarray
    labels: np.ndarray
    consistency_weight: float
    temperature: float
    reduction: str
    convolution: Array | None = None
    """Â where the head is a GCN."""
    class_weights: Array | None = None

    def probabilities(self, weights: Weights) -> list[Array]:
        """Z̃ of every view."""
        return [softmax(self._forward(view, weights)["logits"]) for view in self.views]

    def losses(self, weights: Weights, target: Array | None = None) -> tuple[float, float, float]:
        """Total, supervised and consistency loss; ``target`` replaces the guess."""
        views = self.probabilities(weights)
        if target is None:
            target = guessed(views, self.temperature)
        first = supervised(views, self.rows, self.labels, self.reduction, self.class_weights)
        second = consistency(views, target, self.reduction)
        return first + self.consistency_weight * second, first, second

    def gradient(self, weights: Weights) -> Weights:
        """The gradient of the total, the guess being a constant."""
        target = guessed(self.probabilities(weights), self.temperature)
        total = {name: np.zeros_like(value) for name, value in weights.items()}
        for view in self.views:
            for name, part in self._backward(view, weights, target).items():
                total[name] += part / len(self.views)
        return total

    def _graph(self, x: Array) -> Array:
        return x if self.convolution is None else self.convolution @ x

    def _forward(self, view: View, weights: Weights) -> dict[str, Array]:
        values = {"propagated": mixed(view.operator, self.order) @ view.features}
        x = values["propagated"]
        if "norm1.weight" in weights:
            x = batch_norm(x, weights["norm1.weight"], weights["norm1.bias"])
        values["input"] = x * view.input_mask
        values["linear"] = self._graph(values["input"] @ weights["weight1"]) + weights["bias1"]
        values["relu"] = np.maximum(values["linear"], 0.0)
        x = values["relu"]
        if "norm2.weight" in weights:
            x = batch_norm(x, weights["norm2.weight"], weights["norm2.bias"])
        values["hidden"] = x * view.hidden_mask
        values["logits"] = self._graph(values["hidden"] @ weights["weight2"]) + weights["bias2"]
        return values

    def _backward(self, view: View, weights: Weights, target: Array) -> Weights:
        values = self._forward(view, weights)
        z = softmax(values["logits"])
        nodes = len(z) if self.reduction == "mean" else 1.0
        wrong = self.consistency_weight * 2.0 * (z - target) / nodes
        logits = z * (wrong - (wrong * z).sum(axis=1, keepdims=True))
        importance = (
            np.ones(len(self.rows))
            if self.class_weights is None
            else self.class_weights[self.labels]
        )
        share = importance / importance.sum() if self.reduction == "mean" else importance
        for row, label, part in zip(self.rows, self.labels, share, strict=True):
            logits[row] += part * (z[row] - np.eye(z.shape[1])[label])

        result = {"bias2": logits.sum(axis=0)}
        product = self._graph(logits)  # Â is symmetric.
        result["weight2"] = values["hidden"].T @ product
        x = product @ weights["weight2"].T * view.hidden_mask
        if "norm2.weight" in weights:
            x, result["norm2.weight"], result["norm2.bias"] = batch_norm_backward(
                values["relu"], weights["norm2.weight"], x
            )
        x = x * (values["linear"] > 0)
        result["bias1"] = x.sum(axis=0)
        x = self._graph(x)
        result["weight1"] = values["input"].T @ x
        if "norm1.weight" in weights:
            x = x @ weights["weight1"].T * view.input_mask
            _, result["norm1.weight"], result["norm1.bias"] = batch_norm_backward(
                values["propagated"], weights["norm1.weight"], x
            )
        return result


def batch_norm(x: Array, weight: Array, bias: Array, epsilon: float = 1e-5) -> Array:
    """Normalise each column over all nodes."""
    return weight * (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + epsilon) + bias


def batch_norm_backward(
    x: Array, weight: Array, gradient: Array, epsilon: float = 1e-5
) -> tuple[Array, Array, Array]:
    """Gradients of the input, the weight and the bias."""
    deviation = np.sqrt(x.var(axis=0) + epsilon)
    unit = (x - x.mean(axis=0)) / deviation
    centred = gradient - gradient.mean(axis=0) - unit * (gradient * unit).mean(axis=0)
    return weight * centred / deviation, (gradient * unit).sum(axis=0), gradient.sum(axis=0)


@dataclass(frozen=True)
class Attention:
    """A layer of graph attention, with a matrix of weights a head.

    Gradients come with their magnitude: that of the sums they are made of, all terms positive.
    """

    x: Array
    """What nodes send (n, heads, width)."""
    source: Array
    """What gives the sender's part of a score (heads, width)."""
    target: Array
    """What gives the receiver's part."""
    edges: np.ndarray
    """[i, j] says whether i receives from j."""
    factors: Array
    """Of dropout, for i, j and a head (n, n, heads)."""
    slope: float

    @property
    def operations(self) -> float:
        """How often a result has been rounded on its way, in units of its magnitude.

        An error of a score, which is a sum of 2 · width terms, is a relative error of its weight.
        It counts twice, for the sum of the weights has it too; and it counts twice in gradients,
        which have the weight and the result as factors.
        """
        nodes, heads, width = self.x.shape
        size = np.abs(self.x)
        parts = [np.einsum("nhc,hc->nh", size, np.abs(v)) for v in (self.source, self.target)]
        largest = sum(part.max() for part in parts)
        entries = max(self.edges.sum(axis=0).max(), self.edges.sum(axis=1).max())
        of_weight = 2 * ((width + 4) * largest + 2) + entries + 5
        return float(2 * of_weight + 2 * entries + width + nodes + heads + 16)

    def received(self) -> tuple[Array, Array]:
        """What every node receives (n, heads, width), and its magnitude."""
        results = np.empty((2, *self.x.shape))
        for head in range(self.x.shape[1]):
            weights = self._weights(head)[0] * self.factors[:, :, head]
            results[0, :, head] = weights @ self.x[:, head]
            results[1, :, head] = weights @ np.abs(self.x[:, head])
        return results[0], results[1]

    def gradients(self, pull: Array) -> dict[str, tuple[Array, Array]]:
        """The gradients of the sum of ``pull`` times the result, and their magnitudes."""
        found = {name: np.zeros((2, *getattr(self, name).shape)) for name in _ATTENTION}
        for head in range(self.x.shape[1]):
            given = self.x[:, head], pull[:, head], self.source[head], self.target[head]
            for k, (x, g, s, t) in enumerate([given, tuple(map(np.abs, given))]):
                weights, slopes = self._weights(head)
                dropped = weights * self.factors[:, :, head]
                of_weights = self.factors[:, :, head] * (g @ x.T)
                overlap = (weights * of_weights).sum(axis=1, keepdims=True)
                of_scores = weights * slopes * (of_weights + (overlap if k else -overlap))
                sent, heard = of_scores.sum(axis=0), of_scores.sum(axis=1)
                found["x"][k, :, head] = dropped.T @ g + np.outer(sent, s) + np.outer(heard, t)
                found["source"][k, head], found["target"][k, head] = sent @ x, heard @ x
        return {name: (value, magnitude) for name, (value, magnitude) in found.items()}

    def _weights(self, head: int) -> tuple[Array, Array]:
        """Weights before dropout (n, n), and the slope of the leaky ReLU at every score."""
        x = self.x[:, head]
        sums = (x @ self.source[head])[None, :] + (x @ self.target[head])[:, None]
        slopes = np.where(sums > 0, 1.0, self.slope)
        return softmax(np.where(self.edges, slopes * sums, -np.inf)), slopes


_ATTENTION = ("x", "source", "target")


def finite_differences(step: Step, weights: Weights, target: Array | None) -> Weights:
    """The gradient by central differences; without a ``target`` the guess moves along."""
    result = {}
    for name, value in weights.items():
        slope = np.zeros_like(value)
        for at in np.ndindex(value.shape):
            nudged = []
            for sign in (1e-6, -1e-6):
                moved = value.copy()
                moved[at] += sign
                nudged.append(step.losses(weights | {name: moved}, target)[0])
            slope[at] = (nudged[0] - nudged[1]) / 2e-6
        result[name] = slope
    return result


class Adam:
    """Adam with coupled weight decay, on every weight alike."""

    def __init__(self, rate: float, decay: float) -> None:
        self.rate, self.decay = rate, decay
        self.steps = 0
        self.mean: Weights = {}
        self.square: Weights = {}

    def step(self, weights: Weights, gradient: Weights) -> Weights:
        """Return the weights after one step."""
        self.steps += 1
        result = {}
        for name, value in weights.items():
            slope = gradient[name] + self.decay * value
            self.mean[name] = 0.9 * self.mean.get(name, 0.0) + 0.1 * slope
            self.square[name] = 0.999 * self.square.get(name, 0.0) + 0.001 * slope**2
            mean = self.mean[name] / (1 - 0.9**self.steps)
            square = self.square[name] / (1 - 0.999**self.steps)
            result[name] = value - self.rate * mean / (np.sqrt(square) + 1e-8)
        return result


@dataclass(frozen=True)
class RandomGraph:
    """What a property test draws: weighted, perhaps without edges, perhaps with bare nodes."""

    adjacency: Array
    features: Array
    edges: list[tuple[int, int]]
    weights: list[float]


@st.composite
def random_graphs(draw: st.DrawFn, max_nodes: int = 9) -> RandomGraph:
    """Draw a graph: isolated nodes, several components, zero rows and no edge at all included."""
    nodes = draw(st.integers(1, max_nodes))
    pairs = [(i, j) for i in range(nodes) for j in range(i)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    # The values matter less than the shape of the graph, and drawing them one by one is slow.
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = generator.uniform(0.125, 8.0, len(edges)).astype(np.float32).tolist()
    if draw(st.booleans()):
        weights = [1.0] * len(edges)
    adjacency = np.zeros((nodes, nodes))
    for (i, j), weight in zip(edges, weights, strict=True):
        adjacency[i, j] = adjacency[j, i] = weight
    shape = nodes, draw(st.integers(1, 4))
    features = generator.uniform(0.125, 4.0, shape) * (generator.random(shape) < 0.6)
    features[generator.random(nodes) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = 0.0
    return RandomGraph(adjacency, features.astype(np.float32).astype(float), edges, weights)
