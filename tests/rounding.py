"""How far a result in float32 may be from the exact one: arrays that carry the answer with them.

A formula in NumPy that is given :class:`Rounded` arrays computes its value in float64, and beside
it how far float32 may be off. Nothing in this bound is chosen to fit a result: it follows from the
number of summands, the sizes of the terms, the precision of float32, and how the formula passes
errors on.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

UNIT = 2.0**-24
"""The relative error of one operation in float32."""

DEVIATIONS = 6.0
"""Roundings go either way: sums of them beyond so many deviations have a probability of 3e-8."""

SAMPLES = 12
"""How often inexact inputs of a function are drawn."""


def lost(steps: float) -> float:
    """Return the relative error of a chain of so many roundings.

    It is at most ``steps`` units. Long chains add up to √steps rather than steps, whatever the data
    (Higham and Mary 2019). The last factor is for products of errors.
    """
    return UNIT * min(steps, DEVIATIONS * steps**0.5) * 1.01


class Rounded(np.lib.mixins.NDArrayOperatorsMixin):
    """An array in float64 that knows how far the same array in float32 may be off.

    **Sums of products.** An entry is a sum of terms. Every rounding on the way to it multiplies
    some of the terms by 1 + δ with |δ| ≤ UNIT, in whatever order products and sums are computed. So
    an entry in float32 is at most ``lost(steps) * size`` off.

    **Functions that are not linear** need their argument first, in every order of computation. What
    its roundings do to the result depends on the function. Therefore they are drawn: from here on,
    samples of the argument, with roundings of the deviation above, go through the rest of the
    formula beside the exact value. They keep what is lost together, as in a variable and its
    mean, together. The deviation of the samples is that of an error in float32.

    Parameters
    ----------
    value : array
        The exact result; may be a sparse matrix, for products.
    size : array, optional
        The sum of the absolute values of all terms; that of the value by default.
    steps : float
        The roundings of a term on the longest way from an input or from the samples.
    samples : array, optional
        (SAMPLES, ...) draws of the value with the errors of its inputs, if those are inexact.
    """

    def __init__(self, value: Any, size: Any = None, steps: float = 0, samples: Any = None) -> None:
        self.value = value
        self.size = abs(value) if size is None else size
        self.steps = steps
        self.samples = samples

    @property
    def bound(self) -> Any:
        """The largest error to expect."""
        own = lost(self.steps) * self.size
        if self.samples is None:
            return own
        return own + DEVIATIONS * np.sqrt(np.square(self.samples - self.value).mean(axis=0))

    def assert_near(self, actual: Any, name: str = "") -> None:
        """Fail unless every entry is within its bound."""
        found = np.asarray(actual, dtype=np.float64)
        value, bound = np.broadcast_arrays(self.value, self.bound)
        assert found.shape == value.shape, name
        assert np.isfinite(bound).all(), name
        # Written so that NaN fails.
        assert np.all(np.abs(found - value) <= bound + 1e-37), (
            f"{name} is off by {np.abs(found - value).max():.3g}, "
            f"{np.max(np.abs(found - value) / (bound + 1e-37)):.3g} times what rounding explains"
        )

    def through(self, function: Callable[[Any], Any], steps: float) -> Rounded:
        """Apply a function that is right to so many roundings itself."""
        drawn = self.drawn()
        value = function(self.value)
        return Rounded(value, steps=steps, samples=None if drawn is None else function(drawn))

    def drawn(self) -> Any:
        """Return samples with the roundings since the last ones; None for what is exact."""
        if self.steps == 0:
            return self.samples
        # The same draws whenever the test is run, and others for every array.
        generator = np.random.default_rng(zlib.crc32(np.ascontiguousarray(self.value)))
        up = generator.random((SAMPLES, *self.shape), np.float32) < 0.5
        start = self.value[None] if self.samples is None else self.samples
        moved = UNIT * self.steps**0.5 * self.size
        return start + np.where(up, moved, -moved)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        rule = _RULES.get(ufunc)
        if rule is None or method != "__call__" or options:
            return NotImplemented
        return rule(*inputs)

    def __getitem__(self, place: Any) -> Rounded:
        own = place if isinstance(place, tuple) else (place,)
        samples = None if self.samples is None else self.samples[(slice(None), *own)]
        return Rounded(self.value[place], self.size[place], self.steps, samples)

    def __len__(self) -> int:
        return len(self.value)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.value.shape  # type: ignore[no-any-return]

    @property
    def T(self) -> Rounded:  # noqa: N802
        """The transpose of a matrix."""
        samples = None if self.samples is None else self.samples.swapaxes(-1, -2)
        return Rounded(self.value.T, self.size.T, self.steps, samples)

    def reshape(self, *shape: int) -> Rounded:
        """Return the same entries in another shape."""
        samples = None if self.samples is None else self.samples.reshape(SAMPLES, *shape)
        return Rounded(self.value.reshape(shape), self.size.reshape(shape), self.steps, samples)

    def sum(self, axis: int | None = None, keepdims: bool = False) -> Rounded:
        """Return sums along an axis, or the sum of all."""
        terms = np.count_nonzero(self.size, axis=axis).max(initial=1)
        samples = self.samples
        if samples is not None:
            axes = tuple(range(1, samples.ndim)) if axis is None else axis + (axis >= 0)
            samples = samples.sum(axis=axes, keepdims=keepdims)
        value, size = (part.sum(axis=axis, keepdims=keepdims) for part in (self.value, self.size))
        return Rounded(value, size, self.steps + terms - 1, samples)

    def mean(self, axis: int | None = None, keepdims: bool = False) -> Rounded:
        """Return means along an axis, or that of all."""
        count = self.value.size if axis is None else self.value.shape[axis]
        result: Rounded = self.sum(axis, keepdims) / count
        return result

    def var(self, axis: int) -> Rounded:
        """Return variances, by squares around the mean: their terms are small."""
        centred: Any = np.square(self - self.mean(axis, keepdims=True))
        result: Rounded = centred.mean(axis)
        return result

    def max(self, axis: int, keepdims: bool = False) -> np.ndarray:
        """Return the largest values; for shifts that cancel, so that their error does not count."""
        largest: np.ndarray = self.value.max(axis=axis, keepdims=keepdims)
        return largest


def exactly(x: Any) -> Rounded:
    """Return numbers of float32, of NumPy or torch, which are exact."""
    array = x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)
    return Rounded(array.astype(np.float64))


def disturbed(function: Callable[[Any], Any], x: np.ndarray, steps: int) -> Rounded:
    """Return a function of an array that is not a formula in NumPy, but a network in torch.

    A rounded sum of products is the exact sum of other factors. So the function of arguments that
    are off by so many roundings shows what as many roundings inside of it do to its result.
    """
    generator = np.random.default_rng(0)
    value = np.asarray(function(x), dtype=np.float64)
    samples = []
    for _ in range(4):
        signs = generator.choice([-1.0, 1.0], x.shape)
        moved = x * (1.0 + UNIT * steps**0.5 * signs)
        samples.append(np.asarray(function(moved.astype(x.dtype)), dtype=np.float64))
    return Rounded(value, steps=steps, samples=np.stack(samples))


def stored(x: Any) -> Any:
    """Return an array whose roundings are drawn now, so that all uses of it have the same ones."""
    return x.through(lambda value: value, 0) if isinstance(x, Rounded) else x


def joined(parts: list[Rounded], join: Callable[..., Any], axis: int) -> Rounded:
    """Return arrays joined by ``np.stack`` or ``np.concatenate`` along an axis from the end."""
    assert axis < 0
    samples = None
    if any(part.samples is not None for part in parts):
        samples = join([_all(part.samples, part.value) for part in parts], axis=axis)
    value, size = (join([getattr(p, name) for p in parts], axis=axis) for name in ("value", "size"))
    return Rounded(value, size, max(part.steps for part in parts), samples)


def _all(samples: Any, value: Any) -> Any:
    return np.broadcast_to(value, (SAMPLES, *value.shape)) if samples is None else samples


def _rounded(x: Any) -> Rounded:
    """A constant of a formula is rounded once when it becomes a float32."""
    if isinstance(x, Rounded):
        return x
    return Rounded(x if sp.issparse(x) else np.asarray(x, dtype=np.float64), steps=1)


def _linear(rule: Callable[[Rounded, Rounded], Rounded]) -> Callable[..., Rounded]:
    return lambda a, b: rule(_rounded(a), _rounded(b))


def _pair(a: Rounded, b: Rounded, operation: Callable[[Any, Any], Any]) -> Any:
    """Apply an operation to the samples of two arrays; None if both are exact."""
    if a.samples is None and b.samples is None:
        return None
    ndim = max(a.value.ndim, b.value.ndim)
    return operation(_aligned(a, ndim), _aligned(b, ndim))


def _aligned(a: Rounded, ndim: int) -> Any:
    """Samples with as many dimensions as those of the other array, which then broadcast."""
    if a.samples is None:
        return a.value
    return a.samples.reshape(len(a.samples), *[1] * (ndim - a.value.ndim), *a.value.shape)


def _add(a: Rounded, b: Rounded) -> Rounded:
    samples = _pair(a, b, np.add)
    return Rounded(a.value + b.value, a.size + b.size, max(a.steps, b.steps) + 1, samples)


def _negative(a: Rounded) -> Rounded:
    return Rounded(-a.value, a.size, a.steps, None if a.samples is None else -a.samples)


def _multiply(a: Rounded, b: Rounded) -> Rounded:
    samples = _pair(a, b, np.multiply)
    return Rounded(a.value * b.value, a.size * b.size, a.steps + b.steps + 1, samples)


def _matmul(a: Rounded, b: Rounded) -> Rounded:
    terms = min(_most(a.size, -1), _most(b.size, 0 if b.value.ndim == 1 else -2))
    if b.samples is not None and a.samples is None and sp.issparse(a.value):
        samples: Any = np.stack([a.value @ each for each in b.samples])
    elif b.samples is not None and b.value.ndim == 1:
        samples = (_all(a.samples, a.value) @ b.samples[..., None])[..., 0]
    elif a.samples is not None and a.value.ndim == 1:
        samples = (a.samples[:, None] @ _all(b.samples, b.value))[:, 0]
    else:
        samples = None
        if a.samples is not None or b.samples is not None:
            samples = (a.value if a.samples is None else a.samples) @ (
                b.value if b.samples is None else b.samples
            )
    steps = a.steps + b.steps + max(terms, 1)
    return Rounded(a.value @ b.value, a.size @ b.size, steps, samples)


def _most(size: Any, axis: int) -> int:
    """Return the largest number of entries along an axis that are not zero."""
    return int((size != 0).sum(axis=axis).max())


def _divide(a: Rounded, b: Rounded) -> Rounded:
    if b.samples is None and np.array_equal(b.size, np.abs(b.value)):
        # The factors 1 + δ of a single term are those of its inverse, too.
        return _multiply(a, Rounded(1.0 / b.value, steps=b.steps + 1))
    return _multiply(a, b.through(np.reciprocal, 1))


def _exp(a: Rounded) -> Rounded:
    """Right to two units, torch's and our own; but our kernels take what is below e⁻⁸⁰ for zero."""
    result = a.through(np.exp, 2)
    result.size = result.size + np.exp(-80.0) / UNIT
    return result


