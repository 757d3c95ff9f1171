"""GrandClassifier: what a scikit-learn user expects of it, and what a graph adds."""

from __future__ import annotations

import dataclasses
import inspect
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dropnode.estimator.classifier
import dropnode.estimator.inputs
import dropnode.graph.graph
from dropnode.data import load_dataset
from dropnode.data.splits import per_class_split
from dropnode.errors import ConfigError, GraphError, GraphWarning, ModelError
from dropnode.estimator import UNVALIDATED_EPOCHS, GrandClassifier
from dropnode.graph import Graph, Split
from dropnode.graph.neighbours import nearest_neighbour_graph
from dropnode.methods.grand.config import GrandConfig, preset
from dropnode.methods.grand.model import Grand
from dropnode.saving import save_model
from dropnode.training import train

IMPOSSIBLE = {
    "check_classifiers_classes": "it trains on the classes -1 and 1, but -1 marks an unlabelled "
    "row; scikit-learn's own semi-supervised classifiers are excused from that by name",
    **dict.fromkeys(
        (
            "check_sample_weight_equivalence_on_dense_data",
            "check_sample_weight_equivalence_on_sparse_data",
        ),
        "a row that is repeated, or left out, is another graph, and is seen with or without a "
        "label; that a weight repeats a label is tested below",
    ),
}


@parametrize_with_checks(
    [GrandClassifier(max_epochs=30)], expected_failed_checks=lambda _: IMPOSSIBLE
)
def test_scikit_learn_conventions(estimator: GrandClassifier, check: Any) -> None:
    check(estimator)


def quick(**parameters: Any) -> GrandClassifier:
    return GrandClassifier(**{"max_epochs": 20, "hidden": 16, "random_state": 0} | parameters)


