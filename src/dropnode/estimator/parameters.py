"""The parameters of an estimator: their types, what they choose, and how they are saved."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from dropnode.estimator.inputs import check_graph
from dropnode.graph import Graph, Split
from dropnode.methods.base import NodeClassifier
from dropnode.methods.grand.config import GrandConfig
from dropnode.methods.presets import DEFAULT
from dropnode.methods.table import configuration
from dropnode.saving import SavedModel
from dropnode.settings import Config, read_value
from dropnode.settings import count as count_field

UNVALIDATED_EPOCHS = 200
"""How many epochs to train if nothing validates. Consistency of the views prevents overfitting in a
long training, so any number that is large enough for convergence will do."""


FEW = 10
"""With fewer labels of a class and nothing that validates, views need not agree: unlabelled nodes
would often agree on a single class, and no validation node would tell. With one label per class of
Cora, Citeseer and ACM: 27, 17 and 33 % with consistency, 39, 42 and 43 % without; with five labels
78, 60 and 43 % against 73, 61 and 67 % (three splits each, rows of length two)."""


MOST_MEMBERS = 1000
"""The most members of an ensemble."""

KINDS: dict[str, Any] = {
    "preset": str | None,
    "method": str,
    "n_neighbors": int,
    "validation_fraction": float | None,
    "device": str,
    "class_weight": Mapping[Any, float] | Literal["balanced"] | None,
    "options": Mapping[str, Any] | None,
}
"""The types of the parameters that are no keys of a configuration."""


def lists_configuration_keys(init: Callable[..., None]) -> Callable[..., None]:
    """Give ``__init__`` a signature that lists every key of GrandConfig, None by default.

    scikit-learn reads the parameters of an estimator from that signature, and so do help pages.
    """
    signature = inspect.signature(init)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    keys = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in GrandConfig.names()
    ]
    init.__signature__ = signature.replace(parameters=[*own, *keys])  # type: ignore[attr-defined]
    return init


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` if a parameter has a wrong type, before any work is done."""
    for name, kind in KINDS.items():
        read_value(kind, parameters[name], name)
    read_value(int, parameters["ensemble"], "ensemble", count_field(most=MOST_MEMBERS))
    check_graph(parameters["graph"])


def configured(
    method: str, preset: str | None, asked: Mapping[str, Any], graph: Graph, split: Split
) -> tuple[str, Config]:
    """Return the name of the preset, and its configuration with the values asked for.

    Without validation nodes, some values of the preset give way to safer ones.
    """
    name, config = configuration(method, graph.catalogue_name, preset)
    given = dict(asked)
    if not len(split.val):
        if "max_epochs" in config.names():
            given.setdefault("max_epochs", UNVALIDATED_EPOCHS)
        counts = np.bincount(graph.labels[split.train], minlength=graph.num_classes)
        if name == DEFAULT and counts.min() < FEW and "consistency_weight" in config.names():
            given.setdefault("consistency_weight", 0.0)
    return name, config.replace(**given)


def stored(parameters: dict[str, Any], seed: int | None) -> dict[str, Any]:
    """Return what a saved model has of the parameters; ``seed`` is that of the training."""
    # The graph is saved once, as the one that was trained on.
    by_node = parameters.pop("graph") is not None
    if isinstance(parameters["random_state"], np.random.RandomState):
        # It has gone on since, and no number leads back to it.
        parameters["random_state"] = seed
    weights = parameters["class_weight"]
    if isinstance(weights, Mapping):
        # JSON would turn classes into text if they were keys.
        parameters["class_weight"] = list(weights.items())
    return {
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        "by_node": by_node,
    }


def restored(saved: SavedModel) -> dict[str, Any]:
    """Return the parameters of an estimator that would train a saved model."""
    parameters = dict(saved.extra.get("parameters", _parameters(saved.method)))
    if isinstance(parameters.get("class_weight"), list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    if saved.extra.get("by_node"):
        parameters["graph"] = saved.graph
    return parameters


def _parameters(method: NodeClassifier) -> dict[str, Any]:
    """Return the parameters of an estimator that trains a method with this configuration."""
    config, ours = method.config.as_dict(), GrandConfig.names()
    parameters = {key: value for key, value in config.items() if key in ours}
    options = {key: value for key, value in config.items() if key not in ours}
    return parameters | {"method": method.name, "options": options or None}


def _plain(value: Any) -> Any:
    """Return a parameter as JSON values; a library that counts or draws gives those of NumPy."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(each) for each in value]
    return value
