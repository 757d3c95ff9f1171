"""Bits and matrices as kernels take them, for tests that think in dense arrays."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dropnode.ops.kernels.sparse import Csr

UNIT = 2.0**-24
"""The relative rounding error of one operation in float32."""


def packed(bits: np.ndarray) -> np.ndarray:
    """Return rows of booleans as words, the lowest bit first; bits that do not count are set."""
    rows, columns = bits.shape
    wide = np.ones((rows, -(-columns // 64) * 64), dtype=np.uint8)
    wide[:, :columns] = bits
    return np.packbits(wide, axis=1, bitorder="little").view(np.uint64)


def unpacked(words: np.ndarray, columns: int) -> np.ndarray:
    """Return the first bits of rows of words as zeros and ones, one lane after another."""
    lanes = np.arange(columns, dtype=np.uint64)
    return ((words[:, lanes // 64] >> (lanes % 64)) & np.uint64(1)).astype(np.int64)


def no_words(rows: int) -> np.ndarray:
    """Return words that keep everything."""
    return np.empty((rows, 0), dtype=np.uint64)


def csr(matrix: sp.csr_array, index: type = np.int32) -> Csr:
    """Return a matrix as arrays, with indices of the given type."""
    return (
        matrix.indptr.astype(index),
        matrix.indices.astype(index),
        matrix.data.astype(np.float32),
    )


def random_csr(
    generator: np.random.Generator, rows: int, columns: int, density: float
) -> sp.csr_array:
    """Return a matrix with about this density, some empty rows, and some entries stored as zero."""
    stored = generator.random((rows, columns)) < density
    stored[generator.random(rows) < 0.2] = False
    at = np.nonzero(stored)
    values = generator.standard_normal(len(at[0])).astype(np.float32)
    values[generator.random(len(values)) < 0.1] = 0.0
    return sp.csr_array((values, at), shape=(rows, columns))


def assert_rounded(
    actual: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, operations: float
) -> None:
    """Equal up to so many roundings of sums whose terms have this magnitude together."""
    excess = np.abs(actual - expected) - operations * UNIT * magnitude - 1e-37
    assert excess.max(initial=0.0) <= 0, (
        f"off by {np.abs(actual - expected).max()}, {excess.max()} more than rounding explains"
    )
