"""How a figure becomes files and a part of the page, readable on light and on dark paper alike."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib.figure import Figure

from dropnode.files import write_bytes

INK = "#1f2328"
# Hues that stay apart for colour-blind readers.
OURS, THEIRS = "#0072B2", "#D55E00"
_ON_THE_PAGE = {INK: "currentColor", OURS: "var(--ours)", THEIRS: "var(--theirs)"}
"""Colours that the page decides, so that figures follow it into the dark."""

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    # A class may be called "$x$".
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.18,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    # Text as outlines: lines break where they did when the figure was laid out, on every machine.
    "svg.fonttype": "path",
    "svg.hashsalt": "dropnode",
    # In points: no eye sees it, and a noisy curve takes half the bytes.
    "path.simplify_threshold": 0.3,
}

WIDTH = 5.0
"""Inches that a figure is wide: a phone then shows it about as large as it was drawn."""


class Gallery:
    """The figures of a page, each saved as SVG and PNG.

    Parameters
    ----------
    folder : Path
        Where the files go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: set[str] = set()

    def add(self, name: str, figure: Figure, description: str) -> Markup:
        """Save a figure under a name of its own, and return it as a part of the page."""
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
        return inline(vector.getvalue(), name, description)


def unique(name: str, taken: set[str]) -> str:
    """Return a name for files and anchors that was not taken before, and take it.

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


def inline(svg: bytes, prefix: str, description: str) -> Markup:
    """Return an SVG file as an element of a page that holds several.

    Identifiers get a prefix, as those of two figures would clash; colours become the page's; the
    description is read out instead of the outlines.
    """
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            # A style sheet inside would hold for the whole page, whose own has its rules.
            if _local(child.tag) in ("metadata", "title", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {
            _local(name): _adapt(_local(name), value, prefix)
            for name, value in element.attrib.items()
        }
    box = root.attrib["viewBox"]
    root.attrib = {"viewBox": box, "role": "img", "aria-label": description}
    # The markup is our own: what came from outside is outlines by now, or an escaped attribute.
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _adapt(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return f"{prefix}-{value}"
    if name == "href":
        return value.replace("#", f"#{prefix}-", 1)
    if name in ("d", "x", "y"):
        # A hundredth of a point is finer than any screen, and half the bytes.
        return re.sub(r"-?\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", value)
    for colour, replacement in _ON_THE_PAGE.items():
        value = value.replace(colour.lower(), replacement)
    return value.replace("url(#", f"url(#{prefix}-")
