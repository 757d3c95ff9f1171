"""Files to take away: predictions as CSV, GEXF for Gephi, and a page that needs no server."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

import numpy as np

from dropnode.files import json_bytes
from dropnode.serve.served import Served

SCRIPTS = tuple(
    f"{name}.js"
    for name in "dom api charts labels retrain overview nodes graph node work main".split()
)
"""Modules of the page, each after those that it imports."""

LIBRARIES = ("vendor/graphology.umd.min.js", "vendor/sigma.min.js")


def page_files() -> dict[str, bytes]:
    """Return the files of the page by name, which are part of the package."""
    found: dict[str, bytes] = {}

    def walk(folder: Any, prefix: str) -> None:
        for each in folder.iterdir():
            if each.is_dir():
                walk(each, f"{prefix}{each.name}/")
            else:
                found[f"{prefix}{each.name}"] = each.read_bytes()

    walk(files("dropnode.serve") / "page", "")
    return found


def gexf(served: Served, places: np.ndarray | None) -> Iterator[bytes]:
    """Yield the graph with its predictions in GEXF 1.3."""
    xml = _Xml()
    space = "http://gexf.net/1.3"
    xml.begin("gexf", {"xmlns": space, "xmlns:viz": f"{space}/viz", "version": "1.3"})
    xml.begin("graph", {"defaultedgetype": "undirected", "mode": "static"})
    xml.begin("attributes", {"class": "node"})
    titles = (("label_given", "string"), ("predicted", "string"), ("confidence", "double"))
    for at, (title, kind) in enumerate(titles):
        xml.empty("attribute", {"id": str(at), "title": title, "type": kind})
    xml.end("attributes")
    xml.begin("nodes", {})
    for at, name in enumerate(served.ids):
        xml.begin("node", {"id": str(at), "label": name})
        row = served.row(at)
        xml.begin("attvalues", {})
        for number, value in enumerate((row["label"], row["predicted"], row["confidence"])):
            if value is not None:
                xml.empty("attvalue", {"for": str(number), "value": str(value)})
        xml.end("attvalues")
        if places is not None:
            x, y = (f"{1000 * value:.2f}" for value in places[at])
            xml.empty("viz:position", {"x": x, "y": y, "z": "0"})
        xml.end("node")
        if not at % 1000:
            yield xml.taken()
    xml.end("nodes")
    xml.begin("edges", {})
    entries = served.model.classifier.graph_.adjacency.tocoo()
    once = np.flatnonzero(entries.coords[0] < entries.coords[1])
    for number, at in enumerate(once.tolist()):
        source, target = (str(end[at]) for end in entries.coords)
        weight = f"{entries.data[at]:g}"
        ends = {"id": str(number), "source": source, "target": target, "weight": weight}
        xml.empty("edge", ends)
        if not number % 5000:
            yield xml.taken()
    for name in ("edges", "graph", "gexf"):
        xml.end(name)
    yield xml.taken()


class _Xml:
    """An XML document that is taken away in parts; markup in values is escaped."""

    def __init__(self) -> None:
        self._text = io.BytesIO()
        self._generator = XMLGenerator(self._text, "utf-8", short_empty_elements=True)
        self._generator.startDocument()

    def begin(self, name: str, values: dict[str, str]) -> None:
        sound = {key: _sound(value) for key, value in values.items()}
        self._generator.startElement(name, AttributesImpl(sound))

    def end(self, name: str) -> None:
        self._generator.endElement(name)

    def empty(self, name: str, values: dict[str, str]) -> None:
        self.begin(name, values)
        self.end(name)

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        content = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return content


def snapshot(answers: dict[str, Any]) -> bytes:
    """Return the page with answers of the service inside, which needs neither server nor network.

    Parameters
    ----------
    answers : dict
        What the page would ask for, by path.
    """
    parts = {name: content.decode() for name, content in page_files().items()}
    scripts = [parts[name] for name in LIBRARIES]
    scripts.append(_joined([parts[name] for name in SCRIPTS]))
    # No text of the data can end the element that holds it.
    data = json_bytes(answers).decode().replace("<", "\\u003c")
    hashes = " ".join(f"'{_hash(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src '{_hash(parts['style.css'])}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    page = re.sub(r"\s*<(?:script|link)\b[^>]*>(?:</script>)?", "", parts["index.html"])
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<style>{parts['style.css']}</style>\n"
    )
    body = f'<script type="application/json" id="snapshot">{data}</script>\n' + "\n".join(
        f"<script>{script}</script>" for script in scripts
    )
    page = page.replace("</head>", f"{head}</head>").replace("</body>", f"{body}\n</body>")
    return page.encode()


def _joined(modules: list[str]) -> str:
    """Return modules of ours as one script: their names are distinct, so none has to be renamed."""
    text = "\n".join(modules)
    text = re.sub(r"^import [^;]*;\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^export ", "", text, flags=re.MULTILINE)
    return f'"use strict";\n(() => {{\n{text}\n}})();'


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _sound(text: str) -> str:
    """Return a text without the characters that no XML can have."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
