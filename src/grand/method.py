"""Grand: perturb → propagate → classify → agree, composed into one Method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from grand.config import GrandConfig
from grand.graph import Graph, Split
from grand.inputs import GraphError, Matrix
from grand.nn import AttentionHead, DenseHead, Head
from grand.objective import consistency_loss, supervised_loss
from grand.perturb import PERTURBATIONS, Augmentation
from grand.propagation import Features, SparseMatrix, mixed_order, normalise, propagated_rows
from grand.randomness import Dropout, Stream
from grand.scaling import FeatureScaling
from grand.training import Method, Phase, State, Stopping


@dataclass(frozen=True)
class Inputs:
    """A graph as the method reads it: scaled features, and Â."""

    features: Features
    operator: SparseMatrix


class Grand(Method):
    """Graph random neural network.

    Parameters
    ----------
    config : GrandConfig
    class_weights : array of float, optional
        The weight of each class in the supervised loss.
    device : str
        Where tensors live, as torch names it.
    """

    def __init__(
        self,
        config: GrandConfig,
        *,
        class_weights: np.ndarray | None = None,
        device: str = "cpu",
    ) -> None:
        self.config = config
        self.device = torch.device(device)
        self.perturbation = PERTURBATIONS[config.perturbation](
            config.drop_rate, config.mask_scaling
        )
        self.class_weights = (
            None
            if class_weights is None
            else torch.as_tensor(class_weights, dtype=torch.float32, device=self.device)
        )

    def prepare(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Scale the features, normalise the adjacency, draw the initial weights."""
        self.build(FeatureScaling.fit(self.config.feature_scaling, graph.features), graph)
        self.head.initialise(self.config.initialisation, stream)
        self.head.to(self.device)
        self.train_rows = torch.from_numpy(split.train.copy()).to(self.device)
        self.train_targets = torch.from_numpy(graph.labels[split.train]).to(self.device)
        self.validates = len(split.val) > 0

    def build(self, scaling: FeatureScaling, graph: Graph) -> None:
        """Make the parts that depend on the data; all that is missing then are the weights."""
        config = self.config
        self.scaling = scaling
        self.num_features = graph.num_features
        sizes = graph.num_features, graph.num_classes, config.hidden
        rates = config.input_dropout, config.hidden_dropout
        self.head: Head
        if config.head == "gat":
            self.head = AttentionHead(*sizes, *rates, attention_heads=config.attention_heads)
        else:
            convolves = config.head == "gcn"
            self.head = DenseHead(
                *sizes, *rates, batch_norm=config.batch_norm, graph_layers=convolves
            )
        self.inputs = self.read(graph.adjacency, graph.features)
        self._propagated: tuple[np.ndarray, torch.Tensor] | None = None

    def read(
        self, adjacency: Matrix, features: Matrix, attachments: Matrix | None = None
    ) -> Inputs:
        """Turn a graph's matrices into what the method computes with."""
        if features.shape[1] != self.num_features:
            raise GraphError(
                f"the graph has {features.shape[1]:,} features a node; the model was trained with "
                f"{self.num_features:,}; use the same columns in the same order"
            )
        scaled = self.scaling.apply(features)
        operator = SparseMatrix.from_scipy(normalise(adjacency, attachments), self.device)
        if sp.issparse(scaled) and self.head.commutes:
            return Inputs(SparseMatrix.from_scipy(scaled, self.device), operator)
        # Without the exchange, propagation fills the features in anyway.
        dense = scaled.toarray() if sp.issparse(scaled) else np.asarray(scaled)
        return Inputs(torch.tensor(dense, dtype=torch.float32, device=self.device), operator)

    def phases(self) -> list[Phase]:
        """Return GRAND's one phase: Adam on everything, until the validation says stop."""
        config = self.config
        optimiser = torch.optim.Adam(
            self.head.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        rule = config.stopping if self.validates else "never"
        return [Phase("train", optimiser, config.max_epochs, Stopping(rule, config.patience))]

    def loss(self, batch: None, stream: Stream) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Classify S augmentations, and compare them with the labels and with each other."""
        self.head.train()
        config = self.config
        streams = [stream.at("augmentation", s) for s in range(config.augmentations)]
        views = [
            self.perturbation.draw(s.at("perturbation"), self.inputs.operator, self.inputs.features)
            for s in streams
        ]
        logs = self.classify(self.inputs, views, streams).log_softmax(dim=-1)
        supervised = supervised_loss(
            logs[self.train_rows], self.train_targets, config.reduction, self.class_weights
        )
        if config.consistency_weight == 0:
            return supervised, {"supervised": supervised}
        consistency = consistency_loss(logs, config.temperature, config.reduction)
        total = supervised + config.consistency_weight * consistency
        return total, {"supervised": supervised, "consistency": consistency}

    def classify(
        self, inputs: Inputs, views: list[Augmentation], streams: list[Stream] | None = None
    ) -> torch.Tensor:
        """Return the logits (n, S, C) of S views; with streams, dropout is on."""
        if isinstance(self.head, DenseHead) and self.head.commutes:
            dropout = Dropout(streams) if streams else None
            hidden = _multiply_first(inputs.features, self.head.weight1, views, self.config.order)
            return self.head.rest(hidden, inputs.operator, dropout)
        logits = []
        for s, view in enumerate(views):
            propagated = _propagate_first(inputs.features, view, self.config.order)
            dropout = Dropout([streams[s]]) if streams else None
            logits.append(self.head(propagated, inputs.operator, dropout))
        return torch.stack(logits, dim=1)

    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        """Return logits on unperturbed features, of the training graph or of another."""
        if graph is not None:
            return self.logits_of(self.read(graph.adjacency, graph.features), rows)
        if rows is None or self.head.graph_layers:
            return self.logits_of(self.inputs, rows)
        # ĀX never changes, and a perceptron reads only its own row: keep the rows asked for.
        if self._propagated is None or not np.array_equal(self._propagated[0], rows):
            wanted = torch.from_numpy(rows.copy()).to(self.device)
            view = self.perturbation.inference(self.inputs.operator)
            kept = propagated_rows(view.operator, self.inputs.features, wanted, self.config.order)
            self._propagated = rows.copy(), kept * view.scale
        self.head.eval()
        with torch.no_grad():
            return self.head(self._propagated[1], None)

    @torch.no_grad()
    def logits_of(self, inputs: Inputs, rows: np.ndarray | None = None) -> torch.Tensor:
        """Return logits on inputs that :meth:`read` made."""
        self.head.eval()
        view = self.perturbation.inference(inputs.operator)
        logits = self.classify(inputs, [view])[:, 0]
        return logits if rows is None else logits[torch.from_numpy(rows.copy()).to(self.device)]

    def state(self) -> State:
        """Return the weights of the head."""
        return dict(self.head.state_dict())

    def load_state(self, state: State) -> None:
        """Take over weights."""
        self.head.load_state_dict(state)


def _multiply_first(
    features: Features, weight: torch.Tensor, views: list[Augmentation], order: int
) -> torch.Tensor:
    """Return Ā(mask ⊙ X W) of every view as (n, S, h); views of one operator share products."""
    product = None
    masked = []
    for view in views:
        if product is None or view.element_mask is not None:
            product = view.mask_elements(features) @ weight
        masked.append(view.mask_rows(product))
    nodes, hidden = masked[0].shape
    if all(view.operator is views[0].operator for view in views):
        propagated = mixed_order(views[0].operator, torch.cat(masked, dim=1), order)
        return propagated.view(nodes, len(views), hidden)
    pairs = zip(views, masked, strict=True)
    return torch.stack([mixed_order(view.operator, x, order) for view, x in pairs], dim=1)


def _propagate_first(features: Features, view: Augmentation, order: int) -> torch.Tensor:
    """Return Ā(mask ⊙ X) of one view as (n, d)."""
    masked = view.mask_elements(features)
    assert isinstance(masked, torch.Tensor)
    return mixed_order(view.operator, view.mask_rows(masked), order)
