"""Baselines: the methods that GRAND is compared with, one file each.

Every baseline is a :class:`~dropnode.methods.base.NodeClassifier`, trained by the same loop. The
settings that its authors chose for Cora, Citeseer and Pubmed are in ``presets/``, in a file with
the method's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module, resources
from types import MappingProxyType
from typing import Any

from dropnode.methods.base import NodeClassifier
from dropnode.methods.presets import chosen_values
from dropnode.settings import Config, read_yaml

BASELINES: Mapping[str, str] = MappingProxyType(
    {
        "gcn": "GCN",
        "gat": "GAT",
        "appnp": "APPNP",
        "graphunet": "GraphUNet",
        "sgc": "SGC",
        "mixhop": "MixHop",
        "gmnn": "GMNN",
        "graphnas": "GraphNAS",
        "graphsage": "GraphSAGE",
        "fastgcn": "FastGCN",
        "vbat": "VBAT",
        "g3nn": "G3NN",
        "graphmix": "GraphMix",
        "dropedge": "DropEdge",
        "label-propagation": "LabelPropagation",
        "mlp": "MLP",
        "logistic": "Logistic",
        "boosting": "Boosting",
    }
)
"""The class of every baseline, in the module of its name."""


def baseline(name: str) -> type[NodeClassifier]:
    """Return the class of a baseline."""
    # Imported one by one: most need PyTorch Geometric, half of the package's import time.
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    found: type[NodeClassifier] = getattr(module, BASELINES[name])
    return found


def baseline_preset(method: str, name: str | None, dataset: str | None) -> tuple[str, Config]:
    """Return a preset's name and configuration for a dataset of the catalogue, or for None."""
    name, values = chosen_values(method, _table(method), name, dataset)
    return name, baseline(method).config_type.from_dict(values)


def baseline_presets(method: str) -> list[str]:
    """Return the names of a baseline's presets."""
    return list(_table(method))


@cache
def _table(method: str) -> dict[str, Any]:
    file = resources.files(__name__) / "presets" / f"{method}.yaml"
    table: dict[str, Any] = read_yaml(file.read_text(encoding="utf-8"))
    return table
