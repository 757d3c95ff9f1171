"""NodeClassifier: what methods share that read a graph as features and edges, and learn a network.

GRAND and the baselines are node classifiers; so models are saved, loaded, resumed and asked about
new nodes in one way, whatever the method.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from dropnode.errors import GraphError
from dropnode.graph import Graph, Split
from dropnode.graph.checks import Matrix
from dropnode.ops.propagation import Features, SparseMatrix, join, normalise
from dropnode.ops.randomness import Stream
from dropnode.ops.scaling import FeatureScaling
from dropnode.settings import Config
from dropnode.training import Method, Outcome, Phase, State
from dropnode.training.stopping import Stopping


@dataclass(frozen=True)
class Inputs:
    """A graph as methods read it.

    Attributes
    ----------
    features : Features
        Scaled; sparse if the method takes them so.
    operator : SparseMatrix
        Â, with every node's own entry.
    adjacency : Matrix
        Edge weights between the nodes of a graph.
    attachments : Matrix, optional
        Edge weights (new × old) from nodes of that graph to further ones that listen to it.
    """

    features: Features
    operator: SparseMatrix
    adjacency: Matrix
    attachments: Matrix | None = None

    @cached_property
    def edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(source, target) of every edge in each direction, without self-loops; their weights."""
        device = self.operator.values.device
        matrix = sp.csr_array(self.adjacency)
        if self.attachments is not None:
            matrix = join(matrix, self.attachments)
        entries = matrix.tocoo()
        target, source = (torch.from_numpy(end.astype(np.int64)) for end in entries.coords)
        weights = torch.from_numpy(entries.data.astype(np.float32))
        return torch.stack([source, target]).to(device), weights.to(device)

    @cached_property
    def looped_edges(self) -> torch.Tensor:
        """(source, target) of every entry of Â: the edges, and a self-loop of every node."""
        return self.operator.edge_index()


class NodeClassifier(Method):
    """A method with a configuration, a feature scaling and a network.

    Parameters
    ----------
    config : Config
        Of the method's ``config_type``, which has ``feature_scaling`` at least.
    class_weights : array of float, optional
        The weight of each class in the supervised loss.
    device : str
        Where tensors live, as torch names it.

    Attributes
    ----------
    name : str
        The name by which :func:`dropnode.methods.table.restore_method` makes the method again.
    config_type : type
    network : torch.nn.Module
        Everything learnt but the scaling.
    """

    name: ClassVar[str]
    config_type: ClassVar[type[Config]]
    network: Any  # an nn.Module; of its parts torch cannot tell modules from tensors

    def __init__(
        self, config: Any, *, class_weights: np.ndarray | None = None, device: str = "cpu"
    ) -> None:
        self.config = config
        self.device = torch.device(device)
        self.class_weights = (
            None
            if class_weights is None
            else torch.as_tensor(class_weights, dtype=torch.float32, device=self.device)
        )

    @abstractmethod
    def make_network(self, num_features: int, num_classes: int) -> nn.Module:
        """Return the network with initial weights, which torch's global generator may draw."""

    @abstractmethod
    def logits_of(self, inputs: Inputs, rows: np.ndarray | None = None) -> torch.Tensor:
        """Return deterministic logits on inputs that :meth:`read` made; of all nodes by default."""

    def prepare(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Scale the features, normalise the adjacency, make the network."""
        self.build(FeatureScaling.fit(self.config.feature_scaling, graph.features), graph)
        self.train_rows = torch.from_numpy(split.train.copy()).to(self.device)
        self.train_targets = torch.from_numpy(graph.labels[split.train]).to(self.device)
        self.validates = len(split.val) > 0

    def build(self, scaling: FeatureScaling, graph: Graph) -> None:
        """Make the parts that depend on the data; all that is missing then are the weights."""
        self.scaling = scaling
        self.num_features = graph.num_features
        self.network = self.make_network(graph.num_features, graph.num_classes).to(self.device)
        self.inputs = self.read(graph.adjacency, graph.features)

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
        operator = SparseMatrix.from_scipy(
            normalise(adjacency, attachments), self.device, symmetric=attachments is None
        )
        if self.takes_sparse(sp.issparse(scaled)):
            held: Features = SparseMatrix.from_scipy(scaled, self.device)
        else:
            dense = scaled.toarray() if sp.issparse(scaled) else np.asarray(scaled, np.float32)
            # A graph's own arrays are read-only, which torch does not know; what scaling made is
            # ours.
            owned = dense if dense.flags.writeable else dense.copy()
            held = torch.from_numpy(owned).to(self.device)
        return Inputs(held, operator, adjacency, attachments)

    def takes_sparse(self, sparse: bool) -> bool:
        """Whether features are to be held sparse, given whether they come so."""
        return sparse

    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        """Return deterministic logits of the training graph or of another."""
        inputs = self.inputs if graph is None else self.read(graph.adjacency, graph.features)
        return self.logits_of(inputs, rows)

    def until_validated(self, name: str, optimiser: torch.optim.Optimizer) -> Phase:
        """Return a phase that ends as the configuration says, or runs whole if none validates."""
        rule = self.config.stopping if self.validates else "never"
        stopping = Stopping(rule, self.config.patience)
        return Phase(name, optimiser, self.config.max_epochs, stopping)

    def trained_as_long(self, outcome: Outcome) -> Config:
        """Return the configuration that trains without validation as long as this training did."""
        config: Config = self.config.replace(max_epochs=outcome.epochs)
        return config

    def state(self) -> State:
        """Return the weights of the network."""
        return dict(self.network.state_dict())

    def load_state(self, state: State) -> None:
        """Take over weights."""
        self.network.load_state_dict(state)
