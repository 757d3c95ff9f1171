"""Cross-validation with few labels: every row is seen, and only known labels are held out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from dropnode.errors import GraphError
from dropnode.graph.labels import UNKNOWN, encode_labels


class TransductiveKFold(StratifiedKFold):
    """Stratified folds of the labelled rows; rows without a label train in every fold.

    scikit-learn's own folds would hold unlabelled rows out as a class of their own, which takes
    them away from training and leaves less to score. Here, each labelled row is held out once, and
    nothing else is.

    The rows are nodes of a graph that was given to the constructor of the classifier. All of its
    nodes and edges are then seen in every fold, and only labels are held out: transductive
    learning. For a table without a graph, rows that are held out are new ones to the classifier.

    Parameters
    ----------
    n_splits, shuffle, random_state
        As of :class:`sklearn.model_selection.StratifiedKFold`.

    Examples
    --------
    >>> for train, test in TransductiveKFold(2).split([0, 1, 2, 3, 4], ["a", "b", None, "a", "b"]):
    ...     print(train, test)
    [2 3 4] [0 1]
    [0 1 2] [3 4]

    Labels choose the order of propagation:

    >>> from sklearn.model_selection import GridSearchCV
    >>> from dropnode import GrandClassifier, load_dataset
    >>> graph = load_dataset("sbm", nodes=300, classes=3)
    >>> nodes, y = graph.split.train, graph.labels[graph.split.train]
    >>> model = GrandClassifier(graph=graph, max_epochs=5, random_state=0)
    >>> search = GridSearchCV(model, {"order": [1, 4]}, cv=TransductiveKFold(3)).fit(nodes, y)
    >>> search.best_estimator_.predict().shape
    (300,)
    """

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the positions of the rows that train and of those held out.

        Parameters
        ----------
        X : sequence
            One item per row; only their number is read.
        y : sequence
            A label per row; -1, None or NaN where it is unknown.
        groups
            Ignored.
        """
        codes, _ = encode_labels(y)
        known = codes != UNKNOWN
        labelled, others = np.flatnonzero(known), np.flatnonzero(~known)
        if len(labelled) < self.n_splits:
            raise GraphError(
                f"{len(labelled):,} rows have a label, too few for {self.n_splits} folds; label "
                "more, or ask for fewer folds"
            )
        for train, held in super().split(labelled, codes[labelled]):
            yield np.sort(np.concatenate([labelled[train], others])), labelled[held]
