"""Random bits have exactly their probability, and nothing to do with each other."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from dropnode.ops import bits
from dropnode.ops.bits import BLOCK, keep_words
from dropnode.ops.kernels.bits import transpose_words
from dropnode.ops.randomness import Stream
from packing import unpacked

PROBABILITIES = [0.5, 1 / 3, 1e-4, 0.999, 0.25, 0.1, 0.9, 0.7, 0.6, 2 / 3, 77 / 256, 0.123456789]

# A correct generator misses this many standard deviations once in two million draws.
SIGMAS = 5.0


def start(*address: str | int) -> np.ndarray:
    """Where a mask's generator starts, as the package starts it."""
    return np.append(Stream(17).at(*address).words(3), np.uint64(1))


def drawn(words: int, probability: float, *address: str | int) -> np.ndarray:
    """Return so many words of one row."""
    return keep_words(start("draw", *address), 1, 64 * words, probability)[0]


def digit_by_digit(state: np.ndarray, count: int, probability: float) -> list[int]:
    """Compare 64 uniform numbers a word with the probability, both written out in binary.

    Digits come from NumPy's generator, and only as many as any of the 64 comparisons needs.
    """
    generator = np.random.SFC64()
    generator.state = {
        "bit_generator": "SFC64",
        "state": {"state": state},
        "has_uint32": 0,
        "uinteger": 0,
    }
    generator.random_raw(12)
    threshold = f"{int(probability * 2**53):053b}".rstrip("0")
    words = []
    for _ in range(count):
        uniform = [""] * 64
        for length in range(len(threshold)):
            if threshold[:length] not in uniform:
                break
            raw = int(generator.random_raw())
            uniform = [digits + str(raw >> lane & 1) for lane, digits in enumerate(uniform)]
        kept = [digits < threshold[: len(digits)] for digits in uniform]
        words.append(sum(bit << lane for lane, bit in enumerate(kept)))
    return words


@pytest.mark.parametrize("probability", [*PROBABILITIES, 0.0, 2**-53, 1e-9, 1 - 1e-9, 1 - 2**-53])
def test_bits_are_uniform_numbers_below_the_probability(probability: float) -> None:
    for seed in range(3):
        state = start("oracle", seed)
        before = state.copy()
        words = keep_words(state, 5, 130, probability)
        assert words.shape == (5, 3)
        assert words.ravel().tolist() == digit_by_digit(state, 15, probability)
        np.testing.assert_array_equal(state, before)


