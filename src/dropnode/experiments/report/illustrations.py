"""Illustrations of the page: each figure with its description for screen readers, and its caption.

``figures.py`` and ``series.py`` draw; here it is decided which figures a dataset gets, and noted
which ones its trials do not allow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup

from dropnode.experiments import measures
from dropnode.experiments.references import Reference
from dropnode.experiments.report.evidence import CURVES, HISTORY, Evidence
from dropnode.experiments.report.figures import (
    draw_confusion,
    draw_curves,
    draw_measured_curves,
    draw_reliability,
    draw_seeds,
    draw_stage,
)
from dropnode.experiments.report.gallery import Gallery
from dropnode.experiments.report.series import Line, draw_plot, drawable, summary_of
from dropnode.experiments.report.text import count_seeds, settings_text
from dropnode.experiments.results import Comparison, DatasetFacts, Stage
from dropnode.experiments.spec import Plot
from dropnode.experiments.writers import mean_and_std, measure_title

EXPECTED = ("confusion", "reliability")
"""Measures that every trial should have; the page notes where one is missing."""


@dataclass
class Section:
    """The part of the page about one dataset."""

    dataset: DatasetFacts
    anchor: str
    rows: list[Evidence]
    comparisons: list[Comparison]
    figures: list[tuple[Markup, str]] = field(default_factory=list)
    notes: list[tuple[str, list[str]]] = field(default_factory=list)

    def label(self, method: str) -> str:
        """Return the label of a method in this dataset's rows."""
        return next((one.label for one in self.rows if one.row.method == method), method)

    @property
    def main(self) -> Evidence:
        """The row whose matrices are drawn: the reference of the comparisons, or else the first."""
        reference = self.comparisons[0].first if self.comparisons else None
        return next((one for one in self.rows if one.row.method == reference), self.rows[0])


def illustrate(section: Section, gallery: Gallery) -> None:
    """Draw the figures of a dataset, and note which are missing."""
    _show_seeds(section, gallery)
    for name, measure in measures.MEASURES.items():
        show = _SHOW.get(measure.kind)
        if show and (name in EXPECTED or any(name in one.drawn for one in section.rows)):
            show(section, gallery, name)
    _show_training(section, gallery)


def illustrate_plot(
    plot: Plot, dataset: str, lines: list[Line], gallery: Gallery
) -> tuple[str, Markup, str]:
    """Return the title, the drawing and the caption of a plot."""
    labels = ", ".join(line.label for line in lines)
    title = f"{plot.title}, {dataset}"
    shown = drawable(plot, lines)
    empty = ", ".join(measure_title(name) for name in plot.measures if name not in shown)
    without = f"No values of {empty} against {plot.x}." if empty else ""
    if not shown:
        return title, Markup(), without
    seeds = {
        summary_of(row, measure).n
        for line in lines
        for row in line.points.values()
        for measure in shown
    }
    drawn = gallery.add(
        f"{dataset}-{plot.title}",
        draw_plot(plot, lines),
        f"{' and '.join(map(measure_title, shown))} against {plot.x} on {dataset}, for {labels}.",
    )
    few = f"{min(seeds)} to {max(seeds)} trials" if len(seeds) > 1 else f"{max(seeds)} trials"
    return title, drawn, f"Mean ± standard deviation over {few} per point. {without}".rstrip()


def illustrate_stage(stage: Stage, gallery: Gallery) -> Markup | None:
    """Draw a stage that varied a single key, if any of its trials has ended."""
    if len(stage.varied) != 1 or not any(row.n for row in stage.rows):
        return None
    chosen = [settings_text(row.changes) for row in stage.rows if row.chosen]
    return gallery.add(
        f"{stage.dataset}-stage-{stage.stage}",
        draw_stage(stage),
        f"Validation and test accuracy on {stage.dataset} against {stage.varied[0]}. "
        f"Chosen: {'; '.join(chosen) or 'none'}.",
    )


def _show_seeds(section: Section, gallery: Gallery) -> None:
    name, rows = section.dataset.name, section.rows
    if not any(one.accuracies for one in rows):
        section.notes.append(("No box plot: no trial has a test accuracy.", []))
        return
    medians = "; ".join(
        f"{one.label} {np.median(one.accuracies):.2f} %" for one in rows if one.accuracies
    )
    drawn = gallery.add(
        f"{name}-seeds",
        draw_seeds(rows),
        f"Box plot of the test accuracies on {name}. Medians: {medians}.",
    )
    caption = (
        "Test accuracy of every seed, with median and quartiles (box); whiskers reach the last "
        "seed within 1.5 times the width of the box."
    )
    if any(one.row.paper is not None for one in rows):
        caption += " Diamonds: the paper’s mean and standard deviation."
    section.figures.append((drawn, caption))


