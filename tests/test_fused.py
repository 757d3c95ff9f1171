"""The training step in kernels is the training step in plain torch, and what its options say."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import oracles
from grand.config import GrandConfig, preset
from grand.data import DataError, load_dataset
from grand.data.sbm import make
from grand.fused import Step
from grand.graph import Graph, Split
from grand.method import Grand
from grand.randomness import Stream, keep_mask
from grand.saving import load_model, save_model
from grand.training import train

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
PERTURBATIONS = ("dropnode", "dropout", "dropedge")

every_layer = pytest.mark.parametrize(
    ("dropout", "norm"), list(itertools.product(DROPOUTS, NORMS)), ids="-".join
)
every_perturbation = pytest.mark.parametrize("perturbation", PERTURBATIONS)


@contextmanager
def plain_torch() -> Iterator[None]:
    """Compute on the CPU what other devices compute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grand.kernels.usable", lambda device: False)
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
    """Everything that one training step changes or tells."""

    loss: torch.Tensor
    parts: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    logits: torch.Tensor
    validation: torch.Tensor
    step: Step | None


def one_step(config: GrandConfig, graph: Graph, **options: Any) -> Result:
    method = prepared(config, graph, **options)
    loss, parts = method.loss(None, STREAM)
    loss.backward()
    gradients = {}
    for name, parameter in method.head.named_parameters():
        assert parameter.grad is not None, name
        gradients[name] = parameter.grad
    assert graph.split is not None
    return Result(
        loss.detach(),
        {name: part.detach() for name, part in parts.items()},
        gradients,
        dict(method.head.named_buffers()),
        method.logits(),
        method.logits(rows=graph.split.val),
        method._step,
    )


def has_step(config: GrandConfig, sparse: bool) -> bool:
    """Whether a perceptron with these options trains in kernels."""
    dropped_after = config.input_dropout > 0 and config.input_dropout_on == "propagated"
    fixed = config.batch_norm and config.input_norm == "fixed"
    if not dropped_after and (fixed or not config.batch_norm):
        return True
    # Otherwise features are propagated by column, which dropout on dense ones does not allow.
    return not fixed and (sparse or config.perturbation != "dropout")


def assert_same_step(config: GrandConfig, graph: Graph, **options: Any) -> None:
    fused = one_step(config, graph, **options)
    with plain_torch():
        plain = one_step(config, graph, **options)
    assert plain.step is None
    assert (fused.step is not None) == has_step(config, sp.issparse(graph.features))
    torch.testing.assert_close(fused.loss, plain.loss, rtol=2e-6, atol=0.0)
    assert set(fused.parts) == set(plain.parts)
    for name, part in fused.parts.items():
        torch.testing.assert_close(part, plain.parts[name], rtol=1e-5, atol=1e-9, msg=name)
    assert set(fused.gradients) == set(plain.gradients)
    for name, gradient in fused.gradients.items():
        expected = plain.gradients[name]
        assert gradient.shape == expected.shape
        bound = 1e-5 * expected.abs().max().item() + 1e-8
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=bound, err_msg=name)
    torch.testing.assert_close(fused.buffers, plain.buffers, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(fused.logits, plain.logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fused.validation, plain.validation, rtol=1e-5, atol=1e-5)


@every_perturbation
@every_layer
def test_a_small_graphs_step(
    community: Graph, configure: Configure, dropout: str, norm: str, perturbation: str
) -> None:
    """Every combination of what may differ, one training step each."""
    for graph, mask_scaling, reduction, augmentations in itertools.product(
        both_kinds(community), ("training", "inference"), ("mean", "sum"), (1, 3)
    ):
        config = configure(
            perturbation=perturbation,
            mask_scaling=mask_scaling,
            reduction=reduction,
            augmentations=augmentations,
            **DROPOUTS[dropout],
            **NORMS[norm],
        )
        assert_same_step(config, graph)
