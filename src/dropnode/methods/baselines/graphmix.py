"""GraphMix: a GCN that shares its weights with a fully-connected network trained by mixup.

Verma et al., *GraphMix: Improved Training of GNNs for Semi-Supervised Learning*, AAAI 2021. There
is one set of weights. With Â between its layers it is a GCN, which classifies; without, it is a
fully-connected network that reads single nodes. In every epoch a coin decides the loss:

- the cross-entropy of the GCN on the labelled nodes (``supervised``), or
- manifold mixup in the fully-connected network. Hidden rows of labelled nodes are mixed with each
  other, and their labels alike (``mixed``); so are those of as many other nodes, with pseudo-labels
  that the GCN gives them: the mean of several predictions under dropout, sharpened
  (``mixed_unlabelled``). The loss is the binary cross-entropy of every class, and the second counts
  by a weight that grows with the epochs.

As in the authors' code, layers have no bias, all weights decay, dropout is on the features alone,
that weight is e⁻⁵ of its final value before it starts to grow, and features tell whether a word
occurs, not how often: on Pubmed, TF-IDF values in their place cost two points of validation
accuracy (three seeds). They report the test accuracy of the latest epoch with the best validation
accuracy, as the loop does; a moving average of weights that they keep is never used, and is left
out.

Deviations: weights start from Glorot uniform values. Class weights, where given, count in both
supervised losses. If only some nodes are needed, only their neighbourhood is computed: the result
is that of the whole graph, at a fraction of the cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import nn

from dropnode.errors import ConfigError
from dropnode.graph import Graph, Split
from dropnode.methods.base import Sizes
from dropnode.methods.baselines.base import Baseline, BaselineConfig, Parts, drop_features
from dropnode.methods.baselines.pyg_layers import Linear
from dropnode.methods.grand.objective import sharpen
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.ops.selection import feature_rows
from dropnode.ops.sparse_matrix import Features, SparseMatrix
from dropnode.settings import count, positive, rate, repeats, share, temperature, weight, width
from dropnode.training import Phase


@dataclass(frozen=True, kw_only=True)
class GraphMixConfig(BaselineConfig):
    """Further settings.

    Attributes
    ----------
    hidden : width of the hidden layer
    dropout : of the features
    auxiliary_share : probability that an epoch trains the fully-connected network
    concentration : both parameters of the Beta distribution that mixing shares come from [α]
    guesses : noisy predictions that a pseudo-label is the mean of [K]
    temperature : of their sharpening [T]
    unlabelled_weight : of the loss of mixed pseudo-labels, once it has grown
    ramp_start, ramp_end : epochs between which that weight grows
    """

    hidden: int = width()
    dropout: float = rate()
    auxiliary_share: float = share()
    concentration: float = positive()
    guesses: int = repeats()
    temperature: float = temperature()
    unlabelled_weight: float = weight()
    ramp_start: int = count(least=0)
    ramp_end: int = count(least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ramp_end < self.ramp_start:
            raise ConfigError(
                f"ramp_end = {self.ramp_end} comes before ramp_start = {self.ramp_start}; "
                "expected a ramp that ends where it starts, or later"
            )


@dataclass(frozen=True)
class Field:
    """The neighbourhood that two convolutions read to classify some nodes.

    Attributes
    ----------
    features : Features
        Of the nodes within two hops.
    near : SparseMatrix
        The part of Â that takes these to the nodes within one hop.
    own : SparseMatrix
        The part of Â that takes the latter to the nodes themselves.
    """

    features: Features
    near: SparseMatrix
    own: SparseMatrix


@dataclass(frozen=True)
class Mixing:
    """How rows are mixed: a share of each, and the rest from its partner."""

    share: float
    partners: torch.Tensor

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the rows mixed."""
        return self.share * rows + (1.0 - self.share) * rows[self.partners]


