"""Explanations: which neighbours and which features led to a prediction, exactly.

Propagation is linear, and a network with ReLU is linear as long as no hidden unit switches on or
off. The logit of a class is therefore a sum over (node, feature column): what that column of that
node adds, by way of propagation and of the active hidden units. Contributions and a bias sum to the
logit. Nothing is sampled or approximated, and the same call gives the same bits.

The sum describes the network as it is at this node. Without a node of large contribution, hidden
units may switch, and the logit may change by more or less than the contribution.

Contributions belong to features as the method sees them, after scaling. For features that were
centred, zero is the mean of the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dropnode.analysis.layers import Layer, layers_of, operator_of, polynomial
from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.methods.base import NodeClassifier
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.sparse_matrix import SparseMatrix
from dropnode.settings import read_value

ENTRIES = 2**16
"""Stored entries of the features whose contributions are computed at a time."""


class Share(NamedTuple):
    """What a node or a column adds to a score."""

    name: Any
    amount: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """The score of a class for one node, taken apart.

    Attributes
    ----------
    node : int
        The position of the node.
    label : int
        The class whose score it is.
    against : int or None
        The class whose logit is subtracted; None if the score is the logit of ``label`` itself.
    score : float
        The sum of all contributions and the bias.
    bias : float
        What the features do not change: biases, and shifts of norms.
    logits : ndarray (classes,)
        Of the node.
    nodes : ndarray of int (senders,)
        Positions of the nodes that reach this one, in order; it is one of them.
    contributions : csr_array (senders, columns)
        What each column of each of these nodes adds.
    """

    node: int
    label: int
    against: int | None
    score: float
    bias: float
    logits: np.ndarray
    nodes: np.ndarray
    contributions: sp.csr_array

    @property
    def by_node(self) -> np.ndarray:
        """What each of ``nodes`` adds."""
        return np.asarray(self.contributions.sum(axis=1))

    @property
    def by_column(self) -> np.ndarray:
        """What each column adds, over all nodes."""
        return np.asarray(self.contributions.sum(axis=0))

    def strongest_nodes(self, most: int = 10, ids: Sequence[Any] | None = None) -> list[Share]:
        """Return the nodes that add or subtract most; ``ids`` are those of the whole graph."""
        names = self.nodes if ids is None else np.asarray(ids, dtype=object)[self.nodes]
        return _strongest(names, self.by_node, most)

    def strongest_columns(self, most: int = 10, names: Sequence[Any] | None = None) -> list[Share]:
        """Return the columns that add or subtract most, by their names if there are any."""
        amounts = self.by_column
        known = np.arange(len(amounts)) if names is None else np.asarray(names)
        if len(known) != len(amounts):
            raise ConfigError(
                f"{len(known):,} names for {len(amounts):,} feature columns; give one per column"
            )
        return _strongest(known, amounts, most)


def explain(
    method: NodeClassifier,
    node: int,
    graph: Graph | None = None,
    *,
    label: int | None = None,
    against: int | None = None,
) -> Explanation:
    """Take apart why a method gives a class to a node.

    The cost is that of the neighbourhood that the prediction reads. Methods whose logits are not
    piecewise linear in the features, such as those with attention, raise
    :class:`~dropnode.errors.ConfigError`.

    Parameters
    ----------
    method : NodeClassifier
        Trained, such as ``GrandClassifier().fit(graph).method_``.
    node : int
        The position of the node.
    graph : Graph, optional
        The graph of the node; by default the training graph.
    label : int, optional
        The code of the class to explain; by default the predicted one.
    against : int, optional
        Another class. Then the difference of the two logits is taken apart: softmax depends on
        differences alone, and a feature that adds to all classes alike then counts for nothing.

    Examples
    --------
    >>> from dropnode import GrandClassifier, load_dataset
    >>> graph = load_dataset("sbm", nodes=300, classes=3)
    >>> model = GrandClassifier(max_epochs=20, random_state=0).fit(graph)
    >>> why = explain(model.method_, 7)
    >>> logit = model.method_.logits()[7, why.label].item()
    >>> print(f"{abs(why.by_node.sum() + why.bias - logit):.4f}")
    0.0000
    """
    view = _View.around(method, node, graph)
    layers, operator = view.layers, view.operator
    outputs, x = [], view.features
    for layer in layers:
        outputs.append(layer.output(operator, x))
        x = layer.after(outputs[-1])
    logits = outputs[-1][view.place]
    label = _code(label, len(logits), "label", default=int(logits.argmax()))
    direction = np.eye(len(logits))[label]
    if against is not None:
        direction[_code(against, len(logits), "against")] -= 1.0
    gradient = np.zeros_like(outputs[-1])
    gradient[view.place] = direction
    gradient, bias = _adjoint(layers, operator, outputs, gradient)
    arriving, slopes = _factors(layers[0], operator, gradient)
    kept = arriving.any(axis=1)
    return Explanation(
        node=int(view.nodes[view.place]),
        label=label,
        against=against,
        score=float(direction @ logits),
        bias=bias,
        logits=logits,
        nodes=view.nodes[kept],
        contributions=_contributions(view.features, arriving, slopes)[kept],
    )


class FirstLayer(NamedTuple):
    """The output of the first layer for one node, as a sum over the nodes that it reads.

    Attributes
    ----------
    nodes : ndarray of int (senders,)
        Positions of these nodes.
    weights : ndarray (senders,)
        How much of each arrives: a row of the propagation matrix, such as Ā.
    parts : ndarray (senders, units)
        What each adds to each hidden unit, before ReLU.
    bias : ndarray (units,)
        What is added to their sum.
    """

    nodes: np.ndarray
    weights: np.ndarray
    parts: np.ndarray
    bias: np.ndarray


def first_layer(method: NodeClassifier, node: int, graph: Graph | None = None) -> FirstLayer:
    """Take apart the output of a method's first layer for a node; see :func:`explain`.

    The part of a node is its row of features times the weights, times how much of it arrives.
    Unlike an explanation, it holds whatever else changes: without the features of a node, its part
    is missing from the sum, and nothing else.
    """
    view = _View.around(method, node, graph)
    first = view.layers[0]
    unit = np.zeros(len(view.nodes))
    unit[view.place] = 1.0
    weights = polynomial(view.operator.T, first.powers, unit)
    kept = weights != 0
    products = np.asarray(view.features[kept] @ first.weight)
    return FirstLayer(view.nodes[kept], weights[kept], weights[kept, None] * products, first.bias)


@dataclass(frozen=True, eq=False)
class _View:
    """The neighbourhood that a prediction reads, and the layers, in double precision."""

    layers: list[Layer]
    nodes: np.ndarray
    place: int
    operator: sp.csr_array
    features: sp.csr_array

    @classmethod
    def around(cls, method: NodeClassifier, node: int, graph: Graph | None) -> _View:
        layers = layers_of(method)
        tensors = method.tensors if graph is None else method.tensors_of(graph)
        node = _code(node, tensors.num_nodes, "node")
        hops = sum(len(layer.powers) - 1 for layer in layers)
        nodes = tensors.reached(np.array([node]), hops)
        part = tensors.part(nodes)
        operator = operator_of(method, part)
        place = int(np.searchsorted(nodes, node))
        return cls(layers, nodes, place, operator, _features(part))


def _features(part: GraphTensors) -> sp.csr_array:
    features = part.features
    sparse = features.to_scipy() if isinstance(features, SparseMatrix) else features.cpu().numpy()
    return sp.csr_array(sparse, dtype=np.float64)


def _adjoint(
    layers: list[Layer], operator: sp.csr_array, outputs: list[np.ndarray], gradient: np.ndarray
) -> tuple[np.ndarray, float]:
    """Carry the gradient of a score back from the last layer's output to the first layer's.

    Also returns the bias: on the linear region of the network, the score is the sum of the bias and
    of the gradient times the first layer's output without its own bias.
    """
    bias = float((gradient @ layers[-1].bias).sum())
    for before, layer, output in zip(layers[-2::-1], layers[:0:-1], outputs[-2::-1], strict=True):
        gradient = polynomial(operator.T, layer.powers, gradient) @ layer.weight.T
        bias += float((gradient @ before.shift).sum())
        gradient = gradient * before.gain
        if before.active:
            gradient = gradient * (output > 0)
        bias += float((gradient @ before.bias).sum())
    return gradient, bias


def _factors(
    first: Layer, operator: sp.csr_array, gradient: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient by the features as a product of two narrow matrices.

    It is p(Âᵀ) G Wᵀ. A network that reads no edges after its first layer has a single row in G that
    is not zero. Then p(Âᵀ) is needed for one column alone, which is a row of Ā.
    """
    rows = np.flatnonzero(gradient.any(axis=1))
    if len(rows) >= gradient.shape[1]:
        return polynomial(operator.T, first.powers, gradient), first.weight.T
    unit = np.zeros((len(gradient), len(rows)))
    unit[rows, np.arange(len(rows))] = 1.0
    return polynomial(operator.T, first.powers, unit), gradient[rows] @ first.weight.T


