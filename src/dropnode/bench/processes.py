"""A measurement in a process of its own, which has its own peak of memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from dropnode.errors import WorkError


def measured_apart(module: str, *arguments: object, what: str) -> dict[str, Any]:
    """Run a module that prints one JSON object, and return that.

    Parameters
    ----------
    module : str
        Run as ``python -m`` does.
    *arguments : object
        Its arguments.
    what : str
        What is measured, in an error.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        said = finished.stderr.strip().splitlines() or ["no message; out of memory?"]
        raise WorkError(
            f"the measurement of {what} ended with code {finished.returncode} ({said[-1]}); free "
            "memory, or measure other parts with --only"
        )
    row: dict[str, Any] = json.loads(finished.stdout)
    return row
