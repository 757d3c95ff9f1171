"""Drawing the figures of a report; :mod:`~dropnode.experiments.report.gallery` saves them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cbook import boxplot_stats
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dropnode.experiments.measures import Measure
from dropnode.experiments.report.evidence import Curve, Evidence, Reliability
from dropnode.experiments.report.figure_style import INK, LINES, OURS, THEIRS, WIDTH
from dropnode.experiments.results import Stage

_SHARES = LinearSegmentedColormap.from_list(
    "shares", [(0.0, 0.35, 0.62, alpha) for alpha in (0, 1)]
)

_NUMBERED = 12
"""With more classes, a confusion matrix has no room for numbers or names in two lines."""


def draw_seeds(rows: Sequence[Evidence]) -> Figure:
    """Draw the test accuracies: a box per method, a point per seed, and the paper's figure."""
    figure = Figure(figsize=(WIDTH, 1.1 + 0.42 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for place, evidence in enumerate(rows):
        if evidence.accuracies:
            _draw_box(axes, place - 0.08, np.array(evidence.accuracies))
        if evidence.row.paper is not None:
            axes.errorbar(
                evidence.row.paper,
                place + 0.3,
                xerr=evidence.row.paper_std,
                fmt="D",
                color=THEIRS,
                markersize=3.8,
                linewidth=1.1,
                capsize=2,
            )
    axes.plot([], [], "o", color=OURS, markersize=3, label="one seed")
    if any(evidence.row.paper is not None for evidence in rows):
        axes.plot([], [], "D", color=THEIRS, markersize=4.5, label="paper (± std)")
    labels = [one.label + ("" if one.accuracies else " (no result)") for one in rows]
    axes.set_yticks(range(len(rows)), [_wrapped(label, 22) for label in labels])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("test accuracy (%)")
    axes.grid(axis="x")
    figure.legend(loc="outside upper right", ncols=2)
    return figure


def _draw_box(axes: Axes, place: float, values: np.ndarray) -> None:
    (box,) = boxplot_stats(values)
    height, width = 0.46, box["q3"] - box["q1"]
    axes.barh(place, width, height, box["q1"], color=OURS, alpha=0.2)
    axes.barh(place, width, height, box["q1"], fill=False, edgecolor=OURS, linewidth=0.9)
    for end, whisker in ((box["q1"], box["whislo"]), (box["q3"], box["whishi"])):
        axes.plot([end, whisker], [place, place], color=OURS, linewidth=0.9)
    # Steps of the golden ratio distribute points evenly, without randomness.
    jitter = (np.arange(len(values)) * 0.6180339887 % 1 - 0.5) * 0.8 * height
    strength = 0.65 if len(values) <= 30 else 0.35
    axes.plot(
        values, place + jitter, "o", color=OURS, markersize=2.4, alpha=strength, markeredgewidth=0
    )
    axes.vlines(
        box["med"], place - height / 2, place + height / 2, color=INK, linewidth=1.6, zorder=3
    )


def draw_curves(rows: Sequence[Evidence]) -> tuple[Figure, list[str]]:
    """Draw validation loss and accuracy: a line per seed, a row of panels per method.

    Returns
    -------
    Figure
    list of str
        The values outside the panels.
    """
    height, foot, head = 0.84, 0.55, 0.48
    total = height * len(rows) + foot + head
    figure = Figure(figsize=(WIDTH, total))
    panels = figure.subplots(len(rows), 2, sharex=True, sharey="col", squeeze=False)
    figure.subplots_adjust(
        left=0.1, right=0.985, bottom=foot / total, top=1 - head / total, hspace=0.46, wspace=0.2
    )
    for (loss, accuracy), evidence in zip(panels, rows, strict=True):
        for curve in evidence.curves:
            _draw_curve(loss, curve, curve.loss)
            _draw_curve(accuracy, curve, curve.accuracy)
        loss.set_title(evidence.label, loc="left", fontsize=9, pad=3)
        for axes in (loss, accuracy):
            axes.grid()
            axes.tick_params(labelsize=8.5)
            axes.yaxis.set_major_locator(MaxNLocator(3))
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    cut = _focus(panels[0, 0], panels[0, 1], [curve for one in rows for curve in one.curves])
    for axes, name in zip(panels[0], ("validation loss", "validation accuracy (%)"), strict=True):
        middle = (axes.get_position().x0 + axes.get_position().x1) / 2
        figure.text(middle, 1 - 0.04 / total, name, ha="center", va="top", weight="bold")
    for axes in panels[-1]:
        axes.set_xlabel("epoch")
    return figure, cut


def _draw_curve(axes: Axes, curve: Curve, values: np.ndarray) -> None:
    axes.plot(curve.epoch, values, color=OURS, linewidth=0.8, alpha=0.6)
    kept = curve.epoch == curve.best_epoch
    axes.plot(curve.epoch[kept], values[kept], "o", color=THEIRS, markersize=2.6, zorder=3)


def _focus(loss: Axes, accuracy: Axes, curves: Sequence[Curve]) -> list[str]:
    """Limit the axes so that outliers do not flatten all curves; return what is cut off."""
    cut = []
    losses = np.concatenate([curve.loss for curve in curves])
    losses = losses[np.isfinite(losses)]
    most = 1.5 * float(np.percentile(losses, 98))
    if losses.max() > most:
        loss.set_ylim(top=most)
        cut.append(f"losses above {most:.2f}")
    accuracies = np.concatenate([curve.accuracy for curve in curves])
    accuracies = accuracies[np.isfinite(accuracies)]
    usual, best = float(np.percentile(accuracies, 5)), float(accuracies.max())
    least = usual - 0.3 * (best - usual)
    if accuracies.min() < least:
        accuracy.set_ylim(least, best + 0.08 * (best - least))
        cut.append(f"accuracies below {least:.1f} %")
    return cut


def draw_confusion(shares: np.ndarray, names: Sequence[str]) -> Figure:
    """Draw a matrix whose rows are the shares of a true class that were predicted as each class."""
    classes = len(names)
    figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    axes = figure.subplots()
    roomy = classes <= _NUMBERED
    lines = INK if roomy else "none"
    axes.pcolormesh(shares, cmap=_SHARES, vmin=0, vmax=1, edgecolors=lines, linewidth=0.2)
    for (row, column), share in np.ndenumerate(shares):
        if roomy and np.isfinite(share):
            axes.text(
                column + 0.5,
                row + 0.5,
                f"{100 * share:.{0 if classes > 8 else 1}f}",
                # White is legible on dark blue only; the text colour is on everything lighter.
                color="white" if share > 0.75 else INK,
                ha="center",
                va="center",
                fontsize=8.5 if classes <= 8 else 7,
            )
    size = min(8.5, 130 / classes)
    short = [_shortened(name.replace("_", " ")) for name in names]
    places = np.arange(classes) + 0.5
    axes.set_xticks(places, short, fontsize=size)
    if max(map(len, short)) > 3:
        axes.tick_params(axis="x", labelrotation=40)
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    axes.set_yticks(
        places, [_wrapped(name, 16) if roomy else name for name in short], fontsize=size
    )
    axes.set_ylim(classes, 0)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true class")
    return figure


def draw_reliability(reliability: Reliability) -> Figure:
    """Draw accuracy against confidence, and the share of nodes in each bin."""
    figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
    accuracy, share = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    bins = len(reliability.count)
    centres = 100 * (np.arange(bins) + 0.5) / bins
    filled = reliability.count > 0
    count = reliability.count[filled]
    width = 100 / bins * 0.92
    correct = 100 * reliability.correct[filled] / count
    bars = accuracy.bar(
        centres[filled], correct, width, color=OURS, alpha=0.45, label="accuracy per bin"
    )
    (dots,) = accuracy.plot(
        100 * reliability.confidence[filled] / count,
        correct,
        "o",
        color=THEIRS,
        markersize=3.5,
        clip_on=False,
        label="at its mean confidence",
    )
    (ideal,) = accuracy.plot(
        [0, 100], [0, 100], color=INK, linewidth=0.9, linestyle="--", label="calibrated"
    )
    accuracy.set_ylabel("accuracy (%)")
    accuracy.set_xlim(0, 100)
    accuracy.set_ylim(0, 100)
    figure.legend(handles=[bars, dots, ideal], loc="outside upper right", ncols=3)
    share.bar(centres, 100 * reliability.count / max(reliability.count.sum(), 1), width, color=OURS)
    share.set_ylabel("nodes (%)")
    share.set_xlabel("confidence (%)")
    for axes in (accuracy, share):
        axes.grid(axis="y")
    return figure


def draw_measured_curves(rows: Sequence[Evidence], name: str, measure: Measure) -> Figure:
    """Draw a measure that is a set of curves: a panel per method, the mean over seeds.

    Around it are the deviation over seeds or, where the trials give standard errors, their mean.
    """
    height = 2.6 if measure.log else 1.7
    figure = Figure(figsize=(WIDTH, 0.7 + height * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, evidence in zip(panels, rows, strict=True):
        values: Sequence[dict[str, list[float]]] = evidence.drawn[name]
        places = max((one[measure.x] for one in values), key=len)
        names = [key for key in values[0] if key != measure.x and not key.endswith("±")]
        for place, line in enumerate(names):
            padded = np.full((len(values), len(places)), np.nan)
            for seed, one in enumerate(values):
                padded[seed, : len(one[line])] = one[line]
            mean = np.nanmean(padded, axis=0)
            style = ("-", "--", ":", "-.")[place % 4]
            axes.plot(places, mean, style, color=LINES[place], linewidth=1.4, label=line)
            if f"{line} ±" in values[0]:
                errors = np.mean([one[f"{line} ±"] for one in values], axis=0)
                axes.errorbar(places, mean, errors, fmt="o", color=LINES[place], markersize=3)
                continue
            # n - 1, except where a single seed has a value.
            seeds = np.isfinite(padded).sum(axis=0)
            deviation = np.nanstd(padded, axis=0) * np.sqrt(seeds / np.maximum(seeds - 1, 1))
            axes.fill_between(
                places, mean - deviation, mean + deviation, color=LINES[place], alpha=0.2, lw=0
            )
        axes.set_title(_shortened(evidence.label, 48), loc="left", fontsize=9, pad=3)
        axes.set_ylabel(_wrapped(measure.title, 22))
        axes.grid()
        if measure.log:
            axes.set(xscale="log", yscale="log")
            # The usual labels are formulas, which the style does not typeset.
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter("{x:g}")
    panels[-1].set_xlabel(measure.x)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=3)
    return figure


def draw_stage(stage: Stage) -> Figure:
    """Draw validation and test accuracy against the one key that a stage varied."""
    (key,) = stage.varied
    rows = stage.rows
    figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(rows))
    validation = [(row.val_mean, row.val_std) for row in rows]
    test = [(row.test_mean, row.test_std) for row in rows]
    for shift, label, values, colour, shape in (
        (-0.06, "validation", validation, OURS, "o"),
        (0.06, "test", test, THEIRS, "s"),
    ):
        axes.errorbar(
            places + shift,
            [np.nan if mean is None else mean for mean, _ in values],
            yerr=[deviation or 0.0 for _, deviation in values],
            fmt=f"{shape}-",
            color=colour,
            markersize=4,
            linewidth=1,
            capsize=2.5,
            label=label,
        )
    for place, row in enumerate(rows):
        if row.chosen:
            axes.axvspan(
                place - 0.3, place + 0.3, color=INK, alpha=0.1, linewidth=0, label="chosen"
            )
    axes.set_xticks(places, [str(row.changes.get(key, "unchanged")) for row in rows])
    axes.set_xlabel(key)
    axes.set_ylabel("accuracy (%)")
    axes.grid(axis="y")
    figure.legend(loc="outside upper right", ncols=3)
    return figure


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, width) or text


def _shortened(text: str, width: int = 24) -> str:
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"
