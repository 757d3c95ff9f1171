"""Measures of the paper's two theorems, on a linear model that was trained for two classes.

The theorems are about one output layer on propagated features, which is what the method
``logistic`` trains. A trial of any other method, or with more classes, has no such measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dropnode.analysis.theory import LinearGrand, theory_curves
from dropnode.graph import Graph
from dropnode.ops.propagation import normalise
from dropnode.training import Method

SETTINGS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {"dropnode": ("dropnode", 0.5), "dropout": ("dropout", 0.5), "dropnode_20": ("dropnode", 0.2)}
)
"""Perturbation and drop rate of each family of measures."""

THEOREMS: Mapping[str, str] = MappingProxyType(
    {"theorem1": "consistency", "theorem2": "supervised"}
)

SIZE = "size of the perturbation t"

DRAWS = 1024


def curves(graph: Graph, method: Method, setting: str) -> dict[str, Any] | None:
    """Return the comparison of closed forms and Monte Carlo for a family of measures."""
    # Imported here: scikit-learn, which fits it, takes long to import.
    from dropnode.methods.baselines.logistic import Logistic

    if not isinstance(method, Logistic) or graph.num_classes != 2 or graph.split is None:
        return None
    kind, drop_rate = SETTINGS[setting]
    weight, bias = (part.detach().double().numpy() for part in method.network.parameters())
    model = LinearGrand(
        normalise(graph.adjacency),
        method.scaling.apply(graph.features),
        weight[1] - weight[0],
        method.config.order,
        drop_rate,
        kind,
        float(bias[1] - bias[0]),
    )
    return theory_curves(model, graph.split.train, draws=DRAWS)


def drawn(found: dict[str, Any]) -> dict[str, list[float]]:
    """Return the relative errors of both theorems against the size of the perturbation."""
    lines: dict[str, list[float]] = {
        SIZE: [round(size, 6) for size in found["consistency"]["sizes"]]
    }
    for theorem, loss in THEOREMS.items():
        name = f"{theorem.capitalize()[:-1]} {theorem[-1]}"
        lines[name] = [abs(error) for error in found[loss]["relative_error"]]
        lines[f"{name} ±"] = list(found[loss]["relative_standard_error"])
    return lines
