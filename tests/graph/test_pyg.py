"""Edge weights of PyTorch Geometric: what is used is said, and so is what is not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from dropnode.errors import GraphWarning
from dropnode.graph import Graph


def path(**attributes: Any) -> Data:
    return Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]), **attributes)


@pytest.mark.parametrize("attributes", [torch.tensor([2.0, 3.0]), torch.tensor([[2], [3]])])
def test_one_column_of_attributes_is_used_as_weights(attributes: torch.Tensor) -> None:
    with pytest.warns(GraphWarning, match="edge_attr was used as edge weights") as caught:
        graph = Graph.from_pyg(path(edge_attr=attributes))
    assert graph.adjacency.toarray().tolist() == [[0, 2, 0], [2, 0, 3], [0, 3, 0]]
    assert graph.notes == ("the one column of edge_attr was used as edge weights",)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("attributes", "weights", "note"),
    [
        (torch.ones(2, 4), None, "shape (2, 4)"),
        (torch.tensor([1.0, -1.0]), None, "not negative"),
        (torch.tensor([1.0, torch.nan]), None, "finite"),
        (torch.tensor([5.0, 6.0]), torch.tensor([2.0, 3.0]), "edge_weight has the weights"),
    ],
)
def test_other_attributes_are_named_as_ignored(
    attributes: torch.Tensor, weights: torch.Tensor | None, note: str
) -> None:
    given = path(edge_attr=attributes, **{} if weights is None else {"edge_weight": weights})
    with pytest.warns(GraphWarning, match="edge_attr ignored"):
        graph = Graph.from_pyg(given)
    assert note in graph.notes[0]
    expected = [1.0, 1.0] if weights is None else [2.0, 3.0]
    assert [graph.adjacency[0, 1], graph.adjacency[1, 2]] == expected


def test_weights_alone_are_nothing_to_tell() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = Graph.from_pyg(path(edge_weight=torch.tensor([2.0, 3.0])))
    assert graph.notes == ()
