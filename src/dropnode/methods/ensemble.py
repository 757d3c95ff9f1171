"""Ensemble: trainings of one method that differ in their seed, and predict together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.graph.arrays import Matrix
from dropnode.methods.base import NodeClassifier, Sizes
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.scaling import FeatureScaling
from dropnode.training import Phase, State


class Ensemble(NodeClassifier):
    """Predict the mean of the members' probabilities.

    Its members are trained one by one, so it has no training of its own.

    Parameters
    ----------
    members : sequence of NodeClassifier
        The same method with the same configuration, trained on the same graph.
    """

    name = "ensemble"

    def __init__(self, members: Sequence[NodeClassifier]) -> None:
        first = members[0]
        super().__init__(first.config, device=str(first.device))
        self.members = tuple(members)
        if hasattr(first, "scaling"):
            self._share(first)

    def _share(self, first: NodeClassifier) -> None:
        """Let all members read one copy of the graph, to which their scalings are fitted alike."""
        self.scaling, self.sizes, self.tensors = first.scaling, first.sizes, first.tensors
        for member in self.members:
            member.tensors = first.tensors

    @property
    def hops(self) -> int | None:
        """That of its members."""
        return self.members[0].hops

    def make_network(self, sizes: Sizes) -> nn.Module:
        """Refuse: only members are trained."""
        raise ConfigError("an ensemble is not trained as a whole; train its members")

    def phases(self) -> list[Phase]:
        """Return none: only members are trained."""
        return []

    def classify(self, tensors: GraphTensors) -> torch.Tensor:
        """Return the logarithms of the mean probabilities."""
        return _together([member.infer(tensors) for member in self.members])

    def infer(self, tensors: GraphTensors) -> torch.Tensor:
        """Return the logarithms of the mean probabilities."""
        return self.classify(tensors)

    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        """Return the logarithms of the mean probabilities of nodes; see ``NodeClassifier``."""
        return _together([member.logits(graph, rows) for member in self.members])

    def new_logits(
        self, features: Matrix, links: Matrix, among: Matrix | None = None
    ) -> torch.Tensor:
        """Return the logarithms of the mean probabilities of new nodes; see ``NodeClassifier``."""
        return _together([member.new_logits(features, links, among) for member in self.members])

    def state(self) -> State:
        """Return the weights of all members."""
        return {
            f"{number}/{name}": value
            for number, member in enumerate(self.members)
            for name, value in member.state().items()
        }

    def restore(self, graph: Graph, scaling: FeatureScaling, state: State) -> None:
        """Get ready to predict, with the scaling and the states of earlier trainings."""
        for number, member in enumerate(self.members):
            prefix = f"{number}/"
            own = {
                name.removeprefix(prefix): value
                for name, value in state.items()
                if name.startswith(prefix)
            }
            member.restore(graph, scaling, own)
        self._share(self.members[0])


def _together(logits: list[torch.Tensor]) -> torch.Tensor:
    """Return log-probabilities whose probabilities are the mean of those of all members."""
    return torch.stack([each.log_softmax(dim=1) for each in logits]).logsumexp(dim=0) - np.log(
        len(logits)
    )
