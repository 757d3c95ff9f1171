"""``dropnode report``: summarise the trials in an experiment's folder again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dropnode.cli.common import AsJson, tell


def report(
    folder: Annotated[Path, typer.Argument(help="An experiment's folder.")], as_json: AsJson = False
) -> None:
    """Summarise the trials in an experiment's folder and write its report; nothing is run."""
    from dropnode.experiments.experiment import report as write

    page = write(folder)
    tell(as_json, {"report": str(page)}, f"open {page}")
