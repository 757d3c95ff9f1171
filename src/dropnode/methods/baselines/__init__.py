"""The methods GRAND is compared with, one file each, under one protocol.

Every baseline is a :class:`~dropnode.methods.base.NodeClassifier`, trained by the same loop. What
its authors chose on Cora, Citeseer and Pubmed is in ``presets/``, a file of the method's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module, resources
from types import MappingProxyType
from typing import Any

from dropnode.errors import ConfigError
from dropnode.methods.base import NodeClassifier
from dropnode.methods.grand.config import DEFAULT
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
    }
)
"""The class of every baseline, in the module of its name."""

OFFICIAL = "official"


def baseline(name: str) -> type[NodeClassifier]:
    """Return the class of a baseline."""
    # Imported one by one: most need PyTorch Geometric, half of the package's import time.
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    found: type[NodeClassifier] = getattr(module, BASELINES[name])
    return found


def baseline_preset(method: str, name: str | None, dataset: str) -> tuple[str, Config]:
    """Return a baseline's configuration for a dataset, and the name of the preset.

    Without a name: ``official``, what the authors chose, where they had the dataset; else
    ``default``.
    """
    table = _table(method)
    if name is None:
        name = OFFICIAL if dataset in table[OFFICIAL] else DEFAULT
    if name not in table:
        raise ConfigError(f"{method} has no preset {name!r}; expected {OFFICIAL} or {DEFAULT}")
    if name == OFFICIAL and dataset not in table[OFFICIAL]:
        raise ConfigError(
            f"preset {name!r} of {method} exists for {', '.join(table[OFFICIAL])}, not for "
            f"{dataset!r}; use preset {DEFAULT!r}"
        )
    values = table[DEFAULT] if name == DEFAULT else table[OFFICIAL][dataset]
    return name, baseline(method).config_type.from_dict(values)


@cache
def _table(method: str) -> dict[str, Any]:
    file = resources.files(__name__) / "presets" / f"{method}.yaml"
    table: dict[str, Any] = read_yaml(file.read_text(encoding="utf-8"))
    return table
