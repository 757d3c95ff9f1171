"""Graph attention and its gradients, without a message for every edge.

A head of attention gives the edge from node j to node i the score leaky(source_j + target_i), where
``source`` and ``target`` are products of the node's row with two learnt vectors. A softmax over the
edges of i turns scores into weights, some of which are dropped, and i receives the weighted sum of
its senders' rows.

Rows have all heads next to each other, each padded with zeros to whole vectors. What has one number
per head is padded to whole vectors of ``HEADS``. The forward pass and the sums of the backward pass
go from receiver to receiver, and the rest of the backward pass from sender to sender. So every
number has one writer, and the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dropnode.ops.kernels.jit import inlined, kernel
from dropnode.ops.kernels.memory import aligned
from dropnode.ops.kernels.simd import (
    add_scaled,
    exponential,
    larger,
    load,
    splat,
    store,
    total,
    where_positive,
)
from dropnode.ops.kernels.threads import in_parallel, kernel_threads, ranges

HEADS = 8
"""What has a number per head is padded to a multiple of this."""

BLOCK = 256
"""Gradients of the learnt vectors are summed over so many nodes at a time."""

WORTHWHILE = 2**17
"""How many numbers of messages a thread should have to add up, so that waking it pays."""

Pattern = tuple[np.ndarray, np.ndarray]
"""The starts of rows, and the column of each entry: who sends to a node, or who receives from it."""


def lanes_for(width: int) -> int:
    """Return the lanes of the vectors that a head of this width is cut into."""
    return 4 if width <= 4 else 8


def scores(
    pattern: Pattern, x: np.ndarray, vectors: np.ndarray, heads: int, lanes: int
) -> np.ndarray:
    """Return the products of every node's heads with two learnt vectors (2, nodes, heads)."""
    out = aligned(2, len(x), _padded(heads))
    in_parallel(partial(_SCORES[lanes], x, vectors, heads, *out), _pieces(pattern, x.shape))
    return out


