"""Everything that is worth knowing before training, in one object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dropnode.graph import Graph
from dropnode.graph.labels import UNKNOWN
from dropnode.inspection.advice import advice
from dropnode.inspection.comparison import Comparison, compare
from dropnode.inspection.structure import Structure, structure_of
from dropnode.ops.scaling import suitable


@dataclass(frozen=True, eq=False)
class Inspection:
    """What a graph has, how methods compare on its labels, and what follows.

    Attributes
    ----------
    structure : Structure
    scaling : str
        How the features are scaled; what ``"auto"`` chooses, if that is asked for.
    comparison : Comparison or None
        None if there are too few labels, or if it was not wanted.
    advice : list of str
    """

    structure: Structure
    scaling: str
    comparison: Comparison | None
    advice: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        compared = None if self.comparison is None else self.comparison.as_dict()
        return {
            **self.structure.as_dict(),
            "feature_scaling": self.scaling,
            "held_out": compared,
            "advice": self.advice,
        }


def inspect_graph(graph: Graph, seed: int = 0, feature_scaling: str = "auto") -> Inspection:
    """Look at a graph before training.

    A graph with a split is looked at without the labels of its test nodes.

    Parameters
    ----------
    graph : Graph
    seed : int
        Seed of the division of labels.
    feature_scaling : str
        How methods scale the features, as a ``feature_scaling`` of theirs. For features of tables,
        their :class:`~dropnode.tables.Encoders` know it.

    Examples
    --------
    >>> from dropnode import load_dataset
    >>> found = inspect_graph(load_dataset("sbm", nodes=200, classes=2))
    >>> found.structure.nodes, found.scaling, sorted(found.comparison.held)[:2]
    (200, 'standard', ['grand', 'grand-no-cr'])
    """
    graph = _without_test_labels(graph)
    structure, comparison = structure_of(graph), compare(graph, seed, feature_scaling)
    scaling = suitable(graph.features) if feature_scaling == "auto" else feature_scaling
    return Inspection(structure, scaling, comparison, advice(structure, comparison))


def _without_test_labels(graph: Graph) -> Graph:
    if graph.split is None:
        return graph
    labels = np.full(graph.num_nodes, UNKNOWN)
    kept = np.concatenate([graph.split.train, graph.split.val])
    labels[kept] = graph.labels[kept]
    return graph.with_split(None).with_labels(labels, graph.class_names)
