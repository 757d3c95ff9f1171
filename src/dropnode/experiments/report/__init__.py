"""The report of an experiment: one page that a reader can check, and its figures as files.

::

    report.html      everything, in one file: no script, nothing from elsewhere
    figures/         the same figures as SVG and PNG
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

from dropnode.errors import ConfigError
from dropnode.experiments.report.drawing import STYLE, Gallery
from dropnode.experiments.report.evidence import read_cells
from dropnode.experiments.report.page import render
from dropnode.experiments.store import Store
from dropnode.files import atomic_write

__all__ = ["write_report"]


def write_report(folder: Path) -> Path:
    """Write ``report.html`` and ``figures/`` into the folder of an experiment.

    The same results and trials give the same bytes.

    Parameters
    ----------
    folder : Path
        Where ``dropnode reproduce`` left ``results.json`` and its trials.

    Returns
    -------
    Path
        The page.
    """
    source = folder / "results.json"
    if not source.is_file():
        raise ConfigError(
            f"{folder} holds no results.json, so there is nothing to report; "
            f"first run: dropnode reproduce EXPERIMENT --out {folder}"
        )
    results = json.loads(source.read_text(encoding="utf-8"))
    with Store(folder) as store:
        cells = read_cells(results["rows"], store)
    with matplotlib.rc_context(STYLE):
        page = render(results, cells, Gallery(folder / "figures"))
    target = folder / "report.html"
    with atomic_write(target, "w") as file:
        file.write(page)
    return target
