"""Exact logits against dense matrices: with every kind of head, on every path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dropnode.methods.grand_plus.config import preset
from dropnode.methods.grand_plus.head import Head
from dropnode.methods.grand_plus.inference import exact_logits, watch_rows
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.push import walk_shares
from dropnode.ops.randomness import Dropout, Stream
from dropnode.ops.sparse_matrix import SparseMatrix
from rounding import disturbed

NODES, CLASSES = 60, 5
SHARES = walk_shares("ppr", 3, 0.3)

HEADS: dict[str, dict[str, Any]] = {
    "one layer": {"layers": 1},
    "one layer, norms": {"layers": 1, "batch_norm": True, "node_norm": True},
    "one layer, batch norm": {"layers": 1, "batch_norm": True},
    "two layers": {"layers": 2, "hidden": 8},
    "two layers, norms": {"layers": 2, "hidden": 8, "batch_norm": True, "node_norm": True},
    "several blocks of hidden units": {"layers": 2, "hidden": 80, "batch_norm": True},
}


def tensors_of(features: int, sparse: bool) -> tuple[GraphTensors, np.ndarray, np.ndarray]:
    """A weighted graph with an isolated node; its features and Π, dense."""
    generator = np.random.default_rng(2)
    edges = np.triu(generator.random((NODES, NODES)) < 0.1, 1)
    edges[-1] = edges[:, -1] = False
    weights = edges * generator.uniform(0.1, 5.0, edges.shape)
    adjacency = sp.csr_array((weights + weights.T).astype(np.float32))
    x = generator.poisson(0.5, (NODES, features)).astype(np.float32)
    held = SparseMatrix.from_scipy(sp.csr_array(x)) if sparse else torch.from_numpy(x)
    looped = adjacency.astype(np.float64).toarray() + np.eye(NODES)
    walk = looped / looped.sum(axis=1, keepdims=True)
    powers = [np.linalg.matrix_power(walk, n) for n in range(len(SHARES))]
    matrix = np.tensordot(SHARES, np.stack(powers), axes=1)
    return GraphTensors(held, adjacency), x, matrix


def head_of(changes: dict[str, Any], features: int) -> Head:
    """A head whose norms have seen batches and whose gains and offsets differ."""
    config = preset("default", None)[1].replace(**changes)
    head = Head(features, CLASSES, config)
    head.initialise(Stream(3))
    generator = torch.Generator().manual_seed(4)
    if head.norms is not None:
        for norm in head.norms:
            for part in (norm.weight, norm.bias):
                part.data += 0.3 * torch.randn(part.shape, generator=generator)
    for _ in range(3):
        head.train()
        head(torch.randn(30, features, generator=generator), Dropout([Stream(0)]))
    return head.eval()


def logits_of(head: Head, matrix: np.ndarray, x: np.ndarray) -> torch.Tensor:
    """Propagate, and classify as torch's own layers do; in float64."""
    rows = torch.from_numpy(matrix @ x.astype(np.float64))
    if head.node_norm:
        rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    for number, linear in enumerate(head.linears):
        rows = rows.relu() if number else rows
        if head.norms is not None:
            norm = head.norms[number]
            mean, variance = norm.running_mean.double(), norm.running_var.double()
            rows = (rows - mean) / (variance + norm.eps).sqrt()
            rows = rows * norm.weight.double() + norm.bias.double()
        rows = rows @ linear.weight.double().T + linear.bias.double()
    return rows.detach()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("features", [7, 70])
@pytest.mark.parametrize("kind", HEADS)
def test_exact_logits_are_those_of_dense_matrices(kind: str, features: int, sparse: bool) -> None:
    """With fewer features than units, and with more; blocks of columns have 64."""
    tensors, x, matrix = tensors_of(features, sparse)
    head = head_of(HEADS[kind], features)
    # Of a sum over nodes, features and hidden units.
    expected = disturbed(
        lambda features: logits_of(head, matrix, features), x, steps=3 * NODES + features + 80
    )
    with torch.no_grad():
        found = exact_logits(head, tensors, SHARES)
    expected.assert_near(found)
    assert np.median(expected.bound) < 1e-3 * np.abs(expected.value).max()
    rows = np.array([59, 3, 17, 3])
    expected[rows].assert_near(watch_rows(head, tensors, rows, SHARES)())


def test_one_row_alone_can_be_trained_on() -> None:
    """It has no variance of its own."""
    head = head_of({"layers": 2, "hidden": 8, "batch_norm": True}, 7).train()
    logits = head(torch.ones(1, 7), Dropout([Stream(0)]))
    assert torch.isfinite(logits).all()
