"""A quick comparison of methods on held-out labels: features alone, edges alone, and both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dropnode.assessment import HeldOut, hold_out, share_interval
from dropnode.estimator import GrandClassifier
from dropnode.graph import Graph

EPOCHS = 100
"""How long GRAND is trained: long enough to tell it from a method that suits better."""

WHAT: Mapping[str, str] = MappingProxyType(
    {
        "grand": "features and edges",
        "grand-no-cr": "the same, views need not agree",
        "logistic": "features alone",
        "label-propagation": "edges alone",
    }
)
"""The methods that are compared, and what each learns from."""

DOUBT = 0.05
"""A difference that chance alone would make as often as this is not told."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """What methods predict for the same held-out labels.

    Attributes
    ----------
    held : mapping
        The held-out predictions of each method.
    """

    held: Mapping[str, HeldOut]

    def accuracy(self, method: str) -> float:
        """Return the share of held-out labels that a method predicts."""
        return float(self.held[method].correct.mean())

    def better(self, method: str, than: str) -> bool:
        """Return whether a method is right more often than another, beyond chance.

        The test is McNemar's, exact: of the labels that only one of the two predicts, more than
        half are those of the better one.
        """
        # Imported here: it takes a second.
        from scipy.stats import binomtest

        one, other = self.held[method].correct, self.held[than].correct
        wins, losses = int((one & ~other).sum()), int((other & ~one).sum())
        if wins <= losses:
            return False
        return bool(binomtest(wins, wins + losses, alternative="greater").pvalue < DOUBT)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        found = {}
        for name, held in self.held.items():
            hits, of = int(held.correct.sum()), len(held.nodes)
            interval = list(share_interval(hits, of))
            found[name] = {"accuracy": hits / of, "interval": interval, "labels": of}
        return found


def compare(graph: Graph, seed: int = 0, feature_scaling: str = "auto") -> Comparison | None:
    """Train methods without a part of the labels and let them predict it, in turn for each part.

    None if the labels are too few: fewer than two classes have two.
    """
    held: dict[str, HeldOut] = {}
    for name in WHAT:
        found = hold_out(_classifier(name, seed, feature_scaling), graph, seed)
        if found is None:
            return None
        held[name] = found
    return Comparison(held)


def features_alone(seed: int, **parameters: Any) -> GrandClassifier:
    """Return a classifier that reads no edges: logistic regression without propagation."""
    return GrandClassifier("default", method="logistic", order=0, random_state=seed, **parameters)


def _classifier(name: str, seed: int, feature_scaling: str) -> GrandClassifier:
    # Without validation, which a number of epochs makes needless; consistency is what is compared.
    shared: dict[str, Any] = {"validation_fraction": None, "feature_scaling": feature_scaling}
    if name == "logistic":
        return features_alone(seed, **shared)
    parameters = {"method": name, "random_state": seed} | shared
    if name == "grand":
        parameters["consistency_weight"] = 1.0
    if name.startswith("grand"):
        parameters["max_epochs"] = EPOCHS
    return GrandClassifier("default", **parameters)
