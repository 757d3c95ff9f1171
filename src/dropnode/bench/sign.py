"""SIGN with a perceptron: features after some hops, side by side, in scikit-learn.

Frasca et al., *SIGN: Scalable Inception Graph Neural Networks*, 2020, without attention. It is here
to compare with and not a method of the package.
"""

from __future__ import annotations

import warnings

import numpy as np

from dropnode.graph import Graph, Split
from dropnode.ops.propagation import normalise

SIGN = "sign"
"""Its name in results."""

HOPS = 3
"""How often features are propagated."""

HIDDEN = 64
"""Units of the perceptron's hidden layer."""

ROWS = 100_000
"""How many nodes are predicted at a time."""


def sign_predictions(graph: Graph, split: Split, seed: int = 0) -> np.ndarray:
    """Return the predicted class of every node, after a training on the training nodes."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    operator = normalise(graph.adjacency)
    powers = [np.asarray(graph.features, dtype=np.float32)]
    for _ in range(HOPS):
        powers.append(operator @ powers[-1])
    # Propagated features vary less, so each power is scaled by the training nodes' own spread.
    powers = [power / power[split.train].std() for power in powers]
    network = MLPClassifier((HIDDEN,), max_iter=200, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(np.hstack([x[split.train] for x in powers]), graph.labels[split.train])
    blocks = range(0, graph.num_nodes, ROWS)
    return np.concatenate(
        [network.predict(np.hstack([x[first : first + ROWS] for x in powers])) for first in blocks]
    )
