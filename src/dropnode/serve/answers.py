"""Answers: what is told about a model, which may be exchanged while a request reads it."""

from __future__ import annotations

import time
from typing import Any

from dropnode.serve import drawing, forms
from dropnode.serve.explorer import Explorer
from dropnode.serve.files import snapshot

LISTED, NEXT = 100, 50
"""The most nodes of a work list, and how many to label next are listed if nobody says."""


class Answers:
    """What one request is told; it takes the served model once.

    Parameters
    ----------
    explorer : Explorer
    """

    def __init__(self, explorer: Explorer) -> None:
        self.explorer, self.served = explorer, explorer.served
        self.drawn_whole = len(self.served.ids) <= drawing.MOST_NODES

    def model(self) -> dict[str, Any]:
        """Return what the model is, and what the page can do with it."""
        return self.served.summary() | {
            "has_attributes": bool(self.explorer.attributes.rows),
            "writable": self.explorer.workplace is not None,
            "drawn_whole": self.drawn_whole,
        }

    def rows(self, positions: list[int]) -> list[forms.Row]:
        """Return nodes of a list, with the labels that people gave."""
        given = self.explorer.given(self.served)
        found = [self.served.row(at) for at in positions]
        return [forms.Row(**each, now=given.get(each["id"], each["label"])) for each in found]

    def node(self, at: int, *, explain: bool) -> dict[str, Any]:
        """Return everything about a node; its explanation can take long."""
        served, name = self.served, self.served.ids[at]
        found = served.node(at) | {
            "now": self.explorer.given(served).get(name, served.name(served.labels[at])),
            "attributes": self.explorer.attributes.of(name),
        }
        return found | ({"explanation": self.explorer.explained(served, at)} if explain else {})

    def suspicious(self, limit: int = LISTED) -> list[forms.Row]:
        """Return labels that models trained without them contradict."""
        return self.rows(self.served.suspicious()[:limit].tolist())

    def next_nodes(self, limit: int = NEXT) -> list[forms.Row]:
        """Return nodes to label next, without those that people have labelled."""
        labelled = [self.served.position[name] for name in self.explorer.given(self.served)]
        return self.rows(self.served.next_nodes(labelled, limit).tolist())

    def whole_graph(self) -> dict[str, Any]:
        """Return the picture of the whole graph."""
        return drawing.draw_whole(self.served, self.explorer.places())

    def snapshot(self, seconds: float) -> bytes:
        """Return the page with the model inside; explanations begin within some seconds."""
        end = time.monotonic() + seconds
        answers: dict[str, Any] = {"/model": self.model() | {"writable": False}}
        if self.drawn_whole:
            answers["/graph"] = self.whole_graph()
        lists = {"/work/suspicious": self.suspicious(), "/work/next": self.next_nodes()}
        answers |= {path: [vars(each) for each in found] for path, found in lists.items()}
        for name in dict.fromkeys(each.id for found in lists.values() for each in found):
            at = self.served.position[name]
            answers[f"/nodes/{name}"] = self.node(at, explain=time.monotonic() < end)
        return snapshot(answers)
