"""Split: which nodes train, validate and test, and whether a classifier can be trained so."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from dropnode.errors import GraphError, warn_caller
from dropnode.graph.arrays import freeze, to_array
from dropnode.graph.labels import UNKNOWN
from dropnode.graph.nodes import MAX_NODES, who

PARTS = ("train", "val", "test")
"""The parts of a split."""


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Positions of the training, validation and test nodes.

    Parameters
    ----------
    train, val, test : integer arrays
        Disjoint node positions; a part may be empty.
    name : str
        The name of the split in results, such as ``"public"``.

    Examples
    --------
    >>> Split(train=[0, 4], val=[1], test=[2, 3], name="tiny")
    Split('tiny', 2/1/2)
    """

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    name: str = "custom"

    def __post_init__(self) -> None:
        parts = {part: _positions(getattr(self, part), part) for part in PARTS}
        values, counts = np.unique(np.concatenate(list(parts.values())), return_counts=True)
        if (counts > 1).any():
            raise GraphError(
                f"node {values[counts > 1][0]} occurs more than once in split {self.name!r}; "
                "put every node into at most one of train, val and test"
            )
        self.__setstate__(parts)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        freeze(self.train, self.val, self.test)

    def fingerprint(self) -> str:
        """Return a sha256 of the three parts; the name does not count."""
        digest = hashlib.sha256()
        for part in (self.train, self.val, self.test):
            digest.update(len(part).to_bytes(8, "little") + part.astype("<i8").tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        sizes = "/".join(f"{len(part):,}" for part in (self.train, self.val, self.test))
        return f"Split({self.name!r}, {sizes})"


def check_trainable(
    split: Split | None, labels: np.ndarray, class_names: tuple[str, ...], ids: np.ndarray
) -> None:
    """Raise :class:`GraphError` unless a classifier can be trained on these labels.

    It warns if a class is tested that no training node has.
    """
    classes = np.unique(labels[labels != UNKNOWN])
    if len(classes) < 2:
        found = f"only class {class_names[classes[0]]!r}" if len(classes) else "no node"
        raise GraphError(f"{found} has a label; a classifier needs at least two classes")
    if split is None:
        raise GraphError("the graph has no split; add one with graph.with_split(Split(...))")
    for part in ("train", "val"):
        positions = getattr(split, part)
        bare = positions[labels[positions] == UNKNOWN]
        if len(bare):
            raise GraphError(
                f"node {who(ids, bare[0])} is in the {part} part of split {split.name!r} "
                f"but has no label (such nodes: {len(bare):,}); label it, or remove it "
                "from the split"
            )
    absent = np.setdiff1d(np.arange(len(class_names)), labels[split.train])
    if not len(absent):
        return
    names = ", ".join(repr(class_names[code]) for code in absent)
    found = f"the training part of split {split.name!r} has no node of class {names}"
    tested = np.isin(labels[split.test], absent)
    learnt = len(class_names) - len(absent)
    if learnt < 2 or len(np.setdiff1d(absent, labels[split.test])):
        raise GraphError(f"{found}; add a labelled node of each class to it")
    warn_caller(
        f"{found}, so that no label teaches it, although "
        f"{np.count_nonzero(tested):,} of {len(split.test):,} test nodes are of it"
    )


def _positions(values: Any, part: str) -> np.ndarray:
    """Return one part of a split as int64 node positions."""
    array = to_array(values, f"the {part} part of a split")
    if array.size == 0:
        return np.array([], dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise GraphError(
            f"the {part} part of a split is {array.dtype} of shape {array.shape}; expected node "
            "positions (for a mask, pass numpy.flatnonzero(mask))"
        )
    # Compared before the cast, which would wrap what does not fit.
    wrong = array[(array < 0) | (array > MAX_NODES)]
    if len(wrong):
        raise GraphError(
            f"the {part} part of a split holds {wrong[0]}; expected node positions, from 0 on"
        )
    return array.astype(np.int64)
