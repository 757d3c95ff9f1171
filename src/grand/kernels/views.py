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

from grand.kernels import ranges, scratch, spread
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
    wide = np.zeros((nodes, blocks(nodes) * BLOCK), np.float32)
    wide[:, :nodes] = mixed
    return np.ascontiguousarray(wide.reshape(nodes, -1, BLOCK).transpose(1, 0, 2))


def small_views(features: Columns, panels: np.ndarray, drops: list[Drop], out: np.ndarray) -> None:
    """Write Ā(mask ⊙ X), dropped out, of every view into ``out`` (views, blocks, features, 64).

    ``panels`` are those of Āᵀ, whose columns are what each node collects. Four views at a time
    share every row that is read.
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
        _spread_panels(features, values, panels, words, target)


def _spread_panels(
    features: Columns,
    values: np.ndarray,
    panels: np.ndarray,
    words: np.ndarray,
    out: np.ndarray,
) -> None:
    def panel(number: int) -> None:
        _small_views(
            features.starts, features.nodes, values, panels[number], words, number, out[:, number]
        )

    spread(panel, range(len(panels)))


def large_view(
    operator: Csr,
    panels: np.ndarray,
    factors: np.ndarray,
    order: int,
    drop: Drop,
    normalise: bool,
    out: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Write Ā(mask ⊙ X), dropped out, of one view into ``out`` (nodes, features padded).

    ``panels`` are X by :func:`feature_panels`, ``factors`` what each node's features are multiplied
    with. With ``normalise``, columns get zero mean and unit variance before they are dropped out.
    Returns the means and the (biased) variances; zeros and ones without.
    """
    statistics = np.zeros((2, out.shape[1]), np.float32)
    statistics[1] = 1.0

    def block(number: int) -> None:
        _large_view(
            *operator,
            panels[number],
            factors,
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


def feature_panels(features: Columns, nodes: int, entry_words: np.ndarray) -> np.ndarray:
    """Return features, without the entries dropped, dense, 64 columns a panel."""
    count = len(features.starts) - 1
    panels = np.zeros((blocks(count), nodes, BLOCK), np.float32)
    spread(
        lambda number: _fill_panel(
            features.starts,
            features.nodes,
            features.values,
            features.entries,
            entry_words,
            number * BLOCK,
            min(number * BLOCK + BLOCK, count),
            panels[number],
        ),
        range(len(panels)),
    )
    return panels


def add_kept(input_words: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Add ``rows`` (features, hidden) of the features a node keeps to its row of ``out``.

    The product of a matrix of bits and one of numbers, eight bits at a time: all 256 sums of eight
    rows are made first, and a node picks one by its byte.
    """
    sums = _byte_sums(rows)
    pieces = [(start, min(start + CHUNK, len(out))) for start in range(0, len(out), CHUNK)]
    octets = input_words.view(np.uint8)
    spread(lambda piece: _add_kept(octets, sums, *piece, out), pieces)


def sum_kept(input_words: np.ndarray, gradient: np.ndarray, features: int) -> np.ndarray:
    """Return for each feature the sum of the rows of ``gradient`` of the nodes that keep it.

    The transpose of :func:`add_kept`: a node's row is added to one of 256 sums by its byte, and a
    feature collects the 128 of them that have its bit.
    """
    octets = input_words.view(np.uint8)
    count = -(-features // 8)
    out = np.empty((count * 8, gradient.shape[1]), np.float32)

    spread(lambda part: _sum_kept(octets, gradient, *part, out), ranges(count, 8))
    return out[:features]


@kernel
def _mask_values(nodes, values, entries, node_words, entry_words, scale, view, out):  # type: ignore[no-untyped-def]
    for position in range(len(nodes)):
        kept = has_bit(node_words, 0, nodes[position])
        if entry_words.shape[1] > 0:
            kept = kept and has_bit(entry_words, 0, entries[position])
        out[position, view] = values[position] * scale if kept else np.float32(0)


@kernel
def _small_views(starts, nodes, values, panel, input_words, number, out):  # type: ignore[no-untyped-def]
    views = len(out)
    words = np.empty((views, 64), np.uint64)
    words[:] = ~np.uint64(0)
    for column in range(len(starts) - 1):
        if column & 63 == 0 and input_words.shape[2] > 0:
            for view in range(views):
                transpose_words(input_words[view], number * 64, column >> 6, words[view])
        one = splat(64, np.float32(0))
        two, three, four = one, one, one
        for position in range(starts[column], starts[column + 1]):
            row = load(64, panel, nodes[position], 0)
            one = add_scaled(one, values[position, 0], row)
            two = add_scaled(two, values[position, 1], row)
            three = add_scaled(three, values[position, 2], row)
            four = add_scaled(four, values[position, 3], row)
        place = column & 63
        store(keep(words[0, place], one), out[0], column, 0)
        if views > 1:
            store(keep(words[1, place], two), out[1], column, 0)
        if views > 2:
            store(keep(words[2, place], three), out[2], column, 0)
        if views > 3:
            store(keep(words[3, place], four), out[3], column, 0)


@kernel
def _fill_panel(starts, nodes, values, entries, entry_words, first, stop, out):  # type: ignore[no-untyped-def]
    for column in range(first, stop):
        for position in range(starts[column], starts[column + 1]):
            if has_bit(entry_words, 0, entries[position]):
                out[nodes[position], column - first] = values[position]


@kernel
def _large_view(  # type: ignore[no-untyped-def]
    starts,
    columns,
    values,
    x,
    factors,
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
        store(add_scaled(nothing, factors[node], load(64, x, node, 0)), work, node, 0)
    for _ in range(order):
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
        if input_words.shape[1] > 0:
            bits = input_words[node, number]
        store(keep(bits, (load(64, work, node, 0) - mean) * factor), out, node, number * 64)


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
        for byte in range(bit):
            sums[first + bit + byte] = sums[first + byte]
            if feature < features:
                sums[first + bit + byte] += rows[feature]
    return sums


@kernel
def _add_kept(octets, sums, start, stop, out):  # type: ignore[no-untyped-def]
    hidden = sums.shape[1]
    for octet in range(len(sums) // 256):
        for node in range(start, stop):
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
        for bit in range(8):
            out[octet * 8 + bit] = 0
            for byte in range(256):
                if (byte >> bit) & 1:
                    out[octet * 8 + bit] += sums[byte]
