"""Everything after the first linear map, forwards and backwards, a node at a time.

Bias, ReLU, dropout, the second linear map, softmax, both losses and all their gradients are
computed while a node's few hundred numbers are in registers and the nearest cache; written in torch
they are some twenty passes over (nodes, views, hidden). Batch norm couples the nodes, so with it
there is a pass for its statistics before, and one for its gradient after.

Matrices hold views side by side, (nodes, views · hidden), with ``hidden`` and ``classes`` padded.
Nodes are cut into pieces whose sums are added in order: results do not depend on the threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dropnode.ops.kernels.jit import kernel
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


@dataclass(frozen=True)
class Task:
    """What the rows are compared with.

    Attributes
    ----------
    labels : array of int64 (n,)
        The class of a node that is learnt from; anything elsewhere.
    label_weights : array of float32 (n,)
        What a node's cross-entropy counts for; zero where its label is not learnt from.
    consistency_weight : float
        What a node's squared distance to the sharpened average counts for.
    temperature : float
    """

    labels: np.ndarray
    label_weights: np.ndarray
    consistency_weight: float
    temperature: float


@dataclass(frozen=True)
class Layer:
    """The parameters after the first linear map, padded; batch norm's as a scale and a shift."""

    bias1: np.ndarray  # (1, views · hidden): views may differ by a constant
    weight2: np.ndarray  # (hidden, classes)
    bias2: np.ndarray  # (1, classes)
    classes: int
    scale: np.ndarray | None = None  # (1, views · hidden)
    shift: np.ndarray | None = None


@dataclass
class Gradients:
    """Losses, summed over nodes and views, and their gradients."""

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
) -> Gradients:
    """Compute losses and gradients from the first linear map's products.

    Parameters
    ----------
    first : array (n, views · hidden)
    layer : Layer
    hidden_words : array of uint64 (views · n, words)
        Dropout's bits, view after view; no columns to drop nothing.
    keep_rate : float
        What those bits are one with.
    task : Task
    out : array (n, views · hidden)
        Takes the gradient of ``first``; with batch norm that of its output, see
        :func:`through_norm`. May be ``first`` itself without batch norm.
    """
    hidden, classes = layer.weight2.shape
    normed = layer.scale is not None
    scale = layer.scale if layer.scale is not None else np.empty((1, 0), np.float32)
    shift = layer.shift if layer.shift is not None else np.empty((1, 0), np.float32)
    transposed = np.ascontiguousarray(layer.weight2[:, : layer.classes].T)
    pieces = ranges(len(first), PIECES)
    losses = np.zeros((len(pieces), 2))
    bias1 = np.zeros((len(pieces), 1, first.shape[1]), np.float32)
    weight2 = np.zeros((len(pieces), layer.classes, hidden), np.float32)
    bias2 = np.zeros((len(pieces), 1, classes), np.float32)
    norms = np.zeros((len(pieces), 2, first.shape[1] if normed else 0), np.float32)

    bounds = np.array([start for start, _ in pieces] + [len(first)])

    given = (
        first,
        layer.bias1,
        scale,
        shift,
        layer.weight2,
        transposed,
        layer.bias2,
        hidden_words,
        np.float32(1.0 / keep_rate),
        task.labels,
        task.label_weights,
        np.float32(task.consistency_weight),
        np.float32(1.0 / task.temperature),
    )

    def several(group: tuple[int, int]) -> None:
        _learn_pieces(given, bounds, *group, out, losses, bias1, weight2, bias2, norms)

    # Few calls, each of several pieces: a thread that goes from one to the next has to wait for the
    # interpreter in between.
    in_parallel(several, ranges(len(pieces), kernel_threads()))
    supervised, consistency = losses.sum(axis=0)
    shift_gradient, scale_gradient = norms.sum(axis=0)
    return Gradients(
        float(supervised),
        float(consistency),
        bias1.sum(axis=0)[0],
        weight2.sum(axis=0).T,
        bias2.sum(axis=0)[0],
        scale_gradient,
        shift_gradient,
    )


