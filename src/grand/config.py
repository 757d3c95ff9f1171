"""GrandConfig: every choice GRAND leaves open, strictly checked, and the presets that make them."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from numbers import Real
from typing import Any

import yaml

from grand.nn import HEADS
from grand.perturb import PERTURBATIONS

DEFAULT = "default"
"""The preset for a graph that has none of its own."""


class ConfigError(ValueError):
    """A configuration that cannot be meant; the message says what would be accepted."""


@dataclass(frozen=True)
class GrandConfig:
    """One configuration of GRAND. The paper's symbol stands in brackets.

    Attributes
    ----------
    feature_scaling : ``"row"``, ``"standard"`` or ``"none"``
    perturbation : ``"dropnode"``, ``"dropout"`` or ``"dropedge"``
    drop_rate : probability of dropping a node, an entry of X or an entry of Â [δ]
    order : propagation steps [K]
    augmentations : views an epoch [S]
    consistency_weight : weight of the agreement of views [λ]
    temperature : sharpening of the average prediction, 1 for none [T]
    head : ``"mlp"``, ``"gcn"`` or ``"gat"``
    hidden : width of the hidden layer
    batch_norm : normalise the inputs of both layers
    input_dropout, hidden_dropout : dropout rates inside the head
    input_dropout_on : entries of ``"propagated"`` features, as the paper has it; or, far cheaper,
        whole ``"columns"``, features that a view lacks at all nodes, or raw ``"entries"``
    input_norm : with ``batch_norm``, the statistics of the first layer's: ``"batch"``, or
        ``"fixed"`` ones of the unperturbed propagated features, which is far cheaper
    learning_rate, weight_decay : of Adam; the decay is coupled, and on every parameter
    patience : epochs without progress before training stops
    max_epochs : epochs at most; exactly this many where nothing can validate
    mask_scaling : ``"training"`` or ``"inference"``, see :mod:`grand.perturb`
    initialisation : ``"glorot"`` or ``"released"``, see :mod:`grand.nn`
    reduction : ``"sum"`` or ``"mean"`` over nodes, see :mod:`grand.objective`
    stopping : ``"loss"``, ``"loss-or-accuracy"`` or ``"accuracy"``, see
        :class:`grand.training.Stopping`
    attention_heads : of the ``"gat"`` head; they share ``hidden``
    """

    feature_scaling: str
    perturbation: str
    drop_rate: float
    order: int
    augmentations: int
    consistency_weight: float
    temperature: float
    head: str
    hidden: int
    batch_norm: bool
    input_dropout: float
    hidden_dropout: float
    learning_rate: float
    weight_decay: float
    patience: int
    max_epochs: int
    mask_scaling: str
    initialisation: str
    reduction: str
    stopping: str
    attention_heads: int = 8
    input_dropout_on: str = "propagated"
    input_norm: str = "batch"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _typed(field, getattr(self, field.name)))
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError(f"{name} = {value!r}; expected one of {', '.join(choices)}")
        for name, (low, high, described) in _RANGES.items():
            value = getattr(self, name)
            if not (low <= value <= high):
                raise ConfigError(f"{name} = {value!r}; expected {described}")
        if self.head == "gat" and self.batch_norm:
            raise ConfigError("batch_norm = true with head = 'gat'; set batch_norm=false")
        if self.head == "gat" and self.input_dropout_on != "propagated":
            raise ConfigError(
                f"input_dropout_on = {self.input_dropout_on!r} with head = 'gat', whose first "
                "layer does not commute with propagation; set input_dropout_on=propagated"
            )
        if self.batch_norm and self.input_norm == "batch" and self.input_dropout_on != "propagated":
            raise ConfigError(
                f"input_dropout_on = {self.input_dropout_on!r} before propagation, but batch_norm "
                "with input_norm = 'batch' needs propagated features; set input_norm=fixed"
            )
        if self.head == "gat" and self.hidden % self.attention_heads:
            raise ConfigError(
                f"hidden = {self.hidden} with {self.attention_heads} attention heads; expected a "
                "multiple of attention_heads"
            )

    def replace(self, /, **changes: Any) -> GrandConfig:
        """Return this configuration with some keys changed; an unknown key is an error."""
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                raise ConfigError(
                    f"unknown configuration key {name!r}{suggestion(str(name), known)}"
                )
        return dataclasses.replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration as plain values."""
        return dataclasses.asdict(self)

    def identity(self) -> dict[str, Any]:
        """Return the keys that are not at their default.

        They tell two configurations apart, and go on doing so when keys are added.
        """
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GrandConfig:
        """Build a configuration that names every key."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise ConfigError(
                    f"unknown configuration key {name!r}{suggestion(str(name), known)}"
                )
        optional = {f.name for f in dataclasses.fields(cls) if f.default is not dataclasses.MISSING}
        missing = sorted(set(known) - optional - set(values))
        if missing:
            raise ConfigError(f"configuration lacks {', '.join(missing)}; give every key")
        return cls(**values)


def preset(name: str | None, dataset: str) -> tuple[str, GrandConfig]:
    """Return the preset of a dataset, and its name.

    Without a name: ``official`` where the dataset has one, else ``default``.

    Examples
    --------
    >>> name, config = preset(None, "citeseer")
    >>> name, config.order, config.temperature
    ('official', 2, 0.3)
    """
    table = _table()
    if name is None:
        name = "official" if dataset in table["datasets"] else DEFAULT
    if name == DEFAULT:
        return name, GrandConfig.from_dict(table[DEFAULT])
    if name not in table["fidelities"]:
        raise ConfigError(f"unknown preset {name!r}; expected one of {', '.join(preset_names())}")
    if dataset not in table["datasets"]:
        raise ConfigError(
            f"preset {name!r} exists for {', '.join(table['datasets'])}, not for {dataset!r}; "
            f"use preset {DEFAULT!r}"
        )
    adjusted = table["adjustments"].get(name, {}).get(dataset, {})
    values = table["datasets"][dataset] | table["fidelities"][name] | adjusted
    return name, GrandConfig.from_dict(values)


def preset_names() -> list[str]:
    """Return every preset's name."""
    return [*_table()["fidelities"], DEFAULT]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the end of an error sentence: the nearest known name, or all of them."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; expected one of {', '.join(known)}"


