"""Links from docstrings to names, as docstrings write them.

A docstring says ``ConfigError`` where its module has imported it, or ``dropnode.data.load_dataset``
where the site documents ``dropnode.load_dataset``. Sphinx finds a name only in the module it is
documented in. Here a name is found wherever it is documented, if that is in one place only. One
that is documented nowhere stays a warning.
"""

from __future__ import annotations

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode


def find(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.TextElement
) -> nodes.reference | None:
    """Return a link to the one documented object that a name can mean."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target:
        return None
    objects = env.domains.python_domain.objects
    parts = target.split(".")
    # The attributes of a dataclass are told where the class is.
    for end in ([parts[-1]], parts[-2:], parts[-2:-1]):
        wanted = ".".join(end)
        found = {
            (each.docname, each.node_id)
            for name, each in objects.items()
            if wanted and f".{name}".endswith(f".{wanted}")
        }
        if len(found) == 1:
            page, anchor = found.pop()
            return make_refnode(app.builder, node["refdoc"], page, anchor, text, target)
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    """Look for names that Sphinx has not found."""
    app.connect("missing-reference", find)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
