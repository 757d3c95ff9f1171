"""The picture of an explanation: the strongest nodes around the explained one, and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import AbstractPathEffect, withStroke

from dropnode.analysis.explain import Explanation
from dropnode.analysis.tree import Tree
from dropnode.graph import Graph
from dropnode.graph.labels import UNKNOWN
from dropnode.settings import count, read_value

# Colours that remain distinct for colour-blind readers.
FOR, AGAINST, REST, INK = "#0072B2", "#D55E00", "#999999", "#1f2328"

_HALO: list[AbstractPathEffect] = [withStroke(linewidth=2.5, foreground="white", alpha=0.85)]

LONGEST = 24
"""Letters of a name that are shown."""


def draw_explanation(
    explanation: Explanation,
    graph: Graph,
    *,
    names: Sequence[Any] | None = None,
    nodes: int = 12,
    columns: int = 10,
) -> Figure:
    """Draw the strongest nodes around the explained one, and the strongest columns beside them.

    On the left, the explained node is in the middle and the others are on rings, by the number of
    hops. The area of a disc is the size of the contribution. A dashed line leads over nodes that
    are not drawn. A node that trained the model shows its class. On the right, the bars sum to the
    score.

    Parameters
    ----------
    explanation : Explanation
    graph : Graph
        The graph of the explained node.
    names : sequence, optional
        The names of the feature columns.
    nodes, columns : int
        The most nodes and columns to draw.

    Returns
    -------
    matplotlib.figure.Figure
        To be saved with ``figure.savefig("why.svg")``, or ``.png``.
    """
    nodes = read_value(int, nodes, "nodes", count())
    columns = read_value(int, columns, "columns", count())
    tree = Tree(explanation, graph.adjacency, nodes)
    height = max(5.6, 0.34 * (min(columns, explanation.contributions.shape[1]) + 4))
    figure = Figure(figsize=(12.0, height), layout="constrained")
    around, beside = figure.subplots(1, 2, width_ratios=[1.5, 1.0])
    _draw_nodes(around, explanation, graph, tree)
    _draw_columns(beside, explanation, names, columns)
    figure.suptitle(_title(explanation, graph), color=INK, parse_math=False)
    return figure


def _draw_nodes(axes: Axes, explanation: Explanation, graph: Graph, tree: Tree) -> None:
    places, middle = tree.places(), explanation.node
    rings = sorted(set(tree.hops.values()))
    free = _widest_gap([angle for node, (_, angle) in places.items() if node != middle])
    for radius, distance in enumerate(rings[1:], start=1):
        axes.plot(*_at(radius, np.linspace(0, 2 * np.pi, 200)), color=REST, alpha=0.35, lw=0.8)
        told = "1 hop" if distance == 1 else f"{distance} hops"
        axes.text(
            *_at(radius, free), told, fontsize=7.5, color="0.45", ha="center", va="center"
        ).set_path_effects(_HALO)
    for node, (parent, neighbours) in tree.parents.items():
        # Around the middle rather than across it, where a line would seem to join the node there.
        start, end = places[parent], places[node]
        turned = start[1] if parent != middle else end[1]
        line = _at(np.linspace(start[0], end[0], 30), np.linspace(turned, end[1], 30))
        axes.plot(*line, color=INK, alpha=0.45, lw=1.0, ls="-" if neighbours else (0, (2, 3)))
    largest = max(abs(tree.amounts.get(node, 0.0)) for node in tree.nodes) or 1.0
    inner = {middle} | {parent for parent, _ in tree.parents.values()}
    for node, (ring, angle) in places.items():
        amount = tree.amounts.get(node, 0.0)
        area = 50 + 600 * abs(amount) / largest
        edge = INK if node == middle else "white"
        colour = FOR if amount >= 0 else AGAINST
        axes.scatter(*_at(ring, angle), s=area, color=colour, edgecolors=edge, lw=1.4, zorder=3)
        # Outward; below a node from which a line leads outward.
        across, up = (
            _at(1.0, angle) if node not in inner else (0.0, 1.0 if node == middle else -1.0)
        )
        beyond = np.sqrt(area) / 2 + 3  # In points, as the area is.
        aside = abs(across) >= 0.35
        axes.annotate(
            f"{_named(node, graph)}\n{_signed(amount)}",
            _at(ring, angle),
            xytext=(beyond * across, beyond * up),
            textcoords="offset points",
            fontsize=8.5,
            fontweight="bold" if node == middle else "normal",
            color=INK,
            ha="center" if not aside else "left" if across > 0 else "right",
            va="center" if aside else "bottom" if up > 0 else "top",
            linespacing=1.15,
            zorder=4,
            parse_math=False,
        ).set_path_effects(_HALO)
    reach = max(len(rings) - 1, 1) + 0.45
    axes.set_xlim(-1.3 * reach, 1.3 * reach)
    axes.set_ylim(-reach, reach)
    axes.set_aspect("equal")
    axes.axis("off")
    shown = sum(tree.amounts.get(node, 0.0) for node in tree.nodes)
    others = len(explanation.nodes) - sum(node in tree.amounts for node in tree.nodes)
    told = "Nodes: blue adds, orange subtracts"
    if others:
        told += f"; {others:,} further nodes {_signed(explanation.by_node.sum() - shown)}"
    axes.set_title(told, fontsize=10, color=INK, loc="left")


def _draw_columns(
    axes: Axes, explanation: Explanation, names: Sequence[Any] | None, most: int
) -> None:
    shares = explanation.strongest_columns(most, names)
    bars = [(_short(str(share.name)), share.amount) for share in shares]
    if names is None:
        bars = [(f"column {name}", amount) for name, amount in bars]
    others = int((explanation.by_column != 0).sum()) - len(shares)
    if others:
        rest = explanation.by_column.sum() - sum(share.amount for share in shares)
        bars.append((f"{others:,} further columns", rest))
    bars.append(("bias", explanation.bias))
    largest = max(abs(amount) for _, amount in bars) or 1.0
    for place, (name, amount) in enumerate(bars):
        plain = place < len(shares)
        colour = (FOR if amount >= 0 else AGAINST) if plain else REST
        axes.barh(place, amount, height=0.72, color=colour)
        side = 1 if amount >= 0 else -1
        axes.annotate(
            _signed(amount),
            (amount, place),
            xytext=(4 * side, 0),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            fontsize=8.5,
            color=INK,
        )
        axes.text(
            -0.02,
            place,
            name,
            transform=axes.get_yaxis_transform(),
            ha="right",
            va="center",
            fontsize=9,
            color=INK,
            parse_math=False,
        )
    axes.axvline(0, color=INK, lw=0.8)
    low, high = (min(0.0, *(a for _, a in bars)), max(0.0, *(a for _, a in bars)))
    # Room for the numbers at the ends of the bars.
    axes.set_xlim(low - 0.3 * largest * (low < 0), high + 0.3 * largest)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_yticks([])
    axes.tick_params(axis="x", labelsize=8, colors=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title("Feature columns, summed over all nodes", fontsize=10, color=INK, loc="left")


def _named(node: int, graph: Graph) -> str:
    """Return the id of a node, and its class if it trained the model."""
    name = _short(str(graph.ids[node]))
    trains = graph.split is None or node in graph.split.train
    label = graph.labels[node]
    return f"{name} ({_short(graph.class_names[label])})" if trains and label != UNKNOWN else name


def _title(explanation: Explanation, graph: Graph) -> str:
    classes = graph.class_names
    told = f"Node {_short(str(graph.ids[explanation.node]))}: {_short(classes[explanation.label])}"
    if explanation.against is not None:
        told += f" rather than {_short(classes[explanation.against])}"
        return f"{told}, difference of logits {_signed(explanation.score)}"
    return f"{told}, logit {_signed(explanation.score)}"


def _at(ring: Any, angle: Any) -> tuple[Any, Any]:
    return ring * np.cos(angle), ring * np.sin(angle)


def _widest_gap(angles: list[float]) -> float:
    """Return the middle of the widest gap between angles."""
    ordered = np.sort(np.mod(angles, 2 * np.pi)) if angles else np.zeros(1)
    gaps = np.diff(ordered, append=ordered[0] + 2 * np.pi)
    return float(ordered[gaps.argmax()] + gaps.max() / 2)


def _signed(amount: float) -> str:
    return f"{amount:+.2f}".replace("-", "−")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
