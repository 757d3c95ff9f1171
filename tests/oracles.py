"""What the package computes, written once more: dense, slow, in float64, straight from the paper.

Nothing here imports the package. Matrices are spelt out, powers are powers, and the gradient of a
training step is derived by hand; finite differences of the loss keep the derivation honest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st
from numpy.typing import NDArray

from rounding import UNIT, Rounded, stored

Array = NDArray[np.float64]
Weights = dict[str, Any]
"""Arrays by name; as :class:`Rounded`, results come with a bound on the error of float32."""


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


def normalised(adjacency: Any) -> Any:
    """Â = D̃^-½ (A + I) D̃^-½; of a sparse matrix, a sparse one."""
    nodes = adjacency.shape[0]
    if sp.issparse(adjacency):
        looped = (adjacency.astype(np.float64) + sp.eye_array(nodes)).tocoo()
        degrees = np.bincount(looped.row, looped.data, nodes)
        looped.data = looped.data / np.sqrt(degrees[looped.row] * degrees[looped.col])
        return looped.tocsr()
    looped = adjacency.astype(np.float64) + np.eye(nodes)
    degrees = looped.sum(axis=1)
    return looped / np.sqrt(degrees[:, None] * degrees[None, :])


def operator_of(adjacency: Any) -> Rounded:
    """Â as float32 has it: the degrees are sums in float64."""
    return Rounded(normalised(adjacency.toarray()), steps=2)


def rows_of(features: Any) -> Rounded:
    """Features whose rows sum to one, as float32 has them."""
    return Rounded(
        row_normalised(features.toarray() if sp.issparse(features) else features), steps=2
    )


def mixed(operator: Any, order: int) -> Any:
    """Ā = 1/(K+1) Σ_k Âᵏ, as a matrix."""
    return propagated(operator, order, np.eye(operator.shape[0]))


def propagated(operator: Any, order: int, x: Any) -> Any:
    """Āx = 1/(K+1) Σ_k Âᵏx, power by power."""
    power = total = x
    for _ in range(order):
        power = operator @ power
        total = total + power
    result = total / (order + 1)
    if isinstance(x, Rounded):
        # The same may be computed as one sum over all nodes, with the matrix Ā.
        result.steps += np.count_nonzero(x.size, axis=0).max()
    return result


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
    stored = np.nonzero(matrix)
    result[stored] = np.where(kept, matrix[stored], 0.0)
    return result


def softmax(logits: Any) -> Any:
    """Probabilities over the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def sharpened(probabilities: Any, temperature: float) -> Any:
    """Eq. 2."""
    powered = probabilities ** (1.0 / temperature)
    return powered / powered.sum(axis=-1, keepdims=True)


def supervised(
    views: Sequence[Any],
    rows: np.ndarray,
    labels: np.ndarray,
    reduction: str,
    class_weights: Array | None = None,
) -> Any:
    """Eq. 1; ``views`` holds one matrix of probabilities Z̃ an augmentation."""
    weights = np.ones(len(rows)) if class_weights is None else class_weights[labels]
    total: Any = 0.0
    for view in views:
        total = total - (weights * np.log(view[rows, labels])).sum()
    total = total / len(views)
    return total / weights.sum() if reduction == "mean" else total


def guessed(views: Sequence[Any], temperature: float) -> Any:
    """The sharpened average of the views."""
    return sharpened(sum(views[1:], start=views[0]) / len(views), temperature)


def consistency(views: Sequence[Any], target: Any, reduction: str) -> Any:
    """Eq. 3."""
    total: Any = 0.0
    for view in views:
        total = total + np.square(target - view).sum()
    total = total / len(views)
    return total / len(target) if reduction == "mean" else total


@dataclass(frozen=True)
class View:
    """One augmentation with everything random already drawn, scales included."""

    features: Any
    operator: Any
    input_mask: Array | float = 1.0
    hidden_mask: Array | float = 1.0


