"""Heads: how they are initialised, how their layers stand, and what their graph layers hear."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dropnode.graph import Graph
from dropnode.methods.grand.heads import AttentionHead, DenseHead
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.propagation import normalise
from dropnode.ops.randomness import Dropout, Stream
from dropnode.ops.sparse_matrix import SparseMatrix
from rounding import disturbed


def dense_head(
    features: int = 300,
    classes: int = 40,
    hidden: int = 200,
    input_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    batch_norm: bool = False,
    graph_layers: bool = False,
    kind: str = "glorot",
    seed: int = 0,
) -> DenseHead:
    head = DenseHead(
        features,
        classes,
        hidden,
        input_dropout,
        hidden_dropout,
        batch_norm=batch_norm,
        graph_layers=graph_layers,
    )
    head.initialise(kind, Stream(seed))
    return head


def attention_head(features: int = 5, classes: int = 3, seed: int = 0) -> AttentionHead:
    head = AttentionHead(features, classes, 8, 0.0, 0.0, attention_heads=4)
    head.initialise("glorot", Stream(seed))
    return head


def assert_normal(sample: torch.Tensor, mean: float, deviation: float) -> None:
    """Mean and deviation within 4.5 standard errors, and the spread of a normal distribution."""
    values = sample.detach().double().flatten()
    count = len(values)
    assert abs(values.mean() - mean) < 4.5 * deviation / count**0.5
    assert abs(values.std() - deviation) < 4.5 * deviation / (2 * count) ** 0.5
    within = ((values - mean).abs() < deviation).double().mean()
    assert abs(within - 0.6827) < 4.5 * (0.6827 * 0.3173 / count) ** 0.5


def test_released_initialisation_is_centred_below_zero() -> None:
    head = dense_head(kind="released")
    for weight, bias in ((head.weight1, head.bias1), (head.weight2, head.bias2)):
        s = weight.shape[1] ** -0.5
        assert_normal(weight, -s, s)
        assert_normal(bias, -s, s)


def test_glorot_initialisation_has_the_variance_of_both_sides() -> None:
    head = dense_head(kind="glorot")
    for weight, bias in ((head.weight1, head.bias1), (head.weight2, head.bias2)):
        assert_normal(weight, 0.0, (2.0 / sum(weight.shape)) ** 0.5)
        assert not bias.any()


@pytest.mark.parametrize("kind", ["glorot", "released"])
def test_initial_weights_are_a_function_of_the_stream(kind: str) -> None:
    first, again, other = (dense_head(4, 3, 5, kind=kind, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.weight1, again.weight1)
    assert torch.equal(first.weight2, again.weight2)
    assert not torch.equal(first.weight1, other.weight1)
    torch.manual_seed(0)
    one = attention_head(seed=1)
    torch.manual_seed(1)
    two = attention_head(seed=1)
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name]), name
    assert not torch.equal(one.weight1, attention_head(seed=2).weight1)


@pytest.mark.parametrize(
    ("changes", "commutes"),
    [
        ({}, True),
        ({"hidden_dropout": 0.5}, True),
        ({"graph_layers": True}, True),
        ({"input_dropout": 0.1}, False),
        ({"batch_norm": True}, False),
    ],
)
def test_only_a_bare_first_layer_commutes(changes: dict[str, float], commutes: bool) -> None:
    assert dense_head(4, 3, 5, **changes).commutes is commutes  # type: ignore[arg-type]


@pytest.mark.parametrize("graph_layers", [False, True])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_several_views_are_classified_like_each_alone(
    community: Graph, graph_layers: bool, batch_norm: bool
) -> None:
    """Masks and batch statistics belong to one view."""
    operator = SparseMatrix.from_scipy(normalise(community.adjacency))
    head = dense_head(9, 3, 6, hidden_dropout=0.4, batch_norm=batch_norm, graph_layers=graph_layers)
    head.train()
    generator = torch.Generator().manual_seed(0)
    products = torch.randn(community.num_nodes, 3, 6, generator=generator)
    streams = [Stream(0).at(s) for s in range(3)]
    together = head.rest(products, operator, Dropout(streams))
    for s in range(3):

        def alone(x: np.ndarray, s: int = s) -> torch.Tensor:
            rest = head.rest(torch.from_numpy(x), operator, Dropout([streams[s]]))
            return rest[:, 0].detach()

        expected = disturbed(alone, products[:, [s]].numpy(), community.num_nodes)
        expected.assert_near(together[:, s].detach())


def test_views_of_the_attention_head_have_masks_of_their_own(community: Graph) -> None:
    head = AttentionHead(5, 3, 8, 0.0, 0.4, attention_heads=4)
    head.initialise("glorot", Stream(0))
    # Attention draws from torch's generator; what is looked at here are the masks of the streams.
    head.conv1.dropout = head.conv2.dropout = 0.0
    head.train()
    operator = SparseMatrix.from_scipy(normalise(community.adjacency))
    product = torch.randn(community.num_nodes, 1, 8, generator=torch.Generator().manual_seed(0))
    streams = [Stream(0).at(s) for s in range(3)]
    together = head.rest(product.expand(-1, 3, -1), operator, Dropout(streams))
    for view, stream in enumerate(streams):
        alone = head.rest(product, operator, Dropout([stream]))
        assert torch.equal(together[:, view], alone[:, 0])
    assert not torch.equal(together[:, 0], together[:, 1])


def test_batch_norm_uses_learnt_statistics_outside_training() -> None:
    head = dense_head(4, 3, 5, batch_norm=True)
    generator = torch.Generator().manual_seed(0)
    x = 3.0 + 2.0 * torch.randn(64, 4, generator=generator)
    head.train()
    for _ in range(200):
        head(x, None)
    head.eval()
    whole = disturbed(lambda rows: head(torch.from_numpy(rows), None).detach(), x.numpy(), 10)
    whole[:5].assert_near(head(x[:5], None).detach())
    head.train()
    # Statistics that run have 64/63 of the variance of 64 nodes: less than a hundredth of a
    # deviation in either norm, and logits are a few deviations large.
    similar = head(x, None).detach().numpy()
    np.testing.assert_allclose(similar, whole.value, rtol=0.05, atol=0.05)


def attached(community: Graph, count: int) -> SparseMatrix:
    links = np.zeros((count, community.num_nodes), dtype=np.float32)
    for i in range(count):
        links[i, [i, i + 7]] = 1.0
    known = GraphTensors(torch.empty(community.num_nodes, 5), community.adjacency)
    return known.joined_by(torch.empty(count, 5), sp.csr_array(links)).operator


@pytest.mark.parametrize("kind", ["gcn", "gat"])
def test_graph_layers_receive_from_old_nodes_only(community: Graph, kind: str) -> None:
    head = dense_head(5, 3, 6, graph_layers=True) if kind == "gcn" else attention_head()
    head.eval()
    old = community.num_nodes
    x = torch.randn(old + 3, 5, generator=torch.Generator().manual_seed(0))
    three, one = attached(community, 3), attached(community, 1)
    with torch.no_grad():
        whole = head(x, three)
        expected = disturbed(lambda rows: head(torch.from_numpy(rows), three), x.numpy(), old)
        expected[: old + 1].assert_near(head(x[: old + 1], one))
        moved = x.clone()
        moved[7] += 1.0
        assert not torch.allclose(head(moved, three)[old], whole[old]), "it receives from node 7"
        moved = x.clone()
        moved[old:] += 1.0
        expected[:old].assert_near(head(moved, three)[:old])


def test_attention_heads_have_to_share_the_hidden_layer() -> None:
    with pytest.raises(ValueError, match="hidden = 10 is not divisible by attention_heads = 4"):
        AttentionHead(5, 3, 10, 0.0, 0.0, attention_heads=4)
