"""Propagated, dropped-out features: what stands before the first linear map if it does not commute.

The paper drops entries of propagated features, an (nodes, features) matrix a view, of which nothing
may be exchanged. Two ways to make it:

- on a small graph Ā itself, dense, stays in cache 64 nodes at a time, and each feature is a sum of
  its rows over the few nodes that have the feature and are kept;
- otherwise 64 features at a time go through all hops while they are in cache.

Features are CSC arrays (``starts``, ``nodes``, ``values``) with ``entries``, the number of each in
the order of rows, which is what the bits of ``entry_words`` count by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grand.kernels import PIECES, aligned, ranges, scratch, spread
from grand.kernels.bits import transpose_words
from grand.kernels.jit import kernel
from grand.kernels.simd import add_scaled, keep, load, prefetch, splat, store
from grand.kernels.sparse import AHEAD, Csr, has_bit

CHUNK = 512
"""Nodes whose rows stay in cache while they are added to again and again."""

TOGETHER = 4
"""Views that a small graph's kernel makes at once, in registers."""

BLOCK = 64
"""Features or nodes that are worked on together; as many as a word has bits."""


@dataclass(frozen=True)
class Columns:
    """Sparse features by column."""

    starts: np.ndarray
    nodes: np.ndarray
    values: np.ndarray
    entries: np.ndarray


@dataclass(frozen=True)
class Drop:
    """What one view drops: bits of nodes, of stored entries, and of propagated features.

    Each may have no columns, and then drops nothing. ``scale`` is put on what is kept before
    propagation, ``boost`` on what is kept after it.
    """

    node_words: np.ndarray  # (1, words)
    entry_words: np.ndarray  # (1, words)
    input_words: np.ndarray  # (nodes, words)
    scale: float
    boost: float


