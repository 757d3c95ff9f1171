"""Perturbations: what is dropped, what is kept, and what it comes to on average."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import oracles
from dropnode.graph import Graph
from dropnode.ops.perturb import (
    PERTURBATIONS,
    Augmentation,
    DropEdge,
    DropFeature,
    DropNode,
    Perturbation,
    dropped,
    entry_mask,
    masked,
)
from dropnode.ops.propagation import normalise
from dropnode.ops.randomness import Stream, keep_mask
from dropnode.ops.sparse_matrix import Features, SparseMatrix

RATE = 0.3
DRAWS = 4000
# The largest of a few hundred standardised means stays below this; one in a million runs would not.
SIGMAS = 5.5


@pytest.fixture(scope="module")
def operator(community: Graph) -> SparseMatrix:
    return SparseMatrix.from_scipy(normalise(community.adjacency))


@pytest.fixture(params=["dense", "sparse"])
def features(request: pytest.FixtureRequest, community: Graph) -> Features:
    if request.param == "dense":
        return torch.tensor(community.features)
    return SparseMatrix.from_scipy(sp.csr_array(community.features))


def seen(view: Augmentation, features: Features) -> np.ndarray:
    """The features as propagation will see them."""
    masked = view.mask_entries(features)
    dense = masked.to_dense() if isinstance(masked, SparseMatrix) else masked
    return view.mask_nodes(dense).double().numpy()


def standardised(mean: np.ndarray, expected: np.ndarray, kept_value: np.ndarray) -> float:
    """How far a mean over draws is from its expectation, in standard deviations at worst."""
    spread = np.abs(kept_value) * np.sqrt(RATE * (1 - RATE) / DRAWS)
    there = spread > 0
    assert (mean[~there] == expected[~there]).all()
    return float(np.abs((mean - expected)[there] / spread[there]).max())


@pytest.mark.parametrize("scaling", ["training", "inference"])
@pytest.mark.parametrize("kind", [DropNode, DropFeature])
def test_features_are_kept_in_expectation(
    kind: type[DropNode | DropFeature],
    scaling: str,
    operator: SparseMatrix,
    features: Features,
    community: Graph,
) -> None:
    perturbation = kind(RATE, scaling)
    total = np.zeros(community.features.shape)
    for draw in range(DRAWS):
        total += seen(perturbation.draw(Stream(0).at(draw), operator, features), features)
    at_inference = seen(perturbation.inference(operator), features)
    raw = community.features.astype(float)
    kept = raw / (1 - RATE) if scaling == "training" else raw
    np.testing.assert_allclose(
        at_inference, raw if scaling == "training" else raw * (1 - RATE), rtol=1e-6
    )
    assert standardised(total / DRAWS, kept * (1 - RATE), kept) < SIGMAS
    # Float32 in the kept value must not hide a bias: both say the same expectation.
    np.testing.assert_allclose(kept * (1 - RATE), at_inference, rtol=1e-6)


@pytest.mark.parametrize("scaling", ["training", "inference"])
def test_edges_are_kept_in_expectation(
    scaling: str, operator: SparseMatrix, community: Graph
) -> None:
    perturbation = DropEdge(RATE, scaling)
    features = torch.tensor(community.features)
    total = np.zeros(len(operator.values))
    for draw in range(DRAWS):
        view = perturbation.draw(Stream(1).at(draw), operator, features)
        total += view.operator.values.double().numpy()
    dense = oracles.normalised(community.adjacency.toarray())
    raw = dense[np.nonzero(dense)]
    kept = raw / (1 - RATE) if scaling == "training" else raw
    at_inference = perturbation.inference(operator).operator.values.double().numpy()
    np.testing.assert_allclose(at_inference, kept * (1 - RATE), rtol=1e-5)
    assert standardised(total / DRAWS, kept * (1 - RATE), kept) < SIGMAS


@pytest.mark.parametrize(("scaling", "scale"), [("training", 1 / (1 - RATE)), ("inference", 1.0)])
def test_one_draw_is_the_mask_of_its_stream(
    scaling: str, scale: float, operator: SparseMatrix, features: Features, community: Graph
) -> None:
    stream = Stream(8).at("perturbation")
    raw = community.features.astype(float)

    kept = keep_mask(stream, (len(raw),), RATE)
    view = DropNode(RATE, scaling).draw(stream, operator, features)
    np.testing.assert_allclose(
        seen(view, features), scale * oracles.drop_nodes(raw, kept), rtol=1e-6
    )
    assert view.operator is operator

    view = DropFeature(RATE, scaling).draw(stream, operator, features)
    if isinstance(features, SparseMatrix):
        kept = keep_mask(stream, (int(np.count_nonzero(raw)),), RATE)
        expected = oracles.drop_stored(raw, kept)
    else:
        expected = raw * keep_mask(stream, raw.shape, RATE)
    np.testing.assert_allclose(seen(view, features), scale * expected, rtol=1e-6)
    assert view.operator is operator

    view = DropEdge(RATE, scaling).draw(stream, operator, features)
    dense = oracles.normalised(community.adjacency.toarray())
    kept = keep_mask(stream, (int(np.count_nonzero(dense)),), RATE)
    expected = scale * oracles.drop_stored(dense, kept)
    np.testing.assert_allclose(view.operator.to_dense(), expected, rtol=1e-5)
    np.testing.assert_allclose(view.operator.transpose.to_dense(), expected.T, rtol=1e-5)
    np.testing.assert_array_equal(seen(view, features), raw)
    assert not np.array_equal(expected > 0, expected.T > 0), "each direction is dropped on its own"


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_drawing_changes_nothing_that_is_shared(
    name: str, operator: SparseMatrix, features: Features
) -> None:
    perturbation: Perturbation = PERTURBATIONS[name](RATE, "training")
    stored = features.values if isinstance(features, SparseMatrix) else features
    before = operator.values.clone(), stored.clone()
    view = perturbation.draw(Stream(0), operator, features)
    seen(view, features)
    assert torch.equal(operator.values, before[0])
    assert torch.equal(stored, before[1])


@pytest.mark.parametrize("name", PERTURBATIONS)
@pytest.mark.parametrize("scaling", ["training", "inference"])
def test_rate_zero_perturbs_nothing(
    name: str, scaling: str, operator: SparseMatrix, features: Features, community: Graph
) -> None:
    perturbation: Perturbation = PERTURBATIONS[name](0.0, scaling)
    for view in (
        perturbation.draw(Stream(0), operator, features),
        perturbation.inference(operator),
    ):
        np.testing.assert_array_equal(seen(view, features), community.features)
        assert torch.equal(view.operator.values, operator.values)


@pytest.mark.parametrize("kernels", ["1", "0"])
def test_a_matrix_dropped_for_one_product_is_the_masked_one(
    operator: SparseMatrix, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product, its gradient, and what is reweighted afterwards, bit for bit."""
    monkeypatch.setenv("DROPNODE_KERNELS", kernels)
    mask = entry_mask(Stream(2), operator, RATE)
    x = torch.randn(operator.shape[1], 5, generator=torch.Generator().manual_seed(0))
    results = []
    for how in (dropped, masked):
        seen = how(operator, mask, 1.0 / (1.0 - RATE))
        assert isinstance(seen, SparseMatrix)
        for matrix in (seen, seen.reweighted(0.5)):
            leaf = x.clone().requires_grad_()
            product = matrix @ leaf
            (product * x.flip(0)).sum().backward()
            results.append((product.detach(), leaf.grad))
    for ours, expected in zip(results[:2], results[2:], strict=True):
        assert torch.equal(ours[0], expected[0])
        assert torch.equal(ours[1], expected[1])  # type: ignore[arg-type]
