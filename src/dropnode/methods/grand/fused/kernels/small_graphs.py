"""Views of a small graph: 64 columns of its dense Āᵀ at a time stay in cache.

A propagated feature is the weighted sum of the rows of Āᵀ of the kept nodes that have the feature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dropnode.methods.grand.fused.kernels.views import BLOCK, Columns, Drop, blocks
from dropnode.ops.kernels.bits import has_bit, transpose_words
from dropnode.ops.kernels.jit import kernel
from dropnode.ops.kernels.memory import aligned, scratch
from dropnode.ops.kernels.simd import add_scaled, keep, load, splat, store
from dropnode.ops.kernels.threads import PIECES, in_parallel, ranges

TOGETHER = 4
"""How many views are computed at once, in registers; they share every row that is read."""


def dense_panels(mixed: np.ndarray) -> np.ndarray:
    """Cut a dense Ā into panels of 64 columns, (blocks, nodes, 64)."""
    nodes = len(mixed)
    panels = aligned(blocks(nodes), nodes, BLOCK)
    panels[:] = 0
    for number, panel in enumerate(panels):
        part = mixed[:, number * BLOCK : (number + 1) * BLOCK]
        panel[:, : part.shape[1]] = part
    return panels


def small_views(
    features: Columns,
    panels: np.ndarray,
    drops: list[Drop],
    weight: np.ndarray,
    out: np.ndarray,
    product: np.ndarray,
) -> None:
    """Write dropout(Ā(mask ⊙ X)) of every view, and its products with the first weights.

    Parameters
    ----------
    features : Columns
    panels : array (blocks, nodes, 64)
        Āᵀ in the layout of :func:`dense_panels`: a column has the weights with which its node
        receives from every node.
    drops : list of Drop
    weight : array (features, hidden)
    out : array (views, blocks, features, 64)
        Receives the propagated features.
    product : array (nodes, views · hidden)
        Receives their products with ``weight``, computed while the features are in cache.
    """
    for first in range(0, len(drops), TOGETHER):
        group = drops[first : first + TOGETHER]
        values = np.zeros((len(features.values), TOGETHER), np.float32)
        for view, drop in enumerate(group):
            _mask_values(features, drop, view, values)
        words = np.stack([drop.input_words for drop in group])
        given = _ViewInputs(features, values, panels, words, weight)
        target = out[first : first + TOGETHER]
        _views_together(given, target, first * weight.shape[1], product)


class _ViewInputs(NamedTuple):
    """The inputs of views that are computed together."""

    features: Columns
    values: np.ndarray  # (entries, views): masked and scaled
    panels: np.ndarray
    input_words: np.ndarray  # (views, nodes, words)
    weight: np.ndarray


def _views_together(given: _ViewInputs, out: np.ndarray, column: int, product: np.ndarray) -> None:
    def some_panels(piece: tuple[int, int]) -> None:
        sums = scratch(len(out) * given.weight.shape[1], BLOCK)
        _make_views(given, *piece, sums, out, column, product)

    in_parallel(some_panels, ranges(len(given.panels), PIECES))


def small_adjoint(views: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return Σ over views of (dropped out propagated features)ᵀ G, (features, hidden).

    ``views`` is the ``out`` of :func:`small_views`; ``gradient`` is (nodes, views · hidden).
    """
    hidden = gradient.shape[1] // len(views)
    pieces = ranges(views.shape[1], PIECES)
    sums = aligned(len(pieces), views.shape[2], hidden)
    in_parallel(
        lambda number: _small_adjoint(views, gradient, *pieces[number], sums[number]),
        range(len(pieces)),
    )
    total: np.ndarray = sums.sum(axis=0)
    return total


@kernel
def _mask_values(features, drop, view, out):  # type: ignore[no-untyped-def]
    _, nodes, values, entries = features
    scale = np.float32(drop.scale * drop.boost)
    for position in range(len(nodes)):
        kept = has_bit(drop.node_words, 0, nodes[position])
        if drop.entry_words.shape[1] > 0:
            kept = kept and has_bit(drop.entry_words, 0, entries[position])
        out[position, view] = values[position] * scale if kept else np.float32(0)


