"""Links to files of the repository that are not pages of the site.

On the web view of a repository they are links. The site has no such files, so there the path is
told instead: ``[all trials](../results/table1)`` becomes "all trials (``results/table1``)".
"""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s#]*)\)")


def tell_paths(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the links of a page that lead out of the documentation, to what exists there."""
    docs = Path(app.srcdir)

    def told(link: re.Match[str]) -> str:
        target = (docs / page).parent.joinpath(link[2]).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return link[0]
        path = target.relative_to(docs.parent).as_posix()
        return f"`{path}`" if link[1].strip("`/") == path else f"{link[1]} (`{path}`)"

    source[0] = LINK.sub(told, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at every page as it is read."""
    app.connect("source-read", tell_paths)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
