"""Every method by name: GRAND, its variants and its ablations are configurations, not code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from grand.config import ConfigError, GrandConfig, preset, suggestion
from grand.method import Grand
from grand.training import Method

GRAND_VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "grand": {},
        "grand-dropout": {"perturbation": "dropout"},
        # The authors' code for it (github.com/wzfhaha/grand_dropedge) scales in training, never at
        # inference, unlike their DropNode; the other way round Citeseer drops from 75 to 52 and 33
        # (seeds 0, 1).
        "grand-dropedge": {"perturbation": "dropedge", "mask_scaling": "training"},
        "grand-gcn": {"head": "gcn"},
        # Eight heads of eight units, the paper's GAT; its attention layers have no batch norm, and
        # nothing that commutes with propagation.
        "grand-gat": {
            "head": "gat",
            "hidden": 64,
            "attention_heads": 8,
            "batch_norm": False,
            "input_dropout_on": "propagated",
        },
        "grand-no-cr": {"consistency_weight": 0.0},
        "grand-no-mdn": {"augmentations": 1},
        "grand-no-sharpening": {"temperature": 1.0},
        "grand-no-cr-dn": {"consistency_weight": 0.0, "drop_rate": 0.0},
    }
)
"""What each variant of the paper changes in a preset."""

METHODS: tuple[str, ...] = tuple(GRAND_VARIANTS)
"""The names that :func:`make_method` knows."""


@dataclass(frozen=True)
class Choice:
    """A method ready to train, and what it was made from.

    Attributes
    ----------
    method : Method
    preset : str
    config : dict
        Every key.
    identity : dict
        The keys that are not at their default: what a stored result is known by.
    """

    method: Method
    preset: str
    config: dict[str, Any]
    identity: dict[str, Any]


def make_method(
    name: str,
    dataset: str,
    preset_name: str | None = None,
    changes: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> Choice:
    """Make a method for a dataset: the preset, then what the variant says, then ``changes``.

    Examples
    --------
    >>> make_method("grand-no-sharpening", "cora").config["temperature"]
    1.0
    """
    _check(name)
    used, config = preset(preset_name, dataset)
    config = config.replace(**(dict(GRAND_VARIANTS[name]) | dict(changes or {})))
    return Choice(Grand(config, device=device), used, config.as_dict(), config.identity())


def restore_method(name: str, identity: Mapping[str, Any], device: str = "cpu") -> Method:
    """Make the method that a stored result was made with, from its :attr:`Choice.identity`.

    Examples
    --------
    >>> made = make_method("grand-gcn", "cora", "fast", {"input_dropout_on": "propagated"})
    >>> restore_method("grand-gcn", made.identity).config == made.method.config
    True
    """
    _check(name)
    return Grand(GrandConfig.from_dict(identity), device=device)


def _check(name: str) -> None:
    if name not in GRAND_VARIANTS:
        raise ConfigError(f"unknown method {name!r}{suggestion(name, METHODS)}")
