"""Figures as files and as parts of the page."""

from __future__ import annotations

import io
import re
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from dropnode.experiments.report.svg import inline_svg
from dropnode.files import write_bytes


class Gallery:
    """The figures of a page, each saved as SVG and PNG.

    Parameters
    ----------
    folder : Path
        Folder for the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: set[str] = set()

    def add(self, name: str, figure: Figure, description: str) -> Markup:
        """Save a figure under a unique name, and return it as a part of the page."""
        name = unique(name, self.names)
        vector, raster = io.BytesIO(), io.BytesIO()
        figure.savefig(vector, format="svg", metadata={"Date": None, "Title": description})
        figure.savefig(
            raster,
            format="png",
            dpi=200,
            facecolor="white",
            metadata={"Software": None, "Description": description},
        )
        write_bytes(self.folder / f"{name}.svg", vector.getvalue())
        write_bytes(self.folder / f"{name}.png", raster.getvalue())
        return inline_svg(vector.getvalue(), name, description)


def unique(name: str, taken: set[str]) -> str:
    """Return a name for files and anchors that is not in ``taken`` yet, and add it there.

    Examples
    --------
    >>> taken = set()
    >>> unique("Coauthor/CS", taken), unique("coauthor cs", taken)
    ('coauthor-cs', 'coauthor-cs-2')
    """
    stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"
    chosen, number = stem, 1
    while chosen in taken:
        number += 1
        chosen = f"{stem}-{number}"
    taken.add(chosen)
    return chosen
