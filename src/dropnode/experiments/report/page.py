"""The page of a report: results, claims, figures per dataset, and the settings behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import resources

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dropnode.experiments.report.evidence import Evidence
from dropnode.experiments.report.gallery import Gallery, unique
from dropnode.experiments.report.illustrations import (
    Section,
    illustrate,
    illustrate_plot,
    illustrate_stage,
)
from dropnode.experiments.report.series import plots_of
from dropnode.experiments.report.text import FAR, FILTERS
from dropnode.experiments.results import ClaimResult, Results
from dropnode.experiments.writers import absence


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
            illustrate(section, gallery)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= FILTERS
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
        stages=[(stage, illustrate_stage(stage, gallery)) for stage in results.stages],
        plots=[illustrate_plot(*found, gallery) for found in plots_of(results)],
        compared=any(row.paper is not None for row in results.rows),
        stated=any(claim.paper is not None for claim in results.claims),
        measures=results.measure_names(),
        choosing=any(row.chosen for row in results.rows),
        far=FAR,
        absence=absence,
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
