"""References from PyTorch Geometric: a GCN and a GAT, trained by code as its users write it.

``pyg-gcn`` and ``pyg-gat`` have neither input dropout nor attention dropout, which cost time.
``plain-gcn`` and ``plain-gat`` compute the same as our own GCN and GAT. A GCN normalises its
adjacency once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import nn

from dropnode.graph import Graph

HIDDEN = 32
ATTENTION_HEADS = 8
DROPOUT = 0.5


class PygTraining:
    """The training of a two-layer model of PyTorch Geometric on a graph.

    Parameters
    ----------
    name : {"pyg-gcn", "pyg-gat", "plain-gcn", "plain-gat"}
    graph : Graph
        With a split; features become dense, as those of PyTorch Geometric's own loader are.
    """

    def __init__(self, name: str, graph: Graph) -> None:
        assert graph.split is not None
        features = graph.features.toarray() if sp.issparse(graph.features) else graph.features
        edges = graph.adjacency.tocoo()
        self.x = torch.tensor(features, dtype=torch.float32)
        self.edges = torch.from_numpy(np.stack([edges.row, edges.col]).astype(np.int64))
        self.labels = torch.tensor(graph.labels)
        self.train_rows = torch.tensor(graph.split.train)
        self.val_rows = torch.tensor(graph.split.val)
        self.model = _MODELS[name](graph.num_features, graph.num_classes)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=5e-4)

    def epoch(self) -> dict[str, float]:
        """Take a step on the training nodes, then validate on the whole graph."""
        self.model.train()
        self.optimiser.zero_grad()
        loss = self._loss(self.model(self.x, self.edges), self.train_rows)
        loss.backward()
        self.optimiser.step()
        self.model.eval()
        with torch.no_grad():
            logits = self.model(self.x, self.edges)
            right = logits[self.val_rows].argmax(dim=1) == self.labels[self.val_rows]
            return {
                "loss": loss.item(),
                "val_loss": self._loss(logits, self.val_rows).item(),
                "val_accuracy": right.float().mean().item(),
            }

    def _loss(self, logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits[rows], self.labels[rows])


class _Gcn(nn.Module):
    def __init__(
        self,
        num_features: int,
        num_classes: int,
        hidden: int = HIDDEN,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        # Imported where it is used: it takes seconds, and most of the package does not need it.
        from torch_geometric.nn import GCNConv

        self.input_dropout = input_dropout
        self.conv1 = GCNConv(num_features, hidden, cached=True)
        self.conv2 = GCNConv(hidden, num_classes, cached=True)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        if self.input_dropout:
            x = F.dropout(x, self.input_dropout, self.training)
        hidden = F.dropout(F.relu(self.conv1(x, edges)), DROPOUT, self.training)
        logits: torch.Tensor = self.conv2(hidden, edges)
        return logits


class _Gat(nn.Module):
    def __init__(
        self,
        num_features: int,
        num_classes: int,
        hidden: int = HIDDEN,
        dropout: float = DROPOUT,
        dropout_everywhere: bool = False,
    ) -> None:
        super().__init__()
        from torch_geometric.nn import GATConv

        self.dropout, self.everywhere = dropout, dropout_everywhere
        heads, dropped = ATTENTION_HEADS, dropout if dropout_everywhere else 0.0
        self.conv1 = GATConv(num_features, hidden // heads, heads=heads, dropout=dropped)
        self.conv2 = GATConv(hidden, num_classes, heads=1, dropout=dropped)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        if self.everywhere:
            x = F.dropout(x, self.dropout, self.training)
        hidden = F.dropout(F.elu(self.conv1(x, edges)), self.dropout, self.training)
        logits: torch.Tensor = self.conv2(hidden, edges)
        return logits


_MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "pyg-gcn": _Gcn,
    "pyg-gat": _Gat,
    "plain-gcn": partial(_Gcn, hidden=16, input_dropout=0.5),
    "plain-gat": partial(_Gat, hidden=64, dropout=0.6, dropout_everywhere=True),
}
