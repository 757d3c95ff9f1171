"""Splits into training, validation and test nodes: the published one and random ones."""

from __future__ import annotations

import numpy as np

from dropnode.errors import GraphError
from dropnode.graph import Split
from dropnode.graph.labels import UNKNOWN
from dropnode.settings import read_value
from dropnode.settings import seed as seed_field

SHARES = ("proportional", "equal")
"""How :func:`label_rate_split` divides the training nodes among the classes."""


def public_split(num_train: int, test: np.ndarray, num_val: int = 500) -> Split:
    """Return the Planetoid split: the first nodes train, the next validate, ``test`` is given."""
    val = np.arange(num_train, num_train + num_val)
    return Split(np.arange(num_train), val, np.sort(test), "public")


def per_class_split(
    labels: np.ndarray, train_per_class: int = 20, val_per_class: int = 30, seed: int = 0
) -> Split:
    """Draw the same number of nodes from every class; the other labelled nodes are for testing.

    Parameters
    ----------
    labels : ndarray of int
        Class codes, -1 where unknown; unknown nodes stay out of the split.
    train_per_class, val_per_class : int
        Nodes per class for training and for validation.
    seed : int
        The same seed draws the same split.

    Examples
    --------
    >>> per_class_split(np.array([0, 1, 0, 1, 0, 1, -1]), 1, 1, seed=0)
    Split('1+1 per class, seed 0', 2/2/2)
    """
    if train_per_class < 1 or val_per_class < 0:
        raise GraphError(
            f"{train_per_class} training and {val_per_class} validation nodes per class; "
            "expected at least 1 and at least 0"
        )
    rng = _generator(seed)
    needed = train_per_class + val_per_class
    train, val, test = [], [], []
    for code, members in _classes(labels):
        if len(members) < needed:
            raise GraphError(
                f"class {code} has {len(members)} labelled nodes, but {train_per_class} are needed "
                f"for training and {val_per_class} for validation; ask for fewer, or leave the "
                "class out"
            )
        drawn = rng.permutation(members)
        train.append(drawn[:train_per_class])
        val.append(drawn[train_per_class:needed])
        test.append(drawn[needed:])
    name = f"{train_per_class}+{val_per_class} per class, seed {seed}"
    parts = [np.sort(np.concatenate(part)) for part in (train, val, test)]
    return Split(parts[0], parts[1], parts[2], name)


def label_rate_split(
    labels: np.ndarray,
    rate: float,
    seed: int = 0,
    num_val: int = 500,
    num_test: int = 1000,
    classes: str = "proportional",
) -> Split:
    """Draw a fraction of all nodes for training, and validation and test sets of public sizes.

    The paper says only that its splits are random. By default one node per class is drawn first, so
    that every class can be learnt, and the others uniformly, so that classes keep their
    proportions. With equal classes, as in the public splits, each has the same number of training
    nodes; one more, if needed, goes to random classes.

    Parameters
    ----------
    labels : ndarray of int
        Class codes, -1 where unknown; unknown nodes stay out of the split.
    rate : float
        Training nodes as a fraction of all nodes, such as 0.01.
    seed : int
        The same seed draws the same split.
    num_val, num_test : int
        Nodes for validation and for testing.
    classes : str
        ``"proportional"`` or ``"equal"``: the share of each class in the training nodes.
    """
    if not 0 < rate < 1:
        raise GraphError(f"label rate {rate}; expected a fraction between 0 and 1, such as 0.01")
    rng = _generator(seed)
    members = [nodes for _, nodes in _classes(labels)]
    num_train = max(len(members), round(rate * len(labels)))
    if classes == "equal":
        first = _equal_classes(members, num_train, rng)
    elif classes == "proportional":
        first = np.array([rng.choice(nodes) for nodes in members])
    else:
        raise GraphError(f"classes {classes!r}; expected one of {', '.join(SHARES)}")
    others = rng.permutation(np.setdiff1d(np.flatnonzero(labels != UNKNOWN), first))
    drawn = np.concatenate([first, others])
    bounds = np.cumsum([num_train, num_val, num_test])
    if bounds[-1] > len(drawn):
        raise GraphError(
            f"a label rate of {rate:g} needs {num_train:,} training, {num_val:,} validation and "
            f"{num_test:,} test nodes, but only {len(drawn):,} nodes have a label"
        )
    train, val, test, _ = (np.sort(part) for part in np.split(drawn, bounds))
    told = "" if classes == "proportional" else f", {classes} classes"
    return Split(train, val, test, f"label rate {rate:g}{told}, seed {seed}")


def _equal_classes(
    members: list[np.ndarray], num_train: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw training nodes, as many from every class up to one."""
    each, left = divmod(num_train, len(members))
    wanted = np.full(len(members), each)
    wanted[rng.permutation(len(members))[:left]] += 1
    for number, (nodes, count) in enumerate(zip(members, wanted, strict=True)):
        if len(nodes) < count:
            raise GraphError(
                f"{num_train:,} training nodes in equal classes need {count} of each, but class "
                f"{number} has {len(nodes)}; ask for a smaller rate or for proportional classes"
            )
    drawn = [rng.permutation(nodes)[:count] for nodes, count in zip(members, wanted, strict=True)]
    return np.concatenate(drawn)


def every_label_split(labels: np.ndarray) -> Split:
    """Return the split that trains on every label, and has no validation or test nodes."""
    nobody = np.array([], dtype=np.int64)
    return Split(np.flatnonzero(labels != UNKNOWN), nobody, nobody, "every label trains")


def stratified_holdout(
    labels: np.ndarray, fraction: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Divide the labelled nodes into those to keep and those to hold out for validation.

    A class with two labels or more has at least one on either side; a class with a single label
    keeps it.

    Parameters
    ----------
    labels : ndarray of int
        Class codes, -1 where unknown.
    fraction : float
        Share of each class to hold out, rounded to whole nodes.
    seed : int
        The same seed draws the same nodes.

    Returns
    -------
    kept, held : ndarray of int
        Sorted node positions; together they are all labelled nodes.
    """
    check_fraction(fraction)
    rng = _generator(seed)
    kept, held = [], []
    for _, members in _classes(labels):
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        drawn = rng.permutation(members)
        held.append(drawn[:count])
        kept.append(drawn[count:])
    if not sum(map(len, held)):
        raise GraphError(
            f"none of the {len(kept)} classes has two labels, so none can be held out for "
            "validation; label more nodes or give a validation set"
        )
    return np.sort(np.concatenate(kept)), np.sort(np.concatenate(held))


def check_fraction(fraction: float) -> None:
    """Raise :class:`GraphError` unless this share of labels can be held out."""
    if not 0 < fraction < 1:
        raise GraphError(f"fraction {fraction} to hold out; expected a number between 0 and 1")


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(read_value(int, seed, "the seed of a split", seed_field()))


def _classes(labels: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return each class code that occurs, and its nodes."""
    codes = np.unique(labels[labels != UNKNOWN])
    if len(codes) == 0:
        raise GraphError("no node has a label; a split needs at least one per class")
    return [(int(code), np.flatnonzero(labels == code)) for code in codes]
