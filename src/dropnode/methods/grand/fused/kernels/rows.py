"""Everything after the first linear map, forwards and backwards, node by node.

Bias, ReLU, dropout, the second linear map, softmax, both losses and all their gradients are
computed while the few hundred numbers of a node are in registers and the nearest cache. Torch would
make about twenty passes over (nodes, views, hidden). Batch norm couples the nodes; its two passes
are in ``batch_norm.py``.

Matrices have the views side by side, (nodes, views · hidden), with ``hidden`` and ``classes``
padded. Nodes are cut into pieces whose sums are added in a fixed order, so that results do not
depend on the number of threads.

The same computation in plain torch is ``rest`` of the heads (``methods/grand/heads.py``) and the
losses (``methods/grand/objective.py``). ``tests/methods/grand/fused/test_step.py`` compares the
two; ``kernels/test_rows.py`` there compares this module with formulas in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dropnode.ops.kernels.jit import inlined, kernel
from dropnode.ops.kernels.memory import LANES, padded
from dropnode.ops.kernels.simd import (
    add_scaled,
    exponential,
    keep,
    largest,
    load,
    logarithm,
    splat,
    store,
    total,
    where_positive,
)
from dropnode.ops.kernels.threads import PIECES, in_parallel, kernel_threads, ranges

_NO_NORM = np.empty((1, 0), np.float32)


class Task(NamedTuple):
    """The labels and the weights of the objective.

    Attributes
    ----------
    labels : array of int64 (n,)
        The class of each training node; any number for other nodes.
    label_weights : array of float32 (n,)
        The weight of each node's cross-entropy; zero for nodes outside the training set.
    consistency_weight : float
        The weight of each node's squared distance to the sharpened average.
    temperature : float
    """

    labels: np.ndarray
    label_weights: np.ndarray
    consistency_weight: float
    temperature: float


class Layer(NamedTuple):
    """The padded parameters after the first linear map, with batch norm as a scale and a shift.

    Without batch norm, ``scale`` and ``shift`` have no columns.
    """

    bias1: np.ndarray  # (1, views · hidden), as the offset may differ between views
    weight2: np.ndarray  # (hidden, classes)
    bias2: np.ndarray  # (1, classes)
    classes: int
    scale: np.ndarray = _NO_NORM  # (1, views · hidden)
    shift: np.ndarray = _NO_NORM


@dataclass
class Learnt:
    """Both losses, summed over nodes and views, and their gradients."""

    supervised: float
    consistency: float
    bias1: np.ndarray
    weight2: np.ndarray
    bias2: np.ndarray
    scale: np.ndarray
    shift: np.ndarray


def learn(
    first: np.ndarray,
    layer: Layer,
    hidden_words: np.ndarray,
    keep_rate: float,
    task: Task,
    out: np.ndarray,
) -> Learnt:
    """Compute losses and gradients from the output of the first linear map.

    Parameters
    ----------
    first : array (n, views · hidden)
    layer : Layer
    hidden_words : array of uint64 (views · n, words)
        The bits of dropout, view after view; without columns, nothing is dropped.
    keep_rate : float
        The probability of a set bit.
    task : Task
    out : array (n, views · hidden)
        Receives the gradient of ``first``, or with batch norm the gradient of the norm's output
        (see ``batch_norm.through_norm``). May be ``first`` itself without batch norm.
    """
    hidden, classes = layer.weight2.shape
    width, width_of_norm = first.shape[1], layer.scale.shape[1]
    transposed = np.ascontiguousarray(layer.weight2[:, : layer.classes].T)
    given = _LearnInputs(first, layer, transposed, hidden_words, np.float32(1.0 / keep_rate), task)
    pieces = ranges(len(first), PIECES)
    bounds = np.array([start for start, _ in pieces] + [len(first)])
    sums = _Sums(
        losses=np.zeros((len(pieces), 2)),
        bias1=np.zeros((len(pieces), 1, width), np.float32),
        weight2=np.zeros((len(pieces), layer.classes, hidden), np.float32),
        bias2=np.zeros((len(pieces), 1, classes), np.float32),
        norm=np.zeros((len(pieces), 2, width_of_norm), np.float32),
    )
    # Few calls with several pieces each, because between two calls a thread has to wait for the
    # interpreter lock.
    in_parallel(
        lambda group: _learn(given, bounds, *group, out, sums),
        ranges(len(pieces), kernel_threads()),
    )
    losses, bias1, weight2, bias2, norm = (part.sum(axis=0) for part in sums)
    return Learnt(
        float(losses[0]), float(losses[1]), bias1[0], weight2.T, bias2[0], norm[1], norm[0]
    )


class _LearnInputs(NamedTuple):
    """The inputs of :func:`_learn`."""

    first: np.ndarray
    layer: Layer
    transposed: np.ndarray  # of the second weights, without padded classes
    hidden_words: np.ndarray
    boost: np.float32  # the factor on values that dropout keeps
    task: Task


class _Sums(NamedTuple):
    """The sums of :func:`_learn` for each piece of the nodes."""

    losses: np.ndarray  # (pieces, 2): supervised, consistency
    bias1: np.ndarray  # (pieces, 1, views · hidden)
    weight2: np.ndarray  # (pieces, classes, hidden), transposed
    bias2: np.ndarray  # (pieces, 1, classes)
    norm: np.ndarray  # (pieces, 2, views · hidden): batch norm's shift and scale


@kernel
def _learn(given, bounds, first_piece, stop_piece, out, sums):  # type: ignore[no-untyped-def]
    hidden, classes = given.layer.weight2.shape
    views = given.first.shape[1] // hidden
    agreeing = np.float32(given.task.consistency_weight) != 0
    active = np.empty((views, hidden), np.float32)
    chances = np.empty((views, classes), np.float32)
    average = np.empty((1, classes), np.float32)
    # For one view: its logits in the forward pass, and their gradient in the backward pass.
    logits = np.empty((1, classes), np.float32)
    slopes = np.zeros((1, classes), np.float32)
    for piece in range(first_piece, stop_piece):
        supervised = 0.0
        consistency = 0.0
        for node in range(bounds[piece], bounds[piece + 1]):
            average[:] = 0
            for view in range(views):
                _activate(given, node, view, active)
                supervised += _classify(given, node, view, active, logits, chances, average)
            if agreeing:
                _sharpen(given, average)
            squares = splat(16, np.float32(0))
            for view in range(views):
                squares = _differentiate(
                    given, node, view, agreeing, chances, average, squares, slopes
                )
                _go_back(given, node, view, active, slopes, out, piece, sums)
            consistency += total(squares)
        sums.losses[piece, 0] = supervised
        sums.losses[piece, 1] = consistency


@inlined
def _activate(given, node, view, active):  # type: ignore[no-untyped-def]
    """Write the hidden layer of a view: bias, ReLU, batch norm, dropout."""
    layer, hidden = given.layer, active.shape[1]
    bits = ~np.uint64(0)
    for column in range(0, hidden, 16):
        place = view * hidden + column
        value = load(16, given.first, node, place) + load(16, layer.bias1, 0, place)
        value = where_positive(value, value)
        if layer.scale.shape[1] > 0:
            value = value * load(16, layer.scale, 0, place) + load(16, layer.shift, 0, place)
        if given.hidden_words.shape[1] > 0:
            bits = _dropout_bits(given, node, view, column)
        store(keep(bits, value * splat(16, given.boost)), active, view, column)


@inlined
def _dropout_bits(given, node, view, column):  # type: ignore[no-untyped-def]
    word = given.hidden_words[view * len(given.first) + node, column >> 6]
    return word >> np.uint64(column & 63)


@inlined
def _classify(given, node, view, active, logits, chances, average):  # type: ignore[no-untyped-def]
    """Write the class probabilities of a view, and add them to ``average``.

    Returns the weighted cross-entropy.
    """
    weight2, bias2 = given.layer.weight2, given.layer.bias2
    hidden, classes = weight2.shape
    nothing = splat(16, np.float32(0))
    top = np.float32(-np.inf)
    for block in range(0, classes, 16):
        # Four sums at a time, because each addition to a single sum would wait for the one before.
        one, two, three, four = load(16, bias2, 0, block), nothing, nothing, nothing
        for unit in range(0, hidden, 4):
            one = add_scaled(one, active[view, unit], load(16, weight2, unit, block))
            two = add_scaled(two, active[view, unit + 1], load(16, weight2, unit + 1, block))
            three = add_scaled(three, active[view, unit + 2], load(16, weight2, unit + 2, block))
            four = add_scaled(four, active[view, unit + 3], load(16, weight2, unit + 3, block))
        value = (one + two) + (three + four)
        store(value, logits, 0, block)
        top = max(top, largest(value))
    normaliser = np.float32(0)
    for block in range(0, classes, 16):
        raised = exponential(load(16, logits, 0, block) - splat(16, top))
        normaliser += total(raised)
        store(raised, chances, view, block)
    inverse = splat(16, np.float32(1) / normaliser)
    for block in range(0, classes, 16):
        chance = load(16, chances, view, block) * inverse
        store(chance, chances, view, block)
        store(load(16, average, 0, block) + chance, average, 0, block)
    weight = given.task.label_weights[node]
    if weight == 0:
        return 0.0
    return -(weight * (logits[0, given.task.labels[node]] - top - math.log(normaliser)))


@inlined
def _sharpen(given, average):  # type: ignore[no-untyped-def]
    """Sharpen the sum over views: raise it to the power 1/T and normalise it."""
    classes = average.shape[1]
    power = splat(16, np.float32(1.0 / given.task.temperature))
    # Divide by the largest value, so that the normaliser cannot underflow to zero.
    top = np.float32(0)
    for block in range(0, classes, 16):
        top = max(top, largest(load(16, average, 0, block)))
    inverse = splat(16, np.float32(1) / top)
    normaliser = np.float32(0)
    for block in range(0, classes, 16):
        ratio = load(16, average, 0, block) * inverse
        sharp = exponential(logarithm(ratio) * power)
        normaliser += total(sharp)
        store(sharp, average, 0, block)
    inverse = splat(16, np.float32(1) / normaliser)
    for block in range(0, classes, 16):
        store(load(16, average, 0, block) * inverse, average, 0, block)


@inlined
def _differentiate(given, node, view, agreeing, chances, average, squares, slopes):  # type: ignore[no-untyped-def]
    """Write the gradient of both losses with respect to the logits of a view to ``slopes``.

    Returns ``squares`` plus the squared distances to the average.
    """
    classes = average.shape[1]
    weight = given.task.label_weights[node]
    doubled = splat(16, np.float32(2 * np.float32(given.task.consistency_weight)))
    pull = np.float32(0)
    if agreeing:
        for block in range(0, classes, 16):
            chance = load(16, chances, view, block)
            distance = chance - load(16, average, 0, block)
            squares = squares + distance * distance
            slope = distance * doubled
            pull += total(slope * chance)
            store(slope, slopes, 0, block)
    for block in range(0, classes, 16):
        slope = splat(16, weight - pull)
        if agreeing:
            slope = slope + load(16, slopes, 0, block)
        store(slope * load(16, chances, view, block), slopes, 0, block)
    if weight != 0:
        slopes[0, given.task.labels[node]] -= weight
    return squares


@inlined
def _go_back(given, node, view, active, slopes, out, piece, sums):  # type: ignore[no-untyped-def]
    """Write the gradient of a view's hidden layer, and add to the sums of the parameters."""
    layer, hidden = given.layer, active.shape[1]
    bias1_sums, weight2_sums = sums.bias1[piece], sums.weight2[piece]
    bias2_sums, norm_sums = sums.bias2[piece], sums.norm[piece]
    for block in range(0, slopes.shape[1], 16):
        summed = load(16, bias2_sums, 0, block) + load(16, slopes, 0, block)
        store(summed, bias2_sums, 0, block)
    for column in range(0, hidden, 16):
        place = view * hidden + column
        value = load(16, active, view, column)
        gradient = splat(16, np.float32(0))
        for c in range(len(given.transposed)):
            gradient = add_scaled(gradient, slopes[0, c], load(16, given.transposed, c, column))
            summed = add_scaled(load(16, weight2_sums, c, column), slopes[0, c], value)
            store(summed, weight2_sums, c, column)
        gradient = gradient * splat(16, given.boost)
        if layer.scale.shape[1] > 0:
            if given.hidden_words.shape[1] > 0:
                gradient = keep(_dropout_bits(given, node, view, column), gradient)
            relu = load(16, given.first, node, place) + load(16, layer.bias1, 0, place)
            relu = where_positive(relu, relu)
            store(load(16, norm_sums, 0, place) + gradient, norm_sums, 0, place)
            store(load(16, norm_sums, 1, place) + gradient * relu, norm_sums, 1, place)
        else:
            # The value is positive unless the ReLU or dropout has made it zero.
            gradient = where_positive(value, gradient)
            store(load(16, bias1_sums, 0, place) + gradient, bias1_sums, 0, place)
        store(gradient, out, node, place)


def pad_bias2(bias2: np.ndarray) -> np.ndarray:
    """Return the second bias, padded so that padded classes have probability zero."""
    wide = np.full((1, padded(len(bias2))), -1e30, dtype=np.float32)
    wide[0, : len(bias2)] = bias2
    return wide


assert LANES == 16, "the kernels above use vectors of 16 lanes"
