"""GrandConfig: every setting of GRAND, strictly checked, and the presets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from dropnode.errors import ConfigError
from dropnode.methods.grand.heads import HEADS
from dropnode.methods.presets import DEFAULT, OFFICIAL, TUNED
from dropnode.ops.perturb import PERTURBATIONS
from dropnode.ops.scaling import CHOICES
from dropnode.settings import (
    Config,
    choice,
    count,
    flag,
    positive,
    rate,
    read_yaml,
    repeats,
    suggestion,
    temperature,
    weight,
    width,
)


@dataclass(frozen=True)
class GrandConfig(Config):
    """A configuration of GRAND. The paper's symbols are in brackets.

    Attributes
    ----------
    feature_scaling : how features are scaled, see :class:`dropnode.ops.scaling.FeatureScaling`
    perturbation : what a view drops, see :mod:`dropnode.ops.perturb`
    drop_rate : probability of dropping a node, an entry of X or an entry of Â [δ]
    order : propagation steps [K]
    augmentations : views per epoch [S]
    consistency_weight : weight of the agreement of views [λ]
    temperature : sharpening of the average prediction, 1 for none [T]
    head : the classifier of propagated features: a perceptron, graph convolutions or attention
    hidden : width of the hidden layer
    batch_norm : whether the inputs of both layers are normalised
    input_dropout : dropout rate of the head's input
    hidden_dropout : dropout rate of the head's hidden layer
    input_dropout_on : entries of ``"propagated"`` features, as in the paper; or, far cheaper,
        whole ``"columns"`` (features that a view drops at all nodes), or raw ``"entries"``
    input_norm : the statistics that ``batch_norm`` takes in the first layer: those of the
        ``"batch"``, or ``"fixed"`` ones of the unperturbed features, which is far cheaper
    learning_rate : learning rate of Adam
    weight_decay : weight decay of Adam, coupled, on every parameter
    patience : epochs without progress before training stops
    max_epochs : the most epochs to run; exactly so many if nothing validates
    mask_scaling : when the scale of dropped features is corrected: by dividing in
        ``"training"``, or by multiplying at ``"inference"``
    initialisation : the initial weights: Glorot's, or those of the ``"released"`` code
    reduction : whether the losses are a sum or a mean over nodes
    stopping : when training stops and which epoch is kept, see
        :class:`dropnode.training.Stopping`
    attention_heads : number of heads of the ``"gat"`` head; they share ``hidden``
    """

    feature_scaling: str = choice(*CHOICES)
    perturbation: str = choice(*PERTURBATIONS)
    drop_rate: float = rate()
    order: int = repeats(least=0)
    augmentations: int = repeats()
    consistency_weight: float = weight()
    temperature: float = temperature()
    head: str = choice(*HEADS)
    hidden: int = width()
    batch_norm: bool = flag()
    input_dropout: float = rate()
    hidden_dropout: float = rate()
    learning_rate: float = positive()
    weight_decay: float = weight()
    patience: int = count()
    max_epochs: int = count()
    mask_scaling: str = choice("training", "inference")
    initialisation: str = choice("glorot", "released")
    reduction: str = choice("sum", "mean")
    stopping: str = choice("loss", "loss-or-accuracy", "accuracy")
    attention_heads: int = repeats(default=8)
    input_dropout_on: str = choice("propagated", "columns", "entries", default="propagated")
    input_norm: str = choice("batch", "fixed", default="batch")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head == "gat" and self.batch_norm:
            raise ConfigError("batch_norm = true with head = 'gat'; set batch_norm=false")
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


def preset(
    name: str | None, dataset: str | None, variant: str = "grand"
) -> tuple[str, GrandConfig]:
    """Return a preset's name and configuration for a dataset of the catalogue, or for None.

    Without a name: ``official`` if the dataset has one, else ``default``. A variant may have its
    own rates; :mod:`dropnode.methods.table` defines what a variant is.

    Examples
    --------
    >>> name, config = preset(None, "citeseer")
    >>> name, config.order, config.temperature
    ('official', 2, 0.3)
    """
    table = _table()
    if name is None:
        name = OFFICIAL if dataset in table["datasets"] else DEFAULT
    if name == DEFAULT:
        return name, GrandConfig.from_dict(table[DEFAULT])
    if name not in table["fidelities"]:
        raise ConfigError(f"unknown preset {name!r}{suggestion(name, preset_names())}")
    searched = table["searched"] if name == TUNED else {}
    if dataset in searched:
        return name, GrandConfig.from_dict(table[DEFAULT] | searched[dataset])
    if dataset not in table["datasets"]:
        known = ", ".join([*table["datasets"], *searched])
        raise ConfigError(
            f"preset {name!r} exists for the datasets {known}, not for "
            f"{dataset or 'a graph outside the catalogue'}; use preset {DEFAULT!r}"
        )
    values = table["datasets"][dataset] | table["fidelities"][name]
    values |= table["adjustments"].get(name, {}).get(dataset, {})
    values |= table["variants"].get(name, {}).get(dataset, {}).get(variant, {})
    return name, GrandConfig.from_dict(values)


def preset_names() -> list[str]:
    """Return every preset's name."""
    return [*_table()["fidelities"], DEFAULT]


@cache
def _table() -> dict[str, Any]:
    text = (
        resources.files("dropnode.methods.grand")
        .joinpath("presets.yaml")
        .read_text(encoding="utf-8")
    )
    table: dict[str, Any] = read_yaml(text)
    return table
