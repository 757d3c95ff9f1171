"""SGC: simple graph convolution.

Wu et al., *Simplifying Graph Convolutional Networks*, ICML 2019. A GCN without what lies between
its layers: softmax(Âᴷ X W), logistic regression on features that are propagated K times.

As the authors do, features are propagated once, but only the rows of training and validation nodes
are kept: an epoch costs these rows, whatever the size of the graph. For predictions of all nodes, W
comes first, Â(Â(XW)), because a few classes are propagated faster than many features. As in the
authors' code the logits have a bias, which the paper does not write, and which is decayed like the
weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dropnode.graph import Graph, Split
from dropnode.methods.base import Sizes
from dropnode.methods.baselines.base import Baseline, BaselineConfig, Parts
from dropnode.methods.baselines.pyg_layers import Linear
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.propagation import power_rows
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import Features, compact
from dropnode.settings import repeats


@dataclass(frozen=True, kw_only=True)
class SGCConfig(BaselineConfig):
    """Settings of SGC.

    Attributes
    ----------
    steps : propagation steps [K]
    """

    steps: int = repeats()


class SGC(Baseline):
    """A linear classifier of propagated features."""

    name = "sgc"
    config_type = SGCConfig
    config: SGCConfig
    reads_stored = True

    @property
    def hops(self) -> int:
        """One hop per propagation step."""
        return self.config.steps

    def make_network(self, sizes: Sizes) -> Linear:
        """Return a linear map."""
        return Linear(sizes.features, sizes.classes)

    def prepare_training(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Propagate what training and validation need."""
        self.watched = np.concatenate([split.train, split.val])
        self.watched_rows = self._propagated(self.watched)
        self.seen = compact(self.watched_rows[: len(split.train)])

    def loss(self, batch: Any, stream: Stream) -> tuple[torch.Tensor, Parts]:
        """Return the cross-entropy of the labelled nodes."""
        supervised = self.supervised(self._map(self.seen))
        return supervised, {"supervised": supervised}

    def watch(self, rows: np.ndarray) -> Callable[[], torch.Tensor]:
        """Return a function that returns the current logits of some nodes; it keeps their ÂᴷX."""
        known = np.array_equal(rows, self.watched)
        propagated = compact(self.watched_rows if known else self._propagated(rows))
        return lambda: self._map(propagated)

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Map, then propagate."""
        x = tensors.features @ self.network.weight.T
        for _ in range(self.config.steps):
            x = tensors.operator @ x
        return x + self.network.bias

    def _propagated(self, rows: np.ndarray) -> torch.Tensor:
        wanted = torch.from_numpy(rows).to(self.device)
        return power_rows(self.tensors.operator, self.tensors.features, wanted, self.config.steps)

    def _map(self, propagated: Features) -> torch.Tensor:
        logits: torch.Tensor = propagated @ self.network.weight.T + self.network.bias
        return logits
