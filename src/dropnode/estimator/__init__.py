"""GRAND and the baselines as a scikit-learn classifier."""

from dropnode.estimator.classifier import GrandClassifier
from dropnode.estimator.parameters import UNVALIDATED_EPOCHS

__all__ = ["UNVALIDATED_EPOCHS", "GrandClassifier"]
