"""The training step in kernels is the training step in plain torch, and what its options say."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import breadth_first_order

import oracles
from dropnode.data import load_dataset
from dropnode.data.generators.sbm import make
from dropnode.errors import DataError
from dropnode.graph import Graph, Split
from dropnode.methods.grand.config import GrandConfig, preset
from dropnode.methods.grand.model import Grand
from dropnode.ops.randomness import Stream
from dropnode.saving import load_model, save_model
from dropnode.training import train
from grand_oracle import (
    StepResult,
    assert_trained,
    inferred_logits,
    move_from_the_start,
    oracle_step,
    take_step,
    trained,
)
from rounding import Rounded

pytestmark = pytest.mark.usefixtures("features_as_given")

Configure = Callable[..., GrandConfig]
STREAM = Stream(21).at("phase", 0, "epoch", 1, "batch", 0)

DROPOUTS: dict[str, dict[str, Any]] = {
    "none": {},
    "propagated": {"input_dropout": 0.35},
    "columns": {"input_dropout": 0.35, "input_dropout_on": "columns"},
    "entries": {"input_dropout": 0.35, "input_dropout_on": "entries"},
}
NORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch": {"batch_norm": True},
    "fixed": {"batch_norm": True, "input_norm": "fixed"},
}
COMBINATIONS = [
    pytest.param(perturbation, dropout, norm, id=f"{perturbation}-{dropout}-{norm}")
    for perturbation, dropout, norm in itertools.product(
        ("dropnode", "dropout", "dropedge"), DROPOUTS, NORMS
    )
    # Raw features are dropped out only where the first layer commutes with propagation.
    if not (norm == "batch" and dropout in ("columns", "entries"))
]
every_combination = pytest.mark.parametrize(("perturbation", "dropout", "norm"), COMBINATIONS)


@contextmanager
def plain_torch() -> Iterator[None]:
    """Compute on the CPU what other devices compute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DROPNODE_KERNELS", "0")
        yield


def both_kinds(graph: Graph) -> tuple[Graph, Graph]:
    """The graph with dense and with sparse features."""
    dense = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    first, second = (
        Graph.from_scipy(graph.adjacency, features, graph.labels, split=graph.split)
        for features in (dense, sp.csr_array(dense))
    )
    return first, second


@pytest.fixture(scope="module")
def blocks() -> Graph:
    """Five communities, 300 nodes and 150 sparse features: several blocks of 64 of each."""
    drawn = make(nodes=300, features=150, average_degree=6, seed=5)
    features = sp.csr_array(np.where(drawn.features > 1.2, drawn.features, 0.0))
    order = np.random.default_rng(0).permutation(300)
    split = Split(order[:40], order[40:80], order[80:])
    return Graph.from_scipy(drawn.adjacency, features, drawn.labels, split=split)


def prepared(config: GrandConfig, graph: Graph, **options: Any) -> Grand:
    method = Grand(config, **options)
    assert graph.split is not None
    method.prepare(graph, graph.split, Stream(3).at("initialisation"))
    move_from_the_start(method.head)
    return method


def has_step(config: GrandConfig, sparse: bool) -> bool:
    """Whether a perceptron with these options trains in kernels."""
    dropped_after = config.input_dropout > 0 and config.input_dropout_on == "propagated"
    fixed = config.batch_norm and config.input_norm == "fixed"
    if not dropped_after and (fixed or not config.batch_norm):
        return True
    # Otherwise features are propagated by column, which dropout on dense ones does not allow.
    return not fixed and (sparse or config.perturbation != "dropout")


def assert_same_step(config: GrandConfig, graph: Graph, **options: Any) -> None:
    """One step and what is predicted after it, in kernels and in plain torch, are the oracle's."""
    method = prepared(config, graph, **options)
    assert (method._step is not None) == has_step(config, sp.issparse(graph.features))
    expected = StepResult.of(method, graph, STREAM)
    expected.assert_taken_by(method, STREAM)
    assert_logits(method, graph)
    with plain_torch():
        method = prepared(config, graph, **options)
        assert method._step is None
        expected.assert_taken_by(method, STREAM)
        assert_logits(method, graph)


def assert_logits(method: Grand, graph: Graph) -> None:
    """Of all nodes, and of the validation part as training asks for them."""
    assert graph.split is not None
    expected = inferred_logits(method, graph)
    expected.assert_near(method.logits(), "the logits")
    expected[graph.split.val].assert_near(method.logits(rows=graph.split.val), "logits of rows")