def _power(a: Rounded, exponent: float) -> Rounded:
    """By way of a logarithm and an exponential; see ``_log`` for the number of steps."""
    tiny = np.finfo(np.float32).tiny

    def logarithm(x: Any) -> Any:
        return np.log(np.maximum(x, tiny))

    return np.exp(exponent * a.through(logarithm, 5))  # type: ignore[no-any-return,call-overload]


def _greater(a: Rounded, limit: float) -> Rounded:
    """Ones and zeros; where the bound reaches the limit, either may be right."""
    value = (a.value > limit).astype(np.float64)
    bound = a.bound
    unsure = np.abs(a.value - limit) <= bound
    if not np.any(unsure & (bound > 0)):
        return Rounded(value)
    # Samples whose deviation makes the bound one, and none where the answer is sure.
    return Rounded(value, unsure / DEVIATIONS / UNIT, steps=1).through(lambda x: x, 0)


_RULES: dict[Any, Callable[..., Rounded]] = {
    np.add: _linear(_add),
    np.subtract: _linear(lambda a, b: _add(a, _negative(b))),
    np.negative: _negative,
    np.multiply: _linear(_multiply),
    np.matmul: _linear(_matmul),
    np.true_divide: _linear(_divide),
    np.exp: _exp,
    # Torch's is right to a unit, our own to 2.5e-7.
    np.log: lambda a: a.through(np.log, 5),
    np.sqrt: lambda a: a.through(np.sqrt, 1),
    np.tanh: lambda a: a.through(np.tanh, 2),
    np.square: lambda a: a.through(np.square, 1),
    np.power: _power,
    np.maximum: lambda a, least: a.through(lambda x: np.maximum(x, least), 0),
    np.greater: _greater,
}
