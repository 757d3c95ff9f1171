"""Heads: the small classifiers that read propagated features.

A head has two parts: ``first`` ends with the first linear map, and ``rest`` is everything after it.
If ``first`` is nothing but a linear map (``commutes``), it may be exchanged with propagation:
Ā(X W) propagates ``hidden`` columns, (ĀX) W propagates ``features`` columns.

On a CPU, training with a perceptron rarely calls these layers: the kernels of ``fused/`` compute
them together with their gradients. They also compute the first layer of other heads. Validation and
inference use this module. ``tests/methods/grand/fused/test_step.py`` compares the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import nn

from dropnode.ops.randomness import Dropout, Stream
from dropnode.ops.sparse_matrix import SparseMatrix

HEADS = ("mlp", "gcn", "gat")
"""The names of all heads in a configuration."""


class FixedNorm(nn.Module):
    """A normalisation by fixed statistics, which therefore commutes with propagation.

    It replaces batch norm on propagated features: ``fit`` sets the mean and variance of the
    unperturbed features once. Gain and offset are learnt as in batch norm. They could be part of
    the linear map that follows, but would be learnt more slowly there.
    """

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("deviation", torch.ones(num_features))

    def fit(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        """Set the statistics."""
        self.mean.copy_(mean)
        self.deviation.copy_((variance + 1e-5).sqrt())

    def forward(self, view: torch.Tensor) -> torch.Tensor:
        """Return normalised features."""
        return (view - self.mean) * (self.weight / self.deviation) + self.bias


class Head(nn.Module, ABC):
    """A classifier of propagated features whose first step, after norm and dropout, is linear.

    ``norm`` comes before the first linear map. ``input_dropout_on`` can move the first dropout to
    before propagation: to single ``"entries"`` or whole ``"columns"`` of the raw features.
    """

    graph_layers: bool

    def __init__(
        self,
        num_features: int,
        hidden: int,
        input_dropout: float,
        *,
        norm: nn.BatchNorm1d | FixedNorm | None = None,
        input_dropout_on: str = "propagated",
    ) -> None:
        super().__init__()
        self.weight1 = nn.Parameter(torch.empty(num_features, hidden))
        self.norm1 = norm
        self.input_dropout = input_dropout
        self.input_dropout_on = input_dropout_on

    @abstractmethod
    def initialise(self, kind: str, stream: Stream) -> None:
        """Draw the weights."""

    @abstractmethod
    def rest(
        self, hidden: torch.Tensor, operator: SparseMatrix | None, dropout: Dropout | None
    ) -> torch.Tensor:
        """Turn S products of the first linear map (n, S, h) into logits (n, S, C)."""

    @property
    def commutes(self) -> bool:
        """Whether propagation may be exchanged with the first linear map."""
        dropped_after = self.input_dropout > 0 and self.input_dropout_on == "propagated"
        return not (dropped_after or isinstance(self.norm1, nn.BatchNorm1d))

    def drops(self, what: str) -> bool:
        """Return whether input dropout applies to ``what``: propagated, columns or entries."""
        return self.input_dropout > 0 and self.input_dropout_on == what

    def first(self, view: torch.Tensor, dropout: Dropout | None) -> torch.Tensor:
        """Map propagated features (n, d) through the first linear map (n, h)."""
        if self.norm1 is not None:
            view = self.norm1(view)
        if dropout is not None and self.input_dropout_on == "propagated":
            view = dropout(view, self.input_dropout, "input")
        return view @ self.weight1

    def folded(
        self, factors: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return ``first`` as one linear map before propagation: weights (d, h), and an offset.

        ``factors`` (d,) are the factors of dropout on whole columns. The offset is (h,), or None
        for zero. A batch norm is folded in with its running statistics, as at inference.
        """
        weight = self.weight1 if factors is None else self.weight1 * factors[:, None]
        norm = self.norm1
        if norm is None:
            return weight, None
        if isinstance(norm, FixedNorm):
            mean, deviation = norm.mean, norm.deviation
        else:
            assert norm.running_mean is not None
            assert norm.running_var is not None
            mean, deviation = norm.running_mean, (norm.running_var + norm.eps).sqrt()
        gain = norm.weight / deviation
        return weight * gain[:, None], (norm.bias - mean * gain) @ weight

    def forward(
        self, view: torch.Tensor, operator: SparseMatrix | None, dropout: Dropout | None = None
    ) -> torch.Tensor:
        """Return the logits (n, C) of one view of propagated features (n, d)."""
        return self.rest(self.first(view, dropout)[:, None], operator, dropout)[:, 0]


