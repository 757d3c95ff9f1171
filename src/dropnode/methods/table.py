"""Every method by name: GRAND, its variants and ablations (configurations), GRAND+, baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dropnode.data.catalogue import catalogue
from dropnode.errors import ConfigError
from dropnode.methods.base import NodeClassifier
from dropnode.methods.baselines import BASELINES, baseline, baseline_preset
from dropnode.methods.grand.config import preset
from dropnode.methods.grand.model import Grand
from dropnode.methods.grand_plus.config import preset as plus_preset
from dropnode.methods.grand_plus.model import GrandPlus
from dropnode.settings import Config, read_value, shown, suggestion

GRAND_VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "grand": {},
        "grand-dropout": {"perturbation": "dropout"},
        # The authors' code for it (github.com/wzfhaha/grand_dropedge) scales in training, never at
        # inference, unlike their DropNode; the other way round Citeseer drops from 75 to 52 and 33
        # (seeds 0, 1).
        "grand-dropedge": {"perturbation": "dropedge", "mask_scaling": "training"},
        "grand-gcn": {"head": "gcn"},
        # Eight heads of eight units, the paper's GAT; its attention layers have no batch norm.
        "grand-gat": {
            "head": "gat",
            "hidden": 64,
            "attention_heads": 8,
            "batch_norm": False,
        },
        "grand-no-cr": {"consistency_weight": 0.0},
        "grand-no-mdn": {"augmentations": 1},
        "grand-no-sharpening": {"temperature": 1.0},
        "grand-no-cr-dn": {"consistency_weight": 0.0, "drop_rate": 0.0},
    }
)
"""The changes that each variant of the paper makes to a preset."""

METHODS: tuple[str, ...] = (*GRAND_VARIANTS, GrandPlus.name, *BASELINES)
"""The names that :func:`make_method` knows."""


@dataclass(frozen=True)
class Choice:
    """A method ready to train, and its configuration.

    Attributes
    ----------
    method : NodeClassifier
    preset : str
        The name of the preset that the configuration started from.
    config : dict
        Every key.
    identity : dict
        The keys that are not at their default, which identify a stored result.
    """

    method: NodeClassifier
    preset: str
    config: dict[str, Any]
    identity: dict[str, Any]


def make_method(
    name: str,
    dataset: str | None,
    preset_name: str | None = None,
    changes: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> Choice:
    """Make a method for a dataset from a preset, the variant's changes to it, and ``changes``.

    Parameters
    ----------
    name : str
        One of :data:`METHODS`.
    dataset : str or None
        The name of the catalogue entry whose preset is wanted; None for any other graph.
    preset_name : str, optional
        By default ``official`` if the dataset has one, else ``default``.
    changes : mapping, optional
        Keys of the configuration and their values.
    device : str
        Where tensors live, as torch names it.

    Examples
    --------
    >>> make_method("grand-no-sharpening", "cora").config["temperature"]
    1.0
    >>> make_method("gcn", "cora", changes={"hidden": 32}).config["hidden"]
    32
    """
    used, config = configuration(name, dataset, preset_name)
    config = config.replace(**dict(changes or {}))
    method = method_type(name)(config, device=device)
    return Choice(method, used, config.as_dict(), config.identity())


def configuration(
    name: str, dataset: str | None, preset_name: str | None = None
) -> tuple[str, Config]:
    """Return a preset's name and configuration of a method, for a dataset or for None."""
    kind = method_type(name)
    read_value(str | None, preset_name, "preset")
    entry = catalogue().get(dataset or "")
    if entry is not None and entry.presets is not None:
        dataset = entry.presets
    if kind is GrandPlus:
        return plus_preset(preset_name, dataset)
    if kind is not Grand:
        return baseline_preset(name, preset_name, dataset)
    used, config = preset(preset_name, dataset, name)
    return used, config.replace(**GRAND_VARIANTS[name])


def restore_method(
    name: str,
    identity: Mapping[str, Any],
    device: str = "cpu",
    class_weights: np.ndarray | None = None,
    node_weights: np.ndarray | None = None,
) -> NodeClassifier:
    """Make the method of a stored result again, from its :attr:`Choice.identity`.

    Examples
    --------
    >>> made = make_method("grand-gcn", "cora", "fast", {"input_dropout_on": "propagated"})
    >>> restore_method("grand-gcn", made.identity).config == made.method.config
    True
    """
    kind = method_type(name)
    config = kind.config_type.from_dict(identity)
    return kind(config, class_weights=class_weights, node_weights=node_weights, device=device)


def method_type(name: str) -> type[NodeClassifier]:
    """Return the class of a method."""
    if not isinstance(name, str) or name not in METHODS:
        raise ConfigError(f"unknown method {shown(name)}{suggestion(str(name), METHODS)}")
    if name in GRAND_VARIANTS:
        return Grand
    if name == GrandPlus.name:
        return GrandPlus
    return baseline(name)
