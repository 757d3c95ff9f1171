"""``dropnode methods``, ``presets`` and ``experiments``: list the available choices."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dropnode.cli.common import AsJson

if TYPE_CHECKING:
    from dropnode.experiments.spec import Spec


def methods(as_json: AsJson = False) -> None:
    """List the methods: GRAND, its variants and ablations, and the baselines."""
    from dropnode.methods.listing import list_methods

    listed = list_methods()
    if as_json:
        print(json.dumps({"methods": listed}))
        return
    _print({"name": method["name"], "title": method["title"]} for method in listed)


def presets(as_json: AsJson = False) -> None:
    """List the presets, which are named configurations, and the datasets they exist for.

    The variants of GRAND have its presets.
    """
    from dropnode.data import dataset_names
    from dropnode.methods.listing import list_presets

    listed = list_presets(dataset_names())
    if as_json:
        print(json.dumps({"presets": listed}))
        return
    # Most baselines have the same presets for the same datasets, so they share a line.
    alike: dict[tuple[str, str, str], list[str]] = {}
    for preset in listed:
        datasets = "any" if preset["datasets"] is None else ", ".join(preset["datasets"])
        alike.setdefault((preset["name"], datasets, preset["title"]), []).append(preset["method"])
    everything = {preset["method"] for preset in listed}
    _print(
        {
            "preset": name,
            "methods": "all" if everything == set(having) else ", ".join(having),
            "datasets": datasets,
            "title": title,
        }
        for (name, datasets, title), having in alike.items()
    )


def experiments(as_json: AsJson = False) -> None:
    """List the experiments that dropnode reproduce can run."""
    from dropnode.experiments.spec_file import load_spec, spec_names

    specs = [load_spec(name) for name in spec_names()]
    if as_json:
        listed = [
            {"name": s.name, "title": s.title, "datasets": s.datasets, "trials": _trials(s)}
            for s in specs
        ]
        print(json.dumps({"experiments": listed}))
        return
    _print(
        {
            "name": spec.name,
            "title": spec.title,
            "datasets": _sources(spec),
            "trials": f"{_trials(spec):,}",
        }
        for spec in specs
    )


def _sources(spec: Spec) -> str:
    """Return the datasets of a spec; several transforms of one are counted."""
    from dropnode.experiments.references import Reference

    counts = Counter(Reference.parse(name).source for name in spec.datasets)
    return ", ".join(name if n == 1 else f"{name} ({n} forms)" for name, n in counts.items())


def _trials(spec: Spec) -> int:
    """Return how many trials a spec has at most; stages of a search may share some."""
    from dropnode.experiments.references import Reference

    splits = {
        name: spec.splits if Reference.parse(name).draws_splits else 1 for name in spec.datasets
    }
    if spec.search is None:
        return sum(
            seeds * splits[name] * len(row.candidates())
            for row in spec.rows
            for name, seeds in row.seeds.items()
        )
    settings = sum(prod(map(len, stage.values())) for stage in spec.search.stages)
    return settings * spec.search.seeds * sum(splits.values())


def _print(rows: Iterable[dict[str, str]]) -> None:
    """Print one line per row; the keys of the rows are the columns."""
    rows = list(rows)
    table = Table(box=None, header_style="bold")
    for number, column in enumerate(rows[0]):
        table.add_column(
            column, no_wrap=number == 0, justify="right" if column == "trials" else "left"
        )
    for row in rows:
        table.add_row(*map(Text, row.values()))
    # In a file or a pipe, columns are not cut to the width of a terminal.
    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=400)).print(table)
