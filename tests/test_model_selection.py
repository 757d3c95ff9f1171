"""Model selection on a graph: nodes are cut into folds, and held-out labels stay unseen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.utils import check_random_state

from dropnode.errors import GraphError
from dropnode.estimator import GrandClassifier
from dropnode.graph import Graph
from dropnode.model_selection import TransductiveKFold


def quick(graph: Graph | None) -> GrandClassifier:
    return GrandClassifier(graph=graph, max_epochs=10, hidden=8, random_state=0)


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    """Labels of which half are unknown, and how many each class has."""
    rng = check_random_state(0)
    y = rng.randint(3, size=80)
    return np.where(rng.rand(80) < 0.5, y, -1), y


def test_each_label_is_held_out_once_and_rows_without_one_always_train(
    drawn: tuple[np.ndarray, np.ndarray],
) -> None:
    few, _ = drawn
    known, unknown = np.flatnonzero(few >= 0), np.flatnonzero(few < 0)
    folds = list(TransductiveKFold(4, shuffle=True, random_state=1).split(np.zeros(80), few))

    assert sorted(np.concatenate([held for _, held in folds])) == known.tolist()
    for train, held in folds:
        assert np.array_equal(np.sort(np.concatenate([train, held])), np.arange(80))
        assert set(unknown) <= set(train)
        # Stratified: a class has as many labels in one fold as in another, or one more.
        share = np.bincount(few[known]) / 4
        assert (np.abs(np.bincount(few[held], minlength=3) - share) < 1).all()


def test_too_few_labels_for_the_folds_are_refused() -> None:
    with pytest.raises(GraphError, match="3 rows have a label, too few for 5 folds"):
        next(TransductiveKFold().split(range(9), ["a", "b", "a", *[None] * 6]))


def test_a_grid_search_takes_nodes_of_a_graph(community: Graph) -> None:
    nodes, y = np.arange(community.num_nodes), community.labels.copy()
    y[::5] = -1
    search = GridSearchCV(quick(community), {"order": [1, 3]}, cv=TransductiveKFold(3)).fit(
        nodes, y
    )

    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    chosen = search.best_estimator_
    assert chosen.config_.order == search.best_params_["order"]
    # One graph for all fits, not a copy for each.
    assert chosen.graph is community
    assert np.array_equal(search.predict(nodes), chosen.transduction_)
    right = chosen.predict(nodes[y >= 0]) == y[y >= 0]
    assert search.score(nodes, y) == right.mean()


def test_scikit_learns_own_folds_and_scorers_work_too(community: Graph) -> None:
    nodes = np.arange(community.num_nodes)
    scores = cross_val_score(
        quick(community), nodes, community.labels, cv=3, scoring="balanced_accuracy"
    )
    assert np.isfinite(scores).all()
    column = nodes[:, None]
    again = cross_val_score(
        quick(community), column, community.labels, cv=3, scoring="balanced_accuracy"
    )
    assert np.array_equal(scores, again)


def test_labels_that_are_held_out_change_nothing(community: Graph) -> None:
    """Neither those in y nor those of the graph itself, in any fold."""
    nodes = np.arange(community.num_nodes)
    folds = list(TransductiveKFold(3).split(nodes, community.labels))
    for train, held in folds:
        other = community.labels.copy()
        other[held] = (other[held] + 1) % 3
        foreign = community.with_labels(other, community.class_names)

        def fitted(graph: Graph, y: np.ndarray, train: Any = train, held: Any = held) -> Any:
            found = cross_validate(
                quick(graph), nodes, y, cv=[(train, held)], return_estimator=True
            )
            return found["estimator"][0]

        model, blind = fitted(community, community.labels), fitted(foreign, other)
        assert np.array_equal(model.predict_proba(), blind.predict_proba())
        assert (model.graph_.labels[held] == -1).all()
        assert np.array_equal(model.graph_.labels[train], community.labels[train])


def test_features_and_edges_of_nodes_that_are_held_out_are_seen(community: Graph) -> None:
    train = np.arange(0, community.num_nodes, 2)
    y = community.labels[train]
    features = community.features.copy()
    features[1::2] += 1.0
    changed = Graph.from_scipy(community.adjacency, features)
    model, other = quick(community).fit(train, y), quick(changed).fit(train, y)

    assert model.graph_.num_nodes == community.num_nodes
    assert not np.array_equal(model.predict_proba(train), other.predict_proba(train))


def test_a_fold_is_predicted_as_fit_with_the_other_labels_predicts(community: Graph) -> None:
    nodes = np.arange(community.num_nodes)
    folds = list(TransductiveKFold(2).split(nodes, community.labels))
    found = cross_val_predict(
        quick(community), nodes, community.labels, cv=folds, method="predict_proba"
    )
    for train, held in folds:
        few = np.full(community.num_nodes, -1)
        few[train] = community.labels[train]
        bare = Graph.from_scipy(
            community.adjacency, community.features, few, class_names=community.class_names
        )
        model = quick(None).fit(bare)
        np.testing.assert_allclose(found[held], model.predict_proba()[held], rtol=1e-5)


def test_a_matrix_that_is_cut_by_rows_is_refused_with_the_cure(community: Graph) -> None:
    parts = community.features, community.labels
    search = GridSearchCV(quick(None), {"order": [1]}, cv=3)
    with pytest.raises(ValueError, match=r"GrandClassifier\(graph=Graph.from_scipy"):
        search.fit(*parts, graph=community.adjacency.toarray())
    with pytest.raises(ValueError, match=r"fit\(numpy.arange\(len\(X\)\), y\)"):
        search.fit(*parts, graph=community.adjacency)
