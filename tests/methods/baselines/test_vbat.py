"""VBAT: perturbations that are adversarial, and a loss that is GCN's without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dropnode.data.generators.sbm import make
from dropnode.data.splits import per_class_split
from dropnode.graph import Graph
from dropnode.methods.baselines.gcn import GCN
from dropnode.methods.baselines.layered import LayeredConfig
from dropnode.methods.baselines.vbat import VBAT, VBATConfig, disagreement
from dropnode.ops.randomness import Stream
from dropnode.training import train
from oracles import Array, normalised, operator_of, row_normalised, rows_of, softmax
from rounding import Rounded, exactly

GCN_SETTINGS: dict[str, Any] = {
    "feature_scaling": "row",
    "hidden": 6,
    "dropout": 0.5,
    "learning_rate": 0.02,
    "weight_decay": 5e-4,
    "stopping": "accuracy",
    "patience": 50,
    "max_epochs": 8,
}
SETTINGS: dict[str, Any] = GCN_SETTINGS | {
    "adversarial_weight": 1.4,
    "entropy_weight": 0.7,
    "adversary_spread": 0.01,
    "adversary_steps": 10,
    "adversary_rate": 0.001,
}


def vbat(**changes: Any) -> VBAT:
    return VBAT(VBATConfig.from_dict(SETTINGS | changes))


def prepared(graph: Graph, **changes: Any) -> VBAT:
    method = vbat(**changes)
    assert graph.split is not None
    with Stream(3).torch_global():
        method.prepare(graph, graph.split, Stream(3))
    return method


def held(graph: Graph, sparse: bool) -> Graph:
    features = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    kind = sp.csr_array(features) if sparse else features
    return Graph.from_scipy(graph.adjacency, kind, graph.labels, split=graph.split)


def adversary(method: VBAT, seed: int = 0) -> torch.Tensor:
    with Stream(seed).torch_global():
        return method.adversary(Stream(seed))


def logits_at(method: VBAT, graph: Graph, perturbation: Array) -> Rounded:
    """A GCN of two layers on dense X + R, spelt out."""
    operator = operator_of(graph.adjacency)
    first, second = (exactly(layer.lin.weight).T for layer in method.network)
    hidden: Any = np.maximum(
        operator @ (rows_of(graph.features) + Rounded(perturbation)) @ first, 0.0
    )
    logits: Rounded = operator @ hidden @ second
    return logits


def shifted(method: VBAT, perturbation: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return method.classify_shifted(perturbation @ method.network[0].lin.weight.T)


class Unbiased(GCN):
    """A GCN of the layers that VBAT has."""

    make_layer = VBAT.make_layer


def test_without_its_terms_it_is_gcn_to_the_bit(community: Graph) -> None:
    plain = Unbiased(LayeredConfig.from_dict(GCN_SETTINGS))
    reduced = vbat(adversarial_weight=0.0, entropy_weight=0.0)
    histories = [train(method, community, seed=2).history for method in (plain, reduced)]
    assert histories[0] == histories[1]
    assert torch.equal(plain.logits(), reduced.logits())
    full = vbat()
    train(full, community, seed=2)
    assert not torch.equal(plain.logits(), full.logits())


@pytest.mark.parametrize("sparse", [False, True])
def test_the_perturbation_is_added_to_the_features(community: Graph, sparse: bool) -> None:
    method = prepared(held(community, sparse))
    perturbation = torch.randn(community.features.shape, generator=torch.manual_seed(0))
    expected = logits_at(method, community, perturbation.double().numpy())
    expected.assert_near(shifted(method, perturbation))


def test_the_adversary_disturbs_more_than_noise_of_its_size() -> None:
    graph = make(nodes=200, classes=4, features=60, average_degree=6, homophily=0.85, seed=3)
    settings = {"feature_scaling": "standard", "max_epochs": 60, "hidden": 16}
    method = vbat(adversarial_weight=0.0, **settings)
    train(method, graph.with_split(per_class_split(graph.labels, 10, 10)))
    before = method.logits()
    found = adversary(method)
    generator = torch.Generator().manual_seed(1)
    noise = [torch.randn(found.shape, generator=generator) for _ in range(30)]
    noise = [found.norm() * n / n.norm() for n in noise]
    agreement = disagreement(before, before)
    disturbed = [disagreement(before, shifted(method, r)) - agreement for r in (found, *noise)]
    assert disturbed[0] > 2 * max(disturbed[1:])


def test_the_first_step_goes_down_the_size_and_up_the_disagreement(community: Graph) -> None:
    settings: dict[str, Any] = {"dropout": 0.0, "adversary_spread": 1e-4, "adversary_rate": 1e-5}
    method = prepared(community, adversary_steps=1, **settings)
    with torch.no_grad():
        method.network[0].lin.weight *= 50.0  # so that disagreement counts beside the size
    after, before = (r.double().numpy() for r in (adversary(method), start(method)))
    operator = normalised(community.adjacency.toarray())
    first, second = (layer.lin.weight.detach().double().numpy().T for layer in method.network)

    def chances(perturbation: Array) -> Array:
        seen = row_normalised(community.features) + perturbation
        return softmax(operator @ np.maximum(operator @ seen @ first, 0.0) @ second)

    targets = chances(np.zeros_like(before))

    def objective(perturbation: Array) -> float:
        said = np.log(chances(perturbation))
        return float(0.5 * (perturbation**2).sum() + (targets * said).sum(axis=1).mean())

    slopes = np.zeros_like(before)
    for place in np.ndindex(before.shape):
        nudge = np.zeros_like(before)
        nudge[place] = 1e-6
        slopes[place] = (objective(before + nudge) - objective(before - nudge)) / 2e-6
    # Adam's first step is as long as its rate wherever the slope is not next to nothing: it divides
    # the slope by its size and 1e-8, which is a hundredth of the least slope here. Another
    # hundredth is for the difference of numbers of 1e-4, by 1e-5, that float32 rounds to 1e-11.
    steep = np.abs(slopes) > 1e-6
    assert steep.mean() > 0.9
    # Down the size alone would be against the sign of the noise.
    assert (np.sign(slopes) != np.sign(before))[steep].any()
    np.testing.assert_allclose((after - before)[steep], -1e-5 * np.sign(slopes)[steep], rtol=0.02)


def start(method: VBAT, seed: int = 0) -> torch.Tensor:
    """Return the noise an adversary starts from, which a step this short does not leave."""
    config = method.config
    method.config = config.replace(adversary_rate=1e-12, adversary_steps=1)
    found = adversary(method, seed)
    method.config = config
    return found


def test_noise_is_normal_up_to_two_deviations(community: Graph) -> None:
    method = prepared(community)
    noise = torch.stack([start(method, seed) for seed in range(100)])
    assert 0.0199 < noise.abs().max() <= 0.02
    # The deviation of a standard normal that is cut off at two is 0.8796; five deviations of the
    # estimates, of which that of a deviation is at most its share 1/√(2n).
    error = 1.0 / np.sqrt(noise.numel())
    assert noise.std().item() == pytest.approx(0.008796, rel=5 * error / np.sqrt(2))
    assert noise.mean().item() == pytest.approx(0.0, abs=5 * error * 0.008796)


def test_the_search_leaves_the_network_alone(community: Graph) -> None:
    method = prepared(community)
    method.loss(None, Stream(0))[0].backward()
    before = [(w.detach().clone(), w.grad.clone()) for w in method.network.parameters()]
    adversary(method)
    for weight, (value, gradient) in zip(method.network.parameters(), before, strict=True):
        assert torch.equal(weight, value)
        assert torch.equal(weight.grad, gradient)


def test_the_loss_is_the_sum_of_its_weighted_terms(community: Graph) -> None:
    method = prepared(community, dropout=0.0)
    with Stream(5).torch_global():
        total, parts = method.loss(None, Stream(5))
    with Stream(5).torch_global():
        perturbation = method.adversary(Stream(5).at("adversary")).double().numpy()
    chances = softmax(logits_at(method, community, np.zeros_like(perturbation)))
    said: Any = softmax(logits_at(method, community, perturbation))
    assert community.split is not None
    train_rows = community.split.train
    expected: dict[str, Any] = {
        "supervised": -np.log(chances[train_rows, community.labels[train_rows]]).mean(),
        "adversarial": -(chances * np.log(said)).sum(axis=1).mean(),
        "entropy": -(chances * np.log(chances)).sum(axis=1).mean(),
    }
    assert set(parts) == set(expected)
    for name, part in parts.items():
        expected[name].assert_near(part.detach(), name)
    weighted = expected["supervised"] + 1.4 * expected["adversarial"] + 0.7 * expected["entropy"]
    weighted.assert_near(total.detach())


def test_the_unperturbed_prediction_is_a_target_and_not_taught() -> None:
    said = torch.randn(5, 3, generator=torch.manual_seed(0), requires_grad=True)
    perturbed = torch.randn(5, 3, generator=torch.manual_seed(1), requires_grad=True)
    disagreement(said, perturbed).backward()
    assert said.grad is None
    assert perturbed.grad is not None
