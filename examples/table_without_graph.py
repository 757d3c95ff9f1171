"""A table without a graph: digits with five labels each, beside scikit-learn's own classifiers.

GRAND joins each row to its nearest rows, so that rows without a label help. scikit-learn's
semi-supervised classifiers do so too; its others see the labelled rows alone.

    python examples/table_without_graph.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import LabelSpreading

from dropnode import GrandClassifier

LABELS_PER_CLASS = 5


def main() -> None:
    """Fit each classifier to the same fifty labels and print its accuracy on the other rows."""
    X, y = (part[:1000] for part in load_digits(return_X_y=True))
    X = X / 16.0
    known = np.concatenate([np.flatnonzero(y == digit)[:LABELS_PER_CLASS] for digit in range(10)])
    few = np.full(len(y), -1)
    few[known] = y[known]
    unseen = few == -1

    for model in (
        LogisticRegression(max_iter=1000),
        KNeighborsClassifier(3),
        HistGradientBoostingClassifier(min_samples_leaf=2, max_iter=20),
    ):
        model.fit(X[known], y[known])
        tell(f"{type(model).__name__}, labelled rows alone", model.predict(X[unseen]), y[unseen])
    for model in (
        LabelSpreading(kernel="knn", n_neighbors=10),
        GrandClassifier(random_state=0, max_epochs=60),
    ):
        model.fit(X, few)
        tell(f"{type(model).__name__}, all rows", model.transduction_[unseen], y[unseen])


def tell(name: str, predicted: np.ndarray, actual: np.ndarray) -> None:
    """Print an accuracy."""
    print(f"{name:52} {100 * np.mean(predicted == actual):.1f} %")


if __name__ == "__main__":
    main()
