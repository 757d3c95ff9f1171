"""The search space of GraphNAS: the choices for a layer, and architectures as text.

An architecture is written as its actions, layer after layer, with commas in between:
``gat,sum,linear,4,128,linear,sum,elu,8,6``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dropnode.errors import ConfigError

Action = str | int

SPACE: Mapping[str, tuple[Action, ...]] = MappingProxyType(
    {
        "attention": ("const", "gcn", "gat", "sym-gat", "cos", "linear", "gene_linear"),
        "aggregation": ("sum", "mean", "max", "mlp"),
        "activation": (
            "sigmoid",
            "tanh",
            "relu",
            "linear",
            "softplus",
            "leaky_relu",
            "relu6",
            "elu",
        ),
        "heads": (1, 2, 4, 6, 8, 16),
        "hidden": (4, 8, 16, 32, 64, 128, 256),
    }
)
"""The actions to choose from, in the order in which a layer states them."""

LAYERS = 2

WIDEST = 4096
"""Columns of the widest hidden layer: sixteen heads of 256."""

DECISIONS = (tuple(SPACE) * LAYERS)[:-1]
"""The decisions of a search, in order; the width of the last layer is the number of classes."""


@dataclass(frozen=True)
class LayerPlan:
    """One layer of an architecture.

    Attributes
    ----------
    attention : how a node weighs the messages it receives
    aggregation : how it merges them
    activation : applied to the result
    heads : attentions side by side; concatenated, in the last layer averaged
    hidden : columns of a head; of no account in the last layer, which has one a class
    """

    attention: str
    aggregation: str
    activation: str
    heads: int
    hidden: int


def parse(word: str) -> tuple[LayerPlan, ...]:
    """Return the layers of an architecture.

    Raises
    ------
    ConfigError
        If an action is missing, superfluous or not in the space.

    Examples
    --------
    >>> parse("gcn,sum,tanh,6,64,cos,sum,tanh,6,3")[1].attention
    'cos'
    """
    actions = word.split(",")
    if len(actions) != LAYERS * len(SPACE):
        raise ConfigError(
            f"architecture = {word!r} has {len(actions)} actions; expected "
            f"{LAYERS * len(SPACE)}: {','.join(SPACE)} of each of {LAYERS} layers"
        )
    found: list[list[Action]] = [[] for _ in range(LAYERS)]
    for place, (said, name) in enumerate(zip(actions, tuple(SPACE) * LAYERS, strict=True)):
        layer = place // len(SPACE)
        known = {str(action): action for action in SPACE[name]}
        if place == len(DECISIONS) and said.isdecimal() and int(said):
            # The number of classes, which published architectures state here.
            known = {said: int(said)}
        if said not in known:
            raise ConfigError(
                f"architecture = {word!r}: the {name} of layer {layer + 1} is {said!r}; "
                f"expected one of {', '.join(known)}"
            )
        found[layer].append(known[said])
    return tuple(LayerPlan(*actions) for actions in found)  # type: ignore[arg-type]


def options(decided: Sequence[Action], max_width: int) -> tuple[Action, ...]:
    """Return what may be chosen next, given what has been decided.

    Heads and hidden columns of the first layer multiply to at most ``max_width``.
    """
    name = DECISIONS[len(decided)]
    if name == "hidden":
        heads = decided[-1]
        assert isinstance(heads, int)
        return tuple(n for n in SPACE[name] if isinstance(n, int) and n * heads <= max_width)
    if name == "heads" and len(decided) < len(SPACE):
        narrowest = SPACE["hidden"][0]
        assert isinstance(narrowest, int)
        return tuple(n for n in SPACE[name] if isinstance(n, int) and n * narrowest <= max_width)
    return SPACE[name]


def spell(decided: Sequence[Action], num_classes: int) -> str:
    """Return the text of an architecture that a search decided on."""
    return ",".join(map(str, [*decided, num_classes]))
