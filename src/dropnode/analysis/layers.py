"""The layers of a trained method, if its logits are piecewise linear in the features.

Propagation has no weights, so many methods are a chain of layers p(Â) x W + b at inference, where p
is a polynomial: 1 for a layer that reads no edges, Â for a graph convolution, (1 + Â + … + Âᴷ) /
(K + 1) for GRAND's mixed order, and so on. GRAND+ has the random walk's P in place of Â. Between
layers there is ReLU, perhaps followed by a norm with fixed statistics. Norms and scales of the
first layer are part of its weights.

:mod:`dropnode.analysis.explain` takes predictions apart with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from dropnode.errors import ConfigError
from dropnode.graph.arrays import Matrix
from dropnode.methods.base import NodeClassifier
from dropnode.methods.grand.heads import DenseHead
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.perturb import DropEdge

WALKING = "grand-plus"
"""The method that propagates by the random walk."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer p(Â) x W + b, in double precision, and what comes after it.

    ``operator`` is that of :func:`operator_of`.

    Attributes
    ----------
    weight : ndarray (inputs, outputs)
        W.
    bias : ndarray (outputs,)
        b.
    powers : tuple of float
        The coefficients of p, that of the zeroth power first.
    active : bool
        Whether ReLU follows.
    gain, shift : ndarray (outputs,)
        The norm after that, which multiplies by the gain and adds the shift.
    """

    weight: np.ndarray
    bias: np.ndarray
    powers: tuple[float, ...]
    active: bool
    gain: np.ndarray
    shift: np.ndarray

    def output(self, operator: sp.csr_array, x: Matrix) -> np.ndarray:
        """Return p(Â) x W + b, before ReLU and norm."""
        return polynomial(operator, self.powers, np.asarray(x @ self.weight)) + self.bias

    def after(self, output: np.ndarray) -> np.ndarray:
        """Return the input of the next layer."""
        activated = np.maximum(output, 0.0) if self.active else output
        return activated * self.gain + self.shift


def layers_of(method: NodeClassifier) -> list[Layer]:
    """Return the layers of a trained method, or raise :class:`ConfigError` if it has others."""
    found, named = _LAYERS.get(method.name), method.name
    if method.name == "grand" and method.config.head == "gat":
        found, named = None, "grand with head = 'gat'"
    if method.name == WALKING and method.config.node_norm:
        found, named = None, f"{WALKING} with a node norm"
    if found is None:
        raise ConfigError(
            f"{named} cannot be taken apart: its logits are not piecewise linear in the features; "
            "use grand with another head than 'gat', grand-plus with node_norm = false, or one of "
            f"{', '.join([*_LAYERS][2:])}"
        )
    with torch.no_grad():
        return found(method)


def operator_of(method: NodeClassifier, tensors: GraphTensors) -> sp.csr_array:
    """Return the matrix that a method's layers are polynomials of, in double precision."""
    operator = tensors.operator.to_scipy().astype(np.float64)
    if method.name != WALKING:
        return operator
    # P = D̃⁻¹(A + I), made of Â = D̃^-½(A + I)D̃^-½.
    root = np.sqrt(tensors.degrees)
    return sp.csr_array(sp.diags_array(1.0 / root) @ operator @ sp.diags_array(root))


def polynomial(operator: sp.csr_array, powers: tuple[float, ...], x: np.ndarray) -> np.ndarray:
    """Return p(Â) x by Horner's scheme.

    Examples
    --------
    >>> polynomial(sp.csr_array([[0.0, 2.0], [2.0, 0.0]]), (1.0, 0.5, 1.0), np.array([1.0, 3.0]))
    array([ 8., 16.])
    """
    total = powers[-1] * x
    for coefficient in powers[-2::-1]:
        total = operator @ total + coefficient * x
    return np.asarray(total)


