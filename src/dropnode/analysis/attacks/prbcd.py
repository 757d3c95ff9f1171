"""PRBCD and GRBCD: attacks on the edges of graphs that are too large for Metattack.

Geisler et al., *Robustness of Graph Neural Networks at Scale*, NeurIPS 2021, as PyTorch Geometric
implements it: of all pairs of nodes, a random block at a time may become edges of fractional
weight, and the weights follow the gradient of a loss. PRBCD projects them onto the budget and draws
edges from them at last; GRBCD flips the pairs of largest gradient in every step.

The loss is that of a surrogate on the nodes outside the training set. Their labels are never read,
but guessed by a graph convolutional network that was trained on the clean graph and validated by
the validation nodes. In an evasion attack it is the surrogate, too. In a poisoning attack that is
the linear one of Metattack, trained anew on every graph that is considered, and the gradient goes
through its training.

The budget is an upper bound, and a node may lose its last edge; both are so in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from dropnode.analysis.attacks.flips import (
    Flip,
    Watch,
    apply_flips,
    budget,
    cached_flips,
    check_attackable,
    fingerprint,
)
from dropnode.analysis.attacks.surrogate import Weights, initial_weights, transposed, unrolled
from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.memory import check_memory
from dropnode.methods.base import NodeClassifier
from dropnode.methods.table import make_method
from dropnode.ops.propagation import feature_columns, units
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import Features, SparseMatrix
from dropnode.settings import MOST_REPEATS, Config, choice, count, positive, seed
from dropnode.training import train

REVISION = 2
"""Raised when a change of code changes the flips of the same graph, options and seed."""

STEPS = 100
"""Steps of gradient descent that the surrogate of a poisoning attack is trained for."""

GATHERED = 250_000
"""How many numbers of messages exist at a time in the gradient of edge weights: as many as caches
hold."""


@dataclass(frozen=True)
class Prbcd(Config):
    """Options of PRBCD and GRBCD.

    Attributes
    ----------
    rate : most flips, as a fraction of the clean graph's edges
    variant : ``"prbcd"``, by projection, or ``"grbcd"``, greedy
    threat : ``"poisoning"``, of a model that is trained on the attacked graph, or ``"evasion"``, of
        a model that was trained before
    loss : as PyTorch Geometric calls it
    epochs : steps of the attack; PRBCD draws new blocks in the first four fifths
    block : pairs of nodes that are considered at a time
    seed : of the surrogate and of the blocks
    """

    rate: float = positive(most=MOST_REPEATS)
    variant: str = choice("prbcd", "grbcd", default="prbcd")
    threat: str = choice("poisoning", "evasion", default="poisoning")
    loss: str = choice("prob_margin", "tanh_margin", "margin", "masked", default="tanh_margin")
    epochs: int = count(default=125)
    block: int = count(default=250_000, most=100_000_000)
    seed: int = seed(default=0)


def prbcd(graph: Graph, options: Prbcd, watch: Watch | None = None) -> Graph:
    """Return a graph whose edges PRBCD or GRBCD has changed.

    Parameters
    ----------
    graph : Graph
        With a split; edges have no weights.
    options : Prbcd
    watch : callable, optional
        Told about every epoch.
    """
    wanted = checked_block(graph, options)
    flips = cached_flips(
        # Validation chooses the epoch of the network that guesses the other labels.
        fingerprint(graph, "prbcd", REVISION, options.identity(), reads=("train", "val")),
        wanted,
        lambda _: find_flips(graph, options, wanted, watch),
        nodes=graph.num_nodes,
        resumes=False,
    )
    return apply_flips(graph, flips)


def checked_block(graph: Graph, options: Prbcd) -> int:
    """Return the number of flips; an error if the graph cannot be attacked so."""
    check_attackable(graph, "PRBCD")
    wanted = budget(graph, options.rate)
    if options.block <= wanted:
        raise ConfigError(
            f"block = {options.block:,} pairs of nodes, for {wanted:,} flips; raise block above it"
        )
    # The weight, the gradient and the two ends of every pair, at least.
    check_memory(24 * options.block, "the attack", "lower block")
    return wanted


def find_flips(graph: Graph, options: Prbcd, wanted: int, watch: Watch | None = None) -> list[Flip]:
    """Return at most ``wanted`` flips. Nothing is read from the cache or written to it.

    Examples
    --------
    >>> from dropnode import load_dataset
    >>> graph = load_dataset("sbm", nodes=200, classes=4)
    >>> options = Prbcd(rate=0.05, epochs=3, block=500, threat="evasion")
    >>> len(find_flips(graph, options, wanted=50)) <= 50
    True
    """
    assert graph.split is not None
    clean = _trained_gcn(graph, options.seed)
    guesses = clean.logits().argmax(dim=1).cpu()
    others = np.setdiff1d(np.arange(graph.num_nodes), graph.split.train)
    steps = 0

    def tell() -> None:
        nonlocal steps
        steps += 1
        if watch:
            watch(min(steps, options.epochs), options.epochs)

    surrogate: _Surrogate = (
        _Fixed(clean, tell)
        if options.threat == "evasion"
        else _Retrained(graph, clean.tensors.features, Stream(options.seed).at("start"), tell)
    )
    kind, more = _library().GRBCDAttack, {}
    if options.variant == "prbcd":
        kind = _library().PRBCDAttack
        more = {"epochs_resampling": max(1, 4 * options.epochs // 5)}
    attack = kind(surrogate, options.block, options.epochs, loss=options.loss, log=False, **more)
    entries = graph.adjacency.tocoo()
    edges = torch.from_numpy(np.stack(entries.coords).astype(np.int64))
    with Stream(options.seed).at("prbcd").torch_global():
        changed, _ = attack.attack(
            surrogate.inputs, edges, guesses, wanted, torch.from_numpy(others)
        )
    return _difference(graph.adjacency, changed.cpu().numpy())


@cache
def _library() -> ModuleType:
    """Return PyTorch Geometric's module of these attacks.

    It is loaded by its file. The package around it warns, when it is imported, that everything in
    it may change. Ignoring that warning would change the filters of warnings, which all threads of
    the process share.
    """
    import torch_geometric

    file = Path(torch_geometric.__file__).parent / "contrib/nn/models/rbcd_attack.py"
    spec = spec_from_file_location("torch_geometric_rbcd_attack", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Surrogate(nn.Module):
    """What the library attacks: from edges and their weights to log-probabilities.

    Attributes
    ----------
    inputs : tensor (N, h)
        What the library hands over as features.
    """

    inputs: torch.Tensor

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self.tell = tell

    def forward(self, x: torch.Tensor, edges: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of all nodes."""
        # The library asks for gradients once per epoch, and beyond that for values.
        if torch.is_grad_enabled():
            self.tell()
        return F.log_softmax(self.logits(x, Operator(edges, weights, len(x))), dim=1)

    def logits(self, x: torch.Tensor, operator: Operator) -> torch.Tensor:
        """Return logits of all nodes on a graph."""
        raise NotImplementedError