def _contributions(
    features: sp.csr_array, arriving: np.ndarray, slopes: np.ndarray
) -> sp.csr_array:
    """Return X ⊙ (arriving · slopes) at the stored entries of X, without the dense matrix."""
    rows = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
    values = np.empty_like(features.data)
    columns = np.ascontiguousarray(slopes.T)
    for first in range(0, len(values), ENTRIES):
        some = slice(first, first + ENTRIES)
        gradients = np.einsum("ek,ek->e", arriving[rows[some]], columns[features.indices[some]])
        values[some] = features.data[some] * gradients
    return sp.csr_array((values, features.indices, features.indptr), shape=features.shape)


def _strongest(names: np.ndarray, amounts: np.ndarray, most: int) -> list[Share]:
    order = np.argsort(-np.abs(amounts), kind="stable")[:most]
    order = order[amounts[order] != 0]
    return [
        Share(*pair) for pair in zip(names[order].tolist(), amounts[order].tolist(), strict=True)
    ]


def _code(value: int | None, count: int, what: str, default: int | None = None) -> int:
    if value is None and default is not None:
        return default
    code = int(read_value(int, value, what))
    if not 0 <= code < count:
        raise ConfigError(f"{what} = {code}; expected a number from 0 to {count - 1:,}")
    return code
