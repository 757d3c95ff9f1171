"""Vectors of float32 as values inside numba functions.

All expensive work in this package is sums of matrix rows: Σ weight · row. Numba vectorises such
loops, but a row of 32 or 64 numbers is so short that entering the vector loop costs more than
running it. With a vector as a value, the sum stays in registers and a row takes a few instructions
on any processor, because LLVM splits vectors into those that the processor has. On Cora this makes
propagation 2.5 times as fast as torch's product (MKL) on one thread.

The number of lanes of a vector is a literal (``load(64, matrix, row, column)``). All arithmetic is
lane by lane. Arrays are C-contiguous, two-dimensional and float32, and bounds are not checked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

_CONTRACT = ("contract",)
"""Allows a product to be fused with the addition that follows; nothing else is relaxed."""


_LINE = 16
"""The number of float32 in a cache line."""


class Vector(types.Type):
    """The numba type of a vector."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        super().__init__(name=f"Vector({lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Vector) -> None:
        super().__init__(dmm, fe_type, _llvm(fe_type.lanes))


@intrinsic(prefer_literal=True)
def load(typing: Any, lanes: Any, array: Any, row: Any, column: Any) -> Any:
    """Return ``array[row, column : column + lanes]``."""
    vector = Vector(lanes.literal_value)

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[1:], arguments[1:])
        return _read(builder, address, vector.lanes)

    return vector(lanes, array, types.intp, types.intp), lower


@intrinsic
def store(typing: Any, vector: Any, array: Any, row: Any, column: Any) -> Any:
    """Write a vector to ``array[row, column : column + lanes]``."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[1:], arguments[1:])
        pointer = builder.bitcast(address, _llvm(vector.lanes).as_pointer())
        builder.store(arguments[0], pointer).align = 4
        return context.get_dummy_value()

    return types.void(vector, array, types.intp, types.intp), lower


@intrinsic
def stream(typing: Any, vector: Any, array: Any, row: Any, column: Any) -> Any:
    """Write a vector to aligned memory, bypassing the caches: for data read again much later."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[1:], arguments[1:])
        pointer = builder.bitcast(address, _llvm(vector.lanes).as_pointer())
        instruction = builder.store(arguments[0], pointer)
        instruction.align = 4 * _LINE
        past = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        instruction.set_metadata("nontemporal", past)
        return context.get_dummy_value()

    return types.void(vector, array, types.intp, types.intp), lower


@intrinsic(prefer_literal=True)
def load_flags(typing: Any, lanes: Any, flags: Any, row: Any, column: Any) -> Any:
    """Return ``flags[row, column : column + lanes]`` of a matrix of booleans, as zeros and ones."""
    vector = Vector(lanes.literal_value)

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[1:], arguments[1:])
        octets = ir.VectorType(ir.IntType(8), vector.lanes)
        value = builder.load(builder.bitcast(address, octets.as_pointer()))
        value.align = 1
        return builder.uitofp(value, _llvm(vector.lanes))

    return vector(lanes, flags, types.intp, types.intp), lower


@intrinsic(prefer_literal=True)
def splat(typing: Any, lanes: Any, value: Any) -> Any:
    """Return a vector with ``value`` in every lane."""
    vector = Vector(lanes.literal_value)

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _splat(builder, arguments[1], vector.lanes)

    return vector(lanes, types.float32), lower


@intrinsic
def add_scaled(typing: Any, total: Any, factor: Any, vector: Any) -> Any:
    """Return ``total + factor * vector`` for a scalar factor."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        spread = _splat(builder, arguments[1], vector.lanes)
        product = builder.fmul(spread, arguments[2], flags=_CONTRACT)
        return builder.fadd(product, arguments[0], flags=_CONTRACT)

    return vector(vector, types.float32, vector), lower


@intrinsic
def keep(typing: Any, bits: Any, vector: Any) -> Any:
    """Return the lanes whose bit is set, and zero elsewhere; the lowest bit is the first lane."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, value = arguments
        lanes = vector.lanes
        if lanes < 64:
            word = builder.trunc(word, ir.IntType(lanes))
        mask = builder.bitcast(word, ir.VectorType(ir.IntType(1), lanes))
        return builder.select(mask, value, ir.Constant(_llvm(lanes), None))

    return vector(types.uint64, vector), lower