class _Fixed(_Surrogate):
    """A graph convolutional network that was trained on the clean graph."""

    def __init__(self, gcn: NodeClassifier, tell: Callable[[], None]) -> None:
        super().__init__(tell)
        first, second = gcn.network
        self.second = second.lin.weight.detach().T.contiguous()
        self.biases = first.bias.detach(), second.bias.detach()
        # The weights are constants, and so are the features times them.
        self.inputs = (gcn.tensors.features @ first.lin.weight.detach().T).contiguous()

    def logits(self, x: torch.Tensor, operator: Operator) -> torch.Tensor:
        hidden = torch.relu(operator @ x + self.biases[0])
        return operator @ (hidden @ self.second) + self.biases[1]


class _Retrained(_Surrogate):
    """A linear graph convolutional network, trained anew on every graph it is asked about.

    Its training needs the rows of Â² X that belong to labelled nodes. Two hops give them from X,
    or, because Â is symmetric, from columns of the identity: whichever has fewer columns.
    """

    def __init__(
        self, graph: Graph, features: Features, stream: Stream, tell: Callable[[], None]
    ) -> None:
        super().__init__(tell)
        assert graph.split is not None
        self.train_nodes = torch.from_numpy(graph.split.train.copy())
        labels = torch.from_numpy(graph.labels[graph.split.train])
        self.targets = F.one_hot(labels, graph.num_classes).float()
        self.features = features
        self.start: Weights = initial_weights(
            features.shape[1], 16, graph.num_classes, stream.generator()
        )
        self.by_features = features.shape[1] < len(labels)
        if self.by_features:
            self.inputs = feature_columns(features, 0, features.shape[1])
        else:
            self.inputs = units(self.train_nodes, graph.num_nodes)

    def logits(self, x: torch.Tensor, operator: Operator) -> torch.Tensor:
        smoothed = operator @ (operator @ x)
        if self.by_features:
            weights = self._trained(smoothed[self.train_nodes])
            return smoothed @ weights.first @ weights.second
        weights = self._trained((transposed(self.features) @ smoothed).T)
        hidden = self.features @ weights.first
        return (operator @ (operator @ hidden)) @ weights.second

    def _trained(self, inputs: torch.Tensor) -> Weights:
        return unrolled(inputs, self.targets, self.start, STEPS, rate=0.1, momentum=0.9)


