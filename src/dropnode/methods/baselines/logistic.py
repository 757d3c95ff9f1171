"""Logistic regression on ĀX: features averaged over the neighbourhood, and a linear classifier.

A lower bound for every method: propagation alone, without a network, augmentations or agreement.
scikit-learn fits it; of a few strengths of the penalty, the one with the highest validation
accuracy is kept, the strongest of equals, and without validation the middle one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from dropnode.graph import Graph, Split
from dropnode.methods.base import Sizes
from dropnode.methods.baselines.closed_form import NEVER, ClosedForm, ClosedFormConfig
from dropnode.methods.baselines.pyg_layers import Linear
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.propagation import mixed_order, propagated_rows
from dropnode.ops.randomness import Stream
from dropnode.settings import repeats

INVERSE_PENALTIES = (1.0, 10.0, 100.0, 1e3, 1e4)
"""The values tried for scikit-learn's C, strongest penalty first."""


@dataclass(frozen=True, kw_only=True)
class LogisticConfig(ClosedFormConfig):
    """Settings of logistic regression.

    Attributes
    ----------
    order : propagation steps of Ā [K]
    """

    order: int = repeats(least=0)


class Logistic(ClosedForm):
    """A linear classifier of propagated features."""

    name = "logistic"
    config_type = LogisticConfig
    config: LogisticConfig
    reads_stored = True

    @property
    def hops(self) -> int:
        """One hop per propagation step."""
        return self.config.order

    def make_network(self, sizes: Sizes) -> Linear:
        """Return a linear map."""
        return Linear(sizes.features, sizes.classes)

    def prepare_training(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Fit the linear map."""
        propagated = self._propagated(np.concatenate([split.train, split.val]))
        train, val = np.split(propagated, [len(split.train)])
        weights = None if self.train_weights is None else self.train_weights.cpu().numpy()
        targets, held = graph.labels[split.train], graph.labels[split.val]
        best, chosen = -1.0, INVERSE_PENALTIES[len(INVERSE_PENALTIES) // 2]
        for inverse in INVERSE_PENALTIES if len(held) else ():
            accuracy = self._fitted(train, targets, inverse, weights).score(val, held)
            if accuracy > best:
                best, chosen = accuracy, inverse
        model = self._fitted(train, targets, chosen, weights)
        coefficients, intercept = model.coef_, model.intercept_
        if len(model.classes_) == 2:
            # scikit-learn keeps the second class alone.
            coefficients = np.vstack([-coefficients, coefficients]) / 2
            intercept = np.concatenate([-intercept, intercept]) / 2
        with torch.no_grad():
            self.network.weight.zero_()
            self.network.bias.fill_(NEVER)
            self.network.weight[model.classes_] = torch.from_numpy(coefficients).float()
            self.network.bias[model.classes_] = torch.from_numpy(intercept).float()

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Map, then propagate: fewer columns, the same result."""
        product = tensors.features @ self.network.weight.T
        return mixed_order(tensors.operator, product, self.config.order) + self.network.bias

    def _propagated(self, rows: np.ndarray) -> np.ndarray:
        wanted = torch.from_numpy(rows).to(self.device)
        tensors = self.tensors
        found = propagated_rows(tensors.operator, tensors.features, wanted, self.config.order)
        return found.double().cpu().numpy()

    @staticmethod
    def _fitted(
        features: np.ndarray,
        targets: np.ndarray,
        inverse: float,
        weights: np.ndarray | None,
    ) -> LogisticRegression:
        return LogisticRegression(C=inverse, max_iter=1000).fit(features, targets, weights)
