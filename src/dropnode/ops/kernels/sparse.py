"""Propagation, and products of sparse matrices.

Matrices are CSR arrays (``starts``, ``columns``, ``values``), or dense with rows padded to a
multiple of 16 columns. Several views are next to each other in the columns of one dense matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dropnode.ops.kernels.jit import kernel
from dropnode.ops.kernels.memory import LANES, scratch
from dropnode.ops.kernels.simd import add_scaled, load, prefetch, splat, store, stream
from dropnode.ops.kernels.threads import (
    PIECES,
    even_ranges,
    in_parallel,
    kernel_threads,
    ranges,
)

Csr = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The starts of rows, and the column and the value of each stored entry."""

WIDE = 64
"""How many columns go through all hops together: few enough to stay in cache, and enough to make up
for the cost of fetching a row from memory."""

AHEAD = 16
"""How many entries before its use a row is prefetched."""

MANY = 50_000
"""The number of nodes from which sharing a hop over one block of columns among threads pays."""

FAR = 500_000
"""The number of nodes from which a block of columns is in no cache when it is read again."""


def propagate(matrix: Csr, x: np.ndarray, order: int, out: np.ndarray) -> None:
    """Write 1/(K+1) Σ_{k=0..K} Âᵏx into ``out``, which may be ``x`` itself."""
    blocks = ranges(x.shape[1], max(1, -(-x.shape[1] // WIDE)), WIDE)
    if order == 0:
        np.copyto(out, x)
    elif len(x) < MANY:
        # Each thread takes a block of columns through all hops.
        in_parallel(lambda block: _propagate_alone(matrix, x, block, order, out), blocks)
    else:
        # The threads share the hops of one block at a time, so that they read the same rows from
        # the caches, and the block is in memory only once.
        for block in blocks:
            _propagate_together(matrix, x, block, order, out)


def _propagate_alone(
    matrix: Csr, x: np.ndarray, block: tuple[int, int], order: int, out: np.ndarray
) -> None:
    width = _width(block)
    work = scratch(3, len(x), width)
    for column in range(*block, width):
        _HOPS[width](*matrix, x, column, order, *work, out)


def _propagate_together(
    matrix: Csr, x: np.ndarray, block: tuple[int, int], order: int, out: np.ndarray
) -> None:
    width = _width(block)
    # A write that bypasses the caches need not read the row from memory first.
    hop = (_STREAMED_HOP if len(x) >= FAR else _HOP)[width]
    own, source, target = scratch(3, len(x), width)
    pieces = even_ranges(matrix[0], PIECES)
    for column in range(*block, width):
        in_parallel(partial(_COPY[width], x, column, own), pieces)
        read = own
        for _ in range(order - 1):
            in_parallel(partial(hop, *matrix, own, read, 1.0, target, 0), pieces)
            read, source, target = target, target, source
        share = 1.0 / (order + 1)
        in_parallel(partial(_HOP[width], *matrix, own, read, share, out, column), pieces)


def _width(block: tuple[int, int]) -> int:
    return WIDE if block[1] - block[0] == WIDE else LANES


def multiply(matrix: Csr, x: np.ndarray, out: np.ndarray) -> None:
    """Write the product of a sparse and a dense matrix into ``out``."""
    kernel = _PRODUCTS[widest(x.shape[1])]
    pieces = even_ranges(matrix[0], kernel_threads())
    in_parallel(lambda rows: kernel(*matrix, x, *rows, out), pieces)


def multiply_sparse(matrix: Csr, other: Csr, out: np.ndarray) -> None:
    """Write the product of two sparse matrices into ``out``, which is dense.

    SciPy makes a sparse product, and passes through both matrices twice for that. The sums are
    added up in the same order.
    """
    pieces = even_ranges(matrix[0], kernel_threads())
    in_parallel(lambda rows: _sparse_product(*matrix, *other, *rows, out), pieces)


def multiply_transposed(matrix: Csr, x: np.ndarray, out: np.ndarray) -> None:
    """Write the product of a transposed sparse matrix and a dense one into ``out``.

    For a matrix that is used once, so that transposing it does not pay. Both ways add up in the
    same order. Threads share the columns, because any row of the result may be added to.
    """

    def columns(piece: tuple[int, int]) -> None:
        _TRANSPOSED_PRODUCTS[widest(piece[1] - piece[0])](*matrix, x, *piece, out)

    in_parallel(columns, ranges(x.shape[1], kernel_threads(), LANES))


def compress(matrix: Csr, words: np.ndarray, factor: float) -> Csr:
    """Return a matrix with those entries alone whose bit is set, multiplied by a factor.

    ``words`` has the bits of all stored entries, the lowest bit of a word first.
    """
    starts, columns, values = matrix
    kept = np.empty_like(starts), np.empty_like(columns), np.empty_like(values)
    count = _compress(starts, columns, values, words, factor, *kept)
    return kept[0], kept[1][:count], kept[2][:count]


def nonzero_entries(x: np.ndarray, count: int) -> Csr:
    """Return a dense matrix with so many entries that are not zero as a sparse one."""
    # One place more, for a zero behind the last entry: it is written, and overwritten by none.
    width = np.int32 if count < 2**31 else np.int64
    columns, values = np.empty(count + 1, dtype=width), np.empty(count + 1, dtype=np.float32)
    starts = np.empty(len(x) + 1, dtype=width)
    _nonzero_entries(x, starts, columns, values)
    return starts, columns[:count], values[:count]


def widest(columns: int) -> int:
    """Return the widest vector whose lanes divide the columns."""
    return next(lanes for lanes in (64, 32, 16) if columns % lanes == 0)


def _copy(lanes: int) -> Callable[..., Any]:
    @kernel
    def copied(x, column, out, piece):  # type: ignore[no-untyped-def]
        for node in range(piece[0], piece[1]):
            store(load(lanes, x, node, column), out, node, 0)

    return copied


def _hop(lanes: int, past_caches: bool) -> Callable[..., Any]:
    @kernel
    def hop(starts, columns, values, own, source, factor, out, column, piece):  # type: ignore[no-untyped-def]
        last = len(columns) - 1
        factors = splat(lanes, np.float32(factor))
        for node in range(piece[0], piece[1]):
            power = load(lanes, own, node, 0)
            for entry in range(starts[node], starts[node + 1]):
                prefetch(lanes, source, columns[min(entry + AHEAD, last)], 0)
                power = add_scaled(power, values[entry], load(lanes, source, columns[entry], 0))
            if past_caches:
                stream(power * factors, out, node, column)
            else:
                store(power * factors, out, node, column)

    return hop


def _hops(lanes: int) -> Callable[..., Any]:
    # The code of a hop is repeated here: a kernel cannot be found in the cache again if it is
    # defined inside a function and calls other kernels that are.
    @kernel
    def hops(starts, columns, values, x, column, order, own, source, target, out):  # type: ignore[no-untyped-def]
        nodes = len(x)
        last = len(columns) - 1
        # Rows far apart in memory compete for few places in a cache, so the columns are copied.
        # Rows next to each other need no copy, even if ``out`` is ``x``: the last hop reads a
        # node's own row before it writes it, and reads the other rows from another array.
        if x.shape[1] == lanes and order > 1:
            own = x
        else:
            for node in range(nodes):
                store(load(lanes, x, node, column), own, node, 0)
        read = own
        factors = splat(lanes, np.float32(1))
        place = 0
        for number in range(order):
            if number == order - 1:
                target, place = out, column
                factors = splat(lanes, np.float32(1.0 / (order + 1)))
            for node in range(nodes):
                power = load(lanes, own, node, 0)
                for entry in range(starts[node], starts[node + 1]):
                    prefetch(lanes, read, columns[min(entry + AHEAD, last)], 0)
                    power = add_scaled(power, values[entry], load(lanes, read, columns[entry], 0))
                store(power * factors, target, node, place)
            read, source, target = target, target, source

    return hops


def _product(lanes: int) -> Callable[..., Any]:
    @kernel
    def product(starts, columns, values, x, first, stop, out):  # type: ignore[no-untyped-def]
        last = len(columns) - 1
        for row in range(first, stop):
            for column in range(0, x.shape[1], lanes):
                total = splat(lanes, np.float32(0))
                for entry in range(starts[row], starts[row + 1]):
                    prefetch(lanes, x, columns[min(entry + AHEAD, last)], column)
                    total = add_scaled(total, values[entry], load(lanes, x, columns[entry], column))
                store(total, out, row, column)

    return product


def _transposed_product(lanes: int) -> Callable[..., Any]:
    @kernel
    def transposed_product(starts, columns, values, x, first, stop, out):  # type: ignore[no-untyped-def]
        last = len(columns) - 1
        for row in range(len(out)):
            for column in range(first, stop, lanes):
                store(splat(lanes, np.float32(0)), out, row, column)
        for row in range(len(starts) - 1):
            for column in range(first, stop, lanes):
                added = load(lanes, x, row, column)
                for entry in range(starts[row], starts[row + 1]):
                    prefetch(lanes, out, columns[min(entry + AHEAD, last)], column)
                    total = load(lanes, out, columns[entry], column)
                    store(add_scaled(total, values[entry], added), out, columns[entry], column)

    return transposed_product


@kernel
def _compress(starts, columns, values, words, factor, to_starts, to_columns, to_values):  # type: ignore[no-untyped-def]
    count = 0
    for row in range(len(starts) - 1):
        to_starts[row] = count
        for entry in range(starts[row], starts[row + 1]):
            # Written without a branch, which would be mispredicted half of the time.
            to_columns[count] = columns[entry]
            to_values[count] = values[entry] * np.float32(factor)
            count += np.int64((words[entry >> 6] >> np.uint64(entry & 63)) & np.uint64(1))
    to_starts[len(starts) - 1] = count
    return count


@kernel
def _nonzero_entries(x, starts, columns, values):  # type: ignore[no-untyped-def]
    count = 0
    for row in range(len(x)):
        starts[row] = count
        for column in range(x.shape[1]):
            # Without a branch, as above.
            columns[count] = column
            values[count] = x[row, column]
            count += np.int64(x[row, column] != 0)
    starts[len(x)] = count


@kernel
def _sparse_product(  # type: ignore[no-untyped-def]
    starts, columns, values, other_starts, other_columns, other_values, first, stop, out
):
    for row in range(first, stop):
        total = out[row]
        total[:] = np.float32(0)
        for entry in range(starts[row], starts[row + 1]):
            own = columns[entry]
            for other in range(other_starts[own], other_starts[own + 1]):
                total[other_columns[other]] += values[entry] * other_values[other]


_COPY = {lanes: _copy(lanes) for lanes in (WIDE, LANES)}
_HOP = {lanes: _hop(lanes, False) for lanes in (WIDE, LANES)}
_STREAMED_HOP = {lanes: _hop(lanes, True) for lanes in (WIDE, LANES)}
_HOPS = {lanes: _hops(lanes) for lanes in (WIDE, LANES)}
_PRODUCTS = {lanes: _product(lanes) for lanes in (64, 32, 16)}
_TRANSPOSED_PRODUCTS = {lanes: _transposed_product(lanes) for lanes in (64, 32, 16)}
