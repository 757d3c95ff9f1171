"""Common parts of the commands."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

USAGE_ERROR = 2
WORK_ERROR = 1

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")
]


def tell(as_json: bool, values: dict[str, Any], line: str) -> None:
    """Print values as JSON if requested, otherwise a line."""
    print(json.dumps(values) if as_json else line)
