"""The training step in kernels is the training step in plain torch, and what its options say."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import oracles
from dropnode.data import load_dataset
from dropnode.data.generators.sbm import make
from dropnode.errors import DataError
from dropnode.graph import Graph, Split
from dropnode.methods.grand.config import GrandConfig, preset
from dropnode.methods.grand.fused.step import Step
from dropnode.methods.grand.model import Grand
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.propagation import SparseMatrix
from dropnode.ops.randomness import Stream, keep_mask
from dropnode.saving import load_model, save_model
from dropnode.training import train

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
    with torch.no_grad():
        # Away from zero biases and unit norms, where a forgotten term would not show.
        for name, value in method.head.named_parameters():
            if "norm" in name or "bias" in name:
                generator = torch.Generator().manual_seed(len(name))
                value.add_(torch.randn(value.shape, generator=generator), alpha=0.3)
    return method


@dataclass
class Result:
    """What one training step changes and tells."""

    loss: torch.Tensor
    parts: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    step: Step | None


def one_step(config: GrandConfig, graph: Graph, **options: Any) -> Result:
    return step_of(prepared(config, graph, **options), graph)


def step_of(method: Grand, graph: Graph) -> Result:
    loss, parts = method.loss(None, STREAM)
    loss.backward()
    gradients = {}
    for name, parameter in method.head.named_parameters():
        assert parameter.grad is not None, name
        gradients[name] = parameter.grad
    return Result(
        loss.detach(),
        {name: part.detach() for name, part in parts.items()},
        gradients,
        dict(method.head.named_buffers()),
        method._step,
    )


def logits_of(method: Grand, graph: Graph) -> list[torch.Tensor]:
    """Logits of all nodes, and of the validation part as training asks for them."""
    assert graph.split is not None
    return [method.logits(), method.logits(rows=graph.split.val)]


def has_step(config: GrandConfig, sparse: bool) -> bool:
    """Whether a perceptron with these options trains in kernels."""
    dropped_after = config.input_dropout > 0 and config.input_dropout_on == "propagated"
    fixed = config.batch_norm and config.input_norm == "fixed"
    if not dropped_after and (fixed or not config.batch_norm):
        return True
    # Otherwise features are propagated by column, which dropout on dense ones does not allow.
    return not fixed and (sparse or config.perturbation != "dropout")


def assert_same_step(config: GrandConfig, graph: Graph, **options: Any) -> None:
    """One step and what is predicted after it, in kernels and in plain torch."""
    method = prepared(config, graph, **options)
    fused, logits = step_of(method, graph), logits_of(method, graph)
    assert (fused.step is not None) == has_step(config, sp.issparse(graph.features))
    with plain_torch():
        method = prepared(config, graph, **options)
        plain, expected = step_of(method, graph), logits_of(method, graph)
    assert plain.step is None
    assert_same_results(fused, plain, Allowed.in_step(config, graph))
    assert_same_logits(logits, expected, Allowed.in_step(config, graph))


@dataclass
class Allowed:
    """What rounding may change in a step.

    Attributes
    ----------
    relative : float
        By the lengths of all sums: hops over the neighbours of a node, its features, hidden units,
        classes, and on the way back all views of all nodes. Sharpening multiplies an error by the
        inverse of the temperature.
    slope : float
        An error of the gradient of the logits, summed over the nodes. It counts where large slopes
        cancel, so that a gradient is small and its terms are not.
    """

    relative: float
    slope: float

    @classmethod
    def in_step(cls, config: GrandConfig, graph: Graph) -> Allowed:
        assert graph.split is not None
        nodes, labelled = graph.num_nodes, len(graph.split.train)
        relative = oracles.drift(
            config.order * (np.diff(graph.adjacency.indptr).max() + 2),
            np.diff(sp.csr_array(graph.features).indptr).max(),
            config.hidden,
            graph.num_classes / config.temperature**2,
            config.augmentations * nodes,
        )
        slopes = 1.0 / labelled, 2 * config.consistency_weight / config.temperature / nodes
        if config.reduction == "sum":
            slopes = slopes[0] * labelled, slopes[1] * nodes
        errors = slopes[0] * np.sqrt(labelled), slopes[1] * np.sqrt(nodes)
        return cls(relative, oracles.drift(1) * sum(errors))


def assert_same(one: torch.Tensor, other: torch.Tensor, relative: float, least: float) -> None:
    """Equal up to a part of the largest entry: in a sum, small results have large terms too."""
    assert one.shape == other.shape
    if other.numel():
        bound = relative * other.abs().max().item() + least
        torch.testing.assert_close(one.double(), other.double(), rtol=0.0, atol=bound)


def assert_same_results(fused: Result, plain: Result, allowed: Allowed) -> None:
    assert_same(fused.loss, plain.loss, allowed.relative, 0.0)
    for kind, least in (("parts", 1e-9), ("gradients", allowed.slope), ("buffers", 1e-9)):
        found, expected = getattr(fused, kind), getattr(plain, kind)
        assert set(found) == set(expected)
        for name, value in found.items():
            assert_same(value, expected[name], allowed.relative, least)


def assert_same_logits(
    found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], allowed: Allowed
) -> None:
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other, allowed.relative, 0.0)


@every_combination
def test_the_step_of_a_small_graph(
    community: Graph, configure: Configure, perturbation: str, dropout: str, norm: str
) -> None:
    """Every combination of what may differ, one training step each."""
    layers = DROPOUTS[dropout] | NORMS[norm]
    for graph, mask_scaling, reduction, augmentations in itertools.product(
        both_kinds(community), ("training", "inference"), ("mean", "sum"), (1, 3)
    ):
        config = configure(
            perturbation=perturbation,
            mask_scaling=mask_scaling,
            reduction=reduction,
            augmentations=augmentations,
            **layers,
        )
        assert_same_step(config, graph)


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


@pytest.mark.parametrize(("order", "small"), [(1, False), (12, True)])
@pytest.mark.parametrize("perturbation", ["dropnode", "dropout", "dropedge"])
def test_both_ways_to_propagate_features(
    blocks: Graph, configure: Configure, perturbation: str, order: int, small: bool
) -> None:
    """By sums of rows of Ā where hops are many, otherwise hop by hop."""
    config = configure(perturbation=perturbation, order=order, input_dropout=0.5)
    step = prepared(config, blocks)._step
    assert step is not None
    assert (step.first.small is not None) == small  # type: ignore[attr-defined]
    assert_same_step(config, blocks)


@every_combination
def test_weights_after_five_epochs(
    community: Graph, configure: Configure, perturbation: str, dropout: str, norm: str
) -> None:
    layers = DROPOUTS[dropout] | NORMS[norm]
    config = configure(max_epochs=5, perturbation=perturbation, **layers)
    for graph in both_kinds(community):
        fused, plain = Grand(config), Grand(config)
        first = train(fused, graph, seed=4)
        with plain_torch():
            second = train(plain, graph, seed=4)
        assert plain._step is None
        assert first.best_epoch == second.best_epoch
        for line, other in zip(first.history, second.history, strict=True):
            assert line == pytest.approx(other, rel=1e-4, abs=1e-6)
        assert set(fused.state()) == set(plain.state())
        for name, value in fused.state().items():
            np.testing.assert_allclose(
                value, plain.state()[name], rtol=1e-3, atol=1e-5, err_msg=name
            )


@pytest.mark.parametrize("name", ["cora", "pubmed"])
@pytest.mark.parametrize("fidelity", ["official", "fast"])
def test_the_step_of_a_published_graph(name: str, fidelity: str) -> None:
    """Against float64: of 2.5 million activations, float32 puts some on the other side of zero."""
    try:
        graph = load_dataset(name)
    except DataError as error:
        pytest.skip(f"{name} cannot be obtained on this machine: {error}")
    _, config = preset(fidelity, name)
    method = prepared(config, graph)
    logits = logits_of(method, graph)
    fused = step_of(method, graph)
    assert fused.step is not None
    with plain_torch():
        method = prepared(config, graph)
        expected = logits_of(method, graph)
        method.head.double()
        method.tensors = in_float64(method.tensors)
        plain = step_of(method, graph)
    assert plain.step is None
    assert_same_results(fused, plain, Allowed.in_step(config, graph))
    assert_same_logits(logits, expected, Allowed.in_step(config, graph))


def in_float64(tensors: GraphTensors) -> GraphTensors:
    def precise(matrix: SparseMatrix) -> SparseMatrix:
        return SparseMatrix(matrix.forward.to(torch.float64), matrix.symmetric)

    features = tensors.features
    wide = precise(features) if isinstance(features, SparseMatrix) else features.double()
    return GraphTensors(wide, tensors.adjacency, operator=precise(tensors.operator))


def weights_of(method: Grand) -> oracles.Weights:
    return {
        name: value.detach().double().numpy().copy()
        for name, value in method.head.named_parameters()
    }


class ByHand:
    """The head on propagated features, in float64, step by step as its options are defined."""

    def __init__(self, config: GrandConfig, graph: Graph) -> None:
        self.config = config
        self.sparse = sp.issparse(graph.features)
        raw = graph.features.toarray() if self.sparse else graph.features
        self.features = oracles.row_normalised(raw)
        self.operator = oracles.normalised(graph.adjacency.toarray())
        assert graph.split is not None
        self.split, self.labels = graph.split, graph.labels
        # Unperturbed, scaled as inference scales: what the fixed norm is fitted to.
        scaling = config.mask_scaling == "inference"
        factor = 1.0 - config.drop_rate if scaling else 1.0
        self.clean = factor * oracles.mixed(self.operator, config.order) @ self.features

    def kept(self, stream: Stream, what: str) -> oracles.Array:
        """Return ones and zeros for columns or for entries of X."""
        rate, shape = self.config.input_dropout, self.features.shape
        if what == "columns":
            return np.broadcast_to(keep_mask(stream.at("input"), (shape[1],), rate), shape)
        if not self.sparse:
            return keep_mask(stream.at("input"), shape, rate).astype(float)
        entries = int(np.count_nonzero(self.features))
        bits = keep_mask(stream.at("input"), (entries,), rate)
        return oracles.drop_stored((self.features != 0).astype(float), bits)

    def normed(self, x: oracles.Array, weights: oracles.Weights) -> oracles.Array:
        """Standardise by the statistics of the clean features, and apply gain and offset."""
        if not self.config.batch_norm:
            return x
        deviation = np.sqrt(self.clean.var(axis=0) + 1e-5)
        unit = (x - self.clean.mean(axis=0)) / deviation
        return unit * weights["norm1.weight"] + weights["norm1.bias"]

    def first(self, stream: Stream, weights: oracles.Weights) -> oracles.Array:
        """Return what the first linear map reads of one view."""
        config = self.config
        scale = 1.0 / (1.0 - config.drop_rate) if config.mask_scaling == "training" else 1.0
        nodes = keep_mask(stream.at("perturbation"), (len(self.features),), config.drop_rate)
        seen = scale * oracles.drop_nodes(self.features, nodes)
        kept = self.kept(stream, config.input_dropout_on) / (1.0 - config.input_dropout)
        whole_columns = config.input_dropout_on == "columns"
        if not (whole_columns and config.batch_norm):
            seen = seen * kept
        result = self.normed(oracles.mixed(self.operator, config.order) @ seen, weights)
        # A column that is dropped is dropped from what the norm makes of it: norm before dropout.
        return result * kept if whole_columns and config.batch_norm else result

    def probabilities(self, weights: oracles.Weights) -> list[oracles.Array]:
        config, views = self.config, []
        for s in range(config.augmentations):
            stream = STREAM.at("augmentation", s)
            x = self.first(stream, weights) @ weights["weight1"] + weights["bias1"]
            x = np.maximum(x, 0.0)
            if config.batch_norm:
                x = oracles.batch_norm(x, weights["norm2.weight"], weights["norm2.bias"])
            rate = config.hidden_dropout
            x = x * keep_mask(stream.at("hidden"), x.shape, rate) / (1.0 - rate)
            views.append(oracles.softmax(x @ weights["weight2"] + weights["bias2"]))
        return views

    def losses(
        self, weights: oracles.Weights, target: oracles.Array | None = None
    ) -> tuple[float, float, float]:
        """Total, supervised and consistency loss; ``target`` replaces the guess."""
        config, views = self.config, self.probabilities(weights)
        rows = self.split.train
        if target is None:
            target = oracles.guessed(views, config.temperature)
        supervised = oracles.supervised(views, rows, self.labels[rows], config.reduction)
        consistency = oracles.consistency(views, target, config.reduction)
        return supervised + config.consistency_weight * consistency, supervised, consistency


@pytest.mark.parametrize("mask_scaling", ["training", "inference"])
@pytest.mark.parametrize("norm", ["plain", "fixed"])
@pytest.mark.parametrize("dropout", ["columns", "entries"])
@pytest.mark.parametrize("plain", [False, True], ids=["kernels", "torch"])
def test_what_is_dropped_before_propagation(
    community: Graph,
    configure: Configure,
    plain: bool,
    dropout: str,
    norm: str,
    mask_scaling: str,
) -> None:
    """The exchange of linear map, norm and propagation against the definition of the options."""
    config = configure(
        mask_scaling=mask_scaling, hidden=4, augmentations=2, **DROPOUTS[dropout], **NORMS[norm]
    )
    for graph in both_kinds(community):
        if plain:
            with plain_torch():
                method = prepared(config, graph)
                loss, parts = method.loss(None, STREAM)
        else:
            method = prepared(config, graph)
            loss, parts = method.loss(None, STREAM)
        assert (method._step is None) == plain
        loss.backward()
        weights = weights_of(method)
        by_hand = ByHand(config, graph)
        total, supervised, consistency = by_hand.losses(weights)
        assert loss.item() == pytest.approx(total, rel=1e-5)
        assert parts["supervised"].item() == pytest.approx(supervised, rel=1e-5)
        assert parts["consistency"].item() == pytest.approx(consistency, rel=1e-5)
        target = oracles.guessed(by_hand.probabilities(weights), config.temperature)
        slopes = oracles.finite_differences(by_hand, weights, target)  # type: ignore[arg-type]
        for name, parameter in method.head.named_parameters():
            assert parameter.grad is not None
            bound = 2e-5 * np.abs(slopes[name]).max() + 1e-7
            np.testing.assert_allclose(
                parameter.grad.numpy(), slopes[name], rtol=1e-4, atol=bound, err_msg=name
            )


@pytest.mark.parametrize("mask_scaling", ["training", "inference"])
@pytest.mark.parametrize("dropout", ["columns", "entries"])
def test_inference_uses_the_fixed_statistics(
    community: Graph, configure: Configure, dropout: str, mask_scaling: str
) -> None:
    config = configure(mask_scaling=mask_scaling, **DROPOUTS[dropout], **NORMS["fixed"])
    for graph in both_kinds(community):
        method = prepared(config, graph)
        weights = weights_of(method)
        by_hand = ByHand(config, graph)
        x = by_hand.normed(by_hand.clean, weights) @ weights["weight1"] + weights["bias1"]
        # The second norm's running statistics are still those of the beginning.
        gain = weights["norm2.weight"] / np.sqrt(1 + 1e-5)
        x = np.maximum(x, 0.0) * gain + weights["norm2.bias"]
        expected = x @ weights["weight2"] + weights["bias2"]
        rows = np.array([24, 0, 5])
        np.testing.assert_allclose(method.logits(), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(method.logits(graph), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(method.logits(rows=rows), expected[rows], rtol=1e-4, atol=1e-5)


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
        result = one_step(config, blocks)
        assert result.step is not None
        results.append(result)
    one, two = results
    assert torch.equal(one.loss, two.loss)
    for name, gradient in one.gradients.items():
        assert torch.equal(gradient, two.gradients[name]), name
    for name, buffer in one.buffers.items():
        assert torch.equal(buffer, two.buffers[name]), name


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
    """The first layer in kernels and the rest by autograd, or all of it in plain torch."""
    graph = both_kinds(blocks)[1]
    config = configure(perturbation=perturbation, input_dropout=0.35, **HEADS[head])
    method = prepared(config, graph)
    assert method._first is not None
    fused, logits = step_of(method, graph), logits_of(method, graph)
    with plain_torch():
        method = prepared(config, graph)
        assert method._first is None
        plain, expected = step_of(method, graph), logits_of(method, graph)
    assert_same_results(fused, plain, Allowed.in_step(config, graph))
    assert_same_logits(logits, expected, Allowed.in_step(config, graph))


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
    for found, first, last in zip(gradient(method), alone[0], alone[2], strict=True):
        torch.testing.assert_close(found, first - 2.0 * last, rtol=1e-5, atol=1e-7)


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