@dataclass(frozen=True)
class Step:
    """One training step of GRAND with a two-layer head.

    With ``fixed``, the first norm standardises by this mean and this deviation instead of those of
    the batch. With ``convolution``, which is Â, the head is a GCN.
    """

    views: Sequence[View]
    order: int
    rows: np.ndarray
    labels: np.ndarray
    consistency_weight: float
    temperature: float
    reduction: str
    convolution: Any = None
    class_weights: Array | None = None
    fixed: tuple[Any, Any] | None = None

    def probabilities(self, weights: Weights) -> list[Any]:
        """Z̃ of every view."""
        return [softmax(self.forward(view, weights)["logits"]) for view in self.views]

    def losses(self, weights: Weights, target: Any = None) -> tuple[Any, Any, Any]:
        """Total, supervised and consistency loss; ``target`` replaces the guess."""
        return self._losses(self.probabilities(weights), target)

    def gradient(self, weights: Weights) -> Weights:
        """The gradient of the total, the guess being a constant."""
        return self.learn(weights)[1]

    def learn(self, weights: Weights) -> tuple[tuple[Any, Any, Any], Weights, list[Weights]]:
        """Losses and gradient, and all values on the way to the logits of every view."""
        values = [self.forward(view, weights) for view in self.views]
        views = [softmax(each["logits"]) for each in values]
        target = guessed(views, self.temperature)
        total: Weights = {}
        for view, each, z in zip(self.views, values, views, strict=True):
            for name, part in self._backward(view, weights, each, z, target).items():
                total[name] = total.get(name, 0.0) + part / len(self.views)
        return self._losses(views, target), total, values

    def _losses(self, views: list[Any], target: Any) -> tuple[Any, Any, Any]:
        if target is None:
            target = guessed(views, self.temperature)
        first = supervised(views, self.rows, self.labels, self.reduction, self.class_weights)
        second = consistency(views, target, self.reduction)
        return first + self.consistency_weight * second, first, second

    def _graph(self, x: Any) -> Any:
        return x if self.convolution is None else self.convolution @ x

    def forward(self, view: View, weights: Weights) -> Weights:
        """Everything on the way to the logits of a view."""
        values = {"propagated": propagated(view.operator, self.order, view.features)}
        x = values["propagated"]
        if "norm1.weight" in weights:
            gain, shift = weights["norm1.weight"], weights["norm1.bias"]
            mean, deviation = self.fixed or _statistics(x)
            x = gain * (x - mean) / deviation + shift
        values["input"] = x * view.input_mask
        values["linear"] = self._graph(values["input"] @ weights["weight1"]) + weights["bias1"]
        values["relu"] = np.maximum(values["linear"], 0.0)
        x = values["relu"]
        if "norm2.weight" in weights:
            x = batch_norm(x, weights["norm2.weight"], weights["norm2.bias"])
        values["hidden"] = x * view.hidden_mask
        values["logits"] = self._graph(values["hidden"] @ weights["weight2"]) + weights["bias2"]
        return values

    def _backward(
        self, view: View, weights: Weights, values: Weights, z: Any, target: Any
    ) -> Weights:
        nodes = len(z) if self.reduction == "mean" else 1.0
        wrong = self.consistency_weight * 2.0 * (z - target) / nodes
        logits = z * (wrong - (wrong * z).sum(axis=1, keepdims=True))
        importance = (
            np.ones(len(self.rows))
            if self.class_weights is None
            else self.class_weights[self.labels]
        )
        share, right = np.zeros((len(z), 1)), np.zeros(z.shape)
        # A row may occur several times, which is what an integer weight means.
        np.add.at(share, (self.rows, 0), importance)
        if self.reduction == "mean":
            share /= importance.sum()
        right[self.rows, self.labels] = 1.0
        logits = logits + share * (z - right)

        result = {"bias2": logits.sum(axis=0)}
        product = self._graph(logits)  # Â is symmetric.
        result["weight2"] = values["hidden"].T @ product
        x = product @ weights["weight2"].T * view.hidden_mask
        if "norm2.weight" in weights:
            x, result["norm2.weight"], result["norm2.bias"] = batch_norm_backward(
                values["relu"], weights["norm2.weight"], x
            )
        x = x * np.greater(values["linear"], 0)
        result["bias1"] = x.sum(axis=0)
        x = self._graph(x)
        result["weight1"] = values["input"].T @ x
        if "norm1.weight" in weights:
            x = x @ weights["weight1"].T * view.input_mask
            mean, deviation = self.fixed or _statistics(values["propagated"])
            unit = (values["propagated"] - mean) / deviation
            result["norm1.weight"] = (x * unit).sum(axis=0)
            result["norm1.bias"] = x.sum(axis=0)
        return result


def _statistics(x: Any, epsilon: float = 1e-5) -> tuple[Any, Any]:
    """Mean and deviation of each column, as batch norm defines them."""
    return x.mean(axis=0), np.sqrt(x.var(axis=0) + epsilon)


def batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    """Normalise each column over all nodes."""
    mean, deviation = _statistics(x)
    return weight * (x - mean) / deviation + bias


def batch_norm_backward(x: Any, weight: Any, gradient: Any) -> tuple[Any, Any, Any]:
    """Gradients of the input, the weight and the bias."""
    mean, deviation = _statistics(x)
    unit = (x - mean) / deviation
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


def finite_differences(
    step: Step, weights: Weights, target: Array | None
) -> dict[str, tuple[Array, Array]]:
    """The gradient by central differences, and how far it may be off.

    Without a ``target`` the guess moves along. A difference over twice the distance has four times
    the error of the first, so that both differ by more than that. Besides, losses are rounded.
    """
    near = 1e-6
    result = {}
    for name, value in weights.items():
        slope, bound = np.zeros_like(value), np.zeros_like(value)
        for at in np.ndindex(value.shape):
            losses = {}
            for distance in (near, -near, 2 * near, -2 * near):
                moved = value.copy()
                moved[at] += distance
                losses[distance] = step.losses(weights | {name: moved}, target)[0]
            slope[at], wider = (
                (losses[distance] - losses[-distance]) / (2 * distance)
                for distance in (near, 2 * near)
            )
            rounding = 100 * 2.0**-53 * losses[near] / near
            bound[at] = abs(wider - slope[at]) + rounding
        result[name] = slope, bound
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
            slope = stored(gradient[name] + self.decay * value)
            self.mean[name] = 0.9 * self.mean.get(name, 0.0) + 0.1 * slope
            self.square[name] = 0.999 * self.square.get(name, 0.0) + 0.001 * np.square(slope)
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
