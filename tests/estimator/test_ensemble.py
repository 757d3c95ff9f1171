"""``ensemble=k``: members that other processes train, and the mean of their probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dropnode import GrandClassifier, Graph
from dropnode.analysis.explain import explain
from dropnode.data.generators import sbm
from dropnode.errors import ConfigError, ModelError, WorkError
from dropnode.estimator import fitting
from dropnode.graph.labels import UNKNOWN
from dropnode.methods.ensemble import Ensemble

QUICK: dict[str, Any] = {"max_epochs": 3, "order": 2, "hidden": 8}


@pytest.fixture(scope="module")
def graph() -> Graph:
    whole = sbm.make(nodes=80, classes=3, features=6)
    labels = np.where(np.arange(80) % 4 == 0, whole.labels, UNKNOWN)
    return whole.with_labels(labels, whole.class_names)


@pytest.fixture(scope="module")
def trained(graph: Graph) -> GrandClassifier:
    return GrandClassifier(ensemble=2, random_state=5, **QUICK).fit(graph)


def test_predictions_are_the_mean_of_members_of_which_the_first_has_the_seed(
    graph: Graph, trained: GrandClassifier
) -> None:
    assert isinstance(trained.method_, Ensemble)
    single = GrandClassifier(random_state=5, **QUICK).fit(graph)
    alone = [torch.softmax(each.logits(), 1).numpy() for each in trained.method_.members]
    np.testing.assert_allclose(alone[0], single.predict_proba(), atol=1e-5)
    assert np.abs(alone[1] - alone[0]).max() > 1e-3
    np.testing.assert_allclose(trained.predict_proba(), np.mean(alone, axis=0), atol=1e-6)
    assert [line["epoch"] for line in trained.history_] == [1, 2, 3]
    assert trained.seed_ == 5


def test_new_rows_and_other_graphs_have_the_mean_too(
    graph: Graph, trained: GrandClassifier
) -> None:
    for nodes in (graph.features[:3], sbm.make(nodes=30, classes=3, features=6)):
        members = []
        for member in trained.method_.members:
            one = GrandClassifier(random_state=5, **QUICK)
            one._learnt(member, trained.graph_, trained.classes_)
            one.n_features_in_ = 6
            members.append(one.predict_proba(nodes))
        np.testing.assert_allclose(
            trained.predict_proba(nodes), np.mean(members, axis=0), atol=1e-6
        )


def test_it_is_saved_and_loaded_with_all_its_members(
    trained: GrandClassifier, tmp_path: Path
) -> None:
    trained.save(tmp_path / "model")
    again = GrandClassifier.load(tmp_path / "model")
    assert again.ensemble == 2
    np.testing.assert_array_equal(again.predict_proba(), trained.predict_proba())
    text = (tmp_path / "model/model.json").read_text(encoding="utf-8")
    (tmp_path / "model/model.json").write_text(
        text.replace('"members": 2', '"members": 1'), encoding="utf-8"
    )
    with pytest.raises(ModelError):
        GrandClassifier.load(tmp_path / "model")


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "3", None, 1001])
def test_numbers_that_are_none_are_refused_before_training(graph: Graph, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="ensemble = "):
        GrandClassifier(ensemble=wrong, random_state=0).fit(graph)


def test_a_seed_that_leaves_no_room_for_the_others_is_refused(graph: Graph) -> None:
    with pytest.raises(ConfigError, match="the seed of the last member"):
        GrandClassifier(ensemble=3, random_state=2**63 - 2).fit(graph)


def test_a_member_that_fails_is_named(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        yield 7, fitting.Failure("the worker died")

    monkeypatch.setattr(fitting, "run_local", fail)
    with pytest.raises(WorkError, match="with seed 7 failed: the worker died"):
        GrandClassifier(ensemble=2, random_state=7, **QUICK).fit(graph)


def test_an_ensemble_cannot_be_explained_and_that_is_said(trained: GrandClassifier) -> None:
    with pytest.raises(ConfigError, match="ensemble cannot be taken apart"):
        explain(trained.method_, 3)
