"""GRAND and the baselines as a scikit-learn classifier."""

from dropnode.estimator.classifier import UNVALIDATED_EPOCHS, GrandClassifier

__all__ = ["UNVALIDATED_EPOCHS", "GrandClassifier"]