def activation_statistics(first: np.ndarray, bias1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and (biased) variance over nodes of ReLU(first + bias), view by view."""
    # The mean first, then the squares around it: their difference would lose what is small.
    mean = _mean(first, bias1, np.zeros(bias1.shape, np.float32), squared=False)
    centre = mean.astype(np.float32)[None]
    around = mean - centre[0]
    return mean, _mean(first, bias1, centre, squared=True) - around**2


def _mean(first: np.ndarray, bias1: np.ndarray, centre: np.ndarray, *, squared: bool) -> np.ndarray:
    pieces = ranges(len(first), PIECES)
    sums = np.zeros((len(pieces), first.shape[1]), np.float64)
    in_parallel(
        lambda k: _sums(first, bias1, centre, squared, *pieces[k], sums[k]), range(len(pieces))
    )
    mean: np.ndarray = sums.sum(axis=0) / len(first)
    return mean


def through_norm(
    first: np.ndarray,
    bias1: np.ndarray,
    factor: np.ndarray,
    slope: np.ndarray,
    offset: np.ndarray,
    gradient: np.ndarray,
) -> np.ndarray:
    """Turn the gradient of batch norm's output into that of ``first``, in place.

    The gradient of a column is ``factor · gradient + slope · activation + offset`` where the ReLU
    is open; the three are (1, views · hidden). Returns the gradient of the bias.
    """
    pieces = ranges(len(first), PIECES)
    sums = np.zeros((len(pieces), 1, bias1.shape[1]), np.float32)
    in_parallel(
        lambda k: _through_norm(first, bias1, factor, slope, offset, *pieces[k], gradient, sums[k]),
        range(len(pieces)),
    )
    return sums.sum(axis=0)[0]


@kernel
def _learn_pieces(  # type: ignore[no-untyped-def]
    given, bounds, first_piece, stop_piece, out, losses, bias1, weight2, bias2, norms
):
    for piece in range(first_piece, stop_piece):
        _learn(
            *given,
            bounds[piece],
            bounds[piece + 1],
            out,
            losses[piece],
            bias1[piece],
            weight2[piece],
            bias2[piece],
            norms[piece],
        )


@kernel
def _learn(  # type: ignore[no-untyped-def]
    first,
    bias1,
    scale,
    shift,
    weight2,
    transposed,
    bias2,
    hidden_words,
    boost,
    labels,
    label_weights,
    consistency_weight,
    sharpness,
    start,
    stop,
    out,
    losses,
    bias1_sums,
    weight2_sums,
    bias2_sums,
    norm_sums,
):
    nodes, width = first.shape
    hidden, padded_classes = weight2.shape
    classes = len(transposed)
    views = width // hidden
    normed = scale.shape[1] > 0
    dropping = hidden_words.shape[1] > 0
    agreeing = consistency_weight != 0
    bits = ~np.uint64(0)
    nothing = splat(16, np.float32(0))
    boosted = splat(16, boost)
    active = np.empty((views, hidden), np.float32)
    chances = np.empty((views, padded_classes), np.float32)
    logs = np.empty((1, padded_classes), np.float32)
    average = np.empty((1, padded_classes), np.float32)
    slopes = np.zeros((1, padded_classes), np.float32)
    doubled = splat(16, np.float32(2 * consistency_weight))
    power = splat(16, sharpness)
    supervised = 0.0
    consistency = 0.0
    for node in range(start, stop):
        weight = label_weights[node]
        label = labels[node]
        average[:] = 0
        squares = nothing
        for view in range(views):
            for column in range(0, hidden, 16):
                place = view * hidden + column
                value = load(16, first, node, place) + load(16, bias1, 0, place)
                value = where_positive(value, value)
                if normed:
                    value = value * load(16, scale, 0, place) + load(16, shift, 0, place)
                if dropping:
                    bits = hidden_words[view * nodes + node, column >> 6] >> np.uint64(column & 63)
                store(keep(bits, value * boosted), active, view, column)
            top = np.float32(-np.inf)
            for block in range(0, padded_classes, 16):
                # Four sums at a time: one alone would wait for its own last addition.
                one, two, three, four = load(16, bias2, 0, block), nothing, nothing, nothing
                for unit in range(0, hidden, 4):
                    one = add_scaled(one, active[view, unit], load(16, weight2, unit, block))
                    two = add_scaled(
                        two, active[view, unit + 1], load(16, weight2, unit + 1, block)
                    )
                    three = add_scaled(
                        three, active[view, unit + 2], load(16, weight2, unit + 2, block)
                    )
                    four = add_scaled(
                        four, active[view, unit + 3], load(16, weight2, unit + 3, block)
                    )
                logits = (one + two) + (three + four)
                store(logits, logs, 0, block)
                top = max(top, largest(logits))
            normaliser = np.float32(0)
            for block in range(0, padded_classes, 16):
                raised = exponential(load(16, logs, 0, block) - splat(16, top))
                normaliser += total(raised)
                store(raised, chances, view, block)
            inverse = splat(16, np.float32(1) / normaliser)
            for block in range(0, padded_classes, 16):
                chance = load(16, chances, view, block) * inverse
                store(chance, chances, view, block)
                store(load(16, average, 0, block) + chance, average, 0, block)
            if weight != 0:
                supervised -= weight * (logs[0, label] - top - math.log(normaliser))
        if agreeing:
            # Sharpened as ratios to the largest, so that the sum cannot underflow to zero.
            top = np.float32(0)
            for block in range(0, padded_classes, 16):
                top = max(top, largest(load(16, average, 0, block)))
            inverse = splat(16, np.float32(1) / top)
            normaliser = np.float32(0)
            for block in range(0, padded_classes, 16):
                ratio = load(16, average, 0, block) * inverse
                sharp = exponential(logarithm(ratio) * power)
                normaliser += total(sharp)
                store(sharp, average, 0, block)
            inverse = splat(16, np.float32(1) / normaliser)
            for block in range(0, padded_classes, 16):
                store(load(16, average, 0, block) * inverse, average, 0, block)
        for view in range(views):
            pull = np.float32(0)
            if agreeing:
                for block in range(0, padded_classes, 16):
                    chance = load(16, chances, view, block)
                    distance = chance - load(16, average, 0, block)
                    squares = squares + distance * distance
                    slope = distance * doubled
                    pull += total(slope * chance)
                    store(slope, slopes, 0, block)
            for block in range(0, padded_classes, 16):
                slope = splat(16, weight - pull)
                if agreeing:
                    slope = slope + load(16, slopes, 0, block)
                store(slope * load(16, chances, view, block), slopes, 0, block)
            if weight != 0:
                slopes[0, label] -= weight
            for block in range(0, padded_classes, 16):
                summed = load(16, bias2_sums, 0, block) + load(16, slopes, 0, block)
                store(summed, bias2_sums, 0, block)
            for column in range(0, hidden, 16):
                place = view * hidden + column
                value = load(16, active, view, column)
                gradient = nothing
                for c in range(classes):
                    gradient = add_scaled(gradient, slopes[0, c], load(16, transposed, c, column))
                    summed = add_scaled(load(16, weight2_sums, c, column), slopes[0, c], value)
                    store(summed, weight2_sums, c, column)
                gradient = gradient * boosted
                if normed:
                    if dropping:
                        bits = hidden_words[view * nodes + node, column >> 6]
                        gradient = keep(bits >> np.uint64(column & 63), gradient)
                    relu = load(16, first, node, place) + load(16, bias1, 0, place)
                    relu = where_positive(relu, relu)
                    store(load(16, norm_sums, 0, place) + gradient, norm_sums, 0, place)
                    store(load(16, norm_sums, 1, place) + gradient * relu, norm_sums, 1, place)
                else:
                    # Positive where neither the ReLU nor dropout made it zero.
                    gradient = where_positive(value, gradient)
                    store(load(16, bias1_sums, 0, place) + gradient, bias1_sums, 0, place)
                store(gradient, out, node, place)
        consistency += total(squares)
    losses[0] = supervised
    losses[1] = consistency


@kernel
def _sums(first, bias1, centre, squared, start, stop, sums):  # type: ignore[no-untyped-def]
    part = np.empty((1, 16), np.float32)
    for place in range(0, first.shape[1], 16):
        bias, middle = load(16, bias1, 0, place), load(16, centre, 0, place)
        # Short sums in float32, their sum in float64.
        for block in range(start, stop, 128):
            added = splat(16, np.float32(0))
            for node in range(block, min(block + 128, stop)):
                value = load(16, first, node, place) + bias
                value = where_positive(value, value) - middle
                added = added + (value * value if squared else value)
            store(added, part, 0, 0)
            for lane in range(16):
                sums[place + lane] += part[0, lane]


@kernel
def _through_norm(first, bias1, factor, slope, offset, start, stop, gradient, sums):  # type: ignore[no-untyped-def]
    for node in range(start, stop):
        for place in range(0, first.shape[1], 16):
            value = load(16, first, node, place) + load(16, bias1, 0, place)
            passed = (
                load(16, gradient, node, place) * load(16, factor, 0, place)
                + value * load(16, slope, 0, place)
                + load(16, offset, 0, place)
            )
            passed = where_positive(value, passed)
            store(passed, gradient, node, place)
            store(load(16, sums, 0, place) + passed, sums, 0, place)


def pad_bias2(bias2: np.ndarray) -> np.ndarray:
    """Return the second bias padded so that no padded class has a chance."""
    wide = np.full((1, padded(len(bias2))), -1e30, dtype=np.float32)
    wide[0, : len(bias2)] = bias2
    return wide


assert LANES == 16, "the kernels above count in vectors of 16"