@pytest.mark.parametrize("probability", [*PROBABILITIES, 0.0, 1.0, 2**-53, 1e-9, 1 - 2**-53])
def test_plain_numpy_draws_the_same_bits(
    probability: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From no word at all to several blocks of words from the generator."""
    shapes = [(0, 5), (1, 0), (1, 1), (3, 65), (40, 200), (2, 64 * BLOCK), (1, 64 * BLOCK + 1)]
    states = [start("plain", *shape) for shape in shapes]
    expected = [
        keep_words(state, *shape, probability) for state, shape in zip(states, shapes, strict=True)
    ]
    monkeypatch.setenv("DROPNODE_KERNELS", "0")
    monkeypatch.setattr(bits.kernels, "draw", None)
    for state, shape, words in zip(states, shapes, expected, strict=True):
        before = state.copy()
        np.testing.assert_array_equal(keep_words(state, *shape, probability), words)
        np.testing.assert_array_equal(state, before)


@pytest.mark.parametrize("probability", PROBABILITIES)
def test_the_rate_is_the_probability(probability: float) -> None:
    words = drawn(2**19, probability, "rate")
    size = 64 * len(words)
    deviation = np.sqrt(probability * (1 - probability) / size)
    kept = np.bitwise_count(words)
    assert abs(kept.sum() / size - probability) < SIGMAS * deviation
    # Were the lanes of a word to depend on each other, the numbers kept would spread otherwise.
    variance = 64 * probability * (1 - probability)
    fourth = variance * (1 + 3 * variance * (1 - 2 / 64))
    spread = np.sqrt((fourth - variance**2) / len(words))
    assert abs(np.mean((kept - 64 * probability) ** 2) - variance) < SIGMAS * spread


@pytest.mark.parametrize(("probability", "word"), [
    (0.0, 0), (2**-53, 0), (1.0, 2**64 - 1), (1 - 2**-53, 2**64 - 1),
])  # fmt: skip
def test_what_is_all_but_certain(probability: float, word: int) -> None:
    """A million bits: the chance of a single exception is 1e-10."""
    assert np.all(drawn(2**14, probability) == np.uint64(word))


@pytest.mark.parametrize("probability", [0.5, 1 / 3, 0.9])
def test_lanes_words_rows_and_streams_are_uncorrelated(probability: float) -> None:
    count = 2**15
    deviation = np.sqrt(probability * (1 - probability))

    def lanes(words: np.ndarray) -> np.ndarray:
        return (unpacked(words[:, None], 64) - probability) / deviation

    def assert_uncorrelated(one: np.ndarray, other: np.ndarray, what: str) -> None:
        """Of all pairs of lanes, none is further off than one of so many may be."""
        correlations = one.T @ other / len(one)
        if one is other:
            correlations = correlations[~np.eye(64, dtype=bool)]
        assert np.abs(correlations).max() < (SIGMAS + 1) / np.sqrt(len(one)), what

    first, second = (lanes(drawn(count, probability, "stream", s)) for s in (0, 1))
    assert_uncorrelated(first, first, "lanes of a word")
    assert_uncorrelated(first, second, "neighbouring streams")
    for lag in (1, 2, 3, 8):
        assert_uncorrelated(first[lag:], first[:-lag], f"words {lag} apart")
    rows = keep_words(start("rows"), 40, 64 * count // 8, probability)
    for one, other in [(0, 1), (1, 2), (0, 39), (13, 27)]:
        assert_uncorrelated(lanes(rows[one]), lanes(rows[other]), f"rows {one} and {other}")


def test_bytes_of_fair_bits_are_uniform() -> None:
    octets = drawn(2**18, 0.5, "bytes").view(np.uint8)
    for what, counts in {
        "bytes": np.bincount(octets, minlength=256),
        "pairs of bytes": np.bincount(octets.view(np.uint16), minlength=2**16),
        "bytes of neighbouring words": np.bincount(
            octets[8::8].astype(int) * 256 + octets[:-8:8], minlength=2**16
        ),
    }.items():
        expected = counts.sum() / len(counts)
        statistic = np.sum((counts - expected) ** 2) / expected
        degrees = len(counts) - 1
        assert abs(statistic - degrees) < SIGMAS * np.sqrt(2 * degrees), what


def test_the_same_start_gives_the_same_bits_and_another_start_others() -> None:
    words = [drawn(100, 0.3, *address) for address in ((0,), (0,), (1,), (0, 0))]
    np.testing.assert_array_equal(words[0], words[1])
    for one, other in combinations(words[1:], 2):
        # Of unrelated bits at 0.3, 42 in a hundred differ.
        assert np.bitwise_count(one ^ other).sum() / 6400 == pytest.approx(0.42, abs=0.03)


@pytest.mark.parametrize("columns", [1, 63, 64, 65, 128, 200])
def test_every_row_starts_a_word(columns: int) -> None:
    words = keep_words(start("rows"), 7, columns, 0.4)
    assert words.shape == (7, -(-columns // 64))
    np.testing.assert_array_equal(
        words.ravel(), keep_words(start("rows"), 1, 64 * words.size, 0.4)[0]
    )
    assert keep_words(start("rows"), 0, columns, 0.4).shape == (0, words.shape[1])


@pytest.mark.parametrize("rows", [1, 2, 63, 64, 65, 127, 128, 150])
def test_transposed_blocks(rows: int) -> None:
    columns = 3
    words = np.random.default_rng(rows).integers(0, 2**64, (rows, columns), dtype=np.uint64)
    padded = np.zeros((-(-rows // 64) * 64, 64 * columns), dtype=np.int64)
    padded[:rows] = unpacked(words, 64 * columns)
    for first in range(0, rows, 64):
        for column in range(columns):
            block = np.full(64, 2**64 - 1, dtype=np.uint64)
            transpose_words(words, first, column, block)
            expected = padded[first : first + 64, 64 * column : 64 * column + 64].T
            np.testing.assert_array_equal(unpacked(block[:, None], 64), expected)
