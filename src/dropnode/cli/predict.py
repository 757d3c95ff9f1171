"""``dropnode predict``: classify nodes that arrive after training."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from dropnode.cli.common import AsJson
from dropnode.cli.fit import notices


def predict(
    model: Annotated[Path, typer.Argument(help="Folder of a model, made by dropnode fit.")],
    nodes: Annotated[
        Path, typer.Option(help="Table of new nodes, with the columns of the training table.")
    ],
    out: Annotated[Path, typer.Option(help="File for the predictions, a CSV file.")],
    edges: Annotated[
        Path | None,
        typer.Option(help="Table of edges of the new nodes, to training nodes and to each other."),
    ] = None,
    id_: Annotated[
        str | None, typer.Option("--id", help="Column with the ids. Default: that of training.")
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="Vectors of the new nodes, if training had such.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Column of the table of edges: one end of an edge.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The same: the other end.")] = None,
    weight: Annotated[str | None, typer.Option(help="The same: the weight of an edge.")] = None,
    device: Annotated[str, typer.Option(help="Device to compute on: cpu, cuda or mps.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Classify new nodes with a model of dropnode fit, without training again."""
    from dropnode.table_model import TableModel

    console = Console(stderr=True)
    _check_out(out, [each for each in (nodes, edges, features) if each is not None])
    with notices(console):
        with console.status(Text(f"loading {model}")):
            loaded = TableModel.load(model, device)
        with console.status(Text(f"reading {nodes}")):
            found = loaded.predict_new(
                nodes,
                edges,
                id=id_,
                features=features,
                source=source,
                target=target,
                weight=weight,
            )
        found.write(out)
    if as_json:
        values = {"predicted": len(found.ids), "classes": list(found.classes)}
        print(json.dumps(values | {"notes": list(found.notes), "out": str(out)}))
        return
    printed = Console(highlight=False)
    for note in found.notes:
        printed.print(note, markup=False, soft_wrap=True)
    printed.print(f"{len(found.ids):,} nodes predicted, in {out}", markup=False, soft_wrap=True)


def _check_out(out: Path, inputs: list[Path]) -> None:
    """Refuse to write over a file that is no prediction of ours, and over the input."""
    from dropnode.errors import ConfigError
    from dropnode.table_model import HEADS

    if not os.path.lexists(out):
        return
    if any(each.exists() and out.exists() and each.samefile(out) for each in inputs):
        raise ConfigError(f"--out {out} is also read; choose another file")
    ours = ",".join(HEADS).encode() + b","
    if not out.is_file() or not out.open("rb").read(len(ours)) == ours:
        raise ConfigError(f"{out} exists and has no predictions of new nodes; choose another --out")
