"""Graphs of other libraries in the wrong place: recognised, and refused with the call to make."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset

from dropnode.errors import GraphError
from dropnode.graph import Graph
from dropnode.graph.foreign import kind_of

X = np.eye(3)
DATA = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))
NETWORK = nx.path_graph(3)


class Shelf(InMemoryDataset):
    """A dataset as users define one."""

    def __init__(self) -> None:
        super().__init__(None)


@pytest.mark.parametrize(
    ("value", "call"),
    [
        (DATA, "Graph.from_pyg(data)"),
        (HeteroData(), "Graph.from_pyg(data.to_homogeneous())"),
        (Shelf(), "Graph.from_pyg(dataset[0])"),
        (nx.DiGraph(), "Graph.from_networkx(graph)"),
        (nx.MultiGraph(), "Graph.from_networkx(graph)"),
        (torch.eye(3), None),
        (X, None),
        ([(0, 1)], None),
        (None, None),
    ],
)
def test_graphs_of_other_libraries_are_known_by_their_class(value: Any, call: str | None) -> None:
    assert (kind_of(value) or ("", None))[1] == call


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Graph.from_edges(NETWORK, X), ["networkx graph", "Graph.from_networkx(graph)"]),
        (lambda: Graph.from_edges(DATA, X), ["Data", "Graph.from_pyg(data)"]),
        (lambda: Graph.from_scipy(NETWORK, X), ["networkx graph", "from_networkx"]),
        (lambda: Graph.from_edges([(0, 1)], DATA), ["Data", "from_pyg"]),
        (lambda: Graph.from_networkx(DATA), ["no graph", "Graph.from_pyg(data)"]),
        (lambda: Graph.from_pyg(NETWORK), ["no x", "Graph.from_networkx(graph)"]),
        (lambda: Graph.from_pyg(HeteroData()), ["no x", "data.to_homogeneous()"]),
        (lambda: Graph.from_scipy(DATA.edge_index, X), ["(2, 2)", "from_edges(edge_index.T"]),
        (lambda: Graph.from_scipy([(0, 1)] * 4, X), ["(4, 2)", "from_edges(edges, X, y)"]),
    ],
)
def test_a_graph_in_the_wrong_place_is_refused_with_the_call_to_make(
    build: Any, words: list[str]
) -> None:
    with pytest.raises(GraphError) as caught:
        build()
    for word in words:
        assert word in str(caught.value)