@every_combination
def test_the_step_of_a_small_graph(
    community: Graph, configure: Configure, perturbation: str, dropout: str, norm: str
) -> None:
    """Every combination of what may differ, one training step each."""
    layers = DROPOUTS[dropout] | NORMS[norm]
    for sparse, inference, total in itertools.product((False, True), repeat=3):
        config = configure(
            perturbation=perturbation,
            mask_scaling="inference" if inference else "training",
            reduction="sum" if total else "mean",
            # So that any three of the four options meet in all ways.
            augmentations=3 if sparse ^ inference ^ total else 1,
            **layers,
        )
        assert_same_step(config, both_kinds(community)[sparse])


@every_combination
def test_the_step_of_a_graph_of_several_blocks(
    blocks: Graph, configure: Configure, perturbation: str, dropout: str, norm: str
) -> None:
    layers = DROPOUTS[dropout] | NORMS[norm]
    for graph, (mask_scaling, reduction) in zip(
        both_kinds(blocks), (("training", "mean"), ("inference", "sum")), strict=True
    ):
        config = configure(
            perturbation=perturbation,
            mask_scaling=mask_scaling,
            reduction=reduction,
            hidden=20,
            **layers,
        )
        assert_same_step(config, graph, class_weights=np.array([0.2, 1.0, 3.0, 0.5, 2.0]))


@pytest.mark.parametrize("changes", [
    {"order": 0},
    {"order": 9, "hidden": 70, "augmentations": 5},
    {"drop_rate": 0.0, "hidden_dropout": 0.0},
    {"drop_rate": 0.95, "input_dropout": 0.9, "hidden_dropout": 0.9},
    {"consistency_weight": 0.0},
    {"temperature": 0.1, "consistency_weight": 20.0},
    {"temperature": 1.0, "augmentations": 1},
    {"hidden": 1, "feature_scaling": "none"},
    {"hidden": 16, "feature_scaling": "standard"},
])  # fmt: skip
@pytest.mark.parametrize("norm", NORMS)
def test_other_sizes_and_rates(
    blocks: Graph, configure: Configure, norm: str, changes: dict[str, Any]
) -> None:
    assert_same_step(configure(**(NORMS[norm] | changes)), blocks)


@pytest.mark.parametrize(
    ("order", "augmentations", "small"), [(1, 1, False), (12, 1, True), (1, 4, True)]
)
@pytest.mark.parametrize("perturbation", ["dropnode", "dropout", "dropedge"])
def test_both_ways_to_propagate_features(
    blocks: Graph,
    configure: Configure,
    perturbation: str,
    order: int,
    augmentations: int,
    small: bool,
) -> None:
    """By sums of rows of Ā where hops or views are many, otherwise hop by hop."""
    config = configure(
        perturbation=perturbation, order=order, augmentations=augmentations, input_dropout=0.5
    )
    step = prepared(config, blocks)._step
    assert step is not None
    assert (step.first.small is not None) == small  # type: ignore[attr-defined]
    assert_same_step(config, blocks)


@pytest.mark.slow
@every_combination
def test_weights_after_five_epochs(
    community: Graph, configure: Configure, perturbation: str, dropout: str, norm: str
) -> None:
    """Masks, gradients, Adam and decay together, in kernels and in plain torch."""
    layers = DROPOUTS[dropout] | NORMS[norm]
    config = configure(max_epochs=5, perturbation=perturbation, **layers)
    assert community.split is not None
    # The last weights are kept if nothing validates.
    unwatched = community.with_split(Split(community.split.train, [], []))
    for graph in both_kinds(unwatched):
        fused, plain = Grand(config), Grand(config)
        assert graph.split is not None
        fused.prepare(graph, graph.split, Stream(4).at("initialisation"))
        expected = trained(config, graph, 4, fused.head)
        assert_trained(expected, train(fused, graph, seed=4).history, fused.head)
        with plain_torch():
            assert_trained(expected, train(plain, graph, seed=4).history, plain.head)
        assert plain._step is None


