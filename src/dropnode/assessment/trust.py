"""How far to believe a model: a temperature, and sets of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dropnode.analysis.calibration import apply_temperature, fit_temperature
from dropnode.analysis.conformal import conformal_quantile, plain_scores
from dropnode.assessment.held_out import HeldOut
from dropnode.settings import Config, count, positive, rate, weight

ALPHA = 0.1
"""How often the set of a node may lack its true class."""


@dataclass(frozen=True)
class Trust(Config):
    """How far to believe a model, learnt from held-out labels.

    Attributes
    ----------
    temperature : divides logits, so that confidence is as high as accuracy
    quantile : a class is in the set of a node if its probability is at least one minus this
    coverage : how often a set should have the true class
    labels : how many labels it was learnt from
    """

    temperature: float = positive()
    quantile: float = weight()
    coverage: float = rate()
    labels: int = count()

    @classmethod
    def learn(cls, held: HeldOut) -> Trust:
        """Learn from held-out labels."""
        temperature = fit_temperature(held.logits, held.labels)
        shares = apply_temperature(held.logits, temperature)
        scores = plain_scores(shares)[np.arange(len(shares)), held.labels]
        # Above 1, where there are too few labels for the coverage, a set has all classes.
        quantile = min(conformal_quantile(scores, ALPHA), 1.0)
        return cls(temperature, quantile, 1 - ALPHA, len(held.nodes))

    def probabilities(self, logits: Any) -> np.ndarray:
        """Return calibrated probabilities."""
        return apply_temperature(logits, self.temperature)

    def sets(self, probabilities: np.ndarray) -> np.ndarray:
        """Return which classes are in the set of each node; the most probable one always is."""
        chosen = np.asarray(plain_scores(probabilities) <= self.quantile)
        chosen[np.arange(len(chosen)), probabilities.argmax(axis=1)] = True
        return chosen