@intrinsic
def where_positive(typing: Any, condition: Any, vector: Any) -> Any:
    """Return the lanes where ``condition`` is positive or NaN, and zero elsewhere."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zero = ir.Constant(_llvm(vector.lanes), None)
        # Unordered, so that NaN is passed on and can be noticed.
        mask = builder.fcmp_unordered(">", arguments[0], zero)
        return builder.select(mask, arguments[1], zero)

    return vector(vector, vector), lower


@intrinsic
def larger(typing: Any, left: Any, right: Any) -> Any:
    """Return the larger of both vectors in every lane; where one is NaN, that of ``right``."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        mask = builder.fcmp_ordered(">", *arguments)
        return builder.select(mask, *arguments)

    return left(left, right), lower


@intrinsic(prefer_literal=True)
def repeat(typing: Any, vector: Any, times: Any) -> Any:
    """Return a vector with every lane repeated, one after the other."""
    count = times.literal_value
    longer = Vector(vector.lanes * count)

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = [lane // count for lane in range(longer.lanes)]
        return _shuffle(builder, arguments[0], vector.lanes, places)

    return longer(vector, times), lower


@intrinsic(prefer_literal=True)
def group_totals(typing: Any, vector: Any, size: Any) -> Any:
    """Return the sums of neighbouring lanes, ``size`` at a time, which is a power of two."""
    shorter = Vector(vector.lanes // size.literal_value)

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, lanes = arguments[0], vector.lanes
        while lanes > shorter.lanes:
            even, odd = range(0, lanes, 2), range(1, lanes, 2)
            value = builder.fadd(
                _shuffle(builder, value, lanes, even), _shuffle(builder, value, lanes, odd)
            )
            lanes //= 2
        return value

    return shorter(vector, size), lower


@intrinsic
def total(typing: Any, vector: Any) -> Any:
    """Return the sum of the lanes."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _reduce(builder, arguments[0], vector.lanes, lambda a, b: builder.fadd(a, b))

    return types.float32(vector), lower


@intrinsic
def largest(typing: Any, vector: Any) -> Any:
    """Return the largest lane."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def larger(a: Any, b: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        return _reduce(builder, arguments[0], vector.lanes, larger)

    return types.float32(vector), lower


@intrinsic
def exponential(typing: Any, vector: Any) -> Any:
    """Return e to the power of every lane, with a relative error of about 1e-7; zero below -80.

    Results below 1e-38 are avoided, because processors compute with them a hundred times slower.
    """
    lanes = vector.lanes

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def constant(number: float) -> Any:
            return ir.Constant(_llvm(lanes), [number] * lanes)

        def fused(a: Any, b: Any, c: Any) -> Any:
            return builder.fadd(builder.fmul(a, b, flags=_CONTRACT), c, flags=_CONTRACT)

        low, high = constant(-80.0), constant(88.0)
        counts = builder.fcmp_ordered(">", arguments[0], low)
        x = builder.select(counts, arguments[0], low)
        x = builder.select(builder.fcmp_ordered("<", x, high), x, high)
        # x = n ln 2 + r with a whole n, then a Taylor polynomial of r, at most 0.35 in size. Adding
        # 1.5 * 2**23 rounds to a whole number and leaves it in the low bits.
        shift = constant(12582912.0)
        shifted = fused(x, constant(1.4426950408889634), shift)
        n = builder.fsub(shifted, shift)
        r = fused(n, constant(-0.693145751953125), x)
        r = fused(n, constant(-1.428606765330187e-06), r)
        result = constant(1.0 / 5040)
        for factorial in (720, 120, 24, 6, 2, 1, 1):
            result = fused(result, r, constant(1.0 / factorial))
        whole = ir.VectorType(ir.IntType(32), lanes)
        places = ir.Constant(whole, [23] * lanes)
        exponent = builder.shl(builder.bitcast(shifted, whole), places)
        raised = builder.add(builder.bitcast(result, whole), exponent)
        value = builder.select(counts, builder.bitcast(raised, _llvm(lanes)), constant(0.0))
        no_number = builder.fcmp_unordered("uno", arguments[0], arguments[0])
        return builder.select(no_number, arguments[0], value)

    return vector(vector), lower


@intrinsic
def logarithm(typing: Any, vector: Any) -> Any:
    """Return the natural logarithm of positive lanes, to about 1e-7; about -88 for zero."""
    lanes = vector.lanes

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        whole = ir.VectorType(ir.IntType(32), lanes)

        def constant(number: float) -> Any:
            return ir.Constant(_llvm(lanes), [number] * lanes)

        def integer(number: int) -> Any:
            return ir.Constant(whole, [number] * lanes)

        def fused(a: Any, b: Any, c: Any) -> Any:
            return builder.fadd(builder.fmul(a, b, flags=_CONTRACT), c, flags=_CONTRACT)

        # x = m 2**e with m from 0.7 to 1.4, then log m = 2 artanh((m - 1) / (m + 1)) as a series.
        root_half = 0x3F3504F3
        offset = builder.sub(builder.bitcast(arguments[0], whole), integer(root_half))
        exponent = builder.ashr(offset, integer(23))
        mantissa = builder.sub(
            builder.bitcast(arguments[0], whole), builder.shl(exponent, integer(23))
        )
        m = builder.bitcast(mantissa, _llvm(lanes))
        t = builder.fdiv(builder.fsub(m, constant(1.0)), builder.fadd(m, constant(1.0)))
        square = builder.fmul(t, t)
        series = constant(2.0 / 9)
        for odd in (7, 5, 3, 1):
            series = fused(series, square, constant(2.0 / odd))
        e = builder.sitofp(exponent, _llvm(lanes))
        return fused(e, constant(0.6931471805599453), builder.fmul(t, series))

    return vector(vector), lower


@intrinsic(prefer_literal=True)
def prefetch(typing: Any, lanes: Any, array: Any, row: Any, column: Any) -> Any:
    """Start loading ``array[row, column : column + lanes]`` into the cache."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature.args[1:], arguments[1:])
        byte, whole = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, whole, whole, whole])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        for lane in range(0, lanes.literal_value, _LINE):
            line = builder.gep(address, [ir.Constant(ir.IntType(64), lane)])
            # For reading, with high locality, into the data cache.
            options = [ir.Constant(whole, number) for number in (0, 3, 1)]
            builder.call(function, [builder.bitcast(line, byte), *options])
        return context.get_dummy_value()

    return types.void(lanes, array, types.intp, types.intp), lower


def _arithmetic(symbol: Callable[..., Any], instruction: str) -> None:
    """Define an operator of two vectors for numba."""

    @type_callable(symbol)
    def typer(context: Any) -> Any:
        def typed(left: Any, right: Any) -> Any:
            return left if isinstance(left, Vector) and left == right else None

        return typed

    @lower_builtin(symbol, Vector, Vector)
    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, instruction)(*arguments, flags=_CONTRACT)


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _arithmetic(_symbol, _instruction)


def _llvm(lanes: int) -> ir.VectorType:
    return ir.VectorType(ir.FloatType(), lanes)


def _address(context: Any, builder: Any, kinds: Any, values: Any) -> Any:
    array = context.make_array(kinds[0])(context, builder, values[0])
    columns = cgutils.unpack_tuple(builder, array.shape)[1]
    return builder.gep(array.data, [builder.add(builder.mul(values[1], columns), values[2])])


def _read(builder: Any, address: Any, lanes: int) -> Any:
    value = builder.load(builder.bitcast(address, _llvm(lanes).as_pointer()))
    value.align = 4
    return value


def _splat(builder: Any, scalar: Any, lanes: int) -> Any:
    kind, whole = _llvm(lanes), ir.IntType(32)
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, scalar, ir.Constant(whole, 0))
    every = ir.Constant(ir.VectorType(whole, lanes), [0] * lanes)
    return builder.shuffle_vector(first, nothing, every)


def _reduce(builder: Any, value: Any, lanes: int, combine: Callable[[Any, Any], Any]) -> Any:
    """Combine the upper half of the lanes with the lower half until one lane is left."""
    while lanes > 1:
        half = lanes // 2
        value = combine(
            _shuffle(builder, value, lanes, range(half)),
            _shuffle(builder, value, lanes, range(half, lanes)),
        )
        lanes = half
    return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))


def _shuffle(builder: Any, value: Any, lanes: int, places: Sequence[int]) -> Any:
    """Return the vector of the lanes at some places."""
    nothing = ir.Constant(_llvm(lanes), ir.Undefined)
    kind = ir.VectorType(ir.IntType(32), len(places))
    return builder.shuffle_vector(value, nothing, ir.Constant(kind, list(places)))
