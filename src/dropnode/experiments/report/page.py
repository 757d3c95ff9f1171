"""The page of a report: results, claims, figures per dataset, and the settings behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dropnode.experiments import measures
from dropnode.experiments.report.evidence import CURVES, HISTORY, Evidence
from dropnode.experiments.report.figures import (
    draw_confusion,
    draw_curves,
    draw_measured_curves,
    draw_reliability,
    draw_seeds,
    draw_stage,
)
from dropnode.experiments.report.gallery import Gallery, unique
from dropnode.experiments.report.series import Line, draw_plot, plots_of, summary_of
from dropnode.experiments.results import ClaimResult, Comparison, DatasetFacts, Results, Stage
from dropnode.experiments.spec import Plot
from dropnode.experiments.writers import (
    claim_datasets,
    interval,
    mean_and_std,
    measure_title,
    measured,
)

FAR = 1.0
"""A difference from the paper's figure of more percentage points than this is marked."""

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


def render(results: Results, evidence: Sequence[Evidence], gallery: Gallery) -> str:
    """Return the page; its figures are added to the gallery."""
    anchors: set[str] = {"results", "plots", "claims", "settings", "datasets", "environment"}
    sections = [
        Section(
            dataset,
            unique(dataset.name, anchors),
            [one for one in evidence if one.row.dataset == dataset.name],
            [pair for pair in results.comparisons if pair.dataset == dataset.name],
        )
        for dataset in results.datasets
    ]
    for section in sections:
        if section.rows:
            _illustrate(section, gallery)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= _FILTERS
    template = environment.from_string(_read("page.html.j2"))
    return template.render(
        results=results,
        style=Markup(_read("style.css")),
        sections=[section for section in sections if section.rows],
        methods=_methods(evidence),
        evidence=evidence,
        incomplete=[one for one in evidence if not one.row.complete],
        claims=_grouped(results.claims),
        verdicts=Counter(claim.verdict for claim in results.claims),
        label={section.dataset.name: section.label for section in sections},
        stages=[(stage, _illustrate_stage(stage, gallery)) for stage in results.stages],
        plots=[_illustrate_plot(*found, gallery) for found in plots_of(results)],
        compared=any(row.paper is not None for row in results.rows),
        measures=results.measure_names(),
        choosing=any(row.chosen for row in results.rows),
        far=FAR,
        interval=interval,
    )


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _methods(
    evidence: Sequence[Evidence],
) -> dict[tuple[str, str], dict[str, list[Evidence]]]:
    """Return the evidence by method and dataset, as in the table of a paper."""
    table: dict[tuple[str, str], dict[str, list[Evidence]]] = {}
    for one in evidence:
        line = table.setdefault((one.row.method, one.label), {})
        line.setdefault(one.row.dataset, []).append(one)
    return table


def _grouped(claims: Sequence[ClaimResult]) -> list[list[ClaimResult]]:
    """Return the results of each claim about two rows, on every dataset."""
    groups: dict[tuple[str, ...], list[ClaimResult]] = {}
    for one in claims:
        groups.setdefault((one.claim, one.better, one.than, one.measure), []).append(one)
    return list(groups.values())


def _illustrate(section: Section, gallery: Gallery) -> None:
    """Draw the figures of a dataset, and note which are missing."""
    _show_seeds(section, gallery)
    for name, measure in measures.MEASURES.items():
        show = _SHOW.get(measure.kind)
        if show and (name in EXPECTED or any(name in one.drawn for one in section.rows)):
            show(section, gallery, name)
    _show_training(section, gallery)


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
    names = dataset.class_names
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
        f"class, in percent of the true class; mean of {_seeds(len(matrices))}."
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
    caption = (
        f"{_sentence(measure.title)} against {measure.x}: mean ± standard deviation over seeds."
    )
    section.figures.append((drawn, caption))


_SHOW: Mapping[str, Callable[[Section, Gallery, str], None]] = {
    "matrix": _show_matrix,
    "reliability": _show_reliability,
    "curves": _show_measured_curves,
}
"""How a measure is drawn, by its kind."""


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


def _illustrate_plot(
    plot: Plot, dataset: str, lines: list[Line], gallery: Gallery
) -> tuple[str, Markup, str]:
    """Return the title, the drawing and the caption of a plot."""
    labels = ", ".join(line.label for line in lines)
    title = f"{plot.title}, {dataset}"
    seeds = {
        summary_of(row, measure).n
        for line in lines
        for row in line.points.values()
        for measure in plot.measures
    }
    drawn = gallery.add(
        f"{dataset}-{plot.title}",
        draw_plot(plot, lines),
        f"{' and '.join(map(measure_title, plot.measures))} against {plot.x} on {dataset}, for "
        f"{labels}.",
    )
    few = f"{min(seeds)} to {max(seeds)} trials" if len(seeds) > 1 else f"{max(seeds)} trials"
    return title, drawn, f"Mean ± standard deviation over {few} per point."


def _illustrate_stage(stage: Stage, gallery: Gallery) -> Markup | None:
    """Draw a stage that varied a single key."""
    if len(stage.varied) != 1:
        return None
    chosen = [_settings(row.changes) for row in stage.rows if row.chosen]
    return gallery.add(
        f"{stage.dataset}-stage-{stage.stage}",
        draw_stage(stage),
        f"Validation and test accuracy on {stage.dataset} against {stage.varied[0]}. "
        f"Chosen: {'; '.join(chosen) or 'none'}.",
    )


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
            note = f"{one.label}: {_seeds(len(lacking))} without a {what}."
            section.notes.append((note, lacking))


def _sentence(title: str) -> str:
    """Return a title as the start of a sentence."""
    return title[:1].upper() + title[1:]


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"


def _fixed(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-", "−")


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}".replace("-", "−")


def _is_far(difference: float | None) -> bool:
    # Rounded as it is shown, so that the mark never contradicts the number.
    return difference is not None and abs(round(difference, 2)) > FAR


def _chance(value: float | None) -> str:
    """Return a p-value as text.

    Examples
    --------
    >>> _chance(0.0312), _chance(1.23e-9), _chance(0.0)
    ('0.0312', '1.2 × 10⁻⁹', '< 10⁻³⁰⁰')
    """
    if value is None:
        return "–"
    if value == 0:
        return "< 10⁻³⁰⁰"
    if value >= 0.001:
        # Three digits, so that 0.0496 does not look like the level that it is below.
        return f"{value:.3g}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits} × 10{str(int(power)).translate(_SUPERSCRIPTS)}"


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _moment(value: str) -> str:
    return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _settings(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}\u00a0=\u00a0{value}" for key, value in config.items())


_FILTERS: dict[str, Callable[..., Any]] = {
    "fixed": _fixed,
    "signed": _signed,
    "is_far": _is_far,
    "chance": _chance,
    "moment": _moment,
    "settings": _settings,
    "seeds": _seeds,
    "measured": measured,
    "measure_title": measure_title,
    "claim_datasets": claim_datasets,
}
