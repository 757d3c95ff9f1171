"""The picture of a benchmark: times of an epoch side by side, and growth with the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from dropnode.bench.report import digits
from dropnode.files import atomic_write

# Hues that colour-blind readers can tell apart; the package's own paths have the strong ones.
_COLOURS = {
    "naive": "#999999",
    "exact": "#56B4E9",
    "fast": "#0072B2",
    "pyg-gcn": "#F0C27B",
    "pyg-gat": "#E69F00",
}
_NAMES = {
    "naive": "GRAND, naive",
    "exact": "GRAND, exact",
    "fast": "GRAND, fast",
    "pyg-gcn": "PyG GCN",
    "pyg-gat": "PyG GAT",
}
_TIME, _MEMORY, _WORKING = "#0072B2", "#D55E00", "#CC79A7"


def save_picture(path: Path, result: dict[str, Any]) -> bool:
    """Draw the measured parts into a PNG file; return whether there was anything to draw."""
    bars, growth, whole = ("epoch" in result, "scaling" in result, "scale" in result)
    if not (bars or growth or whole):
        return False
    figure = Figure(figsize=(7.5 * bars + 4.8 * (growth + whole), 6.2), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)  # type: ignore[call-arg,union-attr]
    widths = [1.6] * bars + [1.0] * (growth + whole)
    columns = figure.add_gridspec(2, len(widths), width_ratios=widths)
    if bars:
        _draw_epochs(figure.add_subplot(columns[:, 0]), result["epoch"])
    if growth:
        rows, powers = result["scaling"], result["exponents"]
        time = figure.add_subplot(columns[0, int(bars)])
        _draw_growth(time, rows, powers, [("epoch_ms", "epoch", "one epoch", _TIME)])
        time.set_title("Growth with the graph", loc="left", fontweight="bold")
        time.set_ylabel("ms an epoch")
        time.tick_params(labelbottom=False)
        memory = figure.add_subplot(columns[1, int(bars)], sharex=time)
        series = [
            ("peak_mb", "peak", "whole process", _MEMORY),
            ("working_mb", "working", "without interpreter", _WORKING),
        ]
        _draw_growth(memory, rows, powers, series)
        memory.set_ylabel("peak memory, MB")
        memory.set_xlabel("nodes (block model, 10 neighbours, 100 features)")
    if whole:
        _draw_scale(figure, columns[:, -1], result)
    machine = result["machine"]
    figure.supxlabel(
        f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, "
        f"torch {machine['torch']}",
        fontsize=8,
        color="0.4",
    )
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=130)
    return True


def _draw_epochs(axes: Axes, rows: list[dict[str, Any]]) -> None:
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    paths = list(dict.fromkeys(row["path"] for row in rows))
    step = len(paths) + 1.2
    largest = max(row["median_ms"] for row in rows)
    smallest = min(row["median_ms"] for row in rows)
    for row in rows:
        place = step * datasets.index(row["dataset"]) + paths.index(row["path"])
        own = row["path"] in ("exact", "fast")
        axes.barh(place, row["median_ms"], height=0.86, color=_COLOURS[row["path"]])
        told = f"{digits(row['median_ms'])} ms"
        if row["path"] != "naive":
            told += f"   {digits(row['ratio_to_naive'])}×"
        axes.annotate(
            told,
            (row["median_ms"], place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            fontweight="bold" if own else "normal",
        )
    axes.set_yticks(
        [step * d + p for d in range(len(datasets)) for p in range(len(paths))],
        [_NAMES[path] for _ in datasets for path in paths],
    )
    for number, dataset in enumerate(datasets):
        axes.annotate(
            dataset.capitalize(),
            (0, step * number - 0.62),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="bottom",
            fontweight="bold",
        )
    axes.set_xscale("log")
    # Room for the text at the end of the longest bar.
    axes.set_xlim(smallest / 3, largest * (largest / smallest) ** 0.25)
    axes.set_ylim(step * len(datasets) - 1.2 - 0.2, -1.6)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlabel("ms an epoch: training step and validation (logarithmic)")
    axes.set_title("One epoch, and how many times as fast as naive", loc="left", fontweight="bold")
    axes.tick_params(axis="y", length=0)
    _tidy(axes, grid="x")


def _draw_scale(figure: Figure, place: Any, result: dict[str, Any]) -> None:
    """Draw GRAND+ on growing graphs, and the other methods where they were measured."""
    own = [row for row in result["scale"] if row["method"] == "grand-plus"]
    others = [row for row in result["scale"] if row["method"] != "grand-plus"]
    places = place.subgridspec(2, 1)
    time = figure.add_subplot(places[0])
    memory = figure.add_subplot(places[1], sharex=time)
    panels = [
        (time, ("cpu_seconds", "cpu_seconds", "GRAND+", _TIME), "CPU seconds"),
        (memory, ("working_mb", "working_mb", "GRAND+", _MEMORY), "peak memory, MB"),
    ]
    for axes, series, title in panels:
        for row in others:
            axes.plot(row["nodes"], row[series[0]], "x", color="0.5")
            told = f" {row['method']} {row['test_accuracy']:.0f} %"
            axes.annotate(told, (row["nodes"], row[series[0]]), fontsize=8, color="0.4")
        _draw_growth(axes, own, result["scale_exponents"], [series])
        axes.set_ylabel(title)
    time.set_title("From a graph on disk to all predictions", loc="left", fontweight="bold")
    time.tick_params(labelbottom=False)
    memory.set_xlabel("nodes (heavy tails, 20 neighbours, 64 features)")


def _draw_growth(
    axes: Axes,
    rows: list[dict[str, Any]],
    powers: dict[str, float],
    series: list[tuple[str, str, str, str]],
) -> None:
    nodes = np.array([row["nodes"] for row in rows], dtype=float)
    for key, fitted, name, colour in series:
        values = np.array([row[key] for row in rows], dtype=float)
        power = powers[fitted]
        level = np.exp(np.mean(np.log(values) - power * np.log(nodes)))
        axes.plot(nodes, level * nodes**power, "--", color=colour, linewidth=1)
        axes.plot(nodes, values, "o", color=colour, markersize=6)
        label = f"{name} ∝ nodes$^{{{power:.2f}}}$"
        axes.plot([], [], "o--", color=colour, linewidth=1, markersize=6, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.legend(frameon=False, loc="upper left")
    axes.margins(0.1, 0.45)
    _tidy(axes, grid="both")


def _short(count: float) -> str:
    return f"{count / 1e6:g}M" if count >= 1e6 else f"{count / 1e3:g}k"


def _tidy(axes: Axes, grid: Any) -> None:
    axes.grid(axis=grid, alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
