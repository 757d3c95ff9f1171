"""The block model meets its statistics exactly and draws its edges evenly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropnode.data import load_dataset
from dropnode.data.generators.sbm import make
from dropnode.graph import Graph


def share_within(graph: Graph) -> float:
    source, target = graph.adjacency.nonzero()
    return float((graph.labels[source] == graph.labels[target]).mean())


@given(
    nodes=st.integers(40, 120),
    classes=st.integers(2, 6),
    average_degree=st.floats(1, 5),
    homophily=st.floats(0, 1),
    features=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_sizes_degree_and_homophily_are_as_asked(
    nodes: int, classes: int, average_degree: float, homophily: float, features: int, seed: int
) -> None:
    options = {
        "nodes": nodes,
        "classes": classes,
        "average_degree": average_degree,
        "homophily": homophily,
        "features": features,
        "seed": seed,
    }
    graph = make(**options)
    edges = round(nodes * average_degree / 2)
    assert (graph.num_nodes, graph.num_edges) == (nodes, edges)
    assert (graph.num_classes, graph.num_features) == (classes, features)
    assert graph.notes == ()
    sizes = np.bincount(graph.labels)
    assert sizes.max() - sizes.min() <= 1
    assert share_within(graph) * edges == pytest.approx(round(edges * homophily))
    assert graph.fingerprint() == make(**options).fingerprint()


def test_a_complete_graph_can_be_asked_for() -> None:
    # 6 nodes in 2 classes: 6 pairs within, 9 between.
    graph = make(nodes=6, classes=2, average_degree=5, homophily=6 / 15)
    assert graph.num_edges == 15


def test_more_edges_than_pairs_are_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"9 edges within classes were asked for, .* only 6 such"):
        make(nodes=6, classes=2, average_degree=3, homophily=1)


@pytest.mark.parametrize(
    "options", [{"classes": 1}, {"nodes": 3}, {"features": 0}, {"homophily": 1.1}]
)
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        make(**options)  # type: ignore[arg-type]


def test_every_pair_of_its_kind_is_equally_likely() -> None:
    # Relabelling is random too, so the count is over blocks: within pairs per node, then all pairs.
    hits = np.zeros((9, 9))
    runs = 1000
    for seed in range(runs):
        graph = make(nodes=9, classes=3, average_degree=2, homophily=1 / 3, features=1, seed=seed)
        hits += graph.adjacency.toarray()
    pairs = hits[np.triu_indices(9, 1)]
    expected = runs * 9 / 36
    # Binomial, standard deviation about 14; six of them is never reached by chance.
    assert np.abs(pairs - expected).max() < 6 * np.sqrt(expected * 0.75)


@pytest.mark.parametrize("homophily", [0.0, 1.0])
def test_within_a_kind_no_pair_is_preferred(homophily: float) -> None:
    # 64 nodes in 2 classes, sparse: degrees must spread like those of a uniform draw.
    degrees = [
        make(
            nodes=64, classes=2, average_degree=4, homophily=homophily, features=1, seed=seed
        ).adjacency.sum(axis=1)
        for seed in range(300)
    ]
    spread = np.var(np.concatenate(degrees))
    # Hypergeometric: degree ~ 128 of the pairs, 31 or 32 of which touch a node.
    pairs, touching = (1024, 32) if homophily == 0 else (992, 31)
    share = touching / pairs
    variance = 128 * share * (1 - share) * (pairs - 128) / (pairs - 1)
    assert spread == pytest.approx(variance, rel=0.1)


def test_classes_differ_in_features() -> None:
    graph = make(nodes=4000, classes=2, features=16, seed=1)
    first, second = (graph.features[graph.labels == code].mean(axis=0) for code in (0, 1))
    # Means of 2,000 unit normals are within 0.1 of their centre; centres lie about 2 apart.
    assert np.linalg.norm(first - second) > 1


def test_a_large_graph_is_quick_and_loads_by_name() -> None:
    graph = load_dataset("sbm", nodes=100_000, classes=10, features=4)
    assert graph.num_edges == 500_000
    assert share_within(graph) == pytest.approx(0.8)
    assert graph.split is not None
    assert len(graph.split.train) == 200
