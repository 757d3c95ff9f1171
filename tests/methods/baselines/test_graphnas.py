"""GraphNAS: every attention and aggregation against a formula on dense matrices, and the words."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import resources
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.nn import GATConv

import dropnode.methods.baselines
from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.methods.baselines.graphnas import GraphNAS, GraphNASConfig
from dropnode.methods.baselines.graphnas_layer import SearchedLayer
from dropnode.methods.baselines.graphnas_space import (
    DECISIONS,
    SPACE,
    LayerPlan,
    options,
    parse,
    spell,
)
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.settings import read_yaml
from rounding import disturbed, exactly

HEADS, WIDTH = 2, 3
TERMS = 5 + 2 * WIDTH + 10
"""The sums of a layer: inputs, both sides of an attention, and the neighbours of a node."""
WORD = "gat,sum,elu,2,4,linear,max,tanh,2,3"

LEARNT = [name for name in SPACE["attention"] if name not in ("const", "gcn")]


def config(**changes: Any) -> GraphNASConfig:
    return GraphNASConfig(
        architecture=WORD,
        feature_scaling="row",
        dropout=0.5,
        residual=False,
        learning_rate=0.01,
        weight_decay=5e-4,
        stopping="accuracy",
        patience=10,
        max_epochs=10,
    ).replace(**changes)


def read(graph: Graph) -> GraphTensors:
    method = GraphNAS(config(feature_scaling="none"))
    method.prepare(graph, graph.split, Stream(0))
    return method.tensors


def layer_of(
    attention: str, aggregation: str = "sum", *, last: bool = False, **options: Any
) -> SearchedLayer:
    with Stream(3).torch_global():
        plan = LayerPlan(attention, aggregation, "linear", HEADS, WIDTH)
        layer = SearchedLayer(5, plan, WIDTH if last else None, **options)
        torch.nn.init.normal_(layer.bias)
    return layer


def dense_features(tensors: GraphTensors) -> torch.Tensor:
    nodes = tensors.operator.shape[0]
    return torch.from_numpy(np.random.default_rng(1).normal(size=(nodes, 5)).astype(np.float32))


def oracle(layer: SearchedLayer, x: torch.Tensor, tensors: GraphTensors) -> np.ndarray:
    """Gather node by node and head by head, as the formulas say."""
    operator = tensors.operator.to_dense().double().numpy()
    nodes = len(operator)
    mapped = x.double().numpy() @ layer.linear.weight.detach().double().numpy().T
    heads = mapped.reshape(nodes, HEADS, WIDTH)
    left, right = (
        getattr(layer, side).detach().double().numpy()[0] if hasattr(layer, side) else None
        for side in ("left", "right")
    )

    def leaky(z: float) -> float:
        return z if z > 0 else 0.2 * z

    def score(i: int, j: int, head: int) -> float:
        xi, xj, a, b = heads[i, head], heads[j, head], left[head], right[head]
        return {
            "gat": lambda: leaky(a @ xi + b @ xj),
            "sym-gat": lambda: leaky(a @ xi + b @ xj) + leaky(a @ xj + b @ xi),
            "cos": lambda: (a * xi) @ (b * xj),
            "linear": lambda: np.tanh((a + b) @ xj),
            "gene_linear": lambda: (
                np.tanh(a * xi + b * xj) @ layer.combine.detach().double().numpy()[:, 0]
            ),
        }[layer.plan.attention]()

    merge: Callable[[np.ndarray], np.ndarray] = {
        "sum": lambda messages: messages.sum(axis=0),
        "mean": lambda messages: messages.mean(axis=0),
        "max": lambda messages: messages.max(axis=0),
        "mlp": lambda messages: messages.sum(axis=0),
    }[layer.plan.aggregation]
    gathered = np.empty_like(heads)
    for i, head in product(range(nodes), range(HEADS)):
        heard = np.flatnonzero(operator[i])
        if layer.plan.attention == "const":
            weights = np.ones(len(heard))
        elif layer.plan.attention == "gcn":
            weights = operator[i, heard]
        else:
            weights = np.exp([score(i, j, head) for j in heard])
            weights /= weights.sum()
        gathered[i, head] = merge(weights[:, None] * heads[heard, head])
        if layer.plan.aggregation == "mlp":
            one, two = (
                (part.weight.detach().double().numpy(), part.bias.detach().double().numpy())
                for part in layer.mlp.lins
            )
            hidden = np.maximum(one[0] @ gathered[i, head] + one[1], 0)
            gathered[i, head] = two[0] @ hidden + two[1]
    bias = layer.bias.detach().double().numpy()
    if layer.averages:
        return gathered.mean(axis=1) + bias
    return gathered.reshape(nodes, -1) + bias


@pytest.mark.parametrize("aggregation", SPACE["aggregation"])
@pytest.mark.parametrize("attention", SPACE["attention"])
def test_a_layer_is_its_formula(community: Graph, attention: str, aggregation: str) -> None:
    tensors = read(community)
    x = dense_features(tensors)
    for last in (False, True):
        layer = layer_of(attention, aggregation, last=last)
        expected = disturbed(partial(formula, layer, tensors), x.double().numpy(), TERMS)
        expected.assert_near(layer(x, tensors, None).detach())


def formula(layer: SearchedLayer, tensors: GraphTensors, x: np.ndarray) -> np.ndarray:
    return oracle(layer, torch.from_numpy(x), tensors)


def test_gcn_attention_is_a_convolution_with_the_weights_of_edges(community: Graph) -> None:
    tensors = read(community)
    x = dense_features(tensors)
    layer = layer_of("gcn")
    operator = exactly(tensors.operator.to_dense())
    expected = operator @ (exactly(x) @ exactly(layer.linear.weight).T) + exactly(layer.bias)
    assert len(np.unique(community.adjacency.data)) > 1
    expected.assert_near(layer(x, tensors, None).detach())


@pytest.mark.parametrize("last", [False, True])
def test_gat_attention_is_the_librarys(community: Graph, last: bool) -> None:
    tensors = read(community)
    x = dense_features(tensors)
    layer = layer_of("gat", last=last)
    other = GATConv(5, WIDTH, HEADS, concat=not last)
    other.load_state_dict(
        {
            "lin.weight": layer.linear.weight,
            "att_dst": layer.left,
            "att_src": layer.right,
            "bias": layer.bias,
        }
    )
    edges, _ = tensors.edges
    out = layer(x, tensors, None)
    # The gradients too: the sum over edges has a backward pass of its own.
    pull = torch.from_numpy(np.random.default_rng(2).normal(size=out.shape).astype(np.float32))
    (out * pull).sum().backward()
    theirs = other.double()

    def learnt(x: np.ndarray) -> np.ndarray:
        """What it gathers, and the gradients, in float64."""
        expected = theirs(torch.from_numpy(x), edges)
        parameters = [theirs.lin.weight, theirs.att_dst, theirs.att_src]
        parts = [expected, *torch.autograd.grad((expected * pull).sum(), parameters)]
        return torch.cat([part.detach().flatten() for part in parts]).numpy()

    found = [out.detach(), layer.linear.weight.grad, layer.left.grad, layer.right.grad]
    # Gradients are sums over all nodes.
    expected = disturbed(learnt, x.double().numpy(), TERMS + len(x))
    expected.assert_near(torch.cat([part.flatten() for part in found]))


@pytest.mark.parametrize("attention", SPACE["attention"])
@pytest.mark.parametrize("aggregation", SPACE["aggregation"])
def test_an_isolated_node_hears_itself_alone(
    community: Graph, attention: str, aggregation: str
) -> None:
    tensors = read(community)
    isolated = np.flatnonzero(np.diff(community.adjacency.indptr) == 0)
    assert len(isolated) == 2
    x = dense_features(tensors)
    layer = layer_of(attention, aggregation)

    def alone(x: np.ndarray) -> torch.Tensor:
        own = layer.linear(torch.from_numpy(x)).unflatten(1, (HEADS, WIDTH))
        if aggregation == "mlp":
            own = layer.mlp(own)
        return (own.flatten(1) + layer.bias).detach()

    expected = disturbed(alone, x[isolated].numpy(), TERMS)
    expected.assert_near(layer(x, tensors, None)[isolated].detach())


def test_the_residual_connection_adds_a_map_of_the_input(community: Graph) -> None:
    tensors = read(community)
    x = dense_features(tensors)
    layer = layer_of("cos", last=True, residual=True)
    full = layer(x, tensors, None)
    skip, layer.skip = layer.skip, None
    expected = exactly(layer(x, tensors, None)) + exactly(x) @ exactly(skip.weight).T
    expected.assert_near(full.detach())


@pytest.mark.parametrize("attention", ["const", *LEARNT])
def test_training_drops_attention_and_keeps_its_mean(community: Graph, attention: str) -> None:
    tensors = read(community)
    layer = layer_of(attention, dropout=0.6)
    heads = layer.linear(dense_features(tensors)).unflatten(1, (HEADS, WIDTH)).detach()
    drawn = torch.stack([layer.attention(heads, tensors, Stream(k)) for k in range(300)])
    # A constant is dropped for every column of a message on its own, what is learnt for all.
    columns = WIDTH if attention == "const" else 1
    assert drawn.shape[2:] == (HEADS, columns)
    whole = layer.attention(heads, tensors, None).expand_as(drawn)
    kept = drawn != 0
    (exactly(whole[kept]) / 0.4).assert_near(drawn[kept].detach())
    # Five deviations of a coin, of which there are as many as edges in so many draws.
    coins = kept[..., 0, 0].numel() ** 0.5
    assert kept.float().mean().item() == pytest.approx(0.4, abs=5 * (0.4 * 0.6) ** 0.5 / coins)
    entries = kept.flatten(2).float()
    both = (entries[..., 0] * entries[..., 1]).mean().item()
    assert both == pytest.approx(0.16, abs=5 * (0.16 * 0.84) ** 0.5 / coins)


def test_the_normalised_adjacency_is_never_dropped(community: Graph) -> None:
    tensors = read(community)
    layer = layer_of("gcn", dropout=0.6)
    x = dense_features(tensors)
    assert torch.equal(layer(x, tensors, Stream(0)), layer(x, tensors, None))


@pytest.mark.parametrize("activation", SPACE["activation"])
def test_activations_are_torchs(community: Graph, activation: str) -> None:
    tensors = read(community)
    x = 4 * dense_features(tensors)
    layer = layer_of("const")
    before = layer(x, tensors, None)
    layer.plan = LayerPlan("const", "sum", activation, HEADS, WIDTH)
    expected = {
        "sigmoid": torch.nn.Sigmoid(),
        "tanh": torch.nn.Tanh(),
        "relu": torch.nn.ReLU(),
        "linear": torch.nn.Identity(),
        "softplus": torch.nn.Softplus(),
        "leaky_relu": torch.nn.LeakyReLU(),
        "relu6": torch.nn.ReLU6(),
        "elu": torch.nn.ELU(),
    }[activation]
    # The same function of the same numbers.
    assert torch.equal(layer(x, tensors, None), expected(before))


def test_layers_have_the_widths_that_the_architecture_says(community: Graph) -> None:
    method = GraphNAS(config(architecture="gcn,sum,relu,6,64,cos,mean,elu,4,256"))
    method.prepare(community, community.split, Stream(0))
    hidden, output = method.network
    assert hidden.linear.weight.shape == (6 * 64, community.num_features)
    # The last layer has a column a class, whatever the word says.
    assert output.linear.weight.shape == (4 * community.num_classes, 6 * 64)
    assert method.logits().shape == (community.num_nodes, community.num_classes)


def test_an_architecture_is_read_action_by_action() -> None:
    first, last = parse("sym-gat,max,relu6,16,256,gene_linear,mlp,softplus,1,70")
    assert first == LayerPlan("sym-gat", "max", "relu6", 16, 256)
    assert last == LayerPlan("gene_linear", "mlp", "softplus", 1, 70)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("gta" + WORD[3:], r"the attention of layer 1 is 'gta'; expected one of const, gcn, gat,"),
        (WORD.replace("sum", "sun"), r"aggregation of layer 1 is 'sun'; .* sum, mean, max, mlp"),
        (WORD.replace("tanh", ""), r"activation of layer 2 is ''; expected one of sigmoid, tanh,"),
        (WORD.replace("elu,2", "elu,3"), r"heads of layer 1 is '3'; .* 1, 2, 4, 6, 8, 16$"),
        (WORD.replace("elu,2", "elu,02"), r"heads of layer 1 is '02'"),
        (WORD.replace("2,4", "2,5"), r"hidden of layer 1 is '5'; .* 4, 8, 16, 32, 64, 128, 256$"),
        (WORD[:-1] + "0", r"hidden of layer 2 is '0'"),
        (WORD + ",gat", r"has 11 actions; expected 10: attention,aggregation,activation,heads"),
        ("", r"has 1 actions; expected 10"),
    ],
)
def test_a_wrong_action_is_named_with_those_allowed(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(architecture=word)


def test_options_keep_hidden_layers_within_the_width_allowed() -> None:
    start = ["gat", "sum", "elu"]
    assert options(start, 4096) == SPACE["heads"]
    assert options(start, 20) == (1, 2, 4)
    assert options([*start, 16], 4096) == SPACE["hidden"]
    assert options([*start, 16], 512) == (4, 8, 16, 32)
    # The last layer is as wide as there are classes, and all heads remain.
    assert options([*start, 4, 4, *start], 20) == SPACE["heads"]


def test_what_a_search_spells_can_be_read() -> None:
    decided = [SPACE[name][-1] for name in DECISIONS]
    word = spell(decided, num_classes=7)
    assert word == "gene_linear,mlp,elu,16,256,gene_linear,mlp,elu,16,7"
    assert [layer.heads for layer in parse(word)] == [16, 16]


def test_the_official_presets_are_the_published_architectures() -> None:
    file = resources.files(dropnode.methods.baselines) / "presets" / "graphnas.yaml"
    table = read_yaml(file.read_text(encoding="utf-8"))
    published = {
        "cora": "const,sum,relu6,2,128,gat,sum,linear,2,7",
        "citeseer": "gat,sum,linear,4,128,linear,sum,elu,8,6",
        "pubmed": "gcn,sum,tanh,6,64,cos,sum,tanh,6,3",
    }
    assert {k: v["architecture"] for k, v in table["official"].items()} == published
    for values in (*table["official"].values(), table["default"]):
        GraphNASConfig.from_dict(values)
