"""Trees of scikit-learn's histogram gradient boosting as plain arrays, and what they predict.

scikit-learn keeps its trees as objects that only pickle can save. The arrays here are saved like
any other weights, and predict the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

LEAF = -1
"""The column of a node that is a leaf."""


@dataclass(frozen=True)
class Trees:
    """The trees of all rounds, one per class and round, one after the other.

    Attributes
    ----------
    baseline : array of float64 (outputs,)
        What is predicted before the first round.
    starts : array of int64 (rounds * outputs + 1,)
        Where the nodes of each tree start; trees of one round stand together.
    column : array of int64 (nodes,)
        The column that a node looks at, or :data:`LEAF`.
    threshold : array of float64 (nodes,)
        Rows whose value is at most this go left.
    left, right : arrays of int64 (nodes,)
        The two children, counted from the start of the tree: after their parent.
    value : array of float64 (nodes,)
        What a leaf adds.
    """

    baseline: np.ndarray
    starts: np.ndarray
    column: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray

    @classmethod
    def of(cls, model: Any) -> Trees:
        """Return the trees of a fitted :class:`sklearn.ensemble.HistGradientBoostingClassifier`."""
        nodes = [tree.nodes for round_ in model._predictors for tree in round_]
        every = np.concatenate(nodes)
        leaf = every["is_leaf"].astype(bool)
        return cls(
            baseline=model._baseline_prediction.ravel().astype(np.float64),
            starts=np.cumsum([0, *map(len, nodes)], dtype=np.int64),
            column=np.where(leaf, LEAF, every["feature_idx"]).astype(np.int64),
            threshold=np.where(leaf, 0.0, every["num_threshold"]),
            left=every["left"].astype(np.int64),
            right=every["right"].astype(np.int64),
            value=every["value"].astype(np.float64),
        )

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return (len(self.starts) - 1) // len(self.baseline)

    def first(self, rounds: int) -> Trees:
        """Return the trees of the first rounds alone."""
        starts = self.starts[: rounds * len(self.baseline) + 1]
        parts = (self.column, self.threshold, self.left, self.right, self.value)
        return Trees(self.baseline, starts, *(part[: starts[-1]] for part in parts))

    def check(self, columns: int) -> None:
        """Raise ``ValueError`` unless every walk from a root ends in a leaf.

        Arrays of a damaged file could otherwise lead in circles.
        """
        inner = self.column != LEAF
        tree = np.searchsorted(self.starts, np.arange(len(self.column)), side="right") - 1
        place = np.arange(len(self.column)) - self.starts[tree]
        sizes = np.diff(self.starts)[tree]
        for child in (self.left, self.right):
            if (child[inner] <= place[inner]).any() or (child[inner] >= sizes[inner]).any():
                raise ValueError("a child does not stand after its parent, in the same tree")
        if (self.column[inner] < 0).any() or (self.column[inner] >= columns).any():
            raise ValueError(f"a tree looks at a column that is none of {columns}")

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Return the sums of all trees (rows, outputs)."""
        total = np.tile(self.baseline, (len(rows), 1))
        for number in range(len(self.starts) - 1):
            total[:, number % len(self.baseline)] += self._leaves(number, rows)
        return total

    def stages(self, rows: np.ndarray) -> np.ndarray:
        """Return the sums after each round (rounds, rows, outputs)."""
        outputs = len(self.baseline)
        added = np.stack([self._leaves(number, rows) for number in range(self.rounds * outputs)])
        by_round = added.reshape(self.rounds, outputs, len(rows)).transpose(0, 2, 1)
        return self.baseline + np.cumsum(by_round, axis=0)

    def _leaves(self, number: int, rows: np.ndarray) -> np.ndarray:
        """Return what one tree adds to each row."""
        tree = slice(self.starts[number], self.starts[number + 1])
        column, threshold = self.column[tree], self.threshold[tree]
        left, right = self.left[tree], self.right[tree]
        at = np.zeros(len(rows), dtype=np.int64)
        walking = np.arange(len(rows)) if column[0] != LEAF else np.empty(0, dtype=np.int64)
        while len(walking):
            here = at[walking]
            goes_left = rows[walking, column[here]] <= threshold[here]
            at[walking] = np.where(goes_left, left[here], right[here])
            walking = walking[column[at[walking]] != LEAF]
        return self.value[tree][at]