def _show_matrix(section: Section, gallery: Gallery, name: str) -> None:
    dataset, evidence = section.dataset, section.main
    title = measures.MEASURES[name].title
    matrices = evidence.drawn.get(name, [])
    _note_lacking(section, [evidence], name, title)
    if not matrices:
        return
    counts = np.sum(matrices, axis=0)
    names = Reference.parse(dataset.name).class_names(dataset.class_names)
    if len(counts) != len(names):
        names = tuple(str(number) for number in range(1, len(counts) + 1))
    sizes = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, sizes, out=np.full(counts.shape, np.nan), where=sizes > 0)
    correct = "; ".join(
        f"{one} {100 * share:.1f} %"
        for one, share in zip(names, np.diag(shares), strict=True)
        if np.isfinite(share)
    )
    drawn = gallery.add(
        f"{dataset.name}-{name}",
        draw_confusion(shares, names),
        f"{_sentence(title)} of {evidence.label} on {dataset.name}. Correct per class: {correct}.",
    )
    caption = (
        f"{_sentence(title)} of {evidence.label}: test nodes by true class (row) and predicted "
        f"class, in percent of the true class; mean of {count_seeds(len(matrices))}."
    )
    section.figures.append((drawn, caption))


def _show_reliability(section: Section, gallery: Gallery, name: str) -> None:
    dataset, evidence = section.dataset.name, section.main
    title = "reliability diagram" if name in EXPECTED else measures.MEASURES[name].title
    diagrams = evidence.drawn.get(name, [])
    _note_lacking(section, [evidence], name, title)
    if not diagrams:
        return
    errors = [100 * one.error for one in diagrams]
    pooled = sum(diagrams[1:], diagrams[0])
    deviation = float(np.std(errors, ddof=1)) if len(errors) > 1 else None
    error = f"{mean_and_std(float(np.mean(errors)), deviation)} %"
    drawn = gallery.add(
        f"{dataset}-{name}",
        draw_reliability(pooled),
        f"{_sentence(title)} of {evidence.label} on {dataset}. Expected calibration error {error}.",
    )
    caption = (
        f"{_sentence(title)} of {evidence.label} on the test nodes, in {len(pooled.count)} bins. "
        f"Expected calibration error (ECE): {error}"
    )
    if len(errors) > 1:
        caption += (
            f" (mean ± standard deviation over {len(errors)} seeds). The bins shown pool all "
            f"seeds; their ECE is {100 * pooled.error:.2f} %"
        )
    section.figures.append((drawn, caption + "."))


def _show_measured_curves(section: Section, gallery: Gallery, name: str) -> None:
    dataset, measure = section.dataset.name, measures.MEASURES[name]
    shown = [one for one in section.rows if name in one.drawn]
    _note_lacking(section, section.rows, name, measure.title)
    labels = ", ".join(one.label for one in shown)
    drawn = gallery.add(
        f"{dataset}-{name}",
        draw_measured_curves(shown, name, measure),
        f"{_sentence(measure.title)} against {measure.x} on {dataset}, for {labels}.",
    )
    names = [key for one in shown for key in one.drawn[name][0]]
    spread = "mean ± standard deviation over seeds"
    if any(key.endswith("±") for key in names):
        spread = "mean over seeds, with bars for the standard errors within a trial"
    caption = f"{_sentence(measure.title)} against {measure.x}: {spread}."
    section.figures.append((drawn, caption))


def _show_training(section: Section, gallery: Gallery) -> None:
    name = section.dataset.name
    _note_lacking(section, section.rows, HISTORY, "training curve")
    shown = [one for one in section.rows if one.curves]
    if not shown:
        return
    figure, outside = draw_curves(shown)
    labels = ", ".join(one.label for one in shown)
    drawn = gallery.add(
        f"{name}-curves",
        figure,
        f"Validation loss and accuracy against epochs on {name}, for {labels}.",
    )
    caption = (
        f"Validation loss and accuracy during training, one line per seed, up to {CURVES} seeds "
        "per method. Dots: the epoch whose weights were kept. All panels of a column have the "
        "same axes."
    )
    if outside:
        caption += f" Outside the panels: {', '.join(outside)}."
    section.figures.append((drawn, caption))


_SHOW: Mapping[str, Callable[[Section, Gallery, str], None]] = {
    "matrix": _show_matrix,
    "reliability": _show_reliability,
    "curves": _show_measured_curves,
}
"""How a measure is drawn, by its kind."""


def _note_lacking(section: Section, rows: Sequence[Evidence], key: str, what: str) -> None:
    """Note which methods have no such figure, and which of their trials lack it."""
    without = [one for one in rows if not (one.curves if key == HISTORY else one.drawn.get(key))]
    stored = [one for one in without if one.lacking.get(key)]
    for group, why in (
        (stored, f"{'its' if len(stored) == 1 else 'their'} trials were stored without it"),
        ([one for one in without if one not in stored], "no trial is done"),
    ):
        if group:
            labels = ", ".join(one.label for one in group)
            trials = [
                f"{one.label} {trial}" if len(group) > 1 else trial
                for one in group
                for trial in one.lacking.get(key, [])
            ]
            section.notes.append((f"No {what} of {labels}: {why}.", trials))
    for one in rows:
        if one not in without and one.lacking.get(key):
            lacking = one.lacking[key]
            note = f"{one.label}: {count_seeds(len(lacking))} without a {what}."
            section.notes.append((note, lacking))


def _sentence(title: str) -> str:
    """Return a title as the start of a sentence."""
    return title[:1].upper() + title[1:]
