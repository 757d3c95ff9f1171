"""Common parts of the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USAGE_ERROR = 2
WORK_ERROR = 1

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")
]


def tell(as_json: bool, values: dict[str, Any], line: str) -> None:
    """Print values as JSON if requested, otherwise a line."""
    print(json.dumps(values) if as_json else line)


def check_picture(path: Path) -> None:
    """Raise an error unless a picture can be written to a path, before any work is done."""
    from dropnode.errors import ConfigError
    from dropnode.folders import check_makeable

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"--picture {path}; expected a name that ends in .png, .svg or .pdf")
    if path.is_dir():
        raise ConfigError(f"--picture {path} is a folder; give the name of a file in it")
    check_makeable(path.parent)


def write_picture(figure: Figure, path: Path) -> None:
    """Write a picture, whole or not at all."""
    from dropnode.files import atomic_write

    with atomic_write(path, "wb") as file:
        figure.savefig(file, dpi=120, format=path.suffix[1:].lower())
