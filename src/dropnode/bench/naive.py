"""Naive GRAND: a literal implementation of the paper's Algorithm 2 in plain torch.

It is the reference of the benchmark and an oracle of the tests; nothing else uses it. Products are
COO products on all features, masks come from torch's own generator, and validation propagates the
features again in each epoch, as in the code that the authors released. It is not made slower than
that code: where the next line can write in place, no buffer is made.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from dropnode.errors import ConfigError
from dropnode.graph import Graph, Split
from dropnode.methods.grand.config import GrandConfig
from dropnode.methods.grand.heads import DenseHead
from dropnode.ops.propagation import normalise
from dropnode.ops.randomness import Stream
from dropnode.ops.scaling import FeatureScaling
from dropnode.training import Method, Phase, State
from dropnode.training.stopping import Stopping


class NaiveGrand(Method):
    """GRAND with DropNode or DropEdge and a perceptron or graph-convolution head.

    Parameters
    ----------
    config : GrandConfig
    """

    def __init__(self, config: GrandConfig) -> None:
        if config.perturbation == "dropout" or config.head == "gat":
            raise ConfigError(
                f"the naive path has no {config.perturbation} with head {config.head}; "
                "use dropnode or dropedge, and mlp or gcn"
            )
        self.config = config

    def prepare(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Make the features dense and Â a COO matrix, and draw the initial weights."""
        config = self.config
        scaled = FeatureScaling.fit(config.feature_scaling, graph.features).apply(graph.features)
        dense = scaled.toarray() if sp.issparse(scaled) else np.asarray(scaled)
        self.features = torch.tensor(dense, dtype=torch.float32)
        adjacency = normalise(graph.adjacency).tocoo()
        self.adjacency = torch.sparse_coo_tensor(
            torch.from_numpy(np.stack([adjacency.row, adjacency.col]).astype(np.int64)),
            torch.from_numpy(adjacency.data),
            adjacency.shape,
            check_invariants=False,
        ).coalesce()
        # Only the parameters and their initialisation are the package's own; the passes are below.
        head = DenseHead(
            graph.num_features,
            graph.num_classes,
            config.hidden,
            config.input_dropout,
            config.hidden_dropout,
            batch_norm=config.batch_norm,
            graph_layers=config.head == "gcn",
        )
        head.initialise(config.initialisation, stream)
        self.head = head
        self.train_rows = torch.from_numpy(split.train.copy())
        self.train_targets = torch.from_numpy(graph.labels[split.train])
        self.validates = len(split.val) > 0

    def phases(self) -> list[Phase]:
        """Return the only phase: Adam on all parameters, until validation stops it."""
        config = self.config
        optimiser = torch.optim.Adam(
            self.head.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        rule = config.stopping if self.validates else "never"
        return [Phase("train", optimiser, config.max_epochs, Stopping(rule, config.patience))]

    def loss(self, batch: None, stream: Stream) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss of lines 2 to 10 of Algorithm 2: S views, their losses, consistency."""
        config = self.config
        self.head.train()
        views = []
        for s in range(config.augmentations):
            place = stream.at("augmentation", s)
            views.append(self.classify(self.augment(place), place).log_softmax(dim=1))
        reduction = config.reduction
        losses = [
            F.nll_loss(view[self.train_rows], self.train_targets, reduction=reduction)
            for view in views
        ]
        supervised = torch.stack(losses).mean()
        if config.consistency_weight == 0:
            return supervised, {"supervised": supervised}
        probabilities = torch.stack(views).exp()
        with torch.no_grad():
            power = probabilities.mean(dim=0).pow(1.0 / config.temperature)
            target = power / power.sum(dim=1, keepdim=True)
        distances = (probabilities - target).pow(2).sum(dim=2).mean(dim=0)
        consistency = distances.mean() if reduction == "mean" else distances.sum()
        total = supervised + config.consistency_weight * consistency
        return total, {"supervised": supervised, "consistency": consistency}

    def augment(self, stream: Stream) -> torch.Tensor:
        """Draw a view of the features and propagate it."""
        config = self.config
        kept = 1.0 / (1.0 - config.drop_rate) if config.mask_scaling == "training" else 1.0
        if config.perturbation == "dropnode":
            masked = self.features * self.keep_nodes(stream).mul_(kept)[:, None]
            return self.propagate(self.adjacency, masked)
        adjacency = torch.sparse_coo_tensor(
            self.adjacency.indices(),
            self.adjacency.values() * self.keep_edges(stream).mul_(kept),
            self.adjacency.shape,
            check_invariants=False,
            is_coalesced=True,
        )
        return self.propagate(adjacency, self.features.clone())

    def propagate(self, adjacency: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Turn X into 1/(K+1) Σ Âᵏ X in place, by one product per hop on all features."""
        order = self.config.order
        spare = [torch.empty_like(features) for _ in range(min(order, 2))]
        power = features
        for hop in range(order):
            power = torch.mm(adjacency, power, out=spare[hop % 2])
            features.add_(power)
        return features.div_(order + 1)

    def classify(self, x: torch.Tensor, stream: Stream | None = None) -> torch.Tensor:
        """Return the logits of propagated features; with a stream, dropout is on."""
        head, config = self.head, self.config
        if head.norm1 is not None:
            x = head.norm1(x)
        if stream is not None:
            x = self.dropout(x, config.input_dropout, stream, "input")
        x = F.relu(self.convolve(x @ head.weight1) + head.bias1)
        if head.norm2 is not None:
            x = head.norm2(x)
        if stream is not None:
            x = self.dropout(x, config.hidden_dropout, stream, "hidden")
        return self.convolve(x @ head.weight2) + head.bias2

    def convolve(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply by Â if the head is a graph convolution."""
        return torch.sparse.mm(self.adjacency, x) if self.config.head == "gcn" else x

    def keep_nodes(self, stream: Stream) -> torch.Tensor:
        """Draw the nodes that a view keeps, as zeros and ones."""
        return torch.bernoulli(torch.full((len(self.features),), 1.0 - self.config.drop_rate))

    def keep_edges(self, stream: Stream) -> torch.Tensor:
        """Draw the entries of Â that a view keeps, as zeros and ones."""
        entries = self.adjacency.values()
        return torch.bernoulli(torch.full_like(entries, 1.0 - self.config.drop_rate))

    def dropout(self, x: torch.Tensor, rate: float, stream: Stream, place: str) -> torch.Tensor:
        """Apply dropout to a layer's input."""
        return F.dropout(x, rate)

    @torch.no_grad()
    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        """Propagate the unperturbed features and classify every node."""
        if graph is not None:
            raise ConfigError("the naive path predicts its training graph only; give no graph")
        config = self.config
        self.head.eval()
        kept = 1.0 - config.drop_rate if config.mask_scaling == "inference" else 1.0
        if config.perturbation == "dropnode":
            propagated = self.propagate(self.adjacency, self.features * kept)
        else:
            propagated = self.propagate(self.adjacency * kept, self.features.clone())
        logits = self.classify(propagated)
        return logits if rows is None else logits[torch.from_numpy(rows)]

    def state(self) -> State:
        """Return the weights."""
        return dict(self.head.state_dict())

    def load_state(self, state: State) -> None:
        """Load weights."""
        self.head.load_state_dict(state)
