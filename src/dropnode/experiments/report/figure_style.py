"""How every figure of the report looks: its colours, fonts and width."""

from __future__ import annotations

from typing import Any

INK = "#1f2328"
# Colours that remain distinct for colour-blind readers.
OURS, THEIRS = "#0072B2", "#D55E00"
LINES = (OURS, THEIRS, "#009E73", "#CC79A7", "#999999", "#E69F00", "#56B4E9")
"""Colours of methods that share a panel."""

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    # A class may be called "$x$".
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.18,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    # Text as outlines, so that it has the same size on every machine.
    "svg.fonttype": "path",
    "svg.hashsalt": "dropnode",
    # In points: the change is invisible, and halves the size of a noisy curve.
    "path.simplify_threshold": 0.3,
}

WIDTH = 5.0
"""Width of a figure in inches: a phone shows it at about its natural size."""
