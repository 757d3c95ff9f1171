"""The page of a report: results, claims, what stands behind them, and how they came about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dropnode.experiments.report.drawing import Gallery, unique
from dropnode.experiments.report.evidence import CURVES, Cell
from dropnode.experiments.report.figures import (
    draw_confusion,
    draw_curves,
    draw_reliability,
    draw_seeds,
    draw_stage,
)

FAR = 1.0
"""Points of accuracy from the paper above which a difference is marked."""


@dataclass
class Section:
    """What the page says of one dataset."""

    dataset: dict[str, Any]
    anchor: str
    cells: list[Cell]
    comparisons: list[dict[str, Any]]
    figures: list[tuple[Markup, str]] = field(default_factory=list)
    notes: list[tuple[str, list[str]]] = field(default_factory=list)

    def label(self, method: str) -> str:
        """Return what a method is called in this dataset's rows."""
        return next((cell.label for cell in self.cells if cell.row["method"] == method), method)


def render(results: dict[str, Any], cells: Sequence[Cell], gallery: Gallery) -> str:
    """Return the page; figures go through the gallery."""
    anchors: set[str] = {"results", "claims", "search", "datasets", "environment"}
    sections = [
        Section(
            dataset,
            unique(dataset["name"], anchors),
            [cell for cell in cells if cell.row["dataset"] == dataset["name"]],
            [pair for pair in results["comparisons"] if pair["dataset"] == dataset["name"]],
        )
        for dataset in results["datasets"]
    ]
    for section in sections:
        if section.cells:
            _illustrate(section, gallery)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= _FILTERS
    template = environment.from_string(_read("page.html.j2"))
    return template.render(
        results=results,
        style=Markup(_read("style.css")),
        sections=[section for section in sections if section.cells],
        methods=_methods(cells),
        cells=cells,
        incomplete=[cell for cell in cells if not cell.complete],
        claims=_grouped(results["claims"]),
        verdicts=Counter(claim["verdict"] for claim in results["claims"]),
        label={section.dataset["name"]: section.label for section in sections},
        stages=[(stage, _illustrate_stage(stage, gallery)) for stage in results["search"] or []],
        compared=any(cell.row["paper"] is not None for cell in cells),
        far=FAR,
    )


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _methods(cells: Sequence[Cell]) -> dict[tuple[str, str], dict[str, list[Cell]]]:
    """Return the cells by method and dataset, as the table of a paper has them."""
    table: dict[tuple[str, str], dict[str, list[Cell]]] = {}
    for cell in cells:
        line = table.setdefault((cell.row["method"], cell.label), {})
        line.setdefault(cell.row["dataset"], []).append(cell)
    return table


def _grouped(claims: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return what each claim came to on every dataset."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for claim in claims:
        groups.setdefault(claim["claim"], []).append(claim)
    return groups


def _illustrate(section: Section, gallery: Gallery) -> None:
    """Draw what there is to draw of a dataset, and note what is not there."""
    _show_seeds(section, gallery)
    _show_confusion(section, gallery)
    _show_reliability(section, gallery)
    _show_curves(section, gallery)


def _show_seeds(section: Section, gallery: Gallery) -> None:
    name, cells = section.dataset["name"], section.cells
    if not any(cell.accuracies for cell in cells):
        section.notes.append(("No box plot: no trial has a test accuracy.", []))
        return
    medians = "; ".join(
        f"{cell.label} {np.median(cell.accuracies):.2f} %" for cell in cells if cell.accuracies
    )
    drawn = gallery.add(
        f"{name}-seeds",
        draw_seeds(cells),
        f"Box plot of the test accuracies on {name}. Medians: {medians}.",
    )
    caption = (
        "Test accuracy of every seed, over quartiles and median (box; whiskers end at the last "
        "seed within 1.5 times its width)."
    )
    if any(cell.row["paper"] is not None for cell in cells):
        caption += " Diamonds: the paper’s mean and standard deviation."
    section.figures.append((drawn, caption))


def _show_confusion(section: Section, gallery: Gallery) -> None:
    name, cell = section.dataset["name"], section.cells[0]
    _note_lacking(section, cell, "confusion", "confusion matrix", len(cell.confusions))
    if not cell.confusions:
        return
    counts = np.sum(cell.confusions, axis=0)
    sizes = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, sizes, out=np.full(counts.shape, np.nan), where=sizes > 0)
    found = "; ".join(
        f"{one} {100 * share:.1f} %"
        for one, share in zip(section.dataset["class_names"], np.diag(shares), strict=True)
        if np.isfinite(share)
    )
    drawn = gallery.add(
        f"{name}-confusion",
        draw_confusion(shares, section.dataset["class_names"]),
        f"Confusion matrix of {cell.label} on {name}. Correct of each class: {found}.",
    )
    section.figures.append(
        (
            drawn,
            f"Where test nodes of each true class (row) were put by {cell.label}, in percent of "
            f"the class; mean of {_seeds(len(cell.confusions))}.",
        )
    )