def attend(
    pattern: Pattern,
    x: np.ndarray,
    scored: np.ndarray,
    kept: np.ndarray,
    scale: float,
    slope: float,
    heads: int,
    lanes: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return what every node receives, and the softmax's largest score and reciprocal sum.

    Parameters
    ----------
    pattern : Pattern
        Who sends to each node.
    x : ndarray (nodes, heads * width)
    scored : ndarray (2, nodes, heads)
        From :func:`scores`: of the node as a sender, and as a receiver.
    kept : ndarray of bool (edges, heads)
        Which weights are not dropped; without rows, all are kept.
    scale : float
        The factor on weights that are kept.
    slope : float
        Of the leaky ReLU.
    """
    out, normalisers = aligned(*x.shape), aligned(*scored.shape)
    work = partial(
        _ATTEND[lanes], *pattern, x, *scored, kept, scale, slope, heads, *normalisers, out
    )
    in_parallel(work, _pieces(pattern, x.shape))
    return out, normalisers


def gradients(
    pattern: Pattern,
    transposed: tuple[np.ndarray, np.ndarray, np.ndarray],
    x: np.ndarray,
    vectors: np.ndarray,
    scored: np.ndarray,
    normalisers: np.ndarray,
    out: np.ndarray,
    gradient: np.ndarray,
    kept: np.ndarray,
    scale: float,
    slope: float,
    heads: int,
    lanes: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients of x, and of both learnt vectors, for that of :func:`attend`'s result.

    ``transposed`` has the receivers of every sender, and the place of each of these edges in the
    order by receivers.
    """
    nodes, padded = len(x), _padded(heads)
    overlaps, sums = aligned(nodes, padded), aligned(2, nodes, padded)
    of_scores = aligned(len(pattern[1]), padded)
    of_x = aligned(*x.shape)
    of_vectors = aligned(-(-nodes // BLOCK), 2, x.shape[1])
    pieces = _pieces(pattern, x.shape)
    in_parallel(partial(_OVERLAPS[lanes], gradient, out, heads, overlaps), pieces)
    fixed = x, *scored, *normalisers, gradient, overlaps, kept, scale, slope, heads
    work = partial(_RETURN[lanes], *transposed, *fixed, of_scores, sums[0], of_x)
    in_parallel(work, pieces)
    work = partial(_FINISH[lanes], pattern[0], x, vectors, of_scores, *sums, heads, of_x)
    in_parallel(partial(work, of_vectors), pieces)
    return of_x, of_vectors.sum(axis=0)


def _padded(heads: int) -> int:
    return -(-heads // HEADS) * HEADS


def _pieces(pattern: Pattern, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    threads = min(kernel_threads(), 1 + len(pattern[1]) * shape[1] // WORTHWHILE)
    return ranges(shape[0], threads, BLOCK)


@inlined
def _leaky(condition, vector, slope):  # type: ignore[no-untyped-def]
    """Return the lanes where the condition is positive, and ``slope`` times the lanes elsewhere."""
    positive = where_positive(condition, vector)
    return positive + slope * (vector - positive)


def _scores(lanes: int) -> Callable[..., Any]:
    @kernel
    def scores(x, vectors, heads, sources, targets, piece):  # type: ignore[no-untyped-def]
        width = x.shape[1] // heads
        for node in range(piece[0], piece[1]):
            for block in range(0, sources.shape[1], HEADS):
                store(splat(HEADS, np.float32(0)), sources, node, block)
                store(splat(HEADS, np.float32(0)), targets, node, block)
            for head in range(heads):
                source = splat(lanes, np.float32(0))
                target = splat(lanes, np.float32(0))
                for column in range(head * width, (head + 1) * width, lanes):
                    row = load(lanes, x, node, column)
                    source = source + row * load(lanes, vectors, 0, column)
                    target = target + row * load(lanes, vectors, 1, column)
                sources[node, head] = total(source)
                targets[node, head] = total(target)

    return scores


def _attend(lanes: int) -> Callable[..., Any]:
    @kernel
    def attend(  # type: ignore[no-untyped-def]
        starts, columns, x, sources, targets, kept, scale, slope, heads, peaks, shares, out, piece
    ):
        width = x.shape[1] // heads
        padded = sources.shape[1]
        drops = len(kept) > 0
        slopes = splat(HEADS, np.float32(slope))
        weights = np.empty((1, padded), dtype=np.float32)
        for node in range(piece[0], piece[1]):
            for block in range(0, padded, HEADS):
                # The leaky ReLU never decreases, so that the largest sum has the largest score.
                target = load(HEADS, targets, node, block)
                peak = splat(HEADS, np.float32(-np.inf))
                for edge in range(starts[node], starts[node + 1]):
                    source = load(HEADS, sources, columns[edge], block)
                    peak = larger(source, peak)
                summed = peak + target
                store(_leaky(summed, summed, slopes), peaks, node, block)
                store(splat(HEADS, np.float32(0)), shares, node, block)
            for column in range(0, x.shape[1], lanes):
                store(splat(lanes, np.float32(0)), out, node, column)
            for edge in range(starts[node], starts[node + 1]):
                sender = columns[edge]
                for block in range(0, padded, HEADS):
                    summed = load(HEADS, sources, sender, block) + load(HEADS, targets, node, block)
                    score = _leaky(summed, summed, slopes)
                    weight = exponential(score - load(HEADS, peaks, node, block))
                    store(weight, weights, 0, block)
                    store(load(HEADS, shares, node, block) + weight, shares, node, block)
                for head in range(heads):
                    weight = weights[0, head]
                    if drops:
                        weight *= np.float32(kept[edge, head])
                    for column in range(head * width, (head + 1) * width, lanes):
                        received = load(lanes, out, node, column)
                        received = add_scaled(received, weight, load(lanes, x, sender, column))
                        store(received, out, node, column)
            for head in range(heads):
                share = np.float32(1) / shares[node, head]
                shares[node, head] = share
                factor = splat(lanes, share * np.float32(scale))
                for column in range(head * width, (head + 1) * width, lanes):
                    store(load(lanes, out, node, column) * factor, out, node, column)

    return attend


def _overlaps(lanes: int) -> Callable[..., Any]:
    @kernel
    def overlaps(gradient, out, heads, overlaps, piece):  # type: ignore[no-untyped-def]
        # The sum over a node's edges of weight times gradient of the weight.
        width = out.shape[1] // heads
        for node in range(piece[0], piece[1]):
            for block in range(0, overlaps.shape[1], HEADS):
                store(splat(HEADS, np.float32(0)), overlaps, node, block)
            for head in range(heads):
                overlap = splat(lanes, np.float32(0))
                for column in range(head * width, (head + 1) * width, lanes):
                    overlap = overlap + load(lanes, gradient, node, column) * load(
                        lanes, out, node, column
                    )
                overlaps[node, head] = total(overlap)

    return overlaps


def _return(lanes: int) -> Callable[..., Any]:
    @kernel
    def returned(  # type: ignore[no-untyped-def]
        starts,
        receivers,
        places,
        x,
        sources,
        targets,
        peaks,
        shares,
        gradient,
        overlaps,
        kept,
        scale,
        slope,
        heads,
        of_scores,
        of_sources,
        of_x,
        piece,
    ):
        width = x.shape[1] // heads
        padded = sources.shape[1]
        drops = len(kept) > 0
        slopes = splat(HEADS, np.float32(slope))
        weights = np.empty((1, padded), dtype=np.float32)
        of_weights = np.zeros((1, padded), dtype=np.float32)
        for node in range(piece[0], piece[1]):
            for block in range(0, padded, HEADS):
                store(splat(HEADS, np.float32(0)), of_sources, node, block)
            for column in range(0, x.shape[1], lanes):
                store(splat(lanes, np.float32(0)), of_x, node, column)
            for entry in range(starts[node], starts[node + 1]):
                receiver, edge = receivers[entry], places[entry]
                for block in range(0, padded, HEADS):
                    summed = load(HEADS, sources, node, block) + load(
                        HEADS, targets, receiver, block
                    )
                    score = _leaky(summed, summed, slopes)
                    weight = exponential(score - load(HEADS, peaks, receiver, block))
                    store(weight * load(HEADS, shares, receiver, block), weights, 0, block)
                for head in range(heads):
                    factor = np.float32(scale)
                    if drops:
                        factor *= np.float32(kept[edge, head])
                    weight = weights[0, head] * factor
                    product = splat(lanes, np.float32(0))
                    for column in range(head * width, (head + 1) * width, lanes):
                        row = load(lanes, gradient, receiver, column)
                        product = product + row * load(lanes, x, node, column)
                        sent = add_scaled(load(lanes, of_x, node, column), weight, row)
                        store(sent, of_x, node, column)
                    of_weights[0, head] = total(product) * factor
                for block in range(0, padded, HEADS):
                    summed = load(HEADS, sources, node, block) + load(
                        HEADS, targets, receiver, block
                    )
                    centred = load(HEADS, of_weights, 0, block) - load(
                        HEADS, overlaps, receiver, block
                    )
                    of_score = _leaky(summed, load(HEADS, weights, 0, block) * centred, slopes)
                    store(of_score, of_scores, edge, block)
                    store(load(HEADS, of_sources, node, block) + of_score, of_sources, node, block)

    return returned


def _finish(lanes: int) -> Callable[..., Any]:
    @kernel
    def finish(  # type: ignore[no-untyped-def]
        starts, x, vectors, of_scores, of_sources, of_targets, heads, of_x, of_vectors, piece
    ):
        width = x.shape[1] // heads
        for node in range(piece[0], piece[1]):
            part = node // BLOCK
            if node % BLOCK == 0:
                for column in range(x.shape[1]):
                    of_vectors[part, 0, column] = np.float32(0)
                    of_vectors[part, 1, column] = np.float32(0)
            for block in range(0, of_targets.shape[1], HEADS):
                of_target = splat(HEADS, np.float32(0))
                for edge in range(starts[node], starts[node + 1]):
                    of_target = of_target + load(HEADS, of_scores, edge, block)
                store(of_target, of_targets, node, block)
            sums = of_vectors[part]
            for head in range(heads):
                of_source, of_target = of_sources[node, head], of_targets[node, head]
                for column in range(head * width, (head + 1) * width, lanes):
                    row = load(lanes, x, node, column)
                    sent = load(lanes, of_x, node, column)
                    sent = add_scaled(sent, of_source, load(lanes, vectors, 0, column))
                    sent = add_scaled(sent, of_target, load(lanes, vectors, 1, column))
                    store(sent, of_x, node, column)
                    store(add_scaled(load(lanes, sums, 0, column), of_source, row), sums, 0, column)
                    store(add_scaled(load(lanes, sums, 1, column), of_target, row), sums, 1, column)

    return finish


_SCORES = {lanes: _scores(lanes) for lanes in (4, 8)}
_ATTEND = {lanes: _attend(lanes) for lanes in (4, 8)}
_OVERLAPS = {lanes: _overlaps(lanes) for lanes in (4, 8)}
_RETURN = {lanes: _return(lanes) for lanes in (4, 8)}
_FINISH = {lanes: _finish(lanes) for lanes in (4, 8)}
