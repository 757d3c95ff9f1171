"""``dropnode inspect``: look at a graph before training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dropnode.cli import table_options as options
from dropnode.cli.common import AsJson, check_picture, write_picture
from dropnode.cli.fit import notices

if TYPE_CHECKING:
    from dropnode.graph import Graph
    from dropnode.inspection import Inspection


def inspect(
    dataset: Annotated[
        str | None, typer.Argument(help="A dataset, or a graph file; or give tables by options.")
    ] = None,
    nodes: Annotated[Path | None, typer.Option(help="Table of nodes, as for dropnode fit.")] = None,
    label: Annotated[str | None, typer.Option(help="Column with the class of some nodes.")] = None,
    edges: options.Edges = None,
    id_: options.Id = None,
    features: options.Features = None,
    text: options.Texts = None,
    categories: options.Categories = None,
    lists: options.Lists = None,
    drop: options.Drop = None,
    source: options.Source = None,
    target: options.Target = None,
    weight: options.Weight = None,
    neighbors: options.Neighbors = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="File for a picture: .png, .svg or .pdf; one that exists is replaced."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the division of labels.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Look at a graph before training: sizes, labels, homophily, methods compared, advice."""
    from dropnode.inspection import draw_inspection, inspect_graph

    console = Console(stderr=True)
    given = {
        "label": label,
        "id": id_,
        "features": features,
        "text": text,
        "categories": categories,
        "lists": lists,
        "drop": drop,
        "source": source,
        "target": target,
        "weight": weight,
        "n_neighbors": neighbors,
    }
    if picture is not None:
        check_picture(picture)
    with notices(console), console.status("looking"):
        graph, scaling = _graph(dataset, nodes, edges, given, seed)
        found = inspect_graph(graph, seed, scaling)
    if picture is not None:
        write_picture(draw_inspection(found), picture)
    if as_json:
        print(json.dumps({"graph": graph.name, **found.as_dict()}))
    else:
        _print(found, graph.name, Console(highlight=False))
        if picture is not None:
            print(f"\nlook at {picture}")


def _graph(
    dataset: str | None,
    nodes: Path | None,
    edges: Path | None,
    given: dict[str, Any],
    seed: int,
) -> tuple[Graph, str]:
    """Return the graph to look at, and how its features are scaled in training."""
    from dropnode.data.graph_file import is_path, read_graph
    from dropnode.errors import ConfigError
    from dropnode.experiments.references import Reference
    from dropnode.tables import read_tables

    tables = nodes is not None or edges is not None
    if dataset is not None:
        if tables or any(value is not None for value in given.values()):
            raise ConfigError(f"a dataset, {dataset}, and options of tables; give one of the two")
        reference = Reference.parse(dataset)
        if is_path(reference.source) and not reference.steps:
            # As it is: a file without a split may have too few labels to draw one.
            return read_graph(reference.source), "auto"
        return reference.load(0), "auto"
    if not tables or given["label"] is None:
        raise ConfigError(
            "nothing to look at; give a dataset such as cora, or --nodes FILE and --label COLUMN, "
            "and perhaps --edges FILE"
        )
    read = read_tables(nodes, edges, seed=seed, **given)
    return read.graph, read.encoders.scaling


def _print(found: Inspection, name: str, console: Console) -> None:
    values = found.as_dict()
    degree = values["degree"]
    lines = Table.grid(padding=(0, 2))
    lines.add_row("graph", Text(name))
    lines.add_row("nodes", f"{values['nodes']:,}")
    told = f"{values['edges']:,}; neighbours: mean {degree['mean']:.1f}, most {degree['most']:,}"
    lines.add_row("edges", told)
    told = f"{values['components']:,}, the largest with {100 * values['largest_component']:.0f} %"
    lines.add_row("components", f"{told}; {values['isolated_nodes']:,} nodes have no edge")
    told = f"{values['features']:,}, {100 * values['nonzero_features']:.1f} % not zero"
    lines.add_row("features", f"{told}; scaling {found.scaling}")
    counts = values["label_counts"]
    told = f"{values['labels']:,} of {len(counts)} classes"
    if counts:
        told += f", {min(counts.values()):,} to {max(counts.values()):,} per class"
    lines.add_row("labels", told)
    lines.add_row("homophily", _homophily(values))
    console.print(lines)
    if found.comparison is not None:
        console.print()
        console.print(_comparison(found))
    if found.advice:
        console.print("\nadvice")
        for each in found.advice:
            console.print(f"- {each}", markup=False, soft_wrap=True)


def _homophily(values: dict[str, Any]) -> str:
    if values["adjusted_homophily"] is None:
        return "unknown: no edges between labelled nodes of two classes"
    return (
        f"adjusted {values['adjusted_homophily']:.2f}, informativeness "
        f"{values['label_informativeness']:.2f}, of {values['edges_between_labels']:,} edges "
        "between labels"
    )


def _comparison(found: Inspection) -> Table:
    from dropnode.inspection.comparison import WHAT

    assert found.comparison is not None
    table = Table(box=None, header_style="bold")
    for head in ("method", "learns from"):
        table.add_column(head)
    table.add_column("held-out accuracy", justify="right")
    table.add_column("95 % interval", justify="right")
    for name, each in found.comparison.as_dict().items():
        low, high = (100 * bound for bound in each["interval"])
        share = f"{100 * each['accuracy']:.1f} %"
        table.add_row(name, WHAT[name], share, f"{low:.0f} to {high:.0f}")
    return table
