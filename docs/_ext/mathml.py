"""Formulas as MathML, which browsers draw themselves: no script, no fonts, no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)


def inline(writer: Any, node: nodes.Element) -> None:
    """Write a formula in a line."""
    writer.body.append(_mathml(node))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.Element) -> None:
    """Write a formula of its own, with its number if it has one."""
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    if node["number"]:
        number = get_node_equation_number(writer, node)
        writer.body.append(f'<span class="eqno">({number})</span>')
    writer.body.append(_mathml(node, as_block=True))
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def _mathml(node: nodes.Element, as_block: bool = False) -> str:
    """Return a formula as MathML; one that cannot be read is a warning."""
    text = node.astext()
    try:
        mathml: str = latex2mathml.tex2mathml(text, as_block=as_block)
    except MathError as error:
        logger.warning("formula %r: %s", text, error, location=node)
        return ""
    # Docutils writes the bar of \overline as an underscore, which browsers do not stretch.
    return mathml.replace('<mo accent="true">_</mo>', '<mo stretchy="true">‾</mo>')


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