class Operator:
    """Â of weighted edges, as a function of their weights.

    Parameters
    ----------
    edges : tensor of int (2, E)
        Both directions of every edge.
    weights : tensor (E,)
        The same in both directions.
    nodes : int
    """

    def __init__(self, edges: torch.Tensor, weights: torch.Tensor, nodes: int) -> None:
        self.edges, self.weights, self.nodes = edges, weights, nodes
        degrees = torch.ones(nodes).index_add(0, edges[0], weights)
        self.scale = degrees.rsqrt()[:, None]

    def __matmul__(self, x: torch.Tensor) -> torch.Tensor:
        scaled = self.scale * x
        gathered: torch.Tensor = _Gather.apply(self.edges, self.weights, scaled, self.nodes)
        return self.scale * (gathered + scaled)


class _Gather(torch.autograd.Function):
    """The product of a symmetric weighted adjacency matrix and x, with gradients for both."""

    @staticmethod
    def forward(
        ctx: Any, edges: torch.Tensor, weights: torch.Tensor, x: torch.Tensor, nodes: int
    ) -> torch.Tensor:
        entries = sp.coo_array((weights.detach().numpy(), tuple(edges.numpy())), (nodes, nodes))
        ctx.matrix = SparseMatrix.from_scipy(entries.tocsr(), symmetric=True)
        ctx.save_for_backward(edges, x)
        return ctx.matrix @ x.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor, torch.Tensor, None]:
        edges, x = ctx.saved_tensors
        by_weights = [
            (gradient[target] * x[source]).sum(dim=1)
            for target, source in edges.split(max(1, GATHERED // x.shape[1]), dim=1)
        ]
        return None, torch.cat(by_weights), ctx.matrix @ gradient, None


def _trained_gcn(graph: Graph, seed: int) -> NodeClassifier:
    method = make_method("gcn", None).method
    train(method, graph, seed=seed)
    return method


def _difference(clean: sp.csr_array, edges: np.ndarray) -> list[Flip]:
    """Return the pairs in which a list of edges differs from a graph."""
    ones = np.ones(edges.shape[1], np.float32)
    changed = sp.csr_array((ones, tuple(edges)), shape=clean.shape)
    low, high = sp.triu(changed != clean, k=1).nonzero()
    return list(zip(low.tolist(), high.tolist(), strict=True))
