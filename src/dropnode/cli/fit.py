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

from dropnode.cli import table_options as options
from dropnode.cli.common import AsJson

if TYPE_CHECKING:
    from dropnode.table_model import TableModel
    from dropnode.tables import Tables

LARGE = 50_000
"""Above so many nodes, GRAND+ is trained unless an option asks for something else: at 100,000 nodes
GRAND takes several times as long."""

MOST_COLUMNS = 30
"""The most lines about columns that are printed."""


def fit(
    nodes: options.Nodes,
    label: options.Label,
    out: Annotated[Path, typer.Option(help="New folder for the model and its predictions.")],
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
    method: Annotated[
        str | None,
        typer.Option(
            help="The method; see: dropnode methods. Default: grand; for large graphs, grand-plus."
        ),
    ] = None,
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
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Let the labels of rare classes weigh more.")
    ] = False,
    assess: Annotated[
        bool,
        typer.Option(
            "--assess/--no-assess",
            help="Train further models without a part of the labels, which tell how far to believe "
            "the predictions.",
        ),
    ] = True,
    device: Annotated[str, typer.Option(help="Device to compute on: cpu, cuda or mps.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Train on a table of nodes and a table of edges, and predict the labels that are empty."""
    from dropnode.folders import check_place
    from dropnode.table_model import TableModel
    from dropnode.tables import read_tables
    from dropnode.training.progress import StepsBar

    console = Console(stderr=True)
    check_place(out)
    classifier = _classifier(method or "grand", preset, set_ or [], seed, device, balanced)
    with notices(console):
        with console.status(Text(f"reading {nodes}")):
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
        if tables.graph.num_nodes > LARGE and method is None:
            if preset or set_:
                told = (
                    f"{tables.graph.num_nodes:,} nodes are trained all at once, by grand, because "
                )
                told += "--preset or --set is given; --method grand-plus is made for so many"
                _note(told, console)
            else:
                classifier.set_params(method="grand-plus")
        if not as_json:
            _print_tables(tables, Console(highlight=False))
        with StepsBar("models without a part of the labels", console) as bar:
            model = TableModel.fit(tables, classifier, assess=assess, watch=bar.watch)
        model.save(out)
    if as_json:
        print(json.dumps(_values(tables, model, out)))
    else:
        _print_model(model, out, Console(highlight=False))


def _classifier(
    method: str, preset: str | None, changes: list[str], seed: int, device: str, balanced: bool
) -> Any:
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
        class_weight="balanced" if balanced else None,
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
            _note(str(each.message), console)


def _note(text: str, console: Console) -> None:
    told = f"note: {text}"
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
    lines.add_row("method", classifier.method)
    lines.add_row("labels", f"{known:,} given, {len(labels) - known:,} predicted")
    scaled = classifier.method_.scaling.kind
    lines.add_row(
        "feature scaling",
        f"{scaled}, chosen by what the features are"
        if classifier.config_.feature_scaling == "auto"
        else scaled,
    )
    if metrics is None:
        lines.add_row("held-out accuracy", "not measured")
    else:
        low, high = (100 * bound for bound in metrics["accuracy_interval"])
        told = f"{100 * metrics['accuracy']:.1f} % of {metrics['labels']:,} labels"
        lines.add_row("held-out accuracy", f"{told} (95 % interval {low:.0f} to {high:.0f})")
        lines.add_row("macro F1", f"{100 * metrics['macro_f1']:.1f} %")
        if "sets" in metrics:
            sets = metrics["sets"]
            told = f"{sets['mean_size']:.1f} classes on average hold the true one in "
            lines.add_row("sets", f"{told}{100 * sets['coverage']:.0f} % of held-out labels")
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
        "feature_scaling": model.classifier.method_.scaling.kind,
        "held_out": metrics,
        "method": model.classifier.method,
        "preset": model.classifier.preset_,
        "seed": model.classifier.seed_,
        "epochs": model.classifier.n_iter_,
        "columns": [asdict(report) for report in tables.columns],
        "notes": list(tables.notes),
        "out": str(out),
    }
