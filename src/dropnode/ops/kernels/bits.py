"""Kernels on bits: drawing them with any probability of a one, transposing and reading them."""

from __future__ import annotations

import numpy as np

from dropnode.ops.kernels.jit import kernel

DIGITS = 53
"""The precision of a probability in binary digits: that of a double."""


@kernel
def draw(state, threshold, words):  # type: ignore[no-untyped-def]
    """Fill words with bits that are one with the probability ``threshold`` / 2**53."""
    # SFC64 (Doty-Humphrey, PractRand) as in NumPy, with the twelve rounds that mix its seed. Each
    # of the 64 lanes compares a uniform number with the threshold, binary digit by binary digit;
    # the first digit that differs decides. Each word drawn decides half of the open lanes, so that
    # 64 lanes take 8 words on average, and one word if the probability is one half.
    a, b, c, counter = state[0], state[1], state[2], state[3]
    one = np.uint64(1)
    everything = ~np.uint64(0)
    top = np.uint64(DIGITS - 1)
    mask = (one << np.uint64(DIGITS)) - one
    for _ in range(12):
        drawn = a + b + counter
        counter += one
        a = b ^ (b >> np.uint64(11))
        b = c + (c << np.uint64(3))
        c = ((c << np.uint64(24)) | (c >> np.uint64(40))) + drawn
    for position in range(len(words)):
        digits = threshold
        kept = np.uint64(0)
        open_lanes = everything
        while digits != 0 and open_lanes != 0:
            drawn = a + b + counter
            counter += one
            a = b ^ (b >> np.uint64(11))
            b = c + (c << np.uint64(3))
            c = ((c << np.uint64(24)) | (c >> np.uint64(40))) + drawn
            if (digits >> top) & one:
                kept |= open_lanes & ~drawn
                open_lanes &= drawn
            else:
                open_lanes &= ~drawn
            digits = (digits << one) & mask
        words[position] = kept


@kernel
def keep_entries(x, words, scale, out):  # type: ignore[no-untyped-def]
    """Write the entries of a matrix whose bit is set, times ``scale``, and zeros elsewhere."""
    factor = np.float32(scale)
    columns = x.shape[1]
    for row in range(len(x)):
        for position in range(words.shape[1]):
            word = words[row, position]
            first = 64 * position
            for lane in range(min(64, columns - first)):
                bit = np.float32((word >> np.uint64(lane)) & np.uint64(1))
                out[row, first + lane] = x[row, first + lane] * bit * factor


@kernel
def transpose_words(words, first, column, block):  # type: ignore[no-untyped-def]
    """Fill ``block`` with the transpose of the 64 x 64 bits at row ``first``, word ``column``.

    Rows beyond the end count as zeros. The off-diagonal halves are exchanged, then those of each
    half, and so on.
    """
    rows = min(64, len(words) - first)
    for i in range(64):
        block[i] = words[first + i, column] if i < rows else np.uint64(0)
    shift = np.uint64(32)
    mask = np.uint64(0x00000000FFFFFFFF)
    while shift != 0:
        step = np.int64(shift)
        i = 0
        while i < 64:
            for k in range(i, i + step):
                low, high = block[k], block[k + step]
                change = ((low >> shift) ^ high) & mask
                block[k] = low ^ (change << shift)
                block[k + step] = high ^ change
            i += 2 * step
        shift >>= np.uint64(1)
        mask ^= mask << shift


@kernel
def has_bit(words, row, position):  # type: ignore[no-untyped-def]
    """Return whether a bit in a row of words is set; words without columns have every bit set."""
    if words.shape[1] == 0:
        return True
    word = words[row, position >> 6]
    return ((word >> np.uint64(position & 63)) & np.uint64(1)) != 0
