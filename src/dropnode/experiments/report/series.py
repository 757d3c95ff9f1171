"""Series of rows drawn against the setting that they vary, or an option of a transform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from dropnode.experiments.references import Reference
from dropnode.experiments.report.figure_style import LINES, WIDTH
from dropnode.experiments.results import Results, RowResult
from dropnode.experiments.spec import Plot
from dropnode.experiments.statistics import Summary
from dropnode.experiments.writers import measure_title

_STYLES = ("-", "--", "-.", ":")
_MARKERS = "osD^vPX*"
"""Lines differ in colour, style and marker, so that they are told apart in grey."""

MOST_TICKS = 12
"""How many names of places fit side by side below a plot."""


@dataclass(frozen=True)
class Line:
    """One line of a plot.

    Attributes
    ----------
    label : str
    points : dict
        From a place on the horizontal axis to the row there; empty for a horizontal line.
    level : RowResult or None
        The row of a horizontal line.
    """

    label: str
    points: Mapping[float, RowResult]
    level: RowResult | None = None


def plots_of(results: Results) -> list[tuple[Plot, str, list[Line]]]:
    """Return each plot of some results, the dataset that it is about, and its lines."""
    found = []
    for plot in results.plots:
        shown = [row for row in results.rows if (row.series or row.method) in plot.rows]
        for dataset, rows in _by_dataset(plot, shown).items():
            if lines := _lines(plot, rows):
                found.append((plot, dataset, lines))
    return found


def _by_dataset(plot: Plot, rows: Sequence[RowResult]) -> dict[str, list[RowResult]]:
    """Return the rows of each graph that a plot is drawn for.

    Over an option of a transform, that is the graph without the transform and its other options;
    the unchanged graph belongs to each of them.
    """
    if plot.over is None:
        names = dict.fromkeys(row.dataset for row in rows)
        return {name: [row for row in rows if row.dataset == name] for name in names}
    found: dict[tuple[str, str], list[RowResult]] = {}
    unchanged: dict[str, list[RowResult]] = {}
    for row in rows:
        base, options, place = Reference.parse(row.dataset).along(plot.over)
        if options is not None:
            found.setdefault((base, options), []).append(row)
        elif place is not None:
            unchanged.setdefault(base, []).append(row)
    return {
        f"{base}, {options}" if options else base: [*changed, *unchanged.get(base, [])]
        for (base, options), changed in found.items()
    }


def _lines(plot: Plot, rows: Sequence[RowResult]) -> list[Line]:
    """Return the lines of a plot on one graph, in the order of its rows."""
    lines = []
    for name in plot.rows:
        own = [row for row in rows if (row.series or row.method) == name]
        lines += _lines_along(plot.over, own) if plot.over else _line_of_series(own)
    return lines if any(line.points for line in lines) else []


def _lines_along(axis: str, rows: Sequence[RowResult]) -> list[Line]:
    """Return the line of a row over an option of a transform; of a series, one for each value."""
    lines: dict[str, dict[float, RowResult]] = {}
    for row in rows:
        place = Reference.parse(row.dataset).along(axis)[2]
        assert place is not None
        lines.setdefault(row.method, {})[place] = row
    return [
        Line(next(iter(points.values())).label, dict(sorted(points.items())))
        for points in lines.values()
    ]


def _line_of_series(rows: Sequence[RowResult]) -> list[Line]:
    """Return the line of a series over the key that it varies, or that of a row without one."""
    if not rows:
        return []
    first = rows[0]
    if not first.at:
        return [Line(first.label, {}, first)]
    ((key, value),) = first.at.items()
    points = {float(row.at[key]): row for row in rows}
    return [Line(first.label.removesuffix(f", {key} = {value}"), dict(sorted(points.items())))]


def summary_of(row: RowResult, measure: str) -> Summary:
    """Return the summary of a measure in a row."""
    return row.accuracy if measure == "test_accuracy" else row.measures[measure]


def drawable(plot: Plot, lines: Sequence[Line]) -> list[str]:
    """Return the measures of a plot that have a value somewhere along the axis.

    A horizontal line alone would be drawn over an axis without places.
    """
    rows = [row for line in lines for row in line.points.values()]
    return [name for name in plot.measures if any(summary_of(row, name).n for row in rows)]


def draw_plot(plot: Plot, lines: Sequence[Line]) -> Figure:
    """Draw a panel per measure: means with standard deviations, a line per series.

    A measure without any value has no panel; at least one has to have one.
    """
    measures = drawable(plot, lines)
    count = len(measures)
    figure = Figure(figsize=(WIDTH, 0.5 + 2.6 * count), layout="constrained")
    panels = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    # The legend has the order of the lines; matplotlib would put horizontal ones first.
    handles: dict[int, Any] = {}
    for axes, measure in zip(panels, measures, strict=True):
        for place, line in enumerate(lines):
            style = {
                "color": LINES[place % len(LINES)],
                "linestyle": _STYLES[place % len(_STYLES)],
                "label": line.label,
            }
            if line.level is not None:
                mean = summary_of(line.level, measure).mean
                if mean is not None:
                    handles[place] = axes.axhline(mean, linewidth=1.1, **style)
                continue
            known = [
                (x, summary)
                for x, row in line.points.items()
                if (summary := summary_of(row, measure)).mean is not None
            ]
            handles[place] = axes.errorbar(
                [x for x, _ in known],
                [summary.mean for _, summary in known],
                yerr=[summary.std or 0.0 for _, summary in known],
                marker=_MARKERS[place % len(_MARKERS)],
                markersize=4,
                linewidth=1.3,
                elinewidth=0.8,
                capsize=2.5,
                **style,
            )
        axes.set_ylabel(measure_title(measure))
        axes.grid()
    places = sorted({x for line in lines for x in line.points})
    log = plot.log and places[0] > 0
    if log:
        panels[-1].set_xscale("log")
        panels[-1].xaxis.set_minor_locator(NullLocator())
    gaps = [after - before for before, after in pairwise(places)]
    if log or (gaps and min(gaps) >= sum(gaps) / MOST_TICKS):
        # What was measured is named; matplotlib's own ticks of small numbers run into each other.
        panels[-1].set_xticks(places, [f"{place:g}" for place in places])
    panels[-1].set_xlabel(plot.x)
    shown = [handles[place] for place in sorted(handles)]
    figure.legend(handles=shown, loc="outside upper left", ncols=3)
    return figure
