"""Graphs of other libraries: how they are recognised, and which builder takes them.

They are known by the modules of their classes, so that none of these libraries is imported.
"""

from __future__ import annotations

from typing import Any

from dropnode.errors import GraphError

KINDS = (
    ("torch_geometric.data.hetero_data", "PyTorch Geometric HeteroData",
     "Graph.from_pyg(data.to_homogeneous())"),
    ("torch_geometric.data.dataset", "PyTorch Geometric dataset", "Graph.from_pyg(dataset[0])"),
    ("torch_geometric.data", "PyTorch Geometric Data", "Graph.from_pyg(data)"),
    ("networkx.classes", "networkx graph", "Graph.from_networkx(graph)"),
)  # fmt: skip
"""The module of a class, what its objects are called, and the call that takes one."""


def kind_of(value: Any) -> tuple[str, str] | None:
    """Return the name of a graph of another library and the call that takes it; else None.

    Examples
    --------
    >>> import networkx
    >>> kind_of(networkx.Graph())
    ('networkx graph', 'Graph.from_networkx(graph)')
    """
    modules = [base.__module__ for base in type(value).__mro__]
    for module, name, call in KINDS:
        if any(found == module or found.startswith(f"{module}.") for found in modules):
            return name, call
    return None


def refuse_graph(value: Any, place: str = "") -> None:
    """Raise :class:`GraphError` for a graph of another library where an array is expected."""
    found = kind_of(value)
    if found is not None:
        name, call = found
        raise GraphError(
            f"a {name} stands where {place or 'an array'} is expected; make a dropnode.Graph of "
            f"it with {call}, which fit, predict and score take in place of X"
        )


def instead(value: Any) -> str:
    """Return the end of a message about an object that another builder takes."""
    found = kind_of(value)
    return "" if found is None else f"; for a {found[0]}, call {found[1]}"
