"""PRBCD and GRBCD: within the budget, by seed, and without a trace in torch's globals."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small_graphs import small_graph

from dropnode.analysis.attacks import prbcd as module
from dropnode.analysis.attacks.flips import apply_flips, budget
from dropnode.analysis.attacks.prbcd import Operator, Prbcd, prbcd
from dropnode.analysis.attacks.surrogate import Task, logits_of, trained
from dropnode.data import per_class_split
from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.methods.table import make_method
from dropnode.ops.propagation import normalise
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import SparseMatrix

QUICK = Prbcd(rate=0.1, epochs=2, block=300)

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train surrogates for a few steps only."""
    monkeypatch.setattr(module, "make_method", partial(make_method, changes={"max_epochs": 15}))
    monkeypatch.setattr(module, "STEPS", 10)


@pytest.fixture
def graph() -> Graph:
    return small_graph()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("variant", ["prbcd", "grbcd"])
@pytest.mark.parametrize("threat", ["poisoning", "evasion"])
def test_the_budget_is_kept_and_no_test_label_read(variant: str, threat: str, graph: Graph) -> None:
    options = QUICK.replace(variant=variant, threat=threat)
    before = torch.get_rng_state()
    counted: list[tuple[int, int]] = []
    attacked = prbcd(graph, options, lambda *told: counted.append(told))
    assert torch.equal(torch.get_rng_state(), before)
    assert counted[-1][0] == counted[-1][1] == options.epochs
    changed = abs(attacked.adjacency - graph.adjacency).sum() / 2
    assert 0 < changed <= budget(graph, options.rate)
    assert (attacked.adjacency != attacked.adjacency.T).nnz == 0
    assert not attacked.adjacency.diagonal().any()

    # Again, without labels that an attack must not read, and so without the cache.
    labels = graph.labels.copy()
    labels[graph.split.test] = -1
    blind = Graph.from_scipy(
        graph.adjacency, graph.features, labels, class_names=graph.class_names, split=graph.split
    )
    flips = module.find_flips(blind, options, budget(graph, options.rate))
    assert apply_flips(graph, flips).fingerprint() == attacked.fingerprint()


@pytest.mark.usefixtures("short")
def test_the_seed_decides(graph: Graph) -> None:
    options = QUICK.replace(threat="evasion")
    first, other = (module.find_flips(graph, options.replace(seed=seed), 8) for seed in (0, 1))
    assert first != other


@pytest.mark.usefixtures("short")
def test_a_finished_attack_comes_from_the_cache(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = QUICK.replace(threat="evasion")
    attacked = prbcd(graph, options)
    monkeypatch.setattr(module, "find_flips", lambda *_: pytest.fail("it ran again"))
    assert prbcd(graph, options).fingerprint() == attacked.fingerprint()


@pytest.mark.usefixtures("short")
def test_the_filters_of_warnings_are_left_alone(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They belong to the process: two attacks in threads would restore each other's."""

    def fail(*arguments: object, **options: object) -> None:
        pytest.fail("the filters of warnings are changed")

    module._library.cache_clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for name in ("catch_warnings", "filterwarnings", "simplefilter"):
            monkeypatch.setattr(warnings, name, fail)
        module.find_flips(graph, QUICK.replace(threat="evasion"), 8)
        monkeypatch.undo()
    assert not [each for each in told if "experimental" in str(each.message)]


def test_the_gradient_of_edge_weights_is_that_of_a_dense_operator() -> None:
    graph = small_graph()
    generator = np.random.default_rng(0)
    upper = sp.triu(graph.adjacency, k=1).tocoo()
    values = torch.tensor(generator.random(upper.nnz), dtype=torch.float32)
    edges = torch.tensor(np.stack(upper.coords), dtype=torch.long)
    x = torch.tensor(generator.normal(size=(graph.num_nodes, 4)), dtype=torch.float32)
    aim = torch.tensor(generator.normal(size=(graph.num_nodes, 4)), dtype=torch.float32)

    weights, inputs = values.clone().requires_grad_(), x.clone().requires_grad_()
    both = torch.cat([edges, edges.flip(0)], dim=1)
    operator = Operator(both, torch.cat([weights, weights]), graph.num_nodes)
    found = operator @ (operator @ inputs)
    (found * aim).sum().backward()

    other, others = values.double().requires_grad_(), x.double().requires_grad_()
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    matrix = matrix.index_put((edges[0], edges[1]), other)
    matrix = matrix + matrix.T + torch.eye(graph.num_nodes)
    scale = matrix.sum(dim=1) ** -0.5
    dense = scale[:, None] * matrix * scale
    expected = dense @ (dense @ others)
    (expected * aim.double()).sum().backward()
    torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(weights.grad, other.grad.float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(inputs.grad, others.grad.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("labelled", [2, 6])
def test_the_poisoned_network_is_that_of_metattack_trained_anew(labelled: int) -> None:
    """With few labels and with more of them than features, it is computed in two ways."""
    graph = small_graph()
    assert graph.num_features == 12  # between the numbers of labelled nodes
    graph = graph.with_split(per_class_split(graph.labels, labelled, 3, seed=0))
    features = SparseMatrix.from_scipy(graph.features)
    surrogate = module._Retrained(graph, features, Stream(0), lambda: None)
    assert surrogate.by_features == (labelled == 6)
    ends = torch.tensor(np.stack(graph.adjacency.tocoo().coords), dtype=torch.long)
    weights = torch.ones(ends.shape[1], requires_grad=True)
    found = surrogate.logits(surrogate.inputs, Operator(ends, weights, graph.num_nodes))

    train = surrogate.train_nodes
    targets = torch.zeros(graph.num_nodes, 3)
    targets[train] = surrogate.targets
    task = Task(features, train, targets, torch.zeros(graph.num_nodes))
    clean = SparseMatrix.from_scipy(normalise(graph.adjacency), symmetric=True)
    last = trained(clean, task, surrogate.start, module.STEPS, rate=0.1, momentum=0.9)
    torch.testing.assert_close(found, logits_of(clean, features, last), rtol=1e-4, atol=1e-4)

    # The slope along a random direction of weights, by differences.
    aim = torch.tensor(np.random.default_rng(0).normal(size=found.shape), dtype=torch.float32)
    (slopes,) = torch.autograd.grad((found * aim).sum(), weights)
    step = 1e-2 * torch.ones_like(weights)
    with torch.no_grad():
        above, below = (
            (surrogate.logits(surrogate.inputs, Operator(ends, each, graph.num_nodes)) * aim).sum()
            for each in (weights + step, weights - step)
        )
    assert (slopes * step).sum().item() == pytest.approx((above - below).item() / 2, rel=0.02)


def test_a_block_below_the_budget_is_refused(graph: Graph) -> None:
    with pytest.raises(ConfigError, match="raise block above it"):
        prbcd(graph, QUICK.replace(block=2))


@pytest.mark.slow
def test_it_reaches_pubmed() -> None:
    from dropnode.data import load_dataset
    from dropnode.errors import DataError

    try:
        graph = load_dataset("pubmed")
    except DataError as error:
        pytest.skip(f"pubmed cannot be obtained on this machine: {error}")
    attacked = prbcd(graph, Prbcd(rate=0.01, epochs=5))
    assert 0 < abs(attacked.adjacency - graph.adjacency).sum() / 2 <= 443
