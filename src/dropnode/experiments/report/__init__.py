"""The report of an experiment: a page with tables and figures, and the figures as files.

::

    report.html      one self-contained file without scripts
    figures/         the same figures as SVG and PNG
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

from dropnode.errors import ConfigError
from dropnode.experiments.report.evidence import read_evidence
from dropnode.experiments.report.figure_style import STYLE
from dropnode.experiments.report.gallery import Gallery
from dropnode.experiments.report.page import render
from dropnode.experiments.results import read_results
from dropnode.experiments.store import Store
from dropnode.files import atomic_write

__all__ = ["write_report"]


def write_report(folder: Path) -> Path:
    """Write ``report.html`` and ``figures/`` into the folder of an experiment.

    The same results and trials give the same bytes.

    Parameters
    ----------
    folder : Path
        A folder of ``dropnode reproduce``, with ``results.json`` and the trials.

    Returns
    -------
    Path
        The page.
    """
    source = folder / "results.json"
    if not source.is_file():
        raise ConfigError(
            f"{folder} has no results.json; first run: dropnode reproduce EXPERIMENT --out {folder}"
        )
    results = read_results(source)
    with Store(folder) as store:
        evidence = read_evidence(results.rows, store)
    with matplotlib.rc_context(STYLE):
        page = render(results, evidence, Gallery(folder / "figures"))
    target = folder / "report.html"
    with atomic_write(target, "w") as file:
        file.write(page)
    return target