@cache
def _table() -> dict[str, Any]:
    text = resources.files("grand").joinpath("presets.yaml").read_text(encoding="utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return table


_CHOICES: dict[str, tuple[str, ...]] = {
    "feature_scaling": ("row", "standard", "none"),
    "perturbation": tuple(PERTURBATIONS),
    "head": HEADS,
    "mask_scaling": ("training", "inference"),
    "initialisation": ("glorot", "released"),
    "reduction": ("sum", "mean"),
    "stopping": ("loss", "loss-or-accuracy", "accuracy"),
    "input_dropout_on": ("propagated", "columns", "entries"),
    "input_norm": ("batch", "fixed"),
}

_BELOW_ONE = 1.0 - 1e-9
_INFINITE = float("inf")
_RANGES: dict[str, tuple[float, float, str]] = {
    "drop_rate": (0.0, _BELOW_ONE, "at least 0 and below 1"),
    "input_dropout": (0.0, _BELOW_ONE, "at least 0 and below 1"),
    "hidden_dropout": (0.0, _BELOW_ONE, "at least 0 and below 1"),
    "order": (0, _INFINITE, "a whole number of at least 0"),
    "augmentations": (1, _INFINITE, "a whole number of at least 1"),
    "consistency_weight": (0.0, _INFINITE, "a number of at least 0"),
    "temperature": (1e-3, 1.0, "above 0 (at least 0.001) and at most 1"),
    "hidden": (1, _INFINITE, "a whole number of at least 1"),
    "learning_rate": (1e-12, _INFINITE, "above 0"),
    "weight_decay": (0.0, _INFINITE, "a number of at least 0"),
    "patience": (1, _INFINITE, "a whole number of at least 1"),
    "max_epochs": (1, _INFINITE, "a whole number of at least 1"),
    "attention_heads": (1, _INFINITE, "a whole number of at least 1"),
}


def _typed(field: dataclasses.Field[Any], value: Any) -> Any:
    """Return the value in the field's type, or say why it is not of that type."""
    kind = str(field.type)
    if kind in ("float", "int"):
        # Real covers NumPy's scalars, which a parameter search hands over; so does bool, a trap.
        number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        if number and kind == "float":
            return float(value)
        if number and value == int(value):
            return int(value)
    elif isinstance(value, str if kind == "str" else bool):
        return value
    raise ConfigError(f"{field.name} = {value!r}; expected {_KINDS[kind]}")


_KINDS = {"float": "a number", "int": "a whole number", "str": "a word", "bool": "true or false"}
