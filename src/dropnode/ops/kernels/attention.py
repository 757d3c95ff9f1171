"""Graph attention and its gradients, without a message for every edge.

A head of attention gives the edge from node j to node i the score leaky(source_j + target_i), where
``source`` and ``target`` are products of a node's row with two learnt vectors. A softmax over the
edges of i turns scores into weights, some of which are dropped, and i receives the weighted sum of
its senders' rows.

The forward pass goes from receiver to receiver. The backward pass goes from sender to sender, and
recomputes the weights, which takes less time than reading them. So every number has one writer, and
the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from dropnode.ops.kernels.jit import inlined, kernel
from dropnode.ops.kernels.memory import aligned
from dropnode.ops.kernels.simd import (
    exponential,
    group_totals,
    larger,
    load,
    load_flags,
    prefetch,
    repeat,
    splat,
    store,
    where_positive,
)
from dropnode.ops.kernels.threads import even_ranges, in_parallel, kernel_threads

GROUP = 8
"""The most heads that are computed together."""

WIDE = 64
"""The most columns that are computed together."""

AHEAD = 8
"""How many edges before its use a row is prefetched."""

BLOCK = 256
"""Gradients of the learnt vectors are summed over so many nodes at a time."""

WORTHWHILE = 2**17
"""How many numbers of messages a thread should have to add up, so that waking it pays."""


@dataclass(frozen=True)
class Layout:
    """How the heads of a row lie in memory, so that vectors hold several heads.

    A group of heads has its first ``lanes`` columns side by side, then the next, and so on. Missing
    heads and columns are zero. A row of 8 heads of 8 columns is as it was.

    Attributes
    ----------
    heads : int
    width : int
        The columns of a head.
    """

    heads: int
    width: int

    @cached_property
    def group(self) -> int:
        """How many heads are computed together."""
        return min(GROUP, _power_of_two(self.heads))

    @cached_property
    def lanes(self) -> int:
        """How many columns of each of them."""
        return min(WIDE // self.group, _power_of_two(self.width))

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """Groups, parts of a head, heads of a group, lanes."""
        groups, parts = -(-self.heads // self.group), -(-self.width // self.lanes)
        return groups, parts, self.group, self.lanes

    @property
    def padded_heads(self) -> int:
        """The number of heads with those that are missing."""
        return self.shape[0] * self.group


class Attention:
    """One pass of attention over a graph, and back.

    Parameters
    ----------
    starts, senders : ndarray
        The edges by receiver: where those of a node start, and who sends.
    rows : ndarray (nodes, columns)
        What nodes send, in the layout.
    vectors : ndarray (2, columns)
        The learnt vectors for senders and for receivers, in the layout.
    layout : Layout
    slope : float
        Of the leaky ReLU.
    flags : ndarray of bool (edges + GROUP, heads)
        Which weights are kept; without rows, all are. The last rows are not used, but read.
    scale : float
        The factor on weights that are kept.
    """

    def __init__(
        self,
        starts: np.ndarray,
        senders: np.ndarray,
        rows: np.ndarray,
        vectors: np.ndarray,
        layout: Layout,
        slope: float,
        flags: np.ndarray,
        scale: float,
    ) -> None:
        self.starts, self.senders, self.rows, self.vectors = starts, senders, rows, vectors
        self.kernels = _kernels(layout.group, layout.lanes)
        self.options = slope, flags, scale
        self.padded_heads = layout.padded_heads
        self.sources = aligned(len(rows), self.padded_heads)
        # Of a receiver, side by side because they are read together, and for each group of heads:
        # its part of the score, its largest score, 1 / the sum of the softmax, and the sum over its
        # edges of weight times gradient of the weight.
        self.targets = aligned(len(rows), 4 * self.padded_heads)

    def forward(self) -> np.ndarray:
        """Return what every node receives (nodes, columns)."""
        out = aligned(*self.rows.shape)
        given = self.rows, self.sources, self.targets
        self._run(self.kernels.scores, *given, self.vectors)
        self._run(self.kernels.attend, self.starts, self.senders, *given, *self.options, out)
        return out

    def backward(
        self,
        by_sender: tuple[np.ndarray, np.ndarray, np.ndarray],
        out: np.ndarray,
        gradient: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradients of the rows and of the learnt vectors.

        Parameters
        ----------
        by_sender : tuple of ndarray
            Where the edges of a sender start, who receives, and their places in the order by
            receiver.
        out, gradient : ndarray (nodes, columns)
            The result of the forward pass, and its gradient.
        """
        rows, sources, targets = self.rows, self.sources, self.targets
        of_rows, of_sources = aligned(*rows.shape), aligned(*sources.shape)
        of_vectors = aligned(-(-len(rows) // BLOCK), 2, rows.shape[1])
        of_edges = aligned(len(self.senders), self.padded_heads)
        self._run(self.kernels.overlaps, gradient, out, targets)
        given = rows, sources, targets, *self.options, gradient
        self._run(self.kernels.send_back, *by_sender, *given, of_edges, of_sources, of_rows)
        found = of_edges, of_sources, of_rows, of_vectors
        self._run(self.kernels.finish, self.starts, rows, self.vectors, *found)
        return of_rows, of_vectors.sum(axis=0)

    def _run(self, function: Callable[..., Any], *arguments: Any) -> None:
        work = len(self.senders) * self.rows.shape[1]
        threads = min(kernel_threads(), 1 + work // WORTHWHILE)
        in_parallel(partial(function, *arguments), even_ranges(self.starts, threads, BLOCK))


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below a number."""
    return 1 << (number - 1).bit_length()


@inlined
def _leaky(condition, vector, slope):  # type: ignore[no-untyped-def]
    """Return the lanes where the condition is positive, and ``slope`` times the lanes elsewhere."""
    positive = where_positive(condition, vector)
    return positive + slope * (vector - positive)


def _scores(group: int, lanes: int) -> Callable[..., Any]:
    wide = group * lanes

    @kernel
    def scores(rows, sources, targets, vectors, piece):  # type: ignore[no-untyped-def]
        span = rows.shape[1] // (sources.shape[1] // group)
        for node in range(piece[0], piece[1]):
            for head in range(0, sources.shape[1], group):
                source = splat(group, np.float32(0))
                target = splat(group, np.float32(0))
                first = head // group * span
                for column in range(first, first + span, wide):
                    row = load(wide, rows, node, column)
                    source = source + group_totals(row * load(wide, vectors, 0, column), lanes)
                    target = target + group_totals(row * load(wide, vectors, 1, column), lanes)
                store(source, sources, node, head)
                store(target, targets, node, 4 * head)

    return scores


def _attend(group: int, lanes: int) -> Callable[..., Any]:
    wide = group * lanes

    @kernel
    def attend(  # type: ignore[no-untyped-def]
        starts,
        senders,
        rows,
        sources,
        targets,
        slope,
        flags,
        scale,
        out,
        piece,
    ):
        span = rows.shape[1] // (sources.shape[1] // group)
        slopes = splat(group, np.float32(slope))
        last = len(senders) - 1
        for node in range(piece[0], piece[1]):
            for head in range(0, sources.shape[1], group):
                first = head // group * span
                target = load(group, targets, node, 4 * head)
                peak = splat(group, np.float32(-np.inf))
                for edge in range(starts[node], starts[node + 1]):
                    peak = larger(load(group, sources, senders[edge], head), peak)
                # The leaky ReLU never decreases, so that the largest sum has the largest score.
                peak = _leaky(peak + target, peak + target, slopes)
                for column in range(first, first + span, wide):
                    store(splat(wide, np.float32(0)), out, node, column)
                summed = splat(group, np.float32(0))
                for edge in range(starts[node], starts[node + 1]):
                    sender, later = senders[edge], senders[min(edge + AHEAD, last)]
                    for column in range(first, first + span, wide):
                        prefetch(wide, rows, later, column)
                    score = load(group, sources, sender, head) + target
                    weight = exponential(_leaky(score, score, slopes) - peak)
                    summed = summed + weight
                    if len(flags) > 0:
                        weight = weight * load_flags(group, flags, edge, head)
                    factors = repeat(weight, lanes)
                    for column in range(first, first + span, wide):
                        message = factors * load(wide, rows, sender, column)
                        store(load(wide, out, node, column) + message, out, node, column)
                share = splat(group, np.float32(1)) / summed
                store(peak, targets, node, 4 * head + group)
                store(share, targets, node, 4 * head + 2 * group)
                factors = repeat(share * splat(group, np.float32(scale)), lanes)
                for column in range(first, first + span, wide):
                    store(load(wide, out, node, column) * factors, out, node, column)

    return attend


def _overlaps(group: int, lanes: int) -> Callable[..., Any]:
    wide = group * lanes

    @kernel
    def overlaps(gradient, out, targets, piece):  # type: ignore[no-untyped-def]
        heads = targets.shape[1] // 4
        span = out.shape[1] // (heads // group)
        for node in range(piece[0], piece[1]):
            for head in range(0, heads, group):
                overlap = splat(group, np.float32(0))
                first = head // group * span
                for column in range(first, first + span, wide):
                    product = load(wide, gradient, node, column) * load(wide, out, node, column)
                    overlap = overlap + group_totals(product, lanes)
                store(overlap, targets, node, 4 * head + 3 * group)

    return overlaps


def _send_back(group: int, lanes: int) -> Callable[..., Any]:
    wide, facts = group * lanes, 4 * group

    @kernel
    def send_back(  # type: ignore[no-untyped-def]
        starts,
        receivers,
        places,
        rows,
        sources,
        targets,
        slope,
        flags,
        scale,
        gradient,
        of_edges,
        of_sources,
        of_rows,
        piece,
    ):
        span = rows.shape[1] // (sources.shape[1] // group)
        slopes = splat(group, np.float32(slope))
        last = len(receivers) - 1
        for node in range(piece[0], piece[1]):
            for head in range(0, sources.shape[1], group):
                first = head // group * span
                source = load(group, sources, node, head)
                of_source = splat(group, np.float32(0))
                for column in range(first, first + span, wide):
                    store(splat(wide, np.float32(0)), of_rows, node, column)
                for entry in range(starts[node], starts[node + 1]):
                    receiver, edge = receivers[entry], places[entry]
                    later = min(entry + AHEAD, last)
                    for column in range(first, first + span, wide):
                        prefetch(wide, gradient, receivers[later], column)
                    prefetch(facts, targets, receivers[later], 4 * head)
                    prefetch(group, of_edges, places[later], head)
                    prefetch(1, flags, places[later], head)
                    score = source + load(group, targets, receiver, 4 * head)
                    peak = load(group, targets, receiver, 4 * head + group)
                    share = load(group, targets, receiver, 4 * head + 2 * group)
                    overlap = load(group, targets, receiver, 4 * head + 3 * group)
                    weight = exponential(_leaky(score, score, slopes) - peak) * share
                    factor = splat(group, np.float32(scale))
                    if len(flags) > 0:
                        factor = factor * load_flags(group, flags, edge, head)
                    factors = repeat(weight * factor, lanes)
                    product = splat(group, np.float32(0))
                    for column in range(first, first + span, wide):
                        row = load(wide, gradient, receiver, column)
                        products = row * load(wide, rows, node, column)
                        product = product + group_totals(products, lanes)
                        sent = load(wide, of_rows, node, column) + factors * row
                        store(sent, of_rows, node, column)
                    of_edge = _leaky(score, weight * (product * factor - overlap), slopes)
                    store(of_edge, of_edges, edge, head)
                    of_source = of_source + of_edge
                store(of_source, of_sources, node, head)

    return send_back


def _finish(group: int, lanes: int) -> Callable[..., Any]:
    wide = group * lanes

    @kernel
    def finish(  # type: ignore[no-untyped-def]
        starts, rows, vectors, of_edges, of_sources, of_rows, of_vectors, piece
    ):
        span = rows.shape[1] // (of_sources.shape[1] // group)
        for node in range(piece[0], piece[1]):
            sums = of_vectors[node // BLOCK]
            if node % BLOCK == 0:
                sums[:] = np.float32(0)
            for head in range(0, of_sources.shape[1], group):
                of_target = splat(group, np.float32(0))
                for edge in range(starts[node], starts[node + 1]):
                    of_target = of_target + load(group, of_edges, edge, head)
                sources = repeat(load(group, of_sources, node, head), lanes)
                targets = repeat(of_target, lanes)
                first = head // group * span
                for column in range(first, first + span, wide):
                    row = load(wide, rows, node, column)
                    sent = load(wide, of_rows, node, column)
                    sent = sent + sources * load(wide, vectors, 0, column)
                    sent = sent + targets * load(wide, vectors, 1, column)
                    store(sent, of_rows, node, column)
                    store(load(wide, sums, 0, column) + sources * row, sums, 0, column)
                    store(load(wide, sums, 1, column) + targets * row, sums, 1, column)

    return finish


@dataclass(frozen=True)
class _Kernels:
    scores: Callable[..., Any]
    attend: Callable[..., Any]
    overlaps: Callable[..., Any]
    send_back: Callable[..., Any]
    finish: Callable[..., Any]


@cache
def _kernels(group: int, lanes: int) -> _Kernels:
    makers = _scores, _attend, _overlaps, _send_back, _finish
    return _Kernels(*(maker(group, lanes) for maker in makers))
