"""Products of the features of all views with weights; what a view drops is masked by bits.

Used where the first layer commutes with propagation, so that raw features are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dropnode.ops.kernels.bits import has_bit
from dropnode.ops.kernels.jit import kernel
from dropnode.ops.kernels.simd import add_scaled, load, splat, store
from dropnode.ops.kernels.sparse import Csr, widest
from dropnode.ops.kernels.threads import even_ranges, in_parallel, kernel_threads


def multiply_views(
    features: Csr,
    weights: np.ndarray,
    node_words: np.ndarray,
    entry_words: np.ndarray,
    scale: float,
    out: np.ndarray,
) -> None:
    """Write scale · (mask ⊙ X) W of every view into ``out`` (nodes, views · hidden).

    ``weights`` is (views, features, hidden), or (1, features, hidden) for the same in all views.
    """
    hidden = weights.shape[2]
    kernel = _VIEWS[widest(hidden)]
    flat = weights.reshape(-1, hidden)
    apart = weights.shape[1] if len(weights) > 1 else 0
    views = out.shape[1] // hidden

    def rows(piece: tuple[int, int]) -> None:
        kernel(*features, flat, apart, views, node_words, entry_words, scale, *piece, out)

    in_parallel(rows, even_ranges(features[0], kernel_threads()))


def multiply_views_adjoint(
    features: Csr,
    gradient: np.ndarray,
    node_words: np.ndarray,
    entry_words: np.ndarray,
    scale: float,
    out: np.ndarray,
) -> None:
    """Write scale · (mask ⊙ X)ᵀ G of every view into ``out`` (views, features, hidden)."""
    kernel = _VIEWS_ADJOINT[widest(out.shape[2])]
    in_parallel(
        lambda view: kernel(*features, gradient, view, node_words, entry_words, scale, out[view]),
        range(len(out)),
    )


def _views(lanes: int) -> Callable[..., Any]:
    @kernel
    def views_product(  # type: ignore[no-untyped-def]
        starts,
        columns,
        values,
        weights,
        apart,
        views,
        node_words,
        entry_words,
        scale,
        first,
        stop,
        out,
    ):
        hidden = weights.shape[1]
        factor = splat(lanes, np.float32(scale))
        for node in range(first, stop):
            for view in range(views):
                kept = has_bit(node_words, view, node)
                for column in range(0, hidden, lanes):
                    total = splat(lanes, np.float32(0))
                    if kept:
                        for entry in range(starts[node], starts[node + 1]):
                            value = values[entry]
                            if not has_bit(entry_words, view, entry):
                                value = np.float32(0)
                            row = load(lanes, weights, view * apart + columns[entry], column)
                            total = add_scaled(total, value, row)
                    store(total * factor, out, node, view * hidden + column)

    return views_product


def _views_adjoint(lanes: int) -> Callable[..., Any]:
    @kernel
    def views_adjoint(  # type: ignore[no-untyped-def]
        starts, columns, values, gradient, view, node_words, entry_words, scale, out
    ):
        hidden = out.shape[1]
        out[:] = 0
        for node in range(len(starts) - 1):
            if not has_bit(node_words, view, node):
                continue
            for column in range(0, hidden, lanes):
                row = load(lanes, gradient, node, view * hidden + column)
                for entry in range(starts[node], starts[node + 1]):
                    value = np.float32(values[entry] * scale)
                    if not has_bit(entry_words, view, entry):
                        value = np.float32(0)
                    feature = columns[entry]
                    total = add_scaled(load(lanes, out, feature, column), value, row)
                    store(total, out, feature, column)

    return views_adjoint


_VIEWS = {lanes: _views(lanes) for lanes in (64, 32, 16)}
_VIEWS_ADJOINT = {lanes: _views_adjoint(lanes) for lanes in (64, 32, 16)}