class DenseHead(Head):
    """A two-layer perceptron, or, with ``graph_layers``, a two-layer graph convolution.

    Order of layers: [norm] → dropout → linear → ReLU → [batch norm] → dropout → linear; a graph
    convolution multiplies by Â after each linear map. With ``input_norm="fixed"`` the first norm
    has fixed statistics.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        hidden: int,
        input_dropout: float,
        hidden_dropout: float,
        *,
        batch_norm: bool,
        graph_layers: bool,
        input_norm: str = "batch",
        input_dropout_on: str = "propagated",
    ) -> None:
        norm: nn.BatchNorm1d | FixedNorm | None = None
        if batch_norm:
            fixed = input_norm == "fixed"
            norm = FixedNorm(num_features) if fixed else nn.BatchNorm1d(num_features)
        super().__init__(
            num_features, hidden, input_dropout, norm=norm, input_dropout_on=input_dropout_on
        )
        self.bias1 = nn.Parameter(torch.empty(hidden))
        self.weight2 = nn.Parameter(torch.empty(hidden, num_classes))
        self.bias2 = nn.Parameter(torch.empty(num_classes))
        self.norm2 = nn.BatchNorm1d(hidden) if batch_norm else None
        self.hidden_dropout = hidden_dropout
        self.graph_layers = graph_layers

    def initialise(self, kind: str, stream: Stream) -> None:
        """Draw the weights.

        ``"glorot"`` is Glorot normal with zero biases, as in the paper. ``"released"`` is as in the
        released code, for weights and biases: ``normal_(-s, s)`` with s = 1/√(output size), whose
        first argument is the mean.
        """
        generator = torch.Generator().manual_seed(stream.integer())
        with torch.no_grad():
            for weight, bias in ((self.weight1, self.bias1), (self.weight2, self.bias2)):
                if kind == "released":
                    s = weight.shape[1] ** -0.5
                    weight.normal_(-s, s, generator=generator)
                    bias.normal_(-s, s, generator=generator)
                else:
                    nn.init.xavier_normal_(weight, generator=generator)
                    bias.zero_()

    def rest(
        self, hidden: torch.Tensor, operator: SparseMatrix | None, dropout: Dropout | None
    ) -> torch.Tensor:
        """Turn S products of the first linear map (n, S, h) into logits (n, S, C)."""
        activated = self.activated(self._graph(hidden, operator), dropout)
        return self._graph(activated @ self.weight2, operator) + self.bias2

    def activated(self, hidden: torch.Tensor, dropout: Dropout | None) -> torch.Tensor:
        """Return the input (n, S, h) of the second linear map."""
        hidden = torch.relu(hidden + self.bias1)
        if self.norm2 is not None:
            # Each augmentation has its own statistics, as if it were classified alone.
            hidden = torch.stack([self.norm2(view) for view in hidden.unbind(1)], dim=1)
        if dropout is not None:
            hidden = dropout(hidden, self.hidden_dropout, "hidden")
        return hidden

    def _graph(self, x: torch.Tensor, operator: SparseMatrix | None) -> torch.Tensor:
        if not self.graph_layers:
            return x
        assert operator is not None
        return (operator @ x.flatten(1)).view(x.shape)


class AttentionHead(Head):
    """Two layers of graph attention (PyTorch Geometric's), with ELU between them.

    Attention coefficients are dropped at the rate of hidden dropout.
    """

    graph_layers = True

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        hidden: int,
        input_dropout: float,
        hidden_dropout: float,
        *,
        attention_heads: int,
        input_dropout_on: str = "propagated",
    ) -> None:
        if hidden % attention_heads:
            raise ValueError(
                f"hidden = {hidden} is not divisible by attention_heads = {attention_heads}; "
                "make hidden a multiple of attention_heads"
            )
        super().__init__(num_features, hidden, input_dropout, input_dropout_on=input_dropout_on)
        self.hidden_dropout = hidden_dropout
        self.sizes = num_features, num_classes, hidden, attention_heads
        self.conv1, self.conv2 = self._layers()

    def initialise(self, kind: str, stream: Stream) -> None:
        """Draw the weights as PyTorch Geometric does; ``kind`` applies to linear layers only."""
        with stream.torch_global():
            drawn = self._layers()
        for ours, theirs in zip((self.conv1, self.conv2), drawn, strict=True):
            ours.load_state_dict(theirs.state_dict())

    def rest(
        self, hidden: torch.Tensor, operator: SparseMatrix | None, dropout: Dropout | None
    ) -> torch.Tensor:
        """Turn S products of the first linear map (n, S, h) into logits (n, S, C)."""
        assert operator is not None
        logits = []
        for view, products in enumerate(hidden.unbind(dim=1)):
            x = nn.functional.elu(self.conv1(products, operator))
            if dropout is not None:
                x = Dropout([dropout.streams[view]])(x, self.hidden_dropout, "hidden")
            logits.append(self.conv2(x, operator))
        return torch.stack(logits, dim=1)

    def _layers(self) -> tuple[nn.Module, nn.Module]:
        """Return both layers with initial weights; ``weight1`` becomes the first linear map."""
        # Imported here, because it takes half of the import time and only this head needs it.
        from dropnode.methods.graph_attention import GraphAttention

        num_features, num_classes, hidden, heads = self.sizes
        rate = self.hidden_dropout
        conv1 = GraphAttention(num_features, hidden // heads, heads, dropout=rate)
        conv2 = GraphAttention(hidden, num_classes, 1, dropout=rate)
        with torch.no_grad():
            self.weight1.copy_(conv1.lin.weight.T)
        # Outside the layer, the linear map can be exchanged with propagation.
        conv1.lin = nn.Identity()
        return conv1, conv2
