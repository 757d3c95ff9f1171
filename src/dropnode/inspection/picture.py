"""The picture of an inspection: labels, degrees, who is joined to whom, and methods compared."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dropnode.inspection.comparison import WHAT
from dropnode.inspection.inspect import Inspection

# Colours that remain distinct for colour-blind readers and in grey.
BAR, POINT, INK = "#0072B2", "#D55E00", "#1f2328"

MOST = 20
"""The most classes that are shown, those with the most labels."""

LONGEST = 24
"""Letters of a name that are shown."""


def draw_inspection(inspection: Inspection) -> Figure:
    """Draw four panels; save them with ``figure.savefig("inspection.png")``, or ``.svg``."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    panels = figure.subplots(2, 2).ravel()
    _draw_labels(panels[0], inspection)
    _draw_degrees(panels[1], inspection)
    _draw_pairs(panels[2], inspection)
    _draw_comparison(panels[3], inspection)
    return figure


def _draw_labels(axes: Axes, inspection: Inspection) -> None:
    counts = inspection.structure.label_counts
    names = _shown_classes(inspection)
    axes.barh(range(len(names)), [counts[name] for name in names], color=BAR)
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("labelled nodes")
    more = f" (the largest {MOST} of {len(counts)} classes)" if len(counts) > MOST else ""
    axes.set_title(f"{inspection.structure.labels:,} labels{more}")


def _draw_degrees(axes: Axes, inspection: Inspection) -> None:
    structure = inspection.structure
    degrees = structure.degrees[structure.degrees > 0]
    if len(degrees):
        edges = np.unique(np.geomspace(1, degrees.max() + 1, 30).round())
        axes.hist(degrees, bins=edges.tolist(), color=BAR)
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel("neighbours of a node")
    axes.set_ylabel("nodes")
    axes.set_title(f"{structure.edges:,} edges; {structure.isolated:,} nodes have none")


def _draw_pairs(axes: Axes, inspection: Inspection) -> None:
    found = inspection.structure.homophily
    names = list(inspection.structure.label_counts)
    if not found.edges:
        _say(axes, "no edge joins two labelled nodes")
        axes.set_title("Classes of neighbours")
        return
    order = [names.index(name) for name in _shown_classes(inspection)]
    pairs = found.pairs[np.ix_(order, order)].astype(float)
    shares = pairs / np.maximum(pairs.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.figure.colorbar(image, ax=axes, label="share of neighbours")
    ticks = [_short(names[at]) for at in order]
    axes.set_xticks(range(len(order)), ticks, rotation=45, ha="right")
    axes.set_yticks(range(len(order)), ticks)
    axes.set_xlabel("class of a neighbour")
    axes.set_ylabel("class of a node")
    adjusted = "" if found.adjusted is None else f"; adjusted homophily {found.adjusted:.2f}"
    axes.set_title(f"{found.edges:,} edges between labels{adjusted}")


def _draw_comparison(axes: Axes, inspection: Inspection) -> None:
    axes.set_title("Held-out labels, 95 % intervals")
    if inspection.comparison is None:
        _say(axes, "too few labels to hold any out")
        return
    found = inspection.comparison.as_dict()
    names = list(found)
    for at, name in enumerate(names):
        low, high = found[name]["interval"]
        axes.plot([100 * low, 100 * high], [at, at], color=INK, linewidth=1.5)
        axes.plot(100 * found[name]["accuracy"], at, "o", color=POINT, markersize=8)
    axes.set_yticks(range(len(names)), [f"{name}\n{WHAT[name]}" for name in names])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("predicted correctly (%)")


def _shown_classes(inspection: Inspection) -> list[str]:
    counts = inspection.structure.label_counts
    return sorted(counts, key=lambda name: -counts[name])[:MOST]


def _say(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color=INK)
    axes.set_axis_off()


def _short(name: str) -> str:
    # A dollar sign would start mathematics.
    name = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
    return name.replace("$", r"\$")
