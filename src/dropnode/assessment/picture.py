"""The picture of held-out predictions: which classes are confused, and what confidence means."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colours that remain distinct for colour-blind readers and in grey.
POINT, INK, PALE = "#D55E00", "#1f2328", "#999999"

WRITTEN = 12
"""Up to so many classes, the counts are written into the cells."""

LONGEST = 24
"""Letters of a name that are shown."""


def draw_held_out(measures: dict[str, Any]) -> Figure:
    """Draw what :func:`~dropnode.assessment.measures` returned."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_confusion(left, measures)
    _draw_reliability(right, measures)
    return figure


def _draw_confusion(axes: Axes, measures: dict[str, Any]) -> None:
    counts, names = np.array(measures["confusion"]), [_short(each) for each in measures["classes"]]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.figure.colorbar(image, ax=axes, label="share of the labels of a class")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("given label")
    low, high = (100 * bound for bound in measures["accuracy_interval"])
    axes.set_title(
        f"{100 * measures['accuracy']:.1f} % of {measures['labels']:,} held-out labels "
        f"({low:.0f} to {high:.0f})"
    )
    if len(names) <= WRITTEN:
        for row, column in np.argwhere(counts):
            dark = shares[row, column] > 0.5
            axes.text(
                column,
                row,
                f"{counts[row, column]:,}",
                ha="center",
                va="center",
                color="white" if dark else INK,
            )


def _draw_reliability(axes: Axes, measures: dict[str, Any]) -> None:
    axes.plot([0, 100], [0, 100], color=PALE, linewidth=1)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_aspect("equal")
    axes.set_xlabel("confidence (%)")
    axes.set_ylabel("predicted correctly (%)")
    binned = measures.get("reliability")
    if binned is None:
        axes.set_title("Confidence: not judged, one model was held out")
        return
    counts = np.array(binned["count"], dtype=float)
    filled = counts > 0
    confidence = 100 * np.array(binned["confidence"])[filled] / counts[filled]
    correct = 100 * np.array(binned["correct"])[filled] / counts[filled]
    area = 30 + 400 * counts[filled] / counts.sum()
    axes.scatter(confidence, correct, s=area, color=POINT, alpha=0.8, edgecolor=INK, clip_on=False)
    after = measures["after_calibration"]
    axes.set_title(
        f"Calibration error {100 * after['ece']:.1f} %, {100 * after['ece_by_chance']:.1f} % by "
        "chance"
    )


def _short(name: str) -> str:
    # A dollar sign would start mathematics.
    name = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
    return name.replace("$", r"\$")