def blocks(size: int) -> int:
    """Return how many blocks hold ``size`` columns."""
    return -(-size // BLOCK)


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
    """Write Ā(mask ⊙ X), dropped out, of every view into ``out`` (views, blocks, features, 64).

    And its products with ``weight`` (features, hidden) into ``product`` (nodes, views · hidden),
    while it is in cache. ``panels`` are those of Āᵀ, whose columns are what each node collects.
    Four views at a time share every row that is read.
    """
    for first in range(0, len(drops), TOGETHER):
        group = drops[first : first + TOGETHER]
        values = np.zeros((len(features.values), TOGETHER), np.float32)
        for view, drop in enumerate(group):
            _mask_values(
                features.nodes,
                features.values,
                features.entries,
                drop.node_words,
                drop.entry_words,
                np.float32(drop.scale * drop.boost),
                view,
                values,
            )
        words = np.stack([drop.input_words for drop in group])
        target = out[first : first + TOGETHER]
        column = first * weight.shape[1]
        _spread_panels(features, values, panels, words, weight, target, column, product)


def _spread_panels(
    features: Columns,
    values: np.ndarray,
    panels: np.ndarray,
    words: np.ndarray,
    weight: np.ndarray,
    out: np.ndarray,
    column: int,
    product: np.ndarray,
) -> None:
    def some(piece: tuple[int, int]) -> None:
        _small_views(
            features.starts,
            features.nodes,
            values,
            panels,
            words,
            weight,
            *piece,
            scratch(len(out) * weight.shape[1], BLOCK),
            out,
            column,
            product,
        )

    spread(some, ranges(len(panels), PIECES))


def small_adjoint(views: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return Σ over views of (dropped out, propagated features)ᵀ G, (features, hidden).

    ``views`` is what :func:`small_views` made, ``gradient`` (nodes, views · hidden).
    """
    hidden = gradient.shape[1] // len(views)
    pieces = ranges(views.shape[1], PIECES)
    sums = aligned(len(pieces), views.shape[2], hidden)
    spread(
        lambda number: _small_adjoint(views, gradient, *pieces[number], sums[number]),
        range(len(pieces)),
    )
    total: np.ndarray = sums.sum(axis=0)
    return total


def large_view(
    operator: Csr,
    panels: np.ndarray,
    factors: np.ndarray,
    places: np.ndarray,
    order: int,
    drop: Drop,
    normalise: bool,
    out: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Write Ā(mask ⊙ X), dropped out, of one view into ``out`` (nodes, features padded).

    ``panels`` are X by :func:`feature_panels`, ``factors`` what each node's features are multiplied
    with, and ``places`` the rows of ``out``, and of the bits, that the nodes of these belong to.
    With ``normalise``, columns get zero mean and unit variance before they are dropped out. Returns
    the means and the (biased) variances; zeros and ones without.
    """
    statistics = np.zeros((2, out.shape[1]), np.float32)
    statistics[1] = 1.0

    def block(number: int) -> None:
        _large_view(
            *operator,
            panels[number],
            factors,
            places,
            *scratch(2, len(out), BLOCK),
            order,
            normalise,
            drop.input_words,
            np.float32(drop.boost),
            number,
            statistics,
            out,
        )

    spread(block, range(len(panels)))
    return statistics[0], statistics[1]


def feature_panels(features: Columns, places: np.ndarray, entry_words: np.ndarray) -> np.ndarray:
    """Return features, without the entries dropped, dense, 64 columns a panel.

    Row i is that of the node ``places[i]``.
    """
    count = len(features.starts) - 1
    panels = aligned(blocks(count), len(places), BLOCK)
    rows = np.empty(len(places), np.int64)
    rows[places] = np.arange(len(places))

    def fill(number: int) -> None:
        panels[number] = 0
        _fill_panel(
            features.starts,
            features.nodes,
            features.values,
            features.entries,
            entry_words,
            rows,
            number * BLOCK,
            min(number * BLOCK + BLOCK, count),
            panels[number],
        )

    spread(fill, range(len(panels)))
    return panels


def add_kept(input_words: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Add ``rows`` (features, hidden) of the features a node keeps to its row of ``out``.

    The product of a matrix of bits and one of numbers, eight bits at a time: all 256 sums of eight
    rows are made first, and a node picks one by its byte.
    """
    sums = _byte_sums(rows)
    octets = input_words.view(np.uint8)
    spread(lambda piece: _add_kept(octets, sums, *piece, out), ranges(len(out), PIECES))


def sum_kept(input_words: np.ndarray, gradient: np.ndarray, features: int) -> np.ndarray:
    """Return for each feature the sum of the rows of ``gradient`` of the nodes that keep it.

    The transpose of :func:`add_kept`: a node's row is added to one of 256 sums by its byte, and a
    feature collects the 128 of them that have its bit.
    """
    octets = input_words.view(np.uint8)
    count = -(-features // 8)
    out = np.empty((count * 8, gradient.shape[1]), np.float32)

    spread(lambda part: _sum_kept(octets, gradient, *part, out), ranges(count, PIECES))
    return out[:features]


@kernel
def _mask_values(nodes, values, entries, node_words, entry_words, scale, view, out):  # type: ignore[no-untyped-def]
    for position in range(len(nodes)):
        kept = has_bit(node_words, 0, nodes[position])
        if entry_words.shape[1] > 0:
            kept = kept and has_bit(entry_words, 0, entries[position])
        out[position, view] = values[position] * scale if kept else np.float32(0)


@kernel
def _small_views(  # type: ignore[no-untyped-def]
    starts,
    nodes,
    values,
    panels,
    input_words,
    weight,
    first_panel,
    stop_panel,
    sums,
    out,
    first_column,
    product,
):
    views = len(out)
    features = len(starts) - 1
    words = np.empty((views, 64), np.uint64)
    words[:] = ~np.uint64(0)
    for number in range(first_panel, stop_panel):
        panel = panels[number]
        sums[:] = 0
        for first in range(0, features, 16):
            stop = min(first + 16, features)
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
            # Sixteen features of a view are 4 kB: read again while they are near.
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


@kernel
def _fill_panel(starts, nodes, values, entries, entry_words, rows, first, stop, out):  # type: ignore[no-untyped-def]
    for column in range(first, stop):
        for position in range(starts[column], starts[column + 1]):
            if has_bit(entry_words, 0, entries[position]):
                out[rows[nodes[position]], column - first] = values[position]


@kernel
def _large_view(  # type: ignore[no-untyped-def]
    starts,
    columns,
    values,
    x,
    factors,
    places,
    work,
    spare,
    order,
    normalise,
    input_words,
    boost,
    number,
    statistics,
    out,
):
    nodes = len(starts) - 1
    last = len(columns) - 1
    nothing = splat(64, np.float32(0))
    for node in range(nodes):
        power = add_scaled(nothing, factors[node], load(64, x, node, 0))
        if order > 0:
            for entry in range(starts[node], starts[node + 1]):
                prefetch(64, x, columns[min(entry + AHEAD, last)], 0)
                column = columns[entry]
                power = add_scaled(power, values[entry] * factors[column], load(64, x, column, 0))
        store(power, work, node, 0)
    for _ in range(order - 1):
        for node in range(nodes):
            power = add_scaled(nothing, factors[node], load(64, x, node, 0))
            for entry in range(starts[node], starts[node + 1]):
                prefetch(64, work, columns[min(entry + AHEAD, last)], 0)
                power = add_scaled(power, values[entry], load(64, work, columns[entry], 0))
            store(power, spare, node, 0)
        work, spare = spare, work
    share = splat(64, np.float32(1.0 / (order + 1)))
    mean = nothing
    factor = splat(64, boost)
    if normalise:
        mean = _column_sums(work, nothing, False) * splat(64, np.float32(1.0 / nodes))
        variance = _column_sums(work, mean, True) * splat(64, np.float32(1.0 / nodes))
        store(mean * share, statistics, 0, number * 64)
        store(variance * share * share, statistics, 1, number * 64)
        deviation = np.empty((1, 64), np.float32)
        for lane in range(64):
            deviation[0, lane] = boost / np.sqrt(statistics[1, number * 64 + lane] + 1e-5)
        factor = load(64, deviation, 0, 0)
    factor = factor * share
    bits = ~np.uint64(0)
    for node in range(nodes):
        place = places[node]
        if input_words.shape[1] > 0:
            bits = input_words[place, number]
        store(keep(bits, (load(64, work, node, 0) - mean) * factor), out, place, number * 64)


@kernel
def _column_sums(x, mean, squared):  # type: ignore[no-untyped-def]
    # Short sums first: long ones lose digits in float32.
    total = splat(64, np.float32(0))
    for block in range(0, len(x), 128):
        part = splat(64, np.float32(0))
        for node in range(block, min(block + 128, len(x))):
            value = load(64, x, node, 0) - mean
            part = part + (value * value if squared else value)
        total = total + part
    return total


@kernel
def _byte_sums(rows):  # type: ignore[no-untyped-def]
    features, hidden = rows.shape
    sums = np.zeros((-(-features // 8) * 256, hidden), np.float32)
    for feature in range(len(sums) // 32):
        first, bit = (feature >> 3) * 256, 1 << (feature & 7)
        # Those with this bit as their highest are one row more than those without it.
        for lane in range(0, hidden, 16):
            row = splat(16, np.float32(0))
            if feature < features:
                row = load(16, rows, feature, lane)
            for byte in range(bit):
                store(load(16, sums, first + byte, lane) + row, sums, first + bit + byte, lane)
    return sums


@kernel
def _add_kept(octets, sums, start, stop, out):  # type: ignore[no-untyped-def]
    hidden = sums.shape[1]
    for chunk in range(start, stop, CHUNK):
        for octet in range(len(sums) // 256):
            for node in range(chunk, min(chunk + CHUNK, stop)):
                row = octet * 256 + octets[node, octet]
                for lane in range(0, hidden, 16):
                    added = load(16, out, node, lane) + load(16, sums, row, lane)
                    store(added, out, node, lane)


@kernel
def _sum_kept(octets, gradient, first, stop, out):  # type: ignore[no-untyped-def]
    hidden = out.shape[1]
    sums = np.empty((256, hidden), np.float32)
    for octet in range(first, stop):
        sums[:] = 0
        for node in range(len(gradient)):
            byte = octets[node, octet]
            for lane in range(0, hidden, 16):
                added = load(16, sums, byte, lane) + load(16, gradient, node, lane)
                store(added, sums, byte, lane)
        # The upper half has the highest bit; added to the lower half, the same is true of the next.
        for bit in range(7, -1, -1):
            half = 1 << bit
            for lane in range(0, hidden, 16):
                total = splat(16, np.float32(0))
                for byte in range(half):
                    upper = load(16, sums, half + byte, lane)
                    total = total + upper
                    store(load(16, sums, byte, lane) + upper, sums, byte, lane)
                store(total, out, octet * 8 + bit, lane)
