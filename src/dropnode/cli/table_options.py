"""The options of commands that read tables of nodes and edges."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Nodes = Annotated[
    Path,
    typer.Option(help="Table of nodes: .csv, .tsv, .jsonl or .parquet; also .gz of the first."),
]
Label = Annotated[
    str, typer.Option(help="Column with the class of some nodes, empty for those to predict.")
]
Edges = Annotated[
    Path | None,
    typer.Option(help="Table of edges. Without it, each node is joined to its nearest ones."),
]
Id = Annotated[
    str | None,
    typer.Option("--id", help="Column with the ids. Default: id, node, node_id or the first."),
]
Features = Annotated[
    Path | None, typer.Option(help="Vectors of the nodes, in the order of the table: .npy or .npz.")
]
Texts = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="A column of text; may be repeated.")
]
Categories = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="A column of categories; may be repeated."),
]
Lists = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="A column of lists, such as a|b|c; may be repeated."),
]
Drop = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="A column to leave out; may be repeated.")
]
Source = Annotated[
    str | None, typer.Option(help="Column of the table of edges: one end of an edge.")
]
Target = Annotated[str | None, typer.Option(help="The same: the other end.")]
Weight = Annotated[str | None, typer.Option(help="The same: the weight of an edge.")]
Neighbors = Annotated[
    int | None,
    typer.Option(min=1, help="How many nodes to join a node to, without edges. Default: 10."),
]