@pytest.fixture(scope="module")
def blobs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, their classes, and the four labels a class that are given."""
    X, y = make_blobs(90, centers=[[0, 0], [6, 0], [0, 6]], random_state=3)
    few = np.full(90, -1)
    for label in range(3):
        few[np.flatnonzero(y == label)[:4]] = label
    return X, y, few


@pytest.fixture(scope="module")
def fitted(blobs: tuple[np.ndarray, ...]) -> GrandClassifier:
    X, _, few = blobs
    return quick().fit(X, few)


# Parameters


def test_parameters_cover_the_configuration_exactly() -> None:
    parameters = inspect.signature(GrandClassifier).parameters
    own = ["preset", "method", "graph", "n_neighbors", "validation_fraction", "class_weight"]
    own += ["random_state", "device", "verbose", "options", "ensemble"]
    fields = [field.name for field in dataclasses.fields(GrandConfig)]

    assert list(parameters) == [*own, *fields]
    assert all(parameters[name].default is None for name in fields)
    assert set(GrandClassifier().get_params()) == set(parameters)


def test_a_misspelt_parameter_is_refused() -> None:
    with pytest.raises(TypeError, match="no parameter 'hiden'; did you mean 'hidden'"):
        GrandClassifier(hiden=32)


def test_given_parameters_stand_above_the_preset(community: Graph) -> None:
    given = {"order": 2, "temperature": 0.25, "max_epochs": 2, "batch_norm": True}
    model = GrandClassifier(preset="default", **given).fit(community)

    assert model.config_ == preset("default", "any")[1].replace(**given)
    assert model.preset_ == "default"


def test_presets_belong_to_the_catalogue_and_not_to_a_name(community: Graph) -> None:
    named = Graph.from_scipy(
        community.adjacency, community.features, community.labels,
        split=community.split, name="citeseer",
    )  # fmt: skip

    assert GrandClassifier(max_epochs=1).fit(named).preset_ == "default"
    with pytest.raises(ConfigError, match="not for a graph outside the catalogue"):
        GrandClassifier(preset="official").fit(named)
    listed = dataclasses.replace(named, catalogue_name="citeseer")
    model = GrandClassifier(max_epochs=1).fit(listed.with_split(named.split))
    assert (model.preset_, model.config_.temperature) == ("official", 0.3)


def test_loading_a_dataset_sets_its_place_in_the_catalogue() -> None:
    graph = load_dataset("digits")
    assert graph.catalogue_name == "digits"
    assert graph.with_split(None).catalogue_name == "digits"


def test_an_invalid_value_is_refused_by_fit(community: Graph) -> None:
    with pytest.raises(ConfigError, match="temperature = 3"):
        GrandClassifier(temperature=3).fit(community)
    with pytest.raises(ConfigError, match="unknown preset 'offical'"):
        GrandClassifier(preset="offical").fit(community)


def test_the_seed_decides_everything(blobs: tuple[np.ndarray, ...]) -> None:
    X, _, few = blobs
    first, again, other = (quick(random_state=seed).fit(X, few) for seed in (1, 1, 2))

    assert np.array_equal(first.predict_proba(), again.predict_proba())
    assert not np.array_equal(first.predict_proba(), other.predict_proba())

    drawn = quick(random_state=None).fit(X, few)
    assert drawn.random_state is None
    repeated = quick(random_state=drawn.seed_).fit(X, few)
    assert np.array_equal(drawn.predict_proba(), repeated.predict_proba())


# Learning


def test_unlabelled_rows_help() -> None:
    """Three labels a digit, against a classifier that sees nothing but them."""
    X, y = (part[:600] for part in load_digits(return_X_y=True))
    gains = []
    for seed in range(3):
        given = per_class_split(y, 3, 0, seed=seed).train
        few = np.full(len(y), -1)
        few[given] = y[given]
        model = GrandClassifier(max_epochs=40, hidden=32, random_state=0).fit(X, few)
        alone = LogisticRegression(max_iter=1000).fit(X[given], y[given])
        gains.append(model.score(X, y) - alone.score(X, y))
    assert np.mean(gains) > 0.05


def test_a_graph_gives_what_its_matrices_give(community: Graph) -> None:
    bare = community.with_split(None)
    as_graph = quick().fit(bare)
    as_table = quick().fit(bare.features, bare.labels, graph=bare.adjacency.toarray())

    assert np.array_equal(as_graph.predict_proba(), as_table.predict_proba())
    assert as_graph.predict().tolist() == [str(label) for label in as_table.predict()]


def test_a_table_without_a_graph_is_joined_to_its_neighbours(
    blobs: tuple[np.ndarray, ...],
) -> None:
    X, _, few = blobs
    alone = quick(n_neighbors=4).fit(X, few)
    given = quick().fit(X, few, graph=nearest_neighbour_graph(X, 4))

    assert np.array_equal(alone.predict_proba(), given.predict_proba())


@pytest.mark.parametrize("graph", [True, False])
def test_fit_checks_features_and_encodes_labels_once(
    graph: bool, blobs: tuple[np.ndarray, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _, few = blobs
    calls: list[str] = []

    def counted(module: Any, name: str) -> None:
        function = getattr(module, name)

        def recorded(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return function(*args, **options)

        monkeypatch.setattr(module, name, recorded)

    counted(dropnode.estimator.classifier, "validate_data")
    counted(dropnode.estimator.inputs, "encode_labels")
    for name in ("to_nodes", "to_codes"):
        counted(dropnode.graph.graph, name)
    quick(max_epochs=1).fit(X, few, graph=nearest_neighbour_graph(X, 4) if graph else None)
    assert calls == ["validate_data", "encode_labels"]


def test_fit_leaves_the_callers_arrays_alone(blobs: tuple[np.ndarray, ...]) -> None:
    """Even if they are of the type that is trained on."""
    X, _, few = blobs
    for features in (X.astype(np.float32), sp.csr_array(X.astype(np.float32))):
        before = features.copy()
        model = quick(max_epochs=1, feature_scaling="none").fit(features, few)
        held = features.data if sp.issparse(features) else features
        assert held.flags.writeable
        held *= 2.0
        assert not (model.graph_.features != before).sum()


def test_training_rows_are_indexed_once(
    blobs: tuple[np.ndarray, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _, few = blobs
    model = quick(max_epochs=1).fit(X, few)
    model.save(tmp_path / "model")
    indexed: list[int] = []
    fit = NearestNeighbors.fit

    def counted(self: NearestNeighbors, X: Any, y: None = None) -> NearestNeighbors:
        indexed.append(len(X))
        return fit(self, X, y)

    monkeypatch.setattr(NearestNeighbors, "fit", counted)
    expected = model.predict_proba(X[:3])
    assert not indexed
    loaded = GrandClassifier.load(tmp_path / "model")
    for _ in range(3):
        assert np.array_equal(loaded.predict_proba(X[:3]), expected)
    assert indexed == [90]


def test_it_trains_as_the_loop_does(community: Graph) -> None:
    model = GrandClassifier(max_epochs=7, random_state=3).fit(community)

    method = Grand(preset("default", "any")[1].replace(max_epochs=7))
    outcome = train(method, community, seed=3)
    assert np.array_equal(model.method_.logits().numpy(), method.logits().numpy())
    assert model.history_ == outcome.history
    assert (model.best_epoch_, model.n_iter_) == (outcome.best_epoch, outcome.epochs)


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes", None, None], dtype=object),
        np.array(["no", "yes", np.nan, np.nan], dtype=object),
        ["no", "yes", np.nan, None],
        pd.Series(["no", "yes", None, None]),
        pd.Series(pd.Categorical(["no", "yes", None, None])),
        np.array([0, 1, -1, -1]),
        np.array([0.0, 1.0, np.nan, -1.0]),
        pd.Series([0, 1, None, None], dtype="Int64"),
        np.array([False, True, None, None], dtype=object),
    ],
)
def test_unlabelled_is_minus_one_none_or_nan(labels: Any) -> None:
    X = np.array([[0.0], [9.0], [0.5], [8.5]])
    model = quick(n_neighbors=1, validation_fraction=None).fit(X, labels)

    first, second = labels[0], labels[1]
    assert model.classes_.tolist() == [first, second]
    assert model.predict().tolist() == [first, second, first, second]


# Validation


def test_held_out_labels_tell_how_long_every_label_trains(blobs: tuple[np.ndarray, ...]) -> None:
    X, _, few = blobs
    options = {"stopping": "loss", "patience": 3, "max_epochs": 60, "learning_rate": 0.3}
    options["consistency_weight"] = 1.0  # also without validation
    model = quick(validation_fraction=0.25, **options).fit(X, few)

    given = np.flatnonzero(few >= 0)
    assert model.validated_
    assert model.n_iter_ == len(model.validation_history_) < 60
    losses = [row["val_loss"] for row in model.validation_history_]
    assert int(np.argmin(losses)) == len(losses) - 4, "the patience decided"
    assert model.graph_.split.train.tolist() == given.tolist()
    assert "val_loss" not in model.history_[0]
    # The second training is one on all labels, of that many epochs, and nothing else.
    again = quick(validation_fraction=None, **options | {"max_epochs": model.n_iter_}).fit(X, few)
    assert np.array_equal(model.predict_proba(), again.predict_proba())


@pytest.mark.parametrize(("labels", "weight"), [(9, 0.0), (10, 1.0)])
def test_few_labels_that_nothing_validates_train_without_consistency(
    labels: int, weight: float
) -> None:
    """In the preset default alone, and unless the caller decides."""
    X, y = make_blobs(60, centers=2, random_state=0)
    few = np.where(np.arange(60) < 40, y, -1)
    few[np.flatnonzero(few == 1)[labels:]] = -1
    options = {"validation_fraction": None, "max_epochs": 1}
    assert quick(**options).fit(X, few).config_.consistency_weight == weight
    assert quick(**options, consistency_weight=0.5).fit(X, few).config_.consistency_weight == 0.5
    validated = quick(max_epochs=1).fit(X, few)
    assert validated.config_.consistency_weight == 1.0
    with pytest.raises(ConfigError, match="consistency_weight"):
        quick(method="gcn", consistency_weight=0.5, max_epochs=1).fit(X, few)


def test_the_seed_chooses_the_labels_that_are_held_out(blobs: tuple[np.ndarray, ...]) -> None:
    """Logistic regression draws nothing else, so that its validation shows them."""
    X, _, few = blobs

    def validated(seed: int) -> float:
        model = GrandClassifier(method="logistic", random_state=seed).fit(X, few)
        return float(model.validation_history_[0]["val_loss"])

    losses = [validated(seed) for seed in (0, 1, 2, 0)]
    assert losses[0] == losses[3]
    assert len(set(losses)) == 3


def test_without_validation_every_label_trains_for_a_fixed_time(
    blobs: tuple[np.ndarray, ...],
) -> None:
    X, _, few = blobs
    model = GrandClassifier(hidden=4, augmentations=1, validation_fraction=None).fit(X, few)

    assert model.graph_.split.train.tolist() == np.flatnonzero(few >= 0).tolist()
    assert not model.validated_
    assert model.n_iter_ == model.best_epoch_ == UNVALIDATED_EPOCHS
    assert model.validation_history_ == []


def test_a_class_with_one_label_cannot_validate_and_says_so(
    blobs: tuple[np.ndarray, ...],
) -> None:
    X, y, few = blobs
    names = np.where(few < 0, None, np.array(["ant", "bee", "cat"])[y]).astype(object)
    names[np.flatnonzero(names == "bee")[1:]] = None

    with pytest.warns(
        UserWarning, match=r"class 'bee' has only one label.* for 20 epochs"
    ) as caught:
        model = quick(validation_fraction=0.5).fit(X, names)

    assert caught[0].filename == __file__
    assert not model.validated_
    assert model.n_iter_ == 20


def test_the_split_of_a_graph_is_kept(community: Graph) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = quick(validation_fraction=0.5).fit(community)

    assert model.graph_.split is community.split
    assert model.validated_


# Prediction


def test_the_training_nodes_are_the_default(fitted: GrandClassifier) -> None:
    assert np.array_equal(fitted.predict_proba(), fitted.predict_proba(fitted.graph_))


def test_an_answer_does_not_depend_on_the_batch(
    fitted: GrandClassifier, blobs: tuple[np.ndarray, ...]
) -> None:
    new = blobs[0][:12] + 0.3
    together = fitted.predict_proba(new)
    alone = np.vstack([fitted.predict_proba(row[None]) for row in new])

    assert np.array_equal(together, alone)


def test_new_rows_get_the_class_of_their_surroundings(
    fitted: GrandClassifier,
) -> None:
    assert fitted.predict([[0, 0.5], [6, 0.5], [0.5, 6]]).tolist() == [0, 1, 2]


def test_a_model_that_is_fitted_again_joins_new_rows_to_its_new_nodes(
    community: Graph, blobs: tuple[np.ndarray, ...]
) -> None:
    """From a table to a graph and back: nothing is left of the rows before."""
    rows = np.random.default_rng(0).poisson(1.0, (5, community.num_features)).astype(float)
    table, few = community.features + 10.0, np.where(np.arange(26) % 4, -1, community.labels)
    again = quick(max_epochs=2)
    for fit in (lambda model: model.fit(table, few), lambda model: model.fit(community)) * 2:
        fit(again)
        new = quick(max_epochs=2)
        fit(new)
        assert np.array_equal(again.predict_proba(rows), new.predict_proba(rows))


def test_new_rows_leave_the_answer_for_training_nodes_alone(
    fitted: GrandClassifier, blobs: tuple[np.ndarray, ...]
) -> None:
    before = fitted.predict_proba()
    fitted.predict(blobs[0] + 1)
    assert np.array_equal(fitted.predict_proba(), before)


def test_another_graph_is_classified_by_its_own_edges(community: Graph) -> None:
    """Nodes without features of their own are told apart by their neighbours alone."""
    model = quick(max_epochs=60).fit(community)
    typical = [community.features[community.labels == c].mean(axis=0) for c in range(3)]
    features = np.vstack([*typical, np.zeros((3, 9))])
    edges = [(0, 3), (1, 4), (2, 5)]

    answer = model.predict(Graph.from_edges(edges, features))

    assert answer[3:].tolist() == answer[:3].tolist() == list(community.class_names)
    adjacency = Graph.from_edges(edges, features).adjacency
    assert model.predict(features, graph=adjacency).tolist() == answer.tolist()


@pytest.mark.parametrize("head", ["mlp", "gcn"])
def test_sparse_and_dense_features_may_meet(head: str, blobs: tuple[np.ndarray, ...]) -> None:
    """A model answers the same however the numbers are stored."""
    X, _, few = blobs
    dense = quick(head=head).fit(X, few)
    sparse = quick(head=head, feature_scaling="none").fit(sp.csr_matrix(X), few)

    for model in (dense, sparse):
        expected = model.predict_proba(X[:9])
        assert np.array_equal(model.predict_proba(sp.csr_array(X[:9])), expected)
    alone = Graph.from_edges([(0, 1)], X[:2])
    stored = Graph.from_edges([(0, 1)], sp.csr_array(X[:2]))
    np.testing.assert_allclose(dense.predict_proba(alone), dense.predict_proba(stored), atol=1e-6)


def test_probabilities_follow_classes(fitted: GrandClassifier) -> None:
    probabilities = fitted.predict_proba()

    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    assert (fitted.classes_[probabilities.argmax(axis=1)] == fitted.predict()).all()


def test_the_transduction_has_the_class_of_every_training_node(
    fitted: GrandClassifier, blobs: tuple[np.ndarray, ...]
) -> None:
    assert np.array_equal(fitted.transduction_, fitted.predict())
    assert fitted.transduction_.shape == blobs[1].shape
    assert not hasattr(GrandClassifier(), "transduction_")


# Scores


def test_label_propagation_scores_its_own_graph(
    community: Graph, blobs: tuple[np.ndarray, ...]
) -> None:
    """It cannot classify another one, and so has to recognise it."""
    model = GrandClassifier(method="label-propagation").fit(community)
    right = model.predict() == np.array(community.class_names)[community.labels]
    same = Graph.from_scipy(
        community.adjacency, community.features, community.labels, split=community.split
    )
    for graph in (community, same):
        assert model.score(graph) == right[community.split.test].mean()
    with pytest.raises(GraphError, match="cannot classify another graph"):
        model.predict(community.with_adjacency(sp.csr_array((26, 26))))

    X, y, few = blobs
    edges = nearest_neighbour_graph(X, 4)
    table = GrandClassifier(method="label-propagation").fit(X, few, graph=edges)
    assert table.score(X, y, graph=edges) == (table.predict() == y).mean()


@pytest.mark.parametrize("method", ["grand", "logistic", "label-propagation"])
def test_a_class_without_training_nodes_is_scored(community: Graph, method: str) -> None:
    """Some splits were published so. What learns from labels alone is wrong about it."""
    split = community.split
    known = community.labels[split.train] != 2
    seen = community.labels[split.val] != 2
    short = dropnode.graph.Split(split.train[known], split.val[seen], split.test)
    cut = {} if method in ("logistic", "label-propagation") else {"max_epochs": 60}
    for weights in (None, "balanced") if method != "label-propagation" else (None,):
        with pytest.warns(GraphWarning, match="no label teaches it"):
            model = GrandClassifier(method=method, random_state=0, class_weight=weights, **cut).fit(
                community.with_split(short)
            )
        right = model.predict() == np.array(community.class_names)[community.labels]
        if method in ("logistic", "label-propagation"):
            assert not right[community.labels == 2].any()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            assert model.score(community) == right[split.test].mean() > 0.4


def test_a_graph_is_scored_on_its_test_nodes(community: Graph) -> None:
    model = quick().fit(community)

    right = model.predict() == np.array(community.class_names)[community.labels]
    assert model.score(community) == right[community.split.test].mean()


def test_without_test_nodes_the_training_nodes_do_not_count(community: Graph) -> None:
    """Fitted with some labels, scored when all are known: the same nodes, seen before or not."""
    seen = np.concatenate([community.split.train, community.split.val])
    few = np.full(community.num_nodes, -1)
    few[seen] = community.labels[seen]
    parts = community.adjacency, community.features
    model = quick().fit(Graph.from_scipy(*parts, few, class_names=community.class_names))
    everything = community.with_split(None)

    right = model.predict() == np.array(community.class_names)[community.labels]
    unseen = np.setdiff1d(np.arange(community.num_nodes), seen)
    assert model.score(everything) == right[unseen].mean()

    elsewhere = Graph.from_scipy(parts[0], parts[1] * 2, community.labels)
    right = model.predict(elsewhere) == np.array(community.class_names)[community.labels]
    assert model.score(elsewhere) == right.mean()

    with pytest.raises(GraphError, match="no labelled nodes to score on"):
        model.score(model.graph_)


def test_another_graph_may_number_its_classes_differently(community: Graph) -> None:
    model = quick().fit(community)
    parts = community.adjacency, community.features
    renamed = [["two", "zero", "one"][code] for code in community.labels]
    ours = Graph.from_scipy(
        *parts, community.labels, class_names=["two", "zero", "one"], split=community.split
    )
    theirs = Graph.from_scipy(*parts, renamed, split=community.split)

    assert theirs.class_names == ("one", "two", "zero")
    assert quick().fit(ours).score(theirs) == model.score(community)


def test_rows_whose_label_is_unknown_are_not_scored(
    fitted: GrandClassifier, blobs: tuple[np.ndarray, ...]
) -> None:
    X, y, few = blobs
    known = few >= 0
    assert fitted.score(X, few) == (fitted.predict(X)[known] == y[known]).mean()
    with pytest.raises(ValueError, match="no label in y is known"):
        fitted.score(X, np.full(len(X), -1))


def test_neither_training_nor_validation_nodes_are_scored(community: Graph) -> None:
    parts = community.split
    graph = community.with_split(Split(parts.train, parts.val, []))
    model = quick(max_epochs=4).fit(graph)
    right = model.predict_proba().argmax(axis=1) == graph.labels
    assert model.score(graph) == right[parts.test].mean()
    others = np.concatenate([parts.val, parts.test])
    assert right[others].mean() != right[parts.test].mean(), "the nodes do not make a difference"


# Class weights


def test_class_weights_find_more_of_a_rare_class() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [180, 20])
    X = rng.normal(size=(200, 4)) + 1.2 * y[:, None]
    few = np.where(rng.random(200) < 0.5, y, -1)

    def recall(class_weight: Any) -> float:
        model = quick(class_weight=class_weight, max_epochs=60).fit(X, few)
        return float((model.predict()[y == 1] == 1).mean())

    assert recall("balanced") > recall(None) + 0.2
    assert recall({1: 20.0}) > recall(None) + 0.2
    assert recall({0: 20.0}) <= recall(None)


# Weights of labels


def test_an_integer_weight_is_a_label_that_occurs_as_often(blobs: tuple[np.ndarray, ...]) -> None:
    """In logistic regression on features alone, where a repeated row changes nothing else."""
    X, _, few = blobs
    known = np.flatnonzero(few >= 0)
    repeats = 1 + np.arange(len(known)) % 3
    options = {"method": "logistic", "options": {"order": 0}, "validation_fraction": None}
    scaled = {"feature_scaling": "none"}
    weighted = GrandClassifier(**options, **scaled).fit(X[known], few[known], None, repeats)
    rows = np.repeat(known, repeats)
    repeated = GrandClassifier(**options, **scaled).fit(X[rows], few[rows])
    alone = sp.csr_array((len(X), len(X)))

    found, expected = (model.predict_proba(X, graph=alone) for model in (weighted, repeated))
    np.testing.assert_allclose(found, expected, atol=1e-3)
    plain = GrandClassifier(**options, **scaled).fit(X[known], few[known])
    assert np.abs(plain.predict_proba(X, graph=alone) - expected).max() > 0.01


def test_equal_weights_change_nothing_and_a_weight_of_zero_takes_a_label_away(
    blobs: tuple[np.ndarray, ...],
) -> None:
    X, _, few = blobs
    options = {"validation_fraction": None}
    plain = quick(**options).fit(X, few)
    assert np.array_equal(
        quick(**options).fit(X, few, sample_weight=np.full(90, 2.0)).predict_proba(),
        plain.predict_proba(),
    )
    without = few.copy()
    without[np.flatnonzero(few == 1)[0]] = -1
    weights = np.where((few >= 0) & (without < 0), 0.0, 1.0)
    # Also those of unlabelled rows, which have no loss term.
    weights[few < 0] = 7.0
    np.testing.assert_allclose(
        quick(**options).fit(X, few, sample_weight=weights).predict_proba(),
        quick(**options).fit(X, without).predict_proba(),
        atol=1e-5,
    )


def test_weights_of_labels_and_classes_multiply(community: Graph) -> None:
    of_classes = {"0": 2.0, "1": 0.5, "2": 4.0}
    weights = np.array([of_classes[name] for name in np.array(["0", "1", "2"])[community.labels]])
    named = community.with_labels(community.labels, ["0", "1", "2"])
    both = quick(class_weight=of_classes).fit(named, sample_weight=weights)
    squared = quick().fit(named, sample_weight=weights**2)
    assert np.array_equal(both.predict_proba(), squared.predict_proba())


def test_balanced_classes_count_weights(blobs: tuple[np.ndarray, ...]) -> None:
    X, _, few = blobs
    weights = np.where(few == 0, 3.0, 1.0)
    model = quick(class_weight="balanced").fit(X, few, sample_weight=weights)
    # Twelve, four and four labels.
    np.testing.assert_allclose(model.method_.class_weights, np.array([20, 60, 60]) / 36, rtol=1e-6)


def test_a_class_of_which_no_label_counts_is_none_that_is_balanced(
    blobs: tuple[np.ndarray, ...],
) -> None:
    X, _, few = blobs
    weights = np.where(few == 0, 0.0, 1.0)
    model = quick(class_weight="balanced").fit(X, few, sample_weight=weights)
    np.testing.assert_allclose(model.method_.class_weights, [1.0, 1.0, 1.0], rtol=1e-6)


def test_wrong_weights_are_named(blobs: tuple[np.ndarray, ...], community: Graph) -> None:
    X, _, few = blobs
    for weights, told in (
        (np.ones(3), r"shape \(3,\) for 90 rows"),
        (np.full(90, -1.0), "the weight of node 0 is -1"),
        (np.full(90, np.nan), "the weight of node 0 is nan"),
        (np.zeros(90), "the weights of all training nodes are zero"),
        (["heavy"] * 90, "sample_weight cannot be read as numbers"),
    ):
        with pytest.raises(ValueError, match=told):
            quick().fit(X, few, sample_weight=weights)
    with pytest.raises(ConfigError, match="sample weights, but has no loss"):
        GrandClassifier(method="label-propagation").fit(community, sample_weight=np.ones(26))


def test_balanced_weights_do_not_depend_on_labels_outside_the_training_nodes(
    community: Graph,
) -> None:
    parts = community.split
    graph = community.with_split(Split(parts.train[1:], parts.val, parts.test))
    labels = graph.labels.copy()
    labels[parts.test] = 0
    other = graph.with_labels(labels, graph.class_names)
    one, two = (quick(class_weight="balanced").fit(each) for each in (graph, other))
    assert np.array_equal(one.predict_proba(), two.predict_proba())
    assert not np.array_equal(one.predict_proba(), quick().fit(graph).predict_proba())


# Keeping a model


@pytest.mark.parametrize("labels", [[3, 5, 9], ["x", "y", "z"]])
def test_a_saved_model_is_the_same_model(
    labels: list[Any], blobs: tuple[np.ndarray, ...], tmp_path: Path
) -> None:
    X, _, few = blobs
    table = pd.DataFrame(X, columns=["width", "height"])
    y = [None if code < 0 else labels[code] for code in few]
    model = quick(
        class_weight={labels[1]: 2.0}, order=np.int64(3), temperature=np.float32(0.5)
    ).fit(table, y)
    model.save(tmp_path / "model")

    loaded = GrandClassifier.load(tmp_path / "model")

    new = table.iloc[:7] + 0.1
    assert np.array_equal(loaded.predict_proba(new), model.predict_proba(new))
    assert np.array_equal(loaded.predict_proba(), model.predict_proba())
    assert loaded.predict().dtype == model.predict().dtype
    assert loaded.get_params() == model.get_params()
    assert {name for name in vars(loaded) if name.endswith("_")} == {
        name for name in vars(model) if name.endswith("_")
    }
    for name in ("history_", "best_epoch_", "n_iter_", "seed_", "preset_", "config_", "validated_"):
        assert getattr(loaded, name) == getattr(model, name)
    assert loaded.feature_names_in_.tolist() == ["width", "height"]
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(new[["height", "width"]])
    refitted = loaded.fit(table, y)
    assert np.array_equal(refitted.predict_proba(), model.predict_proba())


def test_parameters_of_numpy_are_saved_as_plain_ones(
    blobs: tuple[np.ndarray, ...], tmp_path: Path
) -> None:
    X, y, _ = blobs
    few = np.where(np.arange(len(y)) % 9, -1, y)
    model = quick(
        random_state=np.random.RandomState(0),
        class_weight={np.int64(0): np.float32(2.0), 1: np.float64(0.5)},
        method="sgc",
        options={"learning_rate": np.float64(0.1), "steps": np.int64(2)},
        hidden=None,
    )
    model.fit(X, few).save(tmp_path / "model")
    loaded = GrandClassifier.load(tmp_path / "model")
    assert loaded.random_state == model.seed_
    assert loaded.class_weight == {0: 2.0, 1: 0.5}
    assert loaded.options == {"learning_rate": 0.1, "steps": 2}
    assert np.array_equal(loaded.predict_proba(), model.predict_proba())
    assert np.array_equal(loaded.fit(X, few).predict_proba(), model.predict_proba())


def test_a_model_saved_without_an_estimator_loads_as_one(
    community: Graph, configure: Any, tmp_path: Path
) -> None:
    method = Grand(configure())
    train(method, community)
    save_model(tmp_path, method, community, provenance={"preset": "paper", "seed": 4})

    model = GrandClassifier.load(tmp_path)

    assert (model.predict_proba().argmax(axis=1) == method.logits().argmax(dim=1).numpy()).all()
    assert set(model.predict()) <= set(community.class_names)
    assert (model.preset_, model.seed_, model.n_features_in_) == ("paper", 4, 9)
    assert clone(model).fit(community).config_ == method.config
    model.save(tmp_path / "again")
    assert np.array_equal(
        GrandClassifier.load(tmp_path / "again").predict_proba(), model.predict_proba()
    )


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"hiden": 4}, "no parameter 'hiden'; did you mean 'hidden'"),
        ({"class_weight": [1, 2]}, "cannot use"),
        (["hidden"], "cannot use"),
    ],
)
def test_parameters_of_another_version_are_one_error(
    community: Graph, configure: Any, tmp_path: Path, parameters: Any, told: str
) -> None:
    """The folder is intact: a newer version may have other parameters."""
    method = Grand(configure(max_epochs=1))
    train(method, community)
    save_model(tmp_path, method, community, extra={"parameters": parameters})
    with pytest.raises(ModelError, match=told):
        GrandClassifier.load(tmp_path)


def test_pickle_and_joblib_keep_every_bit(
    fitted: GrandClassifier, blobs: tuple[np.ndarray, ...], tmp_path: Path
) -> None:
    joblib.dump(fitted, tmp_path / "model.joblib")
    for copy in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model.joblib")):
        assert np.array_equal(copy.predict_proba(blobs[0]), fitted.predict_proba(blobs[0]))


# Together with the rest of scikit-learn


def test_grid_search_and_pipeline() -> None:
    X, y = load_wine(return_X_y=True)  # its columns have units of their own
    search = GridSearchCV(
        make_pipeline(StandardScaler(), quick(max_epochs=30)),
        {"grandclassifier__order": [2, 4], "grandclassifier__temperature": [0.5, 1.0]},
        cv=3,
    )

    search.fit(X, y)

    chosen = search.best_estimator_[-1]
    assert chosen.config_.order == search.best_params_["grandclassifier__order"]
    unscaled = cross_val_score(clone(chosen), X, y, cv=3).mean()
    assert search.best_score_ > max(0.9, unscaled)


def test_progress_is_shown_on_stderr_when_asked_for(
    community: Graph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(max_epochs=2).fit(community)
    assert capsys.readouterr() == ("", "")

    quick(max_epochs=2, verbose=True).fit(community.with_split(None))
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert shown.out == ""
    assert [line.startswith("grand: epoch 2/2  loss ") for line in lines] == [True, True]
    assert ["val " in line for line in lines] == [True, False], "held out first, then all labels"

    monkeypatch.setenv("FORCE_COLOR", "1")
    quick(max_epochs=2, verbose=True).fit(community)
    shown = capsys.readouterr()
    assert "epoch 2/2" in shown.err
    assert shown.out == ""


def test_an_interrupt_is_passed_on(community: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, calls = Grand.loss, []

    def interrupted(self: Grand, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return loss(self, *args)

    monkeypatch.setattr(Grand, "loss", interrupted)
    model = quick()
    with pytest.raises(KeyboardInterrupt):
        model.fit(community)
    with pytest.raises(NotFittedError):
        model.predict()


# Faults


def test_faults_say_what_to_do(
    fitted: GrandClassifier, community: Graph, blobs: tuple[np.ndarray, ...]
) -> None:
    X, _, few = blobs
    faults: list[tuple[str, Any]] = [
        ("requires y to be passed.*-1 if unknown", lambda: quick().fit(X)),
        ("no node has a label", lambda: quick().fit(X, np.full(90, -1))),
        ("at least two classes", lambda: quick().fit(X, np.where(few == 0, 0, -1))),
        ("89 labels for 90 nodes", lambda: quick().fit(X, few[1:])),
        ("Unknown label type: continuous", lambda: quick().fit(X, X[:, 0])),
        ("continuous, such as 0.5", lambda: quick().fit(X, [0, 0.5, 2] * 30)),
        ("continuous, such as 1.5", lambda: quick().fit(X, [0, 1.0, 1.5] * 30)),
        (
            r"shape \(89, 89\) for 90 rows of features",
            lambda: quick().fit(X, few, graph=np.eye(89)),
        ),
        ("expected a square matrix", lambda: quick().fit(X, few, graph=[[0, 1], [2, 3], [4, 5]])),
        (r"call fit\(graph\) with nothing else", lambda: quick().fit(community, few)),
        ("1 features, but .* expecting 2 features", lambda: fitted.predict(X[:, :1])),
        ("9 features per node, but .* trained with 2", lambda: fitted.predict(community)),
        (
            "graph= connects rows of features, but X has none",
            lambda: fitted.predict(graph=np.eye(3)),
        ),
        (r"shape \(3, 3\) for 90 rows of features", lambda: fitted.predict(X, graph=np.eye(3))),
        ("k is 0", lambda: quick(n_neighbors=0).fit(X, few)),
        ("fraction 2", lambda: quick(validation_fraction=2).fit(X, few)),
        ("fraction 1.5", lambda: quick(validation_fraction=1.5).fit(X, [0, 0, 1] + [-1] * 87)),
        ("Input X contains NaN", lambda: quick().fit(np.where(X > 5, np.nan, X), few)),
        ("class_weight", lambda: quick(class_weight={"ant": 1.0}).fit(X, few)),
        (
            "random_state = -1; expected a whole number of at least 0",
            lambda: quick(random_state=-1).fit(X, few),
        ),
    ]
    for message, call in faults:
        with pytest.raises(ValueError, match=message):
            call()


def test_one_labelled_class_is_an_error_without_a_warning(blobs: tuple[np.ndarray, ...]) -> None:
    X, _, _ = blobs
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for labels in ([0] + [-1] * 89, ["a", "a"] + [None] * 88):
            with pytest.raises(GraphError, match=r"only class '[0a]' has a label"):
                quick().fit(X, labels)


def test_whole_floats_are_classes(blobs: tuple[np.ndarray, ...]) -> None:
    """A column of integers with missing values arrives as floats."""
    X, _, _ = blobs
    assert quick().fit(X, [0, 1.0, 2, None, math.nan] * 18).classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("call", ["predict", "predict_proba", "save"])
def test_an_unfitted_model_says_so(call: str, tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="Call 'fit' with appropriate arguments"):
        getattr(GrandClassifier(), call)(tmp_path if call == "save" else None)


@pytest.fixture(scope="module")
def little() -> tuple[np.ndarray, list[int], GrandClassifier]:
    X = np.random.default_rng(0).random((80, 3))
    y = [0, 1] * 40
    return X, y, GrandClassifier(max_epochs=1, hidden=4, random_state=0).fit(X, y)


def test_scoring_takes_one_label_per_row(
    little: tuple[np.ndarray, list[int], GrandClassifier],
) -> None:
    X, y, model = little
    for labels in ([0], y + y, []):
        told = f"{len(labels)} labels in y for 80 rows of X"
        with pytest.raises(GraphError, match=told):
            model.score(X, labels)
    with pytest.raises(ConfigError, match="in addition to a Graph"):
        model.score(model.graph_, y)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"method": None}, "method = None; expected a word"),
        ({"options": 3}, "options = 3; expected keys and values"),
        ({"preset": []}, r"preset = \[\]; expected a word"),
        ({"n_neighbors": "3"}, "n_neighbors = '3'; expected a whole number"),
        ({"validation_fraction": "x"}, "validation_fraction = 'x'; expected a number"),
        ({"device": "warp"}, "device 'warp' cannot be used here"),
        ({"device": "meta"}, "device 'meta' cannot be used here"),
        ({"device": None}, "device = None; expected a word"),
        ({"order": 10**18}, "order = .*; expected at most 1,000"),
        ({"augmentations": 10**12}, "augmentations = .*; expected at most 1,000"),
        ({"hidden": 10**30}, "hidden = .*; expected at most 1,000,000"),
        ({"random_state": 10**30}, "random_state = .*; expected at most"),
        ({"class_weight": {0: float("nan"), 1: 1.0}}, "class_weight"),
        ({"class_weight": {0: 0.0, 1: 1.0}}, "the weight of class 0 is 0; expected a finite"),
        ({"class_weight": {0: 1.0, 1: 1e300}}, "the weight of class 1 is inf; expected a finite"),
        ({"class_weight": 3}, "class_weight = 3; expected"),
    ],
)
def test_a_wrong_parameter_is_named(
    parameters: dict[str, Any],
    told: str,
    little: tuple[np.ndarray, list[int], GrandClassifier],
) -> None:
    X, y, _ = little
    with pytest.raises(ConfigError, match=told):
        GrandClassifier(**{"max_epochs": 1, "hidden": 4} | parameters).fit(X, y)


def test_masked_and_unsound_tables_are_refused(
    little: tuple[np.ndarray, list[int], GrandClassifier],
) -> None:
    X, y, model = little
    wild = sp.csr_array(X)
    wild.indptr[5] = 10**6
    for given, told in ((np.ma.masked_less(X, 0.5), "masked array"), (wild, "not sound")):
        for call in (lambda X: GrandClassifier().fit(X, y), model.predict):
            with pytest.raises(GraphError, match=told):
                call(given)
