"""Sphinx: how the documentation is built. Nothing is fetched from the network."""

import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from dropnode import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "dropnode"
author = "The dropnode developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    # Of our own, in _ext/.
    "generated",
    "mathml",
    "names",
    "repository",
]
exclude_patterns = ["_build"]
highlight_language = "none"  # Unless a block names one.
smartquotes = False  # They would make one dash of the two in --seed.

# Headings can be linked to, and formulas stand between dollar signs.
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # The types are in the docstrings, in words.
numpydoc_show_class_members = False  # Every member has its own entry.
numpydoc_class_members_toctree = False

# Names of other projects cannot be resolved without their inventories, which are on the network.
nitpick_ignore_regex = [("py:.*", r"(numpy|np|scipy|sklearn|torch|torch_geometric)\..*")]

html_theme = "furo"
html_title = f"dropnode {version}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """Leave out the values of constants: a table of functions as text helps nobody."""
    app.connect("object-description-transform", _hide_value)


def _hide_value(_: Sphinx, __: str, kind: str, content: nodes.Element) -> None:
    if kind == "data":
        for note in list(content.parent.findall(addnodes.desc_annotation)):
            if note.astext().lstrip().startswith("="):
                note.parent.remove(note)