def _show_reliability(section: Section, gallery: Gallery) -> None:
    name, cell = section.dataset["name"], section.cells[0]
    _note_lacking(section, cell, "reliability", "reliability diagram", len(cell.reliabilities))
    if not cell.reliabilities:
        return
    errors = [100 * each.error for each in cell.reliabilities]
    pooled = sum(cell.reliabilities[1:], cell.reliabilities[0])
    spread = f" ± {np.std(errors, ddof=1):.2f}" if len(errors) > 1 else ""
    error = f"{np.mean(errors):.2f}{spread} %"
    drawn = gallery.add(
        f"{name}-reliability",
        draw_reliability(pooled),
        f"Reliability diagram of {cell.label} on {name}. Expected calibration error {error}.",
    )
    caption = (
        f"Confidence and accuracy of {cell.label} on test nodes, in {len(pooled.count)} bins. "
        f"Expected calibration error (ECE) {error}"
    )
    if len(errors) > 1:
        caption += (
            f" (mean ± standard deviation over {len(errors)} seeds; of the bins drawn here, which "
            f"pool them, {100 * pooled.error:.2f} %)"
        )
    section.figures.append((drawn, caption + "."))


def _show_curves(section: Section, gallery: Gallery) -> None:
    name = section.dataset["name"]
    for cell in section.cells:
        _note_lacking(section, cell, "history", "training curve", len(cell.curves))
    shown = [cell for cell in section.cells if cell.curves]
    if not shown:
        return
    figure, cut = draw_curves(shown)
    labels = ", ".join(cell.label for cell in shown)
    drawn = gallery.add(
        f"{name}-curves",
        figure,
        f"Validation loss and accuracy against epochs on {name}, for {labels}.",
    )
    caption = (
        f"Validation along training, up to {CURVES} seeds of each method, a line each. Dots: the "
        "epoch whose weights were kept. All panels of a column have the same axes."
    )
    if cut:
        caption += f" Beyond the panels: {', '.join(cut)}."
    section.figures.append((drawn, caption))


def _illustrate_stage(stage: dict[str, Any], gallery: Gallery) -> Markup | None:
    """Draw a stage of a search in which one key was varied."""
    if len(stage["varied"]) != 1:
        return None
    chosen = [row["changes"] for row in stage["rows"] if row["chosen"]]
    told = "; ".join(_settings(changes) for changes in chosen) or "nothing"
    return gallery.add(
        f"{stage['dataset']}-search-{stage['stage']}",
        draw_stage(stage),
        f"Validation and test accuracy on {stage['dataset']} against {stage['varied'][0]}. "
        f"Chosen: {told}.",
    )


def _note_lacking(section: Section, cell: Cell, kind: str, what: str, there: int) -> None:
    """Say which trials have nothing to draw, and whether a figure is left out for it."""
    lacking = cell.lacking[kind]
    if not there:
        why = "its trials came without" if lacking else "none of its trials is done"
        section.notes.append((f"No {what} of {cell.label}: {why}.", lacking))
    elif lacking:
        told = f"{cell.label}: {_seeds(len(lacking))} without a {what}."
        section.notes.append((told, lacking))


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"


def _fixed(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-", "−")


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}".replace("-", "−")


def _is_far(difference: float | None) -> bool:
    # Of what is shown, so that the mark never contradicts the number.
    return difference is not None and abs(round(difference, 2)) > FAR


def _chance(value: float | None) -> str:
    """Write a p-value.

    Examples
    --------
    >>> _chance(0.0312), _chance(1.23e-9), _chance(0.0)
    ('0.031', '1.2 × 10⁻⁹', '< 10⁻³⁰⁰')
    """
    if value is None:
        return "–"
    if value == 0:
        return "< 10⁻³⁰⁰"
    if value >= 0.001:
        return f"{value:.3f}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits} × 10{str(int(power)).translate(_SUPERSCRIPTS)}"


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _moment(value: str) -> str:
    return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _settings(config: dict[str, Any]) -> str:
    return ", ".join(f"{key}\u00a0=\u00a0{value}" for key, value in config.items())


_FILTERS: dict[str, Callable[..., Any]] = {
    "fixed": _fixed,
    "signed": _signed,
    "is_far": _is_far,
    "chance": _chance,
    "moment": _moment,
    "settings": _settings,
    "seeds": _seeds,
}
