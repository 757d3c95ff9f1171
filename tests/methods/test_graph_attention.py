"""The layer of graph attention: the library's, whichever path computes it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GATConv

import oracles
from dropnode.graph import Graph
from dropnode.methods.baselines.pyg_layers import Attention
from dropnode.methods.graph_attention import GraphAttention
from dropnode.ops import attention
from dropnode.ops.propagation import normalise
from dropnode.ops.sparse_matrix import SparseMatrix
from oracles import assert_rounded

HEADS, WIDTH, RATE, SEED = 3, 3, 0.4, 6


@pytest.fixture(params=["kernels", "plain"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with kernels, and without."""
    monkeypatch.setenv("DROPNODE_KERNELS", "1" if request.param == "kernels" else "0")
    if request.param == "plain":
        monkeypatch.setattr(attention, "Attention", None)
    return str(request.param)


def layer_of(concat: bool, rate: float = RATE) -> GraphAttention:
    """Return a layer that is given its products, with a bias that shows."""
    torch.manual_seed(SEED)
    layer = GraphAttention(HEADS * WIDTH, WIDTH, HEADS, concat=concat, dropout=rate)
    layer.lin = nn.Identity()
    nn.init.normal_(layer.bias)
    return layer


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_the_layer_is_the_oracles(community: Graph, concat: bool, training: bool) -> None:
    """Kernels and the library compute the same, with the same masks: both are the oracle's."""
    operator = SparseMatrix.from_scipy(normalise(community.adjacency), symmetric=True)
    layer = layer_of(concat).train(training)
    x = torch.randn(community.num_nodes, HEADS * WIDTH).requires_grad_()
    factors = torch.ones(len(operator.values), HEADS)
    torch.manual_seed(SEED)
    if training:
        factors = F.dropout(factors, RATE)
    torch.manual_seed(SEED)
    out = layer(x, operator)
    pull = torch.randn_like(out)
    parameters = [x, layer.att_src, layer.att_dst, layer.bias]
    found = [each.numpy() for each in torch.autograd.grad(out, parameters, pull)]

    edges = operator.to_dense().numpy() != 0
    dense = np.ones((*edges.shape, HEADS))
    dense[edges] = factors.numpy()
    heads = x.detach().double().numpy().reshape(-1, HEADS, WIDTH)
    vectors = (each[0].detach().double().numpy() for each in parameters[1:3])
    expected = oracles.Attention(heads, *vectors, edges, dense, layer.negative_slope)
    bias = layer.bias.detach().double().numpy()
    pulls = pull.double().numpy()
    by_head = pulls.reshape(heads.shape) if concat else np.stack([pulls / HEADS] * HEADS, axis=1)
    joined = [
        each.reshape(len(heads), -1) if concat else each.mean(axis=1)
        for each in expected.received()
    ]
    operations = expected.operations
    assert_rounded(out.detach().numpy(), joined[0] + bias, joined[1] + np.abs(bias), operations)
    for ours, (value, magnitude) in zip(found, expected.gradients(by_head).values(), strict=False):
        assert_rounded(ours.reshape(value.shape), value, magnitude, operations)
    assert_rounded(found[3], pulls.sum(axis=0), np.abs(pulls).sum(axis=0), operations)


@pytest.mark.usefixtures("path")
def test_training_advances_the_generator_as_the_librarys_layer_does(community: Graph) -> None:
    operator = SparseMatrix.from_scipy(normalise(community.adjacency), symmetric=True)
    layer = layer_of(concat=True)
    x = torch.randn(community.num_nodes, HEADS * WIDTH)
    torch.manual_seed(SEED)
    F.dropout(torch.ones(len(operator.values), HEADS), RATE)
    expected = torch.rand(3)
    torch.manual_seed(SEED)
    layer(x, operator)
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(SEED)
    layer.eval()(x, operator)
    unused = torch.rand(3)
    torch.manual_seed(SEED)
    assert torch.equal(torch.rand(3), unused)


def test_parameters_are_the_librarys() -> None:
    """Saved models have these names and shapes, and seeds draw these weights."""
    torch.manual_seed(SEED)
    theirs = GATConv(5, WIDTH, HEADS, concat=False).state_dict()
    torch.manual_seed(SEED)
    plain = GraphAttention(5, WIDTH, HEADS, concat=False).state_dict()
    torch.manual_seed(SEED)
    sparse = Attention(5, WIDTH, HEADS, concat=False).state_dict()
    assert list(plain) == list(theirs)
    assert set(sparse) == {"att_src", "att_dst", "bias", "linear.weight"}
    for name, value in theirs.items():
        assert torch.equal(plain[name], value)
        assert torch.equal(sparse[name.replace("lin.", "linear.")], value)
