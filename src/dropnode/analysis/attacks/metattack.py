"""Metattack: edges flipped so that a classifier trained afterwards does badly.

Zügner and Günnemann, *Adversarial Attacks on Graph Neural Networks via Meta Learning*, ICLR 2019.
One edge at a time: a linear graph convolutional network is trained on the graph as it is by now,
and the pair of nodes is flipped whose edge, by the derivative through that training, raises the
loss of the trained network most. Labels of nodes outside the training set are never read; the
network's own predictions on the clean graph stand for them.

Deviations: a pair is flipped once at most, so that the number of flips is the number of changed
pairs. Weights are drawn anew for every flip, as in the implementation that most attacked graphs
come from; the authors' own code draws them once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from dropnode.analysis.attacks.constraints import CUTOFF, Degrees, DegreeTest
from dropnode.analysis.attacks.factors import Factors, by_edges
from dropnode.analysis.attacks.flips import (
    Flip,
    Watch,
    apply_flips,
    budget,
    cached_flips,
    check_attackable,
    fingerprint,
    flipped,
)
from dropnode.analysis.attacks.surrogate import (
    Task,
    Weights,
    approximate_gradient,
    exact_gradient,
    initial_weights,
    logits_of,
    trained,
)
from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.graph.arrays import Matrix
from dropnode.memory import check_memory
from dropnode.ops.kernels.threads import Threads, at_most, in_parallel
from dropnode.ops.propagation import normalise
from dropnode.ops.randomness import Stream
from dropnode.ops.scaling import CHOICES, FeatureScaling
from dropnode.ops.sparse_matrix import Features, SparseMatrix
from dropnode.settings import (
    MOST_REPEATS,
    Config,
    choice,
    flag,
    positive,
    repeats,
    seed,
    share,
    width,
)

REVISION = 2
"""Raised when a change of code changes the flips of the same graph, options and seed."""

TRAIN_SHARE = {"self": 0.0, "train": 1.0, "both": 0.5}
"""The share of the labelled nodes' loss in the loss that each mode raises."""

BLOCK = 512
"""Rows of the score that exist at a time."""


@dataclass(frozen=True)
class Metattack(Config):
    """Options of Metattack.

    Attributes
    ----------
    rate : flips as a fraction of the clean graph's edges
    mode : the loss to raise: ``"self"``, of unlabelled nodes, whose labels are guessed (the paper's
        Meta-Self); ``"train"``, of labelled nodes (Meta-Train); ``"both"``, half of each
    gradient : ``"exact"``, through the whole training, or ``"first-order"``, where weights count as
        constants (the paper's A-Meta attacks)
    seed : of the initial weights
    degree_test : whether the degrees have to pass the test of
        :class:`~dropnode.analysis.attacks.constraints.DegreeTest`
    cutoff : the largest statistic of that test
    feature_scaling : as for methods; the paper's features are binary and not scaled
    hidden : units of the surrogate
    steps : of the surrogate's training
    learning_rate, momentum : of its gradient descent; first-order attacks train by Adam, at a tenth
        of this learning rate
    """

    rate: float = positive(most=MOST_REPEATS)
    mode: str = choice(*TRAIN_SHARE, default="self")
    gradient: str = choice("exact", "first-order", default="exact")
    seed: int = seed(default=0)
    degree_test: bool = flag(default=True)
    cutoff: float = positive(default=CUTOFF)
    feature_scaling: str = choice(*CHOICES, default="none")
    hidden: int = width(default=16)
    steps: int = repeats(default=100)
    learning_rate: float = positive(default=0.1)
    momentum: float = share(default=0.9)


def metattack(graph: Graph, options: Metattack, watch: Watch | None = None) -> Graph:
    """Return a graph whose edges Metattack has changed.

    Parameters
    ----------
    graph : Graph
        With a split; edges have no weights.
    options : Metattack
    watch : callable, optional
        Told about every flip.
    """
    wanted = checked_budget(graph, options)
    known = {key: value for key, value in options.identity().items() if key != "rate"}
    flips = cached_flips(
        fingerprint(graph, "metattack", REVISION, known),
        wanted,
        lambda so_far: find_flips(graph, options, so_far),
        nodes=graph.num_nodes,
        watch=watch,
    )
    return apply_flips(graph, flips)


