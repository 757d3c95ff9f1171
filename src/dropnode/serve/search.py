"""Lists of nodes: those that match an id, classes and a range of confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dropnode.serve.served import Served

Order = Literal["table", "least-confident", "most-confident", "suspicious"]
"""How a list of nodes is sorted."""


@dataclass(frozen=True)
class Search:
    """What the nodes of a list have in common.

    Attributes
    ----------
    query : part of the id, in any case of letters; an exact match comes first
    predicted, label, held_out : names of classes
    least, most : bounds of the confidence
    order : how the list is sorted
    """

    query: str = ""
    predicted: str | None = None
    label: str | None = None
    held_out: str | None = None
    least: float = 0.0
    most: float = 1.0
    order: Order = "table"

    def nodes(self, served: Served) -> np.ndarray:
        """Return the positions of the nodes that match."""
        # Rounding may take a probability a little above one.
        confidence = np.clip(served.confidence, 0.0, 1.0)
        mask = (confidence >= self.least) & (confidence <= self.most)
        for name, codes in (
            (self.predicted, served.predicted),
            (self.label, served.labels),
            (self.held_out, served.judged),
        ):
            if name is not None:
                mask &= codes == served.code(name)
        nodes = np.flatnonzero(mask)
        if self.query:
            wanted = self.query.casefold()
            nodes = np.array(
                [at for at in nodes.tolist() if wanted in served.ids[at].casefold()], dtype=np.int64
            )
        nodes = nodes[np.argsort(self._keys(served)[nodes], kind="stable")]
        exact = served.position.get(self.query)
        if exact is not None and exact in nodes:
            nodes = np.concatenate([[exact], nodes[nodes != exact]])
        return nodes

    def _keys(self, served: Served) -> np.ndarray:
        if self.order == "least-confident":
            return served.confidence
        if self.order == "most-confident":
            return -served.confidence
        if self.order == "suspicious":
            return np.nan_to_num(served.log_odds, nan=np.inf)
        return np.arange(len(served.ids))
