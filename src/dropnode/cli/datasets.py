"""``dropnode datasets``: list, describe and fetch datasets."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dropnode.cli.common import AsJson

datasets_app = typer.Typer(no_args_is_help=True, help="List, describe and fetch datasets.")


@datasets_app.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the datasets, their sizes, and where each is available."""
    from dropnode.data import dataset_names, describe

    described = [describe(name) for name in dataset_names()]
    if as_json:
        print(json.dumps({"datasets": described}))
        return
    table = Table(box=None, header_style="bold")
    table.add_column("name")
    for column in ("nodes", "edges", "features", "classes"):
        table.add_column(column, justify="right")
    table.add_column("available")
    for entry in described:
        sizes = [
            "any" if entry[size] is None else f"{entry[size]:,}"
            for size in ("nodes", "edges", "features", "classes")
        ]
        table.add_row(entry["name"], *sizes, entry["available"])
    Console().print(table)


@datasets_app.command("info")
def dataset_info(
    name: Annotated[str, typer.Argument(help="The dataset's name.")], as_json: AsJson = False
) -> None:
    """Describe a dataset: its contents, its source and its licence."""
    from dropnode.data import describe

    _print_description(describe(name), as_json)


@datasets_app.command("get")
def get_dataset(
    name: Annotated[str, typer.Argument(help="The dataset's name.")], as_json: AsJson = False
) -> None:
    """Fetch a dataset into the cache and verify it."""
    from dropnode.data import fetch

    _print_description(fetch(name), as_json)


def _print_description(entry: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(entry))
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in entry.items():
        if value in (None, "", {}, []):
            continue
        if isinstance(value, dict):
            shown = "\n".join(f"{name}: {_shown(part)}" for name, part in value.items())
        else:
            shown = _shown(value)
        table.add_row(key.replace("_", " "), Text(shown))
    Console(highlight=False).print(table)


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
