"""``dropnode convert``: a graph that does not fit into memory, as a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dropnode.cli import table_options as options
from dropnode.cli.common import AsJson


def convert(
    nodes: options.Nodes,
    edges: Annotated[
        Path, typer.Option(help="Table of edges; .csv, .tsv and .parquet may be of any length.")
    ],
    features: Annotated[
        Path, typer.Option(help="Features of the nodes, in the order of their table: .npy.")
    ],
    out: Annotated[Path, typer.Option(help="New folder for the graph.")],
    label: Annotated[
        str | None,
        typer.Option(help="Column with the class of some nodes, empty for those to predict."),
    ] = None,
    id_: options.Id = None,
    source: options.Source = None,
    target: options.Target = None,
    weight: options.Weight = None,
    half: Annotated[
        bool, typer.Option("--half", help="Keep features as float16, in half the space.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a large graph to a folder that is trained on without reading all of it."""
    from dataclasses import asdict

    from dropnode.tables.convert import STEPS
    from dropnode.tables.convert import convert as converted
    from dropnode.tables.edges import EdgeColumns
    from dropnode.training.progress import StepsBar

    with StepsBar("percent done", Console(stderr=True)) as bar:
        made = converted(
            nodes,
            edges,
            features,
            out,
            label=label,
            id=id_,
            columns=EdgeColumns(source, target, weight),
            half=half,
            watch=lambda done: bar.watch(int(100 * done / STEPS), 100),
        )
    if as_json:
        print(json.dumps(asdict(made)))
        return
    printed = Console(highlight=False)
    told = f"{made.nodes:,} nodes, {made.edges:,} edges, {made.features:,} features"
    printed.print(f"{told}, {made.labels:,} labels of {len(made.classes):,} classes")
    for note in made.notes:
        printed.print(note, markup=False, soft_wrap=True)
    train = f"dropnode train {out} --method grand-plus --out RUN"
    printed.print(f"\ntrain and predict all nodes: {train}", markup=False, soft_wrap=True)