def without_an_entry(x: Any) -> Any:
    """Set an entry of a matrix to zero, one on which something depends."""
    value = x.value.copy() if isinstance(x, Rounded) else x.copy()
    stored = np.argwhere(value)
    value[tuple(stored[len(stored) // 4])] = 0.0
    return Rounded(value, steps=x.steps) if isinstance(x, Rounded) else value


def without_in_first_view(step: oracles.Step, name: str) -> oracles.Step:
    first, *others = step.views
    changed = replace(first, **{name: without_an_entry(getattr(first, name))})
    return replace(step, views=[changed, *others])


MISTAKES: dict[str, Callable[[oracles.Step], oracles.Step]] = {
    "another temperature": lambda s: replace(s, temperature=1.01 * s.temperature),
    "another weight": lambda s: replace(s, consistency_weight=1.01 * s.consistency_weight),
    "the other reduction": lambda s: replace(s, reduction="sum"),
    "a label forgotten": lambda s: replace(s, rows=s.rows[:-1], labels=s.labels[:-1]),
    "a hop more": lambda s: replace(s, order=s.order + 1),
    "a view for another": lambda s: replace(s, views=[s.views[1], *s.views[1:]]),
    "a unit dropped": lambda s: without_in_first_view(s, "hidden_mask"),
    "a feature dropped": lambda s: without_in_first_view(s, "features"),
    "an edge lost": lambda s: without_in_first_view(s, "operator"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("norm", NORMS)
def test_mistakes_are_larger_than_the_bounds(
    community: Graph, configure: Configure, norm: str, mistake: str
) -> None:
    """Bounds that allow for rounding do not allow for anything else."""
    config = configure(**NORMS[norm])
    method = prepared(config, community)
    wrong = MISTAKES[mistake](oracle_step(config, community, STREAM))
    expected = StepResult.from_here(method.head, wrong)
    taken = take_step(method, STREAM)
    for kind in ("losses", "gradients"):
        with pytest.raises(AssertionError, match="times what rounding explains"):
            expected.assert_agrees(kind, getattr(taken, kind))


@pytest.mark.parametrize("name", ["cora", "pubmed"])
@pytest.mark.parametrize("fidelity", ["official", "fast"])
@pytest.mark.parametrize("nodes", [700, pytest.param(4000, marks=pytest.mark.slow)])
def test_the_step_of_a_published_graph(name: str, fidelity: str, nodes: int) -> None:
    """Of a part around its labels; of Cora, the larger part is the whole."""
    try:
        graph = load_dataset(name)
    except DataError as error:
        pytest.skip(f"{name} cannot be obtained on this machine: {error}")
    _, config = preset(fidelity, name)
    graph = around_its_labels(graph, nodes)
    method = prepared(config, graph)
    assert method._step is not None
    StepResult.of(method, graph, STREAM).assert_taken_by(method, STREAM)
    assert_logits(method, graph)


def around_its_labels(graph: Graph, count: int) -> Graph:
    """Return the nodes that a walk from the first labelled one reaches first, and the labelled."""
    assert graph.split is not None
    if count >= graph.num_nodes:
        return graph
    reached = breadth_first_order(sp.csr_matrix(graph.adjacency), graph.split.train[0])[0]
    nodes = np.union1d(reached[:count], graph.split.train)
    places = np.full(graph.num_nodes, -1)
    places[nodes] = np.arange(len(nodes))
    train_part, val_part = (places[part] for part in (graph.split.train, graph.split.val))
    return Graph.from_scipy(
        graph.adjacency[nodes][:, nodes],
        graph.features[nodes],
        graph.labels[nodes],
        class_names=graph.class_names,
        split=Split(train_part, val_part[val_part >= 0], []),
    )


MODES: dict[str, dict[str, Any]] = {
    "commuting": {},
    "columns-fixed": DROPOUTS["columns"] | NORMS["fixed"],
    "entries": DROPOUTS["entries"],
    "propagated": DROPOUTS["propagated"] | {"order": 1},
    "propagated-small": DROPOUTS["propagated"] | {"order": 12},
    "batch": DROPOUTS["propagated"] | NORMS["batch"],
    "dropedge": {"perturbation": "dropedge"},
    "dropout": {"perturbation": "dropout"},
}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("mode", MODES)
def test_the_number_of_threads_does_not_show(
    blocks: Graph, configure: Configure, mode: str
) -> None:
    config = configure(hidden=40, **MODES[mode])
    results = []
    for number in (1, 2):
        torch.set_num_threads(number)
        method = prepared(config, blocks)
        assert method._step is not None
        loss, _ = method.loss(None, STREAM)
        loss.backward()
        gradients = {f"gradient of {n}": p.grad for n, p in method.head.named_parameters()}
        results.append({"loss": loss, **gradients, **dict(method.head.named_buffers())})
    one, two = results
    for name, found in one.items():
        assert torch.equal(found, two[name]), name


HEADS: dict[str, dict[str, Any]] = {
    "gcn": {"head": "gcn"},
    "gcn with a norm": {"head": "gcn", "batch_norm": True},
    "gat": {"head": "gat", "hidden_dropout": 0.0},
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("perturbation", ["dropnode", "dropout", "dropedge"])
def test_the_first_layer_of_other_heads(
    blocks: Graph, configure: Configure, perturbation: str, head: str
) -> None:
    """It is computed in kernels; autograd does the rest, and hands back a gradient."""
    graph = both_kinds(blocks)[1]
    config = configure(perturbation=perturbation, input_dropout=0.35, **HEADS[head])
    method = prepared(config, graph)
    assert method._first is not None
    if head != "gat":
        expected = StepResult.of(method, graph, STREAM)
        for plain in (False, True):
            with plain_torch() if plain else nullcontext():
                method = prepared(config, graph)
                assert (method._first is None) == plain
                expected.assert_taken_by(method, STREAM)
                assert_logits(method, graph)
        return
    # Attention is not in the oracle, and the same code in both paths.
    streams = [STREAM.at("augmentation", s) for s in range(config.augmentations)]
    drawn = [
        method.perturbation.draw(
            each.at("perturbation"), method.tensors.operator, method.tensors.features
        )
        for each in streams
    ]
    product = method._first(drawn, streams)
    weight = Rounded(method.head.weight1.detach().double().numpy())
    pull = np.random.default_rng(0).standard_normal(product.shape).astype(np.float32)
    product.backward(torch.from_numpy(pull))
    gradient: Any = 0.0
    for number, view in enumerate(oracle_step(config, graph, STREAM).views):
        seen = oracles.propagated(view.operator, config.order, view.features) * view.input_mask
        (seen @ weight).assert_near(product[:, number].detach(), "the product")
        gradient = gradient + seen.T @ Rounded(pull[:, number].astype(np.float64))
    assert method.head.weight1.grad is not None
    gradient.assert_near(method.head.weight1.grad, "the gradient")


def test_a_first_layer_is_differentiated_before_the_next(
    blocks: Graph, configure: Configure
) -> None:
    method = prepared(configure(head="gcn", input_dropout=0.35), both_kinds(blocks)[1])
    earlier, later = (method.loss(None, STREAM.at(number))[0] for number in range(2))
    with pytest.raises(RuntimeError, match="call backward"):
        earlier.backward()
    later.backward()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_second_loss_leaves_the_first_ones_gradient_alone(
    blocks: Graph, configure: Configure, mode: str, sparse: bool
) -> None:
    """A step's memory is used again by the next, before anybody asked for the gradient."""
    graph = both_kinds(blocks)[sparse]
    config = configure(**MODES[mode])
    streams = [STREAM.at("again", number) for number in range(3)]

    def gradient(method: Grand) -> list[torch.Tensor]:
        found = [parameter.grad for parameter in method.head.parameters()]
        method.head.zero_grad()
        return [part.clone() for part in found if part is not None]

    alone = []
    for stream in streams:
        method = prepared(config, graph)
        method.loss(None, stream)[0].backward()
        alone.append(gradient(method))
    method = prepared(config, graph)
    losses = [method.loss(None, stream)[0] for stream in streams]
    for number in (1, 2, 0):
        losses[number].backward()
        for one, other in zip(gradient(method), alone[number], strict=True):
            assert torch.equal(one, other)
    total = method.loss(None, streams[0])[0] - 2.0 * method.loss(None, streams[2])[0]
    total.backward()
    for found, *parts in zip(gradient(method), alone[0], alone[2], strict=True):
        first, last = (Rounded(part.double().numpy()) for part in parts)
        (first - 2.0 * last).assert_near(found)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_model_trained_fast_comes_back_whole(
    blocks: Graph, configure: Configure, tmp_path: Path, sparse: bool
) -> None:
    graph = both_kinds(blocks)[sparse]
    assert graph.split is not None
    method = Grand(configure(max_epochs=4, **MODES["columns-fixed"]))
    train(method, graph, seed=1)
    save_model(tmp_path, method, graph)
    loaded = load_model(tmp_path).method
    assert loaded.config == method.config
    rows = graph.split.test[:7]
    assert torch.equal(loaded.logits(), method.logits())
    assert torch.equal(loaded.logits(rows=rows), method.logits(rows=rows))
    assert torch.equal(loaded.logits(graph), method.logits(graph))
    for name, value in method.state().items():
        assert torch.equal(loaded.state()[name], value), name


def test_no_rows_have_no_logits(community: Graph, configure: Configure) -> None:
    method = prepared(configure(), community)
    assert method.logits(rows=np.array([], dtype=np.int64)).shape == (0, 3)


@pytest.mark.parametrize(
    ("name", "value"), [("weight1", np.nan), ("bias1", np.nan), ("bias2", np.inf)]
)
def test_what_is_not_finite_is_not_swallowed(
    community: Graph, configure: Configure, name: str, value: float
) -> None:
    """ReLU and softmax have ways to turn a weight that diverged into an innocent loss."""
    method = prepared(configure(), community)
    with torch.no_grad():
        getattr(method.head, name).view(-1)[0] = value
    assert not torch.isfinite(method.loss(None, STREAM)[0])
