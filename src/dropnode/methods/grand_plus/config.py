"""GrandPlusConfig: every setting of GRAND+, and its presets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from dropnode.methods.presets import chosen_values
from dropnode.ops.push import WALKS
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
    share,
    temperature,
    weight,
    width,
)

FITTED = "fitted"
"""The walk that is chosen by the training labels."""


@dataclass(frozen=True, kw_only=True)
class GrandPlusConfig(Config):
    """A configuration of GRAND+. The paper's symbols are in brackets.

    Attributes
    ----------
    feature_scaling : how features are scaled, see :class:`dropnode.ops.scaling.FeatureScaling`
    walk : the weights of the powers of P, see ``dropnode.ops.push.walk_shares``; those that
        are ``"fitted"`` are chosen by ``dropnode.methods.grand_plus.fitting``
    order : the highest power of P [N]
    teleport : the probability of the walk ``"ppr"`` to end at a step [α]
    top : how many entries of a row of Π views are made of [k]
    tail : whether a view also has, in one piece, what those entries lack of the exact row
    threshold : residues below this, times the number of edges, are not pushed on [r_max]
    agree_on : the nodes whose views have to agree: the ``"test"`` nodes, as in the released code
        (if the split has any), or all that are ``"unlabelled"`` in training
    unlabelled : how many of them are sampled, once [|U'|]
    drop_rate : probability of dropping an entry of a row of Π [δ]
    augmentations : views per batch [M]
    consistency_weight : weight of the agreement of views [λ]
    warmup : batches in which that weight rises from zero [λ_max/ε]
    distance : how far views are from the sharpened average: ``"squared"`` or ``"kl"``
    temperature : sharpening of the average prediction, 1 for none [T]
    confidence : nodes count for the agreement if the largest averaged probability exceeds this
        multiple of 1/classes, or lies half-way between 1/classes and 1, if that is less [γ]
    layers : linear layers of the classifier, 1 or 2
    hidden : width of the hidden layer, if there are two
    node_norm : whether every propagated row is divided by its length
    batch_norm : whether the inputs of all layers are normalised
    input_dropout : dropout rate of propagated features
    hidden_dropout : dropout rate of the hidden layer
    learning_rate : learning rate of Adam
    weight_decay : weight decay of Adam, coupled, on every parameter
    clip : the most that the norm of all gradients may be, 0 for no limit
    labelled_batch : training nodes in a batch
    unlabelled_batch : of the sampled nodes in a batch
    batches : batches in an epoch; every epoch is validated
    stopping : when training stops and which epoch is kept, see
        :class:`dropnode.training.Stopping`
    patience : epochs without progress before training stops
    max_epochs : the most epochs to run; exactly so many if nothing validates
    """

    feature_scaling: str = choice(*CHOICES)
    walk: str = choice(*WALKS, FITTED)
    order: int = repeats(least=0)
    teleport: float = share()
    top: int = count()
    tail: bool = flag()
    threshold: float = share()
    agree_on: str = choice("test", "unlabelled")
    unlabelled: int = count()
    drop_rate: float = rate()
    augmentations: int = repeats()
    consistency_weight: float = weight()
    warmup: int = count(least=0)
    distance: str = choice("squared", "kl")
    temperature: float = temperature()
    confidence: float = weight()
    layers: int = count(most=2)
    hidden: int = width()
    node_norm: bool = flag()
    batch_norm: bool = flag()
    input_dropout: float = rate()
    hidden_dropout: float = rate()
    learning_rate: float = positive()
    weight_decay: float = weight()
    clip: float = weight()
    labelled_batch: int = count()
    unlabelled_batch: int = count()
    batches: int = repeats()
    stopping: str = choice("loss", "loss-or-accuracy", "accuracy", "accuracy-and-loss", "never")
    patience: int = count()
    max_epochs: int = count()


def preset(name: str | None, dataset: str | None) -> tuple[str, GrandPlusConfig]:
    """Return a preset's name and configuration for a dataset of the catalogue, or for None.

    Examples
    --------
    >>> name, config = preset(None, "citeseer")
    >>> name, config.walk, config.order
    ('official', 'ppr', 10)
    """
    name, values = chosen_values("grand-plus", _table(), name, dataset)
    return name, GrandPlusConfig.from_dict(values)


def preset_names() -> list[str]:
    """Return every preset's name."""
    return list(_table())


@cache
def _table() -> dict[str, Any]:
    file = resources.files("dropnode.methods.grand_plus") / "presets.yaml"
    table: dict[str, Any] = read_yaml(file.read_text(encoding="utf-8"))
    return table
