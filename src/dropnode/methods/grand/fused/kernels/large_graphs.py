"""Views of a large graph: 64 features at a time go through all hops while in cache."""

from __future__ import annotations

import numpy as np

from dropnode.methods.grand.fused.kernels.views import BLOCK, Columns, Drop, blocks
from dropnode.ops.kernels.bits import has_bit
from dropnode.ops.kernels.jit import kernel
from dropnode.ops.kernels.memory import aligned, scratch
from dropnode.ops.kernels.simd import add_scaled, keep, load, prefetch, splat, store
from dropnode.ops.kernels.sparse import AHEAD, Csr
from dropnode.ops.kernels.threads import in_parallel


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
    """Write dropout(Ā(mask ⊙ X)) of one view into ``out`` (nodes, features padded).

    Parameters
    ----------
    operator : Csr
    panels : array (blocks, nodes, 64)
        X in the layout of :func:`feature_panels`.
    factors : array of float32 (nodes,)
        The factor on the features of each node.
    places : array of int (nodes,)
        The order of the nodes: node i of the arguments above is row ``places[i]`` of ``out`` and
        of the bits of ``drop``.
    order : int
    drop : Drop
    normalise : bool
        Whether to give columns zero mean and unit variance before dropout.
    out : array (nodes, blocks · 64)

    Returns
    -------
    tuple of ndarray
        The means and the (biased) variances of the columns; zeros and ones without ``normalise``.
    """
    statistics = np.zeros((2, out.shape[1]), np.float32)
    statistics[1] = 1.0

    def fill(number: int) -> None:
        work = scratch(2, len(out), BLOCK)
        made = _propagate(operator, panels[number], factors, order, work)
        share = np.float32(1.0 / (order + 1))
        _finish(work[made], share, normalise, drop, places, number, statistics, out)

    in_parallel(fill, range(len(panels)))
    return statistics[0], statistics[1]


def feature_panels(features: Columns, places: np.ndarray, entry_words: np.ndarray) -> np.ndarray:
    """Return features, without dropped entries, as dense panels of 64 columns.

    Row i belongs to node ``places[i]``.
    """
    count = len(features.starts) - 1
    panels = aligned(blocks(count), len(places), BLOCK)
    rows = np.empty(len(places), np.int64)
    rows[places] = np.arange(len(places))

    def fill(number: int) -> None:
        panels[number] = 0
        columns = number * BLOCK, min(number * BLOCK + BLOCK, count)
        _fill_panel(features, entry_words, rows, *columns, panels[number])

    in_parallel(fill, range(len(panels)))
    return panels


@kernel
def _fill_panel(features, entry_words, rows, first, stop, out):  # type: ignore[no-untyped-def]
    starts, nodes, values, entries = features
    for column in range(first, stop):
        for position in range(starts[column], starts[column + 1]):
            if has_bit(entry_words, 0, entries[position]):
                out[rows[nodes[position]], column - first] = values[position]


@kernel
def _propagate(operator, x, factors, order, work):  # type: ignore[no-untyped-def]
    """Write (K+1) Ā(factors ⊙ x) into one of the two arrays of ``work``; return which."""
    starts, columns, values = operator
    nodes = len(starts) - 1
    last = len(columns) - 1
    nothing = splat(64, np.float32(0))
    # The first hop applies the factors while it reads x.
    target = work[0]
    for node in range(nodes):
        power = add_scaled(nothing, factors[node], load(64, x, node, 0))
        if order > 0:
            for entry in range(starts[node], starts[node + 1]):
                prefetch(64, x, columns[min(entry + AHEAD, last)], 0)
                column = columns[entry]
                power = add_scaled(power, values[entry] * factors[column], load(64, x, column, 0))
        store(power, target, node, 0)
    made = 0
    for _ in range(order - 1):
        source, target = work[made], work[1 - made]
        for node in range(nodes):
            power = add_scaled(nothing, factors[node], load(64, x, node, 0))
            for entry in range(starts[node], starts[node + 1]):
                prefetch(64, source, columns[min(entry + AHEAD, last)], 0)
                power = add_scaled(power, values[entry], load(64, source, columns[entry], 0))
            store(power, target, node, 0)
        made = 1 - made
    return made


@kernel
def _finish(x, share, normalise, drop, places, number, statistics, out):  # type: ignore[no-untyped-def]
    """Scale, normalise and drop out 64 columns, and write every row to its place in ``out``."""
    boost = np.float32(drop.boost)
    shares = splat(64, share)
    mean = splat(64, np.float32(0))
    factor = splat(64, boost)
    if normalise:
        per_node = splat(64, np.float32(1.0 / len(x)))
        mean = _column_sums(x, mean, False) * per_node
        variance = _column_sums(x, mean, True) * per_node
        store(mean * shares, statistics, 0, number * 64)
        store(variance * shares * shares, statistics, 1, number * 64)
        deviation = np.empty((1, 64), np.float32)
        for lane in range(64):
            deviation[0, lane] = boost / np.sqrt(statistics[1, number * 64 + lane] + 1e-5)
        factor = load(64, deviation, 0, 0)
    factor = factor * shares
    bits = ~np.uint64(0)
    for node in range(len(x)):
        place = places[node]
        if drop.input_words.shape[1] > 0:
            bits = drop.input_words[place, number]
        store(keep(bits, (load(64, x, node, 0) - mean) * factor), out, place, number * 64)


@kernel
def _column_sums(x, mean, squared):  # type: ignore[no-untyped-def]
    # Sums of short blocks, because long sums lose precision in float32.
    total = splat(64, np.float32(0))
    for block in range(0, len(x), 128):
        part = splat(64, np.float32(0))
        for node in range(block, min(block + 128, len(x))):
            value = load(64, x, node, 0) - mean
            part = part + (value * value if squared else value)
        total = total + part
    return total