def checked_budget(graph: Graph, options: Metattack) -> int:
    """Return the number of flips; an error if the graph cannot be attacked so."""
    check_attackable(graph, "Metattack")
    return budget(graph, options.rate)


def find_flips(graph: Graph, options: Metattack, so_far: Sequence[Flip] = ()) -> Iterator[Flip]:
    """Yield flips without end, after those that were found before.

    Every flip is a function of the graph, the options and the flips before it. Nothing is read from
    the cache or written to it.

    Examples
    --------
    >>> from itertools import islice
    >>> from dropnode import load_dataset
    >>> graph = load_dataset("sbm", nodes=200, classes=4)
    >>> flips = list(islice(find_flips(graph, Metattack(rate=0.005, steps=20)), 5))
    >>> abs(apply_flips(graph, flips).adjacency - graph.adjacency).sum() / 2
    np.float32(5.0)
    """
    _check_width(graph, options)
    stream = Stream(options.seed).at("metattack")
    task = surrogate_task(graph, options, stream)
    test = DegreeTest(Degrees.of(graph.adjacency.sum(axis=1)), options.cutoff)
    flips = list(so_far)
    while True:
        adjacency = flipped(graph.adjacency, flips)
        start = _start(task, options, stream.at("flip", len(flips)))
        # Most operations are too short to be shared between threads; the scores are not.
        with at_most(Threads(torch=1)):
            scores = edge_gradient(adjacency, task, start, options)
            found = best_flip(scores, adjacency, flips, test if options.degree_test else None)
        if found is None:
            raise ConfigError(
                f"after {len(flips):,} flips no further one passes the degree test; lower the "
                "rate, raise cutoff, or set degree_test=false"
            )
        flips.append(found)
        yield found


def _check_width(graph: Graph, options: Metattack) -> None:
    """Raise an error if the surrogate's training needs more memory than there is."""
    assert graph.split is not None
    kept = options.steps * (3 * len(graph.split.train) + graph.num_classes)
    once = graph.num_nodes + graph.features.shape[1]
    check_memory(options.hidden * (8 * kept + 4 * once), "Metattack", "lower hidden or steps")


def edge_gradient(
    adjacency: sp.csr_array, task: Task, start: Weights, options: Metattack
) -> Factors:
    """Return the derivative of the loss to raise by every entry of the adjacency matrix."""
    operator = _operator(adjacency)
    steps, rate = options.steps, options.learning_rate
    if options.gradient == "exact":
        factors = exact_gradient(operator, task, start, steps, rate, options.momentum)
    else:
        factors = approximate_gradient(operator, task, start, steps, rate / 10)
    if not (factors.right.any() or factors.beside.any()):
        raise ConfigError(
            "no edge changes the loss of Metattack's surrogate, so no flip is better than another; "
            "expected features that are not all zero"
        )
    degrees = torch.from_numpy(np.asarray(adjacency.sum(axis=1), dtype=np.float32) + 1.0)
    found = by_edges(factors, operator, degrees)
    if not (found.left.isfinite().all() and found.right.isfinite().all()):
        raise ConfigError(
            "the training of Metattack's surrogate diverges on these features; set "
            "feature_scaling=standard, or lower learning_rate"
        )
    return found


