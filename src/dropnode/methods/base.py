"""NodeClassifier: the parts that methods share which read features and edges and learn a network.

GRAND and the baselines are node classifiers. Models are therefore trained, saved, loaded, resumed
and asked about new nodes in one way, whatever the method. A subclass supplies a few hooks::

    make_network(sizes)                     the network, with initial weights
    classify(tensors)                       logits of every node of a graph, without randomness
    hops                                    how many hops away a node's logits look
    prepare_training(graph, split, stream)  optional: what training needs besides, drawn or computed
    sparse_features                         optional: whether features are held sparse

and the loop's ``phases`` and ``loss``.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import nn

from dropnode.errors import ConfigError, GraphError
from dropnode.graph import Graph, Split
from dropnode.graph.arrays import Matrix, held_like, lighter
from dropnode.graph.mapped import is_mapped
from dropnode.memory import check_memory
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.kernels.threads import settle
from dropnode.ops.randomness import Stream
from dropnode.ops.scaling import FeatureScaling
from dropnode.ops.selection import feature_rows, row_entries, select_columns
from dropnode.ops.sparse_matrix import Features, SparseMatrix, shared
from dropnode.ops.stored import StoredFeatures
from dropnode.settings import Config, shown
from dropnode.training import Method, Outcome, Phase, State
from dropnode.training.stopping import Stopping


@dataclass(frozen=True)
class Sizes:
    """The sizes of the training graph that a network may depend on."""

    nodes: int
    features: int
    classes: int


class NodeClassifier(Method):
    """A method with a configuration, a feature scaling and a network.

    Parameters
    ----------
    config : Config
        An instance of the method's ``config_type``, which has ``feature_scaling`` at least.
    class_weights : array of float, optional
        The weight of each class in the supervised loss.
    node_weights : array of float, optional
        The weight of each node of the training graph in it, besides that of its class. A weight
        of 2 counts as much as a loss term that occurs twice.
    device : str
        Where tensors live, as torch names it.

    Attributes
    ----------
    name : str
        The name by which :func:`dropnode.methods.table.restore_method` makes the method again.
    config_type : type
    scaling : FeatureScaling
        Fitted to the training graph.
    network : torch.nn.Module
        Everything learnt but the scaling.
    tensors : GraphTensors
        The training graph.
    train_weights : tensor or None
        The weight of each training node, the product of both; None if all are equal.
    """

    name: ClassVar[str]
    config_type: ClassVar[type[Config]]
    network: Any  # an nn.Module; of its parts torch cannot tell modules from tensors

    def __init__(
        self,
        config: Any,
        *,
        class_weights: np.ndarray | None = None,
        node_weights: np.ndarray | None = None,
        device: str = "cpu",
    ) -> None:
        settle()
        self.config = config
        self.device = usable_device(device)
        self.class_weights = (
            None if class_weights is None else _class_weights(class_weights).to(self.device)
        )
        self.node_weights = (
            None if node_weights is None else _node_weights(node_weights).to(self.device)
        )

    @abstractmethod
    def make_network(self, sizes: Sizes) -> nn.Module:
        """Return the network with initial weights, which torch's global generator may draw."""

    @abstractmethod
    def classify(self, tensors: GraphTensors) -> torch.Tensor:
        """Return logits of every node of a graph, without randomness."""

    @property
    def hops(self) -> int | None:
        """How many hops away from a node its logits look; None for the whole graph."""
        return None

    @property
    def sparse_features(self) -> bool | None:
        """Whether features are held sparse; None holds them in the lighter form."""
        return None

    reads_stored: ClassVar[bool] = False
    """Whether the method only multiplies features and selects from them, so that those of a mapped
    graph can stay in their file. For other methods they are read into memory."""

    def prepare_training(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Compute or draw what training needs besides the network and the graph."""

    def prepare(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Fit the scaling, make the network, and get ready to train."""
        sizes = Sizes(graph.num_nodes, graph.num_features, graph.num_classes)
        check_memory(
            self.least_memory(sizes), "training", "lower hidden, or the number of views or heads"
        )
        self._set_up(
            graph, FeatureScaling.fit(self.config.feature_scaling, lighter(graph.features))
        )
        self.train_rows = torch.from_numpy(split.train.copy()).to(self.device)
        self.train_targets = torch.from_numpy(graph.labels[split.train]).to(self.device)
        self.train_weights = self._train_weights()
        self.validates = len(split.val) > 0
        self.prepare_training(graph, split, stream)

    def _train_weights(self) -> torch.Tensor | None:
        if self.node_weights is None:
            return None if self.class_weights is None else self.class_weights[self.train_targets]
        if len(self.node_weights) != self.sizes.nodes:
            raise ConfigError(
                f"{len(self.node_weights):,} node weights for {self.sizes.nodes:,} nodes; give "
                "one per node"
            )
        weights = self.node_weights[self.train_rows]
        if not weights.any():
            raise ConfigError("the weights of all training nodes are zero; raise some")
        if self.class_weights is not None:
            weights = weights * self.class_weights[self.train_targets]
        return weights

    def least_memory(self, sizes: Sizes) -> int:
        """Return the fewest bytes that training can take, which depends on the hidden layer alone.

        These are the first weights with their gradients and Adam's two moments, and the hidden
        units of every node in every view, with their gradients.
        """
        keys = {name: getattr(self.config, name) for name in self.config.names()}
        hidden = keys.get("hidden", 0)
        units = (sum(hidden) if isinstance(hidden, tuple) else hidden) * keys.get("heads", 1)
        views = keys.get("augmentations", 1)
        return int(4 * units * (4 * sizes.features + 2 * sizes.nodes * views))

    def restore(self, graph: Graph, scaling: FeatureScaling, state: State) -> None:
        """Get ready to predict, with the scaling and the state of an earlier training."""
        # The weights that a network starts with are replaced at once: drawing them should not
        # advance the user's generator.
        with Stream(0).torch_global() if self.draws_from_torch else nullcontext():
            self._set_up(graph, scaling)
        self.load_state(state)

    def _set_up(self, graph: Graph, scaling: FeatureScaling) -> None:
        sizes = Sizes(graph.num_nodes, graph.num_features, graph.num_classes)
        self.scaling, self.sizes = scaling, sizes
        self._raw = lighter(graph.features)[:0]
        self.network = self.make_network(sizes).to(self.device)
        self.tensors = self.tensors_of(graph)

    def tensors_of(self, graph: Graph) -> GraphTensors:
        """Return a graph in the form that the method computes with."""
        return GraphTensors(self.held(graph.features), graph.adjacency)

    def held(self, features: Matrix) -> Features:
        """Return raw features scaled, as tensors, sparse if the method wants them so."""
        settle()
        if features.shape[1] != self.sizes.features:
            raise GraphError(
                f"the graph has {features.shape[1]:,} features per node, but the model was trained "
                f"with {self.sizes.features:,}; use the same columns in the same order"
            )
        if is_mapped(features):
            if self.reads_stored and self.device.type == "cpu":
                return cast(Features, StoredFeatures(features, self.scaling))
            size = 8 * features.shape[0] * features.shape[1]
            check_memory(size, "reading all features", "use the method grand-plus")
            features = np.array(features, dtype=np.float32)
        # Whether raw features are dense or sparse must not depend on the form in which they come:
        # the two are scaled, and summed, in another way.
        scaled = self.scaling.apply(held_like(features, self._raw))
        sparse = self.sparse_features
        if sp.issparse(scaled) if sparse is None else sparse:
            return SparseMatrix.from_scipy(scaled, self.device)
        dense = scaled.toarray() if sp.issparse(scaled) else np.asarray(scaled, np.float32)
        return shared(dense).to(self.device)

    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        """Return deterministic logits of nodes of the training graph or of another.

        The cost of some ``rows`` is that of the neighbourhood within :attr:`hops` of them.
        """
        settle()
        tensors = self.tensors if graph is None else self.tensors_of(graph)
        if rows is None:
            return self.infer(tensors)
        if not len(rows):
            return torch.empty(0, self.sizes.classes, device=self.device)
        places = rows
        if self.hops is not None:
            tensors, places = tensors.around(rows, self.hops)
        return self.infer(tensors)[torch.from_numpy(places.copy()).to(self.device)]

    def new_logits(
        self, features: Matrix, links: Matrix, among: Matrix | None = None
    ) -> torch.Tensor:
        """Return deterministic logits of new nodes that are linked to the training graph.

        New nodes receive messages but send none to the training graph, so nothing changes for it.
        The logits of a new node depend on the new nodes that it is joined to, directly or through
        others, and on no other new node. They are bit-identical whatever the others are, unless
        the method reads the whole graph.

        Parameters
        ----------
        features : ndarray or csr_array (new, features)
            Raw features.
        links : csr_array (new, nodes)
            Weights of the edges from nodes of the training graph to new ones.
        among : csr_array (new, new), optional
            Weights of the edges between new nodes, symmetric.
        """
        held, links = self.held(features), sp.csr_array(links)
        known = self.tensors
        if self.hops is None:
            return self.infer(known.joined_by(held, links, among))[known.num_nodes :]
        logits = torch.empty(links.shape[0], self.sizes.classes, device=self.device)
        for rows in _joined_rows(links.shape[0], among):
            # Each on its own: with others in the same matrices, a sum would round differently.
            senders = links.indices[row_entries(links, rows)[0]]
            nodes = known.reached(senders, self.hops - 1) if self.hops else senders[:0]
            joined = known.part(nodes).joined_by(
                feature_rows(held, rows),
                select_columns(links, nodes, rows=rows),
                None if among is None or len(rows) == 1 else among[rows][:, rows],
            )
            logits[torch.from_numpy(rows)] = self.infer(joined)[-len(rows) :]
        return logits

    @torch.no_grad()
    def infer(self, tensors: GraphTensors) -> torch.Tensor:
        """Return deterministic logits of every node of a graph."""
        self.network.eval()
        return self.classify(tensors)

    def until_validated(self, name: str, optimiser: torch.optim.Optimizer) -> Phase:
        """Return a phase with the configured stopping rule; all epochs if nothing validates."""
        rule = self.config.stopping if self.validates else "never"
        stopping = Stopping(rule, self.config.patience)
        return Phase(name, optimiser, self.config.max_epochs, stopping)

    def trained_as_long(self, outcome: Outcome) -> Config:
        """Return the configuration that trains, without validation, as long as this training."""
        config: Config = self.config.replace(max_epochs=outcome.epochs)
        return config

    def state(self) -> State:
        """Return the weights of the network."""
        return dict(self.network.state_dict())

    def load_state(self, state: State) -> None:
        """Load the weights of the network."""
        self.network.load_state_dict(state)


def _joined_rows(count: int, among: Matrix | None) -> list[np.ndarray]:
    """Return new rows in groups that edges join, each group in order."""
    if among is None:
        return [np.array([row]) for row in range(count)]
    _, group = sp.csgraph.connected_components(among, directed=False)
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if count else []


def cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    weights: torch.Tensor | None,
    whole: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the mean cross-entropy of some nodes, weighted if they have weights.

    Nodes that are a part of a batch, perhaps none of it, are given the sum of ``whole`` weights of
    the batch. The results of all parts then add up to the mean over the batch.
    """
    if weights is None:
        return F.cross_entropy(logits, targets)
    losses = F.cross_entropy(logits, targets, reduction="none")
    whole = weights.sum() if whole is None else whole
    # A batch may have no weight at all, and then no loss.
    return (losses * weights).sum() / whole.clamp_min(torch.finfo(weights.dtype).tiny)


def usable_device(name: str) -> torch.device:
    """Return a device on which tensors can be made and read, or raise :class:`ConfigError`."""
    try:
        torch.zeros(1, device=name).cpu()
        return torch.device(name)
    # For a name of another type, an unknown name, a build without the device, and a backend that
    # lacks an operation.
    except (TypeError, RuntimeError, AssertionError, ImportError) as error:
        reason = re.split(r"\n|\. ", str(error))[0]
        raise ConfigError(
            f"device {shown(name)} cannot be used here ({reason}); use 'cpu'"
        ) from error


def _class_weights(given: np.ndarray) -> torch.Tensor:
    weights = torch.as_tensor(given, dtype=torch.float32)
    for code, weight in enumerate(weights.tolist()):
        if not 0 < weight < math.inf:
            raise ConfigError(
                f"the weight of class {code} is {weight:g}; expected a finite number above 0"
            )
    return weights


def _node_weights(given: np.ndarray) -> torch.Tensor:
    weights = torch.as_tensor(given, dtype=torch.float32)
    wrong = ~(torch.isfinite(weights) & (weights >= 0))
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise ConfigError(
            f"the weight of node {at} is {weights[at]:g}; expected a finite number of at least 0"
        )
    return weights
