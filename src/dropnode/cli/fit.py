"""``dropnode fit``: train on tables of nodes and edges."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dropnode.cli.common import AsJson

if TYPE_CHECKING:
    from dropnode.table_model import TableModel
    from dropnode.tables import Tables

MOST_COLUMNS = 30
"""The most lines about columns that are printed."""


def fit(
    nodes: Annotated[
        Path,
        typer.Option(help="Table of nodes: .csv, .tsv, .jsonl or .parquet; also .gz of the first."),
    ],
    label: Annotated[
        str, typer.Option(help="Column with the class of some nodes, empty for those to predict.")
    ],
    out: Annotated[Path, typer.Option(help="New folder for the model and its predictions.")],
    edges: Annotated[
        Path | None,
        typer.Option(help="Table of edges. Without it, each node is joined to its nearest ones."),
    ] = None,
    id_: Annotated[
        str | None,
        typer.Option("--id", help="Column with the ids. Default: id, node, node_id or the first."),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(help="Vectors of the nodes, in the order of the table: .npy or .npz."),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of text; may be repeated."),
    ] = None,
    categories: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of categories; may be repeated."),
    ] = None,
    lists: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of lists, such as a|b|c; may be repeated."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column to leave out; may be repeated."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Column of the table of edges: one end of an edge.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The same: the other end.")] = None,
    weight: Annotated[str | None, typer.Option(help="The same: the weight of an edge.")] = None,
    neighbors: Annotated[
        int, typer.Option(min=1, help="How many nodes to join a node to, without edges.")
    ] = 10,
    method: Annotated[str, typer.Option(help="The method; see: dropnode methods.")] = "grand",
    preset: Annotated[
        str | None, typer.Option(help="A named configuration; see: dropnode presets.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change one key of the preset, such as order=4; may be repeated, the last value "
            "of a key counts.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of weights, masks and all other randomness.")
    ] = 0,
    device: Annotated[str, typer.Option(help="Device to compute on: cpu, cuda or mps.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Train on a table of nodes and a table of edges, and predict the labels that are empty."""
    from dropnode.table_model import TableModel, check_place
    from dropnode.tables import read_tables

    console = Console(stderr=True)
    check_place(out)
    classifier = _classifier(method, preset, set_ or [], seed, device)
    with notices(console):
        with console.status(f"reading {nodes}"):
            tables = read_tables(
                nodes,
                edges,
                label=label,
                id=id_,
                features=features,
                text=text,
                categories=categories,
                lists=lists,
                drop=drop,
                source=source,
                target=target,
                weight=weight,
                n_neighbors=neighbors,
                seed=seed,
            )
        if not as_json:
            _print_tables(tables, Console(highlight=False))
        model = TableModel.fit(tables, classifier)
        model.save(out)
    if as_json:
        print(json.dumps(_values(tables, model, out)))
    else:
        _print_model(model, out, Console(highlight=False))


def _classifier(method: str, preset: str | None, changes: list[str], seed: int, device: str) -> Any:
    """Return the classifier that was asked for; what cannot be meant is an error now."""
    from dropnode.estimator import GrandClassifier
    from dropnode.methods.base import usable_device
    from dropnode.methods.grand.config import GrandConfig
    from dropnode.methods.table import configuration
    from dropnode.settings import read_changes

    given = read_changes(changes)
    # Before a large file is read.
    configuration(method, None, preset)[1].replace(**given)
    usable_device(device)
    own = {key: value for key, value in given.items() if key in GrandConfig.names()}
    others = {key: value for key, value in given.items() if key not in own}
    return GrandClassifier(
        preset,
        method=method,
        random_state=seed,
        device=device,
        verbose=True,
        options=others or None,
        **own,
    )


@contextmanager
def notices(console: Console) -> Iterator[None]:
    """Print warnings as lines; repairs of a graph are among the notes, and are not told twice."""
    from dropnode.errors import GraphWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for each in caught:
        if not issubclass(each.category, GraphWarning):
            told = f"note: {each.message}"
            console.print(told, style="yellow", highlight=False, markup=False, soft_wrap=True)


def _print_tables(tables: Tables, console: Console) -> None:
    table = Table(box=None, header_style="bold")
    for head in ("column", "became"):
        table.add_column(head)
    table.add_column("features", justify="right")
    lines = _alike(tables)
    for names, became, features in lines[:MOST_COLUMNS]:
        table.add_row(Text(names), Text(became), f"{features:,}" if features else "")
    wide = console if console.is_terminal else Console(highlight=False, width=200)
    wide.print(table)
    if len(lines) > MOST_COLUMNS:
        console.print(f"and {len(lines) - MOST_COLUMNS:,} more lines")
    graph = tables.graph
    console.print(
        f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.num_features:,} features"
    )
    for note in tables.notes:
        console.print(note, markup=False, soft_wrap=True)


def _alike(tables: Tables) -> list[tuple[str, str, int]]:
    """Return a line per column; many columns that became the same share one."""
    groups: dict[str, list[Any]] = {}
    for report in tables.columns:
        groups.setdefault(report.became, []).append(report)
    lines = []
    for became, reports in groups.items():
        if len(reports) > 3:
            names = f"{reports[0].column}, ..., {reports[-1].column} ({len(reports):,} columns)"
            lines.append((names, became, sum(report.features for report in reports)))
        else:
            lines += [(report.column, became, report.features) for report in reports]
    return lines


def _print_model(model: TableModel, out: Path, console: Console) -> None:
    from dropnode.table_model import PREDICTIONS

    classifier, metrics = model.classifier, model.metrics()
    labels = classifier.graph_.labels
    known = int((labels >= 0).sum())
    lines = Table.grid(padding=(0, 2))
    lines.add_row("classes", Text(_listed(classifier.graph_.class_names)))
    lines.add_row("labels", f"{known:,} given, {len(labels) - known:,} predicted")
    if metrics is None:
        lines.add_row("held-out accuracy", "not measured: too few labels to hold any out")
    else:
        held = metrics["held_out"]
        told = f"{100 * held['accuracy']:.1f} % of {held['nodes']:,} labels"
        lines.add_row("held-out accuracy", f"{told}, which chose {classifier.n_iter_:,} epochs")
    lines.add_row("saved in", Text(str(out)))
    console.print(lines)
    console.print(f"\nlook at {out / PREDICTIONS}", markup=False, soft_wrap=True)
    told = f"dropnode predict {out} --nodes NEW.csv --edges NEW_EDGES.csv --out predicted.csv"
    console.print(f"nodes that arrive later: {told}", markup=False, soft_wrap=True)


def _listed(names: tuple[str, ...]) -> str:
    shown = [name if len(name) <= 30 else f"{name[:29]}…" for name in names[:10]]
    more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
    return f"{len(names):,}: {', '.join(shown)}{more}"


def _values(tables: Tables, model: TableModel, out: Path) -> dict[str, Any]:
    from dataclasses import asdict

    graph = model.classifier.graph_
    known = int((graph.labels >= 0).sum())
    metrics = model.metrics()
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": list(graph.class_names),
        "labels": known,
        "predicted": graph.num_nodes - known,
        "held_out": None if metrics is None else metrics["held_out"],
        "method": model.classifier.method,
        "preset": model.classifier.preset_,
        "seed": model.classifier.seed_,
        "epochs": model.classifier.n_iter_,
        "columns": [asdict(report) for report in tables.columns],
        "notes": list(tables.notes),
        "out": str(out),
    }
