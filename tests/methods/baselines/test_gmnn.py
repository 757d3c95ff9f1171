"""GMNN: two networks that teach each other, phase by phase."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from dropnode.graph import Graph
from dropnode.methods.baselines.gmnn import E_STEP, GMNN, M_STEP, PRETRAINING, GMNNConfig
from dropnode.ops.randomness import Stream
from dropnode.training import Outcome, Phase, train
from oracles import Array, operator_of, softmax, supervised
from rounding import Rounded, exactly

SETTINGS: dict[str, Any] = {
    "feature_scaling": "row",
    "hidden": 6,
    "input_dropout": 0.0,
    "hidden_dropout": 0.0,
    "optimiser": "rmsprop",
    "learning_rate": 0.05,
    "weight_decay": 5e-4,
    "temperature": 0.1,
    "rounds": 1,
    "round_epochs": 4,
    "stopping": "accuracy",
    "patience": 50,
    "max_epochs": 5,
}


def make(**changes: Any) -> GMNN:
    return GMNN(GMNNConfig.from_dict(SETTINGS | changes))


def prepared(graph: Graph, **changes: Any) -> GMNN:
    method = make(**changes)
    assert graph.split is not None
    with Stream(3).torch_global():
        method.prepare(graph, graph.split, Stream(3))
    return method


def begin(method: GMNN, name: str, seed: int = 0) -> torch.Tensor:
    """Return what a phase begins with."""
    phase = next(phase for phase in method.phases() if phase.name == name)
    with Stream(seed).torch_global():
        method.begin(phase, Stream(seed))
    annotations: torch.Tensor = method.network.annotations.clone()
    return annotations


def unlabelled(graph: Graph) -> np.ndarray:
    assert graph.split is not None
    return np.setdiff1d(np.arange(graph.num_nodes), graph.split.train)


def one_hot(labels: np.ndarray, classes: int) -> Array:
    return np.eye(classes)[labels]


def convolved(method: GMNN, name: str, graph: Graph, x: Rounded) -> Rounded:
    """Two graph convolutions, spelt out."""
    first, second = (exactly(layer.weight).T for layer in method.network[name])
    operator = operator_of(graph.adjacency)
    result: Rounded = operator @ np.maximum(operator @ x @ first, 0.0) @ second
    return result


class Watch:
    """Keeps the name of every epoch's phase, and a copy of the networks after it."""

    def __init__(self, method: GMNN) -> None:
        self.method = method
        self.names: list[str] = []
        self.states: list[dict[str, torch.Tensor]] = []

    def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
        self.names.append(phase.name)
        self.states.append({name: w.clone() for name, w in self.method.state().items()})

    def weights(self, network: str, phase: str) -> list[torch.Tensor]:
        """Return all weights of a network after each epoch of a phase."""
        return [
            torch.cat([w.ravel() for name, w in state.items() if name.startswith(network)])
            for name, state in zip(self.names, self.states, strict=True)
            if name == phase
        ]


def test_q_is_pretrained_then_p_and_q_take_turns(community: Graph) -> None:
    method = make(rounds=2)
    watch = Watch(method)
    train(method, community, callbacks=[watch])
    expected = [PRETRAINING] * 5 + 2 * ([M_STEP] * 4 + [E_STEP] * 4)
    assert watch.names == expected


def test_a_step_trains_its_own_network_and_leaves_the_other(community: Graph) -> None:
    method = make()
    watch = Watch(method)
    train(method, community, callbacks=[watch])
    for phase, trained, left in (
        (PRETRAINING, "q", "p"),
        (M_STEP, "p", "q"),
        (E_STEP, "q", "p"),
    ):
        moves, rests = watch.weights(trained, phase), watch.weights(left, phase)
        assert not any(torch.equal(a, b) for a, b in pairwise(moves))
        assert all(torch.equal(rests[0], weights) for weights in rests)


def test_the_answer_is_q_at_its_best_in_the_e_step(community: Graph) -> None:
    method = make(max_epochs=30, round_epochs=30)
    outcome = train(method, community)
    e_step = [line["val_accuracy"] for line in outcome.history[-30:]]
    assert outcome.best_epoch > 60
    assert outcome.best["val_accuracy"] == max(e_step)
    assert community.split is not None
    val = community.split.val
    correct = method.logits().argmax(dim=1).numpy()[val] == community.labels[val]
    assert correct.mean() == max(e_step)


def test_p_sees_labels_and_no_feature(community: Graph) -> None:
    features = np.random.default_rng(0).random(community.features.shape)
    other = Graph.from_scipy(
        community.adjacency, features, community.labels, split=community.split, name="other"
    )
    here, there = prepared(community), prepared(other)
    there.load_state(here.state())
    assert not torch.allclose(here.logits(), there.logits())
    labels = begin(here, M_STEP)
    there.network.annotations.copy_(labels)
    losses = [method.loss(M_STEP, Stream(1))[0] for method in (here, there)]
    assert torch.equal(*losses)


def test_p_learns_the_labels_from_themselves(community: Graph) -> None:
    method = prepared(community)
    labels = begin(method, M_STEP)
    said = softmax(convolved(method, "p", community, exactly(labels)))
    expected = supervised([said], np.arange(len(labels)), labels.argmax(dim=1).numpy(), "mean")
    expected.assert_near(method.loss(M_STEP, Stream(1))[0].detach())


def test_q_learns_what_p_predicts_of_every_node(community: Graph) -> None:
    method = prepared(community)
    labels = exactly(begin(method, M_STEP))
    expected = softmax(convolved(method, "p", community, labels))
    targets = exactly(begin(method, E_STEP))
    rows = unlabelled(community)
    expected[rows].assert_near(targets.value[rows])
    said: Any = np.log(softmax(exactly(method.logits())))
    loss = method.loss(E_STEP, Stream(1))[0].detach()
    (-(targets * said).sum(axis=1).mean()).assert_near(loss)


@pytest.mark.parametrize("phase", [M_STEP, E_STEP])
def test_labelled_nodes_keep_their_label(community: Graph, phase: str) -> None:
    assert community.split is not None
    train_rows = community.split.train
    method = prepared(community)
    answers = method.logits().argmax(dim=1).numpy()[train_rows]
    assert (answers != community.labels[train_rows]).any()
    annotations = begin(method, phase).numpy()[train_rows]
    gold = one_hot(community.labels[train_rows], community.num_classes)
    np.testing.assert_array_equal(annotations, gold)


def test_labels_are_drawn_from_the_sharpened_prediction(community: Graph) -> None:
    draws = 800
    method = prepared(community)
    drawn = torch.stack([begin(method, M_STEP, seed) for seed in range(draws)])
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    assert (drawn.sum(dim=2) == 1.0).all()
    rows = unlabelled(community)
    expected = softmax(method.logits().double().numpy() / 0.1)[rows]
    # Undecided enough for a draw to be one, and not as undecided as without sharpening.
    assert ((expected > 0.1) & (expected < 0.9)).any()
    frequency = drawn.mean(dim=0).double().numpy()[rows]
    deviation = np.sqrt(expected * (1 - expected) / draws)
    # The last is for rare labels, which come once or never in so many draws.
    assert (np.abs(frequency - expected) <= 5 * deviation + 1 / draws).all()


def test_training_without_validation_is_as_long_as_with() -> None:
    method = make()
    assert method.trained_as_long(Outcome(history=[{}] * 13)) == method.config
