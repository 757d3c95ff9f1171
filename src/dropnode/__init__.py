"""Few-label node classification with graph random neural networks (GRAND).

>>> from dropnode import GrandClassifier, load_dataset
>>> graph = load_dataset("digits")
>>> graph.num_nodes
1797
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dropnode.data import load_dataset, save_graph
    from dropnode.errors import GraphError
    from dropnode.estimator import GrandClassifier
    from dropnode.graph import Graph, Split
    from dropnode.table_model import TableModel
    from dropnode.tables import read_tables

__version__ = "0.1.0.dev0"

__all__ = [
    "GrandClassifier",
    "Graph",
    "GraphError",
    "Split",
    "TableModel",
    "load_dataset",
    "read_tables",
    "save_graph",
]

_HOMES = {
    "Graph": "dropnode.graph",
    "GraphError": "dropnode.errors",
    "GrandClassifier": "dropnode.estimator",
    "Split": "dropnode.graph",
    "TableModel": "dropnode.table_model",
    "load_dataset": "dropnode.data",
    "read_tables": "dropnode.tables",
    "save_graph": "dropnode.data",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``dropnode --help`` is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dropnode' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
