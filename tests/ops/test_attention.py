"""Attention against matrices of weights in float64, for all sizes and numbers of threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

import oracles
from dropnode.ops.attention import attend
from dropnode.ops.kernels import attention as kernels
from dropnode.ops.sparse_matrix import SparseMatrix
from oracles import assert_rounded

SLOPE, RATE, SEED = 0.2, 0.6, 4

SIZES = [(1, 1, 5), (7, 1, 7), (12, 8, 8), (9, 3, 3), (20, 9, 20)]
"""Nodes, heads and width: one head or several groups of heads; whole vectors, parts of one, and
several."""


def looped(nodes: int, seed: int, density: float = 0.2) -> SparseMatrix:
    """Return a pattern that is not symmetric, with self-loops; some nodes have nothing else."""
    generator = np.random.default_rng(seed)
    edges = generator.random((nodes, nodes)) < density
    alone = generator.random(nodes) < 0.3
    edges[alone], edges[:, alone] = False, False
    np.fill_diagonal(edges, True)
    return SparseMatrix.from_scipy(sp.csr_array(edges.astype(np.float32)))


def inputs(nodes: int, heads: int, width: int) -> list[torch.Tensor]:
    """Return rows, both learnt vectors, and a gradient of the result."""
    generator = torch.Generator().manual_seed(nodes)
    shapes = (nodes, heads, width), (1, heads, width), (1, heads, width), (nodes, heads, width)
    x, source, target, pull = (torch.randn(shape, generator=generator) for shape in shapes)
    return [x.requires_grad_(), source.requires_grad_(), target.requires_grad_(), pull]


def factors_of(edges: int, heads: int, rate: float) -> torch.Tensor:
    """Return the factors that the library's layer would draw, by edge and head."""
    torch.manual_seed(SEED)
    return F.dropout(torch.ones(edges, heads), rate)


def oracle_of(
    given: list[torch.Tensor], operator: SparseMatrix, factors: torch.Tensor
) -> oracles.Attention:
    x, source, target = (each.detach().double().numpy() for each in given[:3])
    edges = operator.to_dense().numpy() != 0
    dense = np.ones((*edges.shape, x.shape[1]))
    dense[edges] = factors.numpy()
    return oracles.Attention(x, source[0], target[0], edges, dense, SLOPE)


@pytest.mark.parametrize("rate", [0.0, RATE])
@pytest.mark.parametrize("sizes", SIZES)
def test_attention_and_its_gradients_are_the_oracles(
    sizes: tuple[int, int, int], rate: float
) -> None:
    """With the masks that ``F.dropout`` draws from the same seed."""
    given = inputs(*sizes)
    operator = looped(sizes[0], seed=1)
    expected = oracle_of(given, operator, factors_of(len(operator.values), sizes[1], rate))
    torch.manual_seed(SEED)
    received = attend(*given[:3], operator, SLOPE, rate)
    found = torch.autograd.grad(received, given[:3], given[3])
    assert_rounded(received.detach().numpy(), *expected.received(), expected.operations)
    gradients = expected.gradients(given[3].double().numpy())
    for name, gradient in zip(gradients, found, strict=True):
        ours = gradient.numpy().reshape(gradients[name][0].shape)
        assert_rounded(ours, *gradients[name], expected.operations)


def test_the_oracles_gradient_is_that_of_finite_differences() -> None:
    given = inputs(6, 2, 3)
    operator = looped(6, seed=2, density=0.5)
    layer = oracle_of(given, operator, factors_of(len(operator.values), 2, RATE))
    pull = given[3].double().numpy()
    for name, (gradient, _) in layer.gradients(pull).items():
        value = getattr(layer, name)
        for at in np.ndindex(value.shape):
            losses = []
            for step in (1e-6, -1e-6):
                moved = value.copy()
                moved[at] += step
                losses.append((replace(layer, **{name: moved}).received()[0] * pull).sum())
            # The second difference is of the order of 1e-12, and rounding of 1e-16 / 1e-6.
            assert gradient[at] == pytest.approx((losses[0] - losses[1]) / 2e-6, abs=1e-8)


@pytest.mark.usefixtures("threads")
def test_the_number_of_threads_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "WORTHWHILE", 1)
    given = inputs(3 * kernels.BLOCK + 5, 3, 3)
    operator = looped(len(given[0]), seed=3, density=0.01)
    results = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        torch.manual_seed(SEED)
        received = attend(*given[:3], operator, SLOPE, RATE)
        results.append([received, *torch.autograd.grad(received, given[:3], given[3])])
    for result in results[1:]:
        for ours, first in zip(result, results[0], strict=True):
            assert torch.equal(ours, first)


def test_scores_of_any_size_have_a_softmax() -> None:
    """A difference that would overflow takes everything or nothing, and NaN is passed on."""
    operator = looped(9, seed=1)
    edges = operator.to_dense() != 0
    x = torch.arange(9.0)[:, None, None].repeat(1, 1, 5).requires_grad_()
    vectors = torch.full((1, 1, 5), 100.0), torch.full((1, 1, 5), -3.0)
    received = attend(x, *vectors, operator, SLOPE)
    largest = torch.where(edges, torch.arange(9.0), -1.0).max(dim=1).values
    assert torch.equal(received[:, 0, 0], largest)
    assert torch.autograd.grad(received.sum(), x)[0].isfinite().all()
    with torch.no_grad():
        x[4] = torch.nan
    unknown = attend(x, *vectors, operator, SLOPE)[:, 0, 0].isnan()
    assert torch.equal(unknown, edges[:, 4])