def best_flip(
    factors: Factors, adjacency: sp.csr_array, flips: Sequence[Flip], test: DegreeTest | None
) -> Flip | None:
    """Return the allowed pair whose flip raises the loss most; None if no pair is allowed.

    Adding an edge changes the loss by its derivative, removing one by the opposite.
    """
    degrees = np.asarray(adjacency.sum(axis=1)).astype(np.int64)
    kind = np.unique(degrees, return_inverse=True)[1]
    adding = removing = None
    if test is not None:
        adding, removing = test.allows(degrees, 1)[:, kind], test.allows(degrees, -1)
    entries = sp.triu(adjacency, format="csr")
    used = _pairs_matrix(flips, adjacency.shape)

    def best_of(first: int) -> tuple[float, int, int]:
        last = min(first + BLOCK, len(degrees))
        score = factors.block(first, last)
        row, column = entries[first:last].nonzero()
        removal = -score[row, column - first]
        # A node that would lose its last edge.
        removal[(degrees[row + first] == 1) | (degrees[column] == 1)] = -np.inf
        if removing is not None:
            removal[~removing[kind[row + first], kind[column]]] = -np.inf
        if adding is not None:
            score[~adding[kind[first:last], first:]] = -np.inf
        score[row, column - first] = removal
        row, column = used[first:last].nonzero()
        score[row, column - first] = -np.inf
        score[np.tril_indices(last - first, m=score.shape[1])] = -np.inf
        row, column = divmod(int(score.argmax()), score.shape[1])
        return score[row, column], first + row, first + column

    found: dict[int, tuple[float, int, int]] = {}
    blocks = range(0, len(degrees), BLOCK)
    in_parallel(lambda first: found.update({first: best_of(first)}), blocks)
    score, low, high = max((found[first] for first in blocks), key=lambda each: each[0])
    return None if score == -np.inf else (low, high)


def surrogate_loss(graph: Graph, adjacency: sp.csr_array, options: Metattack) -> float:
    """Return the loss that the attack raises, of the surrogate trained on other edges."""
    stream = Stream(options.seed).at("metattack")
    task, operator = surrogate_task(graph, options, stream), _operator(adjacency)
    start = _start(task, options, stream.at("loss"))
    rates = (options.steps, options.learning_rate, options.momentum)
    logits = logits_of(operator, task.features, trained(operator, task, start, *rates))
    of_nodes = -(task.targets * logits.log_softmax(dim=1)).sum(dim=1)
    return float((task.node_weights * of_nodes).sum())


def surrogate_task(graph: Graph, options: Metattack, stream: Stream) -> Task:
    """Return what the surrogate learns, with its own predictions for labels that are unknown."""
    assert graph.split is not None
    nodes, train = graph.num_nodes, torch.from_numpy(graph.split.train.copy())
    scaling = FeatureScaling.fit(options.feature_scaling, graph.features)
    features = _held(scaling.apply(graph.features))
    labels = torch.zeros(nodes, dtype=torch.long)
    labels[train] = torch.from_numpy(graph.labels[graph.split.train])
    known = Task(features, train, F.one_hot(labels, graph.num_classes).float(), torch.zeros(nodes))
    operator = _operator(graph.adjacency)
    weights = trained(
        operator,
        known,
        _start(known, options, stream.at("labels")),
        options.steps,
        options.learning_rate,
        options.momentum,
    )
    guesses = logits_of(operator, features, weights).argmax(dim=1)
    guesses[train] = labels[train]
    on_train = TRAIN_SHARE[options.mode]
    node_weights = torch.full((nodes,), (1 - on_train) / max(nodes - len(train), 1))
    node_weights[train] = on_train / len(train)
    return Task(features, train, F.one_hot(guesses, graph.num_classes).float(), node_weights)


def _start(task: Task, options: Metattack, stream: Stream) -> Weights:
    features, classes = task.features.shape[1], task.targets.shape[1]
    return initial_weights(features, options.hidden, classes, stream.generator())


def _held(features: Matrix) -> Features:
    """Return features in the form that products take."""
    if sp.issparse(features):
        return SparseMatrix.from_scipy(features)
    return torch.from_numpy(features.astype(np.float32))


def _operator(adjacency: sp.csr_array) -> SparseMatrix:
    return SparseMatrix.from_scipy(normalise(adjacency), symmetric=True)


def _pairs_matrix(flips: Sequence[Flip], shape: tuple[int, int]) -> sp.csr_array:
    low, high = np.array(flips, dtype=np.int64).reshape(-1, 2).T
    return sp.csr_array((np.ones(len(flips), np.float32), (low, high)), shape=shape)
