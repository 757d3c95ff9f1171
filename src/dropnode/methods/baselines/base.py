"""Baseline: a network trained full-batch, and the settings that most baselines have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dropnode.methods.base import NodeClassifier, cross_entropy
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.perturb import dropped, entry_mask
from dropnode.ops.randomness import Dropout, Stream
from dropnode.ops.scaling import CHOICES
from dropnode.ops.sparse_matrix import Features, SparseMatrix
from dropnode.settings import Config, choice, count, positive, weight
from dropnode.training import Phase
from dropnode.training.optimiser import Adam

Parts = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class BaselineConfig(Config):
    """Settings of every trained baseline.

    Attributes
    ----------
    feature_scaling : how features are scaled, see :class:`dropnode.ops.scaling.FeatureScaling`
    learning_rate : learning rate of Adam, unless the baseline has another optimiser
    weight_decay : coupled weight decay, on what :meth:`Baseline.decayed` returns
    stopping : when training stops and which epoch is kept, see
        :class:`dropnode.training.Stopping`
    patience : epochs without progress before training stops
    max_epochs : the most epochs to run; exactly so many if nothing validates
    """

    feature_scaling: str = choice(*CHOICES)
    learning_rate: float = positive()
    weight_decay: float = weight()
    stopping: str = choice("loss", "loss-or-accuracy", "accuracy", "never")
    patience: int = count()
    max_epochs: int = count()


class Baseline(NodeClassifier):
    """A network that is trained full-batch, by Adam, on the cross-entropy of the labelled nodes.

    A subclass defines the network and how it classifies; :meth:`loss` too, if it has another
    objective.
    """

    @abstractmethod
    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Return logits of all nodes: as in training with a stream, else without randomness."""

    def decayed(self) -> Iterable[nn.Parameter]:
        """Return the parameters that weight decay applies to; all by default."""
        return self.network.parameters()

    def optimiser(self) -> torch.optim.Optimizer:
        """Return the optimiser of a phase that trains the whole network."""
        decayed = list(self.decayed())
        chosen = {id(parameter) for parameter in decayed}
        free = [p for p in self.network.parameters() if id(p) not in chosen]
        groups = [
            {"params": decayed, "weight_decay": self.config.weight_decay},
            {"params": free, "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        return Adam(groups, lr=self.config.learning_rate, fused=True)

    def phases(self) -> list[Phase]:
        """Return one phase."""
        return [self.until_validated("train", self.optimiser())]

    def loss(self, batch: Any, stream: Stream) -> tuple[torch.Tensor, Parts]:
        """Return the cross-entropy of the labelled nodes."""
        self.network.train()
        supervised = self.supervised(self.classify(self.tensors, stream)[self.train_rows])
        return supervised, {"supervised": supervised}

    def supervised(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy of the labelled nodes, given their logits."""
        return cross_entropy(logits, self.train_targets, self.train_weights)


def drop(x: torch.Tensor, rate: float, stream: Stream | None, place: str) -> torch.Tensor:
    """Return a dense matrix with entries dropped; ``place`` names the layer."""
    return x if stream is None else Dropout([stream])(x, rate, place)


def drop_features(features: Features, rate: float, stream: Stream | None) -> Features:
    """Return features with entries dropped; sparse features have a draw per stored entry."""
    if stream is None or rate == 0:
        return features
    if isinstance(features, SparseMatrix):
        kept = entry_mask(stream.at("input"), features, rate)
        return dropped(features, kept, 1.0 / (1.0 - rate))
    return drop(features, rate, stream, "input")