def _layer(
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    powers: Iterable[float],
    *,
    active: bool = True,
    norm: Any = None,
) -> Layer:
    matrix = _numbers(weight)
    width = matrix.shape[1]
    gain, shift = np.ones(width), np.zeros(width)
    if norm is not None:
        gain = _numbers(norm.weight) / np.sqrt(_numbers(norm.running_var) + norm.eps)
        shift = _numbers(norm.bias) - _numbers(norm.running_mean) * gain
    offset = np.zeros(width) if bias is None else _numbers(bias)
    return Layer(matrix, offset, tuple(powers), active, gain, shift)


def _numbers(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()


def _grand(method: Any) -> list[Layer]:
    head: DenseHead = method.head
    order, scale = method.config.order, method.perturbation.inference_scale
    # DropEdge scales every entry of Â, the others scale the features.
    compounded = isinstance(method.perturbation, DropEdge)
    factors = [scale**power if compounded else scale for power in range(order + 1)]
    powers = [factor / (order + 1) for factor in factors]
    weight, offset = head.folded()
    last = head.weight2, head.bias2
    if not head.graph_layers:
        bias = head.bias1 if offset is None else head.bias1 + offset
        return [
            _layer(weight, bias, powers, norm=head.norm2),
            _layer(*last, [1.0], active=False),
        ]
    # The head's own Â propagates the offset of the first norm too, so it is a layer of its own.
    return [
        _layer(weight, offset, powers, active=False),
        _layer(torch.eye(weight.shape[1]), head.bias1, [0.0, 1.0], norm=head.norm2),
        _layer(*last, [0.0, 1.0], active=False),
    ]


def _grand_plus(method: Any) -> list[Layer]:
    head = method.head
    maps = [head.folded(number) for number in range(head.layers)]
    powers = [method.shares, [1.0]]
    return [
        _layer(weight, offset, power, active=number < len(maps) - 1)
        for number, ((weight, offset), power) in enumerate(zip(maps, powers, strict=False))
    ]


def _appnp(method: Any) -> list[Layer]:
    layers = _chain(method.network, [1.0])
    steps, teleport = method.config.steps, method.config.teleport
    powers = [teleport * (1.0 - teleport) ** step for step in range(steps)]
    powers.append((1.0 - teleport) ** steps)
    return [*layers[:-1], dataclasses.replace(layers[-1], powers=tuple(powers))]


def _chain(modules: Iterable[Any], powers: Iterable[float]) -> list[Layer]:
    """Return layers of PyTorch Geometric that all propagate alike."""
    layers, every = [], list(modules)
    for number, module in enumerate(every):
        # A convolution holds a linear map, and has the bias itself.
        linear = getattr(module, "lin", module)
        active = number < len(every) - 1
        layers.append(_layer(linear.weight.T, module.bias, powers, active=active))
    return layers


_HOP = (0.0, 1.0)

_LAYERS: Mapping[str, Callable[[Any], list[Layer]]] = MappingProxyType(
    {
        "grand": _grand,
        WALKING: _grand_plus,
        "gcn": lambda method: _chain(method.network, _HOP),
        "dropedge": lambda method: _chain(method.network, _HOP),
        "fastgcn": lambda method: _chain(method.network, _HOP),
        "vbat": lambda method: _chain(method.network, _HOP),
        "g3nn": lambda method: _chain(method.network["posterior"], _HOP),
        "gmnn": lambda method: _chain(method.network["q"], _HOP),
        "graphmix": lambda method: _chain([method.network["first"], method.network["last"]], _HOP),
        "appnp": _appnp,
        "sgc": lambda method: _chain([method.network], (0.0,) * method.config.steps + (1.0,)),
        "logistic": lambda method: _chain(
            [method.network], (1.0 / (method.config.order + 1),) * (method.config.order + 1)
        ),
        "mlp": lambda method: _chain(method.network, (1.0,)),
    }
)
"""How the layers of each method are read, by the name of its class."""
