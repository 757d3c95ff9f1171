"""Products of a matrix of bits with a matrix of numbers, eight bits at a time.

The method of the four Russians (Arlazarov, Dinic, Kronrod, Faradžev): the 256 sums of eight rows
are computed once, so that a byte selects one sum instead of adding up to eight rows.
"""

from __future__ import annotations

import numpy as np

from dropnode.ops.kernels.jit import kernel
from dropnode.ops.kernels.simd import load, splat, store
from dropnode.ops.kernels.threads import PIECES, in_parallel, ranges

CHUNK = 512
"""The number of nodes whose rows stay in cache while they are updated repeatedly."""


def add_kept(input_words: np.ndarray, sums: np.ndarray, out: np.ndarray) -> None:
    """Add to each node's row of ``out`` the rows of a matrix that belong to its kept features.

    A product of bits with numbers, eight bits at a time: each byte of a node selects one of the 256
    ``sums`` of eight rows, which :func:`byte_sums` computes.
    """
    _add_kept(input_words.view(np.uint8), sums, out)


def sum_kept(input_words: np.ndarray, gradient: np.ndarray, features: int) -> np.ndarray:
    """Return, for each feature, the sum of the rows of ``gradient`` of the nodes that keep it.

    The transpose of :func:`add_kept`: each byte of a node selects the one of 256 sums that its row
    is added to, and a feature adds up the 128 sums whose byte has its bit.
    """
    octets = input_words.view(np.uint8)
    count = -(-features // 8)
    out = np.empty((count * 8, gradient.shape[1]), np.float32)

    in_parallel(lambda part: _sum_kept(octets, gradient, *part, out), ranges(count, PIECES))
    return out[:features]


@kernel
def byte_sums(rows):  # type: ignore[no-untyped-def]
    """Return all 256 sums of each group of eight rows of a matrix (features, hidden)."""
    features, hidden = rows.shape
    sums = np.zeros((-(-features // 8) * 256, hidden), np.float32)
    for feature in range(len(sums) // 32):
        first, bit = (feature >> 3) * 256, 1 << (feature & 7)
        # A sum whose highest bit is this one is a sum without it, plus one row.
        for lane in range(0, hidden, 16):
            row = splat(16, np.float32(0))
            if feature < features:
                row = load(16, rows, feature, lane)
            for byte in range(bit):
                store(load(16, sums, first + byte, lane) + row, sums, first + bit + byte, lane)
    return sums


@kernel
def _add_kept(octets, sums, out):  # type: ignore[no-untyped-def]
    hidden = sums.shape[1]
    for chunk in range(0, len(out), CHUNK):
        for octet in range(len(sums) // 256):
            for node in range(chunk, min(chunk + CHUNK, len(out))):
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
        # The sums with the highest bit set are the upper half. Adding them to the lower half leaves
        # sums over the remaining bits.
        for bit in range(7, -1, -1):
            half = 1 << bit
            for lane in range(0, hidden, 16):
                total = splat(16, np.float32(0))
                for byte in range(half):
                    upper = load(16, sums, half + byte, lane)
                    total = total + upper
                    store(load(16, sums, byte, lane) + upper, sums, byte, lane)
                store(total, out, octet * 8 + bit, lane)
