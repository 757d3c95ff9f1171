"""The Mersenne Twister (Matsumoto and Nishimura 1998), for flags that torch would draw."""

from __future__ import annotations

import numpy as np

from dropnode.ops.kernels.jit import inlined, kernel

SIZE = 624
"""The words of the generator's state."""

DIGITS = 53
"""The binary digits of a uniform number: those of a double."""

_MIDDLE = 397
_TOP, _REST, _MATRIX = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0x9908B0DF)
_ONE, _MASK = np.uint32(1), np.uint64(2**DIGITS - 1)


@kernel
def draw_flags(state, position, threshold, flags):  # type: ignore[no-untyped-def]
    """Fill flags that are set with the probability ``threshold`` / 2**53; return the new position.

    Each takes two words, the high one first, and compares their lowest 53 bits. ``position`` is the
    next word of the state to use.
    """
    words = np.empty(SIZE, dtype=np.uint32)
    count = len(flags)
    done = 0
    high = np.uint32(0)
    half = False
    while done < count:
        if position == SIZE:
            _advance(state)
            position = 0
        stop = min(SIZE, position + 2 * (count - done) - half)
        for k in range(position, stop):
            words[k] = _tempered(state[k])
        if half:
            flags[done] = _number(high, words[position]) < threshold
            done += 1
            position += 1
        pairs = (stop - position) // 2
        for k in range(pairs):
            place = position + 2 * k
            flags[done + k] = _number(words[place], words[place + 1]) < threshold
        done += pairs
        position += 2 * pairs
        half = position < stop
        if half:
            high = words[position]
            position += 1
    return position


@inlined
def _number(high, low):  # type: ignore[no-untyped-def]
    return ((np.uint64(high) << np.uint64(32)) | np.uint64(low)) & _MASK


@inlined
def _tempered(word):  # type: ignore[no-untyped-def]
    word ^= word >> np.uint32(11)
    word ^= (word << np.uint32(7)) & np.uint32(0x9D2C5680)
    word ^= (word << np.uint32(15)) & np.uint32(0xEFC60000)
    return word ^ (word >> np.uint32(18))


@inlined
def _twisted(word, following):  # type: ignore[no-untyped-def]
    joined = (word & _TOP) | (following & _REST)
    return (joined >> _ONE) ^ ((joined & _ONE) * _MATRIX)


@inlined
def _advance(state):  # type: ignore[no-untyped-def]
    for k in range(SIZE - _MIDDLE):
        state[k] = state[k + _MIDDLE] ^ _twisted(state[k], state[k + 1])
    for k in range(SIZE - _MIDDLE, SIZE - 1):
        state[k] = state[k + _MIDDLE - SIZE] ^ _twisted(state[k], state[k + 1])
    state[SIZE - 1] = state[_MIDDLE - 1] ^ _twisted(state[SIZE - 1], state[0])
