"""What commands have in common."""

from __future__ import annotations

from typing import Annotated

import typer

USAGE_ERROR = 2
WORK_ERROR = 1

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")
]
