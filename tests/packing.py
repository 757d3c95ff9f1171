"""Bits and matrices as kernels take them, for tests that think in dense arrays."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dropnode.ops.kernels.sparse import Csr
from oracles import UNIT


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


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def untouched(*shape: int) -> np.ndarray:
    """Memory whose old content would show."""
    return np.full(shape, np.nan, dtype=np.float32)


def assert_adjoint(
    mapped: np.ndarray,
    y: np.ndarray,
    x: np.ndarray,
    back: np.ndarray,
    magnitude: np.ndarray,
    operations: float,
) -> None:
    """<Ax, y> = <x, Aᵀy>, up to so many roundings of Ax and of Aᵀy; the magnitude is |A||x|."""
    one = mapped.astype(np.float64) * y
    other = x.astype(np.float64) * back
    size = np.sum(magnitude * np.abs(y.astype(np.float64)))
    assert abs(one.sum() - other.sum()) <= 2 * operations * UNIT * size
