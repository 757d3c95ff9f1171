"""Vectors inside compiled functions compute what NumPy computes, lane by lane."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numba import njit

from dropnode.ops.kernels.simd import (
    add_scaled,
    exponential,
    group_totals,
    keep,
    larger,
    largest,
    load,
    load_flags,
    logarithm,
    prefetch,
    repeat,
    splat,
    store,
    total,
    where_positive,
)
from oracles import UNIT
from packing import unpacked

every_width = pytest.mark.parametrize("lanes", [16, 32, 64])


@cache
def over_rows(function: Callable[..., Any], lanes: int) -> Callable[..., None]:
    """Compile a loop that maps vectors of a matrix to vectors of another."""

    @njit
    def run(x, out):  # type: ignore[no-untyped-def]
        for row in range(len(x)):
            for column in range(0, x.shape[1], lanes):
                store(function(load(lanes, x, row, column)), out, row, column)

    return run


def mapped(function: Callable[..., Any], numbers: Any, lanes: int = 16) -> np.ndarray:
    """Apply a function of a vector to any number of numbers."""
    flat = np.asarray(numbers, dtype=np.float32).ravel()
    x = np.resize(flat, (1, -(-len(flat) // lanes) * lanes))
    out = np.empty_like(x)
    over_rows(function, lanes)(x, out)
    return out[0, : len(flat)]


def random_numbers(seed: int, *shape: int) -> np.ndarray:
    """Numbers of many sizes and both signs."""
    generator = np.random.default_rng(seed)
    sizes = 10.0 ** generator.uniform(-6, 6, shape)
    return (generator.standard_normal(shape) * sizes).astype(np.float32)


@every_width
def test_exponential_over_its_whole_range(lanes: int) -> None:
    generator = np.random.default_rng(0)
    numbers = np.concatenate(
        [
            np.linspace(-80, 88, 300_000)[1:],
            generator.uniform(-80, 88, 300_000),
            # Where a polynomial meets the next power of two.
            np.arange(-115, 127)[:, None] * np.log(2) / 2 + generator.uniform(-1e-5, 1e-5, 500),
            generator.uniform(-1, 1, 100_000),
            10.0 ** generator.uniform(-30, -3, 100_000),
        ],
        axis=None,
    ).astype(np.float32)
    numbers = numbers[(numbers > -80) & (numbers <= 88)]
    exact = np.exp(numbers.astype(np.float64))
    assert np.abs(mapped(exponential, numbers, lanes) / exact - 1.0).max() < 9e-8
    assert mapped(exponential, [0.0, -0.0], lanes).tolist() == [1.0, 1.0]


@every_width
def test_exponential_outside_its_range(lanes: int) -> None:
    below = [-80.0, -80.00001, -87.0, -104.0, -1e4, -1e30, -np.inf]
    assert mapped(exponential, below, lanes).tolist() == [0.0] * len(below)
    just = np.nextafter(np.float32(-80), np.float32(0))
    assert mapped(exponential, [just], lanes)[0] == pytest.approx(np.exp(float(just)), rel=1e-7)
    above = mapped(exponential, [88.0, 88.00001, 89.0, 200.0, 1e30, np.inf], lanes)
    assert above == pytest.approx(np.full(6, np.exp(88.0)), rel=1e-7)


@every_width
def test_logarithm_of_every_size(lanes: int) -> None:
    """Every power of two that a float32 has, and every 97th number from one half to two."""
    generator = np.random.default_rng(1)
    mantissas = generator.integers(0, 2**23, (254, 2000), dtype=np.uint32)
    mantissas[:, :4] = 0, 1, 2**22, 2**23 - 1
    anything = (np.arange(1, 255, dtype=np.uint32)[:, None] << np.uint32(23)) | mantissas
    around_one = np.arange(0x3F000000, 0x40000000, 97, dtype=np.uint32)
    numbers = np.concatenate([anything, around_one], axis=None).view(np.float32)
    numbers = np.append(numbers, np.nextafter(np.float32(1), np.array([0, 2], np.float32)))
    assert numbers.min() == np.finfo(np.float32).tiny
    assert numbers.max() == np.finfo(np.float32).max
    exact = np.log(numbers.astype(np.float64))
    error = np.abs(mapped(logarithm, numbers, lanes) - exact)
    assert np.all(error <= 2.5e-7 * np.abs(exact)), "of one it must be zero"
    assert error[np.abs(exact) < 0.35].max() < 7e-8


@every_width
def test_logarithm_of_next_to_nothing(lanes: int) -> None:
    """Zero and numbers too small to be normalised count as about 1e-38."""
    result = mapped(logarithm, [0.0, 1e-45, 1e-40, 5e-39, 1.1e-38, 1.2e-38], lanes)
    assert np.all(np.diff(result) >= 0)
    assert -88.03 < result[0] < result[-1] < -87.3


@every_width
def test_a_total_is_the_sum_of_the_lanes(lanes: int) -> None:
    @njit
    def run(x, out):  # type: ignore[no-untyped-def]
        for row in range(len(x)):
            out[row] = total(load(lanes, x, row, 0))

    x = random_numbers(2, 500, lanes)
    out = np.empty(500, dtype=np.float32)
    run(x, out)
    # Halves are added to halves: as many roundings as there are halvings.
    bound = np.log2(lanes) * UNIT * np.abs(x.astype(np.float64)).sum(axis=1)
    assert np.all(np.abs(out - x.astype(np.float64).sum(axis=1)) <= bound * 1.01)
    whole = np.random.default_rng(3).integers(-(2**17), 2**17, (500, lanes))
    run(whole.astype(np.float32), out)
    np.testing.assert_array_equal(out, whole.sum(axis=1))


@every_width
def test_the_largest_lane(lanes: int) -> None:
    @njit
    def run(x, out):  # type: ignore[no-untyped-def]
        for row in range(len(x)):
            out[row] = largest(load(lanes, x, row, 0))

    # The largest stands in every lane once; then numbers of all signs, or of one.
    places = np.where(np.eye(lanes, dtype=bool), -1.5, -2.0).astype(np.float32)
    mixed = random_numbers(4, 300, lanes)
    low = np.full((1, lanes), -np.inf, dtype=np.float32)
    low[0, lanes // 3] = -3e38
    for x in (places, mixed, -np.abs(mixed), low):
        out = np.empty(len(x), dtype=np.float32)
        run(x, out)
        np.testing.assert_array_equal(out, x.max(axis=1))


@pytest.mark.parametrize(("lanes", "size"), [(64, 8), (32, 4), (8, 8), (8, 1), (4, 2)])
def test_lanes_are_repeated_and_added_up_in_groups(lanes: int, size: int) -> None:
    groups = lanes // size

    @njit
    def run(short, long, repeated, summed):  # type: ignore[no-untyped-def]
        for row in range(len(short)):
            store(repeat(load(groups, short, row, 0), size), repeated, row, 0)
            store(group_totals(load(lanes, long, row, 0), size), summed, row, 0)

    short, long = random_numbers(11, 50, groups), random_numbers(12, 50, lanes)
    repeated, summed = np.empty_like(long), np.empty_like(short)
    run(short, long, repeated, summed)
    np.testing.assert_array_equal(repeated, np.repeat(short, size, axis=1))
    parts = long.astype(np.float64).reshape(50, groups, size)
    # Neighbours are added to neighbours: as many roundings as there are halvings.
    bound = np.log2(size) * UNIT * np.abs(parts).sum(axis=2)
    assert np.all(np.abs(summed - parts.sum(axis=2)) <= bound * 1.01)


@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_flags_are_zeros_and_ones_wherever_they_start(lanes: int) -> None:
    @njit
    def run(flags, out):  # type: ignore[no-untyped-def]
        for row in range(len(flags)):
            for column in range(5):
                prefetch(1, flags, row, column)
                store(load_flags(lanes, flags, row, column), out[row], column, 0)

    flags = np.random.default_rng(13).random((20, 4 + lanes)) < 0.5
    out = np.empty((20, 5, lanes), dtype=np.float32)
    run(flags, out)
    windows = np.lib.stride_tricks.sliding_window_view(flags, lanes, axis=1)
    np.testing.assert_array_equal(out, windows)


@every_width
def test_the_larger_of_two_vectors_lane_by_lane(lanes: int) -> None:
    @njit
    def run(x, y, out):  # type: ignore[no-untyped-def]
        for row in range(len(x)):
            store(larger(load(lanes, x, row, 0), load(lanes, y, row, 0)), out, row, 0)

    x, y = random_numbers(14, 100, lanes), random_numbers(15, 100, lanes)
    y[0] = -np.inf
    out = np.empty_like(x)
    run(x, y, out)
    np.testing.assert_array_equal(out, np.maximum(x, y))
    # A comparison with NaN fails, and the second vector is taken.
    x[1], y[2] = np.nan, np.nan
    run(x, y, out)
    np.testing.assert_array_equal(out[1:3], y[1:3])


@every_width
def test_a_set_bit_keeps_its_lane(lanes: int) -> None:
    @njit
    def run(words, x, out):  # type: ignore[no-untyped-def]
        for row in range(len(x)):
            store(keep(words[row, 0], load(lanes, x, row, 0)), out, row, 0)

    generator = np.random.default_rng(5)
    single = np.uint64(1) << np.arange(64, dtype=np.uint64)
    drawn = generator.integers(0, 2**64, 400, dtype=np.uint64)
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    words = np.concatenate([ends, single, drawn])[:, None]
    x = random_numbers(6, len(words), lanes)
    # What is dropped is zero even where a product with zero would not be.
    x[::7, ::3], x[::5, 1::3] = np.nan, np.inf
    out = np.empty_like(x)
    run(words, x, out)
    np.testing.assert_array_equal(out, np.where(unpacked(words, lanes), x, np.float32(0)))


@every_width
def test_where_positive_chooses_by_another_vector(lanes: int) -> None:
    @njit
    def run(condition, x, out):  # type: ignore[no-untyped-def]
        for row in range(len(x)):
            chosen = where_positive(load(lanes, condition, row, 0), load(lanes, x, row, 0))
            store(chosen, out, row, 0)

    x = random_numbers(7, 200, lanes)
    condition = random_numbers(8, 200, lanes)
    condition[:, ::5], condition[:, 1::5], condition[:, 2::5] = 0.0, -0.0, np.float32(1e-38)
    out = np.empty_like(x)
    run(condition, x, out)
    np.testing.assert_array_equal(out, np.where(condition > 0, x, np.float32(0)))


@every_width
def test_loads_and_stores_at_odd_offsets_touch_nothing_else(lanes: int) -> None:
    @njit
    def run(x, row, column, out, to_row, to_column):  # type: ignore[no-untyped-def]
        prefetch(lanes, x, row, column)
        store(load(lanes, x, row, column), out, to_row, to_column)

    x = random_numbers(9, 5, lanes + 13)
    for column, to_column in ((0, 1), (1, 7), (7, 0), (13, 5), (5, 13), (3, 3)):
        for row, to_row in ((0, 3), (4, 0), (2, 4)):
            out = random_numbers(10, 5, lanes + 13)
            expected = out.copy()
            expected[to_row, to_column : to_column + lanes] = x[row, column : column + lanes]
            run(x, row, column, out, to_row, to_column)
            np.testing.assert_array_equal(out, expected)


@every_width
def test_arithmetic_is_lane_by_lane(lanes: int) -> None:
    @njit
    def run(x, y, factor, out):  # type: ignore[no-untyped-def]
        left, right = load(lanes, x, 0, 0), load(lanes, y, 0, 0)
        store(left + right, out, 0, 0)
        store(left - right, out, 1, 0)
        store(left * right, out, 2, 0)
        store(add_scaled(left, factor, right), out, 3, 0)
        store(splat(lanes, factor), out, 4, 0)
        store(left / right, out, 5, 0)

    for seed in range(40):
        x, y = random_numbers(seed, 1, lanes), random_numbers(seed + 100, 1, lanes)
        factor = random_numbers(seed + 200, 1)[0]
        out = np.empty((6, lanes), dtype=np.float32)
        run(x, y, factor, out)
        for row, expected in enumerate((x + y, x - y, x * y)):
            np.testing.assert_array_equal(out[row], expected[0])
        # With one rounding or with two, as the processor can.
        product = factor.astype(np.float64) * y
        bound = UNIT * (np.abs(product) + np.abs(x + product))
        assert np.all(np.abs(out[3] - (x + product)) <= bound * 1.01)
        np.testing.assert_array_equal(out[4], np.full(lanes, factor))
        np.testing.assert_array_equal(out[5], (x / y)[0])
