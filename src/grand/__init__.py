"""Few-label node classification with graph random neural networks (GRAND).

>>> from grand import GrandClassifier, load_dataset
>>> graph = load_dataset("digits")
>>> graph.num_nodes
1797
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grand.data import load_dataset
    from grand.estimator import GrandClassifier
    from grand.graph import Graph, Split
    from grand.inputs import GraphError

__version__ = "0.1.0.dev0"

__all__ = ["GrandClassifier", "Graph", "GraphError", "Split", "load_dataset"]

_HOMES = {
    "Graph": "grand.graph",
    "GraphError": "grand.inputs",
    "GrandClassifier": "grand.estimator",
    "Split": "grand.graph",
    "load_dataset": "grand.data",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `grand --help` should not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'grand' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