class GraphMix(Baseline):
    """A GCN, and the same weights without a graph."""

    name = "graphmix"
    config_type = GraphMixConfig
    config: GraphMixConfig

    def make_network(self, sizes: Sizes) -> nn.ModuleDict:
        """Return the weights of both networks, and how many epochs they have been trained for."""
        network = nn.ModuleDict(
            {
                "first": Linear(sizes.features, self.config.hidden, bias=False),
                "last": Linear(self.config.hidden, sizes.classes, bias=False),
            }
        )
        network.register_buffer("epochs", torch.zeros((), dtype=torch.int64))
        return network

    @property
    def hops(self) -> int:
        """One hop per layer."""
        return 2

    def prepare_training(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Find the nodes without a known label, and the neighbourhood of those with one."""
        self.unlabelled = np.setdiff1d(np.arange(graph.num_nodes), split.train)
        self.operator = self.tensors.operator.to_scipy()
        self.train_field = self.field(split.train)

    def field(self, rows: np.ndarray) -> Field:
        """Return the neighbourhood of some nodes of the training graph."""
        own, near = _filled_columns(self.operator, rows)
        hop, far = _filled_columns(self.operator, near)
        matrices = (SparseMatrix.from_scipy(matrix, self.device) for matrix in (hop, own))
        return Field(feature_rows(self.tensors.features, far), *matrices)

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Return the logits of the GCN."""
        field = Field(tensors.features, tensors.operator, tensors.operator)
        return self.convolve(field, [stream])[:, 0]

    def convolve(self, field: Field, streams: Sequence[Stream | None]) -> torch.Tensor:
        """Return logits (nodes, streams, classes) of the GCN for nodes with this neighbourhood."""
        first, last = self.network["first"], self.network["last"]
        rate, views = self.config.dropout, len(streams)
        # One product with Â for all views, side by side.
        x = torch.cat([first(drop_features(field.features, rate, at)) for at in streams], dim=1)
        hidden = torch.relu(field.near @ x).unflatten(1, (views, -1))
        return (field.own @ last(hidden).flatten(1)).unflatten(1, (views, -1))

    def batches(self, phase: Phase, stream: Stream) -> Iterable[int]:
        """Return one full batch: the number of epochs before this one."""
        before = int(self.network.epochs)
        self.network.epochs += 1
        return [before]

    def loss(self, batch: int, stream: Stream) -> tuple[torch.Tensor, Parts]:
        """Return the loss of the GCN or of the fully-connected network, as a coin decides."""
        self.network.train()
        if stream.at("coin").generator().random() >= self.config.auxiliary_share:
            supervised = self.supervised(self.convolve(self.train_field, [stream])[:, 0])
            return supervised, {"supervised": supervised}
        train = self.train_rows.cpu().numpy()
        known = F.one_hot(self.train_targets, self.network["last"].out_channels).float()
        parts = {"mixed": self.mixed_loss(train, known, stream.at("labelled"), self.train_weights)}
        loss = parts["mixed"]
        if len(self.unlabelled):
            drawn = self.draw_unlabelled(stream)
            guessed = self.guess(drawn, stream)
            parts["mixed_unlabelled"] = self.mixed_loss(drawn, guessed, stream.at("unlabelled"))
            loss = loss + self.ramp(batch) * parts["mixed_unlabelled"]
        return loss, parts

    def draw_unlabelled(self, stream: Stream) -> np.ndarray:
        """Draw as many other nodes as there are training nodes, with replacement."""
        return stream.at("drawn").generator().choice(self.unlabelled, size=len(self.train_rows))

    def ramp(self, epoch: int) -> float:
        """Return the weight of mixed pseudo-labels after so many epochs."""
        config = self.config
        length = max(config.ramp_end - config.ramp_start, 1)
        done = min(max((epoch - config.ramp_start) / length, 0.0), 1.0)
        return config.unlabelled_weight * math.exp(-5.0 * (1.0 - done) ** 2)

    @torch.no_grad()
    def guess(self, rows: np.ndarray, stream: Stream) -> torch.Tensor:
        """Return pseudo-labels: the mean of noisy predictions of the GCN, sharpened."""
        streams = [stream.at("guess", number) for number in range(self.config.guesses)]
        noisy = self.convolve(self.field(rows), streams).softmax(dim=2)
        return sharpen(noisy.mean(dim=1), self.config.temperature)

    def mixing(self, rows: int, stream: Stream) -> Mixing:
        """Draw a share and partners for so many rows."""
        rng = stream.at("mixing").generator()
        share = float(rng.beta(self.config.concentration, self.config.concentration))
        return Mixing(share, torch.from_numpy(rng.permutation(rows)).to(self.device))

    def connect(self, features: Features, mixing: Mixing | None = None) -> torch.Tensor:
        """Return the logits of the fully-connected network, its hidden layer mixed if asked for."""
        hidden = torch.relu(self.network["first"](features))
        logits: torch.Tensor = self.network["last"](mixing(hidden) if mixing else hidden)
        return logits

    def mixed_loss(
        self,
        rows: np.ndarray,
        targets: torch.Tensor,
        stream: Stream,
        weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the loss of the fully-connected network on nodes mixed with each other.

        Weights of the nodes are mixed as their targets are.
        """
        mixing = self.mixing(len(rows), stream)
        features = feature_rows(self.tensors.features, rows)
        features = drop_features(features, self.config.dropout, stream)
        predicted = self.connect(features, mixing).softmax(dim=1)
        mixed = mixing(targets)
        losses = F.binary_cross_entropy(predicted, mixed, reduction="none").mean(dim=1)
        if weights is None:
            return losses.mean()
        weights = mixing(weights)
        return (losses * weights).sum() / weights.sum()


def _filled_columns(operator: sp.csr_array, rows: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """Return some rows of an operator without their empty columns, and which are left."""
    chosen = operator[rows]
    columns, places = np.unique(chosen.indices, return_inverse=True)
    shape = (len(rows), len(columns))
    return sp.csr_array((chosen.data, places, chosen.indptr), shape=shape), columns
