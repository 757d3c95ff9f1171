"""Heads: the small classifiers that read propagated features.

A head is cut in two. ``first`` ends with the first linear map, ``rest`` is everything after it.
Where nothing but that linear map stands in ``first`` (``commutes``), a caller may exchange it
with propagation: Ā(X W) costs ``hidden`` columns, (ĀX) W costs ``features`` columns.
"""

from __future__ import annotations

import torch
from torch import nn

from grand.propagation import SparseMatrix
from grand.randomness import Dropout, Stream

HEADS = ("mlp", "gcn", "gat")
"""Every head by the name a configuration gives it."""


class DenseHead(nn.Module):
    """A two-layer perceptron, or, with ``graph_layers``, a two-layer graph convolution.

    Order of layers: [batch norm] → dropout → linear → ReLU → [batch norm] → dropout → linear;
    a graph convolution multiplies with Â after each linear map.
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
    ) -> None:
        super().__init__()
        self.weight1 = nn.Parameter(torch.empty(num_features, hidden))
        self.bias1 = nn.Parameter(torch.empty(hidden))
        self.weight2 = nn.Parameter(torch.empty(hidden, num_classes))
        self.bias2 = nn.Parameter(torch.empty(num_classes))
        self.norm1 = nn.BatchNorm1d(num_features) if batch_norm else None
        self.norm2 = nn.BatchNorm1d(hidden) if batch_norm else None
        self.input_dropout = input_dropout
        self.hidden_dropout = hidden_dropout
        self.graph_layers = graph_layers

    @property
    def commutes(self) -> bool:
        """Whether propagation may be exchanged with the first linear map."""
        return self.norm1 is None and self.input_dropout == 0

    def initialise(self, kind: str, stream: Stream) -> None:
        """Draw the weights.

        ``"glorot"`` is Glorot normal with zero biases, as the paper says. ``"released"`` is what
        the released code does: ``normal_(-s, s)`` with s = 1/√(output size), whose first argument
        is the mean, for weights and biases alike.
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

    def first(self, view: torch.Tensor, dropout: Dropout | None) -> torch.Tensor:
        """Map propagated features (n, d) through the first linear map (n, h)."""
        if self.norm1 is not None:
            view = self.norm1(view)
        if dropout is not None:
            view = dropout(view, self.input_dropout, "input")
        return view @ self.weight1

    def rest(
        self, hidden: torch.Tensor, operator: SparseMatrix | None, dropout: Dropout | None
    ) -> torch.Tensor:
        """Turn S products of the first linear map (n, S, h) into logits (n, S, C)."""
        hidden = torch.relu(self._graph(hidden, operator) + self.bias1)
        if self.norm2 is not None:
            # Statistics belong to one augmentation, as when each is classified on its own.
            hidden = torch.stack([self.norm2(view) for view in hidden.unbind(1)], dim=1)
        if dropout is not None:
            hidden = dropout(hidden, self.hidden_dropout, "hidden")
        return self._graph(hidden @ self.weight2, operator) + self.bias2

    def forward(
        self, view: torch.Tensor, operator: SparseMatrix | None, dropout: Dropout | None = None
    ) -> torch.Tensor:
        """Return the logits (n, C) of one view of propagated features (n, d)."""
        return self.rest(self.first(view, dropout)[:, None], operator, dropout)[:, 0]

    def _graph(self, x: torch.Tensor, operator: SparseMatrix | None) -> torch.Tensor:
        if not self.graph_layers:
            return x
        assert operator is not None
        return (operator @ x.flatten(1)).view(x.shape)


class AttentionHead(nn.Module):
    """Two layers of graph attention (PyTorch Geometric's), with ELU between them.

    Attention coefficients are dropped at the rate of hidden dropout.
    """

    commutes = False
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
    ) -> None:
        super().__init__()
        # Half of the package's import time, for the one head that needs it.
        from torch_geometric.nn import GATConv

        if hidden % attention_heads:
            raise ValueError(
                f"hidden = {hidden} does not divide by attention_heads = {attention_heads}; "
                "make hidden a multiple of it"
            )
        width = hidden // attention_heads
        # The operator already holds every node's own entry.
        options = {"dropout": hidden_dropout, "add_self_loops": False}
        self.conv1 = GATConv(num_features, width, heads=attention_heads, **options)
        self.conv2 = GATConv(hidden, num_classes, heads=1, **options)
        self.input_dropout = input_dropout
        self.hidden_dropout = hidden_dropout

    def initialise(self, kind: str, stream: Stream) -> None:
        """Draw the weights as the layer's authors do, whatever ``kind`` says of linear layers."""
        with stream.torch_global():
            self.conv1.reset_parameters()
            self.conv2.reset_parameters()

    def forward(
        self, view: torch.Tensor, operator: SparseMatrix, dropout: Dropout | None = None
    ) -> torch.Tensor:
        """Return the logits (n, C) of one view of propagated features (n, d)."""
        edges = operator.edge_index()
        if dropout is not None:
            view = dropout(view, self.input_dropout, "input")
        hidden = torch.nn.functional.elu(self.conv1(view, edges))
        if dropout is not None:
            hidden = dropout(hidden, self.hidden_dropout, "hidden")
        logits: torch.Tensor = self.conv2(hidden, edges)
        return logits


Head = DenseHead | AttentionHead
