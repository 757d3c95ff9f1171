"""A page of HTML, read for what a test asks of it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """What a page holds: tables by their caption, elements by their tag, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self._rows: list[list[str]] = []
        self._in_cell = False
        self._muted = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag == "style":
            self._muted += 1
        if found.get("class") == "scroll":
            self._rows = self.tables.setdefault(found["aria-label"], [])
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "style":
            self._muted -= 1
        if tag in ("td", "th"):
            self._rows[-1][-1] = " ".join(self._rows[-1][-1].split())
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if not self._muted:
            self.text += data
        if self._in_cell:
            self._rows[-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [found for name, found in self.elements if name == tag]

    def figure(self, start: str) -> str | None:
        """Return what a figure is read out as."""
        labels = [found["aria-label"] for found in self.all("svg")]
        return next((label for label in labels if label.startswith(start)), None)
