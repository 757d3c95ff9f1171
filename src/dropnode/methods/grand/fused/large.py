"""Views of a large graph: 64 features at a time go through all hops while they are in cache."""

from __future__ import annotations

import numpy as np

from dropnode.methods.grand.fused.views import BLOCK, Columns, Drop, blocks
from dropnode.ops.kernels.jit import kernel
from dropnode.ops.kernels.memory import aligned, scratch
from dropnode.ops.kernels.simd import add_scaled, keep, load, prefetch, splat, store
from dropnode.ops.kernels.sparse import AHEAD, Csr, has_bit
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

    in_parallel(block, range(len(panels)))
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

    in_parallel(fill, range(len(panels)))
    return panels


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
