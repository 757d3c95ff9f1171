"""The same features, held dense or sparse, give the same model."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dropnode.estimator import GrandClassifier
from dropnode.graph import Graph
from dropnode.methods.table import METHODS, make_method
from dropnode.training import train

SHORT = {"max_epochs": 2}


@pytest.mark.parametrize("zeros", [0, 30], ids=["mostly values", "mostly zeros"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_the_same_of_dense_and_of_sparse_features(
    community: Graph, name: str, zeros: int
) -> None:
    raw = np.hstack([community.features + 0.5, np.zeros((community.num_nodes, zeros))])
    raw[:, 9:20] += np.eye(community.num_nodes, max(min(zeros, 11), 0))
    found = []
    for features in (raw, sp.csr_array(raw)):
        graph = Graph.from_scipy(
            community.adjacency, features, community.labels, split=community.split
        )
        made = make_method(name, None)
        if "max_epochs" in made.config:
            made = make_method(name, None, changes=SHORT)
        train(made.method, graph, seed=3)
        new = made.method.new_logits(features[:2], community.adjacency[:2])
        found.append((made.method.scaling.kind, made.method.logits().numpy(), new.numpy()))
    assert found[0][0] == found[1][0]
    for one, other in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_array_equal(one, other)


def test_tables_are_joined_alike(community: Graph) -> None:
    words = np.hstack([community.features, np.zeros((community.num_nodes, 20))])
    few = np.where(np.arange(len(words)) % 3, -1, community.labels)
    found = []
    for features in (words, sp.csr_array(words)):
        model = GrandClassifier(random_state=0, max_epochs=3).fit(features, few)
        found.append(np.vstack([model.predict_proba(), model.predict_proba(features[:3] * 2)]))
    np.testing.assert_array_equal(*found)
