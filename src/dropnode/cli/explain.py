"""``dropnode explain``: why a model gives a class to a node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dropnode.cli.common import AsJson, check_picture, write_picture


def explain(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
    node: Annotated[str, typer.Argument(help="The id of a node of the training graph.")],
    label: Annotated[
        str | None,
        typer.Option("--class", help="The class to explain. Default: the predicted one."),
    ] = None,
    against: Annotated[str | None, typer.Option(help="Explain why not this class instead.")] = None,
    most: Annotated[int, typer.Option(min=1, help="How many nodes and columns to list.")] = 10,
    picture: Annotated[
        Path | None,
        typer.Option(help="File for a picture: .png, .svg or .pdf; one that exists is replaced."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the neighbours and the columns that pushed a prediction."""
    from dropnode.analysis.explain import explain as explained
    from dropnode.analysis.picture import draw_explanation
    from dropnode.estimator import GrandClassifier
    from dropnode.saving import feature_names

    if picture is not None:
        check_picture(picture)
    loaded = GrandClassifier.load(model)
    graph, names = loaded.graph_, feature_names(model)
    position = _position(graph, node)
    classes = [None if each is None else _class(graph, each) for each in (label, against)]
    found = explained(loaded.method_, position, label=classes[0], against=classes[1])
    nodes = found.strongest_nodes(most, graph.ids.tolist())
    columns = found.strongest_columns(most, names)
    if picture is not None:
        write_picture(draw_explanation(found, graph, names=names), picture)
    values: dict[str, Any] = {
        "node": str(graph.ids[position]),
        "class": graph.class_names[found.label],
        "against": None if found.against is None else graph.class_names[found.against],
        "score": found.score,
        "bias": found.bias,
        "nodes": [{"id": str(each.name), "amount": each.amount} for each in nodes],
        "columns": [{"name": str(each.name), "amount": each.amount} for each in columns],
    }
    if as_json:
        print(json.dumps(values))
    else:
        _print(values, Console(highlight=False))
        if picture is not None:
            print(f"\nlook at {picture}")


def _position(graph: Any, node: str) -> int:
    from dropnode.errors import ConfigError

    for position, known in enumerate(graph.ids.tolist()):
        if str(known) == node:
            return position
    raise ConfigError(f"the model knows no node {node!r}; give an id of its training graph")


def _class(graph: Any, name: str) -> int:
    from dropnode.errors import ConfigError
    from dropnode.settings import suggestion

    if name not in graph.class_names:
        raise ConfigError(f"unknown class {name!r}{suggestion(name, graph.class_names)}")
    return int(graph.class_names.index(name))


def _print(values: dict[str, Any], console: Console) -> None:
    what = f"class {values['class']}"
    if values["against"] is not None:
        what += f" rather than {values['against']}"
    console.print(
        f"node {values['node']}: {what}, score {values['score']:.3f}; a positive number speaks for "
        "it",
        markup=False,
        soft_wrap=True,
    )
    for title, rows, key in (
        ("node", values["nodes"], "id"),
        ("column", values["columns"], "name"),
    ):
        table = Table(box=None, header_style="bold")
        table.add_column(title)
        table.add_column("adds", justify="right")
        for row in rows:
            table.add_row(Text(row[key]), f"{row['amount']:+.4f}")
        console.print()
        console.print(table)
    console.print(f"\nand {values['bias']:+.4f} whatever the features are", markup=False)
