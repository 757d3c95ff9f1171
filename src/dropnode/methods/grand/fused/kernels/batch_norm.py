"""Batch norm of the hidden layer: its statistics before, and its gradient after, ``rows.py``.

Batch norm couples the nodes, so each of the two is one more pass over all of them. Nodes are cut
into pieces as in ``rows.py``, whose sums are added in a fixed order. ``fused/hidden_norm.py`` calls
both; ``tests/methods/grand/fused/kernels/test_rows.py`` compares them with formulas in float64.
"""

from __future__ import annotations

import numpy as np

from dropnode.ops.kernels.jit import kernel
from dropnode.ops.kernels.simd import load, splat, store, where_positive
from dropnode.ops.kernels.threads import PIECES, in_parallel, ranges


def activation_statistics(first: np.ndarray, bias1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and (biased) variance over nodes of ReLU(first + bias), per column."""
    # Squares around the mean: the mean of squares minus the squared mean would lose precision.
    mean = _mean(first, bias1, np.zeros(bias1.shape, np.float32), squared=False)
    centre = mean.astype(np.float32)[None]
    around = mean - centre[0]
    return mean, _mean(first, bias1, centre, squared=True) - around**2


def through_norm(
    first: np.ndarray,
    bias1: np.ndarray,
    factor: np.ndarray,
    slope: np.ndarray,
    offset: np.ndarray,
    gradient: np.ndarray,
) -> np.ndarray:
    """Turn the gradient of batch norm's output into that of ``first``, in place.

    The gradient is ``factor · gradient + slope · activation + offset`` where the ReLU is positive,
    and zero elsewhere; the three are (1, views · hidden). Returns the gradient of the bias.
    """
    pieces = ranges(len(first), PIECES)
    sums = np.zeros((len(pieces), 1, bias1.shape[1]), np.float32)
    in_parallel(
        lambda k: _through_norm(first, bias1, factor, slope, offset, *pieces[k], gradient, sums[k]),
        range(len(pieces)),
    )
    return sums.sum(axis=0)[0]


def _mean(first: np.ndarray, bias1: np.ndarray, centre: np.ndarray, *, squared: bool) -> np.ndarray:
    pieces = ranges(len(first), PIECES)
    sums = np.zeros((len(pieces), first.shape[1]), np.float64)
    in_parallel(
        lambda k: _sums(first, bias1, centre, squared, *pieces[k], sums[k]), range(len(pieces))
    )
    mean: np.ndarray = sums.sum(axis=0) / len(first)
    return mean


@kernel
def _sums(first, bias1, centre, squared, start, stop, sums):  # type: ignore[no-untyped-def]
    part = np.empty((1, 16), np.float32)
    for place in range(0, first.shape[1], 16):
        bias, middle = load(16, bias1, 0, place), load(16, centre, 0, place)
        # Short sums in float32, and their sum in float64.
        for block in range(start, stop, 128):
            added = splat(16, np.float32(0))
            for node in range(block, min(block + 128, stop)):
                value = load(16, first, node, place) + bias
                value = where_positive(value, value) - middle
                added = added + (value * value if squared else value)
            store(added, part, 0, 0)
            for lane in range(16):
                sums[place + lane] += part[0, lane]


@kernel
def _through_norm(first, bias1, factor, slope, offset, start, stop, gradient, sums):  # type: ignore[no-untyped-def]
    for node in range(start, stop):
        for place in range(0, first.shape[1], 16):
            value = load(16, first, node, place) + load(16, bias1, 0, place)
            passed = (
                load(16, gradient, node, place) * load(16, factor, 0, place)
                + value * load(16, slope, 0, place)
                + load(16, offset, 0, place)
            )
            passed = where_positive(value, passed)
            store(passed, gradient, node, place)
            store(load(16, sums, 0, place) + passed, sums, 0, place)