@kernel
def _make_views(given, first_panel, stop_panel, sums, out, first_column, product):  # type: ignore[no-untyped-def]
    features, values, panels, input_words, weight = given
    starts, nodes, _, _ = features
    views = len(out)
    count = len(starts) - 1
    words = np.empty((views, 64), np.uint64)
    words[:] = ~np.uint64(0)
    for number in range(first_panel, stop_panel):
        panel = panels[number]
        sums[:] = 0
        for first in range(0, count, 16):
            stop = min(first + 16, count)
            if first & 63 == 0 and input_words.shape[2] > 0:
                for view in range(views):
                    transpose_words(input_words[view], number * 64, first >> 6, words[view])
            for column in range(first, stop):
                one = splat(64, np.float32(0))
                two, three, four = one, one, one
                for position in range(starts[column], starts[column + 1]):
                    row = load(64, panel, nodes[position], 0)
                    one = add_scaled(one, values[position, 0], row)
                    two = add_scaled(two, values[position, 1], row)
                    three = add_scaled(three, values[position, 2], row)
                    four = add_scaled(four, values[position, 3], row)
                place = column & 63
                store(keep(words[0, place], one), out[0, number], column, 0)
                if views > 1:
                    store(keep(words[1, place], two), out[1, number], column, 0)
                if views > 2:
                    store(keep(words[2, place], three), out[2, number], column, 0)
                if views > 3:
                    store(keep(words[3, place], four), out[3, number], column, 0)
            # Sixteen features of a view are 4 kB, which are still in the nearest cache.
            for view in range(views):
                _add_products(out[view, number], weight, first, stop, view * weight.shape[1], sums)
        for node in range(min(64, len(product) - number * 64)):
            for unit in range(len(sums)):
                product[number * 64 + node, first_column + unit] = sums[unit, node]


@kernel
def _small_adjoint(views, gradient, first_panel, stop_panel, sums):  # type: ignore[no-untyped-def]
    features, hidden = sums.shape
    nothing = splat(16, np.float32(0))
    sums[:] = 0
    for number in range(first_panel, stop_panel):
        count = min(64, len(gradient) - number * 64)
        for view in range(len(views)):
            seen = views[view, number]
            for feature in range(0, features - 3, 4):
                for column in range(0, hidden, 16):
                    one, two = load(16, sums, feature, column), load(16, sums, feature + 1, column)
                    three = load(16, sums, feature + 2, column)
                    four = load(16, sums, feature + 3, column)
                    for node in range(count):
                        row = load(16, gradient, number * 64 + node, view * hidden + column)
                        one = add_scaled(one, seen[feature, node], row)
                        two = add_scaled(two, seen[feature + 1, node], row)
                        three = add_scaled(three, seen[feature + 2, node], row)
                        four = add_scaled(four, seen[feature + 3, node], row)
                    store(one, sums, feature, column)
                    store(two, sums, feature + 1, column)
                    store(three, sums, feature + 2, column)
                    store(four, sums, feature + 3, column)
            for feature in range(features & ~3, features):
                for column in range(0, hidden, 16):
                    one = nothing
                    for node in range(count):
                        row = load(16, gradient, number * 64 + node, view * hidden + column)
                        one = add_scaled(one, seen[feature, node], row)
                    store(load(16, sums, feature, column) + one, sums, feature, column)


@kernel
def _add_products(rows, weight, first, stop, target, sums):  # type: ignore[no-untyped-def]
    for unit in range(0, weight.shape[1], 4):
        one, two = load(64, sums, target + unit, 0), load(64, sums, target + unit + 1, 0)
        three, four = load(64, sums, target + unit + 2, 0), load(64, sums, target + unit + 3, 0)
        for column in range(first, stop):
            row = load(64, rows, column, 0)
            one = add_scaled(one, weight[column, unit], row)
            two = add_scaled(two, weight[column, unit + 1], row)
            three = add_scaled(three, weight[column, unit + 2], row)
            four = add_scaled(four, weight[column, unit + 3], row)
        store(one, sums, target + unit, 0)
        store(two, sums, target + unit + 1, 0)
        store(three, sums, target + unit + 2, 0)
        store(four, sums, target + unit + 3, 0)
