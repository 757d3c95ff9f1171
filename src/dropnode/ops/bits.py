"""Random bits with any probability of a one, drawn 64 at a time: in a kernel or in plain NumPy."""

from __future__ import annotations

import numpy as np

from dropnode.ops.kernels import bits as kernels
from dropnode.ops.kernels.memory import enabled

BLOCK = 2**14
"""The most words that plain NumPy takes from the generator at a time: they stay in cache."""


def keep_words(state: np.ndarray, rows: int, columns: int, probability: float) -> np.ndarray:
    """Draw bits that are one with the given probability, packed into words.

    Parameters
    ----------
    state : array of uint64 (4,)
        The initial state of an SFC64 generator; its first outputs are discarded.
    rows, columns : int
        The shape of the bits. Each row starts with a new word; bits after its end are arbitrary.
    probability : float
        From 0 to 1, rounded to 53 binary digits.

    Returns
    -------
    ndarray of uint64 (rows, ceil(columns / 64))
        The lowest bit of a word comes first.
    """
    words = np.empty((rows, -(-columns // 64)), dtype=np.uint64)
    if probability >= 1.0:
        words.fill(np.uint64(2**64 - 1))
    else:
        draw = kernels.draw if enabled() else _draw
        draw(state, np.uint64(round(probability * 2**kernels.DIGITS)), words.reshape(-1))
    return words


def _draw(state: np.ndarray, threshold: np.uint64, words: np.ndarray) -> None:
    """Draw the words that the kernel draws, bit for bit.

    How many words of the generator a word takes is known only when it is done, and the next word
    starts there. So the comparison is made for every place where a word could start, for all of
    them at once, and the places where words do start are found afterwards.
    """
    digits = f"{int(threshold):0{kernels.DIGITS}b}".rstrip("0")
    if not digits:
        words.fill(0)
        return
    generator = np.random.SFC64(0)
    generator.state = {
        "bit_generator": "SFC64",
        "state": {"state": state},
        "has_uint32": 0,
        "uinteger": 0,
    }
    generator.random_raw(12)
    drawn = np.empty(0, dtype=np.uint64)
    done = 0
    while done < len(words):
        # Eight words per word on average, but never more than there are digits.
        expected = min(len(digits), 8) * (len(words) - done) + len(digits)
        drawn = np.concatenate([drawn, generator.random_raw(min(expected, BLOCK))])
        kept, following = _compare(drawn, digits)
        starts = []
        place = 0
        while place < len(kept):
            starts.append(place)
            place = following[place]
        found = kept[starts[: len(words) - done]]
        words[done : done + len(found)] = found
        done += len(found)
        drawn = drawn[place:]


def _compare(drawn: np.ndarray, digits: str) -> tuple[np.ndarray, list[int]]:
    """Return, for every place, the word that would start there and where the next would start."""
    # A word takes at most as many words as there are digits, so that all of these are complete.
    places = np.arange(len(drawn) - len(digits) + 1)
    kept = np.zeros(len(places), dtype=np.uint64)
    following = places.copy()
    open_lanes = np.full(len(places), 2**64 - 1, dtype=np.uint64)
    for number, digit in enumerate(digits):
        compared = drawn[places + number]
        if digit == "1":
            kept[places] |= open_lanes & ~compared
            open_lanes &= compared
        else:
            open_lanes &= ~compared
        following[places] += 1
        undecided = open_lanes != 0
        places, open_lanes = places[undecided], open_lanes[undecided]
    return kept, following.tolist()
